// What the problems of the Gated DeltaNet operators have in common: rules, text.
#pragma once

#include <string>
#include <string_view>

#include "cubinery/fields.h"
#include "cubinery/status.h"
#include "runtime/gdn/shared/problem_fields.h"

namespace cubinery::gdn {

// The most heads of one kind.  Far above any model's, so that products with a head's size, and with
// what a grid or a plan counts, stay inside their integers.
inline constexpr int kMaxHeads = 1 << 16;

// What may be a lower bound (GateMode::kLowerBound), and what messages say of it.
constexpr bool is_lower_bound(double bound) { return bound >= kLeastLowerBound && bound < 0; }
inline constexpr std::string_view kLowerBounds = "-5 to below 0";

// "gdn_decode: key_dim = 100; accepted: multiples of 16 from 16 to 256"
Status bad_field(std::string_view op, std::string_view field, std::string_view value,
                 std::string_view accepted);

template <class T>
std::string value_text(T value) {
  return internal::field_text("", value, false).value;
}

Status check_heads(std::string_view op, const Heads& heads);
Status check_dim(std::string_view op, std::string_view name, int dim);
Status check_draft_tokens(std::string_view op, int draft_tokens);

// Every field has a value that its line of the table accepts.
Status check_accepted(std::string_view op, const internal::Table& table, const void* problem);
template <class Problem>
Status check_accepted(const Problem& problem) {
  return check_accepted(Fields<Problem>::kName, internal::table_of<Problem>(), &problem);
}

// The rules of the fields that every problem has.
template <class Problem>
Status check_shared_fields(const Problem& p) {
  constexpr std::string_view kOp = Fields<Problem>::kName;
  CUBINERY_RETURN_IF_ERROR(check_heads(kOp, p.heads));
  CUBINERY_RETURN_IF_ERROR(check_dim(kOp, "key_dim", p.key_dim));
  CUBINERY_RETURN_IF_ERROR(check_dim(kOp, "value_dim", p.value_dim));
  return check_accepted(p);
}

// Fields that the others leave without meaning at their defaults: equal code has equal keys.
Inputs normalised(Inputs inputs);
template <class S>  // States or ConvStates
S normalised_slots(S states) {
  const S plain;
  if (states.location == StateLocation::kDense) states.index_dtype = plain.index_dtype;
  return states;
}
inline States normalised(States states) { return normalised_slots(states); }
// The same of all fields that operators share.
template <class Problem>
Problem normalised_shared(Problem problem) {
  const Problem plain;
  problem.inputs = normalised(problem.inputs);
  const DType index_dtype = problem.states.index_dtype;
  problem.states = normalised_slots(problem.states);
  if constexpr (requires { problem.checkpoints; }) {  // that of checkpoint_slots, too
    if (problem.checkpoints == Checkpoints::kAt) problem.states.index_dtype = index_dtype;
  }
  if constexpr (requires { problem.varlen; }) {
    if (!problem.varlen) problem.cu_seqlens_dtype = plain.cu_seqlens_dtype;
  }
  if constexpr (requires { problem.from_accepted; }) {
    if (!problem.from_accepted) problem.accepted_dtype = plain.accepted_dtype;
    if (!problem.states.store) problem.stored_states = plain.stored_states;
  }
  if constexpr (requires { problem.output_norm; }) {
    if (problem.output_norm == OutputNorm::kNone) {
      problem.norm_weight_dtype = plain.norm_weight_dtype;
    }
  }
  return problem;
}
// draft_tokens as kernels know it: `least`, or the next power of two that is no less.
int rounded_up_tokens(int draft_tokens, int least);

}  // namespace cubinery::gdn
