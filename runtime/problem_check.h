// What the problems of the Gated DeltaNet operators have in common: rules, text, kernels.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/arch.h"
#include "cubinery/fields.h"
#include "cubinery/gdn_types.h"
#include "cubinery/status.h"

namespace cubinery::gdn {

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

template <class Key>
Status add_spec(const Key& key, std::vector<KernelSpec>* specs) {
  Result<KernelSpec> spec = spec_of(key);
  if (!spec) return std::move(spec).error();
  specs->push_back(std::move(*spec));
  return {};
}

}  // namespace cubinery::gdn
