// The harness of verifications and commits: both as a prefill.
#pragma once

#include <optional>

#include "harness/decode.h"
#include "harness/prefill.h"

namespace cubinery {

GdnProblem as_prefill(const gdn::VerifyProblem& problem);
// Requires of StoredStates::kEvery: dense states and tokens.
gdn::VerifyArgs as_verify(const gdn::VerifyProblem& problem, const GdnArgs& args);

// The dtype of a tree's; nothing of a chain.
inline std::optional<DType> parents_of(const gdn::VerifyProblem& problem) {
  return problem.tree ? std::optional(problem.parents_dtype) : std::nullopt;
}

// One layer, all of whose tokens are accepted.
gdn::PrefillProblem as_prefill(const gdn::CommitProblem& problem);
gdn::CommitArgs as_commit(const GdnArgs& args);

inline constexpr SizeInfo kTokensEachSize{
    "tokens_each", "Verify, conv with from_accepted: tokens of a request", "1:16"};

template <>
struct HarnessOf<gdn::VerifyProblem> : RequestHarness<gdn::VerifyProblem, gdn::Verify> {
  static constexpr SizeInfo kSizes[] = {kBatchSize, kTokensEachSize};

  // Requests have at most draft_tokens.
  static std::vector<Shape> shapes(const Problem& problem, const ShapeGrid& grid);
  static Result<Lengths> lengths(const Problem& problem, const Shape& shape);
  static Point point(const Problem& problem, const Lengths& lengths);

  // Of the same speed, and with operands that a prefill has too.  Counts of accepted tokens only
  // choose which state is read, and where every state is kept, it is in rows of a tensor instead of
  // slots of a pool.
  static Problem measured(Problem problem);
  static GdnProblem reference(const Problem& problem) { return as_prefill(measured(problem)); }
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
  static Result<Lengths> lengths(const Problem& problem, const Shape& shape) {
    return lengths_of_requests(gdn::kCommitOp, shape, problem.draft_tokens);
  }
  static Point point(const Problem& problem, const Lengths& lengths) {
    return gdn::point_of(problem, {.requests = static_cast<std::int64_t>(lengths.size())});
  }

  static gdn::PrefillProblem reference(const Problem& problem) { return as_prefill(problem); }
  static TokenSteps steps(const Problem& problem) {
    return {.most = problem.draft_tokens, .has_outputs = false};
  }

  static Status launch(const Operator& commit, Stream stream, const GdnArgs& args,
                       const gdn::Workspace&) {
    return commit.launch(stream, as_commit(args));
  }
};

}  // namespace cubinery
