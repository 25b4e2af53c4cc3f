#include "runtime/gdn/verify/commit_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "runtime/gdn/shared/bind_gates.h"
#include "runtime/gdn/shared/bind_rows.h"
#include "runtime/gdn/shared/bind_states.h"
#include "runtime/gdn/shared/requests.h"
#include "runtime/gdn/verify/commit_operator.h"

namespace cubinery::gdn {
namespace {

// So many of the tensors' own that a launch may have all of them.
struct Room {
  std::int64_t requests;
  std::int64_t tokens;
};

const Tensor kNone{};

Status room_of(const CommitProblem& problem, const CommitLayer& layer, Room* room) {
  const TensorName k{kCommitOp, "k"};
  CUBINERY_RETURN_IF_ERROR(check_data(k, layer.k, problem.dtype));
  if (!problem.varlen) {
    if (layer.k.rank != 4) return wrong_rank(k, layer.k.rank, "4");
    *room = {.requests = layer.k.shape[0], .tokens = layer.k.shape[1]};
    CUBINERY_RETURN_IF_ERROR(check_count(k, "B", room->requests, kMaxInt));
    return check_count(k, "T", room->tokens, problem.draft_tokens);
  }
  if (layer.k.rank != 3 && layer.k.rank != 4) {
    return wrong_rank(k, layer.k.rank, "3, or 4 with B = 1");
  }
  const bool pool = problem.states.location == StateLocation::kPool;
  *room = {.requests = pool ? kMaxInt : layer.state.shape[0],
           .tokens = layer.k.shape[layer.k.rank == 4 ? 1 : 0]};
  if (!pool) {
    CUBINERY_RETURN_IF_ERROR(check_count({kCommitOp, "state"}, "N", room->requests, kMaxInt));
  }
  return check_count(k, "total", room->tokens, kMaxInt);
}

}  // namespace

Status bind_layer(const CommitProblem& problem, const CommitLayer& layer, GdnCommitLayer* record) {
  Room room{};
  CUBINERY_RETURN_IF_ERROR(room_of(problem, layer, &room));
  record->requests = room.requests;
  record->tokens = room.tokens;
  const Dim requests = requests_dim(problem.varlen, room.requests);
  const TokenForm form = token_form(problem.varlen, room.requests, room.tokens);
  CUBINERY_RETURN_IF_ERROR(
      bind_input_rows(kCommitOp, tensors::kK, problem, layer.k, form, &record->k));
  CUBINERY_RETURN_IF_ERROR(
      bind_input_rows(kCommitOp, tensors::kV, problem, layer.v, form, &record->v));
  CUBINERY_RETURN_IF_ERROR(bind_gates(kCommitOp, problem.inputs, gates_of(layer), form,
                                      dim_of(problem, Axis::kHeads), &record->gates));
  StateParams states{};
  CUBINERY_RETURN_IF_ERROR(bind_state_tensors(kCommitOp, problem.states,
                                              {layer.state, layer.state_out, kNone, kNone, 0},
                                              state_form(problem), requests, &states));
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
    CUBINERY_RETURN_IF_ERROR(check_bounds(kCommitOp, args.cu_seqlens, problem.cu_seqlens_dtype));
    requests = requests_of(args.cu_seqlens);
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
  const Dim requests = requests_dim(problem.varlen, params->requests);
  CUBINERY_RETURN_IF_ERROR(
      bind_bounds(kCommitOp, problem, args.cu_seqlens, params->requests, &params->cu_seqlens));
  if (args.accepted.present()) {
    CUBINERY_RETURN_IF_ERROR(bind_vector({kCommitOp, "accepted"}, args.accepted,
                                         problem.accepted_dtype, requests, &params->accepted));
  }
  StateParams slots{};
  CUBINERY_RETURN_IF_ERROR(
      bind_slots(kCommitOp, problem.states,
                 {kNone, kNone, args.state_indices, args.state_out_indices, args.scratch_slot},
                 requests, &slots));
  params->read_indices = slots.read_indices;
  params->write_indices = slots.write_indices;
  params->scratch_slot = args.scratch_slot;
  const std::int64_t room = params->table != nullptr
                                ? std::numeric_limits<std::int64_t>::max()
                                : std::min(params->layer.read.slots, params->layer.written.slots);
  return check_scratch(kCommitOp, problem.states.padding, args.scratch_slot, room);
}

}  // namespace cubinery::gdn
