// What the library knows of the convolution.
#pragma once

#include <string_view>
#include <vector>

#include "common/conv/params.h"
#include "cubinery/gdn_conv.h"
#include "gdn_conv/fields.h"
#include "runtime/gdn/conv/args.h"
#include "runtime/gdn/shared/problem_fields.h"
#include "runtime/operator/keyed_path.h"
#include "runtime/operator/planner.h"

namespace cubinery {

namespace gdn {

// The problem with the fields that the others leave without meaning at their defaults.
ConvProblem normalised(ConvProblem problem);

// What the states of all operators have in common, as the shared checks take it.
inline States common_states(const ConvStates& states) {
  return {.dtype = states.dtype,
          .index_dtype = states.index_dtype,
          .location = states.location,
          .padding = states.padding,
          .pad_index = states.pad_index,
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
inline int norm_heads(const ConvProblem& problem) {
  return problem.inputs.use_qk_l2norm ? problem.heads.q + problem.heads.k : 0;
}

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

// One configuration of the operator, loaded.  Immutable.
class ConvRunner {
 public:
  virtual ~ConvRunner() = default;
  virtual const Kernel& kernel() const = 0;
  // Launches the sequences of the parameters, at least one; fills what depends on the grid.
  virtual Status launch(Stream stream, GdnConvParams params, std::int64_t max_seqlen,
                        bool enable_pdl) const = 0;
};

using ConvPath = Path<ConvProblem, ConvRunner>;

// (sequences, tokens of one, channels): packed sequences count as long as their average, rounded
// up.
Point point_of(const ConvProblem& problem, const ConvSize& size);

// One pass over the tokens, on every architecture.
using ConvKeyPath = KeyedPath<ConvProblem, ConvRunner, GdnConvKey>;
const ConvKeyPath& conv_portable();

// The key of the kernel beside it, for tensors that do not lie in vectors.
GdnConvKey without_vectors(GdnConvKey key);

}  // namespace gdn

template <>
struct OperatorOf<gdn::ConvProblem> {
  using Runner = gdn::ConvRunner;
  static const std::vector<const gdn::ConvPath*>& paths();
  static constexpr std::string_view kOutline[] = {"dtype", "width", "split_qkv", "use_qk_l2norm",
                                                  "varlen"};
  static constexpr std::string_view kNotForSpeed[] = {
      "q_heads",          "k_heads",        "v_heads",        "value_dim",
      "checkpoint_every", "accepted_dtype", "batch_invariant"};
  // Along the sequences, their tokens and the channels.
  static Sizes sizes(const gdn::ConvProblem& problem);
};

// Beside the operator.
extern template class Planner<gdn::ConvProblem>;
// Beside the path.
extern template class KeyedPath<gdn::ConvProblem, gdn::ConvRunner, GdnConvKey>;

}  // namespace cubinery
