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
  std::vector<TunedBucket> buckets;  // of the calls that were made
};

struct TuneOutcome {
  std::vector<TunedSpace> spaces;
  std::size_t measured = 0, reused = 0, rejected = 0;  // configurations, over all buckets
  std::string directory;
  bool stopped = false;  // by the budget or an interrupt
  Status error;          // what ended the run, if anything did
};

// Tunes every space of the plan.  Each space gets a share of the budget in proportion to its
// buckets, and what those in front of it left over.  An interrupt (SIGINT) lets the measurement
// that is running finish and writes what is decided; a second one ends the process.  Reports to
// stderr.
TuneOutcome run_tuning(const Context& context, std::vector<TuneSpace> plan,
                       const TuneSettings& settings);

}  // namespace cubinery
