#include "runtime/gdn/decode_args.h"

#include "runtime/gdn/args_binding.h"
#include "runtime/gdn/decode_problem.h"

namespace cubinery::gdn {

Status bind_decode(const DecodeProblem& problem, const DecodeArgs& args, std::int64_t batch,
                   GdnDecodeParams* params) {
  const Dim requests{"B", batch};
  params->heads = problem.heads.count();
  const Dim heads{"heads", params->heads};
  const TokenForm form{
      .dims = {requests, heads}, .rank = 2, .batch = 0, .head = 1, .extra = ExtraDim::kSecond};
  CUBINERY_RETURN_IF_ERROR(bind_rows(problem, args, form, params));
  CUBINERY_RETURN_IF_ERROR(
      bind_gates(kDecodeOp, problem.inputs, args.gates, form, heads, &params->gates));
  CUBINERY_RETURN_IF_ERROR(bind_states(kDecodeOp, problem.states, args.states, state_form(problem),
                                       requests, &params->states));
  params->requests = static_cast<int>(batch);
  return bind_scale(kDecodeOp, args.scale, problem.key_dim, &params->scale);
}

}  // namespace cubinery::gdn
