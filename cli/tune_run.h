// Measures what was planned, space by space.
#pragma once

#include <string>
#include <vector>

#include "cli/tune_plan.h"
#include "cubinery/context.h"
#include "cubinery/status.h"
#include "cubinery/tuning.h"

namespace cubinery {

// What became of one bucket.
struct TunedBucket {
  PlannedShape planned;
  TunedShape tuned;
  std::string chosen;     // configurations, as to_text() prints them
  std::string otherwise;  // the default
};

struct TunedSpace {
  TuneSpace plan;
  std::vector<TunedBucket> buckets{};  // none before the first call for it
  // Configurations, over all buckets: in this run, before it, and not to be used.
  std::size_t measured = 0, reused = 0, rejected = 0;
  bool stopped = false;  // by the budget or an interrupt
};

struct TuneOutcome {
  std::vector<TunedSpace> spaces;
  std::string directory;
  Status error;  // what ended the run, if anything did
};

// Tunes every space of the plan.  They share the budget (cli/budget.h) in proportion to their
// buckets.  An interrupt (SIGINT) lets the measurement that is running finish and writes what is
// decided; a second one ends the process.  Reports to stderr.
TuneOutcome run_tuning(const Context& context, std::vector<TuneSpace> plan,
                       const TuneSettings& settings);

}  // namespace cubinery
