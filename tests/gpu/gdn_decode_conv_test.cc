// GDN decode with a convolution in front, in its launch.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "runtime/gdn/decode/paths.h"
#include "tests/gpu/decode_sweeps.h"
#include "tests/gpu/pool_sweeps.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test::gdn_decode_conv_test {
namespace {

using gdn::Activation;
using gdn::ConvStateLayout;
using gdn::DecodeProblem;
using gdn::OutputNorm;
using gdn::StateLayout;
using gdn::StateLocation;

constexpr ConvStateLayout kConvLayouts[] = {ConvStateLayout::kColumns, ConvStateLayout::kChannels};

bool runs_here(const DecodeProblem& problem) {
  return !gdn::decode_portable().why_not(problem, target_of(gpu().context()));
}

// Heads that share q and k need clusters.
DecodeProblem convolved_problem() {
  DecodeProblem problem = small_problem();
  problem.conv.width = 4;
  if (!runs_here(problem)) problem.heads = {.q = 4, .k = 4, .v = 4};
  return problem;
}

DecodeProblem convolved_pool() {
  DecodeProblem problem = convolved_problem();
  problem.states.location = StateLocation::kPool;
  return problem;
}

TEST_CASE("GdnDecodeConv.EveryOperandAndOutputDtype", "[gpu]") {
  run_both_kernels(operand_and_output_dtypes(convolved_problem()));
}

TEST_CASE("GdnDecodeConv.EveryWeightAndConvStateDtype", "[gpu][sanitize]") {
  std::vector<DecodeProblem> problems;
  for (const DType weight_dtype : kFloats) {
    for (const DType state_dtype : kFloats) {
      for (const ConvStateLayout layout : kConvLayouts) {
        DecodeProblem& problem = problems.emplace_back(convolved_problem());
        problem.conv.weight_dtype = weight_dtype;
        problem.conv.state_dtype = state_dtype;
        problem.conv.state_layout = layout;
        problem.conv.has_bias = true;
      }
    }
  }
  run_both_kernels(problems);
}

TEST_CASE("GdnDecodeConv.EveryWidthAndForm", "[gpu][sanitize]") {
  std::vector<DecodeProblem> problems;
  for (const int width : {2, 3, 4}) {
    for (const bool is_other : {false, true}) {
      for (const bool whole_window : {false, true}) {
        for (const ConvStateLayout layout : kConvLayouts) {
          DecodeProblem& problem = problems.emplace_back(convolved_problem());
          problem.conv.width = width;
          problem.conv.has_bias = is_other;
          problem.conv.activation = is_other ? Activation::kNone : Activation::kSilu;
          problem.conv.state_layout = layout;
          problem.conv.whole_window = whole_window;
        }
      }
    }
  }
  run_both_kernels(problems);
}

TEST_CASE("GdnDecodeConv.EveryStateDtypeAndLayout", "[gpu]") {
  run_both_kernels(state_dtypes_and_layouts(convolved_problem(), decode_state_dtypes()));
}

TEST_CASE("GdnDecodeConv.EveryGateAndBetaMode", "[gpu][big]") {
  run_both_kernels(gate_modes_and_dtypes(convolved_problem()));
  run_both_kernels(beta_modes_and_dtypes(convolved_problem()));
}

// Groups of up to 8 heads; each block of a group makes their q and k.
TEST_CASE("GdnDecodeConv.EveryHeadRatio", "[gpu]") {
  std::vector<DecodeProblem> problems = head_ratios(convolved_problem());
  problems.emplace_back(convolved_problem()).heads = {.q = 1, .k = 1, .v = 8};
  problems.emplace_back(convolved_problem()).heads = {.q = 2, .k = 16, .v = 4};
  const bool has_clusters = convolved_problem().heads.v != convolved_problem().heads.k;
  std::erase_if(problems, [](const DecodeProblem& problem) { return !runs_here(problem); });
  CHECK(problems.size() == (has_clusters ? 14 : 2));
  run_both_kernels(problems);
}

TEST_CASE("GdnDecodeConv.EveryKeyAndValueDim", "[gpu][big][slow]") {
  std::vector<DecodeProblem> problems;
  for (const int key_dim : {16, 48, 64, 128, 256}) {
    for (int value_dim = 16; value_dim <= 256; value_dim += 16) {
      for (const StateLayout layout : kLayouts) {
        DecodeProblem& problem = problems.emplace_back(convolved_problem());
        problem.key_dim = key_dim;
        problem.value_dim = value_dim;
        problem.states.layout = layout;
      }
    }
  }
  run_both_kernels(problems);
}

TEST_CASE("GdnDecodeConv.WithANormOfOutputs", "[gpu]") {
  std::vector<DecodeProblem> problems;
  for (const int value_dim : {32, 64, 128}) {
    for (const StateLayout layout : kLayouts) {
      for (const bool use_norm : {false, true}) {
        DecodeProblem& problem = problems.emplace_back(convolved_problem());
        problem.output_norm = OutputNorm::kGatedRms;
        problem.value_dim = value_dim;
        problem.states.layout = layout;
        problem.inputs.use_qk_l2norm = use_norm;
      }
    }
  }
  run_both_kernels(problems);
}

TEST_CASE("GdnDecodeConv.WithoutStates", "[gpu]") {
  std::vector<DecodeProblem> problems;
  for (const bool has_initial : {false, true}) {
    for (const bool store : {false, true}) {
      for (const bool whole_window : {false, true}) {
        DecodeProblem& problem = problems.emplace_back(convolved_problem());
        problem.states.has_initial = has_initial;
        problem.states.store = store;
        problem.conv.whole_window = whole_window;
      }
    }
  }
  run_both_kernels(problems);
}

TEST_CASE("GdnDecodeConv.OneThreeAndManyRequests", "[gpu]") {
  for (const ConvStateLayout layout : kConvLayouts) {
    DecodeProblem problem = convolved_pool();
    problem.conv.state_layout = layout;
    for (const std::int64_t batch : {0, 1, 3, 130}) run_case(problem, batch);
  }
}

TEST_CASE("GdnDecodeConv.EveryGateDistribution", "[gpu]") {
  for (const GateDistribution gates : kGateDistributions) {
    CaseOptions options;
    options.gates = gates;
    run_both_kernels({convolved_problem()}, options);
  }
}

TEST_CASE("GdnDecodeConv.TakesOperandsAsTheyLie", "[gpu]") {
  for (const Placement placement :
       {Placement::kTransposedHeads, Placement::kRank4, Placement::kUnaligned}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const ConvStateLayout layout : kConvLayouts) {
        DecodeProblem problem = convolved_pool();
        problem.dtype = problem.output_dtype = dtype;
        problem.conv.weight_dtype = problem.conv.state_dtype = dtype;
        problem.conv.state_layout = layout;
        problem.conv.has_bias = true;
        CaseOptions options;
        options.placement = placement;
        options.slot_gap = 20;
        run_case(problem, 3, options);
        run_case(problem, 130, options);
      }
    }
  }
}

