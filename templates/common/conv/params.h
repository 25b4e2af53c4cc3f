// What kernels that convolve tokens take: x, the taps and the states of the convolution, as
// gdn::ConvArgs explains them.  Compiled by the host and by NVRTC.
//
// Templates of common/conv_*.cuh are over keys that have dtype, weight_dtype, width, has_bias,
// states (gdn::ConvStates), from_accepted, vectors and lane_channels: what GdnConvKey says of them.
#pragma once

#include "common/params.h"
#include "common/verify_params.h"

namespace cubinery {

struct ConvRows {
  const void* data;
  long long batch, token, channel;
};

struct ConvStateStrides {
  long long slot, channel, column;
};

struct ConvInputs {
  ConvRows x;
  const void* weight;
  long long weight_channel, weight_tap;
  bool weight_packed;  // taps of a channel behind each other, then the next channel's; 16-byte
                       // aligned
  StridedVector bias;
  int columns;  // of a state
  const void* read;
  void* written;
  ConvStateStrides read_stride, written_stride;
  long long read_slots, written_slots;
};

// Whether a state is a circular buffer.  This and the next: of a kernel's key, or of an operator's
// problem.
template <class Key>
constexpr bool has_circular_state(const Key& key) {
  if constexpr (requires { key.circular_state; }) {
    return key.circular_state;
  } else {
    return false;
  }
}

// Whether a state has as many columns as its tensor, and a count says from where it goes on.
// With a window after each token the count names one of those.
template <class Key>
constexpr bool has_long_window(const Key& key) {
  if constexpr (requires { key.stored_states; }) {
    if (stores_every(key)) return false;
  }
  return key.from_accepted || has_circular_state(key);
}

// Columns of a state without a long window; the fewest of one.
template <class Key>
constexpr int state_columns(const Key& key) {
  return key.states.whole_window ? key.width : key.width - 1;
}

}  // namespace cubinery
