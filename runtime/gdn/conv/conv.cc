// The convolution: plans, launches.
#include <algorithm>
#include <limits>

#include "runtime/gdn/conv/args.h"
#include "runtime/gdn/conv/paths.h"
#include "runtime/operator/operator.h"

namespace cubinery {

const std::vector<const gdn::ConvPath*>& OperatorOf<gdn::ConvProblem>::paths() {
  static const std::vector<const gdn::ConvPath*> kPaths = {&gdn::conv_portable()};
  return kPaths;
}

Sizes OperatorOf<gdn::ConvProblem>::sizes(const gdn::ConvProblem& problem) {
  Sizes sizes{
      .axes = {{.first = 0, .count = 13}, {.first = 0, .count = 18}, {.first = 8, .count = 9}},
      .possible = [](const Point& at) { return at; },
      .features =
          [](const Point& at) {
            return Shape{{"sequences", at[0]}, {"tokens", at[1]}, {"channels", at[2]}};
          }};
  if (problem.split_qkv) {
    sizes.axes.pop_back();
    sizes.possible = [channels = gdn::split_channels(problem)](const Point& at) {
      return Point{at[0], at[1], channels};
    };
  }
  return sizes;
}

namespace gdn {

Point point_of(const ConvProblem& problem, const ConvSize& size) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  const std::int64_t sequences = std::clamp<std::int64_t>(size.sequences, 1, kMost);
  const std::int64_t tokens = std::clamp<std::int64_t>(size.tokens, 1, kMost);
  const std::int64_t channels = problem.split_qkv ? split_channels(problem) : size.channels;
  return {sequences, (tokens - 1) / sequences + 1,
          std::clamp<std::int64_t>(channels, 1, kMaxChannels)};
}

Status Conv::launch(Stream stream, const ConvArgs& args) const {
  const ConvProblem& problem = state_->problem;
  ConvExtent extent;
  CUBINERY_RETURN_IF_ERROR(conv_extent(problem, args, &extent));
  GdnConvParams params{};
  CUBINERY_RETURN_IF_ERROR(bind_conv(problem, args, extent, &params));
  if (extent.sequences == 0 || extent.channels == 0) return {};
  return state_->runner(point_of(problem, extent.size()))
      .launch(stream, params, args.max_seqlen, args.enable_pdl);
}

}  // namespace gdn

template class Operator<gdn::ConvProblem, gdn::ConvSize>;
template class OneKernelOperator<gdn::ConvProblem, gdn::ConvSize>;
template class Planner<gdn::ConvProblem>;
template struct internal::ProblemMethods<gdn::ConvProblem>;

}  // namespace cubinery
