// The states of sequences: where they lie, and which slots of a pool sequences have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "common/verify_params.h"
#include "cubinery/gdn_parts.h"
#include "runtime/gdn/shared/args_binding.h"

namespace cubinery::gdn {

// What a tensor of states must look like.
struct StateForm {
  Dim heads;
  Dim rows;
  Dim columns;
  DType dtype;
};

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

// The tensors of states of an operator, and what messages call them.
struct StateTensors {
  TensorName state, state_out;
  const Tensor &in, &out;
};

// Binds what is read by read(name, tensor, outer dimension, steps), and what is written likewise:
// state_out, or in place.
template <class Read, class Write>
Status bind_state_pair(const States& states, const StateTensors& given, const Dim& sequences,
                       StepForm steps, StateSteps* strides, const Read& read, const Write& write) {
  const bool pool = states.location == StateLocation::kPool;
  if (pool) steps = {};
  const auto outer = [&](const Tensor& x) {
    return pool ? Dim{"slots", std::max<std::int64_t>(x.shape[0], 0)} : sequences;
  };
  if (states.has_initial) {
    CUBINERY_RETURN_IF_ERROR(read(given.state, given.in, outer(given.in), steps.read));
    if (steps.read > 0) strides->readable = readable_steps(given.in);
  }
  if (!states.store) return check_absent(given.state_out, given.out, tensors::kNotStored.words);
  if (given.out.present())
    return write(given.state_out, given.out, outer(given.out), steps.written);
  CUBINERY_RETURN_IF_ERROR(steps_in_place(given.state_out, steps, &steps.written));
  return write(given.state, given.in, outer(given.in), steps.written);
}

// What an operator's arguments say of states.
struct StateArgs {
  const Tensor &state, &state_out, &state_indices, &state_out_indices;
  std::int64_t scratch_slot;
};
template <class Args>
StateArgs states_of(const Args& args) {
  return {args.state, args.state_out, args.state_indices, args.state_out_indices,
          args.scratch_slot};
}

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

}  // namespace cubinery::gdn
