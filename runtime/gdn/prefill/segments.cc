#include "runtime/gdn/prefill/segments.h"

#include <algorithm>
#include <cmath>

#include "common/chunk/segments.h"
#include "runtime/gdn/prefill/args.h"

namespace cubinery::gdn {
namespace {

// With batch_invariant, where the length must not depend on what else there is in the batch.
constexpr int kFixedTokens = 4096;
// Carrying a state from segment to segment is a chain of steps; of more segments it takes longer
// than it saves.
constexpr std::int64_t kMostSegments = 32;
// With wgmma chunks are done sooner, and that chain is the larger share: of tokens / segments and
// of segments, the sum is least near the square root.  (2, 8) to (16, 32) heads on an H200: 24
// segments of 32768 tokens, 12 of 8192.  Fewer where other sequences fill the multiprocessors too:
// by the fourth root of how many there would be of that length.
constexpr double kTokensPerSquare = 57;

}  // namespace

SegmentRule::SegmentRule(const PrefillProblem& problem, const GdnPrefillScanKey& scan,
                         int warps_per_sm, int sm_count)
    : chunk_size_(scan.chunk_size),
      fixed_tokens_(problem.context_parallel  ? problem.segment_tokens
                    : problem.batch_invariant ? kFixedTokens
                                              : 0),
      keeps_all_states_(problem.context_parallel),
      segments_grow_slowly_(scan.wgmma),
      places_(
          std::max<std::int64_t>(std::int64_t{sm_count} * warps_per_sm /
                                     (std::int64_t{problem.heads.count()} * (scan.value_dim / 16)),
                                 1)) {}

int SegmentRule::chunks(std::int64_t tokens, std::int64_t longest) const {
  if (fixed_tokens_ > 0) return fixed_tokens_ / chunk_size_;
  const auto share = [&](std::int64_t of, std::int64_t segments) {
    return int_ceil_div(int_ceil_div(of, chunk_size_), segments);
  };
  std::int64_t most = kMostSegments;  // of a sequence
  if (segments_grow_slowly_) {
    const auto of_longest = static_cast<double>(std::max<std::int64_t>(longest, 1));
    const double count = std::max(1.0, static_cast<double>(tokens) / of_longest);
    const double square = std::sqrt(of_longest / kTokensPerSquare / std::sqrt(count));
    most = std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(square)), 1, kMostSegments);
  }
  return static_cast<int>(std::max<std::int64_t>(
      {share(tokens, places_), share(longest, most), kSegmentUnit / chunk_size_}));
}

std::int64_t SegmentRule::most_results(std::int64_t tokens, std::int64_t sequences) const {
  // Those of parts, and the state in front of all.
  if (keeps_all_states_) return segment_slots(tokens, sequences, fixed_tokens_) * kParts + 1;
  if (fixed_tokens_ > 0) return segment_results(tokens, fixed_tokens_);
  const std::int64_t least = segment_results(tokens, kSegmentUnit);
  // A sequence of average length or more has at most kMostSegments.
  const std::int64_t of_sequences = std::min(sequences, least) * kMostSegments;
  return std::min({least, places_, of_sequences});
}

}  // namespace cubinery::gdn
