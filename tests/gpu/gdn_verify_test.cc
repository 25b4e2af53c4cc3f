// GDN verify against the double-precision reference: every option, lengths, pools, padding, bounds;
// graphs, overlapping launches, threads.  One named case per rule.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "harness/rounding.h"
#include "runtime/gdn/verify/operator.h"
#include "tests/gpu/far_pool.h"
#include "tests/gpu/launches.h"
#include "tests/gpu/pool_sweeps.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test::gdn_verify_test {
namespace {

using gdn::BetaMode;
using gdn::GateMode;
using gdn::StateLayout;
using gdn::StoredStates;
using gdn::VerifyProblem;

// Few states, and enough of them for the kernel of large launches.
const std::vector<CaseShape> kShapes = {uniform(3, 4), uniform(300, 3)};

void run_shapes(const std::vector<VerifyProblem>& problems, const CaseOptions& options = {}) {
  run_cases(problems, kShapes, options);
}

VerifyProblem packed() { return as_packed(small_verify()); }
VerifyProblem pool() { return as_packed_pool(small_verify()); }

// Requests of 5, 1, 0, 3, 5, 1, ... tokens.
CaseShape first(std::int64_t requests) { return cycle(requests, {5, 1, 0, 3}); }

std::vector<VerifyProblem> with_every(std::vector<VerifyProblem> problems) {
  const std::size_t count = problems.size();
  for (std::size_t i = 0; i < count; ++i) {
    problems.push_back(problems[i]);
    problems.back().stored_states = StoredStates::kEvery;
  }
  return problems;
}

TEST_CASE("GdnVerify.EveryOperandAndOutputDtype", "[gpu][verify][sanitize]") {
  run_shapes(operand_and_output_dtypes(small_verify()));
}

TEST_CASE("GdnVerify.EveryStateDtypeAndLayout", "[gpu][verify]") {
  run_shapes(with_every(state_dtypes_and_layouts(small_verify())));
}

TEST_CASE("GdnVerify.RoundsEachTokenWhereItIsAskedTo", "[gpu][verify]") {
  VerifyProblem problem = small_verify();
  problem.round_each_token = true;
  run_shapes(with_every(state_dtypes_and_layouts(problem)));
}

TEST_CASE("GdnVerify.EveryGateModeAndDtype", "[gpu][verify][sanitize]") {
  run_cases(gate_modes_and_dtypes(small_verify()), {uniform(3, 4)});
}

TEST_CASE("GdnVerify.EveryBetaModeAndDtype", "[gpu][verify][sanitize]") {
  run_cases(beta_modes_and_dtypes(small_verify()), {uniform(3, 4)});
}

TEST_CASE("GdnVerify.EveryGateDistribution", "[gpu][verify]") {
  for (const GateMode mode : {GateMode::kLog, GateMode::kAlpha, GateMode::kComputed}) {
    for (const GateDistribution gates : kGateDistributions) {
      VerifyProblem problem = small_verify();
      problem.inputs.gate_mode = mode;
      problem.inputs.use_qk_l2norm = true;
      for (const std::int64_t tokens : {5, 16}) {
        run_case(problem, uniform(3, tokens), {.gates = gates, .key_correlation = 0.9});
      }
    }
  }
}

TEST_CASE("GdnVerify.EveryHeadRatio", "[gpu][verify]") {
  run_cases(head_ratios(small_verify()), {uniform(3, 4)});
}

TEST_CASE("GdnVerify.EveryDim", "[gpu][verify][big][slow]") {
  run_cases(every_dim(small_verify()), {uniform(3, 4)});
}

TEST_CASE("GdnVerify.EveryNumberOfTokens", "[gpu][verify][sanitize]") {
  for (const StoredStates stored : {StoredStates::kLast, StoredStates::kEvery}) {
    for (const int most : {4, 8, 16}) {  // each has kernels of its own
      VerifyProblem problem = small_verify();
      problem.stored_states = stored;
      problem.draft_tokens = most;
      for (std::int64_t tokens = 0; tokens <= most; ++tokens) {
        if (tokens == 0 && stored == StoredStates::kEvery) continue;
        run_case(problem, uniform(2, tokens));
      }
    }
  }
}

// k and q of up to four tokens are rows of one operand.
TEST_CASE("GdnVerify.FourTokensWithEveryOption", "[gpu][verify][slow]") {
  VerifyProblem few = small_verify();
  few.draft_tokens = 4;
  std::vector<VerifyProblem> problems = with_every(state_dtypes_and_layouts(few));
  for (const VerifyProblem& problem : gate_modes_and_dtypes(few)) problems.push_back(problem);
  for (const VerifyProblem& problem : head_ratios(few)) problems.push_back(problem);
  few.inputs.use_qk_l2norm = true;
  few.states.store = false;
  problems.push_back(few);
  few.output_dtype = DType::kF32;
  problems.push_back(few);
  run_shapes(problems);
  VerifyProblem of_pool = pool();
  of_pool.draft_tokens = 4;
  run_case(of_pool, {.lengths = {4, 1, 0, 3}, .lead = 2, .tail = 1},
           {.placement = Placement::kUnaligned});
}

TEST_CASE("GdnVerify.EveryNumberOfColumns", "[gpu][verify][sanitize][slow]") {
  VerifyProblem last = pool(), every = small_verify();
  last.draft_tokens = every.draft_tokens = 8;
  every.stored_states = StoredStates::kEvery;
  std::vector<VerifyProblem> problems = state_dtypes_and_layouts(last);
  for (const VerifyProblem& problem : state_dtypes_and_layouts(every)) problems.push_back(problem);
  run_with_all_columns<VerifyCase>(problems, [](const VerifyProblem& problem) {
    return problem.varlen ? first(6) : uniform(6, 5);
  });
}

TEST_CASE("GdnVerify.EveryNumberOfRequests", "[gpu][verify]") {
  for (const std::int64_t requests : {0, 1, 2, 7, 33, 257}) {
    run_case(small_verify(), uniform(requests, 3));
    run_case(packed(), first(requests));
  }
}

TEST_CASE("GdnVerify.EveryKindOfCuSeqlens", "[gpu][verify]") {
  for (const DType dtype : {DType::kI32, DType::kI64}) {
    for (const Placement placement : {Placement::kContiguous, Placement::kUnaligned}) {
      VerifyProblem problem = packed();
      problem.cu_seqlens_dtype = dtype;
      run_case(problem, {.lengths = {16, 1, 4, 0, 9}}, {.placement = placement});
      run_case(problem, {.lengths = {0, 0, 3, 0}, .lead = 37, .tail = 70},
               {.placement = placement});
    }
  }
}

// As in a prefill: the initial state, or none, becomes the new one.
TEST_CASE("GdnVerify.RequestsWithoutTokens", "[gpu][verify]") {
  for (const bool has_initial : {true, false}) {
    VerifyProblem problem = pool();
    problem.states.has_initial = has_initial;
    run_case(problem, {.lengths = {0, 2, 0}});
    run_case(problem, {.lengths = {0, 2, 0}}, {.separate_out = true, .write_indices = true});
    problem.states.store = false;
    if (has_initial) run_case(problem, {.lengths = {0, 2, 0}});
  }
}

TEST_CASE("GdnVerify.WithoutInitialStateOrStore", "[gpu][verify]") {
  std::vector<VerifyProblem> problems;
  for (const StateLayout layout : kLayouts) {
    for (const bool has_initial : {true, false}) {
      for (const bool store : {true, false}) {
        VerifyProblem& problem = problems.emplace_back(small_verify());
        problem.states.layout = layout;
        problem.states.has_initial = has_initial;  // false: the state is NaN before the launch
        problem.states.store = store;
      }
    }
  }
  run_shapes(with_every(problems));
}

TEST_CASE("GdnVerify.TakesTheScaleItIsGiven", "[gpu][verify]") {
  for (const float scale : {1.0f, -3.0f, 0.0f}) {
    CaseOptions options;
    options.scale = scale;
    run_case(small_verify(), uniform(3, 4), options);
  }
}

TEST_CASE("GdnVerify.TakesOperandsAsTheyLie", "[gpu][verify]") {
  for (const Placement placement : {Placement::kPackedRows, Placement::kTransposedHeads,
                                    Placement::kRank4, Placement::kUnaligned}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (VerifyProblem problem : {small_verify(), pool()}) {
        problem.dtype = problem.output_dtype = dtype;
        problem.inputs.gate_dtype = problem.inputs.beta_dtype = DType::kBF16;
        problem.inputs.gate_mode = GateMode::kComputed;
        run_case(problem, uniform(3, 5), {.placement = placement});
        run_case(problem, uniform(130, 2), {.placement = placement});
      }
    }
  }
}

