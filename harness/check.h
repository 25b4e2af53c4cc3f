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
#include "harness/case.h"
#include "harness/operators.h"

namespace cubinery {

// Few heads, in about the same groups: of at most `most_in_group`.
gdn::Heads small_heads(const gdn::Heads& heads, int most_in_group = 4);
// The problem with those, and checkpoints that lie close: what
// kernels are compiled for stays the same.
GdnProblem small_problem(const GdnProblem& problem);

// What a launch's results are as a share of their budgets: Check::error is the largest, and the
// limit 1.  `name`: of the launch.
void add_error(const Deviation& deviation, std::string_view tensor, std::string_view name,
               Check* check);
void add_fault(std::string_view fault, std::string_view name, Check* check);
inline void add_errors(const GdnVerdict& verdict, std::string_view name, Check* check) {
  add_error(verdict.errors.o, "o", name, check);
  add_error(verdict.errors.state, "state", name, check);
  add_error(verdict.errors.checkpoints, "checkpoints", name, check);
}

// A small launch and what it must give.
template <class Data, class Reference>
struct CheckCase {
  std::string name;  // "init gates, key correlation 0.9"
  Data data;
  Reference reference;
};

// Uploads each case and launches it with each of `launches`, by launch(stream, args, number of the
// case, number of the launch).  Errors are those of the launches and of the device.
template <class Case, class Launch>
Result<Check> run_cases(const std::shared_ptr<const Device>& device, const std::vector<Case>& cases,
                        std::size_t launches, const Launch& launch) {
  const Result<DeviceStream> stream = DeviceStream::create(device);
  if (!stream) return stream.error().clone();
  Check check{.limit = 1};
  GdnDeviceMemory memory;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [name, data, reference] = cases[i];
    CUBINERY_RETURN_IF_ERROR(memory.resize(device, data.memory()));
    for (std::size_t j = 0; j < launches; ++j) {
      CUBINERY_RETURN_IF_ERROR(memory.upload(data.memory()));
      CUBINERY_RETURN_IF_ERROR(launch(stream->get(), data.args(memory.addresses()), i, j));
      CUBINERY_RETURN_IF_ERROR(stream->synchronize());
      const Result<GdnMemory> after = memory.download();
      if (!after) return after.error().clone();
      const auto verdict = data.check(*after, reference);
      add_errors(verdict, name, &check);
      add_fault(verdict.fault, name, &check);
    }
  }
  return check;
}

// Of each launch: lengths around the boundaries of chunks; a chunk_size of 0: as many tokens as
// there are steps, and fewer.
std::vector<std::int64_t> check_lengths(const GdnProblem& problem, int chunk_size,
                                        const TokenSteps& steps = {});
// The case with these lengths; of a pool, its second sequence is padding.
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
  // As run_cases().  References are computed by the first call with a chunk size.
  Result<Check> run(int chunk_size, const Launch& launch);

 private:
  using Case = CheckCase<GdnCase, std::vector<GdnReference>>;

  const std::vector<Case>& cases(int chunk_size);

  std::shared_ptr<const Device> device_;
  GdnProblem problem_;
  TokenSteps steps_;
  std::map<int, std::vector<Case>> cases_;  // by chunk size
};

}  // namespace cubinery
