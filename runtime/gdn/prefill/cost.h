// The cost model of prefill, all paths: the choice where nothing was measured.  Pure functions;
// docs/design.md says how good they are.
#pragma once

#include <cstdint>

#include "gdn_prefill_chunks/key.h"
#include "gdn_prefill_scan/key.h"
#include "results/target.h"
#include "runtime/gdn/prefill/segments.h"

namespace cubinery::gdn {

// Sizes of one prefill launch.
struct PrefillLoad {
  std::int64_t sequences = 1;
  std::int64_t length = 1;   // tokens of a sequence, on average
  std::int64_t longest = 1;  // tokens of the longest sequence
};

// Heads that share a block of the first kernel in a launch of so many slots (chunks of all
// sequences), when at most `shared_heads` may: the most that leave a block for every
// multiprocessor.
int heads_per_block(std::int64_t slots, int heads, int shared_heads, int sm_count);

// Whether the scan's blocks, as many as multiprocessors at most, each go from one sequence and head
// to the next: where it makes its WY factors and sequences are short.  A block's start takes as
// long as five chunks.  Else each has a block, and starts where another one has ended.
bool blocks_stay(const GdnPrefillScanKey& scan, std::int64_t tokens, std::int64_t sequences);

// What launches of both kernels cost, behind each other.
class PrefillCost {
 public:
  // `shared_heads`: the most that may share a block of the first kernel.
  PrefillCost(const GdnPrefillChunksKey& chunks, const GdnPrefillScanKey& scan, int heads,
              int shared_heads, const Target& target);

  // Microseconds of one launch.
  double us(const PrefillLoad& load) const;
  // The same with sequences cut into segments.
  double split_us(const SegmentRule& rule, const PrefillLoad& load) const;

 private:
  // How many segments a sequence has: on average, the longest one.
  struct Pieces {
    std::int64_t segments, longest;
  };

  // Where the scan makes its WY factors.
  double fused_split_us(const Pieces& pieces, const PrefillLoad& load) const;
  double chunks_us(const PrefillLoad& load) const;
  double scan_us(const PrefillLoad& load) const;

  GdnPrefillChunksKey chunks_;
  GdnPrefillScanKey scan_;
  int heads_;
  int shared_heads_;
  Target target_;
  double copy_rate_;
  double chunks_resident_;  // blocks of a multiprocessor
  double wy_bytes_;         // of a chunk and head, by the first kernel
  // Of the second kernel: blocks of a multiprocessor, and of a head.
  double resident_;
  double slices_;
  bool is_deep_;
  // Cycles for a chunk: of a block by itself; of the multiprocessor for each block; and of these
  // for its copies.
  double lone_, block_, copy_;
  double row_bytes_;    // of a chunk and head
  double state_bytes_;  // of a sequence and head
};

}  // namespace cubinery::gdn
