// x <- factor x, one element for each thread.
#include "common/types.cuh"
#include "scale_rows/key.h"

#ifdef CUBINERY_KEY
constexpr cubinery::ScaleRowsKey kKey = CUBINERY_KEY;
#else
constexpr cubinery::ScaleRowsKey kKey{};  // stand-alone build: nvcc, clangd, profilers
#endif
static_assert(cubinery::why_invalid(kKey) == nullptr, "scale_rows: key outside the tuning space");

extern "C" __global__ void __launch_bounds__(kKey.threads)
    scale_rows(const __grid_constant__ cubinery::ScaleRowsParams p) {
  namespace dev = cubinery::dev;
  const long long i = blockIdx.x * static_cast<long long>(kKey.threads) + threadIdx.x;
  if (i >= p.elements) return;
  auto& x = dev::as<kKey.dtype>(p.x)[i];
  x = dev::from_float<kKey.dtype>(p.factor * dev::to_float<kKey.dtype>(x));
}
