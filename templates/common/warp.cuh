// Reductions inside a warp.
#pragma once

namespace cubinery::dev {

// The sum of x over the kLanes lanes whose numbers differ from this one's only in the bits kStride,
// 2 * kStride, ...: a butterfly, so every lane gets the same bits.
template <int kLanes, int kStride>
__device__ float sum_over_lanes(float x) {
#pragma unroll
  for (int step = kStride; step < kLanes * kStride; step *= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, step);
  }
  return x;
}

}  // namespace cubinery::dev
