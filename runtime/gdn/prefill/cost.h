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
  int heads = 1;
  int shared_heads = 1;  // the most that may share a block of the first kernel
};

// Heads that share a block of the first kernel in a launch of so many slots (chunks of all
// sequences), when at most `shared_heads` may: the most that leave a block for every
// multiprocessor.
int heads_per_block(std::int64_t slots, int heads, int shared_heads, int sm_count);

// Whether the scan's blocks, as many as multiprocessors at most, each go from one sequence and head
// to the next: where it makes its WY factors and sequences are short.  A block's start takes as
// long as five chunks.  Else each has a block, and starts where another one has ended.
bool blocks_stay(const GdnPrefillScanKey& scan, std::int64_t tokens, std::int64_t sequences);

// Microseconds of one prefill launch: of both kernels, behind each other.
double prefill_us(const GdnPrefillChunksKey& chunks, const GdnPrefillScanKey& scan,
                  const PrefillLoad& load, const Target& target);

// The same with sequences cut into segments.
double split_prefill_us(const GdnPrefillChunksKey& chunks, const GdnPrefillScanKey& scan,
                        const SegmentRule& rule, const PrefillLoad& load, const Target& target);

}  // namespace cubinery::gdn
