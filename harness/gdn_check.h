// Whether a configuration of a Gated DeltaNet operator computes what it should: small launches of
// every distribution of the data, against the references next to the kernels.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cubinery/tuning.h"
#include "harness/gdn_case.h"
#include "harness/gdn_operators.h"

namespace cubinery {

// Few heads, in about the same groups: of at most `most_in_group`.
gdn::Heads small_heads(const gdn::Heads& heads, int most_in_group = 4);
// The problem with those, and checkpoints that lie close: what
// kernels are compiled for stays the same.
GdnProblem small_problem(const GdnProblem& problem);

// Adds the error of a tensor, as a share of its budget: Check::error is the largest.  `name`: of
// the launch.
void add_error(const Deviation& deviation, std::string_view tensor, std::string_view name,
               Check* check);

// Of each launch: lengths around the boundaries of chunks; a chunk_size of 0: as many tokens as
// there are steps, and fewer.
std::vector<std::int64_t> check_lengths(const GdnProblem& problem, int chunk_size,
                                        const TokenSteps& steps = {});
// The case with these lengths; its second sequence is padding where the problem has any.
GdnCase check_case(const GdnProblem& problem, const DataOptions& data, int chunk_size,
                   const TokenSteps& steps = {});

// For one thread at a time.
class GdnCheck {
 public:
  // Launches of `problem`, which is taken as it is: see small_problem().
  GdnCheck(std::shared_ptr<const Device> device, const GdnProblem& problem,
           const TokenSteps& steps = {})
      : device_(std::move(device)), problem_(problem), steps_(steps) {}

  const GdnProblem& problem() const { return problem_; }

  // Enqueues the launch number `launch`, from 0.
  using Launch = std::function<Status(Stream, const GdnArgs&, std::size_t launch)>;
  // Check::error is the worst error of any tensor as a share of its budget, and the limit 1.
  // References are computed by the first call with a chunk size.  Errors are those of the launch
  // and of the device.
  Result<Check> run(int chunk_size, const Launch& launch);

 private:
  struct Case {
    std::string name;  // "init gates, key correlation 0.9"
    GdnCase data;
    std::vector<GdnReference> references;
  };

  const std::vector<Case>& cases(int chunk_size);

  std::shared_ptr<const Device> device_;
  GdnProblem problem_;
  TokenSteps steps_;
  std::map<int, std::vector<Case>> cases_;  // by chunk size
};

}  // namespace cubinery