TEST_CASE("GdnVerify.LeavesGapsAlone", "[gpu][verify]") {
  for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
    for (VerifyProblem problem : with_every({small_verify(), pool()})) {
      if (problem.varlen) problem.stored_states = StoredStates::kLast;
      problem.states.dtype = state_dtype;
      // Whole 16-byte units, but no power of two.
      run_case(problem, uniform(5, 3), {.head_gap = 8, .slot_gap = 24});
    }
  }
}

TEST_CASE("GdnVerify.ReadsAndWritesSlots", "[gpu][verify]") {
  for (const StateLayout layout : kLayouts) {
    for (const DType index_dtype : {DType::kI32, DType::kI64}) {
      VerifyProblem problem = pool();
      problem.states.layout = layout;
      problem.states.index_dtype = index_dtype;
      run_case(problem, first(5));
      run_case(problem, first(5), {.write_indices = true});
      run_case(problem, first(130), {.write_indices = true});
    }
  }
  run_shared_slots(pool(), first);
  run_other_tensors(pool(), first(5));
  run_half_states(pool(), first(5));
}

TEST_CASE("GdnVerify.EveryPaddingPolicy", "[gpu][verify][sanitize][slow]") {
  run_padding_policies(pool(), first);
  run_padded_write_indices(pool(), first);
  run_outside_the_pool(pool(), first(3));
}

