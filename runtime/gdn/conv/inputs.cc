// What several kernels take of a convolution: x, taps and states, and whether they lie in vectors.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "runtime/gdn/conv/args.h"
#include "runtime/gdn/conv/parts.h"
#include "runtime/gdn/conv/tables.h"

namespace cubinery::gdn {
namespace {

Status bind_weights(const ConvProblem& problem, const ConvTensors& given, const ConvExtent& extent,
                    ConvInputs* params) {
  const auto& [name, weight] = given.weight;
  const Dim channels{"channels", extent.channels};
  std::array<std::int64_t, 2> strides{};
  CUBINERY_RETURN_IF_ERROR(check_data(name, weight, problem.weight_dtype));
  CUBINERY_RETURN_IF_ERROR(check_shape(name, weight, {channels, {"width", problem.width}},
                                       ExtraDim::kNone, strides.data()));
  params->weight = weight.data;
  params->weight_channel = strides[0];
  params->weight_tap = strides[1];
  params->weight_packed = strides[1] == 1 && strides[0] == problem.width &&
                          reinterpret_cast<std::uintptr_t>(weight.data) % 16 == 0;
  const std::string_view why = conv_tensors::kBias.why_absent(problem);
  if (!why.empty()) return check_absent(given.bias.name, given.bias.x, why);
  return bind_vector(given.bias.name, given.bias.x, problem.weight_dtype, channels, &params->bias);
}

Status bind_state_tensors(const ConvProblem& problem, const ConvTensors& given,
                          const ConvExtent& extent, const StepForm& steps, ConvInputs* params,
                          StateSteps* strides) {
  const States states = common_states(problem.states);
  params->columns = state_columns(problem);
  const auto read = [&](const TensorName& name, const Tensor& x, const Dim& outer,
                        std::int64_t count) {
    params->read = x.data;
    return check_conv_states(
        name, problem, x, outer, count, extent.channels,
        {&params->read_stride, &strides->read_state, &params->read_slots, &params->columns});
  };
  const auto write = [&](const TensorName& name, const Tensor& x, const Dim& outer,
                         std::int64_t count) -> Status {
    const int read_columns = params->columns;
    params->written = x.data;
    CUBINERY_RETURN_IF_ERROR(check_conv_states(name, problem, x, outer, count, extent.channels,
                                               {&params->written_stride, &strides->written_state,
                                                &params->written_slots, &params->columns}));
    CUBINERY_RETURN_IF_ERROR(check_no_overlap(name, x));
    if (!has_long_window(problem) || params->columns == read_columns) return {};
    return invalid(name, fmt::format("has {} columns; accepted: {}, as state has", params->columns,
                                     read_columns));
  };
  CUBINERY_RETURN_IF_ERROR(bind_state_pair(
      states, {given.state.name, given.state_out.name, given.state.x, given.state_out.x},
      extent.sequences_dim(), steps, strides, read, write));
  const std::string_view why = tensors::kState.why_absent(problem);
  if (!why.empty()) {
    CUBINERY_RETURN_IF_ERROR(check_absent(given.state.name, given.state.x, why));
  }
  share_range(states, &params->read_slots, &params->written_slots);
  return {};
}

// An address and strides, in elements, at multiples of such vectors, or of 16 bytes where that is
// less.
bool lies_at_vectors(int elements, DType dtype, const void* data,
                     std::initializer_list<long long> strides) {
  const auto size = static_cast<std::uint64_t>(size_of(dtype));
  std::uint64_t bits = reinterpret_cast<std::uintptr_t>(data);
  for (const long long stride : strides) bits |= static_cast<std::uint64_t>(stride) * size;
  return bits % std::min<std::uint64_t>(16, size * static_cast<unsigned>(elements)) == 0;
}

}  // namespace

Status check_loose_rows(const NamedTensor& tensor, DType dtype, const TokenForm& form,
                        const Dim& heads, const Dim& row, RowStrides* strides) {
  if (!has_usual_tokens(tensor.x, dtype, form, heads.extent, row.extent, strides)) {
    CUBINERY_RETURN_IF_ERROR(
        check_tokens(tensor.name, tensor.x, dtype, form, heads, &row, strides));
  }
  const auto is_one = [&](std::size_t d) {
    return d != TokenForm::kNone && form.dims[d].extent <= 1;
  };
  if (is_one(form.batch)) strides->batch = 0;
  if (is_one(form.token)) strides->token = 0;
  if (heads.extent <= 1) strides->head = 0;
  if (row.extent <= 1) strides->element = row.extent;
  return {};
}

Status check_conv_states(const TensorName& name, const ConvProblem& problem, const Tensor& x,
                         const Dim& outer, std::int64_t steps, std::int64_t channels,
                         const BoundStates& bound) {
  const std::int64_t last = x.rank == 3 ? x.shape[2] : 0, least = state_columns(problem);
  const std::int64_t columns = has_long_window(problem) ? std::max(last, least) : least;
  const StateForm form{.inner = {Dim{"channels", channels}, Dim{"columns", columns}},
                       .rank = 2,
                       .dtype = problem.states.dtype};
  CUBINERY_RETURN_IF_ERROR(check_state_shape(name, x, form, outer, steps));
  CUBINERY_RETURN_IF_ERROR(check_count(name, "columns", columns, kMaxInt));
  const std::size_t inner = steps > 0 ? 2 : 1;
  *bound.stride = {.slot = outer.extent > 1 ? x.strides[0] : 0,
                   .channel = x.strides[inner],
                   .column = columns > 1 ? x.strides[inner + 1] : 1};
  *bound.step = steps > 0 && x.shape[1] > 1 ? x.strides[1] : 0;
  *bound.slots = outer.extent;
  *bound.columns = static_cast<int>(columns);
  return {};
}

Status bind_conv_inputs(const ConvProblem& problem, const ConvTensors& given,
                        const ConvExtent& extent, const StepForm& steps, ConvInputs* inputs,
                        StateSteps* strides) {
  RowStrides x{};
  CUBINERY_RETURN_IF_ERROR(check_loose_rows(given.x, problem.dtype,
                                            without_heads(extent.form(false)), {},
                                            {"channels", extent.channels}, &x));
  inputs->x = {.data = given.x.x.data, .batch = x.batch, .token = x.token, .channel = x.element};
  CUBINERY_RETURN_IF_ERROR(bind_weights(problem, given, extent, inputs));
  return bind_state_tensors(problem, given, extent, steps, inputs, strides);
}

bool rows_in_vectors(int lane_channels, DType dtype, const ConvRows& rows) {
  return rows.channel == 1 &&
         lies_at_vectors(lane_channels, dtype, rows.data, {rows.batch, rows.token});
}

bool states_in_vectors(int lane_channels, const ConvStates& states, const void* data,
                       const ConvStateStrides& stride, long long step, int columns) {
  if (states.layout == ConvStateLayout::kColumns) {
    return stride.column == 1 && stride.channel == columns &&
           lies_at_vectors(lane_channels, states.dtype, data, {stride.slot, step});
  }
  const long long column = columns > 1 ? stride.column : 0;
  return stride.channel == 1 &&
         lies_at_vectors(lane_channels, states.dtype, data, {stride.slot, step, column});
}

bool lies_in_vectors(const GdnConvKey& key, const GdnConvParams& p) {
  const int lane = key.lane_channels;
  bool is_so = p.channels % lane == 0 && rows_in_vectors(lane, key.dtype, p.x);
  for (const ConvOutput& output : p.outputs) {
    is_so &= output.count == 0 ||
             (output.channel == 1 && lies_at_vectors(lane, key.dtype, output.data,
                                                     {output.batch, output.token, output.head}));
  }
  if (has_channel_gates(key.inputs)) {
    const auto add_rows = [&](DType dtype, const void* data, const TokenStrides& stride) {
      is_so &= lies_at_vectors(kGateChannels, dtype, data,
                               {p.sequences > 1 ? stride.batch : 0, p.tokens > 1 ? stride.token : 0,
                                p.heads > 1 ? stride.head : 0});
    };
    add_rows(key.inputs.gate_dtype, p.gates.g.data, p.gates.g.stride);
    add_rows(DType::kF32, p.g.data, p.g.stride);
    add_rows(key.inputs.dt_bias_dtype, p.gates.dt_bias.data, {0, 0, p.gates.dt_bias.stride});
  }
  const auto add_states = [&](const void* data, const ConvStateStrides& stride, long long step) {
    // Columns that counts choose are read element by element.
    if (has_long_window(key) && key.states.layout == ConvStateLayout::kColumns) return;
    is_so &= states_in_vectors(lane, key.states, data, stride, step, p.columns);
  };
  const bool every = stores_every(key);
  if (key.states.has_initial) add_states(p.read, p.read_stride, every ? p.steps.read_state : 0);
  if (key.states.store) add_states(p.written, p.written_stride, every ? p.steps.written_state : 0);
  if (key.checkpoints != Checkpoints::kNone && p.checkpoints.data != nullptr) {
    add_states(p.checkpoints.data, p.checkpoints.stride, 0);
  }
  return is_so;
}

}  // namespace cubinery::gdn
