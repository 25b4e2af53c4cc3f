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

// The sum of x over the lanes with smaller numbers.
__device__ inline float sum_of_lanes_before(float x) {
  const int lane = threadIdx.x % 32;
  float sum = x;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const float below = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += below;
  }
  const float before = __shfl_up_sync(0xffffffffu, sum, 1);
  return lane == 0 ? 0.0f : before;
}

}  // namespace cubinery::dev
