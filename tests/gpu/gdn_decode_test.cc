// GDN decode against the double-precision reference: dtypes, modes, heads, dimensions, batches. One
// named case per rule.
#include <vector>

#include "harness/random.h"
#include "tests/gpu/cases.h"
#include "tests/gpu/decode_sweeps.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test::gdn_decode_test {
namespace {

using gdn::DecodeProblem;
using gdn::GateMode;
using gdn::StateLayout;

constexpr std::int64_t kSmallBatch = 3;

TEST_CASE("GdnDecode.EveryOperandAndOutputDtype", "[gpu][sanitize]") {
  run_both_kernels(operand_and_output_dtypes(small_problem()));
}

TEST_CASE("GdnDecode.EveryStateDtypeAndLayout", "[gpu][sanitize]") {
  run_both_kernels(state_dtypes_and_layouts(small_problem(), decode_state_dtypes()));
}

TEST_CASE("GdnDecode.EveryGateModeAndDtype", "[gpu][sanitize]") {
  run_cases(gate_modes_and_dtypes(small_problem()), kSmallBatch);
}

TEST_CASE("GdnDecode.EveryBetaModeAndDtype", "[gpu][sanitize]") {
  run_cases(beta_modes_and_dtypes(small_problem()), kSmallBatch);
}

TEST_CASE("GdnDecode.EveryGateDistribution", "[gpu]") {
  std::vector<DecodeProblem> problems;
  for (const GateMode mode : {GateMode::kLog, GateMode::kAlpha, GateMode::kComputed}) {
    problems.emplace_back(small_problem()).inputs.gate_mode = mode;
  }
  for (const GateDistribution gates :
       {GateDistribution::kStrong, GateDistribution::kQwen, GateDistribution::kUndecayed,
        GateDistribution::kInit, GateDistribution::kExtreme}) {
    CaseOptions options;
    options.gates = gates;
    run_both_kernels(problems, options);
  }
}

TEST_CASE("GdnDecode.NormalisesKeysAndQueries", "[gpu]") {
  std::vector<DecodeProblem> problems;
  for (const DType dtype : kFloats) {
    for (const StateLayout layout : kLayouts) {
      DecodeProblem& problem = problems.emplace_back(small_problem());
      problem.inputs.use_qk_l2norm = true;
      problem.dtype = dtype;
      problem.states.layout = layout;
    }
  }
  run_cases(problems, kSmallBatch);
  CaseOptions strong;
  strong.gates = GateDistribution::kStrong;
  run_both_kernels(problems, strong);
}
TEST_CASE("GdnDecode.EveryHeadRatio", "[gpu]") { run_both_kernels(head_ratios(small_problem())); }

DecodeProblem with_dims(int key_dim, int value_dim, StateLayout layout, DType state_dtype) {
  DecodeProblem problem = small_problem();
  problem.key_dim = key_dim;
  problem.value_dim = value_dim;
  problem.states.layout = layout;
  problem.states.dtype = state_dtype;
  return problem;
}

// Every layout x state dtype of the pairs, by both kernels.
void run_dims(const std::vector<std::pair<int, int>>& dims) {
  std::vector<DecodeProblem> problems;
  for (const auto& [key_dim, value_dim] : dims) {
    for (const StateLayout layout : kLayouts) {
      for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
        problems.push_back(with_dims(key_dim, value_dim, layout, state_dtype));
      }
    }
  }
  run_both_kernels(problems);
}

TEST_CASE("GdnDecode.EveryKeyDim", "[gpu][big]") {
  std::vector<std::pair<int, int>> dims;
  for (int dim = 16; dim <= 256; dim += 16) dims.emplace_back(dim, 128);
  run_dims(dims);
}

TEST_CASE("GdnDecode.EveryValueDim", "[gpu][big]") {
  std::vector<std::pair<int, int>> dims;
  for (int dim = 16; dim <= 256; dim += 16) dims.emplace_back(128, dim);
  run_dims(dims);
}

TEST_CASE("GdnDecode.RandomPairsOfDims", "[gpu][big]") {
  Random random(seed(), 77);
  std::vector<std::pair<int, int>> dims{{16, 16}, {256, 256}, {16, 256}, {256, 16}};
  for (int i = 0; i < 8; ++i) {
    const auto dim = [&] { return static_cast<int>(16 * (1 + random.below(16))); };
    const int key_dim = dim();
    dims.emplace_back(key_dim, dim());
  }
  run_dims(dims);
}

TEST_CASE("GdnDecode.TakesTheScaleItIsGiven", "[gpu]") {
  for (const float scale : {1.0f, 0.25f, -3.0f, 0.0f}) {
    CaseOptions options;
    options.scale = scale;
    run_case(small_problem(), kSmallBatch, options);
  }
}

TEST_CASE("GdnDecode.WithoutInitialStateTheStateIsNotRead", "[gpu]") {
  for (const StateLayout layout : kLayouts) {
    for (const DType dtype : decode_state_dtypes()) {
      DecodeProblem problem = small_problem();
      problem.states.has_initial = false;
      problem.states.layout = layout;
      problem.states.dtype = dtype;
      run_both_kernels({problem});  // the state is NaN before the launch
    }
  }
}

TEST_CASE("GdnDecode.WithoutStoreTheStateIsNotWritten", "[gpu]") {
  for (const StateLayout layout : kLayouts) {
    DecodeProblem problem = small_problem();
    problem.states.store = false;
    problem.states.layout = layout;
    run_both_kernels({problem});
  }
}

TEST_CASE("GdnDecode.WithoutAnyState", "[gpu]") {
  DecodeProblem problem = small_problem();
  problem.states.has_initial = false;
  problem.states.store = false;
  run_case(problem, kSmallBatch);
}

TEST_CASE("GdnDecode.EveryBatchSize", "[gpu]") {
  for (const StateLayout layout : kLayouts) {
    DecodeProblem problem = small_problem();
    problem.key_dim = problem.value_dim = 128;
    problem.states.layout = layout;
    for (const std::int64_t batch : {0, 1, 2, 3, 7, 32, 257}) run_case(problem, batch);
  }
}
TEST_CASE("GdnDecode.QwenInAnEngine", "[gpu][big]") {
  CaseOptions options;
  options.gates = GateDistribution::kInit;
  options.placement = Placement::kPackedRows;
  std::vector<DecodeProblem> problems;
  for (const DType state_dtype : decode_state_dtypes()) {
    for (const StateLayout layout : kLayouts) {
      problems.push_back(engine_problem<DecodeProblem>(state_dtype, layout));
    }
  }
  run_batches(problems, {1, 20}, options);
}

}  // namespace
}  // namespace cubinery::test::gdn_decode_test
