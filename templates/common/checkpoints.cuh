// The rows of a tensor that a sequence's checkpoints have.  Templates over the keys of prefill's
// scan and of the convolution, which name what they are made of alike.
#pragma once

#include "common/operands.cuh"
#include "cubinery/gdn_types.h"

namespace cubinery::dev {

struct CheckpointRows {
  long long first = 0;
  bool fit = true;  // else the sequence has more than its range, or that leaves the tensor
};

// Of sequence n.
template <auto kKey, class Params>
__device__ CheckpointRows checkpoint_rows(const Params& p, long long n, long long tokens) {
  if constexpr (kKey.checkpoints == gdn::Checkpoints::kNone) return {};
  const long long spans = tokens / p.checkpoint_every;
  const bool part = tokens % p.checkpoint_every != 0;
  const long long count = spans + (kKey.checkpoints == gdn::Checkpoints::kBefore && part ? 1 : 0);
  if constexpr (!kKey.varlen) return {.first = n * count};
  const long long first = load_index<kKey.cu_seqlens_dtype>(p.checkpoint_cu_starts, n);
  const long long end = load_index<kKey.cu_seqlens_dtype>(p.checkpoint_cu_starts, n + 1);
  return {.first = first, .fit = first >= 0 && end <= p.checkpoints.slots && count <= end - first};
}

}  // namespace cubinery::dev
