// Rows of tokens one behind the other, with the next ones on their way, and the sums over them.
// Templates over GdnConvKey.
#pragma once

#include "common/conv/taps.cuh"
#include "common/copy.cuh"
#include "common/shared.cuh"
#include "gdn_conv/channels.cuh"

namespace cubinery::dev {

// The next rows of x, kKey.ahead of them on their way: copied to shared memory, where a thread has
// places of its own, so that nothing waits for other threads.  In registers rows would not do: what
// waits for a load waits for those behind it, too.
//
// Without vectors there is nothing on its way.
template <auto kKey>
class RowQueue {
 public:
  // Rows first ... first + count - 1 of row `batch`.  `shared`: of the block.
  __device__ RowQueue(const GdnConvParams& p, const LaneChannels<kKey>& lane, long long batch,
                      int first, int count, void* shared)
      : p_(p), lane_(lane), from_(InputRow<kKey>::at(p, lane, batch, first)), left_(count) {
    if constexpr (kKey.vectors) {
      base_ = shared_address(shared) + threadIdx.x * kPieceBytes;
#pragma unroll
      for (int i = 0; i < kKey.ahead; ++i) start_next();
    }
  }
  // Copies that nobody waits for must not outlive the kernel's shared memory.
  __device__ ~RowQueue() {
    if constexpr (kKey.vectors) wait_copies<0>();
  }
  RowQueue(const RowQueue&) = delete;

  // Has `count` fewer rows than the constructor said.
  __device__ void leave(int count) { left_ -= count; }

  // Calls f(row) for each of the next `count` rows.
  template <class Function>
  __device__ void take(int count, Function f) {
    take_together<1>(count, [&](const InputRow<kKey>(&row)[1]) { f(row[0]); });
  }

  // Calls f(rows) for kRows of the next `count` rows at a time, and for the rest one by one.  f
  // takes arrays of both sizes.
  template <int kRows, class Function>
  __device__ void take_together(int count, Function f) {
    for (; count >= kRows; count -= kRows) {
      InputRow<kKey> rows[kRows];
      next(rows);
      f(rows);
    }
    if constexpr (kRows > 1) take_together<1>(count, f);
  }

 private:
  static constexpr int kPieceBytes = InputRow<kKey>::kPieceBytes;
  static constexpr int kPlaceBytes = threads(kKey) * InputRow<kKey>::kPieces * kPieceBytes;

  template <int kRows>
  __device__ void next(InputRow<kKey> (&rows)[kRows]) {
    if constexpr (kKey.vectors) {
      wait_copies<kKey.ahead - kRows>();
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int n = 0; n < InputRow<kKey>::kPieces; ++n) {
          rows[r].read_piece(n, address(taken_, n));
        }
        taken_ = next_place(taken_);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) start_next();
    } else {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        rows[r].load(p_, lane_, from_);
        from_ += p_.x.token;
      }
    }
  }

  static __device__ int next_place(int place) {
    return place + 1 == row_places(kKey) ? 0 : place + 1;
  }
  // Pieces of neighbouring threads lie next to each other, so that they are in different banks.
  __device__ unsigned address(int place, int piece) const {
    return base_ + place * kPlaceBytes + piece * threads(kKey) * kPieceBytes;
  }
  // There are more places than copies, so that none overwrites what is being read.  A group ends
  // for each row, whether it is there or not, because take() counts groups.
  __device__ void start_next() {
    if (left_ > 0) {
#pragma unroll
      for (int n = 0; n < InputRow<kKey>::kPieces; ++n) {
        copy_vector<kPieceBytes>(address(started_, n), from_ + n * InputRow<kKey>::kOfPiece);
      }
      from_ += p_.x.token;
      --left_;
    }
    commit_copies();
    started_ = next_place(started_);
  }

  const GdnConvParams& p_;
  const LaneChannels<kKey>& lane_;
  const Storage<kKey.dtype>* from_;
  int left_;  // to start
  unsigned base_;
  int started_ = 0, taken_ = 0;  // places
};

// What the inputs so far give to the outputs that they are part of: sums_[0] to that of the next
// input, which lacks one product, sums_[1] to that behind it.  So an input is not kept, and sums
// are taken from the oldest one on, whatever the configuration.
template <auto kKey>
class Window {
 public:
  static constexpr int kCount = kKey.lane_channels;
  static constexpr int kLast = kKey.width - 1;

  // No inputs, which is not the same as zeros where a tap is infinite.
  __device__ explicit Window(const Taps<kKey>& taps) : taps_(taps) {
#pragma unroll
    for (int j = 0; j < kLast; ++j) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums_[j][i] = taps.bias(i);
    }
  }

  // The next input; the sum that it completes.
  __device__ float take(int i, float x) {
    const float sum = fmaf(taps_.get(kLast, i), x, sums_[0][i]);
#pragma unroll
    for (int j = 0; j + 1 < kLast; ++j) {
      sums_[j][i] = fmaf(taps_.get(kLast - 1 - j, i), x, sums_[j + 1][i]);
    }
    sums_[kLast - 1][i] = fmaf(taps_.get(0, i), x, taps_.bias(i));
    return sum;
  }
  // A row whose sums are another warp's.
  __device__ void pass(const InputRow<kKey>& row) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) (void)take(i, row.get(i));
  }

 private:
  const Taps<kKey>& taps_;
  float sums_[kLast][kCount];
};

}  // namespace cubinery::dev
