#include "benchmarks/decode_rows.h"

#include <vector>

#include "benchmarks/operands.h"

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

GdnOperands request_operands(const Gpu& gpu, const GdnProblem& same, int batch, int tokens) {
  return make_operands(gpu, same,
                       {.lengths = std::vector<std::int64_t>(idx(batch), tokens),
                        .data = {.gates = GateDistribution::kInit}});
}

nlohmann::ordered_json timed_members(const Chosen& chosen, const Timing& ms, double bytes,
                                     double copy_tb_s) {
  const double floor_ms = bytes / (copy_tb_s * 1e9);
  return {{"tuned", chosen.configuration},
          {"rung", to_string(chosen.rung)},
          {"ms", significant(ms.median)},
          {"ms_p10", significant(ms.p10)},
          {"ms_p90", significant(ms.p90)},
          {"byte_floor_ms", significant(floor_ms)},
          {"copy_rate_share", significant(floor_ms / ms.median)}};
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

}  // namespace cubinery::bench
