#include "runtime/gdn/decode/args.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "runtime/gdn/conv/args.h"
#include "runtime/gdn/conv/operator.h"
#include "runtime/gdn/decode/operator.h"
#include "runtime/gdn/shared/bind_gates.h"
#include "runtime/gdn/shared/bind_rows.h"
#include "runtime/gdn/shared/bind_states.h"

namespace cubinery::gdn {
namespace {

Status bind_norm(const DecodeProblem& problem, const DecodeArgs& args, const TokenForm& form,
                 GdnDecodeParams* params) {
  const TensorName eps{kDecodeOp, "norm_eps"};
  const std::string_view why = tensors::kZ.why_absent(problem);
  CUBINERY_RETURN_IF_ERROR(check_absent(kDecodeOp, tensors::kZ, problem, args.z));
  if (why.empty()) {
    CUBINERY_RETURN_IF_ERROR(
        bind_input_rows(kDecodeOp, tensors::kZ, problem, args.z, form, &params->z));
  }
  CUBINERY_RETURN_IF_ERROR(bind_vector(kDecodeOp, tensors::kNormWeight, problem, args.norm_weight,
                                       dim_of(problem, Axis::kValueDim), &params->norm_weight));
  if (!why.empty()) {
    if (!args.norm_eps) return {};
    return invalid(eps, fmt::format("is {}; accepted: none, {}", *args.norm_eps, why));
  }
  params->norm_eps = args.norm_eps.value_or(1e-6f);
  if (std::isfinite(params->norm_eps) && params->norm_eps >= 0) return {};
  return invalid(eps, fmt::format("is {}; accepted: finite numbers from 0 up", params->norm_eps));
}

// Of all that only a convolution has, or of what it makes: q, k and v.
template <class Part>
Status check_absent_of(const Part& part, const DecodeArgs& args, std::string_view why) {
  Status status;
  const auto look = [&](const auto& placed) {
    const TensorName name{kDecodeOp, placed.spec.info.name};
    if (status.ok()) status = check_absent(name, placed.in(args), why);
  };
  std::apply([&](const auto&... all) { (look(all), ...); }, part);
  return status;
}

// Rows and states in vectors of kConvChannels.
Status check_vectors(const ConvNames& names, const ConvProblem& problem, const ConvInputs& inputs) {
  constexpr std::string_view kGaps = "all else at multiples of 4 elements";
  if (!rows_in_vectors(kConvChannels, problem.dtype, inputs.x)) {
    return invalid(names.x, fmt::format("does not lie in vectors; accepted: channels next to each "
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
    CUBINERY_RETURN_IF_ERROR(check(names.state, inputs.read, inputs.read_stride));
  }
  if (!problem.states.store) return {};
  const bool in_place = inputs.written == inputs.read;
  return check(in_place ? names.state : names.state_out, inputs.written, inputs.written_stride);
}

// q, k and v come from x.
Status bind_conv(const DecodeProblem& problem, const DecodeArgs& args, std::int64_t batch,
                 GdnDecodeParams* params) {
  constexpr ConvNames kNames{.x = {kDecodeOp, tensors::kX.info.name},
                             .weight = {kDecodeOp, tensors::kConvWeight.info.name},
                             .bias = {kDecodeOp, tensors::kConvBias.info.name},
                             .state = {kDecodeOp, tensors::kConvState.info.name},
                             .state_out = {kDecodeOp, tensors::kConvStateOut.info.name}};
  CUBINERY_RETURN_IF_ERROR(check_absent_of(operand_tensors(), args, tensors::kFromX.words));

  const ConvProblem conv = conv_in_front(problem);
  const Tensor x = with_one_token(args.x);
  const ConvTensors given{.x = x,
                          .weight = args.conv_weight,
                          .bias = args.conv_bias,
                          .state = args.conv_state,
                          .state_out = args.conv_state_out};
  const ConvExtent extent{.sequences = batch, .tokens = 1, .channels = split_channels(conv)};
  StateSteps no_steps{};
  CUBINERY_RETURN_IF_ERROR(
      bind_conv_inputs(kNames, conv, given, extent, {}, &params->conv, &no_steps));
  CUBINERY_RETURN_IF_ERROR(check_vectors(kNames, conv, params->conv));
  const Heads& heads = problem.heads;
  params->q.group = heads.count() / heads.q;
  params->k.group = heads.count() / heads.k;
  params->v.group = heads.count() / heads.v;
  params->k_first = static_cast<int>(conv_split(conv).k);
  params->v_first = static_cast<int>(conv_split(conv).v);
  return {};
}

// One index names a slot of both kinds of states.
Status share_slots(const DecodeProblem& problem, std::int64_t scratch_slot,
                   GdnDecodeParams* params) {
  long long& read = params->states.read.slots;
  long long& written = params->states.written.slots;
  read = std::min(read, params->conv.read_slots);
  written = std::min(written, params->conv.written_slots);
  return check_scratch(kDecodeOp, problem.states.padding, scratch_slot, std::min(read, written));
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
  params->heads = problem.heads.count();
  const Dim heads{"heads", params->heads};
  const TokenForm form{
      .dims = {requests, heads}, .rank = 2, .batch = 0, .head = 1, .extra = ExtraDim::kSecond};
  if (problem.conv.is_there()) {
    CUBINERY_RETURN_IF_ERROR(bind_conv(problem, args, batch, params));
    CUBINERY_RETURN_IF_ERROR(bind_o(problem, args, form, params));
  } else {
    CUBINERY_RETURN_IF_ERROR(check_absent_of(front_conv_tensors(), args, tensors::kNoConv.words));
    CUBINERY_RETURN_IF_ERROR(bind_rows(problem, args, form, params));
  }
  CUBINERY_RETURN_IF_ERROR(
      bind_gates(kDecodeOp, problem.inputs, gates_of(args), form, heads, &params->gates));
  CUBINERY_RETURN_IF_ERROR(bind_norm(problem, args, form, params));
  CUBINERY_RETURN_IF_ERROR(bind_states(kDecodeOp, problem.states, states_of(args),
                                       state_form(problem), requests, &params->states));
  if (problem.conv.is_there()) {
    CUBINERY_RETURN_IF_ERROR(share_slots(problem, args.scratch_slot, params));
  }
  params->requests = static_cast<int>(batch);
  return bind_scale(kDecodeOp, args.scale, problem.key_dim, &params->scale);
}

}  // namespace cubinery::gdn
