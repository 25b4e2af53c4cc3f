// The gated RMS norm of a head's output (common/output_norm.cuh), whose columns several warps of a
// block have.
#pragma once

#include "common/operands.cuh"
#include "common/output_norm.cuh"
#include "common/step.cuh"
#include "gdn_decode/key.h"

namespace cubinery::dev {

// A lane keeps one column, in fp32, and has its z and weight on the way meanwhile.
//
// The k lanes of a column have its output alike: lane k keeps the k-th of their columns.  In the
// end lane l takes column l of the warp.
template <auto kKey>
class GatedNorm {
  using S = Step<kKey>;

  static constexpr int kTile = kKey.warp_v;
  static constexpr int kWarpsOfHead = warps_of_head(kKey);
  static constexpr int kGroup = kTile < 16 ? kTile : 16;  // columns that a warp sums up
  static constexpr int kGroups = kKey.value_dim / kGroup;
  static constexpr int kParts = 16 / kGroup;  // groups of a tree

 public:
  // Column `first_v` of its head is the warp's first.
  __device__ GatedNorm(const GdnDecodeParams& p, RequestStrides::At at, int first_v) {
    const int column = first_v + threadIdx.x % kTile;
    z_ = load<kKey.dtype>(row_at<kKey.dtype>(p.norm.z, at), column);
    weight_ = load<kKey.norm_weight_dtype>(p.norm.weight, column);
  }

  // Output number `i` of the columns that lane `k` of key_dim and its like have.
  __device__ void put(int i, int k, float output) {
    if (i == k) kept_ = output;
  }

  // Stores the warp's outputs from `to` on.  For all warps of the head.
  __device__ void store(Storage<kKey.output_dtype>* to, float eps) const {
    const int lane = threadIdx.x % 32;
    const float o = __shfl_sync(0xffffffffu, kept_, keeper_of(lane % kTile));
    const float inverse = inverse_rms<kKey>(sum_of_squares(o, lane), eps);
    const float weighted = o * inverse * weight_;
    if (lane < kTile) to[lane] = from_float<kKey.output_dtype>(weighted * gate_of<kKey>(z_));
  }

 private:
  // The lane that keeps a column of the warp.
  static __device__ int keeper_of(int column) {
    const int k = column / S::kPieceV * S::kColumns + column % S::kColumns;
    const int v = column % S::kPieceV / S::kColumns;
    return S::kRowsAreV ? v * kKey.k_lanes + k : k * S::kVLanes + v;
  }

  // Of the head.  From lane kTile on, lanes have the columns of those in front.
  static __device__ float sum_of_squares(float o, int lane) {
    constexpr int kHeads = kKey.warps / kWarpsOfHead;  // of the block
    __shared__ float sums[kHeads][kGroups];
    const int warp = threadIdx.x / 32;
    const int head = kHeads == 1 ? 0 : warp / kWarpsOfHead;
    // Not fused with the first sum, whose other half is another lane's product.
    const float sum = sum_over_lanes<kGroup, 1>(__fmul_rn(o, o));
    if (lane < kTile && lane % kGroup == 0) {
      sums[head][(warp % kWarpsOfHead * kTile + lane) / kGroup] = sum;
    }
    // Orders the sums of a head's warps before their reading.  The warps of a head return together
    // or get here together; those of the block's other heads may have returned.
    asm volatile("bar.sync %0, %1;" ::"r"(1 + head), "n"(kWarpsOfHead * 32) : "memory");
    float all = 0.0f;
#pragma unroll
    for (int i = 0; i < kGroups; i += kParts) {
      float part[kParts];
#pragma unroll
      for (int j = 0; j < kParts; ++j) part[j] = sums[head][i + j];
#pragma unroll
      for (int step = 1; step < kParts; step *= 2) {
#pragma unroll
        for (int j = 0; j < kParts; j += 2 * step) part[j] += part[j + step];
      }
      all += part[0];
    }
    return all;
  }

  float z_, weight_;
  float kept_ = 0.0f;
};

// Of outputs that are stored as they come.
struct NoNorm {
  __device__ NoNorm(const GdnDecodeParams&, RequestStrides::At, int) {}
  __device__ void put(int, int, float) {}
  template <class T>
  __device__ void store(T*, float) const {}
};

template <auto kKey, bool = is_normed(kKey)>
struct NormOf {
  using Type = NoNorm;
};
template <auto kKey>
struct NormOf<kKey, true> {
  using Type = GatedNorm<kKey>;
};

}  // namespace cubinery::dev
