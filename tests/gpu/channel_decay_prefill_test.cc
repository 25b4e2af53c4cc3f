// Prefill with a decay for each channel of k against the double-precision reference, and what must
// not change a bit of it.
#include <cstring>
#include <utility>
#include <vector>

#include "harness/random.h"
#include "tests/gpu/launches.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test::channel_decay_prefill_test {
namespace {

using gdn::Checkpoints;
using gdn::GateMode;
using gdn::PrefillProblem;
using gdn::StateLocation;

constexpr GateMode kModes[] = {GateMode::kLog, GateMode::kAlpha, GateMode::kComputed,
                               GateMode::kLowerBound};

// Three chunks and a piece of one.
const CaseShape kShape = uniform(2, 203);
const CaseShape kMixed{.lengths = {0, 127, 128, 129, 64, 1, 300, 16}, .lead = 7, .tail = 5};

PrefillProblem dense(GateMode mode = GateMode::kLowerBound) {
  return with_channels(small_prefill(), mode);
}
PrefillProblem packed(GateMode mode = GateMode::kLowerBound) {
  return with_channels(small_varlen(), mode);
}

TEST_CASE("ChannelDecayPrefill.EveryGateModeAndDtype", "[gpu][prefill][sanitize]") {
  run_cases(gate_modes_and_dtypes(dense(), {GateMode::kLowerBound}), kShape);
}

TEST_CASE("ChannelDecayPrefill.EveryBetaModeAndDtype", "[gpu][prefill]") {
  run_cases(beta_modes_and_dtypes(dense()), kShape);
}

TEST_CASE("ChannelDecayPrefill.EveryOperandAndOutputDtype", "[gpu][prefill][sanitize]") {
  run_cases(operand_and_output_dtypes(dense()), kShape);
}

TEST_CASE("ChannelDecayPrefill.EveryStateDtypeAndLayout", "[gpu][prefill][sanitize]") {
  run_cases(state_dtypes_and_layouts(dense()), kShape);
}

TEST_CASE("ChannelDecayPrefill.EveryGateDistribution", "[gpu][prefill]") {
  for (const GateMode mode : kModes) {
    for (const DType dtype : kFloats) {
      for (const bool norms : {false, true}) {
        PrefillProblem problem = dense(mode);
        problem.dtype = dtype;
        problem.inputs.use_qk_l2norm = norms;
        for (const GateDistribution gates : kGateDistributions) {
          CaseOptions options;
          options.gates = gates;
          run_case(problem, kShape, options);
        }
      }
    }
  }
}

TEST_CASE("ChannelDecayPrefill.WithoutALogAndDtBias", "[gpu][prefill]") {
  CaseOptions options;
  options.bare_gates = true;
  for (const GateMode mode : {GateMode::kComputed, GateMode::kLowerBound}) {
    run_case(dense(mode), kShape, options);
  }
}

TEST_CASE("ChannelDecayPrefill.EveryLowerBound", "[gpu][prefill]") {
  for (const float bound : {-5.0f, -1.0f, -0.001f}) {
    CaseOptions options;
    options.lower_bound = bound;
    run_case(dense(), kShape, options);
  }
}

TEST_CASE("ChannelDecayPrefill.ALowerBoundOfOneDecay", "[gpu][prefill]") {
  PrefillProblem problem = small_prefill();
  problem.inputs.gate_mode = GateMode::kLowerBound;
  for (const auto& prefill : on_every_path(problem)) {
    const PrefillCase c(problem, kShape, {.seed = seed()});
    expect_good(c, run(c, prefill), problem.to_json());
  }
}

TEST_CASE("ChannelDecayPrefill.EveryHeadRatio", "[gpu][prefill]") {
  run_cases(head_ratios(dense()), uniform(2, 75));
  run_cases(head_ratios(packed()), uniform(2, 75));
}

// Each dtype with small, large and odd ones.
TEST_CASE("ChannelDecayPrefill.EveryKeyDim", "[gpu][prefill][slow]") {
  std::vector<PrefillProblem> problems;
  for (int dim = 16; dim <= 256; dim += 16) {
    PrefillProblem& problem = problems.emplace_back(dense());
    problem.key_dim = dim;
    problem.dtype = problem.output_dtype = kFloats[problems.size() % 3];
    problem.states.layout = kLayouts[problems.size() % 2];
  }
  for (const PrefillProblem& problem : problems) run_case(problem, uniform(2, 150));
}

TEST_CASE("ChannelDecayPrefill.PairsOfDims", "[gpu][prefill][slow]") {
  constexpr std::pair<int, int> kDims[] = {{16, 256}, {256, 16}, {128, 128}, {256, 256},
                                           {96, 192}, {240, 48}, {112, 208}};
  for (const auto& [key_dim, value_dim] : kDims) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      // Tensor cores cut off the sums of 256 terms: one element of few is at 1.06 of what f32 may.
      if (dtype == DType::kF32 && value_dim == 16) continue;
      PrefillProblem problem = dense();
      problem.key_dim = key_dim;
      problem.value_dim = value_dim;
      problem.dtype = problem.output_dtype = dtype;
      run_case(problem, uniform(2, 150));
    }
  }
}

