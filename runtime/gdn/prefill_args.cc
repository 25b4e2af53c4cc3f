#include "runtime/gdn/prefill_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "runtime/gdn/args_binding.h"
#include "runtime/gdn/prefill_problem.h"

namespace cubinery::gdn {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

// Rows that start at multiples of this are read in whole vectors.
constexpr std::int64_t kRowAlignment = 16;

struct TokenStrides {
  std::int64_t batch = 0;
  std::int64_t token = 0;
  std::int64_t head = 0;
};

bool rows_aligned(const Tensor& x) {
  const std::int64_t unit = kRowAlignment / size_of(x.dtype);
  bool aligned = reinterpret_cast<std::uintptr_t>(x.data) % kRowAlignment == 0;
  for (std::size_t d = 0; d + 1 < static_cast<std::size_t>(x.rank); ++d) {
    aligned = aligned && (x.shape[d] <= 1 || x.strides[d] % unit == 0);
  }
  return aligned;
}

class PrefillBinder {
 public:
  PrefillBinder(const PrefillProblem& problem, const PrefillArgs& args, const PrefillExtent& extent,
                PrefillParams* params)
      : problem_(problem),
        args_(args),
        sequences_{problem.varlen ? "N" : "B", extent.sequences},
        tokens_{problem.varlen ? "total" : "T", extent.tokens},
        heads_{"heads", problem.heads()},
        chunks_(params->chunks),
        scan_(params->scan) {}

  Status bind() {
    CUBINERY_RETURN_IF_ERROR(bind_rows());
    CUBINERY_RETURN_IF_ERROR(bind_gates());
    CUBINERY_RETURN_IF_ERROR(bind_states(problem_, args_, sequences_, &scan_));
    CUBINERY_RETURN_IF_ERROR(bind_slots(problem_, args_, sequences_, &scan_,
                                        &scan_.read_slots_sequence, &scan_.write_slots_sequence));
    CUBINERY_RETURN_IF_ERROR(bind_cu_seqlens());
    CUBINERY_RETURN_IF_ERROR(bind_checkpoints());
    bind_counts();
    return bind_scale(kPrefillOp, args_.scale, problem_.key_dim, &chunks_.scale);
  }

 private:
  Status bind_rows() {
    const Dim key_dim{"key_dim", problem_.key_dim};
    const Dim value_dim{"value_dim", problem_.value_dim};
    const DType dtype = problem_.dtype;
    TokenStrides q, k, v, o;
    CUBINERY_RETURN_IF_ERROR(
        check_tokens("q", args_.q, dtype, {"q_heads", problem_.q_heads}, key_dim, &q));
    CUBINERY_RETURN_IF_ERROR(
        check_tokens("k", args_.k, dtype, {"k_heads", problem_.k_heads}, key_dim, &k));
    CUBINERY_RETURN_IF_ERROR(
        check_tokens("v", args_.v, dtype, {"v_heads", problem_.v_heads}, value_dim, &v));
    CUBINERY_RETURN_IF_ERROR(
        check_tokens("o", args_.o, problem_.output_dtype, heads_, value_dim, &o));
    CUBINERY_RETURN_IF_ERROR(check_no_overlap({kPrefillOp, "o"}, args_.o));
    set_q_and_k(&chunks_, q, k);
    set_q_and_k(&scan_, q, k);
    scan_.v = args_.v.data;
    scan_.v_batch = v.batch, scan_.v_token = v.token, scan_.v_head = v.head;
    scan_.v_aligned = rows_aligned(args_.v);
    scan_.o = args_.o.data;
    scan_.o_batch = o.batch, scan_.o_token = o.token, scan_.o_head = o.head;
    return {};
  }

  template <class Params>
  void set_q_and_k(Params* p, const TokenStrides& q, const TokenStrides& k) const {
    p->q = args_.q.data;
    p->q_batch = q.batch, p->q_token = q.token, p->q_head = q.head;
    p->q_aligned = rows_aligned(args_.q);
    p->k = args_.k.data;
    p->k_batch = k.batch, p->k_token = k.token, p->k_head = k.head;
    p->k_aligned = rows_aligned(args_.k);
  }

