#include "runtime/gdn/verify/args.h"

#include <algorithm>
#include <cstdint>

#include "runtime/gdn/shared/bind_gates.h"
#include "runtime/gdn/shared/bind_states.h"
#include "runtime/gdn/shared/requests.h"
#include "runtime/gdn/verify/operator.h"

namespace cubinery::gdn {
namespace {

// Steps that are read and written besides the one state that everybody has.
StepForm step_form(const VerifyProblem& problem, const VerifyExtent& extent) {
  // A request has one at least, so that there is a dimension.
  const std::int64_t most =
      problem.varlen ? problem.draft_tokens : std::max<std::int64_t>(extent.tokens, 1);
  return {.read = problem.from_accepted ? 1 : 0, .written = stores_every(problem) ? most : 0};
}

}  // namespace

Status verify_extent(const VerifyProblem& problem, const VerifyArgs& args, VerifyExtent* extent) {
  const Tensor& q = args.q;
  CUBINERY_RETURN_IF_ERROR(check_data({kVerifyOp, "q"}, q, problem.dtype));
  if (!problem.varlen) {
    if (q.rank != 4) return wrong_rank({kVerifyOp, "q"}, q.rank, "4");
    *extent = {.requests = q.shape[0], .tokens = q.shape[1]};
    CUBINERY_RETURN_IF_ERROR(check_count({kVerifyOp, "q"}, "B", extent->requests, kMaxInt));
    return check_count({kVerifyOp, "q"}, "T", extent->tokens, problem.draft_tokens);
  }
  if (q.rank != 3 && q.rank != 4) return wrong_rank({kVerifyOp, "q"}, q.rank, "3, or 4 with B = 1");
  CUBINERY_RETURN_IF_ERROR(check_bounds(kVerifyOp, args.cu_seqlens, problem.cu_seqlens_dtype));
  *extent = {.requests = requests_of(args.cu_seqlens), .tokens = q.shape[q.rank == 4 ? 1 : 0]};
  return check_count({kVerifyOp, "q"}, "total", extent->tokens, kMaxInt);
}

Status bind_verify(const VerifyProblem& problem, const VerifyArgs& args, const VerifyExtent& extent,
                   GdnVerifyParams* params) {
  const Dim requests = requests_dim(problem.varlen, extent.requests);
  const TokenForm form = token_form(problem.varlen, extent.requests, extent.tokens);
  params->heads = problem.heads.count();
  CUBINERY_RETURN_IF_ERROR(bind_rows(problem, args, form, params));
  CUBINERY_RETURN_IF_ERROR(bind_gates(kVerifyOp, problem.inputs, gates_of(args), form,
                                      {"heads", params->heads}, &params->gates));
  CUBINERY_RETURN_IF_ERROR(
      bind_bounds(kVerifyOp, problem, args.cu_seqlens, extent.requests, &params->cu_seqlens));
  CUBINERY_RETURN_IF_ERROR(bind_vector(kVerifyOp, tensors::kAccepted, problem, args.accepted,
                                       requests, &params->accepted));
  // A number for each token, whatever the heads.
  CUBINERY_RETURN_IF_ERROR(bind_scalars(kVerifyOp, tensors::kParents, problem, args.parents,
                                        without_heads(form), {}, &params->parents));
  CUBINERY_RETURN_IF_ERROR(bind_states(kVerifyOp, problem.states, states_of(args),
                                       state_form(problem), requests, step_form(problem, extent),
                                       &params->states, &params->steps));
  params->requests = static_cast<int>(extent.requests);
  params->draft_tokens = problem.draft_tokens;
  params->tokens = extent.tokens;
  return bind_scale(kVerifyOp, args.scale, problem.key_dim, &params->scale);
}

}  // namespace cubinery::gdn
