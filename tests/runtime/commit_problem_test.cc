// From a commit problem to its kernels.
#include "runtime/gdn/verify/commit_paths.h"

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "codegen/arch.h"
#include "gdn_commit/fields.h"
#include "runtime/operator/planner.h"
#include "tests/catch.h"
#include "tests/runtime/portable_keys.h"
#include "tests/runtime/problem_changes.h"
#include "tests/runtime/problem_refusal.h"

namespace cubinery::gdn::commit_problem_test {
namespace {

using test::Change;
using test::changed;
using test::commit_keys;
using test::refusal;
using test::shared_changes;

// The kernels that do without results.
std::vector<std::string> texts_of(const CommitProblem& problem) {
  std::vector<std::string> texts;
  for (const GdnCommitKey& key : commit_keys(problem)) texts.push_back(canonical(key));
  return texts;
}

TEST_CASE("ACommittedRequestHasAFewTokens", "[cpu]") {
  for (const int tokens : {-1, 0, 17, 1000}) {
    CHECK(refusal<CommitProblem>([&](auto& p) { p.draft_tokens = tokens; }) ==
          "gdn_commit: draft_tokens = " + std::to_string(tokens) + "; accepted: 1 to 16");
  }
  for (const int tokens : {1, 8, 16}) CHECK(CommitProblem{.draft_tokens = tokens}.check().ok());
}

TEST_CASE("BoundsAndCountsOfACommitAreIntegers", "[cpu]") {
  CHECK(refusal<CommitProblem>([](auto& p) { p.cu_seqlens_dtype = DType::kF32; }) ==
        "gdn_commit: cu_seqlens_dtype = f32; accepted: i32, i64");
  CHECK(refusal<CommitProblem>([](auto& p) { p.accepted_dtype = DType::kBF16; }) ==
        "gdn_commit: accepted_dtype = bf16; accepted: i32, i64");
}

TEST_CASE("ACommitReadsAndWritesStates", "[cpu]") {
  CHECK(refusal<CommitProblem>([](auto& p) { p.states.has_initial = false; }) ==
        "gdn_commit: has_initial_state = false; accepted: true");
  CHECK(refusal<CommitProblem>([](auto& p) { p.states.store = false; }) ==
        "gdn_commit: store_state = false; accepted: true");
}

// There is one path, and the tensor cores do not take them.
TEST_CASE("ACommitOfFloatOperandsIsRefused", "[cpu]") {
  CHECK(refusal<CommitProblem>([](auto& p) { p.dtype = DType::kF32; }) ==
        "gdn_commit: dtype = f32; accepted: bf16, f16");
  CHECK(commit_wy().why_not({.dtype = DType::kF32}, test::sm_90()) == "dtype must be bf16 or f16");
}

// Calls f(problem) for every head size, layout, state dtype and number of rows.
template <class Function>
void for_each_shape(const Function& f) {
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (int key_dim = 16; key_dim <= 256; key_dim += 16) {
        for (int value_dim = 16; value_dim <= 256; value_dim += 16) {
          for (const int tokens : {8, 16}) {
            f(CommitProblem{.key_dim = key_dim,
                            .value_dim = value_dim,
                            .states = {.dtype = dtype, .layout = layout},
                            .draft_tokens = tokens});
          }
        }
      }
    }
  }
}

TEST_CASE("EveryShapeHasValidCommitKernels", "[cpu]") {
  for_each_shape([](const CommitProblem& problem) {
    if (!problem.check().ok()) FAIL_CHECK("check");
    if (const auto why = commit_wy().why_not(problem, test::sm_90())) FAIL_CHECK(*why);
    const std::vector<GdnCommitKey> keys = commit_keys(problem);
    if (keys.empty()) FAIL_CHECK("no keys");
    for (const GdnCommitKey& key : keys) {
      if (!valid(key)) FAIL_CHECK(canonical(key) << ": " << why_invalid(key));
      if (key.draft_tokens != problem.draft_tokens) FAIL_CHECK(canonical(key));
    }
  });
}

TEST_CASE("CommitKernelsWithoutResultsAreThoseOfTheKeys", "[cpu]") {
  const CommitProblem problem{.key_dim = 64, .inputs = {.gate_mode = GateMode::kComputed}};
  for (const std::string& arch : known_architectures()) {
    const Result<std::vector<KernelSpec>> kernels = kernels_for(problem, arch, {});
    REQUIRE(kernels);
    CHECK(problem.kernels(arch)->size() >= kernels->size());
    std::vector<std::string> texts;
    for (const KernelSpec& spec : *kernels) {
      texts.push_back(spec.canonical);
      CHECK(spec.param_bytes == sizeof(GdnCommitParams));
    }
    CHECK(texts == texts_of(problem));
  }
}

