// From sums to outputs: activation, norm, scale.  Templates over GdnConvKey.
#pragma once

#include "common/conv_taps.cuh"
#include "common/math.cuh"
#include "common/norm.cuh"
#include "common/slots.cuh"
#include "gdn_conv/channels.cuh"

namespace cubinery::dev {

// What makes outputs of a row's sums.
template <auto kKey>
class Outputs {
 public:
  static constexpr int kCount = kKey.lane_channels;
  using Lane = LaneChannels<kKey>;

  __device__ explicit Outputs(const Lane& lane)
      : lane_(lane),
        any_normed_(__any_sync(0xffffffffu, lane.is_normed) != 0),
        any_scaled_(__any_sync(0xffffffffu, lane.scale != 1.0f) != 0) {}

  // For all lanes: kRows tokens, behind each other from `to` on.
  template <int kRows>
  __device__ void store(Storage<kKey.dtype>* to, float (&y)[kRows][kCount]) const {
    if constexpr (kKey.activation == gdn::Activation::kSilu) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) y[r][i] = silu(y[r][i]);
      }
    }
    if constexpr (kKey.split_qkv) {
      float factors[kRows];
#pragma unroll
      for (float& factor : factors) factor = lane_.scale;
      if constexpr (kKey.inputs.use_qk_l2norm) {
        if (any_normed_) multiply_by_norms(y, factors);
      }
      if (any_normed_ || any_scaled_) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int i = 0; i < kCount; ++i) y[r][i] *= factors[r];
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) lane_.store(to + r * lane_.token_stride, y[r]);
  }

  // What is stored where there is no state to compute from.
  __device__ void store_instead(Storage<kKey.dtype>* to, Slots::Kind kind) const {
    if (kind == Slots::Kind::kSkip) return;
    float y[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) y[i] = kind == Slots::Kind::kZero ? 0.0f : nan();
    lane_.store(to, y);
  }

 private:
  // Squares are summed by fours, then over lanes: in one order, however many a lane has.
  template <int kRows>
  __device__ void multiply_by_norms(const float (&y)[kRows][kCount],
                                    float (&factors)[kRows]) const {
    float squares[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      squares[r] = 0.0f;
#pragma unroll
      for (int n = 0; n < kCount; n += 4) {
        float of_four = y[r][n] * y[r][n];
#pragma unroll
        for (int i = 1; i < 4; ++i) of_four = fmaf(y[r][n + i], y[r][n + i], of_four);
        squares[r] = n == 0 ? of_four : squares[r] + of_four;
      }
      if (!lane_.is_there()) squares[r] = 0.0f;
    }
    // Rows side by side, so that one waits while the other does.
#pragma unroll
    for (int step = 1; step < Lane::kHeadLanes; step *= 2) {
#pragma unroll
      for (float& sum : squares) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (lane_.is_normed) factors[r] *= inverse_norm(squares[r]);
    }
  }

  const Lane& lane_;
  bool any_normed_;  // of the warp's lanes
  bool any_scaled_;
};

}  // namespace cubinery::dev
