// x <- factor x, kKey.vec elements for each thread.
#include "common/types.cuh"
#include "scale_rows_wide/key.h"

#ifdef CUBINERY_KEY
constexpr cubinery::ScaleRowsWideKey kKey = CUBINERY_KEY;
#else
constexpr cubinery::ScaleRowsWideKey kKey{};  // stand-alone build: nvcc, clangd, profilers
#endif
static_assert(cubinery::why_invalid(kKey) == nullptr,
              "scale_rows_wide: key outside the tuning space");

extern "C" __global__ void __launch_bounds__(kKey.threads)
    scale_rows_wide(const __grid_constant__ cubinery::ScaleRowsWideParams p) {
  namespace dev = cubinery::dev;
  const long long thread = blockIdx.x * static_cast<long long>(kKey.threads) + threadIdx.x;
#pragma unroll
  for (int e = 0; e < kKey.vec; ++e) {
    const long long i = thread * kKey.vec + e;
    if (i >= p.elements) return;
    auto& x = dev::as<kKey.dtype>(p.x)[i];
    x = dev::from_float<kKey.dtype>(p.factor * dev::to_float<kKey.dtype>(x));
  }
}
