// GDN verify with a gated norm of its outputs, on both paths: every option against the
// double-precision reference, and the bits of normed steps of decode.
#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/gdn/verify/paths.h"
#include "tests/gpu/launches.h"
#include "tests/gpu/pool_sweeps.h"
#include "tests/gpu/problem_sweeps.h"

namespace cubinery::test::gdn_verify_norm_test {
namespace {

using gdn::GateMode;
using gdn::OutputNorm;
using gdn::StateLayout;
using gdn::StoredStates;
using gdn::VerifyProblem;

constexpr OutputNorm kNorms[] = {OutputNorm::kGatedRms, OutputNorm::kSigmoidGatedRms};

// Few states, and enough of them for the kernel of large launches.
const std::vector<CaseShape> kShapes = {uniform(3, 4), uniform(300, 3)};

VerifyProblem normed(VerifyProblem problem) {
  problem.output_norm = OutputNorm::kGatedRms;
  return problem;
}
VerifyProblem pool() { return normed(as_packed_pool(small_verify())); }
VerifyProblem tree() {
  VerifyProblem problem = normed(small_verify());
  problem.tree = true;
  problem.stored_states = StoredStates::kEvery;
  return problem;
}

// Requests of 5, 1, 0, 3, 5, 1, ... tokens.
CaseShape first(std::int64_t requests) { return cycle(requests, {5, 1, 0, 3}); }

TEST_CASE("GdnVerifyNorm.EveryOperandAndOutputDtype", "[gpu][verify][sanitize]") {
  for (const OutputNorm norm : kNorms) {
    VerifyProblem problem = small_verify();
    problem.output_norm = norm;
    run_cases(operand_and_output_dtypes(problem), kShapes);
  }
}

TEST_CASE("GdnVerifyNorm.EveryWeightDtypeAndGate", "[gpu][verify]") {
  std::vector<VerifyProblem> problems;
  for (const DType dtype : kFloats) {
    for (const OutputNorm norm : kNorms) {
      VerifyProblem& problem = problems.emplace_back(small_verify());
      problem.output_norm = norm;
      problem.norm_weight_dtype = dtype;
    }
  }
  run_cases(problems, kShapes);
}

TEST_CASE("GdnVerifyNorm.EveryStateDtypeAndLayout", "[gpu][verify][sanitize]") {
  std::vector<VerifyProblem> problems;
  for (const StoredStates stored : {StoredStates::kLast, StoredStates::kEvery}) {
    VerifyProblem problem = normed(small_verify());
    problem.stored_states = stored;
    for (const VerifyProblem& one : state_dtypes_and_layouts(problem)) problems.push_back(one);
  }
  run_cases(problems, kShapes);
}

TEST_CASE("GdnVerifyNorm.EveryDim", "[gpu][verify][big][slow]") {
  run_cases(every_dim(normed(small_verify())), {uniform(3, 4)});
  run_cases(every_dim(tree()), {uniform(3, 4)});
}

TEST_CASE("GdnVerifyNorm.EveryNumberOfTokens", "[gpu][verify][sanitize]") {
  for (VerifyProblem problem : {normed(small_verify()), tree()}) {
    for (const int most : {4, 8, 16}) {  // each has kernels of its own
      problem.draft_tokens = most;
      for (std::int64_t tokens = 1; tokens <= most; ++tokens) {
        run_case(problem, uniform(2, tokens));
      }
    }
  }
}

// Blocks of a whole head: in one pass of its warps, and in several.
TEST_CASE("GdnVerifyNorm.EveryNumberOfColumns", "[gpu][verify][sanitize][slow]") {
  VerifyProblem last = pool(), every = normed(small_verify());
  last.draft_tokens = every.draft_tokens = 8;
  last.value_dim = every.value_dim = 128;
  every.stored_states = StoredStates::kEvery;
  std::vector<VerifyProblem> problems = state_dtypes_and_layouts(last);
  for (const VerifyProblem& problem : state_dtypes_and_layouts(every)) problems.push_back(problem);
  run_with_all_columns<VerifyCase>(problems, [](const VerifyProblem& problem) {
    return problem.varlen ? first(6) : uniform(6, 5);
  });
}

TEST_CASE("GdnVerifyNorm.WithoutInitialStateOrStore", "[gpu][verify]") {
  std::vector<VerifyProblem> problems;
  for (const bool has_initial : {true, false}) {
    for (const bool store : {true, false}) {
      VerifyProblem& problem = problems.emplace_back(normed(small_verify()));
      problem.states.has_initial = has_initial;
      problem.states.store = store;
    }
  }
  run_cases(problems, kShapes);
}

TEST_CASE("GdnVerifyNorm.TakesOperandsAsTheyLie", "[gpu][verify]") {
  for (const Placement placement : {Placement::kPackedRows, Placement::kTransposedHeads,
                                    Placement::kRank4, Placement::kUnaligned}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (VerifyProblem problem : {normed(small_verify()), pool()}) {
        problem.dtype = problem.output_dtype = problem.norm_weight_dtype = dtype;
        problem.inputs.gate_mode = GateMode::kComputed;
        run_case(problem, uniform(3, 5), {.placement = placement});
        run_case(problem, uniform(130, 2), {.placement = placement});
      }
    }
  }
}

TEST_CASE("GdnVerifyNorm.TakesTheEpsilonItIsGiven", "[gpu][verify]") {
  VerifyProblem problem = normed(small_verify());
  problem.output_dtype = DType::kF32;
  for (const float eps : {0.0f, 1e-5f, 0.5f, 100.0f}) {
    CaseOptions options;
    options.norm_eps = eps;
    run_case(problem, uniform(3, 4), options);
  }
}

// Padding is zero or left alone, and invalid requests are NaN, not what a norm makes of that: in
// all columns of a head, also of those that a warp has behind its first.
TEST_CASE("GdnVerifyNorm.EveryPaddingPolicy", "[gpu][verify][sanitize][slow]") {
  VerifyProblem wide = pool();
  wide.value_dim = 128;
  for (const VerifyProblem& problem : {pool(), wide}) {
    run_padding_policies(problem, first);
    run_outside_the_pool(problem, first(3));
  }
}

TEST_CASE("GdnVerifyNorm.MalformedBoundsAndParents", "[gpu][verify][sanitize]") {
  VerifyProblem problem = normed(as_packed(small_verify()));
  problem.value_dim = 128;
  for (const gdn::Verify& verify : on_every_path(problem)) {
    VerifyCase one(problem, {.lengths = {4, 1, 3, 5}}, {.seed = seed()});
    store_integer(problem.cu_seqlens_dtype, one.at(one.vector_at(TensorId::kCuSeqlens, 2)), 3);
    expect_good(one, run(one, verify), "bounds");
  }
  VerifyProblem branching = tree();
  branching.value_dim = 128;
  for (const gdn::Verify& verify : on_every_path(branching)) {
    VerifyCase one(branching, uniform(4, 8), {.seed = seed()});
    store_integer(branching.parents_dtype, one.at(one.parent_at(2, 3)), 3);
    expect_good(one, run(one, verify), "parents");
  }
}

TEST_CASE("GdnVerifyNorm.NonFiniteInputsStayInTheirRequestAndHead", "[gpu][verify]") {
  VerifyProblem problem = normed(small_verify());
  problem.inputs.beta_mode = gdn::BetaMode::kGiven;
  for (const gdn::Verify& verify : on_every_path(problem)) {
    const auto make = [&] { return VerifyCase(problem, uniform(3, 4), {.seed = seed()}); };
    expect_all_confined(make, verify, 2);
    expect_confined(make(), verify, std::numeric_limits<float>::quiet_NaN(), TensorId::kZ, 2, 1, 1,
                    1);
  }
}

TEST_CASE("GdnVerifyNorm.BitsDoNotDependOnTheBatch", "[gpu][verify]") {
  for (const StateLayout layout : kLayouts) {
    VerifyProblem problem = normed(as_packed(small_verify()));
    problem.states.layout = layout;
    problem.batch_invariant = true;
    const VerifyCase c(problem, first(257), {.seed = seed()});
    for (const gdn::Verify& verify : on_every_path(problem)) {
      expect_same_in_parts(c, verify, {{0, 1}, {0, 150}, {100, 2}, {255, 1}});
    }
  }
}

TEST_CASE("GdnVerifyNorm.GraphsAndLaunchesWithPdlEqualPlainOnes", "[gpu][verify]") {
  for (const gdn::Verify& verify : on_every_path(pool())) {
    const VerifyCase ragged(pool(), first(130), {.seed = seed()});
    expect_same_in_graph(ragged, verify, 1, 3);
    const VerifyCase early(pool(), first(130), {.seed = seed(), .enable_pdl = true});
    if (can_enable_pdl(early, verify)) expect_same_with_pdl(early, verify, 20);
  }
}

TEST_CASE("GdnVerifyNorm.QwenInAnEngine", "[gpu][verify][big]") {
  CaseOptions options;
  options.gates = GateDistribution::kInit;
  options.placement = Placement::kPackedRows;
  for (const DType state_dtype : {DType::kF32, DType::kBF16}) {
    for (const OutputNorm norm : kNorms) {
      auto problem = engine_problem<VerifyProblem>(state_dtype, StateLayout::kVK);
      problem.output_norm = norm;
      problem.norm_weight_dtype = DType::kBF16;
      problem.draft_tokens = 4;
      run_case(problem, uniform(1, 4), options);
      run_case(problem, uniform(20, 4), options);
    }
  }
}

}  // namespace
}  // namespace cubinery::test::gdn_verify_norm_test
