// From a decode problem to its kernels.
#include "runtime/gdn/decode/paths.h"

#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "codegen/arch.h"
#include "gdn_decode/fields.h"
#include "runtime/operator/planner.h"
#include "tests/catch.h"
#include "tests/function_ref.h"
#include "tests/runtime/portable_keys.h"
#include "tests/runtime/problem_changes.h"
#include "tests/runtime/problem_refusal.h"

namespace cubinery::gdn {
namespace {

using test::Change;
using test::changed;
using test::compiled_in_changes;
using test::decode_keys;
using test::DecodeKeys;

std::string wide_text(const DecodeProblem& problem) { return canonical(decode_keys(problem).wide); }

// Calls f(problem) for every head size, layout, state dtype and norm.
void for_each_shape(FunctionRef<void(const DecodeProblem&)> f) {
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const DType dtype : kStateFloats) {
      for (int key_dim = 16; key_dim <= 256; key_dim += 16) {
        for (int value_dim = 16; value_dim <= 256; value_dim += 16) {
          for (const OutputNorm norm : {OutputNorm::kNone, OutputNorm::kGatedRms}) {
            f({.key_dim = key_dim,
               .value_dim = value_dim,
               .states = {.dtype = dtype, .layout = layout},
               .output_norm = norm});
          }
        }
      }
    }
  }
}

TEST_CASE("EveryShapeHasTwoValidKernelsThatSumAlike", "[cpu]") {
  int count = 0;
  for_each_shape([&](const DecodeProblem& problem) {
    ++count;
    const DecodeKeys keys = decode_keys(problem);
    INFO(canonical(keys.wide));
    if (!problem.check().ok()) FAIL_CHECK("check");
    for (const GdnDecodeKey& key : {keys.wide, keys.narrow}) {
      if (!valid(key)) FAIL_CHECK(canonical(key) << ": " << why_invalid(key));
    }
    if (keys.wide.k_lanes != keys.narrow.k_lanes) FAIL_CHECK("k_lanes");
    if (problem.states.layout == StateLayout::kVK && keys.wide.vec_bytes != keys.narrow.vec_bytes) {
      FAIL_CHECK("vec_bytes");
    }
    if (keys.wide.warp_v < keys.narrow.warp_v) FAIL_CHECK("warp_v");
  });
  CHECK(count == 2 * 5 * 16 * 16 * 2);
}

TEST_CASE("KernelsWithoutResultsAreThoseOfTheKeys", "[cpu]") {
  const DecodeProblem problem{.key_dim = 64, .inputs = {.gate_mode = GateMode::kComputed}};
  for (const std::string& arch : known_architectures()) {
    const Result<std::vector<KernelSpec>> kernels = kernels_for(problem, arch, {});
    REQUIRE(kernels);
    REQUIRE(kernels->size() == 2);
    CHECK(problem.kernels(arch)->size() >= 2);
    CHECK((*kernels)[0].canonical == canonical(decode_keys(problem).wide));
    CHECK((*kernels)[1].canonical == canonical(decode_keys(problem).narrow));
    for (const KernelSpec& spec : *kernels) {
      CHECK(spec.kernel == "gdn_decode");
      CHECK(spec.param_bytes == sizeof(GdnDecodeParams));
    }
  }
}

TEST_CASE("StatesInFp8NeedItsConversions", "[cpu]") {
  for (const auto& [dtype, name] :
       {std::pair{DType::kF8E4M3, "f8e4m3"}, std::pair{DType::kF8E5M2, "f8e5m2"}}) {
    const DecodeProblem problem{.states = {.dtype = dtype}};
    CHECK(problem.check().ok());
    for (const std::string& arch : known_architectures()) {
      INFO(arch);
      const Result<std::vector<KernelSpec>> kernels = problem.kernels(arch);
      if (arch != "sm_80" && arch != "sm_86" && arch != "sm_87") {
        CHECK(kernels);
        continue;
      }
      REQUIRE_FALSE(kernels);
      CHECK(kernels.error().code() == Code::kUnsupported);
      CHECK(kernels.error().message() == "gdn_decode: no path computes this problem on " + arch +
                                             " (portable: state_dtype = " + name +
                                             " needs sm_89 or newer; accepted: f32, bf16, f16)");
    }
  }
}

TEST_CASE("HeadCountsAreNotCompiledIn", "[cpu]") {
  const DecodeProblem problem;
  CHECK(wide_text({.heads = {.q = 1, .k = 1, .v = 1}}) == wide_text(problem));
  CHECK(wide_text({.heads = {.q = 64, .k = 4, .v = 4}}) == wide_text(problem));
}

