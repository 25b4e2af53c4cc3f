// From the shapes that the operators are tuned for to launches.  Pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cubinery/gdn.h"
#include "cubinery/tuning.h"

namespace cubinery {

// Both take q_heads, k_heads and v_heads besides what they name: those of the problem where they
// are not given.  kInvalidArgument: a size that is missing, that the operator does not have or that
// the others do not allow; what check() of the problem says of the heads.

// batch.
struct DecodeShape {
  gdn::DecodeProblem problem;
  std::int64_t batch = 0;

  std::int64_t size() const { return batch; }
  std::vector<std::int64_t> lengths() const {
    return std::vector<std::int64_t>(static_cast<std::size_t>(batch), 1);
  }
  bool separate_out() const { return false; }
};
Result<DecodeShape> gdn_shape(const gdn::DecodeProblem& problem, const Shape& shape);

// tokens, sequences and max_seqlen: the tokens of each sequence, at least one.  Without max_seqlen
// they differ by one at most, and not at all where sequences are dense; with it, the first has so
// many and the others share the rest as evenly.
struct PrefillShape {
  gdn::PrefillProblem problem;
  std::vector<std::int64_t> tokens;  // of each sequence

  gdn::PrefillSize size() const;
  const std::vector<std::int64_t>& lengths() const { return tokens; }
  // Dense states are written beside those that are read.
  bool separate_out() const { return problem.states.location == gdn::StateLocation::kDense; }
};
Result<PrefillShape> gdn_shape(const gdn::PrefillProblem& problem, const Shape& shape);

// Bytes of workspace that suffice for launches of this size with any configuration.
std::size_t most_workspace_bytes(const gdn::DecodeProblem& problem, std::int64_t batch);
std::size_t most_workspace_bytes(const gdn::PrefillProblem& problem, const gdn::PrefillSize& size);

}  // namespace cubinery
