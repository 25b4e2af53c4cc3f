// The channels of a thread, and its elements of a row of them.  common/conv/params.h says what the
// templates are over.
#pragma once

#include "common/conv/params.h"
#include "common/shared.cuh"
#include "common/types.cuh"
#include "common/vec.cuh"

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

// Neighbouring channels of a thread, as many as kKey.lane_channels.
struct ConvChannels {
  int first = 0;
  int count = 0;  // of them; 0: the thread has none, and computes with those of channel 0

  __device__ bool is_there() const { return count > 0; }
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
  static __device__ const Storage<kKey.dtype>* at(const ConvInputs& p, const ConvChannels& lane,
                                                  long long batch, long long token) {
    return as<kKey.dtype>(p.x.data) + batch * p.x.batch + token * p.x.token +
           lane.first * (kKey.vectors ? 1 : p.x.channel);
  }
  __device__ void load(const ConvInputs& p, const ConvChannels& lane,
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