// What does not reach the code does not make another kernel.
TEST_CASE("EqualCodeHasEqualKeys", "[cpu]") {
  const auto same = [](const DecodeProblem& base, const Change<DecodeProblem>& change) {
    return wide_text(changed(base, change)) == wide_text(base);
  };
  const auto gate = [](auto& p) { p.inputs.gate_dtype = DType::kBF16; };
  const auto beta = [](auto& p) { p.inputs.beta_dtype = DType::kBF16; };
  const auto a_log = [](auto& p) { p.inputs.a_log_dtype = DType::kBF16; };
  const auto dt_bias = [](auto& p) { p.inputs.dt_bias_dtype = DType::kBF16; };
  const auto index = [](auto& p) { p.states.index_dtype = DType::kI64; };

  const DecodeProblem plain{.inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne}};
  for (const auto& change : std::vector<Change<DecodeProblem>>{gate, beta, a_log, dt_bias, index}) {
    CHECK(same(plain, change));
  }
  const DecodeProblem log;
  CHECK_FALSE(same(log, gate));
  CHECK_FALSE(same(log, beta));
  CHECK(same(log, a_log));
  CHECK(same(log, dt_bias));
  const DecodeProblem computed{.inputs = {.gate_mode = GateMode::kComputed}};
  CHECK_FALSE(same(computed, a_log));
  CHECK_FALSE(same(computed, dt_bias));
  const DecodeProblem pool{.states = {.location = StateLocation::kPool}};
  CHECK_FALSE(same(pool, index));
  CHECK(same(log, [](auto& p) { p.batch_invariant = true; }));
  const auto weight = [](auto& p) { p.norm_weight_dtype = DType::kBF16; };
  CHECK(same(log, weight));
  CHECK_FALSE(same({.output_norm = OutputNorm::kGatedRms}, weight));
  const auto bias = [](auto& p) { p.conv.has_bias = true; };
  const auto window = [](auto& p) { p.conv.whole_window = true; };
  CHECK((same(log, bias) && same(log, window)));
  DecodeProblem convolved{.heads = {.v = 16}, .conv = {.width = 4}};
  CHECK_FALSE((same(convolved, bias) || same(convolved, window)));
  convolved.states.has_initial = convolved.states.store = false;
  CHECK_FALSE(same(convolved, bias));
  CHECK(same(convolved, window));
}

TEST_CASE("EveryOtherFieldIsCompiledIn", "[cpu]") {
  std::vector<Change<DecodeProblem>> changes = compiled_in_changes<DecodeProblem>();
  changes.emplace_back([](auto& p) { p.output_norm = OutputNorm::kGatedRms; });
  changes.emplace_back([](auto& p) { p.output_norm = OutputNorm::kSigmoidGatedRms; });
  for (const int width : {2, 3, 4}) changes.emplace_back([=](auto& p) { p.conv.width = width; });
  const auto add_conv = [&](const Change<DecodeProblem>& change) {
    changes.emplace_back([=](auto& p) {
      p.conv.width = 4;
      change(p);
    });
  };
  add_conv([](auto& p) { p.conv.activation = Activation::kNone; });
  add_conv([](auto& p) { p.conv.has_bias = true; });
  add_conv([](auto& p) { p.conv.weight_dtype = DType::kF32; });
  add_conv([](auto& p) { p.conv.state_dtype = DType::kF32; });
  add_conv([](auto& p) { p.conv.state_layout = ConvStateLayout::kChannels; });
  add_conv([](auto& p) { p.conv.whole_window = true; });
  std::set<std::string> keys;
  for (const auto& change : changes) keys.insert(wide_text(changed(DecodeProblem{}, change)));
  CHECK(keys.size() == changes.size());
}

// Persistent: manifests hold this.
TEST_CASE("ProblemsSurviveJson", "[cpu]") {
  CHECK(DecodeProblem{}.to_json() ==
        R"({"q_heads":16,"k_heads":16,"v_heads":32,"key_dim":128,"value_dim":128,"dtype":"bf16",)"
        R"("output_dtype":"bf16","gate_dtype":"f32","beta_dtype":"f32","a_log_dtype":"f32",)"
        R"("dt_bias_dtype":"f32","state_dtype":"f32","index_dtype":"i32","state_layout":"vk",)"
        R"("state_location":"dense","decay":"head",)"
        R"("gate_mode":"log",)"
        R"("beta_mode":"given","use_qk_l2norm":false,"has_initial_state":true,"store_state":true,)"
        R"("output_norm":"none","norm_weight_dtype":"f32","conv_width":0,)"
        R"("conv_activation":"silu","conv_has_bias":false,"conv_weight_dtype":"bf16",)"
        R"("conv_state_dtype":"bf16","conv_state_layout":"columns","conv_whole_window":false,)"
        R"("batch_invariant":false})");
  const DecodeProblem problem{.heads = {.q = 2, .k = 4, .v = 8},
                              .inputs = {.dt_bias_dtype = DType::kF16,
                                         .gate_mode = GateMode::kComputed,
                                         .use_qk_l2norm = true},
                              .states = {.location = StateLocation::kPool},
                              .output_norm = OutputNorm::kGatedRms,
                              .conv = {.width = 3, .has_bias = true}};
  const Result<DecodeProblem> parsed = DecodeProblem::from_json(problem.to_json());
  REQUIRE(parsed);
  CHECK(parsed->to_json() == problem.to_json());
  const Result<DecodeProblem> sparse = DecodeProblem::from_json(R"({"v_heads":64})");
  REQUIRE(sparse);
  CHECK(sparse->to_json() == DecodeProblem{.heads = {.v = 64}}.to_json());
}

