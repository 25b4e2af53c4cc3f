#include "harness/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "harness/shapes.h"
#include "harness/tensors.h"
#include "results/shape.h"
#include "runtime/gdn/conv/operator.h"
#include "runtime/gdn/decode/args.h"
#include "runtime/gdn/decode/operator.h"
#include "runtime/gdn/operators.h"
#include "runtime/gdn/prefill/kernels.h"
#include "runtime/gdn/prefill/paths.h"
#include "runtime/gdn/prefill/segments.h"
#include "runtime/gdn/verify/commit_operator.h"
#include "runtime/gdn/verify/operator.h"

namespace cubinery {
namespace {

using gdn::CommitProblem;
using gdn::ConvProblem;
using gdn::DecodeProblem;
using gdn::PrefillProblem;
using gdn::PrefillSize;
using gdn::VerifyProblem;
using Lengths = std::vector<std::int64_t>;

// More than any GPU has memory for; products with heads and their sizes stay below 2^63.
constexpr std::int64_t kMostSequences = std::int64_t{1} << 22;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

Status check_most(std::string_view op, const Shape& shape, std::string_view size,
                  std::int64_t most) {
  if (*size_in(shape, size) <= most) return {};
  return refused_shape(op, shape, fmt::format("{} must be at most {}", size, most));
}

constexpr int kChunkSizes[] = {16, 32, 64};

Lengths values_in(const ShapeGrid& grid, std::string_view size) {
  const auto found = grid.find(size);
  return found == grid.end() ? Lengths() : found->second;
}

// `count` numbers that differ by one at most, with this sum, the larger first.
void append_even(std::int64_t sum, std::int64_t count, Lengths* lengths) {
  for (std::int64_t n = 0; n < count; ++n) {
    lengths->push_back(sum / count + (n < sum % count ? 1 : 0));
  }
}

PrefillSize size_of_launch(const Lengths& lengths) {
  return {.tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}),
          .sequences = static_cast<std::int64_t>(lengths.size()),
          .max_seqlen = *std::max_element(lengths.begin(), lengths.end())};
}

void add_shapes(std::int64_t tokens, std::int64_t sequences, bool varlen, const ShapeGrid& grid,
                std::vector<Shape>* shapes) {
  if (tokens < sequences || (!varlen && tokens % sequences != 0)) return;
  const Shape even = {{"tokens", tokens}, {"sequences", sequences}};
  shapes->push_back(even);
  if (!varlen || sequences == 1) return;
  const bool given = grid.contains("max_seqlen");
  for (const std::int64_t longest : given ? values_in(grid, "max_seqlen") : Lengths{tokens / 2}) {
    const bool is_longest = longest * sequences > tokens;
    const bool leaves_tokens = tokens - longest >= sequences - 1;
    if (!is_longest || !leaves_tokens) continue;
    shapes->push_back(even);
    shapes->back().push_back({"max_seqlen", longest});
  }
}

// Of a shape with `tokens`, `sequences` and perhaps `max_seqlen`.
Result<Lengths> lengths_of(std::string_view op, bool varlen, const Shape& shape) {
  CUBINERY_RETURN_IF_ERROR(check_most(op, shape, "sequences", kMostSequences));
  CUBINERY_RETURN_IF_ERROR(check_most(op, shape, "tokens", kMostTokens));
  const std::int64_t tokens = *size_in(shape, "tokens"), sequences = *size_in(shape, "sequences");
  const std::optional<std::int64_t> longest = size_in(shape, "max_seqlen");
  const auto refused = [&](std::string_view why) { return refused_shape(op, shape, why); };
  if (tokens < sequences) return refused("every sequence has at least one token");
  Lengths lengths;
  if (longest) {
    const std::int64_t least = (tokens + sequences - 1) / sequences;
    const std::int64_t most = tokens - (sequences - 1);
    if (*longest < least || *longest > most) {
      return refused(fmt::format("max_seqlen must be from {} to {}", least, most));
    }
    lengths.push_back(*longest);
    append_even(tokens - *longest, sequences - 1, &lengths);
  } else {
    append_even(tokens, sequences, &lengths);
  }
  if (!varlen && lengths.front() != lengths.back()) {
    return refused("sequences of the problem have one length, varlen is false");
  }
  return lengths;
}

