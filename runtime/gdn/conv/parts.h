// What follows from the problem of a convolution.
#pragma once

#include <cstdint>

#include "common/conv/params.h"
#include "cubinery/gdn_conv.h"

namespace cubinery::gdn {

// The problem with the fields that the others leave without meaning at their defaults.
ConvProblem normalised(ConvProblem problem);

// What the states of all operators have in common, as the shared checks take it.
inline States common_states(const ConvStates& states) {
  return {.dtype = states.dtype,
          .index_dtype = states.index_dtype,
          .location = states.location,
          .has_initial = states.has_initial,
          .store = states.store};
}

inline bool writes_g(const ConvProblem& problem) {
  return problem.inputs.gate_mode != GateMode::kNone;
}
inline bool writes_beta(const ConvProblem& problem) {
  return problem.inputs.beta_mode != BetaMode::kOne;
}

// Heads of q and k, where they are normalised.
int norm_heads(const ConvProblem& problem);

// Of q, k and v behind each other: channels before k's and v's, and all of them.
struct ConvSplit {
  std::int64_t k, v, end;
};
// Of any problem with heads and their sizes; of a convolution that splits.
template <class Problem>
ConvSplit conv_split(const Problem& p) {
  const std::int64_t q = std::int64_t{p.heads.q} * p.key_dim;
  const std::int64_t k = std::int64_t{p.heads.k} * p.key_dim;
  return {.k = q, .v = q + k, .end = q + k + std::int64_t{p.heads.v} * p.value_dim};
}
inline std::int64_t split_channels(const ConvProblem& problem) { return conv_split(problem).end; }

// The most channels of a launch.
inline constexpr std::int64_t kMaxChannels = 1 << 20;

}  // namespace cubinery::gdn
