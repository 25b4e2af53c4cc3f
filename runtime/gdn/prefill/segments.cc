#include "runtime/gdn/prefill/segments.h"

#include <algorithm>
#include <cmath>

#include "common/chunk/segments.h"
#include "runtime/gdn/prefill/args.h"

namespace cubinery::gdn {
namespace {

// With batch_invariant, where the length must not depend on what else there is in the batch.
constexpr int kFixedTokens = 4096;
// A whole number of chunks of any size.
constexpr int kLeastTokens = 64;
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
      has_fixed_length_(problem.batch_invariant),
      segments_grow_slowly_(scan.wgmma),
      places_(std::max<std::int64_t>(
          std::int64_t{sm_count} * warps_per_sm / (problem.heads.count() * (scan.value_dim / 16)),
          1)) {}

int SegmentRule::chunks(std::int64_t tokens, std::int64_t longest) const {
  if (has_fixed_length_) return kFixedTokens / chunk_size_;
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
      {share(tokens, places_), share(longest, most), kLeastTokens / chunk_size_}));
}

std::int64_t SegmentRule::most_results(std::int64_t tokens, std::int64_t sequences) const {
  if (has_fixed_length_) return segment_results(tokens, kFixedTokens);
  const std::int64_t least = segment_results(tokens, kLeastTokens);
  // A sequence of average length or more has at most kMostSegments.
  const std::int64_t of_sequences = std::min(sequences, least) * kMostSegments;
  return std::min({least, places_, of_sequences});
}

}  // namespace cubinery::gdn
