// What a Prefill operator shares.
#pragma once

#include <cstdint>
#include <vector>

#include "cubinery/gdn_prefill.h"
#include "runtime/gdn/prefill_args.h"
#include "runtime/gdn/prefill_plan.h"

namespace cubinery::gdn {

struct Prefill::State {
  PrefillProblem problem;
  PrefillPlan plan;
  std::vector<Kernel> chunks;  // of plan.chunks
  std::vector<Kernel> scans;   // of plan.scans
  int shared_heads = 1;        // the most heads that may share a block of `chunks`
  int sm_count = 0;
  bool programmatic = false;  // the device has programmatic launches

  // Records of a launch.
  std::int64_t slots(const PrefillExtent& extent) const;
};

// Prefill::create() with keys of the caller's choice for all sizes, for measurements.
// `always_share`: heads share blocks of the first kernel in small launches too, so that small ones
// can check it.
// Requires: problem.check() is OK and prefill_pair(problem, prefill_values(pair), ...) is `pair`.
Result<Prefill> create_prefill(const Context& context, const PrefillProblem& problem,
                               const PrefillPair& pair, bool always_share = false);

}  // namespace cubinery::gdn
