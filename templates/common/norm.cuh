// Norms of rows of q and k: use_qk_l2norm divides by sqrt(sum x^2 + 1e-6).
#pragma once

#include "common/types.cuh"
#include "common/warp.cuh"

namespace cubinery::dev {

__device__ inline float inverse_norm(float sum_of_squares) {
  return rsqrtf(sum_of_squares + 1e-6f);
}

// Divides a row by its norm.  The row's elements are in the lanes that sum_over_lanes() sums over.
template <int kLanes, int kLaneStride, int kCount>
__device__ void normalize(float (&x)[kCount]) {
  float squares = 0.0f;
#pragma unroll
  for (int e = 0; e < kCount; ++e) squares = fmaf(x[e], x[e], squares);
  const float factor = inverse_norm(sum_over_lanes<kLanes, kLaneStride>(squares));
#pragma unroll
  for (int e = 0; e < kCount; ++e) x[e] *= factor;
}

// The inverse norms of kRows rows of kDim elements, kStride elements apart, with kThreads threads
// from the block's first on, eight lanes to a row.  Requires: kThreads / 8 divides kRows.
template <DType kDType, int kRows, int kDim, int kStride, int kThreads>
__device__ void inverse_norms(float* norms, const void* rows) {
  constexpr int kPart = kDim / 8;
  const int part = threadIdx.x % 8;
  for (int row = threadIdx.x / 8; row < kRows; row += kThreads / 8) {
    float squares = 0.0f;
#pragma unroll
    for (int e = 0; e < kPart; ++e) {
      const float x = load<kDType>(rows, row * kStride + e * 8 + part);
      squares = fmaf(x, x, squares);
    }
    squares = sum_over_lanes<8, 1>(squares);
    if (part == 0) norms[row] = inverse_norm(squares);
  }
}

}  // namespace cubinery::dev
