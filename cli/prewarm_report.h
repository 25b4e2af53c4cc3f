// What prewarm says at its end.  Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/left_out.h"
#include "cli/prewarm_run.h"

namespace cubinery {

struct PrewarmReport {
  const std::vector<Job>& jobs;
  const std::vector<Outcome>& outcomes;  // of the jobs, in their order
  std::size_t problems = 0;              // that the whole list came from
  const Shard& shard;                    // of that list
  const LeftOuts& left_out;              // besides them
  std::string cache_dir;
  double seconds = 0;
  std::size_t threads = 1;  // that compile
  bool dry_run = false;
  bool verbose = false;  // a dry run lists the kernels
  bool interrupted = false;
};

std::size_t count(const PrewarmReport& report, OutcomeState state);

// About how long it takes to compile what is missing.
double seconds_to_compile(const PrewarmReport& report);

// The errors, a table with one row per architecture and kernel, and the totals.
std::string report_text(const PrewarmReport& report);
nlohmann::ordered_json report_json(const PrewarmReport& report);

}  // namespace cubinery
