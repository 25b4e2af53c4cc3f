#include "runtime/gdn/prefill/args.h"

#include <algorithm>

#include "runtime/gdn/prefill/operator.h"
#include "runtime/gdn/shared/bind_gates.h"
#include "runtime/gdn/shared/bind_rows.h"
#include "runtime/gdn/shared/bind_states.h"
#include "runtime/gdn/shared/checkpoint_args.h"

namespace cubinery::gdn {
namespace {

class PrefillBinder {
 public:
  PrefillBinder(const PrefillProblem& problem, const PrefillArgs& args, const PrefillExtent& extent,
                PrefillParams* params)
      : problem_(problem),
        args_(args),
        sequences_{problem.varlen ? "N" : "B", extent.sequences},
        tokens_{problem.varlen ? "total" : "T", extent.tokens},
        chunks_(params->chunks),
        scan_(params->scan) {}

  Status bind() {
    const TokenForm form = token_form();
    CUBINERY_RETURN_IF_ERROR(bind_rows(problem_, args_, form, &scan_));
    chunks_.q = scan_.q;
    chunks_.k = scan_.k;
    CUBINERY_RETURN_IF_ERROR(bind_gates(kPrefillOp, problem_.inputs, gates_of(args_), form,
                                        {"heads", problem_.heads.count()}, &chunks_.gates));
    CUBINERY_RETURN_IF_ERROR(bind_states(kPrefillOp, problem_.states, states_of(args_),
                                         state_form(problem_), sequences_, &scan_.states));
    CUBINERY_RETURN_IF_ERROR(bind_cu_seqlens());
    CUBINERY_RETURN_IF_ERROR(bind_checkpoints());
    chunks_.heads = scan_.heads = problem_.heads.count();
    chunks_.tokens = scan_.tokens = tokens_.extent;
    chunks_.sequences = scan_.sequences = static_cast<int>(sequences_.extent);
    return bind_scale(kPrefillOp, args_.scale, problem_.key_dim, &chunks_.scale);
  }

 private:
  TokenForm token_form() const {
    const std::size_t first = problem_.varlen ? 0 : 1;  // of tokens and heads
    const std::size_t heads_behind = problem_.token_layout == TokenLayout::kBHTD ? 0 : 1;
    TokenForm form{.rank = first + 2,
                   .token = first + 1 - heads_behind,
                   .head = first + heads_behind,
                   .extra = problem_.varlen ? ExtraDim::kFirst : ExtraDim::kNone};
    if (!problem_.varlen) form.dims[form.batch = 0] = sequences_;
    form.dims[form.token] = tokens_;
    return form;
  }

  Status bind_cu_seqlens() {
    CUBINERY_RETURN_IF_ERROR(bind_vector(kPrefillOp, tensors::kCuSeqlens, problem_,
                                         args_.cu_seqlens, {"N + 1", sequences_.extent + 1},
                                         &chunks_.cu_seqlens));
    scan_.cu_seqlens = chunks_.cu_seqlens;
    return {};
  }

  Status bind_checkpoints() {
    scan_.checkpoint_every = problem_.checkpoint_every;
    return gdn::bind_checkpoints(
        kPrefillOp, problem_, args_, sequences_.extent, tokens_.extent,
        [&](const Dim& rows) {
          return bind_written_states({kPrefillOp, tensors::kCheckpoints.info.name},
                                     args_.checkpoints, rows, state_form(problem_),
                                     &scan_.checkpoints);
        },
        &scan_.checkpoint_cu_starts);
  }

  const PrefillProblem& problem_;
  const PrefillArgs& args_;
  const Dim sequences_;
  const Dim tokens_;
  GdnPrefillChunksParams& chunks_;
  GdnPrefillScanParams& scan_;
};

}  // namespace

PrefillLimits prefill_limits(const PrefillProblem& problem, int chunk_size) {
  // Half of what a grid takes, so that the sum of whole chunks and last chunks fits too.
  const std::int64_t blocks = kMaxInt / 2 / problem.heads.count();
  return {.sequences = blocks / (problem.value_dim / 16),
          .tokens = std::min(kMaxInt, blocks * chunk_size)};
}

Status prefill_extent(const PrefillProblem& problem, const PrefillArgs& args,
                      const PrefillLimits& limits, PrefillExtent* extent) {
  const Tensor& q = args.q;
  CUBINERY_RETURN_IF_ERROR(check_data({kPrefillOp, "q"}, q, problem.dtype));
  const std::size_t behind = problem.token_layout == TokenLayout::kBHTD ? 1 : 0;
  if (!problem.varlen) {
    if (q.rank != 4) return wrong_rank({kPrefillOp, "q"}, q.rank, "4");
    const std::int64_t tokens = q.shape[1 + behind];
    *extent = {.sequences = q.shape[0], .tokens = tokens, .longest = tokens};
    CUBINERY_RETURN_IF_ERROR(
        check_count({kPrefillOp, "q"}, "B", extent->sequences, limits.sequences));
    return check_count({kPrefillOp, "q"}, "T", extent->tokens,
                       limits.tokens / std::max<std::int64_t>(extent->sequences, 1));
  }
  if (q.rank != 3 && q.rank != 4)
    return wrong_rank({kPrefillOp, "q"}, q.rank, "3, or 4 with B = 1");
  const Tensor& cu_seqlens = args.cu_seqlens;
  CUBINERY_RETURN_IF_ERROR(
      check_data({kPrefillOp, "cu_seqlens"}, cu_seqlens, problem.cu_seqlens_dtype));
  if (cu_seqlens.rank != 1) return wrong_rank({kPrefillOp, "cu_seqlens"}, cu_seqlens.rank, "1");
  const std::size_t first = q.rank == 4 ? 1 : 0;
  *extent = {.sequences = std::max<std::int64_t>(cu_seqlens.shape[0], 0) - 1,
             .tokens = q.shape[first + behind]};
  CUBINERY_RETURN_IF_ERROR(
      check_count({kPrefillOp, "cu_seqlens"}, "N", extent->sequences, limits.sequences));
  CUBINERY_RETURN_IF_ERROR(check_count({kPrefillOp, "q"}, "total", extent->tokens, limits.tokens));
  extent->longest = std::max(
      args.max_seqlen, int_ceil_div(extent->tokens, std::max<std::int64_t>(extent->sequences, 1)));
  return {};
}

Status bind_prefill(const PrefillProblem& problem, const PrefillArgs& args,
                    const PrefillExtent& extent, PrefillParams* params) {
  return PrefillBinder(problem, args, extent, params).bind();
}

}  // namespace cubinery::gdn
