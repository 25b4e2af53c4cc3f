// The states of sequences: where they lie, and which slots of a pool sequences have.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/verify_params.h"
#include "cubinery/gdn_parts.h"
#include "runtime/gdn/shared/args_binding.h"

namespace cubinery::gdn {

// What a tensor of states must look like behind its sequences or slots, and steps.
struct StateForm {
  std::array<Dim, 3> inner{};
  std::size_t rank = 0;  // of these
  DType dtype{};
};
// Matrices of each head.
template <class Problem>
StateForm state_form(const Problem& problem) {
  const Dim key{"key_dim", problem.key_dim};
  const Dim value{"value_dim", problem.value_dim};
  const bool kv = problem.states.layout == StateLayout::kKV;
  return {.inner = {Dim{"heads", problem.heads.count()}, kv ? key : value, kv ? value : key},
          .rank = 3,
          .dtype = problem.states.dtype};
}

// Where sequences have a state for each step: one dimension more, of at least so many, behind the
// first of dense states, or of indices.  0: there is one state.
struct StepForm {
  std::int64_t read = 0;
  std::int64_t written = 0;
};
// `most`: of the tokens of a sequence, which has one at least, so that there is a dimension.
inline StepForm step_form(bool stores_every, bool from_accepted, std::int64_t most) {
  return {.read = from_accepted ? 1 : 0,
          .written = stores_every ? std::max<std::int64_t>(most, 1) : 0};
}

// That of the form, behind `outer` and, where there are steps, a dimension of at least so many.
Status check_state_shape(const TensorName& name, const Tensor& x, const StateForm& form,
                         const Dim& outer, std::int64_t steps);

// States that are only written: the new ones, checkpoints.
Status bind_written_states(const TensorName& name, const Tensor& x, const Dim& outer,
                           const StateForm& form, WrittenStates* states);

// The tensors of states of an operator, and what messages call them.
struct StateTensors {
  TensorName state, state_out;
  const Tensor &in, &out;
};

Status no_steps_in_place(const TensorName& missing);
// The steps of what is written in place: those that are read, and no fewer than are written.
// `missing`: where they would go otherwise.
inline Status steps_in_place(const TensorName& missing, const StepForm& steps,
                             std::int64_t* written) {
  if (steps.written > 0 && steps.read == 0) return no_steps_in_place(missing);
  *written = steps.read == 0 ? 0 : std::max(steps.read, steps.written);
  return {};
}
// How many steps a tensor of dense states or of indices has that there are to start from.
int readable_steps(const Tensor& x);

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

// What an operator's arguments say of padding.
struct PaddingArgs {
  std::optional<std::int64_t> pad_slot_id{};
  bool zero_padding = false;
  std::optional<std::int64_t> scratch_slot{};
};
template <class Args>
PaddingArgs padding_of(const Args& args) {
  PaddingArgs padding{.pad_slot_id = args.pad_slot_id, .scratch_slot = args.scratch_slot};
  if constexpr (requires { args.zero_padding; }) padding.zero_padding = args.zero_padding;
  return padding;
}

// What an operator's arguments say of states.
struct StateArgs {
  const Tensor &state, &state_out, &state_indices, &state_out_indices;
  PaddingArgs padding{};
};
template <class Args>
StateArgs states_of(const Args& args) {
  return {args.state, args.state_out, args.state_indices, args.state_out_indices, padding_of(args)};
}

// Binds the states of one launch.
struct StateBinder {
  std::string_view op;
  const States& states;
  StateArgs args;
  Dim sequences;  // the name and the extent of the batch
  StepForm steps{};

  Status bind(const StateForm& form, StateParams* params, StateSteps* strides) const;
  // Without steps.
  Status bind(const StateForm& form, StateParams* params) const;
  // Its parts, for operators whose indices come apart from the tensors.
  Status tensors(const StateForm& form, StateParams* params, StateSteps* strides) const;
  Status slots(StateParams* params, StateSteps* strides) const;
  // Of states that have so many slots.
  Status padding(std::int64_t slots, PaddingParams* params) const;
};

// Without one of has_initial and store, its indices are held to the range of the other.
void share_range(const States& states, long long* read_slots, long long* written_slots);

}  // namespace cubinery::gdn
