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

}  // namespace cubinery::dev
