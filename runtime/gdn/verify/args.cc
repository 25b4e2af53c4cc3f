#include "runtime/gdn/verify/args.h"

#include "runtime/gdn/shared/bind_norm.h"
#include "runtime/gdn/shared/bind_states.h"
#include "runtime/gdn/shared/binder.h"
#include "runtime/gdn/verify/operator.h"

namespace cubinery::gdn {

Status verify_extent(const VerifyProblem& problem, const VerifyArgs& args, LaunchExtent* extent) {
  const auto most_tokens = [&](std::int64_t) {
    return problem.varlen ? kMaxInt : problem.draft_tokens;
  };
  return find_extent(problem, args, kMaxInt, most_tokens, extent);
}

Status bind_verify(const VerifyProblem& problem, const VerifyArgs& args, const LaunchExtent& extent,
                   GdnVerifyParams* params) {
  const Binder bind(problem, args, extent);
  params->heads = problem.heads.count();
  CUBINERY_RETURN_IF_ERROR(bind.tokens(params));
  CUBINERY_RETURN_IF_ERROR(bind.gates(&params->gates));
  CUBINERY_RETURN_IF_ERROR(bind.lower_bound(&params->lower_bound));
  CUBINERY_RETURN_IF_ERROR(bind.vector<TensorId::kCuSeqlens>(&params->cu_seqlens));
  CUBINERY_RETURN_IF_ERROR(bind.vector<TensorId::kAccepted>(&params->accepted));
  CUBINERY_RETURN_IF_ERROR(bind.scalars<TensorId::kParents>(&params->parents));
  const std::int64_t most = problem.varlen ? problem.draft_tokens : extent.tokens;
  CUBINERY_RETURN_IF_ERROR(bind_norm(bind, &params->norm));
  const StateBinder states{.op = kVerifyOp,
                           .states = problem.states,
                           .args = states_of(args),
                           .sequences = extent.sequences_dim(),
                           .steps = step_form(stores_every(problem), problem.from_accepted, most)};
  CUBINERY_RETURN_IF_ERROR(states.bind(state_form(problem), &params->states, &params->steps));
  params->requests = static_cast<int>(extent.sequences);
  params->draft_tokens = problem.draft_tokens;
  params->tokens = extent.tokens;
  return bind_scale(kVerifyOp, args.scale, problem.key_dim, &params->scale);
}

}  // namespace cubinery::gdn
