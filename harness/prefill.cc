#include "harness/prefill.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "harness/shapes.h"
#include "results/shape.h"
#include "runtime/gdn/prefill/kernels.h"
#include "runtime/gdn/prefill/paths.h"
#include "runtime/gdn/prefill/segments.h"

namespace cubinery {
namespace {

using gdn::PrefillProblem;
using gdn::PrefillSize;

constexpr int kChunkSizes[] = {16, 32, 64};

// `count` numbers that differ by one at most, with this sum, the larger first.
void append_even(std::int64_t sum, std::int64_t count, Lengths* lengths) {
  for (std::int64_t n = 0; n < count; ++n) {
    lengths->push_back(sum / count + (n < sum % count ? 1 : 0));
  }
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

}  // namespace

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

PrefillSize size_of_launch(const Lengths& lengths) {
  return {.tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}),
          .sequences = static_cast<std::int64_t>(lengths.size()),
          .max_seqlen = *std::max_element(lengths.begin(), lengths.end())};
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

}  // namespace cubinery
