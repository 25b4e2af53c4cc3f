// A decay for each channel of k (Kimi Delta Attention) against the double-precision reference:
// gates of every form, and each option that they meet.  What does not touch gates is tested with
// one decay for a head.
#include <cstdint>
#include <vector>

#include "tests/gpu/cases.h"
#include "tests/gpu/decode_sweeps.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test::channel_decay_test {
namespace {

using gdn::CommitProblem;
using gdn::DecodeProblem;
using gdn::GateMode;
using gdn::OutputNorm;
using gdn::StateLayout;
using gdn::StateLocation;
using gdn::StoredStates;
using gdn::VerifyProblem;

constexpr GateMode kModes[] = {GateMode::kLog, GateMode::kAlpha, GateMode::kComputed,
                               GateMode::kLowerBound};
constexpr GateDistribution kDistributions[] = {GateDistribution::kStrong, GateDistribution::kQwen,
                                               GateDistribution::kUndecayed,
                                               GateDistribution::kInit, GateDistribution::kExtreme};

const std::vector<CaseShape> kDrafts{uniform(3, 1), uniform(2, 5), uniform(2, 16)};

TEST_CASE("ChannelDecay.DecodeTakesEveryGateModeAndDtype", "[gpu][sanitize]") {
  run_cases(gate_modes_and_dtypes(with_channels(small_problem()), {GateMode::kLowerBound}), 3);
}

TEST_CASE("ChannelDecay.VerifyTakesEveryGateModeAndDtype", "[gpu][sanitize]") {
  run_cases(gate_modes_and_dtypes(with_channels(small_verify()), {GateMode::kLowerBound}), kDrafts);
}

TEST_CASE("ChannelDecay.CommitTakesEveryGateModeAndDtype", "[gpu][sanitize]") {
  run_cases(gate_modes_and_dtypes(with_channels(small_commit()), {GateMode::kLowerBound}), kDrafts);
}

TEST_CASE("ChannelDecay.EveryGateDistribution", "[gpu]") {
  std::vector<DecodeProblem> problems;
  std::vector<VerifyProblem> drafts;
  std::vector<CommitProblem> commits;
  for (const GateMode mode : kModes) {
    problems.push_back(with_channels(small_problem(), mode));
    drafts.push_back(with_channels(small_verify(), mode));
    drafts.emplace_back(drafts.back()).states.store = false;
    commits.push_back(with_channels(small_commit(), mode));
  }
  for (const GateDistribution gates : kDistributions) {
    CaseOptions options;
    options.gates = gates;
    run_both_kernels(problems, options);
    run_cases(drafts, kDrafts, options);
    run_cases(commits, kDrafts, options);
  }
}

// One factor of a gate is infinite, and the other 0.
TEST_CASE("ChannelDecay.GatesOfFactorsThatOverflow", "[gpu]") {
  CaseOptions options;
  options.gates = GateDistribution::kUnbalanced;
  run_both_kernels({with_channels(small_problem(), GateMode::kComputed),
                    with_channels(small_problem(), GateMode::kLowerBound)},
                   options);
}

TEST_CASE("ChannelDecay.WithoutALogAndDtBias", "[gpu][sanitize]") {
  CaseOptions options;
  options.bare_gates = true;
  for (const GateMode mode : {GateMode::kComputed, GateMode::kLowerBound}) {
    run_case(with_channels(small_problem(), mode), 3, options);
    run_case(with_channels(small_verify(), mode), uniform(2, 5), options);
    run_case(with_channels(small_commit(), mode), uniform(2, 5), options);
  }
  DecodeProblem of_heads = small_problem();
  of_heads.inputs.gate_mode = GateMode::kLowerBound;
  run_case(of_heads, 3, options);
}

TEST_CASE("ChannelDecay.EveryLowerBound", "[gpu]") {
  for (const float bound : {-5.0f, -1.0f, -0.001f}) {
    CaseOptions options;
    options.lower_bound = bound;
    run_case(with_channels(small_problem()), 3, options);
    run_case(with_channels(small_verify()), uniform(2, 5), options);
    run_case(with_channels(small_commit()), uniform(2, 5), options);
  }
}

TEST_CASE("ChannelDecay.ALowerBoundOfOneDecay", "[gpu]") {
  DecodeProblem decode = small_problem();
  VerifyProblem verify = small_verify();
  decode.inputs.gate_mode = verify.inputs.gate_mode = GateMode::kLowerBound;
  run_both_kernels({decode});
  run_case(verify, uniform(2, 5));
}

TEST_CASE("ChannelDecay.DecodeEveryOperandStateAndLayout", "[gpu][sanitize]") {
  run_both_kernels(operand_and_output_dtypes(with_channels(small_problem())));
  run_both_kernels(state_dtypes_and_layouts(with_channels(small_problem()), decode_state_dtypes()));
}

TEST_CASE("ChannelDecay.VerifyEveryOperandStateAndLayout", "[gpu][sanitize]") {
  run_cases(operand_and_output_dtypes(with_channels(small_verify())), kDrafts);
  run_cases(state_dtypes_and_layouts(with_channels(small_verify())), kDrafts);
}

TEST_CASE("ChannelDecay.CommitEveryStateAndLayout", "[gpu][sanitize]") {
  run_cases(state_dtypes_and_layouts(with_channels(small_commit())), kDrafts);
}

TEST_CASE("ChannelDecay.EveryDim", "[gpu][big]") {
  run_both_kernels(every_dim(with_channels(small_problem())));
  for (const int tokens : {4, 8, 16}) {
    VerifyProblem verify = with_channels(small_verify());
    CommitProblem commit = with_channels(small_commit());
    verify.draft_tokens = commit.draft_tokens = tokens;
    run_cases(every_dim(verify), {uniform(2, tokens)});
    verify.states.store = false;
    run_cases(every_dim(verify), {uniform(2, tokens)});
    run_cases(every_dim(commit), {uniform(2, tokens)});
  }
}

TEST_CASE("ChannelDecay.EveryHeadRatio", "[gpu]") {
  run_both_kernels(head_ratios(with_channels(small_problem())));
  run_cases(head_ratios(with_channels(small_verify())), {uniform(2, 3)});
  run_cases(head_ratios(with_channels(small_commit())), {uniform(2, 3)});
}

TEST_CASE("ChannelDecay.WithoutInitialStateOrStore", "[gpu]") {
  for (const StateLayout layout : kLayouts) {
    DecodeProblem problem = with_channels(small_problem());
    problem.states.layout = layout;
    problem.states.has_initial = false;
    run_both_kernels({problem});
    problem.states.store = false;
    run_case(problem, 3);
    problem.states.has_initial = true;
    run_both_kernels({problem});
  }
}

TEST_CASE("ChannelDecay.EveryDraftOption", "[gpu]") {
  for (const bool varlen : {false, true}) {
    for (const StoredStates stored : {StoredStates::kLast, StoredStates::kEvery}) {
      if (varlen && stored == StoredStates::kEvery) continue;  // with tables of slots: as GDN's
      for (const bool round : {false, true}) {
        VerifyProblem problem = with_channels(small_verify());
        if (varlen) problem = as_packed_pool(problem);
        problem.states.dtype = DType::kBF16;
        problem.stored_states = stored;
        problem.round_each_token = round;
        CaseOptions options;
        options.round_each_token = round;
        run_case(problem, uniform(2, 5), options);
      }
    }
  }
}

TEST_CASE("ChannelDecay.EveryNumberOfDrafts", "[gpu]") {
  for (const int most : {4, 8, 16}) {  // of the kinds of kernels
    for (std::int64_t tokens = 0; tokens <= most; ++tokens) {
      VerifyProblem verify = as_packed_pool(with_channels(small_verify()));
      CommitProblem commit = as_packed_pool(with_channels(small_commit()));
      verify.draft_tokens = commit.draft_tokens = most;
      run_case(verify, uniform(3, tokens));
      run_case(commit, uniform(3, tokens));
      verify.states.store = false;
      run_case(verify, uniform(3, tokens));
      verify.tree = true;
      run_case(verify, uniform(3, tokens));
      if (tokens == 0) continue;
      VerifyProblem tree = with_channels(small_verify());
      tree.draft_tokens = most;
      tree.tree = true;
      tree.stored_states = StoredStates::kEvery;
      run_case(tree, uniform(3, tokens));
    }
  }
}

TEST_CASE("ChannelDecay.TreesOfEveryGate", "[gpu][sanitize]") {
  for (const GateMode mode : kModes) {
    for (const StateLayout layout : kLayouts) {
      VerifyProblem problem = with_channels(small_verify(), mode);
      problem.states.layout = layout;
      problem.tree = true;
      problem.stored_states = StoredStates::kEvery;
      for (const DType dtype : kFloats) {
        problem.states.dtype = dtype;
        run_cases({problem}, {uniform(3, 12), uniform(3, 5)});
      }
      problem.states.store = false;
      run_case(problem, uniform(3, 12));
    }
  }
}

TEST_CASE("ChannelDecay.TreesOfEveryDim", "[gpu][big]") {
  VerifyProblem problem = with_channels(small_verify());
  problem.tree = true;
  problem.stored_states = StoredStates::kEvery;
  run_cases(every_dim(problem), {uniform(3, 6)});
}

TEST_CASE("ChannelDecay.DraftsWithANorm", "[gpu]") {
  for (const OutputNorm norm : {OutputNorm::kGatedRms, OutputNorm::kSigmoidGatedRms}) {
    for (const bool store : {false, true}) {
      VerifyProblem problem = with_channels(small_verify());
      problem.output_norm = norm;
      problem.value_dim = 128;
      problem.states.store = store;
      run_cases({problem}, kDrafts);
    }
  }
}

// As Kimi-Linear's layers are: a convolution in front, a norm with a sigmoid behind.
DecodeProblem layer_problem(DType state_dtype, StateLayout layout) {
  DecodeProblem problem =
      with_channels(engine_problem<DecodeProblem>(state_dtype, layout), GateMode::kComputed);
  problem.heads = {.q = 6, .k = 6, .v = 6};
  problem.inputs.dt_bias_dtype = DType::kF32;
  problem.output_norm = OutputNorm::kSigmoidGatedRms;
  problem.conv.width = 4;
  return problem;
}

TEST_CASE("ChannelDecay.ALayerInOneLaunch", "[gpu]") {
  std::vector<DecodeProblem> problems;
  for (const DType dtype : decode_state_dtypes()) {
    for (const StateLayout layout : kLayouts) {
      for (const GateMode mode : {GateMode::kComputed, GateMode::kLowerBound}) {
        problems.push_back(layer_problem(dtype, layout));
        problems.back().inputs.gate_mode = mode;
      }
    }
  }
  CaseOptions options;
  options.gates = GateDistribution::kInit;
  options.placement = Placement::kPackedRows;
  run_batches(problems, {1, 33}, options);
}

TEST_CASE("ChannelDecay.EveryConfigurationOfDecodeAgrees", "[gpu][big]") {
  for (const StateLayout layout : kLayouts) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      DecodeProblem problem = with_channels(small_problem());
      problem.key_dim = problem.value_dim = 128;
      problem.states.layout = layout;
      problem.states.dtype = dtype;
      CHECK(expect_agreeing_configurations(DecodeCase(problem, 2, {.seed = seed()})) > 1);
    }
  }
}

TEST_CASE("ChannelDecay.TheSameBitsWithoutTheBatch", "[gpu]") {
  expect_bits_without_the_batch(with_channels(small_problem()));
}

TEST_CASE("ChannelDecay.TheSameInGraphsAndWithPdl", "[gpu]") {
  expect_same_in_graphs_and_with_pdl(with_channels(small_problem()));
}

}  // namespace
}  // namespace cubinery::test::channel_decay_test