TEST_CASE("GdnDecodeConv.EveryPaddingPolicy", "[gpu][sanitize]") {
  run_padding_policies(convolved_pool(), [](std::int64_t requests) { return requests; });
}

TEST_CASE("GdnDecodeConv.PaddedWriteIndices", "[gpu]") {
  run_padded_write_indices(convolved_pool(), [](std::int64_t requests) { return requests; });
}

TEST_CASE("GdnDecodeConv.OtherTensorsAndSlots", "[gpu][sanitize]") {
  for (const ConvStateLayout layout : kConvLayouts) {
    DecodeProblem problem = convolved_pool();
    problem.conv.state_layout = layout;
    run_other_tensors(problem, 5);
    run_half_states(problem, 5);
    run_outside_the_pool(problem, 3);
    run_shared_slots(problem, [](std::int64_t requests) { return requests; });
    DecodeProblem dense = problem;
    dense.states.location = StateLocation::kDense;
    CaseOptions options;
    options.separate_out = true;
    run_case(dense, 5, options);
  }
}

TEST_CASE("GdnDecodeConv.AllRowsArePadding", "[gpu]") { run_only_padding(convolved_pool()); }

// Three heads that share q and k.  Where lanes and vectors are the same, so are the bits.
TEST_CASE("GdnDecodeConv.EveryConfigurationIsRight", "[gpu][sanitize][slow]") {
  for (const OutputNorm norm : {OutputNorm::kNone, OutputNorm::kGatedRms}) {
    for (const StateLayout layout : kLayouts) {
      DecodeProblem problem = convolved_pool();
      problem.output_norm = norm;
      problem.heads = {.q = 1, .k = 1, .v = 3};
      if (!runs_here(problem)) problem.heads = {.q = 3, .k = 3, .v = 3};
      problem.key_dim = 64;
      problem.value_dim = 32;
      problem.states.layout = layout;
      CaseOptions options{.seed = seed()};
      options.slots = 16;
      options.padding = {.slot_id = -1, .zero = true};
      options.read = {5, -1, 7, 16, 2};
      const DecodeCase one(problem, 5, options);
      CHECK(expect_agreeing_configurations(one) > 0);
    }
  }
}

// What the two launches leave behind: o, both states and all around them.
GdnMemory run_two_launches(const DecodeCase& one, const std::vector<TunedValue>& values) {
  const gdn::DecodeArgs args = one.args();
  const DeviceBuffer rows(gpu(), bytes_of(args.x));
  const TwoLaunches two = as_two_launches(one.problem(), args, rows.data());
  const std::int64_t batch = one.sequences();
  const gdn::Conv conv = prepare(two.conv, {{.sequences = batch, .tokens = batch}});
  const gdn::Decode decode =
      gdn::Decode::create(gpu().context(), two.decode, target_of(gpu().context()), values).value();
  const DeviceStream stream = make_stream(gpu());
  one.upload();
  REQUIRE(conv.launch(stream.get(), two.conv_args).ok());
  REQUIRE(decode.launch(stream.get(), two.decode_args).ok());
  stream.synchronize().value();
  CHECK(rows.guards_intact());
  return one.download();
}

