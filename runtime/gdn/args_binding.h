// The arguments that the Gated DeltaNet operators have in common: gate vectors, states, slots,
// scale, head groups.  Templates over the operators' structs, which name these fields alike.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>

#include "cubinery/fields.h"
#include "cubinery/gdn_types.h"
#include "runtime/operator/tensor_check.h"

namespace cubinery::gdn {

// What a tensor of states must look like.
struct StateForm {
  Dim heads;
  Dim rows;
  Dim columns;
  DType dtype;
};

// [outer, heads, rows, columns] as DecodeArgs::state describes it.
Status check_states(TensorName name, const Tensor& x, Dim outer, const StateForm& form,
                    long long* outer_stride, long long* head_stride);

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

// A_log and dt_bias, and that no gate is given that the problem does not use.
template <class Problem, class Args, class Params>
Status bind_gate_vectors(const Problem& problem, const Args& args, Params* p) {
  constexpr std::string_view kOp = Fields<Problem>::kName;
  const Dim heads{"heads", problem.heads()};
  if (problem.gate_mode == GateMode::kNone) {
    CUBINERY_RETURN_IF_ERROR(check_absent({kOp, "g"}, args.g, "gate_mode is none"));
  }
  if (problem.beta_mode == BetaMode::kOne) {
    CUBINERY_RETURN_IF_ERROR(check_absent({kOp, "beta"}, args.beta, "beta_mode is one"));
  }
  if (problem.gate_mode != GateMode::kComputed) {
    constexpr std::string_view kWhy = "gate_mode is not computed";
    CUBINERY_RETURN_IF_ERROR(check_absent({kOp, "A_log"}, args.A_log, kWhy));
    return check_absent({kOp, "dt_bias"}, args.dt_bias, kWhy);
  }
  CUBINERY_RETURN_IF_ERROR(bind_vector({kOp, "A_log"}, args.A_log, problem.a_log_dtype, heads,
                                       &p->A_log, &p->A_log_head));
  return bind_vector({kOp, "dt_bias"}, args.dt_bias, problem.dt_bias_dtype, heads, &p->dt_bias,
                     &p->dt_bias_head);
}

// state and state_out.  `sequences` has the name and the extent of the batch.
template <class Problem, class Args, class Params>
Status bind_states(const Problem& problem, const Args& args, Dim sequences, Params* p) {
  constexpr std::string_view kOp = Fields<Problem>::kName;
  const StateForm form = state_form(problem);
  const bool pool = problem.state_location == StateLocation::kPool;
  const auto outer = [&](const Tensor& x) {
    return pool ? Dim{"slots", std::max<std::int64_t>(x.shape[0], 0)} : sequences;
  };
  if (problem.has_initial_state) {
    const Dim slots = outer(args.state);
    CUBINERY_RETURN_IF_ERROR(
        check_states({kOp, "state"}, args.state, slots, form, &p->state_slot, &p->state_head));
    p->state = args.state.data;
    p->slots = slots.extent;
  }
  if (problem.store_state) {
    const bool in_place = !args.state_out.present();
    const Tensor& written = in_place ? args.state : args.state_out;
    const Dim slots = outer(written);
    const TensorName name{kOp, in_place ? "state" : "state_out"};
    CUBINERY_RETURN_IF_ERROR(
        check_states(name, written, slots, form, &p->state_out_slot, &p->state_out_head));
    CUBINERY_RETURN_IF_ERROR(check_no_overlap(name, written));
    p->state_out = written.data;
    p->state_out_slots = slots.extent;
  } else {
    CUBINERY_RETURN_IF_ERROR(
        check_absent({kOp, "state_out"}, args.state_out, "store_state is false"));
  }
  // Without one of the two, its indices are held to the range of the other.
  if (!problem.has_initial_state) {
    p->slots = problem.store_state ? p->state_out_slots : std::numeric_limits<long long>::max();
  }
  if (!problem.store_state) p->state_out_slots = p->slots;
  return {};
}

// state_indices, state_out_indices and scratch_slot.  Requires: bind_states().
template <class Problem, class Args, class Params>
Status bind_slots(const Problem& problem, const Args& args, Dim sequences, Params* p,
                  long long* read_stride, long long* write_stride) {
  constexpr std::string_view kOp = Fields<Problem>::kName;
  CUBINERY_RETURN_IF_ERROR(check_scratch(kOp, problem.padding, args.scratch_slot,
                                         std::min(p->slots, p->state_out_slots)));
  p->scratch_slot = args.scratch_slot;
  if (problem.state_location == StateLocation::kDense) {
    constexpr std::string_view kWhy = "state_location is dense";
    CUBINERY_RETURN_IF_ERROR(check_absent({kOp, "state_indices"}, args.state_indices, kWhy));
    return check_absent({kOp, "state_out_indices"}, args.state_out_indices, kWhy);
  }
  CUBINERY_RETURN_IF_ERROR(bind_vector({kOp, "state_indices"}, args.state_indices,
                                       problem.index_dtype, sequences, &p->read_slots,
                                       read_stride));
  p->write_slots = p->read_slots;
  *write_stride = *read_stride;
  if (!args.state_out_indices.present()) return {};
  return bind_vector({kOp, "state_out_indices"}, args.state_out_indices, problem.index_dtype,
                     sequences, &p->write_slots, write_stride);
}

}  // namespace cubinery::gdn
