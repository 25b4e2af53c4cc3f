// A prefill on ranks: the steps of a launch, and what is exchanged between them.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "codegen/identity.h"
#include "cubinery/ranks.h"
#include "runtime/gdn/prefill/operator.h"
#include "runtime/gdn/shared/problem_check.h"

namespace cubinery::gdn {
namespace {

struct Row {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// Row `number` of an array of states.
Status find_row(const Tensor& states, std::string_view name, std::int64_t number, Row* row) {
  const auto& shape = states.shape;
  const auto& strides = states.strides;
  const bool is_whole = states.rank == 4 && states.dtype == DType::kF32 && strides[3] == 1 &&
                        strides[2] == shape[3] && strides[1] == shape[2] * shape[3];
  if (!is_whole || number < 0 || number >= shape[0]) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: {} is no array of {} or more rows without gaps, which ranks "
                              "exchange; accepted: f32 [N, heads, rows, columns]",
                              kPrefillOp, name, number + 1));
  }
  *row = {.data = static_cast<float*>(states.data) + number * strides[0],
          .bytes = static_cast<std::size_t>(shape[1] * strides[1]) * sizeof(float)};
  return {};
}

// What must be the same on all ranks.
std::uint64_t number_of(const PrefillProblem& problem) {
  std::uint64_t number = 0;
  for (const char c : digest_of(problem.to_json()).substr(0, 16)) {
    number = number * 16 + static_cast<std::uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  return number;
}

}  // namespace

Result<RankPrefill> RankPrefill::create(Prefill prefill, std::shared_ptr<Ranks> ranks) {
  const PrefillProblem& problem = prefill.problem();
  // In front of what one rank alone may refuse: the others would wait.
  const Result<bool> agreed = ranks->agree(number_of(problem));
  if (!agreed) return agreed.error().clone();
  if (!*agreed) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{}: another rank has another problem than {}", kPrefillOp, problem.to_json()));
  }
  if (!problem.context_parallel) {
    return bad_field(kPrefillOp, "context_parallel", "false", "true, for a prefill on ranks");
  }
  if (problem.states.location != StateLocation::kDense) {
    return bad_field(kPrefillOp, "state_location", value_text(problem.states.location),
                     "dense, for a prefill on ranks");
  }
  return RankPrefill(std::move(prefill), std::move(ranks));
}

Status RankPrefill::launch(Stream stream, const PrefillArgs& args, const Workspace& workspace,
                           const RankNeighbours& neighbours) const {
  PrefillArgs step = args;
  step.continues = neighbours.source.has_value();
  const Tensor& last = args.state_out.present() ? args.state_out : args.state;
  const bool is_packed = prefill_.problem().varlen && args.cu_seqlens.rank == 1;
  const std::int64_t sequences = is_packed ? args.cu_seqlens.shape[0] - 1 : args.q.shape[0];
  // Checked in front of the first launch.
  Row received, passed_on;
  if (neighbours.source) {
    CUBINERY_RETURN_IF_ERROR(find_row(args.state, "state", 0, &received));
  }
  if (neighbours.target) {
    const std::string_view name = args.state_out.present() ? "state_out" : "state";
    CUBINERY_RETURN_IF_ERROR(find_row(last, name, sequences - 1, &passed_on));
  }
  step.step = 1;
  CUBINERY_RETURN_IF_ERROR(prefill_.launch(stream, step, workspace));
  if (neighbours.source) {
    CUBINERY_RETURN_IF_ERROR(
        ranks_->receive(stream, received.data, received.bytes, *neighbours.source));
  }
  step.step = 2;
  CUBINERY_RETURN_IF_ERROR(prefill_.launch(stream, step, workspace));
  if (neighbours.target) {
    CUBINERY_RETURN_IF_ERROR(
        ranks_->send(stream, passed_on.data, passed_on.bytes, *neighbours.target));
  }
  step.step = 3;
  return prefill_.launch(stream, step, workspace);
}

}  // namespace cubinery::gdn
