// GDN prefill against the double-precision reference: dtypes, modes, heads, dimensions, lengths.
// One named case per rule.
#include <vector>

#include "harness/random.h"
#include "tests/gpu/cases.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test {
namespace {

using gdn::PrefillProblem;
using gdn::StateLayout;

// Three chunks and a piece of one.
const CaseShape kShape = uniform(2, 203);

TEST_CASE("GdnPrefill.EveryOperandAndOutputDtype", "[gpu][prefill][sanitize]") {
  run_cases(operand_and_output_dtypes(small_prefill()), kShape);
}

TEST_CASE("GdnPrefill.EveryStateDtypeAndLayout", "[gpu][prefill][sanitize]") {
  run_cases(state_dtypes_and_layouts(small_prefill()), kShape);
}

TEST_CASE("GdnPrefill.EveryGateModeAndDtype", "[gpu][prefill][sanitize]") {
  run_cases(gate_modes_and_dtypes(small_prefill()), kShape);
}

TEST_CASE("GdnPrefill.EveryBetaModeAndDtype", "[gpu][prefill][sanitize]") {
  run_cases(beta_modes_and_dtypes(small_prefill()), kShape);
}

TEST_CASE("GdnPrefill.NormalisesKeysAndQueries", "[gpu][prefill]") {
  std::vector<PrefillProblem> problems;
  for (const DType dtype : kFloats) {
    PrefillProblem& problem = problems.emplace_back(small_prefill());
    problem.inputs.use_qk_l2norm = true;
    problem.dtype = dtype;
  }
  run_cases(problems, kShape);
  CaseOptions strong;
  strong.gates = GateDistribution::kStrong;
  run_cases(problems, kShape, strong);
}

TEST_CASE("GdnPrefill.TakesTheScaleItIsGiven", "[gpu][prefill]") {
  for (const float scale : {1.0f, 0.25f, -3.0f, 0.0f}) {
    CaseOptions options;
    options.scale = scale;
    run_case(small_prefill(), kShape, options);
  }
}
TEST_CASE("GdnPrefill.EveryHeadRatio", "[gpu][prefill]") {
  run_cases(head_ratios(small_prefill()), uniform(2, 75));
  run_cases(head_ratios(small_varlen()), uniform(2, 75));
}

// Many heads: blocks may take several heads of a group at once.
TEST_CASE("GdnPrefill.ManyHeadsOfAGroup", "[gpu][prefill]") {
  for (const int v_heads : {16, 24, 40}) {
    PrefillProblem problem = small_prefill();
    problem.heads.v = v_heads;
    run_case(problem, uniform(17, 130));
    run_case(problem, uniform(40, 130));
  }
}

// One dimension runs over every size, the other stays.
void run_dims(const std::vector<std::pair<int, int>>& dims, DType dtype) {
  std::vector<PrefillProblem> problems;
  for (const auto& [key_dim, value_dim] : dims) {
    PrefillProblem& problem = problems.emplace_back(small_prefill());
    problem.dtype = problem.output_dtype = dtype;
    problem.key_dim = key_dim;
    problem.value_dim = value_dim;
    problem.states.layout = problems.size() % 2 == 0 ? StateLayout::kKV : StateLayout::kVK;
  }
  run_cases(problems, uniform(2, 150));
}

TEST_CASE("GdnPrefill.EveryKeyDim", "[gpu][prefill][slow]") {
  std::vector<std::pair<int, int>> dims;
  for (int dim = 16; dim <= 256; dim += 16) dims.emplace_back(dim, 64);
  run_dims(dims, DType::kBF16);
}

TEST_CASE("GdnPrefill.EveryValueDim", "[gpu][prefill][slow]") {
  std::vector<std::pair<int, int>> dims;
  for (int dim = 16; dim <= 256; dim += 16) dims.emplace_back(64, dim);
  run_dims(dims, DType::kBF16);
}

TEST_CASE("GdnPrefill.PairsOfDims", "[gpu][prefill][slow]") {
  const std::vector<std::pair<int, int>> dims{{16, 16},   {128, 128}, {96, 96},  {192, 192},
                                              {256, 256}, {16, 256},  {256, 16}, {192, 96},
                                              {96, 192},  {112, 48},  {256, 128}};
  run_dims(dims, DType::kBF16);
  run_dims({{16, 16}, {128, 128}, {96, 192}, {256, 256}, {240, 48}}, DType::kF32);
  run_dims({{128, 128}, {256, 256}}, DType::kF16);
}

TEST_CASE("GdnPrefill.WithoutInitialStateTheStateIsNotRead", "[gpu][prefill]") {
  std::vector<PrefillProblem> problems;
  for (const bool varlen : {false, true}) {
    for (const bool store_state : {true, false}) {
      PrefillProblem& problem = problems.emplace_back(small_prefill());
      problem.varlen = varlen;
      problem.states.has_initial = false;  // the state is NaN before the launch
      problem.states.store = store_state;
    }
  }
  run_cases(problems, kShape);
  run_cases(problems, uniform(2, 0));
}

TEST_CASE("GdnPrefill.WithoutStoreTheStateIsNotWritten", "[gpu][prefill]") {
  for (const StateLayout layout : kLayouts) {
    PrefillProblem problem = small_prefill();
    problem.states.store = false;
    problem.states.layout = layout;
    run_case(problem, kShape);
  }
}

TEST_CASE("GdnPrefill.EveryLength", "[gpu][prefill]") {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    PrefillProblem problem = small_prefill();
    problem.dtype = problem.output_dtype = dtype;
    for (const std::int64_t length : kBoundaryLengths) run_case(problem, uniform(2, length));
    PrefillProblem varlen = problem;
    varlen.varlen = true;
    run_case(varlen, {.lengths = kBoundaryLengths});
  }
}

TEST_CASE("GdnPrefill.NoSequences", "[gpu][prefill]") {
  run_case(small_prefill(), {});
  run_case(small_varlen(), {.tail = 10});
}

// Every small batch, with every relation of the heads.
TEST_CASE("GdnPrefill.ExhaustiveSmallShapes", "[gpu][prefill]") {
  constexpr std::pair<int, int> kHeads[] = {{1, 1}, {1, 2}, {2, 1}};  // of q and k, of v
  for (const auto& [key_heads, v_heads] : kHeads) {
    PrefillProblem problem = small_prefill();
    problem.heads.q = problem.heads.k = key_heads;
    problem.heads.v = v_heads;
    problem.key_dim = problem.value_dim = 16;
    for (std::int64_t batch = 1; batch <= 3; ++batch) {
      for (std::int64_t length = 0; length <= 40; ++length) {
        run_case(problem, uniform(batch, length));
      }
    }
    problem.varlen = true;
    std::vector<std::int64_t> lengths = Random(seed(), 5).permutation(0, 41);
    run_case(problem, {.lengths = lengths, .lead = 3, .tail = 5});
  }
}
TEST_CASE("GdnPrefill.QwenInAnEngine", "[gpu][prefill][slow]") {
  CaseOptions options;
  options.gates = GateDistribution::kInit;
  options.placement = Placement::kPackedRows;
  for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
    auto problem = engine_problem<PrefillProblem>(state_dtype, gdn::States{}.layout);
    problem.varlen = true;
    run_case(problem, {.lengths = {700}}, options);
    run_case(problem, {.lengths = {5, 300, 64, 1, 129}, .tail = 13}, options);
  }
}

}  // namespace
}  // namespace cubinery::test
