// What the library knows of the verify operator.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "common/verify_params.h"
#include "cubinery/gdn_verify.h"
#include "runtime/gdn/verify/args.h"
#include "runtime/gdn/verify/tables.h"
#include "runtime/operator/planner.h"

namespace cubinery {

namespace gdn {

// The problem with the fields that the others leave without meaning at their defaults, and
// draft_tokens as kernels know it.
VerifyProblem normalised(VerifyProblem problem);

// One configuration of the operator, loaded.  Immutable.
class VerifyRunner {
 public:
  virtual ~VerifyRunner() = default;
  virtual const Kernel& kernel() const = 0;
  // Checks the arguments of a launch of at least one request, and launches.
  virtual Status launch(Stream stream, const VerifyArgs& args,
                        const LaunchExtent& extent) const = 0;
};

using VerifyPath = Path<VerifyProblem, VerifyRunner>;

// (states, tokens of a request): packed requests count as long as their average, rounded up.
Point point_of(const VerifyProblem& problem, const VerifySize& size);

}  // namespace gdn

template <>
struct OperatorOf<gdn::VerifyProblem> {
  using Runner = gdn::VerifyRunner;
  static const std::vector<const gdn::VerifyPath*>& paths();
  // Along the states, requests x heads, and along the tokens of a request.
  static Sizes sizes(const gdn::VerifyProblem& problem);
};

// Beside the operator.
extern template class Planner<gdn::VerifyProblem>;

}  // namespace cubinery
