// From a convolution's problem to its kernels.
#include "runtime/gdn/conv/operator.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "codegen/arch.h"
#include "gdn_conv/fields.h"
#include "runtime/gdn/shared/problem_check.h"
#include "runtime/operator/planner.h"
#include "tests/catch.h"
#include "tests/conv_shapes.h"
#include "tests/function_ref.h"
#include "tests/runtime/portable_keys.h"
#include "tests/runtime/problem_changes.h"
#include "tests/runtime/problem_refusal.h"

namespace cubinery::gdn::conv_problem_test {
namespace {

using test::changed;
using test::conv_keys;
using Change = test::Change<ConvProblem>;

std::string refusal(FunctionRef<void(ConvProblem&)> change) {
  return test::refusal<ConvProblem>(change);
}
std::string split_refusal(FunctionRef<void(ConvProblem&)> change) {
  return refusal([&](ConvProblem& p) {
    p.split_qkv = true;
    change(p);
  });
}

// The kernels that do without results, of tensors that lie in vectors.
std::vector<std::string> texts_of(const ConvProblem& problem) {
  std::vector<std::string> texts;
  for (const GdnConvKey& key : conv_keys(problem)) texts.push_back(canonical(key));
  return texts;
}

ConvProblem engine_problem() {
  return {.split_qkv = true,
          .inputs = {.gate_mode = GateMode::kComputed,
                     .beta_mode = BetaMode::kLogit,
                     .use_qk_l2norm = true},
          .states = {.location = StateLocation::kPool}};
}

TEST_CASE("DtypesOfAConvAreRefusedByName", "[cpu]") {
  const std::string floats = "; accepted: f32, bf16, f16", integers = "; accepted: i32, i64";
  for (const DType dtype : {DType::kI32, DType::kBool, DType::kF8E4M3}) {
    const std::string is = " = " + std::string(value_text(dtype));
    const auto named = [&](std::string_view field, const std::string& accepted) {
      return "gdn_conv: " + std::string(field) + is + accepted;
    };
    CHECK(refusal([&](auto& p) { p.dtype = dtype; }) == named("dtype", floats));
    CHECK(refusal([&](auto& p) { p.weight_dtype = dtype; }) == named("weight_dtype", floats));
    CHECK(refusal([&](auto& p) { p.states.dtype = dtype; }) == named("state_dtype", floats));
    CHECK(refusal([&](auto& p) { p.inputs.gate_dtype = dtype; }) == named("gate_dtype", floats));
    CHECK(refusal([&](auto& p) { p.inputs.beta_dtype = dtype; }) == named("beta_dtype", floats));
    CHECK(refusal([&](auto& p) { p.inputs.a_log_dtype = dtype; }) == named("a_log_dtype", floats));
    CHECK(refusal([&](auto& p) { p.inputs.dt_bias_dtype = dtype; }) ==
          named("dt_bias_dtype", floats));
  }
  for (const DType dtype : {DType::kF32, DType::kBool}) {
    const std::string is = " = " + std::string(value_text(dtype)) + integers;
    CHECK(refusal([&](auto& p) { p.cu_seqlens_dtype = dtype; }) ==
          "gdn_conv: cu_seqlens_dtype" + is);
    CHECK(refusal([&](auto& p) { p.accepted_dtype = dtype; }) == "gdn_conv: accepted_dtype" + is);
    CHECK(refusal([&](auto& p) { p.states.index_dtype = dtype; }) == "gdn_conv: index_dtype" + is);
  }
}

TEST_CASE("AConvHasTwoToFourTaps", "[cpu]") {
  for (const int width : {-1, 0, 1, 5}) {
    CHECK(refusal([&](auto& p) { p.width = width; }) ==
          "gdn_conv: width = " + std::to_string(width) + "; accepted: 2, 3, 4");
  }
  for (const int width : {2, 3, 4}) CHECK(ConvProblem{.width = width}.check().ok());
}

TEST_CASE("ModesOfAConvAreThoseThatItComputes", "[cpu]") {
  for (const GateMode mode : {GateMode::kLog, GateMode::kAlpha}) {
    CHECK(split_refusal([&](auto& p) { p.inputs.gate_mode = mode; }) ==
          "gdn_conv: gate_mode = " + std::string(value_text(mode)) +
              "; accepted: none, computed, lower_bound");
  }
  for (const GateMode mode : {GateMode::kComputed, GateMode::kLowerBound}) {
    for (const Decay decay : {Decay::kHead, Decay::kChannel}) {
      ConvProblem problem = engine_problem();
      problem.inputs.gate_mode = mode;
      problem.inputs.decay = decay;
      CHECK(problem.check().ok());
      for (const std::string& arch : known_architectures()) CHECK(problem.kernels(arch));
    }
  }
  CHECK(split_refusal([](auto& p) { p.inputs.beta_mode = BetaMode::kGiven; }) ==
        "gdn_conv: beta_mode = given; accepted: one, logit, doubled_logit");
  for (const BetaMode mode : {BetaMode::kOne, BetaMode::kLogit, BetaMode::kDoubledLogit}) {
    ConvProblem problem = engine_problem();
    problem.inputs.beta_mode = mode;
    CHECK(problem.check().ok());
  }
}

TEST_CASE("WithoutASplitThereAreNoHeads", "[cpu]") {
  CHECK(refusal([](auto& p) { p.inputs.gate_mode = GateMode::kComputed; }) ==
        "gdn_conv: gate_mode = computed; accepted: none (others need split_qkv = true)");
  CHECK(refusal([](auto& p) { p.inputs.gate_mode = GateMode::kLowerBound; }) ==
        "gdn_conv: gate_mode = lower_bound; accepted: none (others need split_qkv = true)");
  CHECK(refusal([](auto& p) { p.inputs.beta_mode = BetaMode::kDoubledLogit; }) ==
        "gdn_conv: beta_mode = doubled_logit; accepted: one (others need split_qkv = true)");
  CHECK(refusal([](auto& p) { p.inputs.use_qk_l2norm = true; }) ==
        "gdn_conv: use_qk_l2norm = true; accepted: false (true needs split_qkv = true)");
  const ConvProblem odd{.heads = {.q = -1, .k = 0, .v = 5}, .key_dim = 3, .value_dim = 1};
  CHECK(odd.check().ok());
}

TEST_CASE("ASplitHasHeads", "[cpu]") {
  CHECK(split_refusal([](auto& p) { p.heads.q = 5; }) ==
        "gdn_conv: q_heads = 5; accepted: a divisor of 32, the largest of q_heads, k_heads and "
        "v_heads");
  CHECK(split_refusal([](auto& p) { p.heads.k = 0; }) ==
        "gdn_conv: k_heads = 0; accepted: a divisor of 32, the largest of q_heads, k_heads and "
        "v_heads");
  CHECK(split_refusal([](auto& p) { p.heads.v = 24; }) ==
        "gdn_conv: v_heads = 24; accepted: a multiple of k_heads = 16");
  CHECK(split_refusal([](auto& p) { p.heads.v = 65537; }) ==
        "gdn_conv: v_heads = 65537; accepted: 1 to 65536");
  for (const int dim : {0, 4, 12, 264}) {
    const std::string refused =
        "_dim = " + std::to_string(dim) + "; accepted: multiples of 8 from 8 to 256";
    CHECK(split_refusal([&](auto& p) { p.key_dim = dim; }) == "gdn_conv: key" + refused);
    CHECK(split_refusal([&](auto& p) { p.value_dim = dim; }) == "gdn_conv: value" + refused);
  }
}

TEST_CASE("ASplitHasALimitOfChannels", "[cpu]") {
  ConvProblem most{.heads = {.q = 2048, .k = 2048, .v = 4096}, .split_qkv = true};
  CHECK(split_channels(most) == kMaxChannels);
  CHECK(most.check().ok());
  CHECK(refusal([&](auto& p) {
          p = most;
          p.value_dim = 144;
        }) ==
        "gdn_conv: v_heads = 4096; accepted: q, k and v of up to 1048576 channels together; these "
        "have 1114112");
  CHECK(split_refusal([](auto& p) {
          p.heads = {.q = 65536, .k = 65536, .v = 65536};
          p.key_dim = p.value_dim = 256;
        }) ==
        "gdn_conv: v_heads = 65536; accepted: q, k and v of up to 1048576 channels together; these "
        "have 50331648");
  CHECK(split_channels({}) == 16 * 128 + 16 * 128 + 32 * 128);
}

TEST_CASE("AcceptedTokensNeedAStateThatIsReadAndWritten", "[cpu]") {
  const auto accepted = [](const Change& change) {
    return refusal([&](ConvProblem& p) {
      p.from_accepted = true;
      change(p);
    });
  };
  CHECK(accepted([](auto& p) { p.states.has_initial = false; }) ==
        "gdn_conv: has_initial_state = false; accepted: true (from_accepted needs it)");
  CHECK(accepted([](auto& p) { p.states.store = false; }) ==
        "gdn_conv: store_state = false; accepted: true (from_accepted needs it)");
  CHECK(accepted([](auto& p) { p.states.whole_window = true; }) ==
        "gdn_conv: whole_window = true; accepted: false (with from_accepted the state's shape says "
        "how many columns it has, unless stored_states = every)");
  CHECK(ConvProblem{.from_accepted = true}.check().ok());
  // A window for each token has columns of its own.
  ConvProblem every{.stored_states = StoredStates::kEvery, .from_accepted = true};
  every.states.whole_window = true;
  CHECK(every.check().ok());
  CHECK_FALSE(has_long_window(every));
}

TEST_CASE("ACircularStateGoesWithNoOtherWayToKeepStates", "[cpu]") {
  const auto circular = [](const Change& change) {
    return refusal([&](ConvProblem& p) {
      p.circular_state = true;
      change(p);
    });
  };
  const std::string with = "gdn_conv: circular_state = true; accepted: false (with ";
  CHECK(circular([](auto& p) { p.from_accepted = true; }) == with + "from_accepted)");
  CHECK(circular([](auto& p) { p.stored_states = StoredStates::kEvery; }) ==
        with + "stored_states = every)");
  CHECK(circular([](auto& p) { p.checkpoints = Checkpoints::kAfter; }) == with + "checkpoints)");
  CHECK(circular([](auto& p) { p.states.whole_window = true; }) == with + "whole_window)");
  CHECK(circular([](auto& p) { p.states.has_initial = false; }) ==
        "gdn_conv: has_initial_state = false; accepted: true (circular_state needs it)");
  CHECK(circular([](auto& p) { p.states.store = false; }) ==
        "gdn_conv: store_state = false; accepted: true (circular_state needs it)");
  for (const bool varlen : {false, true}) {
    const ConvProblem problem{.varlen = varlen, .circular_state = true};
    CHECK(problem.check().ok());
    CHECK(has_long_window(problem));
    // Kernels of their own, with every layout.
    CHECK(texts_of(problem) != texts_of({.varlen = varlen}));
    CHECK_FALSE(texts_of(problem).empty());
  }
}

TEST_CASE("CheckpointsAreOfSequencesThatKeepTheirLastState", "[cpu]") {
  const auto kept = [](Checkpoints checkpoints, const Change& change) {
    return refusal([&](ConvProblem& p) {
      p.checkpoints = checkpoints;
      change(p);
    });
  };
  CHECK(kept(Checkpoints::kAfter, [](auto& p) { p.from_accepted = true; }) ==
        "gdn_conv: checkpoints = after; accepted: none (with from_accepted there are none)");
  CHECK(kept(Checkpoints::kBefore, [](auto& p) { p.stored_states = StoredStates::kEvery; }) ==
        "gdn_conv: checkpoints = before; accepted: none (with stored_states = every there are "
        "none)");
  for (const int every : {0, -1}) {
    CHECK(kept(Checkpoints::kAfter, [&](auto& p) { p.checkpoint_every = every; }) ==
          "gdn_conv: checkpoint_every = " + std::to_string(every) + "; accepted: 1 and more");
  }
  CHECK(kept(Checkpoints::kAt, [](auto& p) { p.from_accepted = true; }) ==
        "gdn_conv: checkpoints = at; accepted: none (with from_accepted there are none)");
  CHECK(ConvProblem{.checkpoints = Checkpoints::kAt, .checkpoint_every = 0}.check().ok());
  CHECK(ConvProblem{.checkpoint_every = 0}.check().ok());
  CHECK(ConvProblem{.checkpoints = Checkpoints::kAfter, .checkpoint_every = 1}.check().ok());
  ConvProblem none{.stored_states = StoredStates::kEvery, .checkpoints = Checkpoints::kAfter};
  none.states.store = false;
  CHECK(none.check().ok());
}

TEST_CASE("AStateHasTheColumnsOfItsKind", "[cpu]") {
  CHECK(state_columns(ConvProblem{}) == 3);
  CHECK(state_columns(ConvProblem{.width = 2}) == 1);
  CHECK(state_columns(ConvProblem{.states = {.whole_window = true}}) == 4);
}

TEST_CASE("EveryShapeHasValidConvKernels", "[cpu]") {
  test::for_each_conv_shape<ConvProblem>([](ConvProblem problem) {
    for (const bool varlen : {false, true}) {
      problem.varlen = varlen;
      if (!problem.check().ok()) FAIL_CHECK("check");
      const std::vector<GdnConvKey> keys = conv_keys(problem);
      if (keys.empty()) FAIL_CHECK("no keys");
      for (const GdnConvKey& key : keys) {
        if (!valid(key)) FAIL_CHECK(canonical(key) << ": " << why_invalid(key));
        if (!key.vectors) FAIL_CHECK(canonical(key));
      }
      const auto has_steps_key = [](const GdnConvKey& key) { return has_steps(key); };
      if (std::any_of(keys.begin(), keys.end(), has_steps_key) == varlen) {
        FAIL_CHECK("steps of " << canonical(keys.front()));
      }
      ConvProblem every = problem, kept = problem, at = problem;
      every.stored_states = StoredStates::kEvery;
      kept.checkpoints = Checkpoints::kAfter;
      at.checkpoints = Checkpoints::kAt;
      for (const ConvProblem& more : {every, kept, at}) {
        if (!more.check().ok()) FAIL_CHECK("check");
        if (conv_keys(more).empty()) FAIL_CHECK("no keys");
      }
    }
  });
}

// Each has a kernel beside it for tensors that do not lie in vectors.
TEST_CASE("ConvKernelsWithoutResultsAreThoseOfTheKeys", "[cpu]") {
  for (const ConvProblem& problem :
       {ConvProblem{}, ConvProblem{.varlen = true}, engine_problem()}) {
    for (const std::string& arch : known_architectures()) {
      const Result<std::vector<KernelSpec>> kernels = kernels_for(problem, arch, {});
      REQUIRE(kernels);
      CHECK(problem.kernels(arch)->size() >= kernels->size());
      std::vector<std::string> texts;
      std::set<std::string> others;
      for (const KernelSpec& spec : *kernels) {
        CHECK(spec.param_bytes == sizeof(GdnConvParams));
        if (spec.canonical.find(";vectors=true;") != std::string::npos) {
          texts.push_back(spec.canonical);
        } else {
          CHECK(spec.canonical.find(";ahead=1;") != std::string::npos);
          CHECK(spec.canonical.ends_with(";together=1"));
          others.insert(spec.canonical);
        }
      }
      CHECK(texts == texts_of(problem));
      CHECK(texts.size() + others.size() == kernels->size());
      CHECK(others.size() == 1);  // the defaults have as many channels to a lane
    }
  }
}

TEST_CASE("AnUnknownArchitectureHasNoConvKernels", "[cpu]") {
  const auto kernels = ConvProblem{}.kernels("sm_12");
  REQUIRE_FALSE(kernels);
  CHECK(kernels.error().code() == Code::kInvalidArgument);
  CHECK(kernels.error().message().starts_with("gdn_conv: "));
}

// What does not reach the code does not make another kernel.
TEST_CASE("EqualConvCodeHasEqualKeys", "[cpu]") {
  const auto same = [](const ConvProblem& base, const Change& change) {
    return texts_of(changed(base, change)) == texts_of(base);
  };
  const Change heads = [](auto& p) { p.heads = {.q = 1, .k = 1, .v = 1}; };
  const Change key_dim = [](auto& p) { p.key_dim = 64; };
  const Change value_dim = [](auto& p) { p.value_dim = 64; };
  const Change gate = [](auto& p) { p.inputs.gate_dtype = DType::kBF16; };
  const Change beta = [](auto& p) { p.inputs.beta_dtype = DType::kBF16; };
  const Change a_log = [](auto& p) { p.inputs.a_log_dtype = DType::kBF16; };
  const Change dt_bias = [](auto& p) { p.inputs.dt_bias_dtype = DType::kBF16; };
  const Change index = [](auto& p) { p.states.index_dtype = DType::kI64; };
  const Change state = [](auto& p) { p.states.dtype = DType::kF32; };
  const Change layout = [](auto& p) { p.states.layout = ConvStateLayout::kChannels; };
  const Change window = [](auto& p) { p.states.whole_window = true; };
  const Change cu_seqlens = [](auto& p) { p.cu_seqlens_dtype = DType::kI64; };
  const Change accepted = [](auto& p) { p.accepted_dtype = DType::kI64; };
  const Change invariant = [](auto& p) { p.batch_invariant = true; };
  const Change apart = [](auto& p) { p.checkpoint_every = 100; };
  const Change every = [](auto& p) { p.stored_states = StoredStates::kEvery; };

  for (const Change& change : {heads, key_dim, value_dim, gate, beta, a_log, dt_bias, index,
                               cu_seqlens, accepted, invariant, apart}) {
    CHECK(same({}, change));
  }
  CHECK_FALSE(same({}, every));
  CHECK(same({.states = {.store = false}}, every));
  CHECK(same({.checkpoints = Checkpoints::kAfter}, apart));
  CHECK(same({.checkpoints = Checkpoints::kAfter}, index));
  CHECK_FALSE(same({.checkpoints = Checkpoints::kAt}, index));  // of checkpoint_slots
  for (const Change& change : {state, layout, window}) CHECK_FALSE(same({}, change));
  const ConvProblem stateless{.states = {.has_initial = false, .store = false}};
  for (const Change& change : {state, layout, window}) CHECK(same(stateless, change));
  ConvProblem kept = stateless;
  kept.checkpoints = Checkpoints::kAfter;
  for (const Change& change : {state, layout, window}) CHECK_FALSE(same(kept, change));
  const ConvProblem engine = engine_problem();
  for (const Change& change : {heads, value_dim, cu_seqlens, accepted, invariant}) {
    CHECK(same(engine, change));
  }
  for (const Change& change : {key_dim, gate, beta, a_log, dt_bias, index}) {
    CHECK_FALSE(same(engine, change));
  }
  CHECK(same({.split_qkv = true}, key_dim));
  // Rows of gates have the heads' size, too, and beta alone has none.
  ConvProblem rows{.split_qkv = true, .inputs = {.beta_mode = BetaMode::kLogit}};
  rows.inputs.gate_mode = GateMode::kComputed;
  CHECK(same(rows, key_dim));
  rows.inputs.decay = Decay::kChannel;
  CHECK_FALSE(same(rows, key_dim));
  rows.inputs.gate_mode = GateMode::kNone;
  CHECK(same(rows, key_dim));
  CHECK(same(rows, [](auto& p) { p.inputs.decay = Decay::kHead; }));
  CHECK_FALSE(same({.varlen = true}, cu_seqlens));
  CHECK_FALSE(same({.from_accepted = true}, accepted));
}

TEST_CASE("ANormalisedConvIsNormalised", "[cpu]") {
  for (const ConvProblem& problem :
       {ConvProblem{}, engine_problem(), ConvProblem{.varlen = true}}) {
    const ConvProblem once = normalised(problem);
    CHECK(once.check().ok());
    CHECK(normalised(once).to_json() == once.to_json());
  }
  const ConvProblem odd{.heads = {.q = -1, .k = 0, .v = 5},
                        .key_dim = 3,
                        .value_dim = 1,
                        .states = {.index_dtype = DType::kI64},
                        .cu_seqlens_dtype = DType::kI64,
                        .accepted_dtype = DType::kI64};
  CHECK(normalised(odd).to_json() == ConvProblem{}.to_json());
}

TEST_CASE("EveryOtherConvFieldIsCompiledIn", "[cpu]") {
  const auto split = [](const Change& change) -> Change {
    return [=](ConvProblem& p) {
      p.split_qkv = true;
      change(p);
    };
  };
  const std::vector<Change> changes = {
      [](auto&) {},
      [](auto& p) { p.dtype = DType::kF16; },
      [](auto& p) { p.weight_dtype = DType::kF16; },
      [](auto& p) { p.width = 3; },
      [](auto& p) { p.activation = Activation::kNone; },
      [](auto& p) { p.has_bias = true; },
      split([](auto&) {}),
      split([](auto& p) { p.inputs.gate_mode = GateMode::kComputed; }),
      split([](auto& p) { p.inputs.gate_mode = GateMode::kLowerBound; }),
      split([](auto& p) {
        p.inputs.gate_mode = GateMode::kComputed;
        p.inputs.decay = Decay::kChannel;
      }),
      split([](auto& p) { p.inputs.beta_mode = BetaMode::kLogit; }),
      split([](auto& p) { p.inputs.beta_mode = BetaMode::kDoubledLogit; }),
      split([](auto& p) { p.inputs.use_qk_l2norm = true; }),
      [](auto& p) { p.states.dtype = DType::kF16; },
      [](auto& p) { p.states.layout = ConvStateLayout::kChannels; },
      [](auto& p) { p.states.location = StateLocation::kPool; },
      [](auto& p) { p.states.has_initial = false; },
      [](auto& p) { p.states.store = false; },
      [](auto& p) { p.states.whole_window = true; },
      [](auto& p) { p.varlen = true; },
      [](auto& p) { p.from_accepted = true; },
      [](auto& p) { p.circular_state = true; },
      [](auto& p) { p.stored_states = StoredStates::kEvery; },
      [](auto& p) {
        p.stored_states = StoredStates::kEvery;
        p.from_accepted = true;
      },
      [](auto& p) { p.checkpoints = Checkpoints::kBefore; },
      [](auto& p) { p.checkpoints = Checkpoints::kAfter; },
      [](auto& p) { p.checkpoints = Checkpoints::kAt; },
  };
  std::set<std::string> keys;
  for (const Change& change : changes) keys.insert(texts_of(changed({}, change)).front());
  CHECK(keys.size() == changes.size());
}

// Channels are a feature; what q, k and v are means nothing for speed.
TEST_CASE("ResultsOfConvsDoNotNameHeads", "[cpu]") {
  const std::string text = text_for_results(engine_problem());
  ConvProblem other = engine_problem();
  other.heads = {.q = 4, .k = 4, .v = 12};
  other.value_dim = 64;
  other.accepted_dtype = DType::kI64;
  other.checkpoint_every = 100;
  other.batch_invariant = true;
  CHECK(text_for_results(other) == text);
  other.key_dim = 64;
  CHECK(text_for_results(other) != text);
}

TEST_CASE("LaunchesCountSequencesTheirTokensAndChannels", "[cpu]") {
  const ConvProblem plain, split = engine_problem();
  CHECK(point_of(plain, {.sequences = 4, .tokens = 12, .channels = 300}) == Point{4, 3, 300});
  CHECK(point_of(plain, {.sequences = 4, .tokens = 13, .channels = 300}) == Point{4, 4, 300});
  CHECK(point_of(split, {.sequences = 1, .tokens = 7}) == Point{1, 7, 8192});
  CHECK(point_of(split, {.sequences = 1, .tokens = 7, .channels = 5}) == Point{1, 7, 8192});
  CHECK(point_of(plain, {}) == Point{1, 1, 1});
  CHECK(point_of(plain, {.sequences = -1, .tokens = -5, .channels = -2}) == Point{1, 1, 1});
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  CHECK(point_of(plain, {.sequences = 1, .tokens = kMost, .channels = kMost}) ==
        Point{1, 2147483647, kMaxChannels});
  CHECK(point_of(plain, {.sequences = kMost, .tokens = kMost, .channels = 1})[0] == 2147483647);
  CHECK(features_at(plain, {2, 3, 300}) ==
        Shape{{"sequences", 2}, {"tokens", 3}, {"channels", 300}});
  // A cell of the table stands for all channels of a split.
  CHECK(OperatorOf<ConvProblem>::sizes(split).possible({2, 3, 1}) == Point{2, 3, 8192});
}

// Persistent: manifests hold this.
TEST_CASE("ConvProblemsSurviveJson", "[cpu]") {
  CHECK(ConvProblem{}.to_json() ==
        R"({"q_heads":16,"k_heads":16,"v_heads":32,"key_dim":128,"value_dim":128,"dtype":"bf16",)"
        R"("weight_dtype":"bf16","width":4,"activation":"silu","has_bias":false,"split_qkv":false,)"
        R"("gate_dtype":"f32","beta_dtype":"f32","a_log_dtype":"f32","dt_bias_dtype":"f32",)"
        R"("state_dtype":"bf16","index_dtype":"i32","cu_seqlens_dtype":"i32","varlen":false,)"
        R"("state_layout":"columns","state_location":"dense","decay":"head",)"
        R"("gate_mode":"none","beta_mode":"one","use_qk_l2norm":false,)"
        R"("has_initial_state":true,"store_state":true,"whole_window":false,)"
        R"("stored_states":"last","from_accepted":false,"accepted_dtype":"i32",)"
        R"("circular_state":false,)"
        R"("checkpoints":"none","checkpoint_every":64,"batch_invariant":false})");
  ConvProblem problem = engine_problem();
  problem.heads = {.q = 2, .k = 4, .v = 8};
  problem.width = 3;
  problem.activation = Activation::kNone;
  problem.has_bias = problem.varlen = problem.from_accepted = problem.batch_invariant = true;
  problem.states.layout = ConvStateLayout::kChannels;
  problem.weight_dtype = DType::kF32;
  problem.stored_states = StoredStates::kEvery;
  problem.checkpoint_every = 7;
  problem.accepted_dtype = problem.cu_seqlens_dtype = DType::kI64;
  const Result<ConvProblem> parsed = ConvProblem::from_json(problem.to_json());
  REQUIRE(parsed);
  CHECK(parsed->to_json() == problem.to_json());
  const Result<ConvProblem> sparse = ConvProblem::from_json(R"({"width":2})");
  REQUIRE(sparse);
  CHECK(sparse->to_json() == ConvProblem{.width = 2}.to_json());
  for (const char* bad : {R"({"taps":2})", R"({"activation":"gelu"})", R"({"width":"two"})", "["}) {
    const Result<ConvProblem> refused = ConvProblem::from_json(bad);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace cubinery::gdn::conv_problem_test
