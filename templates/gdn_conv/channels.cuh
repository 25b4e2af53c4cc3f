// The channels of a thread: which they are, where their outputs go, and how a row of them is read
// and written.  Templates over GdnConvKey.
#pragma once

#include "common/shared.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"
#include "gdn_conv/key.h"

namespace cubinery::dev {

// A thread's elements of one row, as they lie in memory.
template <DType kDType, int kCount>
struct Elements {
  static constexpr int kBytes = kCount * size_of(kDType);
  static constexpr int kPieceBytes = kBytes % 16 == 0 ? 16 : kBytes % 8 == 0 ? 8 : 4;
  static constexpr int kPieces = kBytes / kPieceBytes;
  static constexpr int kOfPiece = kCount / kPieces;
  using Piece = Vec<kDType, kPieceBytes>;
  static_assert(kPieces * kPieceBytes == kBytes, "a thread's elements are whole vectors");

  Piece pieces[kPieces];

  __device__ float get(int i) const { return pieces[i / kOfPiece].get(i % kOfPiece); }
  __device__ void set(const float (&x)[kCount]) {
#pragma unroll
    for (int n = 0; n < kPieces; ++n) {
      float part[kOfPiece];
#pragma unroll
      for (int i = 0; i < kOfPiece; ++i) part[i] = x[n * kOfPiece + i];
      pieces[n].set(part);
    }
  }

  // Neighbours in memory.  Requires: p is aligned to the vectors.
  __device__ void load(const Storage<kDType>* p) {
#pragma unroll
    for (int n = 0; n < kPieces; ++n) load_streaming(pieces[n], p + n * kOfPiece);
  }
  // The same where others read them too.
  __device__ void load_shared(const Storage<kDType>* p) {
#pragma unroll
    for (int n = 0; n < kPieces; ++n) load_vector(pieces[n], p + n * kOfPiece);
  }
  __device__ void store(Storage<kDType>* p) const {
#pragma unroll
    for (int n = 0; n < kPieces; ++n) store_vector(p + n * kOfPiece, pieces[n]);
  }

  // `stride` apart, the first `count` of them; the rest is 0.
  __device__ void load(const Storage<kDType>* p, long long stride, int count) {
    float x[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = i < count ? to_float<kDType>(p[i * stride]) : 0.0f;
    set(x);
  }
  __device__ void store(Storage<kDType>* p, long long stride, int count) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i < count) p[i * stride] = from_float<kDType>(get(i));
    }
  }
};

// As many neighbouring channels as kKey.lane_channels.
template <auto kKey>
class LaneChannels {
 public:
  static constexpr int kCount = kKey.lane_channels;
  // Lanes that sum the squares of a head.
  static constexpr int kHeadLanes = kKey.inputs.use_qk_l2norm ? head_lanes(kKey) : 32;

  int first = 0;  // channel
  int count = 0;  // of them; 0: the lane has none, and computes with those of channel 0
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
      // NOTE: boundaries are multiples of 16, so that a thread's channels never lie in two tensors.
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

  __device__ bool is_there() const { return count > 0; }

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

// Rows of x, of a thread's channels.
template <auto kKey>
class InputRow {
 public:
  static constexpr int kCount = kKey.lane_channels;
  using Type = Elements<kKey.dtype, kCount>;
  static constexpr int kPieces = Type::kPieces;
  static constexpr int kPieceBytes = Type::kPieceBytes;
  static constexpr int kOfPiece = Type::kOfPiece;

  // Where a lane's part of the row of a token lies.
  static __device__ const Storage<kKey.dtype>* at(const GdnConvParams& p,
                                                  const LaneChannels<kKey>& lane, long long batch,
                                                  long long token) {
    return as<kKey.dtype>(p.x.data) + batch * p.x.batch + token * p.x.token +
           lane.first * (kKey.vectors ? 1 : p.x.channel);
  }
  __device__ void load(const GdnConvParams& p, const LaneChannels<kKey>& lane,
                       const Storage<kKey.dtype>* from) {
    if constexpr (kKey.vectors) {
      x_.load(from);
    } else {
      x_.load(from, p.x.channel, lane.count);
    }
  }
  // From shared memory.
  __device__ void read_piece(int n, unsigned address) {
    auto& words = x_.pieces[n].words;
    if constexpr (kPieceBytes == 16) {
      uint4 x;
      load_shared(x, address);
      words[0] = x.x, words[1] = x.y, words[2] = x.z, words[3] = x.w;
    } else {
      uint2 x;
      load_shared(x, address);
      words[0] = x.x, words[1] = x.y;
    }
  }
  __device__ float get(int i) const { return x_.get(i); }

 private:
  Type x_;
};

}  // namespace cubinery::dev
