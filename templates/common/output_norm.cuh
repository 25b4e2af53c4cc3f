// The gated RMS norm of a head's output, o * rsqrt(mean(o^2) + eps) * weight * gate(z): its
// arithmetic, and the norm of outputs that wait in shared memory.
//
// The sum of squares is a tree over each 16 columns of the head, and then the sum of these, first
// to last: the same bits in every kernel, however warps share the head.
#pragma once

#include "common/math.cuh"
#include "common/operands.cuh"
#include "common/output_norm.h"
#include "common/verify_params.h"
#include "common/warp.cuh"

namespace cubinery::dev {

template <auto kKey>
__device__ float inverse_rms(float sum_of_squares, float eps) {
  return rsqrtf(fmaf(sum_of_squares, 1.0f / kKey.value_dim, eps));
}

// What a normed and weighted output is multiplied by.
template <auto kKey>
__device__ float gate_of(float z) {
  if constexpr (kKey.output_norm == gdn::OutputNorm::kSigmoidGatedRms) return sigmoid(z);
  return z * sigmoid(z);
}

// One token's row in the lanes of a warp: lane l has columns l, l + 32, ...
template <auto kKey>
class NormRow {
  static constexpr int kColumns = (kKey.value_dim + 31) / 32;  // of a lane, at most

  // Calls f(i, column) for each of this lane's columns.
  template <class Function>
  static __device__ void for_each_column(Function f) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int column = threadIdx.x % 32 + 32 * i;
      if (32 * (i + 1) <= kKey.value_dim || column < kKey.value_dim) f(i, column);
    }
  }

 public:
  explicit __device__ NormRow(const StridedVector& weight) {
    for_each_column(
        [&](int i, int column) { weight_[i] = load<kKey.norm_weight_dtype>(weight, column); });
  }

  // The token's z, on its way until store().
  __device__ void load_gate(const Storage<kKey.dtype>* z) {
    for_each_column([&](int i, int column) { z_[i] = load<kKey.dtype>(z, column); });
  }

  // Norms and stores the row at `from`.  For all lanes of the warp.
  __device__ void store(const float* from, float eps, Storage<kKey.output_dtype>* to) const {
    float o[kColumns] = {};
    for_each_column([&](int i, int column) { o[i] = from[column]; });
    const float inverse = inverse_rms<kKey>(sum_of_squares(o), eps);
    for_each_column([&](int i, int column) {
      const float weighted = o[i] * inverse * weight_[i];
      to[column] = from_float<kKey.output_dtype>(weighted * gate_of<kKey>(z_[i]));
    });
  }

 private:
  static __device__ float sum_of_squares(const float (&o)[kColumns]) {
    float all = 0.0f;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      // Not fused with the first sum, whose other half is another lane's product.
      const float sum = sum_over_lanes<16, 1>(__fmul_rn(o[i], o[i]));
      all += __shfl_sync(0xffffffffu, sum, 0);
      if (32 * i + 16 < kKey.value_dim) all += __shfl_sync(0xffffffffu, sum, 16);
    }
    return all;
  }

  float weight_[kColumns], z_[kColumns];
};

// Norms and stores the outputs of a head's tokens, of which token t waits at `waiting` + t
// waiting_stride(kKey), in shared memory.  For all threads of the block, whose head it is; a warp
// takes whole tokens.
template <auto kKey>
__device__ void store_normed(const GdnVerifyParams& p, TokenStrides::At at, int count,
                             const float* waiting) {
  const auto* z = row_at<kKey.dtype>(p.norm.z, at);
  auto* const o = row_at<kKey.output_dtype>(p.o, at);
  int t = threadIdx.x / 32;
  NormRow<kKey> row(p.norm.weight);
  if (t < count) row.load_gate(z + t * p.norm.z.stride.token);
  // Orders the outputs of all warps before their reading.
  __syncthreads();
#pragma unroll 1
  for (; t < count; t += kKey.warps) {
    row.store(waiting + t * waiting_stride(kKey), p.norm.eps, o + t * p.o.stride.token);
    const int next = t + kKey.warps;
    if (next < count) row.load_gate(z + next * p.norm.z.stride.token);
  }
}

}  // namespace cubinery::dev