void expect_same_bits(const DecodeProblem& problem, std::int64_t batch,
                      const Configuration& configuration) {
  const DecodeCase one(problem, batch,
                       {.seed = seed(), .padding = {.slot_id = -1, .zero = true}, .padded = 1});
  const gdn::Decode decode = gdn::Decode::create(gpu().context(), problem,
                                                 target_of(gpu().context()), configuration.values)
                                 .value();
  INFO(to_text(configuration.values)
       << ", problem " << problem.to_json() << ", batch " << batch << ", seed " << seed());
  CHECK(first_difference(run(one, decode), run_two_launches(one, configuration.values)) == "");
}

// A cover of pairs of the problem's fields and those of the configurations that a decode without a
// convolution has, too.
TEST_CASE("GdnDecodeConv.SameBitsAsAConvolutionAndADecode", "[gpu][big][slow]") {
  std::vector<DecodeProblem> problems;
  for (const DType dtype : kFloats) {
    for (const bool is_other : {false, true}) {
      DecodeProblem& problem = problems.emplace_back(convolved_pool());
      problem.dtype = dtype;
      problem.value_dim = 32;
      problem.inputs.use_qk_l2norm = true;
      problem.conv.state_layout = is_other ? ConvStateLayout::kChannels : ConvStateLayout::kColumns;
      problem.conv.has_bias = problem.conv.whole_window = is_other;
      problem.conv.activation = is_other ? Activation::kNone : Activation::kSilu;
      problem.conv.width = is_other ? 3 : 4;
      problem.states.layout = is_other ? StateLayout::kKV : StateLayout::kVK;
      if (is_other) problem.output_norm = OutputNorm::kGatedRms;
    }
  }
  const auto has_both = [](const DecodeProblem& problem, const Configuration& configuration) {
    DecodeProblem plain = problem;
    plain.conv = {};
    const Target target = target_of(gpu().context());
    return gdn::decode_portable().find(plain, configuration.values, target) != nullptr;
  };
  for (const auto& [problem, configuration] : cover_configurations(problems, 4, has_both)) {
    expect_same_bits(problem, 3, configuration);
    expect_same_bits(problem, 33, configuration);
  }
}

TEST_CASE("GdnDecodeConv.NonFiniteInputsStayInTheirRequestAndHead", "[gpu]") {
  DecodeProblem problem = convolved_problem();
  const gdn::Decode decode = prepare(problem);
  const auto make = [&] { return DecodeCase(problem, 3, {.seed = seed()}); };
  const GdnProblem same = as_prefill(problem);
  const gdn::ConvSplit split = conv_split(same);
  const std::int64_t of_key = problem.heads.count() / problem.heads.k;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const TensorId tensor : {TensorId::kX, TensorId::kConvState}) {
    expect_confined(make(), decode, nan, tensor, 0, problem.key_dim + 5, of_key, of_key);
    expect_confined(make(), decode, nan, tensor, 0, split.k + 1, 0, of_key);
    expect_confined(make(), decode, nan, tensor, 0, split.v + 2 * problem.value_dim + 7, 2, 1);
  }
  expect_confined(make(), decode, nan, TensorId::kG, 0, 3, 3, 1);
  expect_confined(make(), decode, nan, TensorId::kState, 0, 2, 2, 1);
}

TEST_CASE("GdnDecodeConv.BitsDoNotDependOnTheBatch", "[gpu][big]") {
  for (const StateLayout layout : kLayouts) {
    DecodeProblem problem = convolved_problem();
    problem.states.layout = layout;
    expect_bits_without_the_batch(problem);
  }
}

TEST_CASE("GdnDecodeConv.GraphsAndLaunchesWithPdlEqualPlainOnes", "[gpu]") {
  expect_same_in_graphs_and_with_pdl(convolved_pool());
}

TEST_CASE("GdnDecodeConv.QwenInAnEngine", "[gpu][big]") {
  CaseOptions options;
  options.gates = GateDistribution::kInit;
  std::vector<DecodeProblem> problems;
  for (const DType state_dtype : decode_state_dtypes()) {
    for (const ConvStateLayout layout : kConvLayouts) {
      for (const OutputNorm norm : {OutputNorm::kNone, OutputNorm::kGatedRms}) {
        auto problem = engine_problem<DecodeProblem>(state_dtype, StateLayout::kVK);
        problem.conv.width = 4;
        problem.conv.state_layout = layout;
        problem.output_norm = norm;
        if (!runs_here(problem)) problem.heads.v = problem.heads.k;
        problems.push_back(problem);
      }
    }
  }
  run_batches(problems, {1, 20}, options);
}

}  // namespace
}  // namespace cubinery::test::gdn_decode_conv_test
