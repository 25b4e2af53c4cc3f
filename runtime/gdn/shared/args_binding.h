// Checks the arguments that the Gated DeltaNet operators have in common, and fills their parts of
// the kernels' parameters (common/params.h): rows of tokens, gates, states, scale.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "common/params.h"
#include "common/verify_params.h"
#include "cubinery/fields.h"
#include "cubinery/gdn_args.h"
#include "cubinery/gdn_parts.h"
#include "cubinery/gdn_types.h"
#include "runtime/operator/tensor_check.h"

namespace cubinery::gdn {

// The dimensions of an operator's tensors of tokens and heads, and which of them is what.
struct TokenForm {
  static constexpr std::size_t kNone = 4;  // no such dimension

  std::array<Dim, 3> dims{};
  std::size_t rank = 0;       // of dims
  std::size_t batch = kNone;  // packed tensors have none
  std::size_t token = kNone;  // one step of decoding has none
  std::size_t head = kNone;   // each tensor has an extent of its own here
  ExtraDim extra = ExtraDim::kNone;
};

// What a tensor of states must look like.
struct StateForm {
  Dim heads;
  Dim rows;
  Dim columns;
  DType dtype;
};

// The most that a kernel counts in an int.
inline constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

// 0 to `limit`; `dim` is what the tensor's number counts: "T".
Status check_count(const TensorName& name, std::string_view dim, std::int64_t count,
                   std::int64_t limit);
Status wrong_rank(const TensorName& name, int rank, std::string_view accepted);

// Rows of `dim` elements, of q, k or v, for an operator of so many heads.
template <class Strides>
Status bind_input_rows(const TensorName& name, const Tensor& x, DType dtype, const TokenForm& form,
                       const Dim& own_heads, const Dim& dim, int heads, InputRows<Strides>* rows);

template <class Strides>
Status bind_output_rows(const TensorName& name, const Tensor& x, DType dtype, const TokenForm& form,
                        const Dim& heads, const Dim& dim, OutputRows<Strides>* rows);

Status bind_vector(const TensorName& name, const Tensor& x, DType dtype, const Dim& dim,
                   StridedVector* vector);

template <class Strides>
Status bind_gates(std::string_view op, const Inputs& inputs, const GateArgs& args,
                  const TokenForm& form, const Dim& heads, GateParams<Strides>* params);

// States that are only written: the new ones, checkpoints.
Status bind_written_states(const TensorName& name, const Tensor& x, const Dim& outer,
                           const StateForm& form, WrittenStates* states);

// Where sequences have a state for each step: one dimension more, of at least so many, behind the
// first of dense states, or of indices.  0: there is one state.
struct StepForm {
  std::int64_t read = 0;
  std::int64_t written = 0;
};

// A dimension of steps, at least so many, that the tensor may have more of.
Dim steps_of(const Tensor& x, std::int64_t least);
// The steps of what is written in place: those that are read, and no fewer than are written.
// `missing`: where they would go otherwise.
Status steps_in_place(const TensorName& missing, const StepForm& steps, std::int64_t* written);
// How many steps a tensor of dense states or of indices has that there are to start from.
int readable_steps(const Tensor& x);

// `sequences` has the name and the extent of the batch.
Status bind_states(std::string_view op, const States& states, const StateArgs& args,
                   const StateForm& form, const Dim& sequences, StateParams* params);
// With steps.
Status bind_states(std::string_view op, const States& states, const StateArgs& args,
                   const StateForm& form, const Dim& sequences, const StepForm& steps,
                   StateParams* params, StateSteps* strides);

// The two halves of bind_states(), for operators whose indices come apart from the tensors.
Status bind_state_tensors(std::string_view op, const States& states, const StateArgs& args,
                          const StateForm& form, const Dim& sequences, StateParams* params);
Status bind_slots(std::string_view op, const States& states, const StateArgs& args,
                  const Dim& sequences, StateParams* params);
// With steps.
Status bind_slots(std::string_view op, const States& states, const StateArgs& args,
                  const Dim& sequences, StepForm steps, StateParams* params, StateSteps* strides);

// Without one of has_initial and store, its indices are held to the range of the other.
void share_range(const States& states, long long* read_slots, long long* written_slots);

// 0 to slots - 1 with Padding::kScratch, else 0.
Status check_scratch(std::string_view op, Padding padding, std::int64_t slot, std::int64_t slots);

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

template <class Problem, class Args, class Params>
Status bind_o(const Problem& problem, const Args& args, const TokenForm& form, Params* p) {
  return bind_output_rows({Fields<Problem>::kName, "o"}, args.o, problem.output_dtype, form,
                          {"heads", problem.heads.count()}, {"value_dim", problem.value_dim},
                          &p->o);
}

// q, k, v and o.
template <class Problem, class Args, class Params>
Status bind_rows(const Problem& problem, const Args& args, const TokenForm& form, Params* p) {
  constexpr std::string_view kOp = Fields<Problem>::kName;
  const Dim key_dim{"key_dim", problem.key_dim};
  const Dim value_dim{"value_dim", problem.value_dim};
  const DType dtype = problem.dtype;
  const int heads = problem.heads.count();
  CUBINERY_RETURN_IF_ERROR(bind_input_rows({kOp, "q"}, args.q, dtype, form,
                                           {"q_heads", problem.heads.q}, key_dim, heads, &p->q));
  CUBINERY_RETURN_IF_ERROR(bind_input_rows({kOp, "k"}, args.k, dtype, form,
                                           {"k_heads", problem.heads.k}, key_dim, heads, &p->k));
  CUBINERY_RETURN_IF_ERROR(bind_input_rows({kOp, "v"}, args.v, dtype, form,
                                           {"v_heads", problem.heads.v}, value_dim, heads, &p->v));
  return bind_o(problem, args, form, p);
}

}  // namespace cubinery::gdn
