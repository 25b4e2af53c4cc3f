// What the problems of the Gated DeltaNet operators have in common: fields, rules, text, kernels.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "codegen/arch.h"
#include "cubinery/fields.h"
#include "cubinery/gdn_types.h"
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
Result<Arch> check_arch(std::string_view op, std::string_view name);

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

// The dtypes of what the gates are made of, as far as the modes use them.  Fields that the others
// leave without meaning keep their default, so that equal code has equal keys; likewise below.
template <class Problem, class Key>
void set_gate_dtypes(const Problem& problem, Key* key) {
  if (problem.gate_mode != GateMode::kNone) key->gate_dtype = problem.gate_dtype;
  if (problem.beta_mode != BetaMode::kOne) key->beta_dtype = problem.beta_dtype;
  if (problem.gate_mode != GateMode::kComputed) return;
  key->a_log_dtype = problem.a_log_dtype;
  key->dt_bias_dtype = problem.dt_bias_dtype;
}

// What indices are, as far as there are any.
template <class Problem, class Key>
void set_index_fields(const Problem& problem, Key* key) {
  if (problem.state_location == StateLocation::kPool) key->index_dtype = problem.index_dtype;
  if (problem.padding != Padding::kNone) key->pad_index = problem.pad_index;
}

template <class Key>
Status add_spec(const Key& key, std::vector<KernelSpec>* specs) {
  Result<KernelSpec> spec = spec_of(key);
  if (!spec) return std::move(spec).error();
  specs->push_back(std::move(*spec));
  return {};
}

}  // namespace cubinery::gdn
