// Parts of the kernels' parameters, for what several kernels take.  Compiled by the host and by
// NVRTC.
//
// Strides are in elements.  That of a dimension which a tensor does not have is 0: packed tensors
// have no batch.
#pragma once

namespace cubinery {

struct StridedVector {
  const void* data;
  long long stride;
};

struct TokenStrides {
  struct At {
    long long batch, token;
    int head;
  };
  long long batch, token, head;
  bool operator==(const TokenStrides&) const = default;
};

// Of a step of decoding: a request is one token.
struct RequestStrides {
  struct At {
    long long request;
    int head;
  };
  long long request, head;
  bool operator==(const RequestStrides&) const = default;
};

// q, k or v: a row for each token and head.
template <class Strides>
struct InputRows {
  const void* data;
  Strides stride;
  int group;     // heads of the operator for each head of the tensor
  bool aligned;  // every row starts at a multiple of 16 bytes
};

// o: a row for each token and head.
template <class Strides>
struct OutputRows {
  void* data;
  Strides stride;
};

// A number for each token and head.
template <class Strides>
struct Scalars {
  const void* data;
  Strides stride;
};

// common/gates.cuh says what they amount to.  Those of g and dt_bias are rows without gaps where
// each channel of k has a decay.
template <class Strides>
struct GateParams {
  Scalars<Strides> g;     // g, alpha or a
  Scalars<Strides> beta;  // beta or its logit
  StridedVector A_log;    // without data: zeros
  StridedVector dt_bias;  // likewise
};

struct StateStrides {
  long long slot, head;
  bool operator==(const StateStrides&) const = default;
};

struct ReadStates {
  const void* data;
  StateStrides stride;
  long long slots;
};

struct WrittenStates {
  void* data;
  StateStrides stride;
  long long slots;
};

// Which indices of a pool are padding, and what becomes of their rows.  common/slots.cuh reads it.
struct PaddingParams {
  // As an index or a scratch slot: there is none.  No pool has this slot.
  static constexpr long long kNone = 0x7fffffffffffffff;
  static constexpr long long kDropped = -1;

  long long index = kNone;    // a negative one: every negative index is
  long long scratch = kNone;  // the slot that they have; kDropped: they are not computed
  bool zero = false;          // outputs of those that are not computed are set to zero
};

// The states before and behind the tokens.  common/slots.cuh finds those of a sequence.
struct StateParams {
  ReadStates read;
  WrittenStates written;
  StridedVector read_indices;   // pool: the slot of each sequence, int32 or int64
  StridedVector write_indices;  // may be read_indices
  PaddingParams padding;
};

// Where checkpoints at chosen offsets go, of tensors [sequences, count].  That of the offsets is
// apart.
struct CheckpointSlots {
  StridedVector slots;
  long long offset_step, slot_step;  // from one checkpoint of a sequence to the next, in elements
  int count;
};

}  // namespace cubinery
