// From problems to the kernels that they need.  Pure functions.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/asked_kernel.h"
#include "cli/left_out.h"
#include "cli/model_config.h"
#include "cli/shard.h"
#include "cubinery/fields.h"
#include "cubinery/status.h"
#include "runtime/registry/operators.h"

namespace cubinery {

// One kernel for one architecture, and how many problems want it: head counts are not in a kernel's
// key, so that several tensor-parallel sizes share it.
struct Job {
  AskedKernel kernel;
  std::string arch;
  std::size_t problems = 0;
};

// Results by operator: what tuning may make operators launch.
using ResultsByOperator = std::map<std::string, KnownResults, std::less<>>;

// Each kernel once, in the order in which architectures and problems name it first.  A request with
// an architecture of its own wants its kernels for that one only; one that may be left out, and
// that no path computes there, wants none where another stands in: it goes to *left_out.  Operators
// that `results` does not have get those inside the library.  kInvalidArgument: a request's
// architecture is not known; errors of kernels().  `paths`: Options::paths.
Result<std::vector<Job>> plan_jobs(const std::vector<Request>& requests,
                                   const std::vector<std::string>& archs,
                                   const ResultsByOperator& results = {},
                                   const std::vector<std::string>& paths = {},
                                   LeftOuts* left_out = nullptr);

// The shard's share of the jobs: ranked by the digest of kernel and architecture, whatever order
// they come in, and dealt round robin.  The shards of one list are disjoint, cover it, and differ
// by at most one job in size.
std::vector<Job> select_shard(std::vector<Job> jobs, const Shard& shard);

}  // namespace cubinery
