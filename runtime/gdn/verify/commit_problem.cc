#include "runtime/gdn/verify/commit_operator.h"

#include "runtime/gdn/shared/problem_check.h"

namespace cubinery::gdn {

Status CommitProblem::check() const {
  CUBINERY_RETURN_IF_ERROR(check_shared_fields(*this));
  CUBINERY_RETURN_IF_ERROR(check_draft_tokens(kCommitOp, draft_tokens));
  if (!states.has_initial) return bad_field(kCommitOp, "has_initial_state", "false", "true");
  if (!states.store) return bad_field(kCommitOp, "store_state", "false", "true");
  return {};
}

CommitProblem normalised(CommitProblem problem) {
  problem = normalised_shared(problem);
  problem.draft_tokens = rounded_up_tokens(problem.draft_tokens, 8);
  return problem;
}

}  // namespace cubinery::gdn
