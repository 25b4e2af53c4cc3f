#include "harness/verify.h"

#include "results/shape.h"
#include "runtime/operator/keyed_path.h"

namespace cubinery {

using gdn::CommitProblem;
using gdn::PrefillProblem;
using gdn::PrefillSize;
using gdn::VerifyProblem;

GdnProblem as_prefill(const VerifyProblem& problem) {
  PrefillProblem plain;
  copy_fields(problem, &plain);
  GdnProblem same = plain;
  same.output_norm = problem.output_norm;
  same.norm_weight_dtype = problem.norm_weight_dtype;
  if (stores_every(problem)) {
    same.states.store = false;
    same.checkpoints = gdn::Checkpoints::kAfter;
    same.checkpoint_every = 1;
  }
  return same;
}

gdn::VerifyArgs as_verify(const VerifyProblem& problem, const GdnArgs& args) {
  auto same = copied_args<gdn::VerifyArgs>(args);
  if (!stores_every(problem)) return same;
  // [B T, ...] as [B, T, ...]
  const Tensor& rows = args.checkpoints;
  const std::int64_t tokens = args.q.shape[1];
  same.state_out = rows;
  same.state_out.rank = 5;
  same.state_out.shape = {args.q.shape[0], tokens, rows.shape[1], rows.shape[2], rows.shape[3]};
  same.state_out.strides = {tokens * rows.strides[0], rows.strides[0], rows.strides[1],
                            rows.strides[2], rows.strides[3]};
  return same;
}

std::vector<Shape> HarnessOf<VerifyProblem>::shapes(const VerifyProblem& problem,
                                                    const ShapeGrid& grid) {
  std::vector<Shape> shapes;
  for (const std::int64_t requests : values_in(grid, "batch")) {
    for (const std::int64_t tokens : values_in(grid, "tokens_each")) {
      if (tokens > problem.draft_tokens) continue;
      shapes.push_back({{"batch", requests}, {"tokens_each", tokens}});
    }
  }
  return shapes;
}

Result<Lengths> HarnessOf<VerifyProblem>::lengths(const VerifyProblem& problem,
                                                  const Shape& shape) {
  CUBINERY_RETURN_IF_ERROR(check_most(gdn::kVerifyOp, shape, "tokens_each", problem.draft_tokens));
  return lengths_of_requests(gdn::kVerifyOp, shape, *size_in(shape, "tokens_each"));
}

Point HarnessOf<VerifyProblem>::point(const VerifyProblem& problem, const Lengths& lengths) {
  const PrefillSize size = size_of_launch(lengths);
  return gdn::point_of(problem, {.requests = size.sequences, .tokens = size.tokens});
}

VerifyProblem HarnessOf<VerifyProblem>::measured(VerifyProblem problem) {
  problem.from_accepted = false;
  if (!stores_every(problem)) return problem;
  problem.varlen = false;
  problem.states.location = gdn::StateLocation::kDense;
  return problem;
}

PrefillProblem as_prefill(const CommitProblem& problem) {
  PrefillProblem same;
  copy_fields(problem, &same);
  same.output_dtype = problem.dtype;
  return same;
}

gdn::CommitArgs as_commit(const GdnArgs& args) { return copied_args<gdn::CommitArgs>(args); }

}  // namespace cubinery
