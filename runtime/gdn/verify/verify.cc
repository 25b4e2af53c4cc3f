// The verify operator: plans, launches.
#include "cubinery/gdn_verify.h"

#include <algorithm>
#include <limits>

#include "runtime/gdn/verify/args.h"
#include "runtime/gdn/verify/paths.h"
#include "runtime/operator/operator.h"

namespace cubinery {

const std::vector<const gdn::VerifyPath*>& OperatorOf<gdn::VerifyProblem>::paths() {
  static const std::vector<const gdn::VerifyPath*> kPaths = {&gdn::verify_portable(),
                                                             &gdn::verify_wy()};
  return kPaths;
}

Sizes OperatorOf<gdn::VerifyProblem>::sizes(const gdn::VerifyProblem& problem) {
  // Up to 2^31 states, and 1 to 16 tokens of a request.
  return {.axes = {{.first = 0, .count = 32}, {.first = 0, .count = 5}},
          // A launch has whole requests, none of more than draft_tokens.
          .possible =
              [heads = std::int64_t{problem.heads.count()},
               most = std::int64_t{problem.draft_tokens}](const Point& at) {
                return Point{std::max(at[0], heads), std::min(at[1], most), 1};
              },
          .features =
              [](const Point& at) {
                return Shape{{"states", at[0]}, {"tokens", at[1]}};
              }};
}

namespace gdn {

Point point_of(const VerifyProblem& problem, const VerifySize& size) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  const std::int64_t requests = std::clamp<std::int64_t>(size.requests, 1, kMost);
  const std::int64_t tokens = std::clamp<std::int64_t>(size.tokens, 1, kMost);
  const std::int64_t average = (tokens - 1) / requests + 1;
  return {requests * problem.heads.count(), std::min<std::int64_t>(average, problem.draft_tokens),
          1};
}

Status Verify::launch(Stream stream, const VerifyArgs& args) const {
  const VerifyProblem& problem = state_->problem;
  LaunchExtent extent;
  CUBINERY_RETURN_IF_ERROR(verify_extent(problem, args, &extent));
  if (extent.sequences == 0) return {};
  const VerifySize size{.requests = extent.sequences, .tokens = extent.all_tokens()};
  return state_->runner(point_of(problem, size)).launch(stream, args, extent);
}

}  // namespace gdn

template class Operator<gdn::VerifyProblem, gdn::VerifySize>;
template class OneKernelOperator<gdn::VerifyProblem, gdn::VerifySize>;
template class Planner<gdn::VerifyProblem>;
template struct internal::ProblemMethods<gdn::VerifyProblem>;

}  // namespace cubinery
