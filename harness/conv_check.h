// Whether a configuration of a convolution computes what it should: small launches of sequences of
// all kinds, against the reference next to the kernel.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cubinery/tuning.h"
#include "harness/check.h"
#include "harness/conv_case.h"

namespace cubinery {

// The problem with few heads, in about the same groups: what kernels are compiled for stays the
// same.
gdn::ConvProblem small_problem(const gdn::ConvProblem& problem);

using ConvCheckCase = CheckCase<ConvCase, ConvReference>;
// Lengths from 0 on, of which runs of every size have some on both sides of their boundaries; new
// and continued sequences, decoding steps, and padding in pools.
std::vector<ConvCheckCase> conv_check_cases(const gdn::ConvProblem& problem);
// Those of their launches.
std::vector<gdn::ConvSize> conv_check_sizes(const gdn::ConvProblem& problem);

inline void add_errors(const ConvVerdict& verdict, std::string_view name, Check* check) {
  for (const ConvVerdict::Error& error : verdict.errors) {
    add_error(error.deviation, info_of<gdn::ConvArgs>(error.tensor).name, name, check);
  }
}

// For one thread at a time.
class ConvCheck {
 public:
  // Launches of `problem`, which is taken as it is: see small_problem().
  ConvCheck(std::shared_ptr<const Device> device, const gdn::ConvProblem& problem)
      : device_(std::move(device)), problem_(problem) {}

  const gdn::ConvProblem& problem() const { return problem_; }

  // Enqueues a launch.
  using Launch = std::function<Status(Stream, const gdn::ConvArgs&)>;
  // As run_cases(): every case once with each of `launches`, and packed ones again with a hint of
  // short sequences.  References are computed by the first call.
  Result<Check> run(const std::vector<Launch>& launches);

 private:
  std::shared_ptr<const Device> device_;
  gdn::ConvProblem problem_;
  std::vector<ConvCheckCase> cases_;
};

}  // namespace cubinery
