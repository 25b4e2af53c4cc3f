// q, k and v of a block's columns: as they are given, or from the convolution in front.
#pragma once

#include "common/cluster.cuh"
#include "common/conv/columns.cuh"
#include "common/conv/taps.cuh"
#include "common/operands.cuh"
#include "common/step.cuh"
#include "gdn_decode/key.h"

namespace cubinery::dev {

// The heads of q, k and v for a head of the operator.
struct OwnHeads {
  int q, k, v;
  __device__ OwnHeads(const GdnDecodeParams& p, int h) : k(own_head(p.k, h)), v(own_head(p.v, h)) {
    q = p.q.group == p.k.group ? k : own_head(p.q, h);
  }
};

// Which columns a warp has.
struct OwnColumns {
  long long n;  // request
  int h;
  int first;        // of the warp
  int block_first;  // of its block
};

template <auto kKey>
class GivenRows {
  using S = Step<kKey>;

 public:
  __device__ GivenRows(const GdnDecodeParams& p, const OwnColumns& own, typename S::Lane lane)
      : p_(p),
        own_(own),
        heads_(p, own.h),
        given_k_(row_of(p.k, own.n, heads_.k), p.k.aligned, lane),
        given_q_(row_of(p.q, own.n, heads_.q), p.q.aligned, lane) {}

  // What can be loaded when the slots are known.
  __device__ void begin(const Slots&) {}
  // This thread's elements of q and k.  For all threads of the block.
  __device__ void finish(float (&q)[S::kKPart], float (&k)[S::kKPart]) {
    given_k_.get(k);
    given_q_.get(q);
  }
  // Of the warp's first column: to be loaded with the state's columns.
  __device__ const Storage<kKey.dtype>* values() const {
    return row_of(p_.v, own_.n, heads_.v) + own_.first;
  }
  // Behind everything else.
  __device__ void end(const Slots&) const {}

 private:
  static __device__ const Storage<kKey.dtype>* row_of(const InputRows<RequestStrides>& rows,
                                                      long long n, int head) {
    return as<kKey.dtype>(rows.data) + offset_of(rows.stride, {n, head});
  }

  const GdnDecodeParams& p_;
  const OwnColumns& own_;
  OwnHeads heads_;
  KeyRow<kKey> given_k_, given_q_;
};

// What common/conv_*.cuh know of the convolution.
struct DecodeConvKey {
  DType dtype, weight_dtype;
  int width;
  bool has_bias;
  gdn::Activation activation;
  gdn::ConvStates states;
  bool from_accepted = false, vectors = true;
  int lane_channels = kConvChannels;
};

// The block makes them, a thread four neighbouring channels at a time, rounds them to dtype and
// puts them into shared memory, as gdn_conv would into memory.
//
// Other blocks need the same q and k, and read the same inputs and states for them: those of the
// heads that share a key head, and of all columns of these.  They are one cluster, and the new
// state, which may lie in the place of the old one, is written when all have read that.  The block
// that has a head's first column writes it for the first of the heads that share q, k or v.
template <auto kKey>
class ConvolvedRows {
  using S = Step<kKey>;
  static constexpr DecodeConvKey kConv{.dtype = kKey.dtype,
                                       .weight_dtype = kKey.conv.weight_dtype,
                                       .width = kKey.conv.width,
                                       .has_bias = kKey.conv.has_bias,
                                       .activation = kKey.conv.activation,
                                       .states = {.dtype = kKey.conv.state_dtype,
                                                  .layout = kKey.conv.state_layout,
                                                  .has_initial = kKey.states.has_initial,
                                                  .store = kKey.states.store,
                                                  .whole_window = kKey.conv.whole_window}};
  using ConvColumns = Columns<kConv>;
  using Row = InputRow<kConv>;

 public:
  __device__ ConvolvedRows(const GdnDecodeParams& p, const OwnColumns& own, typename S::Lane lane)
      : p_(p), lane_(lane), values_(shared() + 2 * kKey.key_dim + own.first - own.block_first) {
    const OwnHeads heads(p, own.h);
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      Part& part = parts_[i];
      part.place(p, own, heads, (i * threads(kKey) + threadIdx.x) * kConvChannels);
      part.row.load(p.conv, part.channels, Row::at(p.conv, part.channels, own.n, 0));
      part.taps = TapsInMemory<kConv>(p.conv, part.channels);
    }
  }

