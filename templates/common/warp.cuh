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

// Sums of many terms over a warp: each lane gets some of them, about kCount / 32, by fewer steps
// than a butterfly of each.  Where a step parts an odd number, both halves get the middle one.
template <int kCount, int kStep = 16>
constexpr int own_sums() {
  constexpr int kHalf = (kCount + 1) / 2;
  if constexpr (kStep == 1)
    return kHalf;
  else
    return own_sums<kHalf, kStep / 2>();
}
// Which of the terms the lane's sum in `slot` is of; -1: another lane has it too.
template <int kCount, int kStep = 16>
__device__ int number_of_own(int slot) {
  constexpr int kHalf = (kCount + 1) / 2;
  int inner = slot;
  if constexpr (kStep > 1) inner = number_of_own<kHalf, kStep / 2>(slot);
  if (inner < 0 || (threadIdx.x & kStep) == 0) return inner;
  return inner + kHalf < kCount ? inner + kHalf : -1;
}
template <int kStep = 16, int kCount>
__device__ void sum_over_warp(const float (&terms)[kCount],
                              float (&own)[own_sums<kCount, kStep>()]) {
  constexpr int kHalf = (kCount + 1) / 2;
  const bool is_upper = (threadIdx.x & kStep) != 0;
  float sums[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const bool has_two = i + kHalf < kCount;
    const float other = terms[has_two ? i + kHalf : i];
    const float kept = is_upper ? other : terms[i], given = is_upper ? terms[i] : other;
    sums[i] = kept + __shfl_xor_sync(0xffffffffu, given, kStep);
  }
  if constexpr (kStep == 1) {
#pragma unroll
    for (int i = 0; i < kHalf; ++i) own[i] = sums[i];
  } else {
    sum_over_warp<kStep / 2>(sums, own);
  }
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
