#include "runtime/gdn/prefill/operator.h"
#include "runtime/gdn/prefill/segments.h"

#include "runtime/gdn/shared/problem_check.h"

namespace cubinery::gdn {
namespace {

Status check_context_parallel(const PrefillProblem& problem) {
  if (!problem.context_parallel) return {};
  const int tokens = problem.segment_tokens;
  if (tokens < kSegmentUnit || tokens % kSegmentUnit != 0) {
    return bad_field(kPrefillOp, "segment_tokens", value_text(tokens),
                     "multiples of 64 from 64 up");
  }
  const States& states = problem.states;
  if (states.dtype != DType::kF32) {
    return bad_field(kPrefillOp, "state_dtype", value_text(states.dtype),
                     "f32, with context_parallel");
  }
  if (!states.has_initial || !states.store) {
    return bad_field(kPrefillOp, states.has_initial ? "store_state" : "has_initial_state", "false",
                     "true, with context_parallel");
  }
  if (problem.segments == Segments::kNever) {
    return bad_field(kPrefillOp, "segments", value_text(problem.segments),
                     "auto or always, with context_parallel");
  }
  return {};
}

}  // namespace

Status PrefillProblem::check() const {
  CUBINERY_RETURN_IF_ERROR(check_shared_fields(*this));
  if (checkpoints != Checkpoints::kNone && (checkpoint_every < 16 || checkpoint_every % 16 != 0)) {
    return bad_field(kPrefillOp, "checkpoint_every", value_text(checkpoint_every),
                     "multiples of 16 from 16 up");
  }
  return check_context_parallel(*this);
}

PrefillProblem normalised(PrefillProblem problem) {
  problem = normalised_shared(problem);
  const PrefillProblem plain;
  if (!problem.context_parallel) problem.segment_tokens = plain.segment_tokens;
  States& states = problem.states;
  if (!states.has_initial && !states.store && problem.checkpoints == Checkpoints::kNone) {
    states.dtype = plain.states.dtype;
    states.layout = plain.states.layout;
  }
  return problem;
}

}  // namespace cubinery::gdn
