#include "runtime/gdn/shared/problem_check.h"

#include <fmt/format.h>

#include <utility>

#include "common/key_rules.h"
#include "common/verify_params.h"
#include "runtime/gdn/shared/tensors.h"

namespace cubinery::gdn {
namespace {

Status check_divides(std::string_view op, std::string_view name, int count, int heads) {
  if (count >= 1 && heads % count == 0) return {};
  return bad_field(
      op, name, value_text(count),
      fmt::format("a divisor of {}, the largest of q_heads, k_heads and v_heads", heads));
}

}  // namespace

Status bad_field(std::string_view op, std::string_view field, std::string_view value,
                 std::string_view accepted) {
  return Status(Code::kInvalidArgument,
                fmt::format("{}: {} = {}; accepted: {}", op, field, value, accepted));
}

Status check_accepted(std::string_view op, const internal::Table& table, const void* problem) {
  for (const internal::Field& field : table.fields) {
    const void* const value = internal::value_of(field, problem);
    if (internal::accepts(field, internal::number_of(*field.type, value))) continue;
    return bad_field(op, field.name, internal::field_text("", *field.type, value, false).value,
                     internal::accepted_values(field));
  }
  return {};
}

Status check_heads(std::string_view op, const Heads& heads) {
  const std::pair<std::string_view, int> counts[] = {
      {"q_heads", heads.q}, {"k_heads", heads.k}, {"v_heads", heads.v}};
  for (const auto& [name, count] : counts) {
    if (count <= kMaxHeads) continue;
    return bad_field(op, name, value_text(count), fmt::format("1 to {}", kMaxHeads));
  }
  // v_heads first: the usual mistake is a tensor-parallel split that leaves groups uneven.
  if (heads.v > heads.k && heads.k >= 1 && heads.v % heads.k != 0) {
    return bad_field(op, "v_heads", value_text(heads.v),
                     fmt::format("a multiple of k_heads = {}", heads.k));
  }
  CUBINERY_RETURN_IF_ERROR(check_divides(op, "q_heads", heads.q, heads.count()));
  CUBINERY_RETURN_IF_ERROR(check_divides(op, "k_heads", heads.k, heads.count()));
  return check_divides(op, "v_heads", heads.v, heads.count());
}

Status check_dim(std::string_view op, std::string_view name, int dim) {
  if (is_head_dim(dim)) return {};
  return bad_field(op, name, value_text(dim), "multiples of 16 from 16 to 256");
}

Status check_draft_tokens(std::string_view op, int draft_tokens) {
  if (draft_tokens >= 1 && draft_tokens <= kMaxVerifyTokens) return {};
  return bad_field(op, "draft_tokens", value_text(draft_tokens),
                   fmt::format("1 to {}", kMaxVerifyTokens));
}

int rounded_up_tokens(int draft_tokens, int least) {
  int tokens = least;
  while (tokens < draft_tokens && tokens < kMaxVerifyTokens) tokens *= 2;
  return tokens;
}

Inputs normalised(Inputs inputs) {
  const Inputs plain;
  if (inputs.gate_mode == GateMode::kNone) {
    inputs.gate_dtype = plain.gate_dtype;
    inputs.decay = plain.decay;
  }
  if (inputs.beta_mode == BetaMode::kOne) inputs.beta_dtype = plain.beta_dtype;
  if (!is_computed(inputs.gate_mode)) {
    inputs.a_log_dtype = plain.a_log_dtype;
    inputs.dt_bias_dtype = plain.dt_bias_dtype;
  }
  return inputs;
}

}  // namespace cubinery::gdn
