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

  // For all lanes.
  __device__ void store(Storage<kKey.dtype>* to, float (&y)[kCount]) const {
    if constexpr (kKey.activation == gdn::Activation::kSilu) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) y[i] = silu(y[i]);
    }
    if constexpr (kKey.split_qkv) {
      float factor = lane_.scale;
      if constexpr (kKey.inputs.use_qk_l2norm) {
        if (any_normed_) factor *= norm_factor(y);
      }
      if (any_normed_ || any_scaled_) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) y[i] *= factor;
      }
    }
    lane_.store(to, y);
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
  __device__ float norm_factor(const float (&y)[kCount]) const {
    float squares = 0.0f;
#pragma unroll
    for (int n = 0; n < kCount; n += 4) {
      float of_four = y[n] * y[n];
#pragma unroll
      for (int i = 1; i < 4; ++i) of_four = fmaf(y[n + i], y[n + i], of_four);
      squares = n == 0 ? of_four : squares + of_four;
    }
    if (!lane_.is_there()) squares = 0.0f;
    const float factor = inverse_norm(sum_over_lanes<Lane::kHeadLanes, 1>(squares));
    return lane_.is_normed ? factor : 1.0f;
  }

  const Lane& lane_;
  bool any_normed_;  // of the warp's lanes
  bool any_scaled_;
};

}  // namespace cubinery::dev
