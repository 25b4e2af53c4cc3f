#include "runtime/gdn/conv/args.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/gdn/conv/operator.h"
#include "runtime/gdn/shared/checkpoint_args.h"

namespace cubinery::gdn {
namespace {

using ConvBinder = Binder<ConvArgs>;

// y, or q, k and v, one after the other: `next` is the output, whose channels follow `first` of x.
struct NextOutput {
  ConvOutput* next;
  int first = 0;
};
template <TensorId kId>
Status bind_output(const ConvBinder& bind, const ConvExtent& extent, NextOutput* outputs) {
  if (!bind.is_due<kId>()) return bind.check_absent<kId>();
  constexpr const TensorInfo& kInfo = ConvBinder::kInfo<kId>;
  constexpr bool kHasHeads = kInfo.kind == TensorKind::kRows;
  const NamedTensor tensor = bind.named<kId>();
  const Dim heads = kHasHeads ? bind.dim(kInfo.axes[2]) : Dim{"", 1};
  const Dim inner = kHasHeads ? bind.dim(kInfo.axes[3]) : Dim{"channels", extent.channels};
  const TokenForm form = kHasHeads ? bind.form() : without_heads(bind.form());
  RowStrides strides{};
  CUBINERY_RETURN_IF_ERROR(
      check_loose_rows(tensor, bind.type<kId>(), form, heads, inner, &strides));
  CUBINERY_RETURN_IF_ERROR(check_no_overlap(tensor.name, tensor.x));
  if (tensor.x.data == bind.args().x.data && tensor.x.data != nullptr) {
    return invalid(tensor.name, "is x; accepted: memory of its own");
  }
  *outputs->next = {.data = tensor.x.data,
                    .batch = strides.batch,
                    .token = strides.token,
                    .head = strides.head,
                    .channel = strides.element,
                    .first = outputs->first,
                    .count = static_cast<int>(heads.extent * inner.extent),
                    .dim = static_cast<int>(inner.extent)};
  outputs->first += outputs->next++->count;
  return {};
}

// y, or q, k and v; what g and beta are made of, and themselves.
Status bind_tokens(const ConvBinder& bind, const ConvExtent& extent, GdnConvParams* params) {
  NextOutput outputs{params->outputs};
  CUBINERY_RETURN_IF_ERROR(bind_output<TensorId::kQ>(bind, extent, &outputs));
  CUBINERY_RETURN_IF_ERROR(bind_output<TensorId::kK>(bind, extent, &outputs));
  CUBINERY_RETURN_IF_ERROR(bind_output<TensorId::kV>(bind, extent, &outputs));
  CUBINERY_RETURN_IF_ERROR(bind_output<TensorId::kY>(bind, extent, &outputs));
  CUBINERY_RETURN_IF_ERROR((bind.gates<TensorId::kA, TensorId::kB>(&params->gates)));
  CUBINERY_RETURN_IF_ERROR(bind.lower_bound(&params->lower_bound));
  CUBINERY_RETURN_IF_ERROR(bind.outputs<TensorId::kG>(&params->g));
  return bind.outputs<TensorId::kBeta>(&params->beta);
}

// How many tokens a sequence may have whose steps are kept: as many as there are places for.
int most_steps(const ConvProblem& problem, const ConvArgs& args) {
  const bool pool = problem.states.location == StateLocation::kPool;
  const Tensor& own = pool ? args.state_out_indices : args.state_out;
  const Tensor& places = own.present() ? own : pool ? args.state_indices : args.state;
  return static_cast<int>(std::min<std::int64_t>(places.shape[1], kMaxVerifyTokens));
}

// Which states sequences have, and checkpoints.
Status bind_places(const ConvBinder& bind, const ConvExtent& extent, const StepForm& steps,
                   GdnConvParams* params) {
  const ConvProblem& problem = bind.problem();
  const ConvArgs& args = bind.args();
  const States states = common_states(problem.states);
  const StateBinder binder{.op = kConvOp,
                           .states = states,
                           .args = states_of(args),
                           .sequences = bind.sequences(),
                           .steps = steps};
  StateParams slots{};
  CUBINERY_RETURN_IF_ERROR(binder.slots(&slots, &params->steps));
  if (stores_every(problem)) params->draft_tokens = most_steps(problem, args);
  params->read_indices = slots.read_indices;
  params->write_indices = slots.write_indices;
  CUBINERY_RETURN_IF_ERROR(
      binder.padding(std::min(params->read_slots, params->written_slots), &params->padding));
  CUBINERY_RETURN_IF_ERROR(bind.vector<TensorId::kHasInitialState>(&params->has_initial));
  CUBINERY_RETURN_IF_ERROR(bind.vector<TensorId::kAccepted>(&params->accepted));
  CUBINERY_RETURN_IF_ERROR(bind.vector<TensorId::kCacheSeqlens>(&params->accepted));
  CUBINERY_RETURN_IF_ERROR((bind.check_absent<TensorId::kStateOut, TensorId::kStateOutIndices>()));
  const auto bind_tensor = [&](const Dim& rows) -> Status {
    const auto [name, checkpoints] = bind.named<TensorId::kCheckpoints>();
    auto& [data, stride, kept] = params->checkpoints;
    long long no_step = 0;
    data = checkpoints.data;
    CUBINERY_RETURN_IF_ERROR(check_conv_states(name, problem, checkpoints, rows, 0, extent.channels,
                                               {&stride, &no_step, &kept, &params->columns}));
    return check_no_overlap(name, checkpoints);
  };
  return bind_checkpoints(bind, extent, bind_tensor, true, params);
}

Status bind_conv_scale(const ConvProblem& problem, float scale, GdnConvParams* params) {
  params->scale = scale;
  CUBINERY_RETURN_IF_ERROR(bind_scale(kConvOp, scale, problem.key_dim, &params->scale));
  if (problem.split_qkv || scale == 1) return {};
  return invalid({kConvOp, "scale"}, fmt::format("is {}; accepted: 1, split_qkv is false", scale));
}

}  // namespace

Status conv_extent(const ConvProblem& problem, const ConvArgs& args, ConvExtent* extent) {
  const TensorName x{kConvOp, tensors::kX.info.name};
  // NOTE: with steps a sequence's number times the tokens that each has fits in an int.
  const auto most_tokens = [&](std::int64_t sequences) -> std::int64_t {
    if (!stores_every(problem)) return kMaxInt;
    return problem.varlen ? kMaxInt - sequences : kMaxVerifyTokens;
  };
  CUBINERY_RETURN_IF_ERROR(find_extent(problem, args, kMaxInt, most_tokens, extent));
  extent->channels = args.x.shape[static_cast<std::size_t>(args.x.rank) - 1];
  CUBINERY_RETURN_IF_ERROR(check_count(x, "channels", extent->channels, kMaxChannels));
  const std::int64_t split = problem.split_qkv ? split_channels(problem) : extent->channels;
  if (extent->channels == split) return {};
  return invalid(x, fmt::format("has {} channels; accepted: {}, those of q, k and v",
                                extent->channels, split));
}

Status bind_conv(const ConvProblem& problem, const ConvArgs& args, const ConvExtent& extent,
                 GdnConvParams* params) {
  const ConvBinder bind(problem, args, extent);
  const ConvTensors given{.x = bind.named<TensorId::kX>(),
                          .weight = bind.named<TensorId::kConvWeight>(),
                          .bias = bind.named<TensorId::kConvBias>(),
                          .state = bind.named<TensorId::kState>(),
                          .state_out = bind.named<TensorId::kStateOut>()};
  StepForm steps;
  if (stores_every(problem)) {
    steps = step_form(true, problem.from_accepted, problem.varlen ? 1 : extent.tokens);
  }
  CUBINERY_RETURN_IF_ERROR(bind_conv_inputs(problem, given, extent, steps, params, &params->steps));
  CUBINERY_RETURN_IF_ERROR(bind_tokens(bind, extent, params));
  CUBINERY_RETURN_IF_ERROR(bind.vector<TensorId::kCuSeqlens>(&params->cu_seqlens));
  CUBINERY_RETURN_IF_ERROR(bind_places(bind, extent, steps, params));
  CUBINERY_RETURN_IF_ERROR(bind_conv_scale(problem, args.scale, params));
  params->channels = static_cast<int>(extent.channels);
  params->sequences = static_cast<int>(extent.sequences);
  params->tokens = extent.tokens;
  params->heads = problem.heads.count();
  params->norm_heads = norm_heads(problem);
  return {};
}

}  // namespace cubinery::gdn
