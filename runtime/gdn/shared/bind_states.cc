#include "runtime/gdn/shared/bind_states.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <span>

namespace cubinery::gdn {
namespace {

// State matrices are read and written in vectors of up to 16 bytes.
constexpr std::int64_t kStateAlignment = 16;

// Apart for the sake of launches.
[[gnu::noinline]] Status bad_gap(const TensorName& name, std::string_view dim, std::int64_t stride,
                                 DType dtype, std::int64_t matrix) {
  return invalid(name, fmt::format("has {} stride {}; accepted: multiples of {} from {} up", dim,
                                   stride, kStateAlignment / size_of(dtype), matrix));
}

// Whole vectors between matrices, and no matrix on top of another.
inline Status check_gap(const TensorName& name, const Dim& dim, std::int64_t stride, DType dtype,
                        std::int64_t matrix) {
  if (dim.extent <= 1) return {};
  if (stride * size_of(dtype) % kStateAlignment == 0 && stride >= matrix) return {};
  return bad_gap(name, dim.name, stride, dtype, matrix);
}

// A dimension of steps, at least so many, that the tensor may have more of.
Dim steps_of(const Tensor& x, std::int64_t least) {
  return {"steps", std::max(x.rank > 1 ? x.shape[1] : 0, least)};
}

// Apart for the sake of launches.
[[gnu::noinline]] Status check_unusual_states(const TensorName& name, const Tensor& x,
                                              const StateForm& form, const Dim& outer,
                                              std::int64_t steps) {
  CUBINERY_RETURN_IF_ERROR(check_data(name, x, form.dtype));
  std::array<Dim, Tensor::kMaxRank> dims{outer, steps_of(x, steps)};
  const std::size_t inner = steps > 0 ? 2 : 1;
  std::copy_n(form.inner.begin(), form.rank, dims.begin() + inner);
  std::array<std::int64_t, Tensor::kMaxRank> same_strides{};
  return check_shape(name, x, std::span(dims.data(), inner + form.rank), ExtraDim::kNone,
                     same_strides.data());
}

// `steps`: as in StepForm; *step is then the stride from one to the next.
Status check_states(const TensorName& name, const Tensor& x, const Dim& outer,
                    const StateForm& form, std::int64_t steps, StateStrides* stride,
                    long long* step) {
  CUBINERY_RETURN_IF_ERROR(check_state_shape(name, x, form, outer, steps));
  const std::size_t heads = steps > 0 ? 2 : 1;  // their dimension
  const auto& [head, rows, columns] = form.inner;
  const auto& strides = x.strides;
  if (reinterpret_cast<std::uintptr_t>(x.data) % kStateAlignment != 0) {
    return invalid(name, fmt::format("at {} is misaligned; accepted: a multiple of {} bytes",
                                     fmt::ptr(x.data), kStateAlignment));
  }
  const std::int64_t row = strides[heads + 1], column = strides[heads + 2];
  if (column != 1 || row != columns.extent) {
    return invalid(name,
                   fmt::format("has strides {}, {} in its matrices; accepted: {}, 1 (no gaps)", row,
                               column, columns.extent));
  }
  const std::int64_t matrix = rows.extent * columns.extent;
  CUBINERY_RETURN_IF_ERROR(
      check_gap(name, {"head", head.extent}, strides[heads], form.dtype, matrix));
  if (steps > 0) {
    const Dim inner{"steps", x.shape[1]};
    CUBINERY_RETURN_IF_ERROR(check_gap(name, inner, strides[1], form.dtype, matrix));
  }
  CUBINERY_RETURN_IF_ERROR(check_gap(name, outer, strides[0], form.dtype, matrix));
  *stride = {.slot = strides[0], .head = strides[heads]};
  *step = steps > 0 ? strides[1] : 0;
  return {};
}

Status bind_written_states(const TensorName& name, const Tensor& x, const Dim& outer,
                           const StateForm& form, std::int64_t steps, WrittenStates* states,
                           long long* step) {
  states->data = x.data;
  states->slots = outer.extent;
  CUBINERY_RETURN_IF_ERROR(check_states(name, x, outer, form, steps, &states->stride, step));
  return check_no_overlap(name, x);
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

// What needs something else.
Status check_padding(std::string_view op, const States& states, const PaddingArgs& padding) {
  const auto& [pad, zeroes, scratch] = padding;
  if (pad && states.location != StateLocation::kPool) {
    return invalid({op, "pad_slot_id"},
                   fmt::format("is {}; accepted: none, {}", *pad, gdn::tensors::kNoPool.words));
  }
  constexpr std::string_view kNoPad = "pad_slot_id is absent";
  if (scratch && !pad) {
    return invalid({op, "scratch_slot"},
                   fmt::format("is {}; accepted: none, {}", *scratch, kNoPad));
  }
  if (zeroes && (!pad || scratch)) {
    return invalid({op, "zero_padding"}, fmt::format("is true; accepted: false, {}",
                                                     pad ? "scratch_slot is given" : kNoPad));
  }
  return {};
}

}  // namespace

// Most tensors are told without copying the form.
Status check_state_shape(const TensorName& name, const Tensor& x, const StateForm& form,
                         const Dim& outer, std::int64_t steps) {
  ShapeComparison comparison(x);
  comparison.add(0, outer.extent);
  if (steps > 0) comparison.add(1, steps_of(x, steps).extent);
  const std::size_t inner = steps > 0 ? 2 : 1;
  for (std::size_t d = 0; d < form.rank; ++d) comparison.add(inner + d, form.inner[d].extent);
  if (has_usual_data(x, form.dtype) && comparison.is_usual()) return {};
  return check_unusual_states(name, x, form, outer, steps);
}

Status no_steps_in_place(const TensorName& missing) {
  return invalid(missing,
                 "is missing; accepted: a tensor, stored_states is every and "
                 "from_accepted is false");
}

// No tensor has more than an int holds numbers.
int readable_steps(const Tensor& x) { return static_cast<int>(std::min(x.shape[1], kMaxInt)); }

Status bind_written_states(const TensorName& name, const Tensor& x, const Dim& outer,
                           const StateForm& form, WrittenStates* states) {
  long long no_step = 0;
  return bind_written_states(name, x, outer, form, 0, states, &no_step);
}

Status StateBinder::bind(const StateForm& form, StateParams* params, StateSteps* strides) const {
  CUBINERY_RETURN_IF_ERROR(tensors(form, params, strides));
  CUBINERY_RETURN_IF_ERROR(
      padding(std::min(params->read.slots, params->written.slots), &params->padding));
  return slots(params, strides);
}

Status StateBinder::bind(const StateForm& form, StateParams* params) const {
  StateSteps no_steps{};
  return bind(form, params, &no_steps);
}

Status StateBinder::tensors(const StateForm& form, StateParams* params, StateSteps* strides) const {
  const StateTensors given{.state = {op, gdn::tensors::kState.info.name},
                           .state_out = {op, gdn::tensors::kStateOut.info.name},
                           .in = args.state,
                           .out = args.state_out};
  std::int64_t checked = -1;  // steps that `state` was checked for
  const auto read = [&](const TensorName& name, const Tensor& x, const Dim& outer,
                        std::int64_t count) {
    checked = count;
    params->read.data = x.data;
    params->read.slots = outer.extent;
    return check_states(name, x, outer, form, count, &params->read.stride, &strides->read_state);
  };
  const auto write = [&](const TensorName& name, const Tensor& x, const Dim& outer,
                         std::int64_t count) {
    if (&x == &args.state && count == checked) {  // in place
      params->written = {.data = x.data, .stride = params->read.stride, .slots = outer.extent};
      strides->written_state = strides->read_state;
      return check_no_overlap(name, x);
    }
    return bind_written_states(name, x, outer, form, count, &params->written,
                               &strides->written_state);
  };
  CUBINERY_RETURN_IF_ERROR(bind_state_pair(states, given, sequences, steps, strides, read, write));
  share_range(states, &params->read.slots, &params->written.slots);
  return {};
}

Status StateBinder::slots(StateParams* params, StateSteps* strides) const {
  const TensorName indices{op, gdn::tensors::kStateIndices.info.name};
  const TensorName out_indices{op, gdn::tensors::kStateOutIndices.info.name};
  if (states.location != StateLocation::kPool) {
    constexpr std::string_view kWhy = gdn::tensors::kNoPool.words;
    CUBINERY_RETURN_IF_ERROR(check_absent(indices, args.state_indices, kWhy));
    return check_absent(out_indices, args.state_out_indices, kWhy);
  }
  const bool in_place = !args.state_out_indices.present();
  std::int64_t read = steps.read;
  if (in_place) CUBINERY_RETURN_IF_ERROR(steps_in_place(out_indices, steps, &read));
  CUBINERY_RETURN_IF_ERROR(bind_indices(indices, args.state_indices, states.index_dtype, sequences,
                                        read, &params->read_indices, &strides->read_index));
  if (read > 0) strides->readable = readable_steps(args.state_indices);
  params->write_indices = params->read_indices;
  strides->written_index = strides->read_index;
  if (in_place) return {};
  return bind_indices(out_indices, args.state_out_indices, states.index_dtype, sequences,
                      steps.written, &params->write_indices, &strides->written_index);
}

Status StateBinder::padding(std::int64_t slots, PaddingParams* params) const {
  const auto& [pad, zeroes, scratch] = args.padding;
  CUBINERY_RETURN_IF_ERROR(check_padding(op, states, args.padding));
  if (scratch && (*scratch < 0 || *scratch >= slots)) {
    return invalid({op, "scratch_slot"},
                   fmt::format("is {}; accepted: 0 to {}", *scratch, slots - 1));
  }
  if (!pad) return {};
  params->index = *pad;
  params->scratch = scratch.value_or(PaddingParams::kDropped);
  params->zero = zeroes;
  return {};
}

void share_range(const States& states, long long* read_slots, long long* written_slots) {
  if (!states.has_initial) {
    *read_slots = states.store ? *written_slots : std::numeric_limits<long long>::max();
  }
  if (!states.store) *written_slots = *read_slots;
}

}  // namespace cubinery::gdn