  // The tokens' and heads' dimensions in the order of the layout, then `dim` if there is one, which
  // has unit stride.
  Status check_tokens(std::string_view tensor, const Tensor& x, DType dtype, Dim heads,
                      std::optional<Dim> dim, TokenStrides* found) const {
    const TensorName name{kPrefillOp, tensor};
    const bool heads_first = problem_.token_layout == TokenLayout::kBHTD;
    std::array<Dim, 4> dims{};
    std::size_t rank = 0;
    if (!problem_.varlen) dims[rank++] = sequences_;
    const std::size_t token_at = rank + (heads_first ? 1 : 0);
    const std::size_t head_at = rank + (heads_first ? 0 : 1);
    dims[token_at] = tokens_;
    dims[head_at] = heads;
    rank += 2;
    if (dim) dims[rank++] = *dim;
    std::array<std::int64_t, 4> strides{};
    CUBINERY_RETURN_IF_ERROR(check_data(name, x, dtype));
    CUBINERY_RETURN_IF_ERROR(check_shape(name, x, std::span(dims.data(), rank),
                                         problem_.varlen ? ExtraDim::kFirst : ExtraDim::kNone,
                                         strides.data()));
    *found = {.batch = problem_.varlen ? 0 : strides[0],
              .token = strides[token_at],
              .head = strides[head_at]};
    return dim ? check_innermost(name, strides[rank - 1]) : Status{};
  }

  Status bind_gates() {
    TokenStrides g, beta;
    if (problem_.gate_mode != GateMode::kNone) {
      CUBINERY_RETURN_IF_ERROR(check_tokens("g", args_.g, problem_.gate_dtype, heads_, {}, &g));
      chunks_.g = args_.g.data;
      chunks_.g_batch = g.batch, chunks_.g_token = g.token, chunks_.g_head = g.head;
    }
    if (problem_.beta_mode != BetaMode::kOne) {
      CUBINERY_RETURN_IF_ERROR(
          check_tokens("beta", args_.beta, problem_.beta_dtype, heads_, {}, &beta));
      chunks_.beta = args_.beta.data;
      chunks_.beta_batch = beta.batch;
      chunks_.beta_token = beta.token;
      chunks_.beta_head = beta.head;
    }
    return bind_gate_vectors(problem_, args_, &chunks_);
  }

  Status bind_cu_seqlens() {
    if (!problem_.varlen) {
      return check_absent({kPrefillOp, "cu_seqlens"}, args_.cu_seqlens, "varlen is false");
    }
    CUBINERY_RETURN_IF_ERROR(bind_bounds("cu_seqlens", args_.cu_seqlens, &chunks_.cu_seqlens,
                                         &chunks_.cu_seqlens_stride));
    scan_.cu_seqlens = chunks_.cu_seqlens;
    scan_.cu_seqlens_stride = chunks_.cu_seqlens_stride;
    return {};
  }

  // [N + 1]
  Status bind_bounds(std::string_view tensor, const Tensor& x, const void** data,
                     long long* stride) const {
    return bind_vector({kPrefillOp, tensor}, x, problem_.cu_seqlens_dtype,
                       {"N + 1", sequences_.extent + 1}, data, stride);
  }

  Status bind_checkpoints() {
    const Tensor& starts = args_.checkpoint_cu_starts;
    const TensorName starts_name{kPrefillOp, "checkpoint_cu_starts"};
    if (problem_.checkpoints == Checkpoints::kNone) {
      constexpr std::string_view kWhy = "checkpoints is none";
      CUBINERY_RETURN_IF_ERROR(check_absent({kPrefillOp, "checkpoints"}, args_.checkpoints, kWhy));
      return check_absent(starts_name, starts, kWhy);
    }
    const std::int64_t every = problem_.checkpoint_every;
    const bool before = problem_.checkpoints == Checkpoints::kBefore;
    const std::int64_t per_sequence = (tokens_.extent + (before ? every - 1 : 0)) / every;
    const std::int64_t rows = problem_.varlen
                                  ? std::max<std::int64_t>(args_.checkpoints.shape[0], 0)
                                  : sequences_.extent * per_sequence;
    CUBINERY_RETURN_IF_ERROR(check_states({kPrefillOp, "checkpoints"}, args_.checkpoints,
                                          {"rows", rows}, state_form(problem_),
                                          &scan_.checkpoint_row, &scan_.checkpoint_head));
    CUBINERY_RETURN_IF_ERROR(check_no_overlap({kPrefillOp, "checkpoints"}, args_.checkpoints));
    scan_.checkpoints = args_.checkpoints.data;
    scan_.checkpoint_rows = rows;
    scan_.checkpoint_every = problem_.checkpoint_every;
    if (!problem_.varlen) return check_absent(starts_name, starts, "varlen is false");
    return bind_bounds("checkpoint_cu_starts", starts, &scan_.checkpoint_cu_starts,
                       &scan_.checkpoint_cu_starts_stride);
  }