// Of a shape with `batch`, of so many tokens each.
Result<Lengths> lengths_of_requests(std::string_view op, const Shape& shape, std::int64_t tokens) {
  CUBINERY_RETURN_IF_ERROR(check_most(op, shape, "batch", kMostSequences));
  return Lengths(idx(*size_in(shape, "batch")), tokens);
}

// Tensors that both have, by their names, and all numbers.
template <class To>
To copied_args(const GdnArgs& from) {
  To to;
  for (const auto& row : gdn::kTensorRows<To>) {
    const auto& same = gdn::row_of<GdnArgs>(row.id);
    if (same.id == row.id) row.in(to) = same.of(from);
  }
  std::apply([&](const auto&... number) { ((number.in(to) = number.in(from)), ...); },
             gdn::Numbers<To>::kList);
  return to;
}

}  // namespace

std::vector<Shape> batches(const ShapeGrid& grid) {
  std::vector<Shape> shapes;
  for (const std::int64_t batch : values_in(grid, "batch")) shapes.push_back({{"batch", batch}});
  return shapes;
}

// The fields that both have are copied by their names.
GdnProblem as_prefill(const DecodeProblem& problem) {
  PrefillProblem plain{.varlen = true};
  copy_fields(problem, &plain);
  GdnProblem same = plain;
  same.output_norm = problem.output_norm;
  same.norm_weight_dtype = problem.norm_weight_dtype;
  same.conv = problem.conv;
  return same;
}

gdn::DecodeArgs as_decode(const GdnArgs& packed) {
  auto args = copied_args<gdn::DecodeArgs>(packed);
  for (const auto& row : gdn::kTensorRows<gdn::DecodeArgs>) {
    if (packed.o.rank != 4 || !is_of_tokens(row.kind)) continue;
    Tensor& rows = row.in(args);
    std::swap(rows.shape[0], rows.shape[1]);
    rows.strides[0] = rows.strides[1];
  }
  return args;
}

TwoLaunches as_two_launches(const DecodeProblem& problem, const gdn::DecodeArgs& args, void* rows) {
  TwoLaunches two{.conv = gdn::conv_in_front(problem), .decode = problem, .decode_args = args};
  two.decode.conv = {};
  const std::int64_t batch = args.x.shape[0], channels = split_channels(two.conv);
  std::int64_t first = 0;
  const auto slice = [&](int heads, int dim) {
    Tensor part = Tensor::contiguous(static_cast<std::byte*>(rows) + first * size_of(problem.dtype),
                                     problem.dtype, {batch, 1, heads, dim});
    part.strides[0] = part.strides[1] = channels;
    first += std::int64_t{heads} * dim;
    return part;
  };
  gdn::DecodeArgs& decode = two.decode_args;
  decode.q = slice(problem.heads.q, problem.key_dim);
  decode.k = slice(problem.heads.k, problem.key_dim);
  decode.v = slice(problem.heads.v, problem.value_dim);
  decode.x = decode.conv_weight = decode.conv_bias = decode.conv_state = decode.conv_state_out = {};
  two.conv_args = {.x = gdn::with_one_token(args.x),
                   .weight = args.conv_weight,
                   .bias = args.conv_bias,
                   .q = decode.q,
                   .k = decode.k,
                   .v = decode.v,
                   .state = args.conv_state,
                   .state_out = args.conv_state_out,
                   .state_indices = args.state_indices,
                   .state_out_indices = args.state_out_indices,
                   .scratch_slot = args.scratch_slot,
                   .enable_pdl = args.enable_pdl};
  return two;
}

Result<Lengths> HarnessOf<DecodeProblem>::lengths(const DecodeProblem&, const Shape& shape) {
  return lengths_of_requests(gdn::kDecodeOp, shape, 1);
}