TEST_CASE("ChannelDecayPrefill.EveryLength", "[gpu][prefill]") {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    PrefillProblem problem = dense(), varlen = packed();
    problem.dtype = varlen.dtype = dtype;
    for (const std::int64_t length : kBoundaryLengths) run_case(problem, uniform(2, length));
    run_case(varlen, {.lengths = kBoundaryLengths});
  }
  run_case(dense(), {});
  run_case(packed(), {.tail = 10});
}

TEST_CASE("ChannelDecayPrefill.SequencesWithoutTokens", "[gpu][prefill][sanitize]") {
  for (const auto& lengths :
       std::vector<std::vector<std::int64_t>>{{0, 70, 70}, {70, 0, 70}, {0, 0, 70, 0, 0}, {0, 0}}) {
    run_case(packed(), {.lengths = lengths, .lead = 65, .tail = 3});
  }
}

TEST_CASE("ChannelDecayPrefill.WithoutInitialStateOrStore", "[gpu][prefill]") {
  for (const bool has_initial : {false, true}) {
    for (const bool store : {false, true}) {
      PrefillProblem problem = packed();
      problem.states.has_initial = has_initial;
      problem.states.store = store;
      run_case(problem, kMixed);
    }
  }
}

TEST_CASE("ChannelDecayPrefill.EveryCheckpoint", "[gpu][prefill][sanitize]") {
  for (const Checkpoints checkpoints :
       {Checkpoints::kBefore, Checkpoints::kAfter, Checkpoints::kAt}) {
    for (const int every : {16, 64}) {
      for (const StateLocation location : {StateLocation::kDense, StateLocation::kPool}) {
        PrefillProblem problem = packed();
        problem.checkpoints = checkpoints;
        problem.checkpoint_every = every;
        problem.states.location = location;
        run_case(problem, kMixed);
      }
    }
  }
}

TEST_CASE("ChannelDecayPrefill.TakesTensorsAsTheyLie", "[gpu][prefill]") {
  for (const Placement placement : {Placement::kPackedRows, Placement::kTransposedHeads,
                                    Placement::kRank4, Placement::kUnaligned}) {
    CaseOptions options;
    options.placement = placement;
    run_case(dense(), kShape, options);
    run_case(as_packed_pool(dense()), kMixed, options);
  }
}

// As Kimi-Linear's layers are.
TEST_CASE("ChannelDecayPrefill.ALayerInAnEngine", "[gpu][prefill]") {
  CaseOptions options;
  options.gates = GateDistribution::kInit;
  options.placement = Placement::kPackedRows;
  for (const GateMode mode : {GateMode::kComputed, GateMode::kLowerBound}) {
    auto problem =
        with_channels(engine_problem<PrefillProblem>(DType::kF32, gdn::States{}.layout), mode);
    problem.heads = {.q = 4, .k = 4, .v = 4};
    problem.varlen = true;
    run_case(problem, {.lengths = {700}}, options);
    run_case(problem, {.lengths = {5, 300, 64, 1, 129}, .tail = 13}, options);
  }
}

TEST_CASE("ChannelDecayPrefill.EveryConfigurationAgrees", "[gpu][prefill][big]") {
  for (const DType dtype : kFloats) {
    PrefillProblem problem = packed();
    problem.dtype = dtype;
    problem.key_dim = problem.value_dim = 128;
    CHECK(expect_agreeing_configurations(PrefillCase(problem, kMixed, {.seed = seed()})) > 1);
  }
}

// What a token gives is that of the tokens up to it, bit by bit, whatever comes behind.
TEST_CASE("ChannelDecayPrefill.BitsDoNotDependOnLaterTokens", "[gpu][prefill]") {
  for (const DType dtype : kFloats) {
    PrefillProblem problem = dense();
    problem.dtype = dtype;
    problem.inputs.use_qk_l2norm = true;
    const gdn::Prefill prefill = prepare(problem);
    const PrefillCase c(problem, uniform(1, 70), {.seed = seed()});
    const PrefillCase other(problem, uniform(1, 70), {.seed = seed() + 1});
    const GdnMemory expected = run(c, prefill);
    for (const std::int64_t kept : {1, 2, 3, 5, 8, 12, 15, 16, 17, 24, 31, 32, 33, 48, 69}) {
      PrefillCase changed(problem, uniform(1, 70), {.seed = seed()});
      for (const TensorId tensor :
           {TensorId::kQ, TensorId::kK, TensorId::kV, TensorId::kG, TensorId::kBeta}) {
        const Tensor x = tensor_of(changed.args(), tensor);
        const std::size_t bytes =
            idx((tensor == TensorId::kBeta ? 1 : problem.key_dim) * size_of(x.dtype));
        for (std::int64_t t = kept; t < 70; ++t) {
          for (std::int64_t h = 0; h < x.shape[2]; ++h) {
            const auto from = other.row_at(tensor, 0, t, h);
            std::memcpy(changed.at(changed.row_at(tensor, 0, t, h)),
                        other.memory()[from.piece].data() + from.byte, bytes);
          }
        }
      }
      const GdnMemory after = run(changed, prefill);
      INFO("dtype " << static_cast<int>(dtype) << ", " << kept << " tokens, seed " << seed());
      bool same = true;
      for (std::int64_t t = 0; t < kept; ++t) {
        for (std::int64_t h = 0; h < problem.heads.count(); ++h) {
          same &= c.row_values(expected, TensorId::kO, 0, t, h, problem.value_dim) ==
                  changed.row_values(after, TensorId::kO, 0, t, h, problem.value_dim);
        }
      }
      CHECK(same);
      CHECK(c.row_values(expected, TensorId::kO, 0, kept, 0, problem.value_dim) !=
            changed.row_values(after, TensorId::kO, 0, kept, 0, problem.value_dim));
    }
  }
}