TEST_CASE("GdnVerify.SlotsBeyond32BitOffsets", "[gpu][verify][big]") {
  expect_far_pools_work<VerifyProblem>([](const VerifyProblem& problem) {
    return VerifyCase(problem, uniform(4, 2), near_options());
  });
}

// Bounds that cannot be: every output is NaN, no state is touched.
TEST_CASE("GdnVerify.MalformedCuSeqlens", "[gpu][verify][sanitize]") {
  struct Bad {
    std::int64_t index, value;
  };
  for (const DType dtype : {DType::kI32, DType::kI64}) {
    VerifyProblem problem = packed();
    problem.cu_seqlens_dtype = dtype;
    for (const gdn::Verify& verify : on_every_path(problem)) {
      for (const auto& [index, value] :
           {Bad{0, -1}, Bad{2, 3}, Bad{4, 14}, Bad{1, 1 << 30}, Bad{2, -5}}) {
        VerifyCase one(problem, {.lengths = {4, 1, 3, 5}}, {.seed = seed()});  // 0 4 5 8 13
        store_integer(dtype, one.at(one.vector_at(TensorId::kCuSeqlens, index)), value);
        expect_good(one, run(one, verify), "bound " + std::to_string(index));
      }
    }
  }
}

// A request of more tokens than draft_tokens: NaN, and its state is as it was; others do not
// notice.
TEST_CASE("GdnVerify.LongerThanDraftTokens", "[gpu][verify][sanitize]") {
  VerifyProblem problem = pool();
  problem.draft_tokens = 3;
  const VerifyCase one(problem, {.lengths = {3, 4, 1, 16, 2}}, {.seed = seed()});
  VerifyProblem longer = problem;
  longer.draft_tokens = 16;
  const std::vector<gdn::Verify> verifies = on_every_path(problem);
  const std::vector<gdn::Verify> longer_ones = on_every_path(longer);
  for (std::size_t i = 0; i < verifies.size(); ++i) {
    const GdnMemory after = run(one, verifies[i]);
    const GdnMemory all = run(one, longer_ones[i]);
    for (std::int64_t n = 0; n < one.sequences(); ++n) {
      INFO("configuration " << i << ", request " << n);
      if (one.length(n) <= problem.draft_tokens) {
        CHECK(is_close(one, n, after, all));
        continue;
      }
      for (std::int64_t h = 0; h < problem.heads.count(); ++h) {
        for (std::int64_t t = 0; t < one.length(n); ++t) {
          for (const float x : one.row_values(after, TensorId::kO, n, t, h, problem.value_dim)) {
            CHECK(std::isnan(x));
          }
        }
        const std::int64_t slot = one.row(n).read;
        CHECK(one.matrix_values<float>(after, TensorId::kState, slot, h) ==
              one.matrix_values<float>(one.memory(), TensorId::kState, slot, h));
      }
    }
  }
}

