#include "runtime/gdn/decode_args.h"

#include <fmt/format.h>

#include <cmath>

#include "runtime/gdn/args_binding.h"
#include "runtime/gdn/decode_problem.h"

namespace cubinery::gdn {
namespace {

Status bind_norm(const DecodeProblem& problem, const DecodeArgs& args, const TokenForm& form,
                 const Dim& heads, GdnDecodeParams* params) {
  const TensorName z{kDecodeOp, "z"}, weight{kDecodeOp, "norm_weight"}, eps{kDecodeOp, "norm_eps"};
  if (problem.output_norm == OutputNorm::kNone) {
    constexpr std::string_view kWhy = "output_norm is none";
    CUBINERY_RETURN_IF_ERROR(check_absent(z, args.z, kWhy));
    CUBINERY_RETURN_IF_ERROR(check_absent(weight, args.norm_weight, kWhy));
    if (!args.norm_eps) return {};
    return invalid(eps, fmt::format("is {}; accepted: none, {}", *args.norm_eps, kWhy));
  }
  const Dim value_dim{"value_dim", problem.value_dim};
  CUBINERY_RETURN_IF_ERROR(
      bind_input_rows(z, args.z, problem.dtype, form, heads, value_dim, params->heads, &params->z));
  CUBINERY_RETURN_IF_ERROR(bind_vector(weight, args.norm_weight, problem.norm_weight_dtype,
                                       value_dim, &params->norm_weight));
  params->norm_eps = args.norm_eps.value_or(1e-6f);
  if (std::isfinite(params->norm_eps) && params->norm_eps >= 0) return {};
  return invalid(eps, fmt::format("is {}; accepted: finite numbers from 0 up", params->norm_eps));
}

}  // namespace

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
  CUBINERY_RETURN_IF_ERROR(bind_norm(problem, args, form, heads, params));
  CUBINERY_RETURN_IF_ERROR(bind_states(kDecodeOp, problem.states, args.states, state_form(problem),
                                       requests, &params->states));
  params->requests = static_cast<int>(batch);
  return bind_scale(kDecodeOp, args.scale, problem.key_dim, &params->scale);
}

}  // namespace cubinery::gdn