Point HarnessOf<DecodeProblem>::point(const DecodeProblem& problem, const Lengths& lengths) {
  return gdn::point_of(problem, static_cast<std::int64_t>(lengths.size()));
}

std::vector<Shape> HarnessOf<PrefillProblem>::shapes(const PrefillProblem& problem,
                                                     const ShapeGrid& grid) {
  std::vector<Shape> shapes;
  for (const std::int64_t sequences : values_in(grid, "sequences")) {
    for (const std::int64_t tokens : values_in(grid, "tokens")) {
      add_shapes(tokens, sequences, problem.varlen, grid, &shapes);
    }
  }
  return shapes;
}

Result<Lengths> HarnessOf<PrefillProblem>::lengths(const PrefillProblem& problem,
                                                   const Shape& shape) {
  return lengths_of(gdn::kPrefillOp, problem.varlen, shape);
}

Point HarnessOf<PrefillProblem>::point(const PrefillProblem& problem, const Lengths& lengths) {
  return gdn::point_of(problem, size_of_launch(lengths));
}

std::size_t HarnessOf<PrefillProblem>::workspace_bytes(const gdn::Prefill& prefill,
                                                       const Lengths& lengths) {
  return prefill.workspace_bytes(size_of_launch(lengths));
}

std::size_t HarnessOf<PrefillProblem>::most_workspace_bytes(const PrefillProblem& problem,
                                                            const Target& target,
                                                            const Lengths& lengths) {
  const PrefillSize size = size_of_launch(lengths);
  const auto [chunks, scan] = gdn::prefill_portable().fixed_keys(problem);
  gdn::PrefillKernels keys{.chunks = chunks, .scan = scan};
  std::size_t most = 0;
  const auto add = [&](const std::optional<gdn::SegmentRule>& rule) {
    most = std::max(most, gdn::workspace_bytes(problem, keys, rule, size.tokens, size.sequences));
  };
  for (const int chunk : kChunkSizes) {
    keys.chunks.chunk_size = keys.scan.chunk_size = chunk;
    add({});
    for_each_candidate(gdn::SegmentChoice{}, [&](const gdn::SegmentChoice& choice) {
      add(gdn::SegmentRule(problem, keys.scan, choice.warps_per_sm, target.sm_count));
    });
  }
  return most;
}

PrefillProblem as_prefill(const VerifyProblem& problem) {
  PrefillProblem same;
  copy_fields(problem, &same);
  if (stores_every(problem)) {
    same.states.store = false;
    same.checkpoints = gdn::Checkpoints::kAfter;
    same.checkpoint_every = 1;
  }
  return same;
}

gdn::VerifyArgs as_verify(const VerifyProblem& problem, const GdnArgs& args) {
  auto same = copied_args<gdn::VerifyArgs>(args);
  if (!stores_every(problem)) return same;
  // [B T, ...] as [B, T, ...]
  const Tensor& rows = args.checkpoints;
  const std::int64_t tokens = args.q.shape[1];
  same.state_out = rows;
  same.state_out.rank = 5;
  same.state_out.shape = {args.q.shape[0], tokens, rows.shape[1], rows.shape[2], rows.shape[3]};
  same.state_out.strides = {tokens * rows.strides[0], rows.strides[0], rows.strides[1],
                            rows.strides[2], rows.strides[3]};
  return same;
}

std::vector<Shape> HarnessOf<VerifyProblem>::shapes(const VerifyProblem& problem,
                                                    const ShapeGrid& grid) {
  std::vector<Shape> shapes;
  for (const std::int64_t requests : values_in(grid, "batch")) {
    for (const std::int64_t tokens : values_in(grid, "tokens_each")) {
      if (tokens > problem.draft_tokens) continue;
      shapes.push_back({{"batch", requests}, {"tokens_each", tokens}});
    }
  }
  return shapes;
}

