// What the library knows of the commit operator.
#pragma once

#include <string_view>
#include <vector>

#include "cubinery/gdn_commit.h"
#include "runtime/gdn/verify/commit_args.h"
#include "runtime/gdn/verify/commit_tables.h"
#include "runtime/operator/planner.h"

namespace cubinery {

namespace gdn {

// The problem with the fields that the others leave without meaning at their defaults, and
// draft_tokens as kernels know it.
CommitProblem normalised(CommitProblem problem);

// One configuration of the operator, loaded.  Immutable.
class CommitRunner {
 public:
  virtual ~CommitRunner() = default;
  virtual const Kernel& kernel() const = 0;
  // Launches the requests of the parameters, at least one, in all layers.
  virtual Status launch(Stream stream, const GdnCommitParams& params, bool enable_pdl) const = 0;
};

using CommitPath = Path<CommitProblem, CommitRunner>;

// The states of a launch.
Point point_of(const CommitProblem& problem, const CommitSize& size);

}  // namespace gdn

template <>
struct OperatorOf<gdn::CommitProblem> {
  using Runner = gdn::CommitRunner;
  static const std::vector<const gdn::CommitPath*>& paths();
  // Along the states, layers x requests x heads.
  static Sizes sizes(const gdn::CommitProblem& problem);
};

// Beside the operator.
extern template class Planner<gdn::CommitProblem>;

}  // namespace cubinery
