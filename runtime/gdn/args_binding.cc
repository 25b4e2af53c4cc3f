#include "runtime/gdn/args_binding.h"

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

Status check_states(const TensorName& name, const Tensor& x, const Dim& outer,
                    const StateForm& form, StateStrides* stride) {
  const Dim columns = form.columns;
  std::array<std::int64_t, 4> strides{};
  CUBINERY_RETURN_IF_ERROR(check_data(name, x, form.dtype));
  CUBINERY_RETURN_IF_ERROR(check_shape(name, x, {outer, form.heads, form.rows, columns},
                                       ExtraDim::kNone, strides.data()));
  if (reinterpret_cast<std::uintptr_t>(x.data) % kStateAlignment != 0) {
    return invalid(name, fmt::format("at {} is misaligned; accepted: a multiple of {} bytes",
                                     fmt::ptr(x.data), kStateAlignment));
  }
  if (strides[3] != 1 || strides[2] != columns.extent) {
    return invalid(name,
                   fmt::format("has strides {}, {} in its matrices; accepted: {}, 1 (no gaps)",
                               strides[2], strides[3], columns.extent));
  }
  const std::int64_t matrix = form.rows.extent * columns.extent;
  const Dim head{"head", form.heads.extent};
  CUBINERY_RETURN_IF_ERROR(check_gap(name, head, strides[1], form.dtype, matrix));
  CUBINERY_RETURN_IF_ERROR(check_gap(name, outer, strides[0], form.dtype, matrix));
  *stride = {.slot = strides[0], .head = strides[1]};
  return {};
}

void set(TokenStrides* stride, long long batch, long long token, long long head) {
  *stride = {.batch = batch, .token = token, .head = head};
}
void set(RequestStrides* stride, long long batch, long long, long long head) {
  *stride = {.request = batch, .head = head};
}

// The form's dimensions, `heads` among them, then `row` if there is one, which has unit stride.
template <class Strides>
Status check_tokens(const TensorName& name, const Tensor& x, DType dtype, const TokenForm& form,
                    const Dim& heads, const Dim* row, Strides* stride) {
  std::array<Dim, 4> dims{form.dims[0], form.dims[1], form.dims[2]};
  std::size_t rank = form.rank;
  dims[form.head] = heads;
  if (row != nullptr) dims[rank++] = *row;
  std::array<std::int64_t, TokenForm::kNone + 1> strides{};  // the last one: of no dimension
  CUBINERY_RETURN_IF_ERROR(check_data(name, x, dtype));
  CUBINERY_RETURN_IF_ERROR(
      check_shape(name, x, std::span(dims.data(), rank), form.extra, strides.data()));
  set(stride, strides[form.batch], strides[form.token], strides[form.head]);
  return row != nullptr ? check_innermost(name, strides[rank - 1]) : Status();
}

template <class Strides>
Status bind_scalars(const TensorName& name, const Tensor& x, DType dtype, const TokenForm& form,
                    const Dim& heads, Scalars<Strides>* scalars) {
  scalars->data = x.data;
  return check_tokens(name, x, dtype, form, heads, nullptr, &scalars->stride);
}

Status bind_read_states(const TensorName& name, const Tensor& x, const Dim& outer,
                        const StateForm& form, ReadStates* states) {
  states->data = x.data;
  states->slots = outer.extent;
  return check_states(name, x, outer, form, &states->stride);
}

// 0 to slots - 1 with Padding::kScratch, else 0.
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
                          const StateForm& form, const Dim& sequences, StateParams* params) {
  const bool pool = states.location == StateLocation::kPool;
  const auto outer = [&](const Tensor& x) {
    return pool ? Dim{"slots", std::max<std::int64_t>(x.shape[0], 0)} : sequences;
  };
  if (states.has_initial) {
    CUBINERY_RETURN_IF_ERROR(
        bind_read_states({op, "state"}, args.in, outer(args.in), form, &params->read));
  }
  if (states.store) {
    const bool in_place = !args.out.present();
    const Tensor& written = in_place ? args.in : args.out;
    CUBINERY_RETURN_IF_ERROR(bind_written_states({op, in_place ? "state" : "state_out"}, written,
                                                 outer(written), form, &params->written));
  } else {
    CUBINERY_RETURN_IF_ERROR(check_absent({op, "state_out"}, args.out, "store_state is false"));
  }
  // Without one of the two, its indices are held to the range of the other.
  if (!states.has_initial) {
    params->read.slots =
        states.store ? params->written.slots : std::numeric_limits<long long>::max();
  }
  if (!states.store) params->written.slots = params->read.slots;
  return {};
}

}  // namespace

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
  states->data = x.data;
  states->slots = outer.extent;
  CUBINERY_RETURN_IF_ERROR(check_states(name, x, outer, form, &states->stride));
  return check_no_overlap(name, x);
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
  CUBINERY_RETURN_IF_ERROR(bind_state_tensors(op, states, args, form, sequences, params));
  CUBINERY_RETURN_IF_ERROR(check_scratch(op, states.padding, args.scratch_slot,
                                         std::min(params->read.slots, params->written.slots)));
  params->scratch_slot = args.scratch_slot;
  if (states.location == StateLocation::kDense) {
    constexpr std::string_view kWhy = "state_location is dense";
    CUBINERY_RETURN_IF_ERROR(check_absent({op, "state_indices"}, args.indices, kWhy));
    return check_absent({op, "state_out_indices"}, args.out_indices, kWhy);
  }
  CUBINERY_RETURN_IF_ERROR(bind_vector({op, "state_indices"}, args.indices, states.index_dtype,
                                       sequences, &params->read_indices));
  params->write_indices = params->read_indices;
  if (!args.out_indices.present()) return {};
  return bind_vector({op, "state_out_indices"}, args.out_indices, states.index_dtype, sequences,
                     &params->write_indices);
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
