// From a prefill problem to its kernels.
#include "runtime/gdn/prefill/paths.h"

#include <set>
#include <string>
#include <vector>

#include "codegen/arch.h"
#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "runtime/operator/planner.h"
#include "tests/catch.h"
#include "tests/runtime/portable_keys.h"
#include "tests/runtime/problem_changes.h"
#include "tests/runtime/problem_refusal.h"

namespace cubinery::gdn {
namespace {

using test::Change;
using test::changed;
using test::compiled_in_changes;
using test::prefill_keys;
using test::PrefillKeys;
using test::refusal;

constexpr int kLimits[] = {99 * 1024, 163 * 1024, 227 * 1024};

std::string text_of(const PrefillKeys& keys) {
  std::string text = canonical(keys.chunks);
  for (const GdnPrefillScanKey& scan : keys.scans) text += "\n" + canonical(scan);
  return text;
}
std::string text_of(const PrefillProblem& problem) {
  return text_of(prefill_keys(problem, kLimits[2]));
}

TEST_CASE("CuSeqlensAreIntegers", "[cpu]") {
  CHECK(refusal<PrefillProblem>([](auto& p) { p.cu_seqlens_dtype = DType::kF32; }) ==
        "gdn_prefill: cu_seqlens_dtype = f32; accepted: i32, i64");
}

TEST_CASE("CheckpointsAreEverySoManySixteens", "[cpu]") {
  for (const int every : {-16, 0, 1, 8, 24, 100}) {
    for (const Checkpoints checkpoints :
         {Checkpoints::kBefore, Checkpoints::kAfter, Checkpoints::kAt}) {
      CHECK(refusal<PrefillProblem>([&](auto& p) {
              p.checkpoints = checkpoints;
              p.checkpoint_every = every;
            }) == "gdn_prefill: checkpoint_every = " + std::to_string(every) +
                      "; accepted: multiples of 16 from 16 up");
    }
    CHECK(PrefillProblem{.checkpoint_every = every}.check().ok());
  }
  CHECK(PrefillProblem{.checkpoints = Checkpoints::kAfter, .checkpoint_every = 4096}.check().ok());
}

TEST_CASE("ContextParallelismHasRules", "[cpu]") {
  const auto refused = [](auto change) {
    return refusal<PrefillProblem>([&](auto& p) {
      p.context_parallel = true;
      change(p);
    });
  };
  CHECK(PrefillProblem{.context_parallel = true}.check().ok());
  for (const int tokens : {-64, 0, 32, 100}) {
    CHECK(refused([&](auto& p) { p.segment_tokens = tokens; }) ==
          "gdn_prefill: segment_tokens = " + std::to_string(tokens) +
              "; accepted: multiples of 64 from 64 up");
    CHECK(PrefillProblem{.segment_tokens = tokens}.check().ok());
  }
  CHECK(refused([](auto& p) { p.states.dtype = DType::kBF16; }) ==
        "gdn_prefill: state_dtype = bf16; accepted: f32, with context_parallel");
  CHECK(refused([](auto& p) { p.states.store = false; }) ==
        "gdn_prefill: store_state = false; accepted: true, with context_parallel");
  CHECK(refused([](auto& p) { p.states.has_initial = false; }) ==
        "gdn_prefill: has_initial_state = false; accepted: true, with context_parallel");
  CHECK(refused([](auto& p) { p.segments = Segments::kNever; }) ==
        "gdn_prefill: segments = never; accepted: auto or always, with context_parallel");
}

PrefillKeys chosen(const PrefillProblem& problem, int limit) {
  REQUIRE(problem.check().ok());
  const PrefillKeys keys = prefill_keys(problem, limit);
  CHECK(keys.chunks.warps == (problem.inputs.decay == Decay::kChannel ? 4 : 2));
  return keys;
}

PrefillProblem with_channels(PrefillProblem problem) {
  problem.inputs.decay = Decay::kChannel;
  return problem;
}

TEST_CASE("ChunksAreAsLongAsIsFastAndFits", "[cpu]") {
  const auto sizes = [](const PrefillProblem& problem) {
    std::vector<int> found;
    for (const int limit : kLimits) found.push_back(chosen(problem, limit).chunks.chunk_size);
    return found;
  };
  using Sizes = std::vector<int>;
  CHECK(sizes({}) == Sizes{32, 32, 32});
  CHECK(sizes({.key_dim = 64, .value_dim = 64}) == Sizes{32, 32, 32});
  CHECK(sizes({.key_dim = 256, .value_dim = 256}) == Sizes{32, 32, 32});
  CHECK(sizes({.dtype = DType::kF32}) == Sizes{32, 32, 32});
  CHECK(sizes({.key_dim = 256, .dtype = DType::kF32}) == Sizes{16, 16, 16});
  // A stage has three rows of each token instead of two.
  CHECK(sizes(with_channels({})) == Sizes{32, 32, 32});
  CHECK(sizes(with_channels({.key_dim = 256})) == Sizes{16, 32, 32});
  CHECK(sizes(with_channels({.dtype = DType::kF32})) == Sizes{16, 32, 32});
}

// The largest rows, where two stages of them pass what a block may have.
TEST_CASE("LargeRowsOfChannelDecaysNeedSharedMemory", "[cpu]") {
  for (const int limit : kLimits) {
    const Target target = test::sm_90(limit);
    const PrefillProblem problem = with_channels({.key_dim = 256, .dtype = DType::kF32});
    const auto why = prefill_portable().why_not(problem, target);
    CHECK(why.value_or("") == (limit == kLimits[0] ? "its blocks need more shared memory" : ""));
  }
}

TEST_CASE("ChunksEndWhereCheckpointsAreKept", "[cpu]") {
  for (const Checkpoints checkpoints : {Checkpoints::kBefore, Checkpoints::kAt}) {
    const auto size = [&](int every) {
      return chosen({.checkpoints = checkpoints, .checkpoint_every = every}, kLimits[2])
          .chunks.chunk_size;
    };
    CHECK(size(16) == 16);
    CHECK(size(32) == 32);
    CHECK(size(48) == 16);
    CHECK(size(64) == 32);
    CHECK(size(96) == 32);
    CHECK(size(112) == 16);
  }
  CHECK(chosen({.checkpoint_every = 16}, kLimits[2]).chunks.chunk_size == 32);  // none are kept
}

TEST_CASE("ScansOfSeveralWidthsDivideTheValues", "[cpu]") {
  const auto warps = [](int value_dim) {
    std::vector<int> found;
    const PrefillKeys keys = chosen({.value_dim = value_dim}, kLimits[2]);
    for (const GdnPrefillScanKey& scan : keys.scans) found.push_back(scan.warps);
    return found;
  };
  using Warps = std::vector<int>;
  CHECK(warps(16) == Warps{1});
  CHECK(warps(32) == Warps{2, 1});
  CHECK(warps(48) == Warps{3, 1});
  CHECK(warps(64) == Warps{4, 2, 1});
  CHECK(warps(80) == Warps{1});
  CHECK(warps(96) == Warps{3, 2, 1});
  CHECK(warps(128) == Warps{4, 2, 1});
  CHECK(warps(192) == Warps{4, 3, 2, 1});
  CHECK(warps(256) == Warps{4, 2, 1});
}

TEST_CASE("EveryShapeFitsEveryArchitecture", "[cpu]") {
  int count = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int limit : kLimits) {
      for (int key_dim = 16; key_dim <= 256; key_dim += 16) {
        for (int value_dim = 16; value_dim <= 256; value_dim += 16) {
          const PrefillKeys keys =
              prefill_keys({.key_dim = key_dim, .value_dim = value_dim, .dtype = dtype}, limit);
          const auto check = [&](const auto& key) {
            ++count;
            if (!valid(key)) FAIL_CHECK(canonical(key) << ": " << why_invalid(key));
            if (shared_bytes(key) > limit) FAIL_CHECK(canonical(key) << ": " << shared_bytes(key));
            if (key.chunk_size != keys.chunks.chunk_size) FAIL_CHECK(canonical(key));
          };
          check(keys.chunks);
          for (const GdnPrefillScanKey& scan : keys.scans) check(scan);
          if (keys.scans.empty()) FAIL(canonical(keys.chunks));
          if (keys.scans.back().warps != 1) FAIL_CHECK(canonical(keys.scans.back()));
        }
      }
    }
  }
  CHECK(count > 2 * 3 * 16 * 16 * 2);
}

