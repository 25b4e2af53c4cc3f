// What the library knows of the prefill operator.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "cubinery/gdn_prefill.h"
#include "runtime/gdn/prefill/args.h"
#include "runtime/gdn/prefill/tables.h"
#include "runtime/operator/planner.h"

namespace cubinery {

namespace gdn {

// The problem with the fields that the others leave without meaning at their defaults.
PrefillProblem normalised(PrefillProblem problem);

// One configuration of the operator, loaded.  Immutable.
class PrefillRunner {
 public:
  virtual ~PrefillRunner() = default;
  // What its grids can hold.
  virtual PrefillLimits limits() const = 0;
  // That every launch of at most this size needs; saturates.  Sizes are not negative.
  virtual std::size_t workspace_bytes(std::int64_t tokens, std::int64_t sequences) const = 0;
  // Checks the arguments and the workspace, and launches.  Requires: `extent` is theirs, has a
  // sequence and is within limits().
  virtual Status launch(Stream stream, const PrefillArgs& args, const PrefillExtent& extent,
                        const Workspace& workspace) const = 0;
};

using PrefillPath = Path<PrefillProblem, PrefillRunner>;

// Sequences, tokens of a sequence on average, and skew (the longest over that), the last two
// rounded up.  Sizes need not agree with each other: what is below its least (negative, or a
// longest sequence that is shorter than the average) is taken as that.
Point point_of(const PrefillProblem& problem, const PrefillSize& size);

// Heads that share k and q heads, in a group that divides them all: the most that may share a block
// of gdn_prefill_chunks.  One where each channel has a decay, which is the head's own.
int shared_heads(const PrefillProblem& problem);

// For a workspace, or a part of one.
inline constexpr std::size_t kWorkspaceAlignment = 256;
Status check_workspace(const Workspace& workspace, std::size_t needed);

}  // namespace gdn

template <>
struct OperatorOf<gdn::PrefillProblem> {
  using Runner = gdn::PrefillRunner;
  static const std::vector<const gdn::PrefillPath*>& paths();
  static const std::vector<const gdn::PrefillPath*>& invariant_paths();
  static Sizes sizes(const gdn::PrefillProblem& problem);
};

template <>
struct OperatorState<gdn::PrefillProblem> : Loaded<gdn::PrefillProblem> {
  explicit OperatorState(Loaded<gdn::PrefillProblem> loaded);

  gdn::PrefillLimits limits;  // what all runners can hold
};

// Beside the operator.
extern template class Planner<gdn::PrefillProblem>;

}  // namespace cubinery
