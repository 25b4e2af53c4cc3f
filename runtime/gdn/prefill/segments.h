// How long the segments are that long sequences are cut into (common/chunk/segments.h).
#pragma once

#include <cstdint>

#include "cubinery/fields.h"
#include "cubinery/gdn_prefill.h"
#include "gdn_prefill_scan/key.h"

namespace cubinery {
namespace gdn {

// A whole number of chunks of any size: what a segment has at least, and what
// PrefillProblem::segment_tokens is a multiple of.
inline constexpr int kSegmentUnit = 64;

// What decides how long segments are.  No kernel's key.
struct SegmentChoice {
  int warps_per_sm = 8;  // of the scan, that a launch aims at
};

inline const char* why_invalid(const SegmentChoice&) { return nullptr; }

}  // namespace gdn

template <>
struct Fields<gdn::SegmentChoice> {
  static constexpr const char* kName = "segments";
  static constexpr auto kList =
      field_table(tuned_bits<&gdn::SegmentChoice::warps_per_sm>(2, 4, 6, 8, 10, 12, 16, 24));
};

namespace gdn {

// Of one configuration on one GPU.
class SegmentRule {
 public:
  // As many segments as give every multiprocessor `warps_per_sm` warps of the scan, at most 32 of a
  // sequence.  With batch_invariant and context_parallel always the same length.
  SegmentRule(const PrefillProblem& problem, const GdnPrefillScanKey& scan, int warps_per_sm,
              int sm_count);

  // Chunks of a segment, at most, in a launch of so many tokens, `longest` of them in the longest
  // sequence, as far as that is known.
  int chunks(std::int64_t tokens, std::int64_t longest) const;
  // Segments with results (common/chunk/segments.h) of any launch of at most so many tokens and
  // sequences.
  std::int64_t most_results(std::int64_t tokens, std::int64_t sequences) const;

 private:
  int chunk_size_;
  int fixed_tokens_;  // of a segment; 0: that depends on the launch
  bool keeps_all_states_;
  bool segments_grow_slowly_;
  std::int64_t places_;  // for segments, on all multiprocessors
};

}  // namespace gdn
}  // namespace cubinery