TEST_CASE("PrefillKernelsWithoutResultsAreThoseOfTheKeys", "[cpu]") {
  const PrefillProblem problem{
      .key_dim = 64, .inputs = {.gate_mode = GateMode::kComputed}, .segments = Segments::kNever};
  for (const std::string& arch : known_architectures()) {
    const Result<std::vector<KernelSpec>> kernels = kernels_for(problem, arch, {});
    REQUIRE(kernels);
    CHECK(problem.kernels(arch)->size() >= kernels->size());
    const PrefillKeys keys = prefill_keys(problem, max_shared_bytes(parse_arch(arch).value()));
    // Where there is wgmma, its two scans too, each for tensors that the copy engine can read and
    // for others.
    const bool wgmma = has_wgmma(parse_arch(arch).value());
    REQUIRE(kernels->size() == 1 + keys.scans.size() + (wgmma ? 4 : 0));
    std::string text;
    for (const KernelSpec& spec : *kernels) {
      if (spec.canonical.find("wgmma=true") != std::string::npos) continue;
      text += (text.empty() ? "" : "\n") + spec.canonical;
    }
    CHECK(text == text_of(keys));
    CHECK(kernels->front().param_bytes == sizeof(GdnPrefillChunksParams));
    CHECK(kernels->back().param_bytes == sizeof(GdnPrefillScanParams));
  }
}

