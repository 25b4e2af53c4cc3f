// GDN decode with a gated norm of its outputs.
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "runtime/gdn/decode/operator.h"
#include "tests/gpu/decode_sweeps.h"
#include "tests/gpu/pool_sweeps.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test {
namespace {

using gdn::DecodeProblem;
using gdn::OutputNorm;
using gdn::StateLayout;
using gdn::StateLocation;

DecodeProblem normed_problem() {
  DecodeProblem problem = small_problem();
  problem.output_norm = OutputNorm::kGatedRms;
  return problem;
}

DecodeProblem normed_pool() {
  DecodeProblem problem = normed_problem();
  problem.states.location = StateLocation::kPool;
  return problem;
}

TEST_CASE("GdnDecodeNorm.EveryOperandAndOutputDtype", "[gpu]") {
  run_both_kernels(operand_and_output_dtypes(normed_problem()));
}

TEST_CASE("GdnDecodeNorm.EveryWeightDtype", "[gpu][sanitize]") {
  std::vector<DecodeProblem> problems;
  for (const DType dtype : kFloats) {
    for (const OutputNorm norm : {OutputNorm::kGatedRms, OutputNorm::kSigmoidGatedRms}) {
      problems.emplace_back(normed_problem()).norm_weight_dtype = dtype;
      problems.back().output_norm = norm;
    }
  }
  run_both_kernels(problems);
}

TEST_CASE("GdnDecodeNorm.ASigmoidGatesEveryDtypeAndLayout", "[gpu][sanitize]") {
  DecodeProblem problem = normed_problem();
  problem.output_norm = OutputNorm::kSigmoidGatedRms;
  run_both_kernels(operand_and_output_dtypes(problem));
  run_both_kernels(state_dtypes_and_layouts(problem, decode_state_dtypes()));
  problem.conv.width = 4;
  problem.heads = {.q = 2, .k = 2, .v = 4};
  run_both_kernels({problem});
}

TEST_CASE("GdnDecodeNorm.EveryStateDtypeAndLayout", "[gpu]") {
  run_both_kernels(state_dtypes_and_layouts(normed_problem(), decode_state_dtypes()));
}

TEST_CASE("GdnDecodeNorm.EveryHeadRatio", "[gpu]") {
  run_both_kernels(head_ratios(normed_problem()));
}

TEST_CASE("GdnDecodeNorm.EveryValueDim", "[gpu][big][slow]") {
  std::vector<DecodeProblem> problems;
  for (const int key_dim : {64, 128, 256}) {
    for (int value_dim = 16; value_dim <= 256; value_dim += 16) {
      for (const StateLayout layout : kLayouts) {
        for (const DType state_dtype : decode_state_dtypes()) {
          if (state_dtype == DType::kF16) continue;  // as bf16
          DecodeProblem& problem = problems.emplace_back(normed_problem());
          problem.key_dim = key_dim;
          problem.value_dim = value_dim;
          problem.states.layout = layout;
          problem.states.dtype = state_dtype;
        }
      }
    }
  }
  run_both_kernels(problems);
}

// Three heads: the last block of those that have several is not full.  Where lanes and vectors are
// the same, so are the bits, however warps share a head.
void expect_agreement(StateLayout layout) {
  for (const DType dtype : decode_state_dtypes()) {
    if (size_of(dtype) == 2) continue;
    DecodeProblem problem = normed_pool();
    problem.states.dtype = dtype;
    problem.heads = {.q = 1, .k = 1, .v = 3};
    problem.key_dim = 64;
    problem.value_dim = 32;
    problem.states.layout = layout;
    CaseOptions options{.seed = seed()};
    options.slots = 16;
    options.padding = {.slot_id = -1, .zero = true};
    options.read = {5, -1, 7, 16, 2};
    const DecodeCase one(problem, 5, options);
    CHECK(expect_agreeing_configurations(one) > 1);
  }
}

TEST_CASE("GdnDecodeNorm.EveryConfigurationIsRight", "[gpu][sanitize][slow]") {
  expect_agreement(StateLayout::kVK);
}

TEST_CASE("GdnDecodeNorm.EveryConfigurationOfStatesAlongValuesIsRight", "[gpu][sanitize][slow]") {
  expect_agreement(StateLayout::kKV);
}

TEST_CASE("GdnDecodeNorm.TakesOperandsAsTheyLie", "[gpu]") {
  for (const Placement placement : {Placement::kPackedRows, Placement::kTransposedHeads,
                                    Placement::kRank4, Placement::kUnaligned}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      DecodeProblem problem = normed_pool();
      problem.dtype = problem.output_dtype = problem.norm_weight_dtype = dtype;
      CaseOptions options;
      options.placement = placement;
      run_case(problem, 3, options);
      run_case(problem, 130, options);
    }
  }
}

