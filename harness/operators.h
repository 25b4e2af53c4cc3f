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
#include <vector>

#include "cubinery/gdn.h"
#include "cubinery/tuning.h"
#include "harness/tensors.h"
#include "runtime/gdn/conv/operator.h"
#include "runtime/gdn/decode/operator.h"
#include "runtime/gdn/prefill/operator.h"
#include "runtime/gdn/verify/commit_operator.h"
#include "runtime/gdn/verify/operator.h"

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
// Of operators whose sequences are requests.
inline constexpr SizeInfo kBatchSize{"batch", "Decode, verify, commit, conv: requests of a launch",
                                     "1:256"};
inline constexpr SizeInfo kTokensEachSize{
    "tokens_each", "Verify, conv with from_accepted: tokens of a request", "1:16"};
inline constexpr SizeInfo kTokensSize{"tokens", "Prefill, conv: tokens of all sequences",
                                      "512:32768"};
inline constexpr SizeInfo kSequencesSize{"sequences", "Prefill, conv: sequences, equally long",
                                         "1,4,8"};
// The values of each size that shapes are made of; an optional size may be missing.
using ShapeGrid = std::map<std::string, std::vector<std::int64_t>, std::less<>>;

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

gdn::PrefillProblem as_prefill(const gdn::VerifyProblem& problem);
// Requires of StoredStates::kEvery: dense states and tokens.
gdn::VerifyArgs as_verify(const gdn::VerifyProblem& problem, const GdnArgs& args);

// The dtype of a tree's; nothing of a chain.
inline std::optional<DType> parents_of(const gdn::VerifyProblem& problem) {
  return problem.tree ? std::optional(problem.parents_dtype) : std::nullopt;
}

// One layer, all of whose tokens are accepted.
gdn::PrefillProblem as_prefill(const gdn::CommitProblem& problem);
gdn::CommitArgs as_commit(const GdnArgs& args);

// How an operator that goes token by token does it.
struct TokenSteps {
  std::int64_t most = 1;           // tokens of a sequence
  bool round_each_token = false;   // the state, to its dtype
  bool has_outputs = true;         // false: o is left alone
  std::optional<DType> parents{};  // sequences are trees, by parents of this dtype
};

// Specialised for the problem of each operator.  `lengths`: of the sequences of a launch, in
// tokens.
template <class Problem>
struct HarnessOf;

template <class P, class O>
struct OperatorHarness {
  using Problem = P;
  using Operator = O;

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
  static std::size_t workspace_bytes(const O&, const std::vector<std::int64_t>&) { return 0; }
  // That suffices for any configuration.
  static std::size_t most_workspace_bytes(const P&, const Target&,
                                          const std::vector<std::int64_t>&) {
    return 0;
  }
};

// One for each of the grid's batches.
std::vector<Shape> batches(const ShapeGrid& grid);

template <>
struct HarnessOf<gdn::DecodeProblem> : RequestHarness<gdn::DecodeProblem, gdn::Decode> {
  static constexpr SizeInfo kSizes[] = {kBatchSize};

  static std::vector<Shape> shapes(const Problem&, const ShapeGrid& grid) { return batches(grid); }
  // Requires: a shape with the sizes above.  kInvalidArgument: they do not go together.
  static Result<std::vector<std::int64_t>> lengths(const Problem& problem, const Shape& shape);
  // What choices depend on.
  static Point point(const Problem& problem, const std::vector<std::int64_t>& lengths);

  // Whose operands and results are the same.
  static GdnProblem reference(const Problem& problem) { return as_prefill(problem); }
  static TokenSteps steps(const Problem&) { return {}; }

  // With arguments of reference().
  static Status launch(const Operator& decode, Stream stream, const GdnArgs& args,
                       const gdn::Workspace&) {
    return decode.launch(stream, as_decode(args));
  }
};

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
  static Result<std::vector<std::int64_t>> lengths(const Problem& problem, const Shape& shape);
  static Point point(const Problem& problem, const std::vector<std::int64_t>& lengths);

  static gdn::PrefillProblem reference(const Problem& problem) { return problem; }
  static TokenSteps steps(const Problem&) { return {}; }
  // Dense states are written beside those that are read.
  static bool separate_out(const Problem& problem) {
    return problem.states.location == gdn::StateLocation::kDense;
  }

  static std::size_t workspace_bytes(const Operator& prefill,
                                     const std::vector<std::int64_t>& lengths);
  static std::size_t most_workspace_bytes(const Problem& problem, const Target& target,
                                          const std::vector<std::int64_t>& lengths);
  static Status launch(const Operator& prefill, Stream stream, const gdn::PrefillArgs& args,
                       const gdn::Workspace& workspace) {
    return prefill.launch(stream, args, workspace);
  }
};

template <>
struct HarnessOf<gdn::VerifyProblem> : RequestHarness<gdn::VerifyProblem, gdn::Verify> {
  static constexpr SizeInfo kSizes[] = {kBatchSize, kTokensEachSize};

  // Requests have at most draft_tokens.
  static std::vector<Shape> shapes(const Problem& problem, const ShapeGrid& grid);
  static Result<std::vector<std::int64_t>> lengths(const Problem& problem, const Shape& shape);
  static Point point(const Problem& problem, const std::vector<std::int64_t>& lengths);

  // Of the same speed, and with operands that a prefill has too.  Counts of accepted tokens only
  // choose which state is read, and where every state is kept, it is in rows of a tensor instead of
  // slots of a pool.
  static Problem measured(Problem problem);
  static gdn::PrefillProblem reference(const Problem& problem) {
    return as_prefill(measured(problem));
  }
  static TokenSteps steps(const Problem& problem) {
    return {.most = problem.draft_tokens,
            .round_each_token = problem.round_each_token,
            .parents = parents_of(problem)};
  }

  static Status launch(const Operator& verify, Stream stream, const GdnArgs& args,
                       const gdn::Workspace&) {
    return verify.launch(stream, as_verify(verify.problem(), args));
  }
};

template <>
struct HarnessOf<gdn::CommitProblem> : RequestHarness<gdn::CommitProblem, gdn::Commit> {
  static constexpr SizeInfo kSizes[] = {kBatchSize};

  // Requests have draft_tokens, which cost as much as one does.
  static std::vector<Shape> shapes(const Problem&, const ShapeGrid& grid) { return batches(grid); }
  static Result<std::vector<std::int64_t>> lengths(const Problem& problem, const Shape& shape);
  static Point point(const Problem& problem, const std::vector<std::int64_t>& lengths);

  static gdn::PrefillProblem reference(const Problem& problem) { return as_prefill(problem); }
  static TokenSteps steps(const Problem& problem) {
    return {.most = problem.draft_tokens, .has_outputs = false};
  }

  static Status launch(const Operator& commit, Stream stream, const GdnArgs& args,
                       const gdn::Workspace&) {
    return commit.launch(stream, as_commit(args));
  }
};

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
  static Result<std::vector<std::int64_t>> lengths(const Problem& problem, const Shape& shape);
  // Requires: a shape that lengths() lets through.
  static std::int64_t channels(const Problem& problem, const Shape& shape);
  static Point point(const Problem& problem, const std::vector<std::int64_t>& lengths,
                     std::int64_t channels);

  static Problem reference(const Problem& problem) { return problem; }
  static TokenSteps steps(const Problem&) { return {}; }

  static Status launch(const Operator& conv, Stream stream, const gdn::ConvArgs& args,
                       const gdn::Workspace&) {
    return conv.launch(stream, args);
  }
};

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
