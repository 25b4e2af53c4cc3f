// What the harness asks of each operator: everything else in harness, and the command line, go
// through HarnessOf.  Pure functions but for create() and launch().
//
// Operands and references are those of a prefill, but for a convolution's.  Another operator says
// which prefill does the same, and takes its arguments from that one's: a decode step is the
// prefill of packed sequences of one token each, and a verification that keeps every state the
// prefill of a few tokens with a checkpoint after each.  Of a tree, it is that of each token's
// path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "cubinery/tuning.h"
#include "harness/tensors.h"
#include "runtime/gdn/operators.h"

namespace cubinery {

// A size of an operator's shapes, beside those that all have: q_heads, k_heads and v_heads.
struct SizeInfo {
  std::string_view name;  // "max_seqlen"
  std::string_view help;  // of the command line
  // What the command line takes where it is not given: values (cli/shapes.h); of an optional one
  // words, HarnessOf::shapes() has the values.
  std::string_view otherwise;
  bool optional = false;  // shapes need not have it
};
// The values of each size that shapes are made of; an optional size may be missing.
using ShapeGrid = std::map<std::string, std::vector<std::int64_t>, std::less<>>;

// Of the sequences of a launch, in tokens.
using Lengths = std::vector<std::int64_t>;

// How an operator that goes token by token does it.
struct TokenSteps {
  std::int64_t most = 1;           // tokens of a sequence
  bool round_each_token = false;   // the state, to its dtype
  bool has_outputs = true;         // false: o is left alone
  std::optional<DType> parents{};  // sequences are trees, by parents of this dtype
};

// Specialised for the problem of each operator.
template <class Problem>
struct HarnessOf;

template <class P, class O>
struct OperatorHarness {
  using Problem = P;
  using Operator = O;

  // Whose operands and results are the same.
  static Problem reference(const Problem& problem) { return problem; }
  static TokenSteps steps(const Problem&) { return {}; }
  // What runs in place of a problem, with operands of reference().
  static Problem measured(const Problem& problem) { return problem; }
  // With one configuration.  Errors of Operator::create().
  template <class Harness = HarnessOf<Problem>>
  static Result<Operator> create(const Context& context, const Problem& problem,
                                 const Target& target, const std::vector<TunedValue>& values) {
    return Operator::create(context, Harness::measured(problem), target, values);
  }
};

// Of operators that need no workspace.
template <class P, class O>
struct RequestHarness : OperatorHarness<P, O> {
  // Tuned with new states in a tensor of their own.
  static bool separate_out(const P&) { return false; }
  static std::size_t workspace_bytes(const O&, const Lengths&) { return 0; }
  // That suffices for any configuration.
  static std::size_t most_workspace_bytes(const P&, const Target&, const Lengths&) { return 0; }
};

// Tensors that both have, by their names, and all numbers.
template <class To>
To copied_args(const GdnArgs& from) {
  To to;
  for (const auto& row : gdn::kTensorRows<To>) {
    const auto& same = gdn::row_of<GdnArgs>(row.id);
    if (same.id == row.id) row.in(to) = same.of(from);
  }
  std::apply([&](const auto&... number) { ((number.in(to) = number.in(from)), ...); },
             gdn::Numbers<To>::kList);
  return to;
}

// Parts of shapes() and lengths(): sequences and tokens of a launch are at most these, more than
// any GPU has memory for; products with heads and their sizes stay below 2^63.
inline constexpr std::int64_t kMostSequences = std::int64_t{1} << 22;
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;

// The values of a size; none where the grid lacks it.
Lengths values_in(const ShapeGrid& grid, std::string_view size);
// One for each of the grid's batches.
std::vector<Shape> batches(const ShapeGrid& grid);

Status check_most(std::string_view op, const Shape& shape, std::string_view size,
                  std::int64_t most);
// Of a shape with `batch`, of so many tokens each.
Result<Lengths> lengths_of_requests(std::string_view op, const Shape& shape, std::int64_t tokens);

// The sizes that the command line makes an operator's shapes of.
template <class Harness>
constexpr auto grid_sizes() {
  if constexpr (requires { Harness::kGridSizes; }) {
    return std::span(Harness::kGridSizes);
  } else {
    return std::span(Harness::kSizes);
  }
}

}  // namespace cubinery
