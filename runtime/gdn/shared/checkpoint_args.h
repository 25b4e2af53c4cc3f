// What the arguments of operators have in common that keep states besides the last, at multiples of
// so many tokens or where the launch says: prefill, conv.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "cubinery/gdn_types.h"
#include "runtime/gdn/shared/binder.h"

namespace cubinery::gdn {

// How many checkpoints a sequence of so many tokens has, by the problem alone: none at offsets.
inline std::int64_t checkpoints_of(Checkpoints checkpoints, std::int64_t every,
                                   std::int64_t tokens) {
  switch (checkpoints) {
    case Checkpoints::kNone:
    case Checkpoints::kAt:
      return 0;
    case Checkpoints::kBefore:
      return tokens / every + (tokens % every != 0 ? 1 : 0);
    case Checkpoints::kAfter:
      return tokens / every;
  }
  return 0;
}

// Every so many tokens of the problem.
template <class Problem>
std::int64_t checkpoints_of(const Problem& problem, std::int64_t tokens) {
  return checkpoints_of(problem.checkpoints, problem.checkpoint_every, tokens);
}

// Tokens from one checkpoint to the next, where the problem has any.
template <class Problem>
Status bind_checkpoint_every(const Problem& problem, std::optional<std::int64_t> given,
                             int* every) {
  *every = problem.checkpoint_every;
  if (!given || problem.checkpoints == Checkpoints::kNone) return {};
  if (*given < 1 || *given > kMaxInt || *given % *every != 0) {
    return invalid({Fields<Problem>::kName, "checkpoint_every"},
                   fmt::format("is {}; accepted: multiples of the problem's {}, up to {}", *given,
                               *every, kMaxInt));
  }
  *every = static_cast<int>(*given);
  return {};
}

// Whether a launch of a problem with checkpoints at offsets has none.
template <class Args>
bool keeps_none(const Args& args) {
  return !args.checkpoints.present() && !args.checkpoint_offsets.present() &&
         !args.checkpoint_slots.present();
}

// checkpoint_offsets or checkpoint_slots: of each sequence so many.
template <TensorId kId, class Args>
Status bind_places(const Binder<Args>& bind, std::int64_t count, StridedVector* places,
                   long long* step) {
  const auto [name, x] = bind.template named<kId>();
  std::array<std::int64_t, 2> strides{};
  CUBINERY_RETURN_IF_ERROR(check_data(name, x, bind.template type<kId>()));
  CUBINERY_RETURN_IF_ERROR(
      check_shape(name, x, {bind.sequences(), {"K", count}}, ExtraDim::kNone, strides.data()));
  *places = {.data = x.data, .stride = strides[0]};
  *step = strides[1];
  return {};
}

// checkpoint_offsets and checkpoint_slots, which both have at least one of each sequence, where the
// launch keeps any.
template <class Args, class Params>
Status bind_offsets(const Binder<Args>& bind, Params* params) {
  if (!bind.template is_due<TensorId::kCheckpointOffsets>()) {
    return bind.template check_absent<TensorId::kCheckpointOffsets, TensorId::kCheckpointSlots>();
  }
  params->checkpoint_slots.count = 0;
  if (keeps_none(bind.args())) return {};
  const Tensor& offsets = bind.args().checkpoint_offsets;
  const std::int64_t count = std::max<std::int64_t>(offsets.rank == 2 ? offsets.shape[1] : 1, 1);
  CheckpointSlots& slots = params->checkpoint_slots;
  CUBINERY_RETURN_IF_ERROR(bind_places<TensorId::kCheckpointOffsets>(
      bind, count, &params->checkpoint_cu_starts, &slots.offset_step));
  CUBINERY_RETURN_IF_ERROR(
      check_count(Binder<Args>::template kName<TensorId::kCheckpointOffsets>, "K", count, kMaxInt));
  slots.count = static_cast<int>(count);
  return bind_places<TensorId::kCheckpointSlots>(bind, count, &slots.slots, &slots.slot_step);
}

// checkpoints, by bind_tensor(rows dimension), where those of each sequence go, and
// checkpoint_every.  `any_offset`: an offset need not be a multiple of that.
template <class Args, class Params, class BindTensor>
Status bind_checkpoints(const Binder<Args>& bind, const LaunchExtent& extent,
                        BindTensor bind_tensor, bool any_offset, Params* params) {
  const Checkpoints kind = bind.problem().checkpoints;
  const Tensor& checkpoints = bind.args().checkpoints;
  int* const every = &params->checkpoint_every;
  if (kind == Checkpoints::kAt && any_offset) {
    *every = 1;
  } else {
    CUBINERY_RETURN_IF_ERROR(
        bind_checkpoint_every(bind.problem(), bind.args().checkpoint_every, every));
  }
  CUBINERY_RETURN_IF_ERROR(bind.template check_absent<TensorId::kCheckpoints>());
  const bool has_none = kind == Checkpoints::kAt && keeps_none(bind.args());
  if (bind.template is_due<TensorId::kCheckpoints>() && !has_none) {
    const std::int64_t rows = extent.varlen || kind == Checkpoints::kAt
                                  ? std::max<std::int64_t>(checkpoints.shape[0], 0)
                                  : extent.sequences * checkpoints_of(kind, *every, extent.tokens);
    CUBINERY_RETURN_IF_ERROR(bind_tensor(Dim{"rows", rows}));
  }
  CUBINERY_RETURN_IF_ERROR(
      bind.template vector<TensorId::kCheckpointCuStarts>(&params->checkpoint_cu_starts));
  return bind_offsets(bind, params);
}

}  // namespace cubinery::gdn