TEST_CASE("GdnVerify.NonFiniteInputsStayInTheirRequestAndHead", "[gpu][verify]") {
  VerifyProblem problem = small_verify();  // two value heads per key head
  problem.inputs.beta_mode = BetaMode::kGiven;
  for (const gdn::Verify& verify : on_every_path(problem)) {
    expect_all_confined([&] { return VerifyCase(problem, uniform(3, 4), {.seed = seed()}); },
                        verify, 2);
  }
}

// With batch_invariant the bits of a request do not depend on the batch around it.
TEST_CASE("GdnVerify.BitsDoNotDependOnTheBatch", "[gpu][verify]") {
  for (const StateLayout layout : kLayouts) {
    VerifyProblem problem = packed();
    problem.states.layout = layout;
    problem.batch_invariant = true;
    const VerifyCase c(problem, first(257), {.seed = seed()});
    for (const gdn::Verify& verify : on_every_path(problem)) {
      expect_same_in_parts(c, verify, {{0, 1}, {0, 150}, {100, 2}, {100, 150}, {255, 1}});
    }
  }
}

TEST_CASE("GdnVerify.GraphReplayEqualsEagerLaunch", "[gpu][verify]") {
  const VerifyCase dense(small_verify(), uniform(5, 4), {.seed = seed()});
  for (const gdn::Verify& verify : on_every_path(small_verify())) {
    expect_same_in_graph(dense, verify, 2, 3);
  }
  const VerifyCase ragged(pool(), first(130), {.seed = seed()});
  for (const gdn::Verify& verify : on_every_path(pool())) {
    expect_same_in_graph(ragged, verify, 1, 3);
  }
}

TEST_CASE("GdnVerify.LaunchWithPdlEqualsPlainLaunch", "[gpu][verify]") {
  for (const std::int64_t requests : {1, 130}) {
    const VerifyCase c(pool(), first(requests), {.seed = seed(), .enable_pdl = true});
    for (const gdn::Verify& verify : on_every_path(pool())) {
      if (!can_enable_pdl(c, verify)) return;
      expect_same_with_pdl(c, verify, 20);
      expect_same_in_graph(c, verify, 3, 1);
    }
  }
}

TEST_CASE("GdnVerify.LaunchesFromSeveralThreads", "[gpu][verify]") {
  std::vector<std::unique_ptr<VerifyCase>> cases;
  for (int i = 0; i < 8; ++i) {
    const CaseOptions options{.seed = seed() + static_cast<std::uint64_t>(i)};
    cases.push_back(std::make_unique<VerifyCase>(small_verify(), uniform(1 + 20 * i, 2), options));
  }
  for (const gdn::Verify& verify : on_every_path(small_verify())) {
    expect_same_from_threads(cases, verify, 50);
  }
}

}  // namespace
}  // namespace cubinery::test::gdn_verify_test
