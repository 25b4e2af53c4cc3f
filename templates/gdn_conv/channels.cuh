// The channels of a thread: which they are, and where their outputs go.  Templates over GdnConvKey.
#pragma once

#include "common/conv/channels.cuh"
#include "gdn_conv/key.h"

namespace cubinery::dev {

// As many neighbouring channels as kKey.lane_channels.
template <auto kKey>
class LaneChannels : public ConvChannels {
 public:
  static constexpr int kCount = kKey.lane_channels;
  // Lanes that sum the squares of a head.
  static constexpr int kHeadLanes = kKey.inputs.use_qk_l2norm ? head_lanes(kKey) : 32;

  bool is_normed = false;
  float scale = 1.0f;  // of the outputs

  // Of warp `warp` of those that have the channels.
  __device__ LaneChannels(const GdnConvParams& p, int warp) {
    const int lane = threadIdx.x % 32;
    int end = p.channels;
    if constexpr (kKey.inputs.use_qk_l2norm) {
      const int head = warp * (32 / kHeadLanes) + lane / kHeadLanes;
      const int in_head = lane % kHeadLanes * kCount;
      is_normed = head < p.norm_heads;
      if (is_normed) {
        first = head * kKey.key_dim + in_head;
        end = (head + 1) * kKey.key_dim;
      } else {
        first = p.norm_heads * kKey.key_dim + (head - p.norm_heads) * kHeadLanes * kCount + in_head;
      }
    } else {
      first = warp * warp_channels(kKey) + lane * kCount;
    }
    count = min(max(end - first, 0), kCount);
    if (count == 0) first = 0;
    if constexpr (kKey.split_qkv) {
      // NOTE: boundaries are multiples of 8, so that a thread's channels never lie in two tensors.
      if (first < p.outputs[0].count) {
        scale = p.scale;
        place(p.outputs[0]);
      } else {
        place(first < p.outputs[2].first ? p.outputs[1] : p.outputs[2]);
      }
    } else {
      place(p.outputs[0]);
    }
  }

  // Where the output of token `token` of row `batch` goes.
  __device__ Storage<kKey.dtype>* output(long long batch, long long token) const {
    return output_ + batch * batch_stride_ + token * token_stride;
  }
  long long token_stride;  // of the outputs

  __device__ void store(Storage<kKey.dtype>* to, const float (&y)[kCount]) const {
    if (!is_there()) return;
    Elements<kKey.dtype, kCount> row;
    row.set(y);
    if constexpr (kKey.vectors) {
      row.store(to);
    } else {
      row.store(to, channel_stride_, count);
    }
  }

 private:
  __device__ void place(const ConvOutput& output) {
    const int channel = first - output.first;
    output_ = as<kKey.dtype>(output.data) + channel / output.dim * output.head +
              channel % output.dim * output.channel;
    batch_stride_ = output.batch;
    token_stride = output.token;
    channel_stride_ = output.channel;
  }

  Storage<kKey.dtype>* output_;
  long long batch_stride_;
  long long channel_stride_;
};

}  // namespace cubinery::dev
