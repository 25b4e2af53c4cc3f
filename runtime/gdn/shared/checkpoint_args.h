// What the arguments of operators have in common that keep states at multiples of so many tokens:
// prefill, conv.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "cubinery/gdn_types.h"
#include "runtime/gdn/shared/binder.h"

namespace cubinery::gdn {

// How many checkpoints a sequence of so many tokens has.
inline std::int64_t checkpoints_of(Checkpoints checkpoints, std::int64_t every,
                                   std::int64_t tokens) {
  switch (checkpoints) {
    case Checkpoints::kNone:
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

// checkpoints, by bind_tensor(rows dimension), checkpoint_cu_starts and checkpoint_every.
template <class Args, class BindTensor>
Status bind_checkpoints(const Binder<Args>& bind, const LaunchExtent& extent,
                        BindTensor bind_tensor, StridedVector* cu_starts, int* every) {
  const Tensor& checkpoints = bind.args().checkpoints;
  CUBINERY_RETURN_IF_ERROR(
      bind_checkpoint_every(bind.problem(), bind.args().checkpoint_every, every));
  CUBINERY_RETURN_IF_ERROR(bind.template check_absent<TensorId::kCheckpoints>());
  if (bind.template is_due<TensorId::kCheckpoints>()) {
    const std::int64_t rows =
        extent.varlen
            ? std::max<std::int64_t>(checkpoints.shape[0], 0)
            : extent.sequences * checkpoints_of(bind.problem().checkpoints, *every, extent.tokens);
    CUBINERY_RETURN_IF_ERROR(bind_tensor(Dim{"rows", rows}));
  }
  return bind.template vector<TensorId::kCheckpointCuStarts>(cu_starts);
}

}  // namespace cubinery::gdn
