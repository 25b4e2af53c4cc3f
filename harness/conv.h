// The harness of the convolution.
#pragma once

#include "harness/verify.h"

namespace cubinery {

// Its reference is its own.
template <>
struct HarnessOf<gdn::ConvProblem> : RequestHarness<gdn::ConvProblem, gdn::Conv> {
  // Lengths differ by one at most, and not at all where sequences are dense.
  static constexpr SizeInfo kSizes[] = {
      kTokensSize,
      kSequencesSize,
      {"channels", "Conv without split_qkv: channels", "8192", /*optional=*/true}};
  // What the command line makes shapes of: steps of requests, which have one token but with
  // from_accepted, and without it a prefill's.
  static constexpr SizeInfo kGridSizes[] = {
      kTokensSize,
      kSequencesSize,
      kBatchSize,
      kTokensEachSize,
      {"channels", "Conv without split_qkv: channels", "8192"}};

  static std::vector<Shape> shapes(const Problem& problem, const ShapeGrid& grid);
  static Result<Lengths> lengths(const Problem& problem, const Shape& shape);
  // Requires: a shape that lengths() lets through.
  static std::int64_t channels(const Problem& problem, const Shape& shape);
  static Point point(const Problem& problem, const Lengths& lengths, std::int64_t channels);

  static Status launch(const Operator& conv, Stream stream, const gdn::ConvArgs& args,
                       const gdn::Workspace&) {
    return conv.launch(stream, args);
  }
};

}  // namespace cubinery
