#include "benchmarks/decode_rows.h"

#include <vector>

#include "benchmarks/operands.h"
#include "tuner/gdn/gdn_operators.h"

namespace cubinery::bench {

using gdn::CommitProblem;
using gdn::DecodeProblem;
using gdn::VerifyProblem;

DecodeProblem engine_problem(DType state_dtype, gdn::StateLayout layout) {
  DecodeProblem problem;
  problem.inputs.gate_dtype = problem.inputs.beta_dtype = DType::kBF16;
  problem.states.dtype = state_dtype;
  problem.states.layout = layout;
  problem.states.location = gdn::StateLocation::kPool;
  problem.states.padding = gdn::Padding::kSkip;
  problem.inputs.gate_mode = gdn::GateMode::kComputed;
  problem.inputs.beta_mode = gdn::BetaMode::kLogit;
  problem.inputs.use_qk_l2norm = true;
  return problem;
}

GdnOperands decode_operands(const Gpu& gpu, const DecodeProblem& problem, int batch) {
  return make_operands(gpu, as_prefill(problem),
                       {.lengths = std::vector<std::int64_t>(idx(batch), 1),
                        .data = {.gates = GateDistribution::kInit}});
}

VerifyProblem engine_verification(DType state_dtype, std::string_view stored, int tokens) {
  const DecodeProblem step = engine_problem(state_dtype, gdn::StateLayout::kVK);
  VerifyProblem problem;
  problem.inputs = step.inputs;
  problem.states = step.states;
  problem.max_tokens = tokens;
  problem.states.store = stored != "none";
  if (stored == "every") {  // to rows of a tensor, as the tuner's operands have them
    problem.stored_states = gdn::StoredStates::kEvery;
    problem.states.location = gdn::StateLocation::kDense;
    problem.states.padding = gdn::Padding::kNone;
  }
  return problem;
}

CommitProblem engine_commit(DType state_dtype, int tokens) {
  const DecodeProblem step = engine_problem(state_dtype, gdn::StateLayout::kVK);
  CommitProblem problem;
  problem.inputs = step.inputs;
  // Dense: each layer has states of its own, and sets of operands share a pool.
  problem.states.dtype = state_dtype;
  problem.states.layout = step.states.layout;
  problem.max_tokens = tokens;
  return problem;
}

GdnOperands commit_operands(const Gpu& gpu, const CommitProblem& problem, int batch, int tokens) {
  return make_operands(gpu, as_prefill(problem),
                       {.lengths = std::vector<std::int64_t>(idx(batch), tokens),
                        .data = {.gates = GateDistribution::kInit}});
}

GdnOperands verify_operands(const Gpu& gpu, const VerifyProblem& problem, int batch, int tokens) {
  return make_operands(gpu, as_prefill(problem),
                       {.lengths = std::vector<std::int64_t>(idx(batch), tokens),
                        .data = {.gates = GateDistribution::kInit}});
}

}  // namespace cubinery::bench