TEST_CASE("ANormsWeightIsOfFloats", "[cpu]") {
  CHECK(test::refusal<DecodeProblem>([](auto& p) { p.norm_weight_dtype = DType::kI32; }) ==
        "gdn_decode: norm_weight_dtype = i32; accepted: f32, bf16, f16");
}

TEST_CASE("AConvolutionHasTwoToFourTaps", "[cpu]") {
  const auto refused = [](int width) {
    return test::refusal<DecodeProblem>([=](auto& p) { p.conv.width = width; });
  };
  for (const int width : {-1, 1, 5}) {
    CHECK(refused(width) ==
          "gdn_decode: conv_width = " + std::to_string(width) + "; accepted: 0, 2, 3, 4");
  }
  CHECK(test::refusal<DecodeProblem>([](auto& p) { p.conv.weight_dtype = DType::kI32; }) ==
        "gdn_decode: conv_weight_dtype = i32; accepted: f32, bf16, f16");
  CHECK(test::refusal<DecodeProblem>([](auto& p) { p.conv.state_dtype = DType::kF8E4M3; }) ==
        "gdn_decode: conv_state_dtype = f8e4m3; accepted: f32, bf16, f16");
}

// Blocks that need the same inputs are a cluster: of eight where there are any, else alone.
TEST_CASE("AConvolutionsKernelsFitIntoAClusterOfEight", "[cpu]") {
  constexpr Heads kHeads[] = {{1, 1, 1}, {16, 16, 32}, {2, 2, 6}, {2, 2, 8}, {1, 1, 8},
                              {4, 2, 2}, {8, 1, 1},    {6, 6, 2}, {2, 6, 3}, {1, 4, 2}};
  for (const std::string arch : {"sm_80", "sm_90a", "sm_120a"}) {
    const Target target = typical_target(*parse_arch(arch));
    const bool has_clusters = target.arch.major >= 9;
    for_each_shape([&](DecodeProblem problem) {
      if (problem.key_dim % 48 != 0 && problem.key_dim != 128) return;
      for (const Heads& heads : kHeads) {
        problem.heads = heads;
        problem.conv = {.width = 4};
        const auto found = decode_portable().default_keys(problem, target);
        const bool is_alone = heads.q == heads.k && heads.k == heads.v;
        if (found.empty() == (has_clusters || is_alone)) FAIL_CHECK(arch << problem.to_json());
        for (const auto& [key] : found) {
          if (!valid(key)) FAIL_CHECK(canonical(key) << ": " << why_invalid(key));
          if (conv_cluster(problem, key) > (has_clusters ? 8 : 1)) FAIL_CHECK(canonical(key));
          if (key.k_lanes != std::get<0>(found.front()).k_lanes) FAIL_CHECK(canonical(key));
        }
      }
    });
  }
}

TEST_CASE("AConvolutionOfManyHeadsIsRefused", "[cpu]") {
  DecodeProblem problem{.heads = {.q = 1, .k = 1, .v = 16}, .conv = {.width = 4}};
  const std::string why =
      "conv_width = 4 needs up to 8 heads for each of q, k and v, and sm_90 or newer where that is "
      "more than one; accepted: 0, and a convolution by itself in front)";
  const auto refusal = [&](const std::string& arch) {
    const auto kernels = problem.kernels(arch);
    REQUIRE_FALSE(kernels);
    CHECK(kernels.error().code() == Code::kUnsupported);
    return std::string(kernels.error().message());
  };
  CHECK(refusal("sm_90a") ==
        "gdn_decode: no path computes this problem on sm_90a (portable: " + why);
  problem.heads = {.q = 4, .k = 4, .v = 8};
  CHECK(problem.kernels("sm_90a"));
  CHECK(refusal("sm_80") == "gdn_decode: no path computes this problem on sm_80 (portable: " + why);
  problem.heads.v = 4;
  CHECK(problem.kernels("sm_80"));
}

// Small batches have as many warps of a head as may be, large ones few that go on to the next
// columns: both are a whole head.
TEST_CASE("ANormedHeadLiesInOneBlock", "[cpu]") {
  const DecodeKeys keys = decode_keys({.output_norm = OutputNorm::kGatedRms});
  CHECK((keys.wide.warp_v == 32 && keys.wide.held_v == 8 && keys.wide.warps == 4));
  CHECK((keys.narrow.warp_v == 8 && keys.narrow.held_v == 4 && keys.narrow.warps == 16));
}

}  // namespace
}  // namespace cubinery::gdn
