#include "runtime/gdn/verify/commit_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "runtime/gdn/shared/bind_states.h"
#include "runtime/gdn/shared/binder.h"
#include "runtime/gdn/verify/commit_operator.h"

namespace cubinery::gdn {
namespace {

const Tensor kNone{};

}  // namespace

Status bind_layer(const CommitProblem& problem, const CommitLayer& layer, GdnCommitLayer* record) {
  LaunchExtent room;
  const auto most_tokens = [&](std::int64_t) {
    return problem.varlen ? kMaxInt : problem.draft_tokens;
  };
  CUBINERY_RETURN_IF_ERROR(find_extent(problem, layer, kMaxInt, most_tokens, &room));
  record->requests = room.sequences;
  record->tokens = room.tokens;
  const Binder bind(problem, layer, room);
  CUBINERY_RETURN_IF_ERROR(bind.rows<TensorId::kK>(&record->k));
  CUBINERY_RETURN_IF_ERROR(bind.rows<TensorId::kV>(&record->v));
  CUBINERY_RETURN_IF_ERROR(bind.gates(&record->gates));
  const StateBinder binder{.op = kCommitOp,
                           .states = problem.states,
                           .args = {layer.state, layer.state_out, kNone, kNone},
                           .sequences = room.sequences_dim()};
  StateParams states{};
  StateSteps no_steps{};
  CUBINERY_RETURN_IF_ERROR(binder.tensors(state_form(problem), &states, &no_steps));
  record->read = states.read;
  record->written = states.written;
  return {};
}

Status of_layer(std::size_t number, Status status) {
  if (status.ok()) return status;
  return Status(status.code(), fmt::format("layer {}: {}", number, status.message()));
}

namespace {

// One layer given by its tensors, or a table of them on the device.
Status bind_layers(const CommitProblem& problem, const CommitArgs& args, GdnCommitParams* params) {
  const TensorName name{kCommitOp, "layers"};
  if (!args.layers.present()) {
    params->layers = 1;
    return bind_layer(problem, args.layer, &params->layer);
  }
  CUBINERY_RETURN_IF_ERROR(check_absent({kCommitOp, "k"}, args.layer.k, "layers is given"));
  const std::int64_t layers = args.layers.shape[0];
  std::array<std::int64_t, 2> strides{};
  CUBINERY_RETURN_IF_ERROR(check_data(name, args.layers, DType::kI64));
  CUBINERY_RETURN_IF_ERROR(check_shape(
      name, args.layers, {{"layers", std::max<std::int64_t>(layers, 1)}, {"words", kLayerWords}},
      ExtraDim::kNone, strides.data()));
  CUBINERY_RETURN_IF_ERROR(check_count(name, "layers", layers, kMaxInt));
  if (strides[1] != 1 || (layers > 1 && strides[0] != kLayerWords)) {
    return invalid(name, fmt::format("has strides {}, {}; accepted: {}, 1 (no gaps)", strides[0],
                                     strides[1], kLayerWords));
  }
  params->layers = static_cast<int>(layers);
  params->table = static_cast<const GdnCommitLayer*>(args.layers.data);
  return {};
}

// N: that of the first that is there.
Status bind_requests(const CommitProblem& problem, const CommitArgs& args,
                     GdnCommitParams* params) {
  std::int64_t requests = params->layer.requests;
  if (problem.varlen) {
    const TensorName bounds{kCommitOp, tensors::kCuSeqlens.info.name};
    CUBINERY_RETURN_IF_ERROR(
        find_bounds(bounds, args.cu_seqlens, problem.cu_seqlens_dtype, kMaxInt, &requests));
  } else if (args.accepted.present()) {
    requests = args.accepted.shape[0];
  } else if (args.state_indices.present()) {
    requests = args.state_indices.shape[0];
  } else if (params->table != nullptr) {
    return invalid(
        {kCommitOp, "accepted"},
        "is missing; accepted: a tensor, layers does not say how many requests there are");
  }
  CUBINERY_RETURN_IF_ERROR(check_count({kCommitOp, "accepted"}, "N", requests, kMaxInt));
  if (params->table == nullptr && requests > params->layer.requests) {
    return invalid({kCommitOp, "k"},
                   fmt::format("has room for {} requests; accepted: N = {} or more",
                               params->layer.requests, requests));
  }
  if (requests * params->layers > kMaxInt) {
    return invalid({kCommitOp, "layers"},
                   fmt::format("has {} layers of {} requests; accepted: {} of both", params->layers,
                               requests, kMaxInt));
  }
  params->requests = static_cast<int>(requests);
  return {};
}

}  // namespace

Status bind_commit(const CommitProblem& problem, const CommitArgs& args, GdnCommitParams* params) {
  CUBINERY_RETURN_IF_ERROR(bind_layers(problem, args, params));
  CUBINERY_RETURN_IF_ERROR(bind_requests(problem, args, params));
  params->heads = problem.heads.count();
  params->draft_tokens = problem.draft_tokens;
  const LaunchExtent extent{.sequences = params->requests, .varlen = problem.varlen};
  const Binder bind(problem, args, extent);
  CUBINERY_RETURN_IF_ERROR(bind.vector<TensorId::kCuSeqlens>(&params->cu_seqlens));
  CUBINERY_RETURN_IF_ERROR(bind.vector<TensorId::kAccepted>(&params->accepted));
  CUBINERY_RETURN_IF_ERROR(bind_lower_bound(kCommitOp, problem.inputs.gate_mode, args.lower_bound,
                                            &params->lower_bound));
  const StateBinder states{
      .op = kCommitOp,
      .states = problem.states,
      .args = {kNone, kNone, args.state_indices, args.state_out_indices, padding_of(args)},
      .sequences = extent.sequences_dim()};
  StateParams slots{};
  StateSteps no_steps{};
  CUBINERY_RETURN_IF_ERROR(states.slots(&slots, &no_steps));
  params->read_indices = slots.read_indices;
  params->write_indices = slots.write_indices;
  const std::int64_t room = params->table != nullptr
                                ? std::numeric_limits<std::int64_t>::max()
                                : std::min(params->layer.read.slots, params->layer.written.slots);
  return states.padding(room, &params->padding);
}

}  // namespace cubinery::gdn
