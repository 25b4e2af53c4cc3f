// What the problems of the Gated DeltaNet operators have in common: fields, rules, text.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "cubinery/fields.h"
#include "cubinery/gdn_names.h"
#include "cubinery/status.h"

namespace cubinery::gdn {

// The fields that every problem has, in the two runs in which the structs declare them.
// Persistent: names are those of manifests.
template <class P>
constexpr auto operand_fields() {
  return std::tuple{
      fixed("q_heads", &P::q_heads),
      fixed("k_heads", &P::k_heads),
      fixed("v_heads", &P::v_heads),
      fixed("key_dim", &P::key_dim),
      fixed("value_dim", &P::value_dim),
      fixed("dtype", &P::dtype),
      fixed("output_dtype", &P::output_dtype),
      fixed("gate_dtype", &P::gate_dtype),
      fixed("beta_dtype", &P::beta_dtype),
      fixed("a_log_dtype", &P::a_log_dtype),
      fixed("dt_bias_dtype", &P::dt_bias_dtype),
      fixed("state_dtype", &P::state_dtype),
      fixed("index_dtype", &P::index_dtype),
  };
}
template <class P>
constexpr auto mode_fields() {
  return std::tuple{
      fixed("state_layout", &P::state_layout),
      fixed("state_location", &P::state_location),
      fixed("padding", &P::padding),
      fixed("pad_index", &P::pad_index),
      fixed("gate_mode", &P::gate_mode),
      fixed("beta_mode", &P::beta_mode),
      fixed("use_qk_l2norm", &P::use_qk_l2norm),
      fixed("has_initial_state", &P::has_initial_state),
      fixed("store_state", &P::store_state),
  };
}

// "gdn_decode: key_dim = 100; accepted: multiples of 16 from 16 to 256"
Status bad_field(std::string_view op, std::string_view field, std::string_view value,
                 std::string_view accepted);

template <class T>
std::string value_text(T value) {
  return internal::field_text("", value, false).value;
}

Status check_heads(std::string_view op, int q_heads, int k_heads, int v_heads);
Status check_dim(std::string_view op, std::string_view name, int dim);
Status check_float(std::string_view op, std::string_view name, DType dtype);
Status check_integer(std::string_view op, std::string_view name, DType dtype);

// The rules of the fields that every problem has.
template <class Problem>
Status check_shared_fields(const Problem& p) {
  constexpr std::string_view kOp = Fields<Problem>::kName;
  CUBINERY_RETURN_IF_ERROR(check_heads(kOp, p.q_heads, p.k_heads, p.v_heads));
  CUBINERY_RETURN_IF_ERROR(check_dim(kOp, "key_dim", p.key_dim));
  CUBINERY_RETURN_IF_ERROR(check_dim(kOp, "value_dim", p.value_dim));
  CUBINERY_RETURN_IF_ERROR(check_float(kOp, "dtype", p.dtype));
  CUBINERY_RETURN_IF_ERROR(check_float(kOp, "output_dtype", p.output_dtype));
  CUBINERY_RETURN_IF_ERROR(check_float(kOp, "gate_dtype", p.gate_dtype));
  CUBINERY_RETURN_IF_ERROR(check_float(kOp, "beta_dtype", p.beta_dtype));
  CUBINERY_RETURN_IF_ERROR(check_float(kOp, "a_log_dtype", p.a_log_dtype));
  CUBINERY_RETURN_IF_ERROR(check_float(kOp, "dt_bias_dtype", p.dt_bias_dtype));
  CUBINERY_RETURN_IF_ERROR(check_float(kOp, "state_dtype", p.state_dtype));
  CUBINERY_RETURN_IF_ERROR(check_integer(kOp, "index_dtype", p.index_dtype));
  if (p.padding != Padding::kNone && p.state_location != StateLocation::kPool) {
    return bad_field(kOp, "padding", value_text(p.padding),
                     "none (padding needs state_location = pool)");
  }
  return {};
}

// from_json(), whose errors name a key, for a problem.
template <class Problem>
Result<Problem> problem_from_json(std::string_view json) {
  Result<Problem> problem = cubinery::from_json<Problem>(json);
  if (problem) return problem;
  return Status(Code::kInvalidArgument, std::string(problem.error().message()));
}

// The fields that every problem has, those that the others leave without meaning at their defaults:
// equal code has equal keys.
template <class Problem>
void normalise_shared_fields(Problem* problem) {
  const Problem plain;
  if (problem->gate_mode == GateMode::kNone) problem->gate_dtype = plain.gate_dtype;
  if (problem->beta_mode == BetaMode::kOne) problem->beta_dtype = plain.beta_dtype;
  if (problem->gate_mode != GateMode::kComputed) {
    problem->a_log_dtype = plain.a_log_dtype;
    problem->dt_bias_dtype = plain.dt_bias_dtype;
  }
  if (problem->state_location == StateLocation::kDense) problem->index_dtype = plain.index_dtype;
  if (problem->padding == Padding::kNone) problem->pad_index = plain.pad_index;
}

}  // namespace cubinery::gdn
