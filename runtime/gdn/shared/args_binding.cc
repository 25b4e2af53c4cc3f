#include "runtime/gdn/shared/args_binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

namespace cubinery::gdn {
namespace {

// State matrices are read and written in vectors of up to 16 bytes.
constexpr std::int64_t kStateAlignment = 16;

// Rows that start at multiples of this are read in whole vectors.
constexpr std::uint64_t kRowAlignment = 16;

bool rows_aligned(const Tensor& x) {
  const auto size = static_cast<std::uint64_t>(size_of(x.dtype));
  std::uint64_t bits = reinterpret_cast<std::uintptr_t>(x.data);
  for (std::size_t d = 0; d + 1 < static_cast<std::size_t>(x.rank); ++d) {
    if (x.shape[d] > 1) bits |= static_cast<std::uint64_t>(x.strides[d]) * size;
  }
  return bits % kRowAlignment == 0;
}

// Whole vectors between matrices, and no matrix on top of another.
Status check_gap(const TensorName& name, const Dim& dim, std::int64_t stride, DType dtype,
                 std::int64_t matrix) {
  if (dim.extent <= 1) return {};
  if (stride * size_of(dtype) % kStateAlignment == 0 && stride >= matrix) return {};
  return invalid(name, fmt::format("has {} stride {}; accepted: multiples of {} from {} up",
                                   dim.name, stride, kStateAlignment / size_of(dtype), matrix));
}

// `steps`: as in StepForm; *step is then the stride from one to the next.
Status check_states(const TensorName& name, const Tensor& x, const Dim& outer,
                    const StateForm& form, std::int64_t steps, StateStrides* stride,
                    long long* step) {
  const std::size_t heads = steps > 0 ? 2 : 1;  // their dimension
  const Dim inner = steps_of(x, steps);
  CUBINERY_RETURN_IF_ERROR(check_data(name, x, form.dtype));
  ShapeComparison comparison(x);
  comparison.add(0, outer.extent);
  if (steps > 0) comparison.add(1, inner.extent);
  comparison.add(heads, form.heads.extent);
  comparison.add(heads + 1, form.rows.extent);
  comparison.add(heads + 2, form.columns.extent);
  if (!comparison.is_usual()) {
    std::array<Dim, Tensor::kMaxRank> dims{outer, inner};
    dims[heads] = form.heads;
    dims[heads + 1] = form.rows;
    dims[heads + 2] = form.columns;
    std::array<std::int64_t, Tensor::kMaxRank> same_strides{};
    CUBINERY_RETURN_IF_ERROR(check_shape(name, x, std::span(dims.data(), heads + 3),
                                         ExtraDim::kNone, same_strides.data()));
  }
  const auto& strides = x.strides;
  if (reinterpret_cast<std::uintptr_t>(x.data) % kStateAlignment != 0) {
    return invalid(name, fmt::format("at {} is misaligned; accepted: a multiple of {} bytes",
                                     fmt::ptr(x.data), kStateAlignment));
  }
  const std::int64_t row = strides[heads + 1], column = strides[heads + 2];
  if (column != 1 || row != form.columns.extent) {
    return invalid(name,
                   fmt::format("has strides {}, {} in its matrices; accepted: {}, 1 (no gaps)", row,
                               column, form.columns.extent));
  }
  const std::int64_t matrix = form.rows.extent * form.columns.extent;
  const Dim head{"head", form.heads.extent};
  CUBINERY_RETURN_IF_ERROR(check_gap(name, head, strides[heads], form.dtype, matrix));
  if (steps > 0) CUBINERY_RETURN_IF_ERROR(check_gap(name, inner, strides[1], form.dtype, matrix));
  CUBINERY_RETURN_IF_ERROR(check_gap(name, outer, strides[0], form.dtype, matrix));
  *stride = {.slot = strides[0], .head = strides[heads]};
  *step = steps > 0 ? strides[1] : 0;
  return {};
}

void set(TokenStrides* stride, long long batch, long long token, long long head) {
  *stride = {.batch = batch, .token = token, .head = head};
}
void set(RequestStrides* stride, long long batch, long long, long long head) {
  *stride = {.request = batch, .head = head};
}

// check_tokens() of any tensor, with a message for those that it refuses.
template <class Strides>
Status check_unusual_tokens(const TensorName& name, const Tensor& x, const TokenForm& form,
                            const Dim& heads, const Dim* row, Strides* stride) {
  std::array<Dim, 4> dims{form.dims[0], form.dims[1], form.dims[2]};
  std::size_t rank = form.rank;
  dims[form.head] = heads;
  if (row != nullptr) dims[rank++] = *row;
  std::array<std::int64_t, TokenForm::kNone + 1> strides{};  // the last one: of no dimension
  CUBINERY_RETURN_IF_ERROR(
      check_shape(name, x, std::span(dims.data(), rank), form.extra, strides.data()));
  set(stride, strides[form.batch], strides[form.token], strides[form.head]);
  return row != nullptr ? check_innermost(name, strides[rank - 1]) : Status();
}

// The form's dimensions, `heads` among them, then `row` if there is one, which has unit stride.
// Most of what a launch costs is here: tensors without an extra dimension, with small strides, are
// told without copying the form.
template <class Strides>
Status check_tokens(const TensorName& name, const Tensor& x, DType dtype, const TokenForm& form,
                    const Dim& heads, const Dim* row, Strides* stride) {
  CUBINERY_RETURN_IF_ERROR(check_data(name, x, dtype));
  const std::size_t outer = form.rank;
  ShapeComparison comparison(x);
  for (std::size_t d = 0; d < outer; ++d) {
    comparison.add(d, d == form.head ? heads.extent : form.dims[d].extent);
  }
  if (row != nullptr) comparison.add(outer, row->extent);
  if (!comparison.is_usual() || (row != nullptr && x.strides[outer] != 1)) {
    return check_unusual_tokens(name, x, form, heads, row, stride);
  }
  const auto stride_of = [&](std::size_t d) { return d == TokenForm::kNone ? 0 : x.strides[d]; };
  set(stride, stride_of(form.batch), stride_of(form.token), stride_of(form.head));
  return {};
}

template <class Strides>
Status bind_scalars(const TensorName& name, const Tensor& x, DType dtype, const TokenForm& form,
                    const Dim& heads, Scalars<Strides>* scalars) {
  scalars->data = x.data;
  return check_tokens(name, x, dtype, form, heads, nullptr, &scalars->stride);
}

Status bind_read_states(const TensorName& name, const Tensor& x, const Dim& outer,
                        const StateForm& form, std::int64_t steps, ReadStates* states,
                        long long* step) {
  states->data = x.data;
  states->slots = outer.extent;
  return check_states(name, x, outer, form, steps, &states->stride, step);
}

Status bind_written_states(const TensorName& name, const Tensor& x, const Dim& outer,
                           const StateForm& form, std::int64_t steps, WrittenStates* states,
                           long long* step) {
  states->data = x.data;
  states->slots = outer.extent;
  CUBINERY_RETURN_IF_ERROR(check_states(name, x, outer, form, steps, &states->stride, step));
  return check_no_overlap(name, x);
}

template <class Strides>
Status bind_computed_gate(std::string_view op, const Inputs& inputs, const GateArgs& args,
                          const Dim& heads, GateParams<Strides>* params) {
  if (inputs.gate_mode != GateMode::kComputed) {
    constexpr std::string_view kWhy = "gate_mode is not computed";
    CUBINERY_RETURN_IF_ERROR(check_absent({op, "A_log"}, args.A_log, kWhy));
    return check_absent({op, "dt_bias"}, args.dt_bias, kWhy);
  }
  CUBINERY_RETURN_IF_ERROR(
      bind_vector({op, "A_log"}, args.A_log, inputs.a_log_dtype, heads, &params->A_log));
  return bind_vector({op, "dt_bias"}, args.dt_bias, inputs.dt_bias_dtype, heads, &params->dt_bias);
}

// state and state_out.
Status bind_state_tensors(std::string_view op, const States& states, const StateArgs& args,
                          const StateForm& form, const Dim& sequences, StepForm steps,
                          StateParams* params, StateSteps* strides) {
  const bool pool = states.location == StateLocation::kPool;
  if (pool) steps = {};
  const auto outer = [&](const Tensor& x) {
    return pool ? Dim{"slots", std::max<std::int64_t>(x.shape[0], 0)} : sequences;
  };
  if (states.has_initial) {
    CUBINERY_RETURN_IF_ERROR(bind_read_states({op, "state"}, args.in, outer(args.in), form,
                                              steps.read, &params->read, &strides->read_state));
    if (steps.read > 0) strides->readable = readable_steps(args.in);
  }
  if (states.store) {
    const bool in_place = !args.out.present();
    if (in_place) {
      CUBINERY_RETURN_IF_ERROR(steps_in_place({op, "state_out"}, steps, &steps.written));
    }
    const Tensor& written = in_place ? args.in : args.out;
    CUBINERY_RETURN_IF_ERROR(bind_written_states({op, in_place ? "state" : "state_out"}, written,
                                                 outer(written), form, steps.written,
                                                 &params->written, &strides->written_state));
  } else {
    CUBINERY_RETURN_IF_ERROR(check_absent({op, "state_out"}, args.out, "store_state is false"));
  }
  share_range(states, &params->read.slots, &params->written.slots);
  return {};
}

// state_indices or state_out_indices.
Status bind_indices(const TensorName& name, const Tensor& x, DType dtype, const Dim& sequences,
                    std::int64_t steps, StridedVector* indices, long long* step) {
  *step = 0;
  if (steps == 0) return bind_vector(name, x, dtype, sequences, indices);
  std::array<std::int64_t, 2> strides{};
  CUBINERY_RETURN_IF_ERROR(check_data(name, x, dtype));
  CUBINERY_RETURN_IF_ERROR(
      check_shape(name, x, {sequences, steps_of(x, steps)}, ExtraDim::kNone, strides.data()));
  *indices = {.data = x.data, .stride = strides[0]};
  *step = strides[1];
  return {};
}

}  // namespace

Status check_count(const TensorName& name, std::string_view dim, std::int64_t count,
                   std::int64_t limit) {
  if (count >= 0 && count <= limit) return {};
  return invalid(name, fmt::format("has {} = {}; accepted: 0 to {}", dim, count, limit));
}

Dim steps_of(const Tensor& x, std::int64_t least) {
  return {"steps", std::max(x.rank > 1 ? x.shape[1] : 0, least)};
}

Status steps_in_place(const TensorName& missing, const StepForm& steps, std::int64_t* written) {
  if (steps.written > 0 && steps.read == 0) {
    return invalid(missing,
                   "is missing; accepted: a tensor, stored_states is every and "
                   "from_accepted is false");
  }
  *written = steps.read == 0 ? 0 : std::max(steps.read, steps.written);
  return {};
}

// No tensor has more than an int holds numbers.
int readable_steps(const Tensor& x) { return static_cast<int>(std::min(x.shape[1], kMaxInt)); }

Status wrong_rank(const TensorName& name, int rank, std::string_view accepted) {
  return invalid(name, fmt::format("has {} dimensions; accepted: {}", rank, accepted));
}

template <class Strides>
Status bind_input_rows(const TensorName& name, const Tensor& x, DType dtype, const TokenForm& form,
                       const Dim& own_heads, const Dim& dim, int heads, InputRows<Strides>* rows) {
  CUBINERY_RETURN_IF_ERROR(check_tokens(name, x, dtype, form, own_heads, &dim, &rows->stride));
  rows->data = x.data;
  rows->group = heads / static_cast<int>(own_heads.extent);
  rows->aligned = rows_aligned(x);
  return {};
}

template <class Strides>
Status bind_output_rows(const TensorName& name, const Tensor& x, DType dtype, const TokenForm& form,
                        const Dim& heads, const Dim& dim, OutputRows<Strides>* rows) {
  CUBINERY_RETURN_IF_ERROR(check_tokens(name, x, dtype, form, heads, &dim, &rows->stride));
  rows->data = x.data;
  return check_no_overlap(name, x);
}

Status bind_vector(const TensorName& name, const Tensor& x, DType dtype, const Dim& dim,
                   StridedVector* vector) {
  return cubinery::bind_vector(name, x, dtype, dim, &vector->data, &vector->stride);
}

Status bind_written_states(const TensorName& name, const Tensor& x, const Dim& outer,
                           const StateForm& form, WrittenStates* states) {
  long long no_step = 0;
  return bind_written_states(name, x, outer, form, 0, states, &no_step);
}

template <class Strides>
Status bind_gates(std::string_view op, const Inputs& inputs, const GateArgs& args,
                  const TokenForm& form, const Dim& heads, GateParams<Strides>* params) {
  if (inputs.gate_mode == GateMode::kNone) {
    CUBINERY_RETURN_IF_ERROR(check_absent({op, "g"}, args.g, "gate_mode is none"));
  } else {
    CUBINERY_RETURN_IF_ERROR(
        bind_scalars({op, "g"}, args.g, inputs.gate_dtype, form, heads, &params->g));
  }
  if (inputs.beta_mode == BetaMode::kOne) {
    CUBINERY_RETURN_IF_ERROR(check_absent({op, "beta"}, args.beta, "beta_mode is one"));
  } else {
    CUBINERY_RETURN_IF_ERROR(
        bind_scalars({op, "beta"}, args.beta, inputs.beta_dtype, form, heads, &params->beta));
  }
  return bind_computed_gate(op, inputs, args, heads, params);
}

Status bind_states(std::string_view op, const States& states, const StateArgs& args,
                   const StateForm& form, const Dim& sequences, StateParams* params) {
  StateSteps no_steps{};
  return bind_states(op, states, args, form, sequences, {}, params, &no_steps);
}

Status bind_states(std::string_view op, const States& states, const StateArgs& args,
                   const StateForm& form, const Dim& sequences, const StepForm& steps,
                   StateParams* params, StateSteps* strides) {
  CUBINERY_RETURN_IF_ERROR(
      bind_state_tensors(op, states, args, form, sequences, steps, params, strides));
  CUBINERY_RETURN_IF_ERROR(check_scratch(op, states.padding, args.scratch_slot,
                                         std::min(params->read.slots, params->written.slots)));
  params->scratch_slot = args.scratch_slot;
  return bind_slots(op, states, args, sequences, steps, params, strides);
}

Status bind_state_tensors(std::string_view op, const States& states, const StateArgs& args,
                          const StateForm& form, const Dim& sequences, StateParams* params) {
  StateSteps no_steps{};
  return bind_state_tensors(op, states, args, form, sequences, {}, params, &no_steps);
}

Status bind_slots(std::string_view op, const States& states, const StateArgs& args,
                  const Dim& sequences, StateParams* params) {
  StateSteps no_steps{};
  return bind_slots(op, states, args, sequences, {}, params, &no_steps);
}

Status bind_slots(std::string_view op, const States& states, const StateArgs& args,
                  const Dim& sequences, StepForm steps, StateParams* params, StateSteps* strides) {
  if (states.location != StateLocation::kPool) {
    constexpr std::string_view kWhy = "state_location is dense";
    CUBINERY_RETURN_IF_ERROR(check_absent({op, "state_indices"}, args.indices, kWhy));
    return check_absent({op, "state_out_indices"}, args.out_indices, kWhy);
  }
  const bool in_place = !args.out_indices.present();
  if (in_place) {
    CUBINERY_RETURN_IF_ERROR(steps_in_place({op, "state_out_indices"}, steps, &steps.read));
  }
  CUBINERY_RETURN_IF_ERROR(bind_indices({op, "state_indices"}, args.indices, states.index_dtype,
                                        sequences, steps.read, &params->read_indices,
                                        &strides->read_index));
  if (steps.read > 0) strides->readable = readable_steps(args.indices);
  params->write_indices = params->read_indices;
  strides->written_index = strides->read_index;
  if (in_place) return {};
  return bind_indices({op, "state_out_indices"}, args.out_indices, states.index_dtype, sequences,
                      steps.written, &params->write_indices, &strides->written_index);
}

void share_range(const States& states, long long* read_slots, long long* written_slots) {
  if (!states.has_initial) {
    *read_slots = states.store ? *written_slots : std::numeric_limits<long long>::max();
  }
  if (!states.store) *written_slots = *read_slots;
}

Status check_scratch(std::string_view op, Padding padding, std::int64_t slot, std::int64_t slots) {
  const bool uses_scratch = padding == Padding::kScratch;
  if (uses_scratch && (slot < 0 || slot >= slots)) {
    return invalid({op, "scratch_slot"}, fmt::format("is {}; accepted: 0 to {}", slot, slots - 1));
  }
  if (!uses_scratch && slot != 0) {
    return invalid({op, "scratch_slot"},
                   fmt::format("is {}; accepted: 0, padding is not scratch", slot));
  }
  return {};
}

Status bind_scale(std::string_view op, std::optional<float> given, int key_dim, float* scale) {
  *scale = given.value_or(1.0f / std::sqrt(static_cast<float>(key_dim)));
  if (std::isfinite(*scale)) return {};
  return invalid({op, "scale"}, fmt::format("is {}; accepted: a finite number", *scale));
}

#define CUBINERY_BINDERS_OF(Strides)                                                             \
  template Status bind_input_rows(const TensorName&, const Tensor&, DType, const TokenForm&,     \
                                  const Dim&, const Dim&, int, InputRows<Strides>*);             \
  template Status bind_output_rows(const TensorName&, const Tensor&, DType, const TokenForm&,    \
                                   const Dim&, const Dim&, OutputRows<Strides>*);                \
  template Status bind_gates(std::string_view, const Inputs&, const GateArgs&, const TokenForm&, \
                             const Dim&, GateParams<Strides>*)
CUBINERY_BINDERS_OF(TokenStrides);
CUBINERY_BINDERS_OF(RequestStrides);
#undef CUBINERY_BINDERS_OF

}  // namespace cubinery::gdn
