// From a verify problem to its kernels.
#include "runtime/gdn/verify/paths.h"

#include <set>
#include <string>
#include <vector>

#include "codegen/arch.h"
#include "gdn_verify/fields.h"
#include "gdn_verify_wy/fields.h"
#include "runtime/operator/planner.h"
#include "tests/catch.h"
#include "tests/runtime/portable_keys.h"
#include "tests/runtime/problem_changes.h"
#include "tests/runtime/problem_refusal.h"

namespace cubinery::gdn::verify_problem_test {
namespace {

using test::Change;
using test::changed;
using test::compiled_in_changes;
using test::decode_keys;
using test::refusal;
using test::verify_keys;
using test::VerifyKeys;

// The kernels that do without results, all of both paths.
std::vector<std::string> texts_of(const VerifyProblem& problem) {
  const VerifyKeys keys = verify_keys(problem);
  std::vector<std::string> texts;
  for (const GdnVerifyKey& key : keys.steps) texts.push_back(canonical(key));
  for (const GdnVerifyWyKey& key : keys.wy) texts.push_back(canonical(key));
  return texts;
}
std::string text_of(const VerifyProblem& problem) { return texts_of(problem).front(); }

TEST_CASE("ARequestHasAFewTokens", "[cpu]") {
  for (const int tokens : {-1, 0, 17, 1000}) {
    CHECK(refusal<VerifyProblem>([&](auto& p) { p.draft_tokens = tokens; }) ==
          "gdn_verify: draft_tokens = " + std::to_string(tokens) + "; accepted: 1 to 16");
  }
  for (const int tokens : {1, 8, 16}) CHECK(VerifyProblem{.draft_tokens = tokens}.check().ok());
}

TEST_CASE("BoundsAndCountsAreIntegers", "[cpu]") {
  CHECK(refusal<VerifyProblem>([](auto& p) { p.cu_seqlens_dtype = DType::kF32; }) ==
        "gdn_verify: cu_seqlens_dtype = f32; accepted: i32, i64");
  CHECK(refusal<VerifyProblem>([](auto& p) { p.accepted_dtype = DType::kBF16; }) ==
        "gdn_verify: accepted_dtype = bf16; accepted: i32, i64");
}

TEST_CASE("AcceptedTokensChooseAmongStates", "[cpu]") {
  CHECK(refusal<VerifyProblem>([](auto& p) {
          p.from_accepted = true;
          p.states.has_initial = false;
        }) ==
        "gdn_verify: from_accepted = true; accepted: false (true needs has_initial_state = true)");
  CHECK(VerifyProblem{.states = {.store = false}, .from_accepted = true}.check().ok());
}

TEST_CASE("ATreeHasNoLastTokenAndNoRounding", "[cpu]") {
  CHECK(refusal<VerifyProblem>([](auto& p) { p.tree = true; }) ==
        "gdn_verify: stored_states = last; accepted: every, or store_state = false (no token of a "
        "tree is the last)");
  VerifyProblem tree{.stored_states = StoredStates::kEvery, .tree = true};
  CHECK(tree.check().ok());
  CHECK(VerifyProblem{.states = {.store = false}, .tree = true}.check().ok());
  CHECK(refusal<VerifyProblem>([&](auto& p) {
          p = tree;
          p.parents_dtype = DType::kF16;
        }) == "gdn_verify: parents_dtype = f16; accepted: i32, i64");
  // f32 states are rounded nowhere.
  tree.round_each_token = true;
  CHECK(tree.check().ok());
  CHECK(refusal<VerifyProblem>([&](auto& p) {
          p = tree;
          p.states.dtype = DType::kBF16;
        }) == "gdn_verify: round_each_token = true; accepted: false (true needs tree = false)");
}

// Calls f(problem) for every head size, layout and state dtype.
template <class Function>
void for_each_shape(const Function& f) {
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (int key_dim = 16; key_dim <= 256; key_dim += 16) {
        for (int value_dim = 16; value_dim <= 256; value_dim += 16) {
          f(VerifyProblem{.key_dim = key_dim,
                          .value_dim = value_dim,
                          .states = {.dtype = dtype, .layout = layout}});
        }
      }
    }
  }
}

