// A thread's part of a convolution's state.  common/conv/params.h says what the templates are over.
#pragma once

#include "common/conv/channels.cuh"
#include "common/slots.cuh"
#include "cubinery/gdn_parts.h"

namespace cubinery::dev {

// Where a sequence's state is.
struct ConvPlaces {
  Slots slots;
  bool has_initial;
  int start;  // column of the oldest input that counts
};

// Where a sequence's new state is written.
template <auto kKey>
struct NewState {
  const ConvInputs& p;
  long long slot;

  __device__ Storage<kKey.states.dtype>* data() const {
    return as<kKey.states.dtype>(p.written) + slot * p.written_stride.slot;
  }
  __device__ const ConvStateStrides& stride() const { return p.written_stride; }
};

// The last width - 1 inputs in front of a sequence's tokens, of a thread's channels.
template <auto kKey>
class Columns {
 public:
  static constexpr int kCount = kKey.lane_channels;
  static constexpr int kColumns = kKey.width - 1;
  static constexpr DType kDType = kKey.states.dtype;
  // Whether all columns of a channel are neighbours, and the next channel's behind them.
  static constexpr bool kPacked = kKey.vectors && !has_long_window(kKey) &&
                                  kKey.states.layout == gdn::ConvStateLayout::kColumns;
  static constexpr bool kVectors =
      kKey.vectors && kKey.states.layout == gdn::ConvStateLayout::kChannels;
  static constexpr int kStored = state_columns(kKey);  // without a long window

  // `offset`: in elements, behind where the slot begins.
  __device__ void load(const ConvInputs& p, const ConvChannels& lane, const ConvPlaces& places,
                       long long offset = 0) {
    const auto* const from = as<kDType>(p.read) + places.slots.read * p.read_stride.slot + offset +
                             lane.first * p.read_stride.channel;
    if constexpr (kPacked) {
      x_[0].load(from);
    } else {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const auto* const column = from + column_at(p, places.start + j) * p.read_stride.column;
        if constexpr (kVectors) {
          x_[j].load(column);
        } else {
          x_[j].load(column, p.read_stride.channel, lane.count);
        }
      }
    }
  }

  // Column j of the window, 0 the oldest, of channel i.
  __device__ float get(int j, int i) const {
    if constexpr (kPacked) return x_[0].get(i * kStored + kStored - kColumns + j);
    return x_[j].get(i);
  }

