// The harness of the decode operator: a decode step as a prefill, and what it stands for.
#pragma once

#include "harness/operator.h"

namespace cubinery {

// What a prefill that does the same as a decode step is made for.
GdnProblem as_prefill(const gdn::DecodeProblem& problem);
// Packed tensors with a dimension of one batch, [1, batch, ...], become [batch, 1, ...].
gdn::DecodeArgs as_decode(const GdnArgs& args);

// A decode step with a convolution in front as the two launches that it stands for.  Between them
// q, k and v lie in `rows`, device memory of [batch, channels] of dtype.
struct TwoLaunches {
  gdn::ConvProblem conv;
  gdn::DecodeProblem decode;
  gdn::ConvArgs conv_args{};
  gdn::DecodeArgs decode_args{};
};
TwoLaunches as_two_launches(const gdn::DecodeProblem& problem, const gdn::DecodeArgs& args,
                            void* rows);

// Of operators whose sequences are requests.
inline constexpr SizeInfo kBatchSize{"batch", "Decode, verify, commit, conv: requests of a launch",
                                     "1:256"};

template <>
struct HarnessOf<gdn::DecodeProblem> : RequestHarness<gdn::DecodeProblem, gdn::Decode> {
  static constexpr SizeInfo kSizes[] = {kBatchSize};

  static std::vector<Shape> shapes(const Problem&, const ShapeGrid& grid) { return batches(grid); }
  // Requires: a shape with the sizes above.  kInvalidArgument: they do not go together.
  static Result<Lengths> lengths(const Problem&, const Shape& shape) {
    return lengths_of_requests(gdn::kDecodeOp, shape, 1);
  }
  // What choices depend on.
  static Point point(const Problem& problem, const Lengths& lengths) {
    return gdn::point_of(problem, static_cast<std::int64_t>(lengths.size()));
  }

  static GdnProblem reference(const Problem& problem) { return as_prefill(problem); }

  // With arguments of reference().
  static Status launch(const Operator& decode, Stream stream, const GdnArgs& args,
                       const gdn::Workspace&) {
    return decode.launch(stream, as_decode(args));
  }
};

}  // namespace cubinery
