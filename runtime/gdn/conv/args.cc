#include "runtime/gdn/conv/args.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>

#include "runtime/gdn/conv/operator.h"
#include "runtime/gdn/shared/args_binding.h"
#include "runtime/gdn/shared/checkpoint_args.h"
#include "runtime/gdn/shared/requests.h"

namespace cubinery::gdn {
namespace {

// A tensor of tokens, its other dimensions behind those; the strides of all four that there may be.
struct TokenTensor {
  std::int64_t batch = 0, token = 0, outer = 0, inner = 0;
};

Status check_tokens(const TensorName& name, const Tensor& x, DType dtype, bool varlen,
                    const ConvExtent& extent, std::initializer_list<Dim> rest,
                    TokenTensor* strides) {
  CUBINERY_RETURN_IF_ERROR(check_data(name, x, dtype));
  std::array<Dim, 4> dims{};
  std::array<std::int64_t, 4> found{};
  std::size_t rank = 0;
  if (!varlen) dims[rank++] = requests_dim(varlen, extent.sequences);
  dims[rank++] = tokens_dim(varlen, extent.tokens);
  const std::size_t own = rank;
  for (const Dim& dim : rest) dims[rank++] = dim;
  CUBINERY_RETURN_IF_ERROR(check_shape(name, x, std::span(dims.data(), rank),
                                       varlen ? ExtraDim::kFirst : ExtraDim::kNone, found.data()));
  // Nobody steps along a dimension of one element.
  for (std::size_t d = 0; d < rank; ++d) {
    if (dims[d].extent <= 1) found[d] = 0;
  }
  *strides = {.batch = varlen ? 0 : found[0],
              .token = found[own - 1],
              .outer = rest.size() == 2 ? found[own] : 0,
              .inner = dims[rank - 1].extent == 1 ? 1 : found[rank - 1]};
  return {};
}

Status bind_output(std::string_view name, const ConvProblem& problem, const Tensor& x,
                   const ConvArgs& args, const ConvExtent& extent, std::initializer_list<Dim> rest,
                   int first, ConvOutput* output) {
  const TensorName named{kConvOp, name};
  TokenTensor strides;
  CUBINERY_RETURN_IF_ERROR(
      check_tokens(named, x, problem.dtype, problem.varlen, extent, rest, &strides));
  CUBINERY_RETURN_IF_ERROR(check_no_overlap(named, x));
  if (x.data == args.x.data && x.data != nullptr) {
    return invalid(named, "is x; accepted: memory of its own");
  }
  const Dim& inner = *(rest.end() - 1);
  const auto count =
      static_cast<int>(rest.size() == 2 ? rest.begin()->extent * inner.extent : inner.extent);
  *output = {.data = x.data,
             .batch = strides.batch,
             .token = strides.token,
             .head = strides.outer,
             .channel = strides.inner,
             .first = first,
             .count = count,
             .dim = static_cast<int>(inner.extent)};
  return {};
}

Status bind_outputs(const ConvProblem& problem, const ConvArgs& args, const ConvExtent& extent,
                    GdnConvParams* params) {
  if (!problem.split_qkv) {
    constexpr std::string_view kWhy = "split_qkv is false";
    CUBINERY_RETURN_IF_ERROR(check_absent({kConvOp, "q"}, args.q, kWhy));
    CUBINERY_RETURN_IF_ERROR(check_absent({kConvOp, "k"}, args.k, kWhy));
    CUBINERY_RETURN_IF_ERROR(check_absent({kConvOp, "v"}, args.v, kWhy));
    return bind_output("y", problem, args.y, args, extent, {{"channels", extent.channels}}, 0,
                       &params->outputs[0]);
  }
  CUBINERY_RETURN_IF_ERROR(check_absent({kConvOp, "y"}, args.y, "split_qkv is true"));
  const Dim key_dim{"key_dim", problem.key_dim}, value_dim{"value_dim", problem.value_dim};
  const Heads& heads = problem.heads;
  CUBINERY_RETURN_IF_ERROR(bind_output("q", problem, args.q, args, extent,
                                       {{"q_heads", heads.q}, key_dim}, 0, &params->outputs[0]));
  const int k_first = params->outputs[0].count;
  CUBINERY_RETURN_IF_ERROR(bind_output("k", problem, args.k, args, extent,
                                       {{"k_heads", heads.k}, key_dim}, k_first,
                                       &params->outputs[1]));
  const int v_first = k_first + params->outputs[1].count;
  return bind_output("v", problem, args.v, args, extent, {{"v_heads", heads.v}, value_dim}, v_first,
                     &params->outputs[2]);
}

Status bind_gate_output(std::string_view name, const ConvProblem& problem, const Tensor& x,
                        const ConvExtent& extent, OutputRows<TokenStrides>* rows) {
  TokenTensor strides;
  CUBINERY_RETURN_IF_ERROR(check_tokens({kConvOp, name}, x, DType::kF32, problem.varlen, extent,
                                        {{"heads", problem.heads.count()}}, &strides));
  CUBINERY_RETURN_IF_ERROR(check_no_overlap({kConvOp, name}, x));
  *rows = {.data = x.data,
           .stride = {.batch = strides.batch, .token = strides.token, .head = strides.inner}};
  return {};
}

Status bind_gate_input(std::string_view name, const ConvProblem& problem, const Tensor& x,
                       DType dtype, const ConvExtent& extent, Scalars<TokenStrides>* scalars) {
  TokenTensor strides;
  CUBINERY_RETURN_IF_ERROR(check_tokens({kConvOp, name}, x, dtype, problem.varlen, extent,
                                        {{"heads", problem.heads.count()}}, &strides));
  *scalars = {.data = x.data,
              .stride = {.batch = strides.batch, .token = strides.token, .head = strides.inner}};
  return {};
}

Status bind_g(const ConvProblem& problem, const ConvArgs& args, const ConvExtent& extent,
              GdnConvParams* params) {
  if (!writes_g(problem)) {
    constexpr std::string_view kWhy = "gate_mode is none";
    CUBINERY_RETURN_IF_ERROR(check_absent({kConvOp, "a"}, args.a, kWhy));
    CUBINERY_RETURN_IF_ERROR(check_absent({kConvOp, "A_log"}, args.A_log, kWhy));
    CUBINERY_RETURN_IF_ERROR(check_absent({kConvOp, "dt_bias"}, args.dt_bias, kWhy));
    return check_absent({kConvOp, "g"}, args.g, kWhy);
  }
  const Dim heads{"heads", problem.heads.count()};
  const Inputs& inputs = problem.inputs;
  CUBINERY_RETURN_IF_ERROR(
      bind_gate_input("a", problem, args.a, inputs.gate_dtype, extent, &params->gates.g));
  CUBINERY_RETURN_IF_ERROR(
      bind_vector({kConvOp, "A_log"}, args.A_log, inputs.a_log_dtype, heads, &params->gates.A_log));
  CUBINERY_RETURN_IF_ERROR(bind_vector({kConvOp, "dt_bias"}, args.dt_bias, inputs.dt_bias_dtype,
                                       heads, &params->gates.dt_bias));
  return bind_gate_output("g", problem, args.g, extent, &params->g);
}

Status bind_beta(const ConvProblem& problem, const ConvArgs& args, const ConvExtent& extent,
                 GdnConvParams* params) {
  if (!writes_beta(problem)) {
    constexpr std::string_view kWhy = "beta_mode is one";
    CUBINERY_RETURN_IF_ERROR(check_absent({kConvOp, "b"}, args.b, kWhy));
    return check_absent({kConvOp, "beta"}, args.beta, kWhy);
  }
  CUBINERY_RETURN_IF_ERROR(bind_gate_input("b", problem, args.b, problem.inputs.beta_dtype, extent,
                                           &params->gates.beta));
  return bind_gate_output("beta", problem, args.beta, extent, &params->beta);
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
  if (!problem.has_bias) return check_absent(bias, given.bias, "has_bias is false");
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
                          const ConvTensors& given, const ConvExtent& extent, StepForm steps,
                          ConvInputs* params, StateSteps* strides) {
  const ConvStates& states = problem.states;
  const TensorName &state = names.state, &state_out = names.state_out;
  const bool pool = states.location == StateLocation::kPool;
  const Dim channels{"channels", extent.channels};
  const auto outer = [&](const Tensor& x) {
    return pool ? Dim{"slots", std::max<std::int64_t>(x.shape[0], 0)}
                : requests_dim(problem.varlen, extent.sequences);
  };
  if (pool) steps = {};
  params->columns = state_columns(problem);
  if (states.has_initial) {
    const Tensor& read = given.state;
    params->read = read.data;
    CUBINERY_RETURN_IF_ERROR(check_states(
        state, problem, read, outer(read), steps.read, channels,
        {&params->read_stride, &strides->read_state, &params->read_slots, &params->columns}));
    if (steps.read > 0) strides->readable = readable_steps(read);
  }
  if (states.store) {
    const bool in_place = !given.state_out.present();
    if (in_place) CUBINERY_RETURN_IF_ERROR(steps_in_place(state_out, steps, &steps.written));
    const Tensor& written = in_place ? given.state : given.state_out;
    const TensorName& name = in_place ? state : state_out;
    const int read_columns = params->columns;
    params->written = written.data;
    CUBINERY_RETURN_IF_ERROR(check_states(name, problem, written, outer(written), steps.written,
                                          channels,
                                          {&params->written_stride, &strides->written_state,
                                           &params->written_slots, &params->columns}));
    CUBINERY_RETURN_IF_ERROR(check_no_overlap(name, written));
    if (has_long_window(problem) && params->columns != read_columns) {
      return invalid(name, fmt::format("has {} columns; accepted: {}, as state has",
                                       params->columns, read_columns));
    }
  } else {
    CUBINERY_RETURN_IF_ERROR(check_absent(state_out, given.state_out, "store_state is false"));
    if (!states.has_initial) {
      CUBINERY_RETURN_IF_ERROR(
          check_absent(state, given.state, "has_initial_state and store_state are false"));
    }
  }
  share_range(common_states(states), &params->read_slots, &params->written_slots);
  return {};
}

// How many tokens a sequence may have whose steps are kept: as many as there are places for.
int most_steps(const ConvProblem& problem, const StateArgs& states) {
  const bool pool = problem.states.location == StateLocation::kPool;
  const Tensor& own = pool ? states.out_indices : states.out;
  const Tensor& places = own.present() ? own : pool ? states.indices : states.in;
  return static_cast<int>(std::min<std::int64_t>(places.shape[1], kMaxVerifyTokens));
}

Status bind_kept(const ConvProblem& problem, const ConvArgs& args, const ConvExtent& extent,
                 GdnConvParams* params) {
  const TensorName name{kConvOp, "checkpoints"};
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
  CUBINERY_RETURN_IF_ERROR(bind_slots(kConvOp, common_states(problem.states), args.states,
                                      sequences, steps, &slots, &params->steps));
  if (stores_every(problem)) params->max_tokens = most_steps(problem, args.states);
  params->read_indices = slots.read_indices;
  params->write_indices = slots.write_indices;
  params->scratch_slot = args.states.scratch_slot;
  CUBINERY_RETURN_IF_ERROR(check_scratch(kConvOp, problem.states.padding, args.states.scratch_slot,
                                         std::min(params->read_slots, params->written_slots)));
  const TensorName flags{kConvOp, "has_initial_state"}, accepted{kConvOp, "accepted"};
  if (!problem.states.has_initial) {
    CUBINERY_RETURN_IF_ERROR(
        check_absent(flags, args.has_initial_state, "the problem's has_initial_state is false"));
  } else if (args.has_initial_state.present()) {
    CUBINERY_RETURN_IF_ERROR(
        bind_vector(flags, args.has_initial_state, DType::kBool, sequences, &params->has_initial));
  }
  if (!problem.from_accepted) {
    return check_absent(accepted, args.accepted, "from_accepted is false");
  }
  return bind_vector(accepted, args.accepted, problem.accepted_dtype, sequences, &params->accepted);
}

Status bind_scale(const ConvProblem& problem, float scale, GdnConvParams* params) {
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
  TokenTensor x;
  CUBINERY_RETURN_IF_ERROR(check_tokens(names.x, given.x, problem.dtype, problem.varlen, extent,
                                        {{"channels", extent.channels}}, &x));
  inputs->x = {.data = given.x.data, .batch = x.batch, .token = x.token, .channel = x.inner};
  CUBINERY_RETURN_IF_ERROR(bind_weights(names, problem, given, extent, inputs));
  return bind_state_tensors(names, problem, given, extent, steps, inputs, strides);
}

Status bind_conv(const ConvProblem& problem, const ConvArgs& args, const ConvExtent& extent,
                 GdnConvParams* params) {
  constexpr ConvNames kNames{.x = {kConvOp, "x"},
                             .weight = {kConvOp, "weight"},
                             .bias = {kConvOp, "bias"},
                             .state = {kConvOp, "state"},
                             .state_out = {kConvOp, "state_out"}};
  const ConvTensors given{.x = args.x,
                          .weight = args.weight,
                          .bias = args.bias,
                          .state = args.states.in,
                          .state_out = args.states.out};
  const StepForm steps = step_form(problem, extent);
  CUBINERY_RETURN_IF_ERROR(
      bind_conv_inputs(kNames, problem, given, extent, steps, params, &params->steps));
  CUBINERY_RETURN_IF_ERROR(bind_outputs(problem, args, extent, params));
  CUBINERY_RETURN_IF_ERROR(bind_g(problem, args, extent, params));
  CUBINERY_RETURN_IF_ERROR(bind_beta(problem, args, extent, params));
  CUBINERY_RETURN_IF_ERROR(
      bind_bounds(kConvOp, problem, args.cu_seqlens, extent.sequences, &params->cu_seqlens));
  CUBINERY_RETURN_IF_ERROR(bind_places(problem, args, extent, steps, params));
  CUBINERY_RETURN_IF_ERROR(bind_kept(problem, args, extent, params));
  CUBINERY_RETURN_IF_ERROR(bind_scale(problem, args.scale, params));
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
