// The convolution: plans, launches.
#include <algorithm>
#include <limits>

#include "runtime/gdn/conv/args.h"
#include "runtime/gdn/conv/operator.h"
#include "runtime/gdn/conv/portable.h"
#include "runtime/gdn/conv/state.h"

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

Result<Conv> Conv::create(const Context& context, const ConvProblem& problem) {
  return made<Conv>(load_operator(context, problem));
}

Result<std::vector<CompiledKernel>> Conv::compile(const Context& context,
                                                  const ConvProblem& problem) {
  return compile_operator(context, problem);
}

Result<Conv> create_conv(const Context& context, const ConvProblem& problem, const Target& target,
                         const std::vector<TunedValue>& values) {
  return made<Conv>(load_configuration(context, problem, target, values));
}

const ConvProblem& Conv::problem() const& { return state_->problem; }

const Kernel& Conv::kernel(const ConvSize& size) const& {
  return state_->runner(point_of(state_->problem, size)).kernel();
}

Chosen Conv::choice(const ConvSize& size) const {
  return state_->plan.chosen(point_of(state_->problem, size));
}

Status Conv::launch(Stream stream, const ConvArgs& args) const {
  const ConvProblem& problem = state_->problem;
  ConvExtent extent;
  CUBINERY_RETURN_IF_ERROR(conv_extent(problem, args, &extent));
  GdnConvParams params{};
  CUBINERY_RETURN_IF_ERROR(bind_conv(problem, args, extent, &params));
  if (extent.sequences == 0 || extent.channels == 0) return {};
  return state_->runner(point_of(problem, extent.size(problem.varlen)))
      .launch(stream, params, args.max_seqlen, args.programmatic);
}

}  // namespace gdn
}  // namespace cubinery