TEST_CASE("EveryShapeHasValidKernelsOnEachPath", "[cpu]") {
  int wy_count = 0;
  for_each_shape([&](const VerifyProblem& problem) {
    const VerifyKeys keys = verify_keys(problem);
    INFO(canonical(keys.steps.front()));
    if (!problem.check().ok()) FAIL_CHECK("check");
    if (keys.steps.size() != 2) FAIL("two configurations");
    for (const GdnVerifyKey& key : keys.steps) {
      if (!valid(key)) FAIL_CHECK(canonical(key) << ": " << why_invalid(key));
    }
    for (const GdnVerifyWyKey& key : keys.wy) {
      if (!valid(key)) FAIL_CHECK(canonical(key) << ": " << why_invalid(key));
    }
    wy_count += keys.wy.empty() ? 0 : 1;
    if (problem.key_dim <= 128 && keys.wy.empty()) FAIL_CHECK("no wy");
  });
  CHECK(wy_count > 0);
}

// With a norm both paths take what they take without one, and a block has one head.
TEST_CASE("EveryNormedShapeHasValidKernelsOnEachPath", "[cpu]") {
  for_each_shape([](VerifyProblem problem) {
    if (problem.states.dtype == DType::kF16) return;  // as bf16
    const bool has_wy = !verify_keys(problem).wy.empty();
    problem.output_norm = OutputNorm::kGatedRms;
    const VerifyKeys keys = verify_keys(problem);
    const auto check = [](const auto& key) {
      if (!valid(key)) FAIL_CHECK(canonical(key) << ": " << why_invalid(key));
      if (warp_columns(key) * key.warps != key.value_dim) FAIL_CHECK(canonical(key));
    };
    if (keys.steps.size() != 2) FAIL("two configurations");
    for (const GdnVerifyKey& key : keys.steps) check(key);
    for (const GdnVerifyWyKey& key : keys.wy) check(key);
    if (has_wy == keys.wy.empty()) FAIL_CHECK(problem.to_json());
  });
  // Trees are of the WY form alone.
  for (const int tokens : {4, 8, 16}) {
    for (int dim = 16; dim <= 256; dim += 16) {
      const VerifyProblem tree{.key_dim = dim,
                               .value_dim = dim,
                               .draft_tokens = tokens,
                               .stored_states = StoredStates::kEvery,
                               .tree = true};
      VerifyProblem normed = tree;
      normed.output_norm = OutputNorm::kSigmoidGatedRms;
      const bool plain_runs{tree.kernels("sm_90a")}, normed_runs{normed.kernels("sm_90a")};
      if (plain_runs != normed_runs) FAIL_CHECK(tree.to_json());
    }
  }
}

// With f32 states the bits of the steps are then those of decode, whatever either path chooses.
TEST_CASE("VerifySumsAsDecodeDoes", "[cpu]") {
  for_each_shape([&](const VerifyProblem& problem) {
    const VerifyKeys keys = verify_keys(problem);
    const auto decode = decode_keys(
        {.key_dim = problem.key_dim, .value_dim = problem.value_dim, .states = problem.states});
    for (const GdnVerifyKey& key : keys.steps) {
      if (key.k_lanes != decode.wide.k_lanes) FAIL_CHECK(canonical(key));
      const bool is_vk = problem.states.layout == StateLayout::kVK;
      if (is_vk && key.vec_bytes != decode.wide.vec_bytes) FAIL_CHECK(canonical(key));
    }
  });
}

TEST_CASE("VerifyKernelsWithoutResultsAreThoseOfTheKeys", "[cpu]") {
  const VerifyProblem problem{.key_dim = 64, .inputs = {.gate_mode = GateMode::kComputed}};
  for (const std::string& arch : known_architectures()) {
    const Result<std::vector<KernelSpec>> kernels = kernels_for(problem, arch, {});
    REQUIRE(kernels);
    CHECK(problem.kernels(arch)->size() >= kernels->size());
    std::vector<std::string> texts;
    for (const KernelSpec& spec : *kernels) {
      texts.push_back(spec.canonical);
      CHECK(spec.param_bytes == sizeof(GdnVerifyParams));
    }
    CHECK(texts == texts_of(problem));
  }
}

TEST_CASE("TheWyFormTakesWhatTensorCoresTake", "[cpu]") {
  const auto why = [](const VerifyProblem& problem) {
    REQUIRE(problem.check().ok());
    return verify_wy().why_not(problem, test::sm_90()).value_or("");
  };
  CHECK(why({}) == "");
  CHECK(why({.states = {.dtype = DType::kBF16}, .draft_tokens = 16}) == "");
  CHECK(why({.dtype = DType::kF32}) == "dtype must be bf16 or f16");
  CHECK(why({.states = {.dtype = DType::kBF16}, .round_each_token = true}) ==
        "round_each_token asks for the states of decode steps");
  // f32 states are rounded nowhere.
  CHECK(why({.round_each_token = true}) == "");
  CHECK(why({.key_dim = 256, .draft_tokens = 16}) == "");
  CHECK(why({.stored_states = StoredStates::kEvery, .tree = true}) == "");
  // The steps take everything.
  for_each_shape([](const VerifyProblem& problem) {
    if (verify_portable().why_not(problem, test::sm_90())) FAIL_CHECK(text_of(problem));
  });
}

