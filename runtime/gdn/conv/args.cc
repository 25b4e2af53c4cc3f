#include "runtime/gdn/conv/args.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>

#include "runtime/gdn/conv/operator.h"
#include "runtime/gdn/shared/checkpoint_args.h"
#include "runtime/gdn/shared/operator_tensors.h"
#include "runtime/gdn/shared/requests.h"

namespace cubinery::gdn {
namespace {

TokenForm form_of(const ConvProblem& problem, const ConvExtent& extent) {
  return token_form(problem.varlen, extent.sequences, extent.tokens);
}

// Rows of `row` elements, of `heads` where the form has them, that lie as they like.  Nobody steps
// along a dimension of one element: it has stride 0, and elements have stride 1.
Status check_loose_rows(const TensorName& name, const Tensor& x, DType dtype, const TokenForm& form,
                        const ConvExtent& extent, const Dim& heads, const Dim& row,
                        RowStrides* strides) {
  CUBINERY_RETURN_IF_ERROR(check_tokens(name, x, dtype, form, heads, &row, strides));
  if (extent.sequences <= 1) strides->batch = 0;
  if (extent.tokens <= 1) strides->token = 0;
  if (heads.extent <= 1) strides->head = 0;
  if (row.extent <= 1) strides->element = row.extent;
  return {};
}

// `first`: of its channels among those of x.
template <class Spec>
Status bind_output(const Spec& spec, const ConvProblem& problem, const Tensor& x,
                   const ConvArgs& args, const ConvExtent& extent, int first, ConvOutput* output) {
  const TensorName name{kConvOp, spec.info.name};
  const bool has_heads = spec.info.kind == TensorKind::kRows;
  const Dim heads = has_heads ? dim_of(problem, spec.info.axes[2]) : Dim{"", 1};
  const Dim inner =
      has_heads ? dim_of(problem, spec.info.axes[3]) : Dim{"channels", extent.channels};
  const TokenForm form = form_of(problem, extent);
  RowStrides strides{};
  CUBINERY_RETURN_IF_ERROR(check_loose_rows(name, x, spec.type(problem),
                                            has_heads ? form : without_heads(form), extent, heads,
                                            inner, &strides));
  CUBINERY_RETURN_IF_ERROR(check_no_overlap(name, x));
  if (x.data == args.x.data && x.data != nullptr) {
    return invalid(name, "is x; accepted: memory of its own");
  }
  *output = {.data = x.data,
             .batch = strides.batch,
             .token = strides.token,
             .head = strides.head,
             .channel = strides.element,
             .first = first,
             .count = static_cast<int>(heads.extent * inner.extent),
             .dim = static_cast<int>(inner.extent)};
  return {};
}

// y, or q, k and v.
Status bind_outputs(const ConvProblem& problem, const ConvArgs& args, const ConvExtent& extent,
                    GdnConvParams* params) {
  int first = 0;
  ConvOutput* output = params->outputs;
  const auto bind = [&](const auto& spec, const Tensor& x) -> Status {
    if (!is_due(spec, problem, x)) return check_absent(kConvOp, spec, problem, x);
    CUBINERY_RETURN_IF_ERROR(bind_output(spec, problem, x, args, extent, first, output));
    first += output++->count;
    return {};
  };
  if (problem.split_qkv) CUBINERY_RETURN_IF_ERROR(bind(conv_tensors::kY, args.y));
  CUBINERY_RETURN_IF_ERROR(bind(conv_tensors::kQ, args.q));
  CUBINERY_RETURN_IF_ERROR(bind(conv_tensors::kK, args.k));
  CUBINERY_RETURN_IF_ERROR(bind(conv_tensors::kV, args.v));
  return problem.split_qkv ? Status() : bind(conv_tensors::kY, args.y);
}

template <class Spec>
Status bind_gate_output(const Spec& spec, const ConvProblem& problem, const Tensor& x,
                        const TokenForm& form, const Dim& heads, OutputRows<TokenStrides>* rows) {
  if (!is_due(spec, problem, x)) return check_absent(kConvOp, spec, problem, x);
  const TensorName name{kConvOp, spec.info.name};
  RowStrides strides{};
  CUBINERY_RETURN_IF_ERROR(
      check_tokens(name, x, spec.type(problem), form, heads, nullptr, &strides));
  rows->data = x.data;
  set(strides, &rows->stride);
  return check_no_overlap(name, x);
}

// What g and beta are made of, and themselves.
Status bind_gates(const ConvProblem& problem, const ConvArgs& args, const ConvExtent& extent,
                  GdnConvParams* params) {
  const TokenForm form = form_of(problem, extent);
  const Dim heads = dim_of(problem, Axis::kHeads);
  CUBINERY_RETURN_IF_ERROR(
      bind_scalars(kConvOp, conv_tensors::kA, problem, args.a, form, heads, &params->gates.g));
  CUBINERY_RETURN_IF_ERROR(
      bind_vector(kConvOp, conv_tensors::kALog, problem, args.A_log, heads, &params->gates.A_log));
  CUBINERY_RETURN_IF_ERROR(bind_vector(kConvOp, conv_tensors::kDtBias, problem, args.dt_bias, heads,
                                       &params->gates.dt_bias));
  CUBINERY_RETURN_IF_ERROR(
      bind_gate_output(conv_tensors::kG, problem, args.g, form, heads, &params->g));
  CUBINERY_RETURN_IF_ERROR(
      bind_scalars(kConvOp, conv_tensors::kB, problem, args.b, form, heads, &params->gates.beta));
  return bind_gate_output(conv_tensors::kBeta, problem, args.beta, form, heads, &params->beta);
}

Status bind_weights(const ConvNames& names, const ConvProblem& problem, const ConvTensors& given,
                    const ConvExtent& extent, ConvInputs* params) {
  const TensorName &weight = names.weight, &bias = names.bias;
  const Dim channels{"channels", extent.channels};
  std::array<std::int64_t, 2> strides{};
  CUBINERY_RETURN_IF_ERROR(check_data(weight, given.weight, problem.weight_dtype));
  CUBINERY_RETURN_IF_ERROR(check_shape(weight, given.weight, {channels, {"width", problem.width}},
                                       ExtraDim::kNone, strides.data()));
  params->weight = given.weight.data;
  params->weight_channel = strides[0];
  params->weight_tap = strides[1];
  params->weight_packed = strides[1] == 1 && strides[0] == problem.width &&
                          reinterpret_cast<std::uintptr_t>(given.weight.data) % 16 == 0;
  const std::string_view why = conv_tensors::kBias.why_absent(problem);
  if (!why.empty()) return check_absent(bias, given.bias, why);
  return bind_vector(bias, given.bias, problem.weight_dtype, channels, &params->bias);
}

// Steps that are read and written besides the one state that everybody has.
StepForm step_form(const ConvProblem& problem, const ConvExtent& extent) {
  if (!stores_every(problem)) return {};
  // A sequence has one at least, so that there is a dimension.
  const std::int64_t most = problem.varlen ? 1 : std::max<std::int64_t>(extent.tokens, 1);
  return {.read = problem.from_accepted ? 1 : 0, .written = most};
}

// What tensors of states are bound to.
struct BoundStates {
  ConvStateStrides* stride;
  long long* step;  // from one step to the next
  long long* slots;
  int* columns;
};

// State, state_out or checkpoints.  `steps`: as in StepForm.
Status check_states(const TensorName& name, const ConvProblem& problem, const Tensor& x,
                    const Dim& outer, std::int64_t steps, const Dim& channels,
                    const BoundStates& bound) {
  CUBINERY_RETURN_IF_ERROR(check_data(name, x, problem.states.dtype));
  const std::int64_t last = x.rank == 3 ? x.shape[2] : 0;
  const std::int64_t least = state_columns(problem);
  std::array<std::int64_t, 4> strides{};
  std::array<Dim, 4> dims{outer, steps_of(x, steps)};
  const std::size_t inner = steps > 0 ? 2 : 1;
  const Dim columns{"columns", has_long_window(problem) ? std::max(last, least) : least};
  dims[inner] = channels;
  dims[inner + 1] = columns;
  CUBINERY_RETURN_IF_ERROR(
      check_shape(name, x, std::span(dims.data(), inner + 2), ExtraDim::kNone, strides.data()));
  CUBINERY_RETURN_IF_ERROR(check_count(name, "columns", columns.extent, kMaxInt));
  *bound.stride = {.slot = outer.extent > 1 ? strides[0] : 0,
                   .channel = strides[inner],
                   .column = columns.extent > 1 ? strides[inner + 1] : 1};
  *bound.step = steps > 0 && dims[1].extent > 1 ? strides[1] : 0;
  *bound.slots = outer.extent;
  *bound.columns = static_cast<int>(columns.extent);
  return {};
}

Status bind_state_tensors(const ConvNames& names, const ConvProblem& problem,
                          const ConvTensors& given, const ConvExtent& extent, const StepForm& steps,
                          ConvInputs* params, StateSteps* strides) {
  const States states = common_states(problem.states);
  const Dim channels{"channels", extent.channels};
  params->columns = state_columns(problem);
  const auto read = [&](const TensorName& name, const Tensor& x, const Dim& outer,
                        std::int64_t count) {
    params->read = x.data;
    return check_states(
        name, problem, x, outer, count, channels,
        {&params->read_stride, &strides->read_state, &params->read_slots, &params->columns});
  };
  const auto write = [&](const TensorName& name, const Tensor& x, const Dim& outer,
                         std::int64_t count) -> Status {
    const int read_columns = params->columns;
    params->written = x.data;
    CUBINERY_RETURN_IF_ERROR(check_states(name, problem, x, outer, count, channels,
                                          {&params->written_stride, &strides->written_state,
                                           &params->written_slots, &params->columns}));
    CUBINERY_RETURN_IF_ERROR(check_no_overlap(name, x));
    if (!has_long_window(problem) || params->columns == read_columns) return {};
    return invalid(name, fmt::format("has {} columns; accepted: {}, as state has", params->columns,
                                     read_columns));
  };
  CUBINERY_RETURN_IF_ERROR(
      bind_state_pair(states, {names.state, names.state_out, given.state, given.state_out},
                      requests_dim(problem.varlen, extent.sequences), steps, strides, read, write));
  const std::string_view why = tensors::kState.why_absent(problem);
  if (!why.empty()) CUBINERY_RETURN_IF_ERROR(check_absent(names.state, given.state, why));
  share_range(states, &params->read_slots, &params->written_slots);
  return {};
}

// How many tokens a sequence may have whose steps are kept: as many as there are places for.
int most_steps(const ConvProblem& problem, const ConvArgs& args) {
  const bool pool = problem.states.location == StateLocation::kPool;
  const Tensor& own = pool ? args.state_out_indices : args.state_out;
  const Tensor& places = own.present() ? own : pool ? args.state_indices : args.state;
  return static_cast<int>(std::min<std::int64_t>(places.shape[1], kMaxVerifyTokens));
}

Status bind_kept(const ConvProblem& problem, const ConvArgs& args, const ConvExtent& extent,
                 GdnConvParams* params) {
  const TensorName name{kConvOp, conv_tensors::kCheckpoints.info.name};
  params->checkpoint_every = problem.checkpoint_every;
  const auto bind_tensor = [&](const Dim& rows) -> Status {
    long long no_step = 0;
    params->checkpoints.data = args.checkpoints.data;
    CUBINERY_RETURN_IF_ERROR(check_states(
        name, problem, args.checkpoints, rows, 0, {"channels", extent.channels},
        {&params->checkpoints.stride, &no_step, &params->checkpoints.slots, &params->columns}));
    return check_no_overlap(name, args.checkpoints);
  };
  return bind_checkpoints(kConvOp, problem, args, extent.sequences, extent.tokens, bind_tensor,
                          &params->checkpoint_cu_starts);
}

Status bind_places(const ConvProblem& problem, const ConvArgs& args, const ConvExtent& extent,
                   const StepForm& steps, GdnConvParams* params) {
  const Dim sequences = requests_dim(problem.varlen, extent.sequences);
  StateParams slots{};
  CUBINERY_RETURN_IF_ERROR(bind_slots(kConvOp, common_states(problem.states), states_of(args),
                                      sequences, steps, &slots, &params->steps));
  if (stores_every(problem)) params->draft_tokens = most_steps(problem, args);
  params->read_indices = slots.read_indices;
  params->write_indices = slots.write_indices;
  params->scratch_slot = args.scratch_slot;
  CUBINERY_RETURN_IF_ERROR(check_scratch(kConvOp, problem.states.padding, args.scratch_slot,
                                         std::min(params->read_slots, params->written_slots)));
  CUBINERY_RETURN_IF_ERROR(bind_vector(kConvOp, conv_tensors::kHasInitialState, problem,
                                       args.has_initial_state, sequences, &params->has_initial));
  return bind_vector(kConvOp, tensors::kAccepted, problem, args.accepted, sequences,
                     &params->accepted);
}

Status bind_conv_scale(const ConvProblem& problem, float scale, GdnConvParams* params) {
  const TensorName name{kConvOp, "scale"};
  params->scale = scale;
  if (!std::isfinite(scale)) {
    return invalid(name, fmt::format("is {}; accepted: a finite number", scale));
  }
  if (problem.split_qkv || scale == 1) return {};
  return invalid(name, fmt::format("is {}; accepted: 1, split_qkv is false", scale));
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

Status conv_extent(const ConvProblem& problem, const ConvArgs& args, ConvExtent* extent) {
  const TensorName x{kConvOp, "x"};
  CUBINERY_RETURN_IF_ERROR(check_data(x, args.x, problem.dtype));
  const int rank = args.x.rank;
  if (problem.varlen) {
    if (rank != 2 && rank != 3) return wrong_rank(x, rank, "2, or 3 with B = 1");
    CUBINERY_RETURN_IF_ERROR(check_bounds(kConvOp, args.cu_seqlens, problem.cu_seqlens_dtype));
    extent->sequences = requests_of(args.cu_seqlens);
  } else {
    if (rank != 3) return wrong_rank(x, rank, "3");
    extent->sequences = args.x.shape[0];
    CUBINERY_RETURN_IF_ERROR(check_count(x, "B", extent->sequences, kMaxInt));
  }
  const auto last = static_cast<std::size_t>(rank) - 1;
  extent->tokens = args.x.shape[last - 1];
  extent->channels = args.x.shape[last];
  const std::string_view dim = problem.varlen ? "total" : "T";
  // NOTE: with steps a sequence's number times the tokens that each has fits in an int.
  std::int64_t most = kMaxInt;
  if (stores_every(problem)) most = problem.varlen ? kMaxInt - extent->sequences : kMaxVerifyTokens;
  CUBINERY_RETURN_IF_ERROR(check_count(x, dim, extent->tokens, most));
  CUBINERY_RETURN_IF_ERROR(check_count(x, "channels", extent->channels, kMaxChannels));
  const std::int64_t split = problem.split_qkv ? split_channels(problem) : extent->channels;
  if (extent->channels == split) return {};
  return invalid(x, fmt::format("has {} channels; accepted: {}, those of q, k and v",
                                extent->channels, split));
}

Status bind_conv_inputs(const ConvNames& names, const ConvProblem& problem,
                        const ConvTensors& given, const ConvExtent& extent, const StepForm& steps,
                        ConvInputs* inputs, StateSteps* strides) {
  RowStrides x{};
  CUBINERY_RETURN_IF_ERROR(check_loose_rows(names.x, given.x, problem.dtype,
                                            without_heads(form_of(problem, extent)), extent, {},
                                            {"channels", extent.channels}, &x));
  inputs->x = {.data = given.x.data, .batch = x.batch, .token = x.token, .channel = x.element};
  CUBINERY_RETURN_IF_ERROR(bind_weights(names, problem, given, extent, inputs));
  return bind_state_tensors(names, problem, given, extent, steps, inputs, strides);
}

Status bind_conv(const ConvProblem& problem, const ConvArgs& args, const ConvExtent& extent,
                 GdnConvParams* params) {
  constexpr ConvNames kNames{.x = {kConvOp, tensors::kX.info.name},
                             .weight = {kConvOp, conv_tensors::kWeight.info.name},
                             .bias = {kConvOp, conv_tensors::kBias.info.name},
                             .state = {kConvOp, conv_tensors::kState.info.name},
                             .state_out = {kConvOp, conv_tensors::kStateOut.info.name}};
  const ConvTensors given{.x = args.x,
                          .weight = args.weight,
                          .bias = args.bias,
                          .state = args.state,
                          .state_out = args.state_out};
  const StepForm steps = step_form(problem, extent);
  CUBINERY_RETURN_IF_ERROR(
      bind_conv_inputs(kNames, problem, given, extent, steps, params, &params->steps));
  CUBINERY_RETURN_IF_ERROR(bind_outputs(problem, args, extent, params));
  CUBINERY_RETURN_IF_ERROR(bind_gates(problem, args, extent, params));
  CUBINERY_RETURN_IF_ERROR(
      bind_bounds(kConvOp, problem, args.cu_seqlens, extent.sequences, &params->cu_seqlens));
  CUBINERY_RETURN_IF_ERROR(bind_places(problem, args, extent, steps, params));
  CUBINERY_RETURN_IF_ERROR(bind_kept(problem, args, extent, params));
  CUBINERY_RETURN_IF_ERROR(bind_conv_scale(problem, args.scale, params));
  params->channels = static_cast<int>(extent.channels);
  params->sequences = static_cast<int>(extent.sequences);
  params->tokens = extent.tokens;
  params->heads = problem.heads.count();
  params->norm_heads = norm_heads(problem);
  return {};
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
  const auto add_states = [&](const void* data, const ConvStateStrides& stride, long long step) {
    // Columns that counts choose are read element by element.
    if (has_long_window(key) && key.states.layout == ConvStateLayout::kColumns) return;
    is_so &= states_in_vectors(lane, key.states, data, stride, step, p.columns);
  };
  if (key.states.has_initial) add_states(p.read, p.read_stride, p.steps.read_state);
  if (key.states.store) add_states(p.written, p.written_stride, p.steps.written_state);
  if (key.checkpoints != Checkpoints::kNone) {
    add_states(p.checkpoints.data, p.checkpoints.stride, 0);
  }
  return is_so;
}

}  // namespace cubinery::gdn