// What does not reach the code does not make another kernel.
TEST_CASE("EqualCommitCodeHasEqualKeys", "[cpu]") {
  using To = Change<CommitProblem>;
  const auto same = [](const CommitProblem& base, const To& change) {
    return texts_of(changed(base, change)) == texts_of(base);
  };
  const To gate = [](auto& p) { p.inputs.gate_dtype = DType::kBF16; };
  const To beta = [](auto& p) { p.inputs.beta_dtype = DType::kBF16; };
  const To a_log = [](auto& p) { p.inputs.a_log_dtype = DType::kBF16; };
  const To index = [](auto& p) { p.states.index_dtype = DType::kI64; };
  const To cu_seqlens = [](auto& p) { p.cu_seqlens_dtype = DType::kI64; };

  const CommitProblem plain{.inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne}};
  for (const To& change : {gate, beta, a_log, index, cu_seqlens}) {
    CHECK(same(plain, change));
  }
  for (const To& change : {gate, beta}) CHECK_FALSE(same({}, change));
  CHECK(same({}, [](auto& p) { p.heads = {.q = 1, .k = 1, .v = 1}; }));
  CHECK(same({}, [](auto& p) { p.draft_tokens = 8; }));
  CHECK(same({.draft_tokens = 9}, [](auto& p) { p.draft_tokens = 16; }));
  CHECK(same({}, [](auto& p) { p.batch_invariant = true; }));
  const CommitProblem pool{.states = {.location = StateLocation::kPool}};
  CHECK_FALSE(same(pool, index));
  CHECK_FALSE(same({.varlen = true}, cu_seqlens));
}

TEST_CASE("EveryOtherCommitFieldIsCompiledIn", "[cpu]") {
  std::vector<Change<CommitProblem>> changes = shared_changes<CommitProblem>();
  changes.emplace_back([](auto& p) { p.varlen = true; });
  changes.emplace_back([](auto& p) { p.accepted_dtype = DType::kI64; });
  changes.emplace_back([](auto& p) { p.draft_tokens = 16; });
  std::set<std::string> keys;
  for (const auto& change : changes) keys.insert(texts_of(changed({}, change)).back());
  CHECK(keys.size() == changes.size());
}

// A result serves a problem whatever says how many tokens are accepted.
TEST_CASE("ResultsOfCommitsDoNotNameCounts", "[cpu]") {
  const std::string text = text_for_results(CommitProblem{});
  CHECK(text_for_results(CommitProblem{.draft_tokens = 8, .accepted_dtype = DType::kI64}) == text);
  CHECK(text_for_results(CommitProblem{.draft_tokens = 16}) != text);
}

TEST_CASE("LaunchesCountStatesOfAllLayers", "[cpu]") {
  const CommitProblem problem{.heads = {.v = 48}};
  const auto point = [&](std::int64_t layers, std::int64_t requests) {
    return point_of(problem, {.layers = layers, .requests = requests});
  };
  CHECK(point(1, 4) == Point{4 * 48, 1, 1});
  CHECK(point(36, 4) == Point{36 * 4 * 48, 1, 1});
  CHECK(point(-1, 0) == Point{48, 1, 1});
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  CHECK(point(kMost, kMost) == Point{std::int64_t{2147483647} * 48, 1, 1});
  CHECK(features_at(problem, point(2, 4)) == Shape{{"states", 384}});
}

// Persistent: manifests hold this.
TEST_CASE("CommitProblemsSurviveJson", "[cpu]") {
  CHECK(CommitProblem{}.to_json() ==
        R"({"q_heads":16,"k_heads":16,"v_heads":32,"key_dim":128,"value_dim":128,"dtype":"bf16",)"
        R"("gate_dtype":"f32","beta_dtype":"f32","a_log_dtype":"f32","dt_bias_dtype":"f32",)"
        R"("state_dtype":"f32","index_dtype":"i32","cu_seqlens_dtype":"i32","varlen":false,)"
        R"("draft_tokens":4,"state_layout":"vk","state_location":"dense","decay":"head",)"
        R"("gate_mode":"log","beta_mode":"given","use_qk_l2norm":false,)"
        R"("has_initial_state":true,"store_state":true,"accepted_dtype":"i32",)"
        R"("batch_invariant":false})");
  const CommitProblem problem{.heads = {.q = 2},
                              .states = {.location = StateLocation::kPool},
                              .draft_tokens = 8,
                              .varlen = true,
                              .cu_seqlens_dtype = DType::kI64,
                              .accepted_dtype = DType::kI64,
                              .batch_invariant = true};
  const Result<CommitProblem> parsed = CommitProblem::from_json(problem.to_json());
  REQUIRE(parsed);
  CHECK(parsed->to_json() == problem.to_json());
  const Result<CommitProblem> sparse = CommitProblem::from_json(R"({"draft_tokens":8})");
  REQUIRE(sparse);
  CHECK(sparse->to_json() == CommitProblem{.draft_tokens = 8}.to_json());
}

}  // namespace
}  // namespace cubinery::gdn::commit_problem_test
