// What the arguments of operators have in common that keep states at multiples of so many tokens:
// prefill, conv.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cubinery/gdn_types.h"
#include "runtime/gdn/shared/binder.h"

namespace cubinery::gdn {

// How many checkpoints a sequence of so many tokens has.
template <class Problem>
std::int64_t checkpoints_of(const Problem& problem, std::int64_t tokens) {
  const std::int64_t every = problem.checkpoint_every;
  switch (problem.checkpoints) {
    case Checkpoints::kNone:
      return 0;
    case Checkpoints::kBefore:
      return tokens / every + (tokens % every != 0 ? 1 : 0);
    case Checkpoints::kAfter:
      return tokens / every;
  }
  return 0;
}

// checkpoints, by bind_tensor(rows dimension), and checkpoint_cu_starts.
template <class Args, class BindTensor>
Status bind_checkpoints(const Binder<Args>& bind, const LaunchExtent& extent,
                        BindTensor bind_tensor, StridedVector* cu_starts) {
  const Tensor& checkpoints = bind.args().checkpoints;
  CUBINERY_RETURN_IF_ERROR(bind.template check_absent<TensorId::kCheckpoints>());
  if (bind.template is_due<TensorId::kCheckpoints>()) {
    const std::int64_t rows =
        extent.varlen ? std::max<std::int64_t>(checkpoints.shape[0], 0)
                      : extent.sequences * checkpoints_of(bind.problem(), extent.tokens);
    CUBINERY_RETURN_IF_ERROR(bind_tensor(Dim{"rows", rows}));
  }
  return bind.template vector<TensorId::kCheckpointCuStarts>(cu_starts);
}

}  // namespace cubinery::gdn
