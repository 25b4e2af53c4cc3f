#include "runtime/gdn/prefill/args.h"

#include <algorithm>

#include "runtime/gdn/prefill/operator.h"
#include "runtime/gdn/shared/bind_states.h"
#include "runtime/gdn/shared/binder.h"
#include "runtime/gdn/shared/checkpoint_args.h"

namespace cubinery::gdn {

PrefillLimits prefill_limits(const PrefillProblem& problem, int chunk_size) {
  // Half of what a grid takes, so that the sum of whole chunks and last chunks fits too.
  const std::int64_t blocks = kMaxInt / 2 / problem.heads.count();
  return {.sequences = blocks / (problem.value_dim / 16),
          .tokens = std::min(kMaxInt, blocks * chunk_size)};
}

Status prefill_extent(const PrefillProblem& problem, const PrefillArgs& args,
                      const PrefillLimits& limits, PrefillExtent* extent) {
  const auto most_tokens = [&](std::int64_t sequences) {
    return problem.varlen ? limits.tokens : limits.tokens / std::max<std::int64_t>(sequences, 1);
  };
  CUBINERY_RETURN_IF_ERROR(find_extent(problem, args, limits.sequences, most_tokens, extent));
  extent->longest = extent->tokens;
  if (!problem.varlen) return {};
  const std::int64_t sequences = std::max<std::int64_t>(extent->sequences, 1);
  extent->longest = std::max(args.max_seqlen, int_ceil_div(extent->tokens, sequences));
  return {};
}

Status bind_prefill(const PrefillProblem& problem, const PrefillArgs& args,
                    const PrefillExtent& extent, PrefillParams* params) {
  GdnPrefillChunksParams& chunks = params->chunks;
  GdnPrefillScanParams& scan = params->scan;
  const Binder bind(problem, args, extent);
  CUBINERY_RETURN_IF_ERROR(bind.tokens(&scan));
  chunks.q = scan.q;
  chunks.k = scan.k;
  CUBINERY_RETURN_IF_ERROR(bind.gates(&chunks.gates));
  CUBINERY_RETURN_IF_ERROR(bind.lower_bound(&chunks.lower_bound));
  const StateBinder states{.op = kPrefillOp,
                           .states = problem.states,
                           .args = states_of(args),
                           .sequences = extent.sequences_dim()};
  CUBINERY_RETURN_IF_ERROR(states.bind(state_form(problem), &scan.states));
  CUBINERY_RETURN_IF_ERROR(bind.vector<TensorId::kCuSeqlens>(&chunks.cu_seqlens));
  scan.cu_seqlens = chunks.cu_seqlens;
  CUBINERY_RETURN_IF_ERROR(bind.vector<TensorId::kHasInitialState>(&scan.has_initial));
  const auto bind_tensor = [&](const Dim& rows) {
    return bind_written_states(Binder<PrefillArgs>::kName<TensorId::kCheckpoints>, args.checkpoints,
                               rows, state_form(problem), &scan.checkpoints);
  };
  CUBINERY_RETURN_IF_ERROR(bind_checkpoints(bind, extent, bind_tensor, false, &scan));
  chunks.heads = scan.heads = problem.heads.count();
  chunks.tokens = scan.tokens = extent.tokens;
  chunks.sequences = scan.sequences = static_cast<int>(extent.sequences);
  return bind_scale(kPrefillOp, args.scale, problem.key_dim, &chunks.scale);
}

}  // namespace cubinery::gdn