  // Goes on by one input: it is the newest column then.
  template <class Row>
  __device__ void push(const Row& row) {
    if constexpr (kPacked) {
      float all[kCount * kStored];
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
#pragma unroll
        for (int j = 0; j + 1 < kStored; ++j) all[i * kStored + j] = x_[0].get(i * kStored + j + 1);
        all[i * kStored + kStored - 1] = row.get(i);
      }
      x_[0].set(all);
    } else {
#pragma unroll
      for (int j = 0; j + 1 < kColumns; ++j) x_[j] = x_[j + 1];
      float x[kCount];
      to_floats(row, x);
      x_[kColumns - 1].set(x);
    }
  }

  // Writes the new state of a sequence of `tokens` tokens.
  template <class Input>
  __device__ void store_next(const ConvInputs& p, const ConvChannels& lane,
                             const ConvPlaces& places, int tokens, Input input) const {
    const NewState<kKey> written{p, places.slots.write};
    if constexpr (has_circular_state(kKey)) {
      store_around(written, p.columns, lane, places.start, tokens, input);
    } else {
      store_next(written, lane, tokens, input);
    }
  }

  // Writes the state behind `tokens` tokens; `written`: as NewState.  Input h is column h of the
  // window where there is one, else what input(h - kColumns) gives: the row of a token.
  template <class Written, class Input>
  __device__ void store_next(const Written& written, const ConvChannels& lane, int tokens,
                             Input input) const {
    auto* const to = written.data() + lane.first * written.stride().channel;
    const auto column_of = [&](int h, float(&x)[kCount]) {
      if (h >= kColumns) return to_floats(input(h - kColumns), x);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        if (j != h) continue;
#pragma unroll
        for (int i = 0; i < kCount; ++i) x[i] = get(j, i);
      }
    };
    float x[kCount];
    if constexpr (has_long_window(kKey)) {
      for (int h = 1; h < kColumns + tokens; ++h) {
        column_of(h, x);
        store(written, lane, to + (h - 1) * written.stride().column, x);
      }
    } else {
      const int first = kColumns + tokens - kStored;
      float all[kCount * kStored];
#pragma unroll
      for (int j = 0; j < kStored; ++j) {
        column_of(first + j, x);
        if constexpr (kPacked) {
#pragma unroll
          for (int i = 0; i < kCount; ++i) all[i * kStored + j] = x[i];
        } else {
          store(written, lane, to + j * written.stride().column, x);
        }
      }
      if constexpr (kPacked) {
        Elements<kDType, kCount * kStored> packed;
        packed.set(all);
        if (lane.is_there()) packed.store(to);
      }
    }
  }

  // The state of a sequence of no tokens: its initial one, or zeros.
  static __device__ void copy(const ConvInputs& p, const ConvChannels& lane,
                              const ConvPlaces& places) {
    const auto* from = as<kDType>(p.read) + places.slots.read * p.read_stride.slot +
                       lane.first * p.read_stride.channel;
    auto* const to = as<kDType>(p.written) + places.slots.write * p.written_stride.slot +
                     lane.first * p.written_stride.channel;
    if (places.has_initial && from == to) return;
    copy_columns(p, lane, places.has_initial, from, to, p.written_stride);
  }
  // The same to another place.
  template <class Written>
  static __device__ void copy(const ConvInputs& p, const ConvChannels& lane,
                              const ConvPlaces& places, const Written& written) {
    const auto* const from = as<kDType>(p.read) + places.slots.read * p.read_stride.slot +
                             lane.first * p.read_stride.channel;
    copy_columns(p, lane, places.has_initial, from,
                 written.data() + lane.first * written.stride().channel, written.stride());
  }

 private:
  // A column of the state, behind whose last one a circular one begins anew.
  static __device__ int column_at(const ConvInputs& p, int column) {
    if constexpr (has_circular_state(kKey)) {
      return column < p.columns ? column : column - p.columns;
    } else {
      return column;
    }
  }

  // Writes tokens to a circular state of so many columns, behind the window that begins at `start`:
  // the last ones, where they go around it.
  template <class Input>
  static __device__ void store_around(const NewState<kKey>& written, int columns,
                                      const ConvChannels& lane, int start, int tokens,
                                      Input input) {
    auto* const to = written.data() + lane.first * written.stride().channel;
    const int first = max(tokens - columns, 0);
    int column = static_cast<int>((1LL * start + kColumns + first) % columns);
    for (int t = first; t < tokens; ++t) {
      float x[kCount];
      to_floats(input(t), x);
      store(written, lane, to + column * written.stride().column, x);
      column = column + 1 == columns ? 0 : column + 1;
    }
  }

  // Zeros where there is nothing to copy.
  static __device__ void copy_columns(const ConvInputs& p, const ConvChannels& lane, bool is_there,
                                      const Storage<kDType>* from, Storage<kDType>* to,
                                      const ConvStateStrides& stride) {
    for (int j = 0; j < p.columns; ++j) {
      Elements<kDType, kCount> column;
      column.load(from + j * p.read_stride.column, p.read_stride.channel,
                  is_there ? lane.count : 0);
      column.store(to + j * stride.column, stride.channel, lane.count);
    }
  }

  template <class Row>
  static __device__ void to_floats(const Row& row, float (&x)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = row.get(i);
  }

  template <class Written>
  static __device__ void store(const Written& written, const ConvChannels& lane,
                               Storage<kDType>* to, const float (&x)[kCount]) {
    if (!lane.is_there()) return;
    Elements<kDType, kCount> column;
    column.set(x);
    if constexpr (kVectors) {
      column.store(to);
    } else {
      column.store(to, written.stride().channel, lane.count);
    }
  }

  Elements<kDType, kPacked ? kCount * kStored : kCount> x_[kPacked ? 1 : kColumns] = {};
};

}  // namespace cubinery::dev