  __device__ void begin(const Slots& slots) {
    if constexpr (kKey.states.has_initial) {
#pragma unroll
      for (Part& part : parts_) part.columns.load(p_.conv, part.channels, places_of(slots));
    }
  }

  __device__ void finish(float (&q)[S::kKPart], float (&k)[S::kKPart]) {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const Part& part = parts_[i];
      const Taps<kConv> taps(part.taps);
      float y[kConvChannels];
#pragma unroll
      for (int c = 0; c < kConvChannels; ++c) {
        y[c] = step_sum(taps, c, kKey.states.has_initial, part.columns, part.row);
        if constexpr (kConv.activation == gdn::Activation::kSilu) y[c] = silu(y[c]);
      }
      Elements<kKey.dtype, kConvChannels> made;
      made.set(y);
      if (part.channels.is_there()) {
        made.store(shared() + (i * threads(kKey) + threadIdx.x) * kConvChannels);
      }
    }
    // The states have been read, by all threads of the cluster where they wait for it.
    if constexpr (kKey.states.store) arrive_at_cluster();
    // Orders the block's rows before their reading.
    __syncthreads();
    KeyRow<kKey>(shared(), true, lane_).get(q);
    KeyRow<kKey>(shared() + kKey.key_dim, true, lane_).get(k);
  }

  // To be read behind finish().
  __device__ const Storage<kKey.dtype>* values() const { return values_; }

  __device__ void end(const Slots& slots) const {
    if constexpr (!kKey.states.store) return;
    // Orders the reading of states by all blocks that read them before their next contents.
    wait_for_cluster();
#pragma unroll
    for (const Part& part : parts_) {
      if (!part.writes || !slots.store) continue;
      part.columns.store_next(p_.conv, part.channels, places_of(slots), 1,
                              [&](int) { return part.row; });
    }
  }

 private:
  static constexpr int kPasses = conv_passes(kKey);

  // A thread's channels of a pass.
  struct Part {
    ConvChannels channels;
    bool writes;  // their new state
    Row row;
    TapsInMemory<kConv> taps;
    ConvColumns columns;

    // `at`: of the block's channels, which are those of q, of k and of its columns of v.
    __device__ void place(const GdnDecodeParams& p, const OwnColumns& own, const OwnHeads& heads,
                          int at) {
      const bool is_first = own.block_first == 0;
      if (at < kKey.key_dim) {
        channels.first = heads.q * kKey.key_dim + at;
        writes = is_first && own.h == heads.q * p.q.group;
      } else if (at < 2 * kKey.key_dim) {
        channels.first = p.k_first + heads.k * kKey.key_dim + at - kKey.key_dim;
        writes = is_first && own.h == heads.k * p.k.group;
      } else {
        channels.first =
            p.v_first + heads.v * kKey.value_dim + own.block_first + at - 2 * kKey.key_dim;
        writes = own.h == heads.v * p.v.group;
      }
      channels.count = at < conv_channels(kKey) ? kConvChannels : 0;
      if (channels.count == 0) channels.first = 0, writes = false;
    }
  };

  static __device__ Storage<kKey.dtype>* shared() {
    __shared__ __align__(16) Storage<kKey.dtype> rows[conv_channels(kKey)];
    return rows;
  }
  __device__ ConvPlaces places_of(const Slots& slots) const {
    return {.slots = slots,
            .has_initial = kKey.states.has_initial,
            .start = state_columns(kConv) - (kConv.width - 1)};
  }

  const GdnDecodeParams& p_;
  typename S::Lane lane_;
  const Storage<kKey.dtype>* values_;
  Part parts_[kPasses];
};

template <auto kKey, bool = kKey.conv.is_there()>
struct RowsOf {
  using Type = GivenRows<kKey>;
};
template <auto kKey>
struct RowsOf<kKey, true> {
  using Type = ConvolvedRows<kKey>;
};

}  // namespace cubinery::dev
