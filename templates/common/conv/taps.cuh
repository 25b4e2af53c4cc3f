// The taps of a convolution, and the activation of its sums.  common/conv/params.h says what the
// templates are over.
#pragma once

#include "common/conv/columns.cuh"
#include "common/math.cuh"
#include "common/operands.cuh"

namespace cubinery::dev {

// The taps of a thread's channels as they lie in memory: on their way, until Taps asks for them.
template <auto kKey>
struct TapsInMemory {
  static constexpr int kCount = kKey.lane_channels;
  static constexpr DType kDType = kKey.weight_dtype;

  Elements<kDType, kCount * kKey.width> taps;  // of the first channel, of the next one, ...
  Elements<kDType, kCount> bias;

  TapsInMemory() = default;
  __device__ TapsInMemory(const ConvInputs& p, const ConvChannels& lane) {
    const auto* const from = as<kDType>(p.weight) + lane.first * p.weight_channel;
    if (kKey.vectors && p.weight_packed) {
      taps.load_shared(from);
    } else {
      float x[kCount * kKey.width];
#pragma unroll
      for (int i = 0; i < kCount * kKey.width; ++i) {
        const int channel = i / kKey.width, tap = i % kKey.width;
        const bool is_there = channel < lane.count;
        x[i] = is_there ? load<kDType>(from, channel * p.weight_channel + tap * p.weight_tap) : 0;
      }
      taps.set(x);
    }
    if constexpr (kKey.has_bias) {
      bias.load(as<kDType>(p.bias.data) + lane.first * p.bias.stride, p.bias.stride, lane.count);
    }
  }
};

// The same as numbers.
template <auto kKey>
class Taps {
 public:
  static constexpr int kCount = kKey.lane_channels;

  __device__ explicit Taps(const TapsInMemory<kKey>& from) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int j = 0; j < kKey.width; ++j) x_[j][i] = from.taps.get(i * kKey.width + j);
      if constexpr (kKey.has_bias) bias_[i] = from.bias.get(i);
    }
  }

  // Tap j, 0 of the oldest input, of channel i.
  __device__ float get(int j, int i) const { return x_[j][i]; }
  __device__ float bias(int i) const { return bias_[i]; }

 private:
  float x_[kKey.width][kCount];
  float bias_[kCount] = {};
};

// The sum of channel i of a sequence's only token.
template <auto kKey>
__device__ float step_sum(const Taps<kKey>& taps, int i, bool has_initial,
                          const Columns<kKey>& columns, const InputRow<kKey>& row) {
  constexpr int kLast = kKey.width - 1;
  float sum = taps.bias(i);
  if (has_initial) {
#pragma unroll
    for (int j = 0; j < kLast; ++j) sum = fmaf(taps.get(j, i), columns.get(j, i), sum);
  }
  return fmaf(taps.get(kLast, i), row.get(i), sum);
}

// x / (1 + exp(-x)).
__device__ inline float silu(float x) { return x * reciprocal(1.0f + dev::exp2(-kLog2E * x)); }

}  // namespace cubinery::dev
