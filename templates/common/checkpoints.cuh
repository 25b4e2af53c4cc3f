// The rows of a tensor that a sequence's checkpoints have.  Templates over the keys of prefill's
// scan and of the convolution, which name what they are made of alike.
#pragma once

#include "common/operands.cuh"
#include "cubinery/gdn_types.h"

namespace cubinery::dev {

struct CheckpointRows {
  long long first = 0;
  bool fit = true;  // else the sequence has more than its range, or that leaves the tensor
  // Of those at offsets: the first offset and the last; without any no number lies between.
  int from = 0x7fffffff, to = 0;
};

// Whether checkpoints are at offsets that the launch names.
template <auto kKey>
inline constexpr bool kAtOffsets = kKey.checkpoints == gdn::Checkpoints::kAt;

template <class Params>
__device__ long long padding_index(const Params& p) {
  if constexpr (requires { p.padding; }) {
    return p.padding.index;
  } else {
    return p.states.padding.index;
  }
}

// A checkpoint at an offset.
struct CheckpointAt {
  int tokens = 0;  // of the sequence that the state has taken in; 0: there is none
  long long slot = 0;
};

// Number i of sequence n.
template <auto kKey, class Params>
__device__ CheckpointAt checkpoint_at(const Params& p, long long n, int i) {
  const CheckpointSlots& at = p.checkpoint_slots;
  const StridedVector& offsets = p.checkpoint_cu_starts;
  const int tokens = as<DType::kI32>(offsets.data)[n * offsets.stride + i * at.offset_step];
  const long long slot =
      as<kKey.states.index_dtype>(at.slots.data)[n * at.slots.stride + i * at.slot_step];
  if (tokens <= 0 || slot < 0 || slot == padding_index(p)) return {};
  return {.tokens = tokens, .slot = slot};
}

// Of sequence n, of so many tokens.  Offsets ascend.
template <auto kKey, class Params>
__device__ CheckpointRows checkpoints_at_offsets(const Params& p, long long n, long long tokens) {
  CheckpointRows rows;
#pragma unroll 1
  for (int i = 0; i < p.checkpoint_slots.count; ++i) {
    const CheckpointAt at = checkpoint_at<kKey>(p, n, i);
    if (at.tokens == 0) continue;
    // Lines are part of what measured results are of.
    // clang-format off
    rows.fit &= at.tokens > rows.to && at.tokens <= tokens &&
                at.tokens % p.checkpoint_every == 0 && at.slot < p.checkpoints.slots;
    // clang-format on
    rows.from = min(rows.from, at.tokens);
    rows.to = at.tokens;
  }
  return rows;
}

// Of sequence n.
template <auto kKey, class Params>
__device__ CheckpointRows checkpoint_rows(const Params& p, long long n, long long tokens) {
  if constexpr (kKey.checkpoints == gdn::Checkpoints::kNone) return {};
  if constexpr (kAtOffsets<kKey>) return checkpoints_at_offsets<kKey>(p, n, tokens);
  const long long spans = tokens / p.checkpoint_every;
  const bool part = tokens % p.checkpoint_every != 0;
  const long long count = spans + (kKey.checkpoints == gdn::Checkpoints::kBefore && part ? 1 : 0);
  if constexpr (!kKey.varlen) return {.first = n * count};
  const long long first = load_index<kKey.cu_seqlens_dtype>(p.checkpoint_cu_starts, n);
  const long long end = load_index<kKey.cu_seqlens_dtype>(p.checkpoint_cu_starts, n + 1);
  return {.first = first, .fit = first >= 0 && end <= p.checkpoints.slots && count <= end - first};
}

}  // namespace cubinery::dev