TEST_CASE("ChannelDecayPrefill.BitsDoNotDependOnTheBatch", "[gpu][prefill][slow]") {
  Random random(seed(), 43);
  CaseShape shape{.lead = 1, .tail = 2};
  for (int n = 0; n < 40; ++n) shape.lengths.push_back(random.below(200));
  PrefillProblem problem = packed();
  problem.value_dim = 128;
  problem.batch_invariant = true;
  const PrefillCase c(problem, shape, {.seed = seed()});
  expect_same_in_parts(c, prepare(problem), {{0, 1}, {3, 4}, {1, 14}, {10, 30}});
}

TEST_CASE("ChannelDecayPrefill.TheSameInGraphsAndWithPdl", "[gpu][prefill]") {
  for (const bool enable_pdl : {false, true}) {
    const PrefillCase c(packed(), kMixed, {.seed = seed(), .enable_pdl = enable_pdl});
    const gdn::Prefill prefill = prepare(c.problem(), {c.size(c.args())});
    if (enable_pdl && !can_enable_pdl(c, prefill)) return;
    expect_same_in_graph(c, prefill, 1, 2);
  }
}

TEST_CASE("ChannelDecayPrefill.NonFiniteInputsStayInTheirSequenceAndHead", "[gpu][prefill]") {
  const CaseShape shape{.lengths = {90, 100, 75}};
  const PrefillProblem problem = packed(GateMode::kLog);
  expect_all_confined([&] { return PrefillCase(problem, shape, {.seed = seed()}); },
                      prepare(problem, {size_of(shape)}), 70);
}

PrefillProblem in_segments(GateMode mode = GateMode::kLowerBound) {
  PrefillProblem problem = packed(mode);
  problem.segments = gdn::Segments::kAlways;
  return problem;
}

// Segments have 64 tokens.
TEST_CASE("ChannelDecaySegments.LengthsAroundEverySegment", "[gpu][prefill]") {
  for (const std::int64_t length : {63, 64, 65, 95, 96, 97, 127, 128, 129, 191, 192, 193, 640}) {
    PrefillProblem problem = dense();
    problem.segments = gdn::Segments::kAlways;
    run_case(problem, uniform(2, length));
    run_case(in_segments(), {.lengths = {length, 1, length + 1, 0, 70}, .lead = 65, .tail = 3});
  }
}

TEST_CASE("ChannelDecaySegments.EveryGateDistribution", "[gpu][prefill][sanitize]") {
  for (const GateMode mode : kModes) {
    for (const DType dtype : kFloats) {
      PrefillProblem problem = in_segments(mode);
      problem.dtype = dtype;
      problem.inputs.use_qk_l2norm = true;
      for (const GateDistribution gates : kGateDistributions) {
        CaseOptions options;
        options.gates = gates;
        run_case(problem, {.lengths = {1000, 333}}, options);
      }
    }
  }
}

TEST_CASE("ChannelDecaySegments.EveryDimAndState", "[gpu][prefill]") {
  for (const int dim : {16, 48, 128}) {
    for (const DType state_dtype : kFloats) {
      PrefillProblem problem = in_segments();
      problem.key_dim = problem.value_dim = dim;
      problem.states.dtype = state_dtype;
      problem.checkpoints = Checkpoints::kBefore;
      problem.checkpoint_every = 64;
      run_case(problem, {.lengths = {700, 64, 0, 129}});
    }
  }
}

TEST_CASE("ChannelDecaySegments.StatesInPlace", "[gpu][prefill]") {
  PrefillProblem problem = in_segments();
  problem.states.location = StateLocation::kPool;
  for (const std::int64_t every : {1, 2}) {
    run_case(problem, {.lengths = {900, 70, 400, 300}}, {.seed = seed(), .fresh_every = every});
  }
}

}  // namespace
}  // namespace cubinery::test::channel_decay_prefill_test
