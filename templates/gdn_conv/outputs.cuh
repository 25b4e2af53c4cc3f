// From sums to outputs: activation, norm, scale.  Templates over GdnConvKey.
#pragma once

#include "common/conv/taps.cuh"
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
  static __device__ float shuffle_xor(float x, int step) {
    return __shfl_xor_sync(0xffffffffu, x, step);
  }

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
    // At each step a lane gives away the sums of half its rows and goes on with the others, until
    // it has one of every kSpread rows.  What is added to what is the same as if it kept all.
    constexpr int kSpread = kRows < Lane::kHeadLanes ? kRows : Lane::kHeadLanes;
    int held = kRows;
#pragma unroll
    for (int step = 1; step < Lane::kHeadLanes; step *= 2) {
      if (step < kSpread) {
        const bool is_odd = (threadIdx.x & step) != 0;
        held /= 2;
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i) {
          if (i >= held) break;
          const float even = squares[2 * i], odd = squares[2 * i + 1];
          squares[i] = (is_odd ? odd : even) + shuffle_xor(is_odd ? even : odd, step);
        }
      } else {
#pragma unroll
        for (int i = 0; i < kRows / kSpread; ++i) squares[i] += shuffle_xor(squares[i], step);
      }
    }
#pragma unroll
    for (int i = 0; i < kRows / kSpread; ++i) squares[i] = inverse_norm(squares[i]);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float norm = __shfl_sync(0xffffffffu, squares[r / kSpread], r % kSpread, kSpread);
      if (lane_.is_normed) factors[r] *= norm;
    }
  }

  const Lane& lane_;
  bool any_normed_;  // of the warp's lanes
  bool any_scaled_;
};

}  // namespace cubinery::dev