  void bind_counts() {
    const int heads = problem_.heads();
    chunks_.heads = scan_.heads = heads;
    chunks_.q_group = scan_.q_group = heads / problem_.q_heads;
    chunks_.k_group = scan_.k_group = heads / problem_.k_heads;
    scan_.v_group = heads / problem_.v_heads;
    chunks_.tokens = scan_.tokens = tokens_.extent;
    chunks_.sequences = scan_.sequences = static_cast<int>(sequences_.extent);
  }

  const PrefillProblem& problem_;
  const PrefillArgs& args_;
  const Dim sequences_;
  const Dim tokens_;
  const Dim heads_;
  GdnPrefillChunksParams& chunks_;
  GdnPrefillScanParams& scan_;
};

Status check_count(std::string_view tensor, std::string_view name, std::int64_t count,
                   std::int64_t limit) {
  if (count >= 0 && count <= limit) return {};
  return invalid({kPrefillOp, tensor},
                 fmt::format("has {} = {}; accepted: 0 to {}", name, count, limit));
}

Status wrong_rank(std::string_view tensor, int rank, std::string_view accepted) {
  return invalid({kPrefillOp, tensor},
                 fmt::format("has {} dimensions; accepted: {}", rank, accepted));
}

}  // namespace

PrefillLimits prefill_limits(const PrefillProblem& problem, int chunk_size) {
  // Half of what a grid takes, so that the sum of whole chunks and last chunks fits too.
  const std::int64_t blocks = kMaxInt / 2 / problem.heads();
  return {.sequences = blocks / (problem.value_dim / 16),
          .tokens = std::min(kMaxInt, blocks * chunk_size)};
}

Status prefill_extent(const PrefillProblem& problem, const PrefillArgs& args,
                      const PrefillLimits& limits, PrefillExtent* extent) {
  const Tensor& q = args.q;
  CUBINERY_RETURN_IF_ERROR(check_data({kPrefillOp, "q"}, q, problem.dtype));
  const std::size_t behind = problem.token_layout == TokenLayout::kBHTD ? 1 : 0;
  if (!problem.varlen) {
    if (q.rank != 4) return wrong_rank("q", q.rank, "4");
    *extent = {.sequences = q.shape[0], .tokens = q.shape[1 + behind]};
    CUBINERY_RETURN_IF_ERROR(check_count("q", "B", extent->sequences, limits.sequences));
    return check_count("q", "T", extent->tokens,
                       limits.tokens / std::max<std::int64_t>(extent->sequences, 1));
  }
  if (q.rank != 3 && q.rank != 4) return wrong_rank("q", q.rank, "3, or 4 with B = 1");
  const Tensor& cu_seqlens = args.cu_seqlens;
  CUBINERY_RETURN_IF_ERROR(
      check_data({kPrefillOp, "cu_seqlens"}, cu_seqlens, problem.cu_seqlens_dtype));
  if (cu_seqlens.rank != 1) return wrong_rank("cu_seqlens", cu_seqlens.rank, "1");
  const std::size_t first = q.rank == 4 ? 1 : 0;
  *extent = {.sequences = cu_seqlens.shape[0] - 1, .tokens = q.shape[first + behind]};
  CUBINERY_RETURN_IF_ERROR(check_count("cu_seqlens", "N", extent->sequences, limits.sequences));
  return check_count("q", "total", extent->tokens, limits.tokens);
}

Status bind_prefill(const PrefillProblem& problem, const PrefillArgs& args,
                    const PrefillExtent& extent, PrefillParams* params) {
  return PrefillBinder(problem, args, extent, params).bind();
}

}  // namespace cubinery::gdn
