// The commit operator: plans, tables, launches.
#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/gdn/shared/requests.h"
#include "runtime/gdn/verify/commit_args.h"
#include "runtime/gdn/verify/commit_paths.h"
#include "runtime/operator/operator.h"
#include "runtime/operator/tensor_check.h"

namespace cubinery {

const std::vector<const gdn::CommitPath*>& OperatorOf<gdn::CommitProblem>::paths() {
  static const std::vector<const gdn::CommitPath*> kPaths = {&gdn::commit_wy()};
  return kPaths;
}

Sizes OperatorOf<gdn::CommitProblem>::sizes(const gdn::CommitProblem& problem) {
  return gdn::sizes_of_states(problem.heads, 40);
}

namespace gdn {

Point point_of(const CommitProblem& problem, const CommitSize& size) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  const std::int64_t layers = std::clamp<std::int64_t>(size.layers, 1, kMost);
  const std::int64_t requests = std::clamp<std::int64_t>(size.requests, 1, kMost);
  return {std::min(layers, kMost / requests) * requests * problem.heads.count(), 1, 1};
}

Result<std::vector<std::int64_t>> Commit::table(const std::vector<CommitLayer>& layers) const {
  if (layers.empty()) return invalid({kCommitOp, "layers"}, "is empty; accepted: 1 or more");
  std::vector<std::int64_t> words(layers.size() * kLayerWords);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    GdnCommitLayer record{};
    CUBINERY_RETURN_IF_ERROR(of_layer(i, bind_layer(state_->problem, layers[i], &record)));
    std::memcpy(&words[i * kLayerWords], &record, sizeof record);
  }
  return words;
}

Status Commit::launch(Stream stream, const CommitArgs& args) const {
  GdnCommitParams params{};
  CUBINERY_RETURN_IF_ERROR(bind_commit(state_->problem, args, &params));
  if (params.requests == 0) return {};
  const CommitSize size{.layers = params.layers, .requests = params.requests};
  return state_->runner(point_of(state_->problem, size)).launch(stream, params, args.enable_pdl);
}

}  // namespace gdn

template class Operator<gdn::CommitProblem, gdn::CommitSize>;
template class OneKernelOperator<gdn::CommitProblem, gdn::CommitSize>;
template class Planner<gdn::CommitProblem>;
template struct internal::ProblemMethods<gdn::CommitProblem>;

}  // namespace cubinery