TEST_CASE("TheStepsTakeNoTree", "[cpu]") {
  const VerifyProblem tree{.stored_states = StoredStates::kEvery, .tree = true};
  CHECK(verify_portable().why_not(tree, test::sm_90()) ==
        "the state after a token's parent is not at hand (tree = true)");
  for (const KernelSpec& spec : tree.kernels("sm_90a").value())
    CHECK(spec.kernel == "gdn_verify_wy");
  VerifyProblem f32 = tree;
  f32.dtype = DType::kF32;
  const auto none = f32.kernels("sm_90a");
  REQUIRE_FALSE(none);
  CHECK(none.error().code() == Code::kUnsupported);
  CHECK(none.error().message().find("dtype must be bf16 or f16") != std::string_view::npos);
}

TEST_CASE("TheWyFormHasRowsForEveryToken", "[cpu]") {
  for (const int tokens : {1, 4, 5, 8, 9, 16}) {
    for (const GdnVerifyWyKey& key : verify_keys({.draft_tokens = tokens}).wy) {
      CHECK(key.draft_tokens == (tokens <= 4 ? 4 : tokens <= 8 ? 8 : 16));
    }
  }
}

TEST_CASE("TokensAndHeadsAreNotCompiledIn", "[cpu]") {
  CHECK(texts_of({.heads = {.q = 1, .k = 1, .v = 1}}) == texts_of({}));
  CHECK(texts_of({.draft_tokens = 3}) == texts_of({}));
  CHECK(texts_of({.draft_tokens = 7}) == texts_of({.draft_tokens = 8}));
  CHECK(text_of({.draft_tokens = 16}) == text_of({}));
}

// What does not reach the code does not make another kernel.
TEST_CASE("EqualVerifyCodeHasEqualKeys", "[cpu]") {
  using To = Change<VerifyProblem>;
  const auto same = [](const VerifyProblem& base, const To& change) {
    return texts_of(changed(base, change)) == texts_of(base);
  };
  const To gate = [](auto& p) { p.inputs.gate_dtype = DType::kBF16; };
  const To beta = [](auto& p) { p.inputs.beta_dtype = DType::kBF16; };
  const To a_log = [](auto& p) { p.inputs.a_log_dtype = DType::kBF16; };
  const To dt_bias = [](auto& p) { p.inputs.dt_bias_dtype = DType::kBF16; };
  const To index = [](auto& p) { p.states.index_dtype = DType::kI64; };
  const To cu_seqlens = [](auto& p) { p.cu_seqlens_dtype = DType::kI64; };
  const To accepted = [](auto& p) { p.accepted_dtype = DType::kI64; };
  const To every = [](auto& p) { p.stored_states = StoredStates::kEvery; };
  const To parents = [](auto& p) { p.parents_dtype = DType::kI64; };
  const To rounded = [](auto& p) { p.round_each_token = true; };

  const VerifyProblem plain{.inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne},
                            .states = {.store = false}};
  for (const To& change :
       {gate, beta, a_log, dt_bias, index, cu_seqlens, accepted, every, parents, rounded}) {
    CHECK(same(plain, change));
  }
  const VerifyProblem log;
  for (const To& change : {gate, beta, every}) CHECK_FALSE(same(log, change));
  for (const To& change : {a_log, dt_bias, index, cu_seqlens, accepted, parents, rounded}) {
    CHECK(same(log, change));
  }
  CHECK(same(log, [](auto& p) { p.batch_invariant = true; }));
  const VerifyProblem pool{.states = {.location = StateLocation::kPool}};
  CHECK_FALSE(same(pool, index));
  CHECK_FALSE(same({.varlen = true}, cu_seqlens));
  CHECK_FALSE(same({.from_accepted = true}, accepted));
  CHECK_FALSE(same({.states = {.dtype = DType::kBF16}}, rounded));
  const To weight = [](auto& p) { p.norm_weight_dtype = DType::kBF16; };
  CHECK(same(log, weight));
  CHECK_FALSE(same({.output_norm = OutputNorm::kGatedRms}, weight));
}

