#include "runtime/gdn/prefill/operator.h"

#include "runtime/gdn/shared/problem_check.h"

namespace cubinery::gdn {

Status PrefillProblem::check() const {
  CUBINERY_RETURN_IF_ERROR(check_shared_fields(*this));
  if (checkpoints != Checkpoints::kNone && (checkpoint_every < 16 || checkpoint_every % 16 != 0)) {
    return bad_field(kPrefillOp, "checkpoint_every", value_text(checkpoint_every),
                     "multiples of 16 from 16 up");
  }
  return {};
}

PrefillProblem normalised(PrefillProblem problem) {
  problem = normalised_shared(problem);
  const PrefillProblem plain;
  States& states = problem.states;
  if (!states.has_initial && !states.store && problem.checkpoints == Checkpoints::kNone) {
    states.dtype = plain.states.dtype;
    states.layout = plain.states.layout;
  }
  return problem;
}

}  // namespace cubinery::gdn
