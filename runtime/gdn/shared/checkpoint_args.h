// What the arguments of operators have in common that keep states at multiples of so many tokens:
// prefill, conv.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "cubinery/gdn_types.h"
#include "runtime/gdn/shared/args_binding.h"

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

// checkpoints, by bind_tensor(rows dimension), and checkpoint_cu_starts.  `tokens`: dense: of each
// sequence.
template <class Problem, class Args, class BindTensor>
Status bind_checkpoints(std::string_view op, const Problem& problem, const Args& args,
                        std::int64_t sequences, std::int64_t tokens, BindTensor bind_tensor,
                        StridedVector* cu_starts) {
  CUBINERY_RETURN_IF_ERROR(check_absent(op, tensors::kCheckpoints, problem, args.checkpoints));
  if (is_due(tensors::kCheckpoints, problem, args.checkpoints)) {
    const std::int64_t rows = problem.varlen ? std::max<std::int64_t>(args.checkpoints.shape[0], 0)
                                             : sequences * checkpoints_of(problem, tokens);
    CUBINERY_RETURN_IF_ERROR(bind_tensor(Dim{"rows", rows}));
  }
  return bind_vector(op, tensors::kCheckpointCuStarts, problem, args.checkpoint_cu_starts,
                     {"N + 1", sequences + 1}, cu_starts);
}

}  // namespace cubinery::gdn
