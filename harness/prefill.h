// The harness of the prefill operator, and of others that take its sizes.
#pragma once

#include "harness/operator.h"

namespace cubinery {

inline constexpr SizeInfo kTokensSize{"tokens", "Prefill, conv: tokens of all sequences",
                                      "512:32768"};
inline constexpr SizeInfo kSequencesSize{"sequences", "Prefill, conv: sequences, equally long",
                                         "1,4,8"};

// Of a shape with `tokens`, `sequences` and perhaps `max_seqlen`.
Result<Lengths> lengths_of(std::string_view op, bool varlen, const Shape& shape);
// Of sequences of these lengths.
gdn::PrefillSize size_of_launch(const Lengths& lengths);

template <>
struct HarnessOf<gdn::PrefillProblem> : OperatorHarness<gdn::PrefillProblem, gdn::Prefill> {
  // Without max_seqlen lengths differ by one at most, and not at all where sequences are dense;
  // with it, the first sequence has so many tokens and the others share the rest as evenly.
  static constexpr SizeInfo kSizes[] = {
      kTokensSize,
      kSequencesSize,
      {"max_seqlen",
       "Packed prefill: besides, one sequence has this many tokens and the others share the rest",
       "half of the tokens", /*optional=*/true}};

  // A sequence has a token at least, sequences that are not packed have equally many, and the
  // longest one has more than its share.
  static std::vector<Shape> shapes(const Problem& problem, const ShapeGrid& grid);
  static Result<Lengths> lengths(const Problem& problem, const Shape& shape) {
    return lengths_of(gdn::kPrefillOp, problem.varlen, shape);
  }
  static Point point(const Problem& problem, const Lengths& lengths) {
    return gdn::point_of(problem, size_of_launch(lengths));
  }

  // Dense states are written beside those that are read.
  static bool separate_out(const Problem& problem) {
    return problem.states.location == gdn::StateLocation::kDense;
  }

  static std::size_t workspace_bytes(const Operator& prefill, const Lengths& lengths) {
    return prefill.workspace_bytes(size_of_launch(lengths));
  }
  static std::size_t most_workspace_bytes(const Problem& problem, const Target& target,
                                          const Lengths& lengths);
  static Status launch(const Operator& prefill, Stream stream, const gdn::PrefillArgs& args,
                       const gdn::Workspace& workspace) {
    return prefill.launch(stream, args, workspace);
  }
};

}  // namespace cubinery
