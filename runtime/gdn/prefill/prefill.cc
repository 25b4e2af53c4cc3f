// The prefill operator: plans, launches.
#include "cubinery/gdn_prefill.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "runtime/gdn/prefill/paths.h"
#include "runtime/gdn/shared/problem_check.h"
#include "runtime/operator/operator.h"
#include "runtime/operator/tensor_check.h"

namespace cubinery {
namespace {

// Powers of two that have cells: 1 to 1024 sequences, 16 to 131072 tokens, 1 to 32 times the
// average.
const std::vector<Axis> kAxes = {
    {.first = 0, .count = 11}, {.first = 4, .count = 14}, {.first = 0, .count = 6}};

}  // namespace

const std::vector<const gdn::PrefillPath*>& OperatorOf<gdn::PrefillProblem>::paths() {
  static const std::vector<const gdn::PrefillPath*> kPaths = {
      &gdn::prefill_portable(),     &gdn::prefill_segments(),
      &gdn::prefill_hopper(),       &gdn::prefill_hopper_segments(),
      &gdn::prefill_hopper_fused(), &gdn::prefill_hopper_fused_segments()};
  return kPaths;
}

// hopper is faster than portable for all but the smallest launches, and hopper_fused only for those
// that fill the GPU.  The paths with segments run where the problem asks for them, and others do
// not.
const std::vector<const gdn::PrefillPath*>& OperatorOf<gdn::PrefillProblem>::invariant_paths() {
  static const std::vector<const gdn::PrefillPath*> kPaths = {
      &gdn::prefill_hopper(), &gdn::prefill_portable(), &gdn::prefill_hopper_segments(),
      &gdn::prefill_segments()};
  return kPaths;
}

Sizes OperatorOf<gdn::PrefillProblem>::sizes(const gdn::PrefillProblem& problem) {
  const int heads = problem.heads.count(), group = heads / problem.heads.k;
  return {
      .axes = kAxes,
      // No sequence is longer than all of them; dense ones are equally long.
      .possible =
          [varlen = problem.varlen](const Point& at) {
            return Point{at[0], at[1], std::min(at[2], varlen ? at[0] : 1)};
          },
      .features =
          [heads, group](const Point& at) {
            return Shape{
                {"states", at[0] * heads}, {"length", at[1]}, {"skew", at[2]}, {"group", group}};
          }};
}

OperatorState<gdn::PrefillProblem>::OperatorState(Loaded<gdn::PrefillProblem> loaded)
    : Loaded(std::move(loaded)), limits(runners.front()->limits()) {
  for (const auto& runner : runners) {
    limits.sequences = std::min(limits.sequences, runner->limits().sequences);
    limits.tokens = std::min(limits.tokens, runner->limits().tokens);
  }
}

namespace gdn {
namespace {

Status check_max_seqlen(std::int64_t max_seqlen, std::int64_t tokens) {
  if (max_seqlen >= 0 && max_seqlen <= tokens) return {};
  return bad_field(kPrefillOp, "max_seqlen", std::to_string(max_seqlen),
                   fmt::format("0 to {}, the tokens that there are", tokens));
}

Status check_step(const PrefillProblem& problem, const PrefillArgs& args) {
  const int most = problem.context_parallel ? 3 : 0;
  if (args.step < 0 || args.step > most) {
    return bad_field(kPrefillOp, "step", std::to_string(args.step),
                     most > 0 ? "0 to 3" : "0, without context_parallel");
  }
  if (args.continues && !problem.context_parallel) {
    return bad_field(kPrefillOp, "continues", "1", "0, without context_parallel");
  }
  return {};
}

}  // namespace

Point point_of(const PrefillProblem&, const PrefillSize& size) {
  const std::int64_t sequences = std::max<std::int64_t>(size.sequences, 1);
  const std::int64_t length = int_ceil_div(std::max<std::int64_t>(size.tokens, 1), sequences);
  return {sequences, length, std::max<std::int64_t>(int_ceil_div(size.max_seqlen, length), 1)};
}

int shared_heads(const PrefillProblem& problem) {
  if (problem.inputs.decay == Decay::kChannel) return 1;
  const Heads& heads = problem.heads;
  const int group = std::gcd(heads.count() / heads.q, heads.count() / heads.k);
  int shared = std::min(group, kMaxHeadsPerBlock);
  while (group % shared != 0) --shared;
  return shared;
}

Status check_workspace(const Workspace& workspace, std::size_t needed) {
  const TensorName name{kPrefillOp, "workspace"};
  if (workspace.bytes < needed) {
    return invalid(name, fmt::format("has {} bytes; accepted: at least {}, workspace_bytes() of "
                                     "this size",
                                     workspace.bytes, needed));
  }
  if (workspace.data == nullptr && needed > 0) {
    return invalid(name, "is null; accepted: a device pointer");
  }
  if (reinterpret_cast<std::uintptr_t>(workspace.data) % kWorkspaceAlignment != 0) {
    return invalid(name, fmt::format("at {} is misaligned; accepted: a multiple of {} bytes",
                                     fmt::ptr(workspace.data), kWorkspaceAlignment));
  }
  return {};
}

// Which configuration a launch runs depends on its max_seqlen.
std::size_t Prefill::workspace_bytes(const PrefillSize& size) const {
  const std::int64_t tokens = std::max<std::int64_t>(size.tokens, 0);
  const std::int64_t sequences = std::max<std::int64_t>(size.sequences, 0);
  std::size_t most = 0;
  for (const auto& runner : state_->runners) {
    most = std::max(most, runner->workspace_bytes(tokens, sequences));
  }
  return most;
}

Status Prefill::launch(Stream stream, const PrefillArgs& args, const Workspace& workspace) const {
  const PrefillProblem& problem = state_->problem;
  PrefillExtent extent;
  CUBINERY_RETURN_IF_ERROR(prefill_extent(problem, args, state_->limits, &extent));
  if (extent.sequences == 0) return {};
  CUBINERY_RETURN_IF_ERROR(check_max_seqlen(args.max_seqlen, extent.tokens));
  CUBINERY_RETURN_IF_ERROR(check_step(problem, args));
  const PrefillSize size{
      .tokens = extent.all_tokens(), .sequences = extent.sequences, .max_seqlen = args.max_seqlen};
  return state_->runner(point_of(problem, size)).launch(stream, args, extent, workspace);
}

}  // namespace gdn

template class Operator<gdn::PrefillProblem, gdn::PrefillSize>;
template class Planner<gdn::PrefillProblem>;
template struct internal::ProblemMethods<gdn::PrefillProblem>;

}  // namespace cubinery
