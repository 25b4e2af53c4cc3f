// Checks the arguments that the Gated DeltaNet operators have in common, and fills their parts of
// the kernels' parameters (common/params.h): rows of tokens, gates, states, scale.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/params.h"
#include "cubinery/fields.h"
#include "cubinery/gdn_parts.h"
#include "cubinery/gdn_types.h"
#include "runtime/operator/tensor_check.h"

namespace cubinery::gdn {

// The outer dimensions of an operator's tensors of tokens; their heads come behind.
struct TokenForm {
  std::optional<Dim> batch;   // packed tensors have none
  std::optional<Dim> tokens;  // one step of decoding has none
  bool heads_first = false;   // heads come before tokens
  ExtraDim extra = ExtraDim::kNone;
};

// What a tensor of states must look like.
struct StateForm {
  Dim heads;
  Dim rows;
  Dim columns;
  DType dtype;
};

// The form's dimensions and heads, then `dim` if there is one, which has unit stride.
Status check_tokens(TensorName name, const Tensor& x, DType dtype, const TokenForm& form, Dim heads,
                    std::optional<Dim> dim, TokenStrides* stride);

// Rows of q, k or v, for an operator of so many heads.
Status bind_token_rows(TensorName name, const Tensor& x, DType dtype, const TokenForm& form,
                       Dim own_heads, Dim dim, int heads, TokenRows* rows);

Status bind_vector(TensorName name, const Tensor& x, DType dtype, Dim dim, StridedVector* vector);

Status bind_gates(std::string_view op, const Gates& gates, const GateArgs& args,
                  const TokenForm& form, Dim heads, GateParams* params);

// States that are only written: the new ones, checkpoints.
Status bind_written_states(TensorName name, const Tensor& x, Dim outer, const StateForm& form,
                           WrittenStates* states);

// `sequences` has the name and the extent of the batch.
Status bind_states(std::string_view op, const States& states, const StateArgs& args,
                   const StateForm& form, Dim sequences, StateParams* params);

// The caller's scale, or key_dim^-1/2.
Status bind_scale(std::string_view op, std::optional<float> given, int key_dim, float* scale);

template <class Problem>
StateForm state_form(const Problem& problem) {
  const Dim key{"key_dim", problem.key_dim};
  const Dim value{"value_dim", problem.value_dim};
  const bool kv = problem.states.layout == StateLayout::kKV;
  return {.heads = {"heads", problem.heads.count()},
          .rows = kv ? key : value,
          .columns = kv ? value : key,
          .dtype = problem.states.dtype};
}

// q, k, v and o.
template <class Problem, class Args, class Params>
Status bind_rows(const Problem& problem, const Args& args, const TokenForm& form, Params* p) {
  constexpr std::string_view kOp = Fields<Problem>::kName;
  const Dim key_dim{"key_dim", problem.key_dim};
  const Dim value_dim{"value_dim", problem.value_dim};
  const DType dtype = problem.dtype;
  const int heads = problem.heads.count();
  CUBINERY_RETURN_IF_ERROR(bind_token_rows({kOp, "q"}, args.q, dtype, form,
                                           {"q_heads", problem.heads.q}, key_dim, heads, &p->q));
  CUBINERY_RETURN_IF_ERROR(bind_token_rows({kOp, "k"}, args.k, dtype, form,
                                           {"k_heads", problem.heads.k}, key_dim, heads, &p->k));
  CUBINERY_RETURN_IF_ERROR(bind_token_rows({kOp, "v"}, args.v, dtype, form,
                                           {"v_heads", problem.heads.v}, value_dim, heads, &p->v));
  CUBINERY_RETURN_IF_ERROR(check_tokens({kOp, "o"}, args.o, problem.output_dtype, form,
                                        {"heads", heads}, value_dim, &p->o.stride));
  p->o.data = args.o.data;
  return check_no_overlap({kOp, "o"}, args.o);
}

}  // namespace cubinery::gdn
