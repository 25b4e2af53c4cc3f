// Makes the kernels of a plan, several at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/plan.h"
#include "cubinery/context.h"
#include "cubinery/options.h"

namespace cubinery {

struct PrewarmSettings {
  std::size_t threads = 1;
  bool dry_run = false;  // only look what is there
  bool verify = false;   // read every entry again and check it
};

enum class OutcomeState { kNotStarted, kHit, kCompiled, kMissing, kFailed };
const char* to_string(OutcomeState state);

// What became of one job.
struct Outcome {
  OutcomeState state = OutcomeState::kNotStarted;
  KernelInfo info;
  std::string path;  // the entry, or where it would be
  std::uint64_t bytes = 0;
  std::string error;
  std::string log;  // the compiler's, of a failed compilation
};

// One context for each architecture of the jobs.  Errors of Context::create().
Result<std::map<std::string, Context>> make_contexts(const std::vector<Job>& jobs,
                                                     const Options& options);

// Whether what the cache lacks of the jobs can be compiled and stored: what is wrong with all of
// them is said once, before the first.  OK where nothing is missing.
Status check_can_make(const std::vector<Job>& jobs, const std::map<std::string, Context>& contexts,
                      const Options& options);

// The outcomes, in the order of the jobs; reports each to stderr, unless it only looks.  An
// interrupt (SIGINT) lets what is running finish and leaves the rest kNotStarted; a second one ends
// the process.
std::vector<Outcome> run_jobs(const std::vector<Job>& jobs,
                              const std::map<std::string, Context>& contexts,
                              const Options& options, const PrewarmSettings& settings);

}  // namespace cubinery
