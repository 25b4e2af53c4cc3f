#include "runtime/gdn/decode/args.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/gdn/conv/args.h"
#include "runtime/gdn/conv/operator.h"
#include "runtime/gdn/decode/operator.h"
#include "runtime/gdn/shared/bind_norm.h"
#include "runtime/gdn/shared/bind_states.h"
#include "runtime/gdn/shared/binder.h"

namespace cubinery::gdn {
namespace {

using DecodeBinder = Binder<DecodeArgs>;

// Rows and states in vectors of kConvChannels.
Status check_vectors(const ConvTensors& given, const ConvProblem& problem,
                     const ConvInputs& inputs) {
  constexpr std::string_view kGaps = "all else at multiples of 4 elements";
  if (!rows_in_vectors(kConvChannels, problem.dtype, inputs.x)) {
    return invalid(given.x.name,
                   fmt::format("does not lie in vectors; accepted: channels next to each "
                               "other, {}",
                               kGaps));
  }
  const auto check = [&](const TensorName& name, const void* data, const ConvStateStrides& stride) {
    if (states_in_vectors(kConvChannels, problem.states, data, stride, 0, inputs.columns)) {
      return Status();
    }
    const bool columns = problem.states.layout == ConvStateLayout::kColumns;
    return invalid(name, fmt::format("does not lie in vectors; accepted: {}, {}",
                                     columns ? "[channels, columns] without gaps"
                                             : "channels next to each other",
                                     kGaps));
  };
  if (problem.states.has_initial) {
    CUBINERY_RETURN_IF_ERROR(check(given.state.name, inputs.read, inputs.read_stride));
  }
  if (!problem.states.store) return {};
  const bool in_place = inputs.written == inputs.read;
  return check((in_place ? given.state : given.state_out).name, inputs.written,
               inputs.written_stride);
}

// q, k and v come from x.
Status bind_conv(const DecodeBinder& bind, GdnDecodeParams* params) {
  const DecodeProblem& problem = bind.problem();
  const ConvProblem conv = conv_in_front(problem);
  const Tensor x = with_one_token(bind.args().x);
  const ConvTensors given{.x = {DecodeBinder::kName<TensorId::kX>, x},
                          .weight = bind.named<TensorId::kConvWeight>(),
                          .bias = bind.named<TensorId::kConvBias>(),
                          .state = bind.named<TensorId::kConvState>(),
                          .state_out = bind.named<TensorId::kConvStateOut>()};
  ConvExtent extent;
  extent.sequences = bind.sequences().extent;
  extent.tokens = 1;
  extent.channels = split_channels(conv);
  StateSteps no_steps{};
  CUBINERY_RETURN_IF_ERROR(bind_conv_inputs(conv, given, extent, {}, &params->conv, &no_steps));
  CUBINERY_RETURN_IF_ERROR(check_vectors(given, conv, params->conv));
  const Heads& heads = problem.heads;
  params->q.group = heads.count() / heads.q;
  params->k.group = heads.count() / heads.k;
  params->v.group = heads.count() / heads.v;
  params->k_first = static_cast<int>(conv_split(conv).k);
  params->v_first = static_cast<int>(conv_split(conv).v);
  return {};
}

// One index names a slot of both kinds of states.
std::int64_t share_slots(GdnDecodeParams* params) {
  long long& read = params->states.read.slots;
  long long& written = params->states.written.slots;
  read = std::min(read, params->conv.read_slots);
  written = std::min(written, params->conv.written_slots);
  return std::min(read, written);
}

}  // namespace

Tensor with_one_token(Tensor x) {
  if (x.rank != 2) return x;
  x.rank = 3;
  x.shape[2] = x.shape[1];
  x.strides[2] = x.strides[1];
  x.shape[1] = 1;
  return x;
}

Status bind_decode(const DecodeProblem& problem, const DecodeArgs& args, std::int64_t batch,
                   GdnDecodeParams* params) {
  const Dim requests{"B", batch};
  const TokenForm form{
      .dims = {requests}, .rank = 2, .batch = 0, .head = 1, .extra = ExtraDim::kSecond};
  const DecodeBinder bind(problem, args, form, requests);
  const bool convolves = problem.conv.is_there();
  params->heads = problem.heads.count();
  CUBINERY_RETURN_IF_ERROR(
      (bind.check_absent<TensorId::kX, TensorId::kConvWeight, TensorId::kConvBias,
                         TensorId::kConvState, TensorId::kConvStateOut>()));
  CUBINERY_RETURN_IF_ERROR(bind.tokens(params));
  if (convolves) CUBINERY_RETURN_IF_ERROR(bind_conv(bind, params));
  CUBINERY_RETURN_IF_ERROR(bind.gates(&params->gates));
  CUBINERY_RETURN_IF_ERROR(bind.lower_bound(&params->lower_bound));
  CUBINERY_RETURN_IF_ERROR(bind_norm(bind, &params->norm));
  const StateBinder states{
      .op = kDecodeOp, .states = problem.states, .args = states_of(args), .sequences = requests};
  CUBINERY_RETURN_IF_ERROR(states.bind(state_form(problem), &params->states));
  if (convolves) {
    CUBINERY_RETURN_IF_ERROR(states.padding(share_slots(params), &params->states.padding));
  }
  params->requests = static_cast<int>(batch);
  return bind_scale(kDecodeOp, args.scale, problem.key_dim, &params->scale);
}

}  // namespace cubinery::gdn