TEST_CASE("ThePortablePathDoesNotSplit", "[cpu]") {
  for (const Segments segments : {Segments::kAuto, Segments::kNever}) {
    CHECK_FALSE(prefill_portable().why_not({.segments = segments}, test::sm_90()));
  }
  CHECK(prefill_portable().why_not({.segments = Segments::kAlways}, test::sm_90()) ==
        "the problem asks for segments");
}

// A result serves a problem whatever it says of splitting: its path does what it does.
TEST_CASE("ResultsDoNotNameSplit", "[cpu]") {
  const std::string text = text_for_results(PrefillProblem{});
  for (const Segments segments : {Segments::kNever, Segments::kAlways}) {
    CHECK(text_for_results(PrefillProblem{.segments = segments}) == text);
  }
}

// What does not reach the code does not make another kernel.
TEST_CASE("EqualPrefillCodeHasEqualKeys", "[cpu]") {
  using To = Change<PrefillProblem>;
  const auto same = [](const PrefillProblem& base, const To& change) {
    return text_of(changed(base, change)) == text_of(base);
  };
  const To gate = [](auto& p) { p.inputs.gate_dtype = DType::kBF16; };
  const To beta = [](auto& p) { p.inputs.beta_dtype = DType::kBF16; };
  const To a_log = [](auto& p) { p.inputs.a_log_dtype = DType::kBF16; };
  const To dt_bias = [](auto& p) { p.inputs.dt_bias_dtype = DType::kBF16; };
  const To index = [](auto& p) { p.states.index_dtype = DType::kI64; };
  const To cu_seqlens = [](auto& p) { p.cu_seqlens_dtype = DType::kI64; };
  const To state = [](auto& p) { p.states.dtype = DType::kBF16; };
  const To layout = [](auto& p) { p.states.layout = StateLayout::kKV; };
  const To heads = [](auto& p) { p.heads.q = p.heads.k = p.heads.v = 64; };
  const To tokens = [](auto& p) { p.token_layout = TokenLayout::kBHTD; };
  const To invariant = [](auto& p) { p.batch_invariant = true; };
  const To every = [](auto& p) { p.checkpoint_every = 16; };
  const To never = [](auto& p) { p.segments = Segments::kNever; };

  const PrefillProblem plain{.inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne},
                             .states = {.has_initial = false, .store = false}};
  for (const To& change : {gate, beta, a_log, dt_bias, index, cu_seqlens, state, layout, heads,
                           tokens, invariant, every, never}) {
    CHECK(same(plain, change));
  }
  const PrefillProblem log;
  for (const To& change : {gate, beta, state, layout}) CHECK_FALSE(same(log, change));
  for (const To& change : {a_log, dt_bias, index, cu_seqlens}) CHECK(same(log, change));
  const PrefillProblem computed{.inputs = {.gate_mode = GateMode::kComputed}};
  for (const To& change : {a_log, dt_bias}) CHECK_FALSE(same(computed, change));
  const PrefillProblem pool{.states = {.location = StateLocation::kPool}};
  CHECK_FALSE(same(pool, index));
  CHECK_FALSE(same({.varlen = true}, cu_seqlens));
  const PrefillProblem kept{.states = {.has_initial = false, .store = false},
                            .checkpoints = Checkpoints::kAfter,
                            .checkpoint_every = 128};
  for (const To& change : {state, layout}) CHECK_FALSE(same(kept, change));
  CHECK(same(kept, [](auto& p) { p.checkpoint_every = 256; }));
  CHECK(same(kept, index));
  PrefillProblem at = kept;
  at.checkpoints = Checkpoints::kAt;
  CHECK_FALSE(same(at, index));  // of checkpoint_slots
  for (const To& change : {state, layout}) CHECK_FALSE(same(at, change));
  CHECK(same(at, [](auto& p) { p.checkpoint_every = 256; }));
}

