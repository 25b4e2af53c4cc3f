// Parts of the kernels' parameters, for what several kernels take.  Compiled by the host and by
// NVRTC.
//
// Strides are in elements.  A stride of a dimension that a tensor does not have is 0: packed
// tensors have no batch, one step of decoding has no tokens.
#pragma once

namespace cubinery {

struct StridedVector {
  const void* data;
  long long stride;
};

struct TokenStrides {
  long long batch, token, head;
  bool operator==(const TokenStrides&) const = default;
};

// q, k or v: a row for each token and head.
struct TokenRows {
  const void* data;
  TokenStrides stride;
  int group;     // heads of the operator for each head of the tensor
  bool aligned;  // every row starts at a multiple of 16 bytes
};

// o: a row for each token and head.
struct OutputRows {
  void* data;
  TokenStrides stride;
};

// A number for each token and head.
struct TokenScalars {
  const void* data;
  TokenStrides stride;
};

// common/gates.cuh says what they amount to.
struct GateParams {
  TokenScalars g;     // g, alpha or a
  TokenScalars beta;  // beta or its logit
  StridedVector A_log;
  StridedVector dt_bias;
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

// The states before and behind the tokens.  common/slots.cuh finds those of a sequence.
struct StateParams {
  ReadStates read;
  WrittenStates written;
  StridedVector read_indices;   // pool: the slot of each sequence, int32 or int64
  StridedVector write_indices;  // may be read_indices
  long long scratch_slot;       // Padding::kScratch
};

}  // namespace cubinery
