// From the shapes that the operators are tuned for to launches.  Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cubinery/fields.h"
#include "harness/operators.h"
#include "runtime/gdn/operators.h"
#include "runtime/operator/planner.h"

namespace cubinery {

// kInvalidArgument: 'gdn_prefill: shape "tokens=2;sequences=3": why'.
Status refused_shape(std::string_view op, const Shape& shape, std::string_view why);
// That a shape has all sizes that are not optional, and nothing else but heads.
Status check_sizes(std::string_view op, std::span<const SizeInfo> sizes, const Shape& shape);
// Replaces those that the shape has.
Status set_heads(std::string_view op, const Shape& shape, gdn::Heads* heads);

template <class Problem>
struct GdnShape {
  Problem problem;                    // with the shape's heads
  std::vector<std::int64_t> lengths;  // of the sequences, in tokens
  std::int64_t channels = 0;          // of a convolution
};

// Shapes have the operator's sizes (HarnessOf) and may have q_heads, k_heads and v_heads, in place
// of the problem's.  kInvalidArgument: a size that is missing, that the operator does not have or
// that the others do not allow; what check() of the problem says of the heads.
template <class Problem>
Result<GdnShape<Problem>> gdn_shape(const Problem& problem, const Shape& shape) {
  using Harness = HarnessOf<Problem>;
  constexpr std::string_view kOp = Fields<Problem>::kName;
  CUBINERY_RETURN_IF_ERROR(check_sizes(kOp, Harness::kSizes, shape));
  GdnShape<Problem> made{.problem = problem, .lengths = {}};
  CUBINERY_RETURN_IF_ERROR(set_heads(kOp, shape, &made.problem.heads));
  CUBINERY_RETURN_IF_ERROR(made.problem.check());
  Result<std::vector<std::int64_t>> lengths = Harness::lengths(made.problem, shape);
  if (!lengths) return std::move(lengths).error();
  made.lengths = *std::move(lengths);
  if constexpr (std::is_same_v<Problem, gdn::ConvProblem>) {
    made.channels = Harness::channels(made.problem, shape);
  }
  return made;
}

// What choices depend on.
template <class Problem>
Point point_of(const GdnShape<Problem>& shape) {
  if constexpr (std::is_same_v<Problem, gdn::ConvProblem>) {
    return HarnessOf<Problem>::point(shape.problem, shape.lengths, shape.channels);
  } else {
    return HarnessOf<Problem>::point(shape.problem, shape.lengths);
  }
}

// Under which results are found; the shape itself where the problem cannot have it.
template <class Problem>
Shape gdn_features(const Problem& problem, const Shape& shape) {
  const auto made = gdn_shape(problem, shape);
  if (!made) return shape;
  return features_at(made->problem, point_of(*made));
}

}  // namespace cubinery
