// Checks the arguments that the Gated DeltaNet operators have in common, and fills their parts of
// the kernels' parameters (common/params.h): rows of tokens, gates, states, scale.  Templates over
// the operators' structs, which name these arguments alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "common/params.h"
#include "cubinery/fields.h"
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

Status bind_token_scalars(TensorName name, const Tensor& x, DType dtype, const TokenForm& form,
                          Dim heads, TokenScalars* scalars);

Status bind_vector(TensorName name, const Tensor& x, DType dtype, Dim dim, StridedVector* vector);

// [outer, heads, rows, columns] as DecodeArgs::state describes it.
Status bind_read_states(TensorName name, const Tensor& x, Dim outer, const StateForm& form,
                        ReadStates* states);
Status bind_written_states(TensorName name, const Tensor& x, Dim outer, const StateForm& form,
                           WrittenStates* states);

// 0 to slots - 1 with Padding::kScratch, else 0.
Status check_scratch(std::string_view op, Padding padding, std::int64_t slot, std::int64_t slots);

// The caller's scale, or key_dim^-1/2.
Status bind_scale(std::string_view op, std::optional<float> given, int key_dim, float* scale);

template <class Problem>
StateForm state_form(const Problem& problem) {
  const Dim key{"key_dim", problem.key_dim};
  const Dim value{"value_dim", problem.value_dim};
  const bool kv = problem.state_layout == StateLayout::kKV;
  return {.heads = {"heads", problem.heads()},
          .rows = kv ? key : value,
          .columns = kv ? value : key,
          .dtype = problem.state_dtype};
}

// q, k, v and o.
template <class Problem, class Args, class Params>
Status bind_rows(const Problem& problem, const Args& args, const TokenForm& form, Params* p) {
  constexpr std::string_view kOp = Fields<Problem>::kName;
  const Dim key_dim{"key_dim", problem.key_dim};
  const Dim value_dim{"value_dim", problem.value_dim};
  const DType dtype = problem.dtype;
  const int heads = problem.heads();
  CUBINERY_RETURN_IF_ERROR(bind_token_rows({kOp, "q"}, args.q, dtype, form,
                                           {"q_heads", problem.q_heads}, key_dim, heads, &p->q));
  CUBINERY_RETURN_IF_ERROR(bind_token_rows({kOp, "k"}, args.k, dtype, form,
                                           {"k_heads", problem.k_heads}, key_dim, heads, &p->k));
  CUBINERY_RETURN_IF_ERROR(bind_token_rows({kOp, "v"}, args.v, dtype, form,
                                           {"v_heads", problem.v_heads}, value_dim, heads, &p->v));
  CUBINERY_RETURN_IF_ERROR(check_tokens({kOp, "o"}, args.o, problem.output_dtype, form,
                                        {"heads", heads}, value_dim, &p->o.stride));
  p->o.data = args.o.data;
  return check_no_overlap({kOp, "o"}, args.o);
}

// A_log and dt_bias.
template <class Problem, class Args>
Status bind_computed_gate(const Problem& problem, const Args& args, GateParams* gates) {
  constexpr std::string_view kOp = Fields<Problem>::kName;
  if (problem.gate_mode != GateMode::kComputed) {
    constexpr std::string_view kWhy = "gate_mode is not computed";
    CUBINERY_RETURN_IF_ERROR(check_absent({kOp, "A_log"}, args.A_log, kWhy));
    return check_absent({kOp, "dt_bias"}, args.dt_bias, kWhy);
  }
  const Dim heads{"heads", problem.heads()};
  CUBINERY_RETURN_IF_ERROR(
      bind_vector({kOp, "A_log"}, args.A_log, problem.a_log_dtype, heads, &gates->A_log));
  return bind_vector({kOp, "dt_bias"}, args.dt_bias, problem.dt_bias_dtype, heads, &gates->dt_bias);
}

