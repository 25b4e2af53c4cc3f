#include "runtime/gdn/verify/operator.h"

#include "runtime/gdn/shared/problem_check.h"

namespace cubinery::gdn {
namespace {

Status check_tree(const VerifyProblem& problem) {
  if (!problem.tree) return {};
  if (problem.states.store && !stores_every(problem)) {
    return bad_field(kVerifyOp, "stored_states", value_text(problem.stored_states),
                     "every, or store_state = false (no token of a tree is the last)");
  }
  if (normalised(problem).round_each_token) {
    return bad_field(kVerifyOp, "round_each_token", value_text(problem.round_each_token),
                     "false (true needs tree = false)");
  }
  return {};
}

}  // namespace

Status VerifyProblem::check() const {
  CUBINERY_RETURN_IF_ERROR(check_shared_fields(*this));
  CUBINERY_RETURN_IF_ERROR(check_draft_tokens(kVerifyOp, draft_tokens));
  if (from_accepted && !states.has_initial) {
    return bad_field(kVerifyOp, "from_accepted", value_text(from_accepted),
                     "false (true needs has_initial_state = true)");
  }
  return check_tree(*this);
}

VerifyProblem normalised(VerifyProblem problem) {
  problem = normalised_shared(problem);
  const VerifyProblem plain;
  if (!problem.tree) problem.parents_dtype = plain.parents_dtype;
  problem.draft_tokens = rounded_up_tokens(problem.draft_tokens, 4);
  // The state is in f32 all along.
  if (problem.states.dtype == DType::kF32) problem.round_each_token = plain.round_each_token;
  return problem;
}

}  // namespace cubinery::gdn
