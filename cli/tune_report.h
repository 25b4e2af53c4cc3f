// What `cubinery tune` says at its end.  Pure functions.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/left_out.h"
#include "cli/shard.h"
#include "cli/tune_run.h"

namespace cubinery {

// What a run is, or would be, about.
struct TuneReport {
  std::string arch;
  std::string gpu;  // its name; empty: none was asked
  Shard shard{};
  LeftOuts left_out{};
  std::chrono::milliseconds budget{0};
  double seconds = 0;
  bool interrupted = false;
  bool verbose = false;  // a dry run lists the buckets
};

// Of a dry run: a line for each space, or its buckets, and the totals.
std::string plan_text(const std::vector<TuneSpace>& plan, const TuneReport& report);
nlohmann::ordered_json plan_json(const std::vector<TuneSpace>& plan, const TuneReport& report);

// Of a run: what was chosen for every bucket, and the totals.
std::string run_text(const TuneOutcome& run, const TuneReport& report);
nlohmann::ordered_json run_json(const TuneOutcome& run, const TuneReport& report);

}  // namespace cubinery
