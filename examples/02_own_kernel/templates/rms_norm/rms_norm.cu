// RMS normalisation of each row: y = x / sqrt(mean(x^2) + 1e-6) * weight.  One warp <-> one row.
#include "common/types.cuh"
#include "common/warp.cuh"
#include "rms_norm/key.h"

#ifdef CUBINERY_KEY
constexpr RmsNormKey kKey = CUBINERY_KEY;
#else
constexpr RmsNormKey kKey{};  // stand-alone build: nvcc, clangd, profilers
#endif
static_assert(why_invalid(kKey) == nullptr, "rms_norm: key outside the tuning space");

extern "C" __global__ void __launch_bounds__(threads(kKey))
    rms_norm(const __grid_constant__ RmsNormParams p) {
  using namespace cubinery;
  constexpr int kPart = kKey.cols / 32;
  const int lane = threadIdx.x % 32;
  const long long row = blockIdx.x * static_cast<long long>(kKey.warps) + threadIdx.x / 32;
  if (row >= p.rows) return;  // whole warps leave

  float x[kPart];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kPart; ++i) {
    x[i] = dev::load<kKey.dtype>(p.x, row * kKey.cols + i * 32 + lane);
    squares = fmaf(x[i], x[i], squares);
  }
  const float inverse_rms = rsqrtf(dev::sum_over_lanes<32, 1>(squares) / kKey.cols + 1e-6f);
#pragma unroll
  for (int i = 0; i < kPart; ++i) {
    const int c = i * 32 + lane;
    const float y = x[i] * inverse_rms * dev::load<kKey.dtype>(p.weight, c);
    dev::as<kKey.dtype>(p.y)[row * kKey.cols + c] = dev::from_float<kKey.dtype>(y);
  }
}