TEST_CASE("EveryOtherPrefillFieldIsCompiledIn", "[cpu]") {
  std::vector<Change<PrefillProblem>> changes = compiled_in_changes<PrefillProblem>();
  changes.emplace_back([](auto& p) { p.varlen = true; });
  changes.emplace_back([](auto& p) { p.checkpoints = Checkpoints::kBefore; });
  changes.emplace_back([](auto& p) { p.checkpoints = Checkpoints::kAfter; });
  changes.emplace_back([](auto& p) { p.checkpoints = Checkpoints::kAt; });
  std::set<std::string> keys;
  for (const auto& change : changes) keys.insert(text_of(changed(PrefillProblem{}, change)));
  CHECK(keys.size() == changes.size());
}

// Persistent: manifests hold this.
TEST_CASE("PrefillProblemsSurviveJson", "[cpu]") {
  CHECK(PrefillProblem{}.to_json() ==
        R"({"q_heads":16,"k_heads":16,"v_heads":32,"key_dim":128,"value_dim":128,"dtype":"bf16",)"
        R"("output_dtype":"bf16","gate_dtype":"f32","beta_dtype":"f32","a_log_dtype":"f32",)"
        R"("dt_bias_dtype":"f32","state_dtype":"f32","index_dtype":"i32","cu_seqlens_dtype":"i32",)"
        R"("token_layout":"bthd","varlen":false,"state_layout":"vk","state_location":"dense",)"
        R"("decay":"head",)"
        R"("gate_mode":"log","beta_mode":"given",)"
        R"("use_qk_l2norm":false,"has_initial_state":true,"store_state":true,"checkpoints":"none",)"
        R"("checkpoint_every":64,"segments":"auto","context_parallel":false,)"
        R"("segment_tokens":8192,"batch_invariant":false})");
  const PrefillProblem problem{.heads = {.q = 2},
                               .states = {.location = StateLocation::kPool},
                               .token_layout = TokenLayout::kBHTD,
                               .varlen = true,
                               .cu_seqlens_dtype = DType::kI64,
                               .checkpoints = Checkpoints::kAfter,
                               .checkpoint_every = 4096,
                               .segments = Segments::kAlways,
                               .batch_invariant = true};
  const Result<PrefillProblem> parsed = PrefillProblem::from_json(problem.to_json());
  REQUIRE(parsed);
  CHECK(parsed->to_json() == problem.to_json());
  const Result<PrefillProblem> sparse = PrefillProblem::from_json(R"({"varlen":true})");
  REQUIRE(sparse);
  CHECK(sparse->to_json() == PrefillProblem{.varlen = true}.to_json());
}

// A damaged file of results may have any numbers.
TEST_CASE("AConfigurationWithoutAChunkSizeIsNone", "[cpu]") {
  const PrefillProblem problem{.checkpoints = Checkpoints::kBefore, .checkpoint_every = 64};
  const PrefillKeys keys = prefill_keys(problem);
  std::vector<TunedValue> values = test::prefill_values(keys.chunks, keys.scans.front());
  CHECK(test::prefill_pair(problem, values));
  for (TunedValue& value : values) {
    if (value.name == "chunk_size") value.value = "0";
  }
  CHECK_FALSE(test::prefill_pair(problem, values));
}

}  // namespace
}  // namespace cubinery::gdn