TEST_CASE("EveryOtherVerifyFieldIsCompiledIn", "[cpu]") {
  std::vector<Change<VerifyProblem>> changes = compiled_in_changes<VerifyProblem>();
  changes.emplace_back([](auto& p) { p.varlen = true; });
  changes.emplace_back([](auto& p) { p.stored_states = StoredStates::kEvery; });
  changes.emplace_back([](auto& p) { p.from_accepted = true; });
  changes.emplace_back([](auto& p) {
    p.states.dtype = DType::kBF16;
    p.round_each_token = true;
  });
  changes.emplace_back([](auto& p) { p.output_norm = OutputNorm::kGatedRms; });
  changes.emplace_back([](auto& p) { p.output_norm = OutputNorm::kSigmoidGatedRms; });
  std::set<std::string> keys;
  for (const auto& change : changes) keys.insert(text_of(changed(VerifyProblem{}, change)));
  CHECK(keys.size() == changes.size());
}

// A result serves a problem of as many rows of products, whatever says where states are.
TEST_CASE("ResultsDoNotNameTokensOrCounts", "[cpu]") {
  const std::string text = text_for_results(VerifyProblem{});
  CHECK(text_for_results(VerifyProblem{.draft_tokens = 3}) == text);
  CHECK(text_for_results(VerifyProblem{.draft_tokens = 16}) != text);
  CHECK(text_for_results(VerifyProblem{.from_accepted = true, .accepted_dtype = DType::kI64}) ==
        text);
  CHECK(text_for_results(VerifyProblem{.stored_states = StoredStates::kEvery}) != text);
}

TEST_CASE("LaunchesCountStatesAndTokensOfARequest", "[cpu]") {
  const VerifyProblem problem{.heads = {.v = 48}, .draft_tokens = 8};
  const auto point = [&](std::int64_t requests, std::int64_t tokens) {
    return point_of(problem, {.requests = requests, .tokens = tokens});
  };
  CHECK(point(4, 32) == Point{4 * 48, 8, 1});
  CHECK(point(4, 13) == Point{4 * 48, 4, 1});  // packed: the average, rounded up
  CHECK(point(4, 0) == Point{4 * 48, 1, 1});
  CHECK(point(1, 1000) == Point{48, 8, 1});
  CHECK(point(-1, -1) == Point{48, 1, 1});
  CHECK(features_at(problem, point(4, 32)) == Shape{{"states", 192}, {"tokens", 8}});
}

// Persistent: manifests hold this.
TEST_CASE("VerifyProblemsSurviveJson", "[cpu]") {
  CHECK(VerifyProblem{}.to_json() ==
        R"({"q_heads":16,"k_heads":16,"v_heads":32,"key_dim":128,"value_dim":128,"dtype":"bf16",)"
        R"("output_dtype":"bf16","gate_dtype":"f32","beta_dtype":"f32","a_log_dtype":"f32",)"
        R"("dt_bias_dtype":"f32","state_dtype":"f32","index_dtype":"i32","cu_seqlens_dtype":"i32",)"
        R"("varlen":false,"draft_tokens":4,"state_layout":"vk","state_location":"dense",)"
        R"("decay":"head",)"
        R"("gate_mode":"log","beta_mode":"given",)"
        R"("use_qk_l2norm":false,"has_initial_state":true,"store_state":true,)"
        R"("stored_states":"last","from_accepted":false,"accepted_dtype":"i32",)"
        R"("tree":false,"parents_dtype":"i32",)"
        R"("round_each_token":false,"output_norm":"none","norm_weight_dtype":"f32",)"
        R"("batch_invariant":false})");
  const VerifyProblem problem{.heads = {.q = 2},
                              .states = {.location = StateLocation::kPool},
                              .draft_tokens = 8,
                              .varlen = true,
                              .cu_seqlens_dtype = DType::kI64,
                              .stored_states = StoredStates::kEvery,
                              .from_accepted = true,
                              .accepted_dtype = DType::kI64,
                              .tree = true,
                              .parents_dtype = DType::kI64,
                              .round_each_token = true,
                              .output_norm = OutputNorm::kSigmoidGatedRms,
                              .norm_weight_dtype = DType::kF16,
                              .batch_invariant = true};
  const Result<VerifyProblem> parsed = VerifyProblem::from_json(problem.to_json());
  REQUIRE(parsed);
  CHECK(parsed->to_json() == problem.to_json());
  const Result<VerifyProblem> sparse = VerifyProblem::from_json(R"({"draft_tokens":8})");
  REQUIRE(sparse);
  CHECK(sparse->to_json() == VerifyProblem{.draft_tokens = 8}.to_json());
}

}  // namespace
}  // namespace cubinery::gdn::verify_problem_test