TEST_CASE("GdnDecodeNorm.TakesTheEpsilonItIsGiven", "[gpu]") {
  DecodeProblem problem = normed_problem();
  problem.output_dtype = DType::kF32;
  for (const float eps : {0.0f, 1e-5f, 0.5f, 100.0f}) {
    CaseOptions options;
    options.norm_eps = eps;
    run_case(problem, 3, options);
  }
}

TEST_CASE("GdnDecodeNorm.OutputsOfZeroStayZero", "[gpu]") {
  CaseOptions options;
  options.scale = 0.0f;
  run_case(normed_problem(), 3, options);
}

TEST_CASE("GdnDecodeNorm.WithoutStates", "[gpu]") {
  std::vector<DecodeProblem> problems;
  for (const bool has_initial : {false, true}) {
    for (const bool store : {false, true}) {
      DecodeProblem& problem = problems.emplace_back(normed_problem());
      problem.states.has_initial = has_initial;
      problem.states.store = store;
    }
  }
  run_both_kernels(problems);
}

TEST_CASE("GdnDecodeNorm.EveryGateDistribution", "[gpu]") {
  for (const GateDistribution gates : kGateDistributions) {
    CaseOptions options;
    options.gates = gates;
    run_both_kernels({normed_problem()}, options);
  }
}

// Padding is zero or left alone, and invalid requests are NaN, not what a norm makes of that.
TEST_CASE("GdnDecodeNorm.EveryPaddingPolicy", "[gpu]") {
  run_padding_policies(normed_pool(), [](std::int64_t requests) { return requests; });
}

TEST_CASE("GdnDecodeNorm.AllRowsArePadding", "[gpu]") { run_only_padding(normed_pool()); }

TEST_CASE("GdnDecodeNorm.NonFiniteInputsStayInTheirRequestAndHead", "[gpu]") {
  const DecodeProblem problem = normed_problem();
  const gdn::Decode decode = prepare(problem);
  const auto make = [&] { return DecodeCase(problem, 3, {.seed = seed()}); };
  expect_all_confined(make, decode, 0);
  expect_confined(make(), decode, std::numeric_limits<float>::quiet_NaN(), TensorId::kZ, 0, 1, 1,
                  1);
}

TEST_CASE("GdnDecodeNorm.BitsDoNotDependOnTheBatch", "[gpu][big]") {
  for (const StateLayout layout : kLayouts) {
    DecodeProblem problem = normed_problem();
    problem.states.layout = layout;
    expect_bits_without_the_batch(problem);
  }
}

TEST_CASE("GdnDecodeNorm.GraphsAndLaunchesWithPdlEqualPlainOnes", "[gpu]") {
  expect_same_in_graphs_and_with_pdl(normed_pool());
}

TEST_CASE("GdnDecodeNorm.QwenInAnEngine", "[gpu][big]") {
  CaseOptions options;
  options.gates = GateDistribution::kInit;
  options.placement = Placement::kPackedRows;
  std::vector<DecodeProblem> problems;
  for (const DType state_dtype : decode_state_dtypes()) {
    for (const StateLayout layout : kLayouts) {
      auto problem = engine_problem<DecodeProblem>(state_dtype, layout);
      problem.output_norm = OutputNorm::kGatedRms;
      problem.norm_weight_dtype = DType::kBF16;
      problems.push_back(problem);
    }
  }
  run_batches(problems, {1, 20}, options);
}

}  // namespace
}  // namespace cubinery::test
