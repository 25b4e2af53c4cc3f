// From the arguments of one prefill to the parameters of its kernels.
#pragma once

#include <cstdint>

#include "cubinery/gdn_prefill.h"
#include "gdn_prefill_chunks/key.h"
#include "gdn_prefill_scan/key.h"
#include "results/target.h"
#include "runtime/gdn/shared/extent.h"

namespace cubinery::gdn {

struct PrefillExtent : LaunchExtent {
  // Tokens of the longest sequence; varlen: max_seqlen, but no less than the average.
  std::int64_t longest = 0;
};

// What grids can hold.
struct PrefillLimits {
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;  // of all sequences
};

PrefillLimits prefill_limits(const PrefillProblem& problem, int chunk_size);

// From the shapes of q and cu_seqlens; kInvalidArgument when they have none or pass the limits.
Status prefill_extent(const PrefillProblem& problem, const PrefillArgs& args,
                      const PrefillLimits& limits, PrefillExtent* extent);

struct PrefillParams {
  GdnPrefillChunksParams chunks{};
  GdnPrefillScanParams scan{};
};

// Checks every tensor and fills everything but the workspace and the geometry of the grid.
Status bind_prefill(const PrefillProblem& problem, const PrefillArgs& args,
                    const PrefillExtent& extent, PrefillParams* params);

}  // namespace cubinery::gdn
