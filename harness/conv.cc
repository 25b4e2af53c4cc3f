#include "harness/conv.h"

#include <optional>

#include "harness/shapes.h"
#include "results/shape.h"

namespace cubinery {

using gdn::ConvProblem;

std::vector<Shape> HarnessOf<ConvProblem>::shapes(const ConvProblem& problem,
                                                  const ShapeGrid& grid) {
  std::vector<Shape> shapes;
  const Lengths channels = problem.split_qkv ? Lengths{} : values_in(grid, "channels");
  const auto add = [&](std::int64_t tokens, std::int64_t sequences) {
    if (tokens < sequences || (!problem.varlen && tokens % sequences != 0)) return;
    const Shape shape = {{"tokens", tokens}, {"sequences", sequences}};
    if (problem.split_qkv) shapes.push_back(shape);
    for (const std::int64_t count : channels) {
      shapes.push_back(shape);
      shapes.back().push_back({"channels", count});
    }
  };
  for (const std::int64_t requests : values_in(grid, "batch")) {
    const Lengths tokens = problem.from_accepted ? values_in(grid, "tokens_each") : Lengths{1};
    for (const std::int64_t each : tokens) add(requests * each, requests);
  }
  if (problem.from_accepted) return shapes;
  for (const std::int64_t sequences : values_in(grid, "sequences")) {
    for (const std::int64_t tokens : values_in(grid, "tokens")) add(tokens, sequences);
  }
  return shapes;
}

Result<Lengths> HarnessOf<ConvProblem>::lengths(const ConvProblem& problem, const Shape& shape) {
  const std::optional<std::int64_t> channels = size_in(shape, "channels");
  if (problem.split_qkv && channels) {
    return refused_shape(gdn::kConvOp, shape,
                         "channels are those of q, k and v, split_qkv is true");
  }
  if (!problem.split_qkv) {
    if (!channels) return refused_shape(gdn::kConvOp, shape, "channels is missing");
    CUBINERY_RETURN_IF_ERROR(check_most(gdn::kConvOp, shape, "channels", gdn::kMaxChannels));
  }
  return lengths_of(gdn::kConvOp, problem.varlen, shape);
}

std::int64_t HarnessOf<ConvProblem>::channels(const ConvProblem& problem, const Shape& shape) {
  return problem.split_qkv ? split_channels(problem) : *size_in(shape, "channels");
}

Point HarnessOf<ConvProblem>::point(const ConvProblem& problem, const Lengths& lengths,
                                    std::int64_t channels) {
  const gdn::PrefillSize size = size_of_launch(lengths);
  return gdn::point_of(problem,
                       {.sequences = size.sequences, .tokens = size.tokens, .channels = channels});
}

}  // namespace cubinery