// g, beta, A_log and dt_bias.
template <class Problem, class Args>
Status bind_gates(const Problem& problem, const Args& args, const TokenForm& form,
                  GateParams* gates) {
  constexpr std::string_view kOp = Fields<Problem>::kName;
  const Dim heads{"heads", problem.heads()};
  if (problem.gate_mode == GateMode::kNone) {
    CUBINERY_RETURN_IF_ERROR(check_absent({kOp, "g"}, args.g, "gate_mode is none"));
  } else {
    CUBINERY_RETURN_IF_ERROR(
        bind_token_scalars({kOp, "g"}, args.g, problem.gate_dtype, form, heads, &gates->g));
  }
  if (problem.beta_mode == BetaMode::kOne) {
    CUBINERY_RETURN_IF_ERROR(check_absent({kOp, "beta"}, args.beta, "beta_mode is one"));
  } else {
    CUBINERY_RETURN_IF_ERROR(bind_token_scalars({kOp, "beta"}, args.beta, problem.beta_dtype, form,
                                                heads, &gates->beta));
  }
  return bind_computed_gate(problem, args, gates);
}

// state and state_out.  `sequences` has the name and the extent of the batch.
template <class Problem, class Args>
Status bind_state_tensors(const Problem& problem, const Args& args, Dim sequences,
                          StateParams* states) {
  constexpr std::string_view kOp = Fields<Problem>::kName;
  const StateForm form = state_form(problem);
  const bool pool = problem.state_location == StateLocation::kPool;
  const auto outer = [&](const Tensor& x) {
    return pool ? Dim{"slots", std::max<std::int64_t>(x.shape[0], 0)} : sequences;
  };
  if (problem.has_initial_state) {
    CUBINERY_RETURN_IF_ERROR(
        bind_read_states({kOp, "state"}, args.state, outer(args.state), form, &states->read));
  }
  if (problem.store_state) {
    const bool in_place = !args.state_out.present();
    const Tensor& written = in_place ? args.state : args.state_out;
    CUBINERY_RETURN_IF_ERROR(bind_written_states({kOp, in_place ? "state" : "state_out"}, written,
                                                 outer(written), form, &states->written));
  } else {
    CUBINERY_RETURN_IF_ERROR(
        check_absent({kOp, "state_out"}, args.state_out, "store_state is false"));
  }
  // Without one of the two, its indices are held to the range of the other.
  if (!problem.has_initial_state) {
    states->read.slots =
        problem.store_state ? states->written.slots : std::numeric_limits<long long>::max();
  }
  if (!problem.store_state) states->written.slots = states->read.slots;
  return {};
}

// state, state_out, state_indices, state_out_indices and scratch_slot.
template <class Problem, class Args>
Status bind_states(const Problem& problem, const Args& args, Dim sequences, StateParams* states) {
  constexpr std::string_view kOp = Fields<Problem>::kName;
  CUBINERY_RETURN_IF_ERROR(bind_state_tensors(problem, args, sequences, states));
  CUBINERY_RETURN_IF_ERROR(check_scratch(kOp, problem.padding, args.scratch_slot,
                                         std::min(states->read.slots, states->written.slots)));
  states->scratch_slot = args.scratch_slot;
  if (problem.state_location == StateLocation::kDense) {
    constexpr std::string_view kWhy = "state_location is dense";
    CUBINERY_RETURN_IF_ERROR(check_absent({kOp, "state_indices"}, args.state_indices, kWhy));
    return check_absent({kOp, "state_out_indices"}, args.state_out_indices, kWhy);
  }
  CUBINERY_RETURN_IF_ERROR(bind_vector({kOp, "state_indices"}, args.state_indices,
                                       problem.index_dtype, sequences, &states->read_indices));
  states->write_indices = states->read_indices;
  if (!args.state_out_indices.present()) return {};
  return bind_vector({kOp, "state_out_indices"}, args.state_out_indices, problem.index_dtype,
                     sequences, &states->write_indices);
}

}  // namespace cubinery::gdn