Result<Lengths> HarnessOf<VerifyProblem>::lengths(const VerifyProblem& problem,
                                                  const Shape& shape) {
  CUBINERY_RETURN_IF_ERROR(check_most(gdn::kVerifyOp, shape, "tokens_each", problem.draft_tokens));
  return lengths_of_requests(gdn::kVerifyOp, shape, *size_in(shape, "tokens_each"));
}

Point HarnessOf<VerifyProblem>::point(const VerifyProblem& problem, const Lengths& lengths) {
  const PrefillSize size = size_of_launch(lengths);
  return gdn::point_of(problem, {.requests = size.sequences, .tokens = size.tokens});
}

VerifyProblem HarnessOf<VerifyProblem>::measured(VerifyProblem problem) {
  problem.from_accepted = false;
  if (!stores_every(problem)) return problem;
  problem.varlen = false;
  problem.states.location = gdn::StateLocation::kDense;
  problem.states.padding = gdn::Padding::kNone;
  return problem;
}

PrefillProblem as_prefill(const CommitProblem& problem) {
  PrefillProblem same;
  copy_fields(problem, &same);
  same.output_dtype = problem.dtype;
  return same;
}

gdn::CommitArgs as_commit(const GdnArgs& args) { return copied_args<gdn::CommitArgs>(args); }

Result<Lengths> HarnessOf<CommitProblem>::lengths(const CommitProblem& problem,
                                                  const Shape& shape) {
  return lengths_of_requests(gdn::kCommitOp, shape, problem.draft_tokens);
}

Point HarnessOf<CommitProblem>::point(const CommitProblem& problem, const Lengths& lengths) {
  return gdn::point_of(problem, {.requests = static_cast<std::int64_t>(lengths.size())});
}

std::vector<Shape> HarnessOf<ConvProblem>::shapes(const ConvProblem& problem,
                                                  const ShapeGrid& grid) {
  std::vector<Shape> shapes;
  const Lengths channels = problem.split_qkv ? Lengths{} : values_in(grid, "channels");
  const auto add = [&](std::int64_t tokens, std::int64_t sequences) {
    if (tokens < sequences || (!problem.varlen && tokens % sequences != 0)) return;
    const Shape shape = {{"tokens", tokens}, {"sequences", sequences}};
    if (problem.split_qkv) shapes.push_back(shape);
    for (const std::int64_t count : channels) {
      shapes.push_back(shape);
      shapes.back().push_back({"channels", count});
    }
  };
  for (const std::int64_t requests : values_in(grid, "batch")) {
    const Lengths tokens = problem.from_accepted ? values_in(grid, "tokens_each") : Lengths{1};
    for (const std::int64_t each : tokens) add(requests * each, requests);
  }
  if (problem.from_accepted) return shapes;
  for (const std::int64_t sequences : values_in(grid, "sequences")) {
    for (const std::int64_t tokens : values_in(grid, "tokens")) add(tokens, sequences);
  }
  return shapes;
}

Result<Lengths> HarnessOf<ConvProblem>::lengths(const ConvProblem& problem, const Shape& shape) {
  const std::optional<std::int64_t> channels = size_in(shape, "channels");
  if (problem.split_qkv && channels) {
    return refused_shape(gdn::kConvOp, shape,
                         "channels are those of q, k and v, split_qkv is true");
  }
  if (!problem.split_qkv) {
    if (!channels) return refused_shape(gdn::kConvOp, shape, "channels is missing");
    CUBINERY_RETURN_IF_ERROR(check_most(gdn::kConvOp, shape, "channels", gdn::kMaxChannels));
  }
  return lengths_of(gdn::kConvOp, problem.varlen, shape);
}

std::int64_t HarnessOf<ConvProblem>::channels(const ConvProblem& problem, const Shape& shape) {
  return problem.split_qkv ? split_channels(problem) : *size_in(shape, "channels");
}

Point HarnessOf<ConvProblem>::point(const ConvProblem& problem, const Lengths& lengths,
                                    std::int64_t channels) {
  const PrefillSize size = size_of_launch(lengths);
  return gdn::point_of(problem,
                       {.sequences = size.sequences, .tokens = size.tokens, .channels = channels});
}

}  // namespace cubinery
