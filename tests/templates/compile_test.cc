// Every kernel that can be asked for compiles, without warnings and without spills.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cubinery/context.h"
#include "cubinery/gdn.h"
#include "gdn_commit/fields.h"
#include "gdn_conv/fields.h"
#include "gdn_decode/fields.h"
#include "gdn_prefill_chunks/fields.h"
#include "gdn_prefill_scan/fields.h"
#include "gdn_verify/fields.h"
#include "gdn_verify_wy/fields.h"
#include "runtime/gdn/conv/portable.h"
#include "runtime/gdn/prefill/split.h"
#include "runtime/gdn/prefill/whole.h"
#include "runtime/jit/on_threads.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using gdn::BetaMode;
using gdn::Checkpoints;
using gdn::CommitProblem;
using gdn::ConvProblem;
using gdn::ConvStateLayout;
using gdn::DecodeProblem;
using gdn::GateMode;
using gdn::Padding;
using gdn::PadIndex;
using gdn::PrefillProblem;
using gdn::StateLayout;
using gdn::StateLocation;
using gdn::StoredStates;
using gdn::VerifyProblem;

constexpr std::size_t kThreads = 2;

// The kernels of a prefill problem but the narrower scans, which do the same with fewer warps; all
// of them would take CI minutes.
constexpr std::size_t kChunksAndWidestScan = 2;

// What is wrong with the kernel; empty when nothing is.
std::string fault(const Context& context, const KernelSpec& spec) {
  const Result<CompiledKernel> kernel = context.compile(spec);
  if (!kernel)
    return std::string(kernel.error().message()).append("\n").append(kernel.error().log());
  const KernelInfo& info = kernel->info;
  if (!info.log.empty()) return "log: " + info.log;
  if (info.registers < 1 || info.registers > 255) {
    return std::to_string(info.registers) + " registers";
  }
  if (info.spill_store_bytes > 0 || info.spill_load_bytes > 0) {
    return "spills " + std::to_string(info.spill_store_bytes) + " + " +
           std::to_string(info.spill_load_bytes) + " bytes";
  }
  return "";
}

// Compiles for `arch`.
Context compiler(const std::string& arch) {
  Options options;
  options.device = kNoDevice;
  options.arch = arch;
  options.use_disk_cache = false;
  Result<Context> context = Context::create(options);
  REQUIRE(context);
  return *std::move(context);
}

void check_all(const std::string& arch, const std::vector<KernelSpec>& specs) {
  const Context context = compiler(arch);
  std::vector<std::string> faults(specs.size());
  on_threads(specs.size(), kThreads, [&](std::size_t n) { faults[n] = fault(context, specs[n]); });
  for (std::size_t n = 0; n < specs.size(); ++n) {
    if (!faults[n].empty()) FAIL_CHECK(arch << ": " << specs[n].canonical << ": " << faults[n]);
  }
  CHECK_FALSE(specs.empty());
}

// The kernels of the problems, each once; of each problem the first `limit`.
template <class Problem>
std::vector<KernelSpec> kernels_of(const std::vector<Problem>& problems, const std::string& arch,
                                   std::size_t limit = SIZE_MAX) {
  std::vector<KernelSpec> specs;
  for (const Problem& problem : problems) {
    INFO(problem.to_json());
    Result<std::vector<KernelSpec>> found = problem.kernels(arch);
    REQUIRE(found);
    found->resize(std::min(found->size(), limit));
    for (const KernelSpec& spec : *found) {
      const auto is_same = [&](const KernelSpec& other) {
        return other.canonical == spec.canonical;
      };
      if (std::none_of(specs.begin(), specs.end(), is_same)) specs.push_back(spec);
    }
  }
  return specs;
}

// The kernel of every choice of the tuned fields.
template <class Key>
std::vector<KernelSpec> candidates_of(const Key& key) {
  std::vector<KernelSpec> specs;
  for_each_candidate(key,
                     [&](const Key& candidate) { specs.push_back(spec_of(candidate).value()); });
  return specs;
}

std::vector<KernelSpec> normed_candidates(StateLayout layout, DType state_dtype) {
  return candidates_of(GdnDecodeKey{.states = {.dtype = state_dtype, .layout = layout},
                                    .output_norm = gdn::OutputNorm::kGatedRms});
}

std::vector<KernelSpec> decode_candidates(StateLayout layout, DType state_dtype) {
  return candidates_of(GdnDecodeKey{.states = {.dtype = state_dtype, .layout = layout}});
}

// Each option at least once.
std::vector<DecodeProblem> decode_options() {
  constexpr StateLocation kPool = StateLocation::kPool;
  return {{},
          {.dtype = DType::kF32, .output_dtype = DType::kF32},
          {.dtype = DType::kF16, .output_dtype = DType::kF16},
          {.inputs = {.gate_dtype = DType::kBF16, .beta_dtype = DType::kF16}},
          {.states = {.dtype = DType::kF16}},
          {.states = {.dtype = DType::kBF16}},
          {.states = {.dtype = DType::kBF16, .layout = StateLayout::kKV}},
          {.states = {.layout = StateLayout::kKV}},
          {.states = {.location = kPool}},
          {.states = {.index_dtype = DType::kI64, .location = kPool, .padding = Padding::kSkip}},
          {.states = {.location = kPool, .padding = Padding::kZero, .pad_index = PadIndex::kZero}},
          {.states = {.location = kPool, .padding = Padding::kScratch}},
          {.inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne}},
          {.inputs = {.gate_mode = GateMode::kAlpha, .beta_mode = BetaMode::kLogit}},
          {.inputs = {.a_log_dtype = DType::kBF16,
                      .dt_bias_dtype = DType::kF16,
                      .gate_mode = GateMode::kComputed,
                      .beta_mode = BetaMode::kDoubledLogit}},
          {.inputs = {.use_qk_l2norm = true}},
          {.states = {.has_initial = false}},
          {.states = {.store = false}},
          {.states = {.has_initial = false, .store = false}},
          {.output_norm = gdn::OutputNorm::kGatedRms},
          {.states = {.dtype = DType::kBF16, .layout = StateLayout::kKV},
           .output_norm = gdn::OutputNorm::kGatedRms,
           .norm_weight_dtype = DType::kF16}};
}

// Extreme and odd head sizes.
std::vector<DecodeProblem> decode_head_sizes() {
  std::vector<DecodeProblem> problems;
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{16, 16}, std::pair{48, 96}, std::pair{96, 48}, std::pair{256, 256},
          std::pair{240, 240}}) {
      problems.push_back(
          {.key_dim = key_dim, .value_dim = value_dim, .states = {.layout = layout}});
    }
  }
  return problems;
}

// As engines serve Qwen3-Next and Qwen3.5 with three drafts, and with more than seven.
std::vector<VerifyProblem> served_verifications() {
  VerifyProblem problem{.inputs = {.gate_dtype = DType::kBF16,
                                   .beta_dtype = DType::kBF16,
                                   .dt_bias_dtype = DType::kBF16,
                                   .gate_mode = GateMode::kComputed,
                                   .beta_mode = BetaMode::kLogit,
                                   .use_qk_l2norm = true},
                        .states = {.location = StateLocation::kPool, .padding = Padding::kSkip},
                        .varlen = true,
                        .stored_states = StoredStates::kEvery,
                        .from_accepted = true};
  VerifyProblem more = problem;
  more.max_tokens = 16;
  more.states.dtype = DType::kBF16;
  VerifyProblem tree = problem, more_of_tree = more;
  tree.tree = more_of_tree.tree = true;
  return {problem, more, tree, more_of_tree};
}

// Each option that decode has not, with the layouts and dtypes of states that the others leave.
std::vector<VerifyProblem> verify_options() {
  constexpr StateLocation kPool = StateLocation::kPool;
  constexpr StoredStates kEvery = StoredStates::kEvery;
  constexpr StateLayout kKV = StateLayout::kKV;
  return {{},
          {.dtype = DType::kF32, .output_dtype = DType::kF32, .stored_states = kEvery},
          {.dtype = DType::kF32,
           .output_dtype = DType::kF32,
           .inputs = {.gate_mode = GateMode::kComputed,
                      .beta_mode = BetaMode::kLogit,
                      .use_qk_l2norm = true},
           .states = {.layout = kKV, .location = kPool, .padding = Padding::kSkip},
           .varlen = true,
           .stored_states = kEvery,
           .from_accepted = true},
          {.dtype = DType::kF16,
           .output_dtype = DType::kF16,
           .states = {.dtype = DType::kF16},
           .max_tokens = 16,
           .stored_states = kEvery},
          {.states = {.layout = kKV}, .max_tokens = 16},
          {.states = {.dtype = DType::kBF16, .layout = kKV}, .stored_states = kEvery},
          {.states = {.dtype = DType::kBF16}, .round_each_token = true},
          {.states = {.store = false}, .max_tokens = 16},
          {.states = {.has_initial = false}, .stored_states = kEvery},
          {.states = {.has_initial = false, .store = false}},
          {.varlen = true, .cu_seqlens_dtype = DType::kI64},
          {.from_accepted = true, .accepted_dtype = DType::kI64},
          {.states = {.location = kPool, .padding = Padding::kScratch},
           .stored_states = kEvery,
           .from_accepted = true},
          {.states = {.index_dtype = DType::kI64,
                      .layout = kKV,
                      .location = kPool,
                      .padding = Padding::kZero,
                      .pad_index = PadIndex::kZero},
           .max_tokens = 16,
           .varlen = true,
           .stored_states = kEvery,
           .from_accepted = true},
          {.stored_states = kEvery, .tree = true, .parents_dtype = DType::kI64},
          {.dtype = DType::kF16,
           .output_dtype = DType::kF16,
           .states = {.dtype = DType::kF16, .has_initial = false},
           .max_tokens = 16,
           .stored_states = kEvery,
           .tree = true},
          {.output_dtype = DType::kF32,
           .states = {.layout = kKV, .store = false},
           .max_tokens = 16,
           .tree = true},
          {.inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne}},
          {.inputs = {.gate_mode = GateMode::kAlpha, .beta_mode = BetaMode::kLogit}}};
}

// Extreme and odd head sizes.
std::vector<VerifyProblem> verify_head_sizes() {
  std::vector<VerifyProblem> problems;
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{16, 16}, std::pair{48, 96}, std::pair{240, 240}, std::pair{256, 256}}) {
      problems.push_back({.key_dim = key_dim,
                          .value_dim = value_dim,
                          .states = {.dtype = DType::kBF16, .layout = layout},
                          .stored_states = StoredStates::kEvery});
      problems.push_back(problems.back());
      problems.back().tree = true;
    }
  }
  return problems;
}

// The commits of verifications that keep no states, as engines serve those models.
std::vector<CommitProblem> served_commits() {
  std::vector<CommitProblem> problems;
  for (const VerifyProblem& verify : served_verifications()) {
    problems.push_back({.inputs = verify.inputs,
                        .states = verify.states,
                        .max_tokens = verify.max_tokens,
                        .varlen = verify.varlen});
  }
  return problems;
}

// Each option at least once.
std::vector<CommitProblem> commit_options() {
  constexpr StateLocation kPool = StateLocation::kPool;
  constexpr StateLayout kKV = StateLayout::kKV;
  return {{},
          {.dtype = DType::kF16, .states = {.dtype = DType::kF16}, .max_tokens = 16},
          {.states = {.layout = kKV}, .max_tokens = 16},
          {.states = {.dtype = DType::kBF16, .layout = kKV}},
          {.varlen = true, .cu_seqlens_dtype = DType::kI64, .accepted_dtype = DType::kI64},
          {.states = {.location = kPool, .padding = Padding::kScratch}},
          {.states = {.index_dtype = DType::kI64,
                      .layout = kKV,
                      .location = kPool,
                      .padding = Padding::kZero,
                      .pad_index = PadIndex::kZero},
           .max_tokens = 16,
           .varlen = true},
          {.inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne}},
          {.inputs = {.gate_dtype = DType::kF16,
                      .beta_dtype = DType::kBF16,
                      .gate_mode = GateMode::kAlpha,
                      .beta_mode = BetaMode::kLogit}},
          {.inputs = {.a_log_dtype = DType::kBF16,
                      .dt_bias_dtype = DType::kF16,
                      .gate_mode = GateMode::kComputed,
                      .beta_mode = BetaMode::kDoubledLogit,
                      .use_qk_l2norm = true},
           .max_tokens = 16}};
}

// Extreme and odd head sizes.
std::vector<CommitProblem> commit_head_sizes(int max_tokens) {
  std::vector<CommitProblem> problems;
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const auto& [key_dim, value_dim] :
           {std::pair{16, 16}, std::pair{48, 96}, std::pair{240, 240}, std::pair{256, 256}}) {
        problems.push_back({.key_dim = key_dim,
                            .value_dim = value_dim,
                            .states = {.dtype = dtype, .layout = layout},
                            .max_tokens = max_tokens});
      }
    }
  }
  return problems;
}

// As engines serve Qwen3-Next and Qwen3.5: packed, or in decoding steps of one token or a few, with
// the gates and norms of the layer behind it or without.
std::vector<ConvProblem> served_convs() {
  const ConvProblem columns{.split_qkv = true,
                            .states = {.location = StateLocation::kPool, .padding = Padding::kSkip},
                            .varlen = true};
  ConvProblem steps = columns, channels = columns, accepted = columns;
  steps.varlen = false;
  channels.states.layout = accepted.states.layout = ConvStateLayout::kChannels;
  accepted.from_accepted = true;
  std::vector<ConvProblem> problems{columns, steps, channels, accepted};
  for (ConvProblem fused : {columns, steps}) {
    fused.inputs = {.gate_dtype = DType::kBF16,
                    .beta_dtype = DType::kBF16,
                    .dt_bias_dtype = DType::kBF16,
                    .gate_mode = GateMode::kComputed,
                    .beta_mode = BetaMode::kLogit,
                    .use_qk_l2norm = true};
    problems.push_back(fused);
  }
  return problems;
}

// Each option at least once.
std::vector<ConvProblem> conv_options() {
  constexpr StateLocation kPool = StateLocation::kPool;
  constexpr ConvStateLayout kChannels = ConvStateLayout::kChannels;
  return {{},
          {.width = 2},
          {.width = 3, .states = {.whole_window = true}},
          {.dtype = DType::kF32, .weight_dtype = DType::kF32, .states = {.dtype = DType::kF32}},
          {.dtype = DType::kF16, .weight_dtype = DType::kF32, .states = {.dtype = DType::kF16}},
          {.weight_dtype = DType::kF16, .states = {.dtype = DType::kF32, .layout = kChannels}},
          {.activation = gdn::Activation::kNone, .has_bias = true},
          {.has_bias = true, .states = {.layout = kChannels, .whole_window = true}},
          {.states = {.location = kPool, .padding = Padding::kScratch}},
          {.states = {.index_dtype = DType::kI64,
                      .location = kPool,
                      .padding = Padding::kZero,
                      .pad_index = PadIndex::kZero}},
          {.states = {.has_initial = false}, .varlen = true},
          {.states = {.store = false}, .varlen = true, .cu_seqlens_dtype = DType::kI64},
          {.states = {.has_initial = false, .store = false}},
          {.from_accepted = true},
          {.stored_states = StoredStates::kEvery},
          {.width = 3,
           .states = {.layout = kChannels, .location = kPool, .padding = Padding::kSkip},
           .varlen = true,
           .stored_states = StoredStates::kEvery,
           .from_accepted = true},
          {.dtype = DType::kF32,
           .has_bias = true,
           .states = {.dtype = DType::kF32, .location = kPool, .whole_window = true},
           .varlen = true,
           .stored_states = StoredStates::kEvery,
           .from_accepted = true},
          {.checkpoints = gdn::Checkpoints::kBefore},
          {.states = {.location = kPool, .padding = Padding::kZero, .whole_window = true},
           .varlen = true,
           .checkpoints = gdn::Checkpoints::kBefore},
          {.dtype = DType::kF32,
           .has_bias = true,
           .states = {.dtype = DType::kF32, .layout = kChannels},
           .varlen = true,
           .checkpoints = gdn::Checkpoints::kAfter},
          {.states = {.layout = kChannels},
           .varlen = true,
           .from_accepted = true,
           .accepted_dtype = DType::kI64},
          {.split_qkv = true,
           .inputs = {.gate_dtype = DType::kF16,
                      .a_log_dtype = DType::kBF16,
                      .dt_bias_dtype = DType::kF16,
                      .gate_mode = GateMode::kComputed,
                      .beta_mode = BetaMode::kDoubledLogit}},
          {.split_qkv = true,
           .inputs = {
               .gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne, .use_qk_l2norm = true}}};
}

// Heads that are normalised, of extreme and odd sizes.
std::vector<ConvProblem> conv_head_sizes() {
  std::vector<ConvProblem> problems;
  for (const int key_dim : {8, 24, 48, 96, 128, 136, 256}) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      for (const bool varlen : {false, true}) {
        problems.push_back({.key_dim = key_dim,
                            .dtype = dtype,
                            .split_qkv = true,
                            .inputs = {.gate_mode = GateMode::kNone,
                                       .beta_mode = BetaMode::kOne,
                                       .use_qk_l2norm = true},
                            .states = {.dtype = dtype},
                            .varlen = varlen});
        if (key_dim != 136) continue;
        problems.push_back(problems.back());
        problems.back().stored_states = StoredStates::kEvery;
        problems.push_back(problems.back());
        problems.back().stored_states = StoredStates::kLast;
        problems.back().checkpoints = gdn::Checkpoints::kBefore;
      }
    }
  }
  return problems;
}

// As engines serve Qwen3-Next and Qwen3.5.
PrefillProblem served_prefill() {
  return {.inputs = {.gate_dtype = DType::kBF16,
                     .beta_dtype = DType::kBF16,
                     .dt_bias_dtype = DType::kBF16,
                     .gate_mode = GateMode::kComputed,
                     .beta_mode = BetaMode::kLogit,
                     .use_qk_l2norm = true},
          .states = {.location = StateLocation::kPool, .padding = Padding::kSkip},
          .varlen = true};
}

// The problems whose registers and shared memory differ most from those.
std::vector<PrefillProblem> prefill_extremes() {
  return {{.dtype = DType::kF32,
           .output_dtype = DType::kF32,
           .states = {.layout = StateLayout::kKV},
           .checkpoints = Checkpoints::kAfter},
          {.key_dim = 256, .value_dim = 256},
          {.key_dim = 240, .value_dim = 240, .dtype = DType::kF32}};
}

// Each option at least once.
std::vector<PrefillProblem> prefill_options() {
  constexpr StateLocation kPool = StateLocation::kPool;
  return {
      {.dtype = DType::kF16, .output_dtype = DType::kF16, .states = {.layout = StateLayout::kKV}},
      {.output_dtype = DType::kF32},
      {.inputs = {.gate_dtype = DType::kBF16, .beta_dtype = DType::kF16}},
      {.states = {.dtype = DType::kF16}},
      {.states = {.dtype = DType::kBF16, .layout = StateLayout::kKV}},
      {.varlen = true, .cu_seqlens_dtype = DType::kI64},
      {.states = {.index_dtype = DType::kI64, .location = kPool}},
      {.states = {.location = kPool, .padding = Padding::kZero, .pad_index = PadIndex::kZero}},
      {.states = {.location = kPool, .padding = Padding::kScratch}},
      {.inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne}},
      {.inputs = {.gate_mode = GateMode::kAlpha, .beta_mode = BetaMode::kLogit}},
      {.inputs = {.a_log_dtype = DType::kBF16,
                  .dt_bias_dtype = DType::kF16,
                  .gate_mode = GateMode::kComputed,
                  .beta_mode = BetaMode::kDoubledLogit}},
      {.inputs = {.use_qk_l2norm = true}},
      {.states = {.has_initial = false}},
      {.states = {.store = false}},
      {.states = {.has_initial = false, .store = false}},
      {.varlen = true, .checkpoints = Checkpoints::kBefore, .checkpoint_every = 32},
      {.states = {.layout = StateLayout::kKV},
       .checkpoints = Checkpoints::kAfter,
       .checkpoint_every = 16}};
}

std::vector<PrefillProblem> prefill_head_sizes() {
  std::vector<PrefillProblem> problems;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{16, 16}, std::pair{64, 64}, std::pair{96, 48}, std::pair{128, 96},
          std::pair{192, 16}, std::pair{240, 240}, std::pair{256, 256}}) {
      problems.push_back({.key_dim = key_dim, .value_dim = value_dim, .dtype = dtype});
    }
  }
  return problems;
}

// What operators choose compiles for every architecture, options for one of each family, other
// candidates for one: all of them would take CI ten minutes, and tuning leaves out what spills.
constexpr const char* kFamilies[] = {"sm_80", "sm_90a", "sm_100a", "sm_120a"};

TEST_CASE("EveryCandidateForVkStatesCompiles", "[nvrtc]") {
  check_all("sm_90a", decode_candidates(StateLayout::kVK, DType::kF32));
}

TEST_CASE("EveryCandidateForKvStatesCompiles", "[nvrtc]") {
  check_all("sm_120a", decode_candidates(StateLayout::kKV, DType::kF32));
}

TEST_CASE("EveryCandidateForHalfStatesCompiles", "[nvrtc]") {
  check_all("sm_90a", decode_candidates(StateLayout::kVK, DType::kBF16));
  check_all("sm_100a", decode_candidates(StateLayout::kKV, DType::kBF16));
}

TEST_CASE("EveryCandidateOfStatesInFp8Compiles", "[nvrtc]") {
  check_all("sm_90a", decode_candidates(StateLayout::kVK, DType::kF8E4M3));
  check_all("sm_100a", decode_candidates(StateLayout::kKV, DType::kF8E4M3));
  check_all("sm_89", normed_candidates(StateLayout::kVK, DType::kF8E5M2));
  check_all("sm_90a", normed_candidates(StateLayout::kKV, DType::kF8E5M2));
}

// Rows of 16 and 48 bytes have no whole word for each lane.
TEST_CASE("HeadSizesOfStatesInFp8Compile", "[nvrtc]") {
  for (const auto& [arch, dtype] : {std::pair<std::string, DType>{"sm_89", DType::kF8E5M2},
                                    {"sm_90a", DType::kF8E4M3},
                                    {"sm_100a", DType::kF8E5M2},
                                    {"sm_120a", DType::kF8E4M3}}) {
    std::vector<DecodeProblem> problems;
    for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
      for (const int dim : {16, 48, 64, 128, 240, 256}) {
        for (const auto norm : {gdn::OutputNorm::kNone, gdn::OutputNorm::kGatedRms}) {
          problems.push_back({.key_dim = dim,
                              .value_dim = dim,
                              .inputs = {.use_qk_l2norm = true},
                              .states = {.dtype = dtype, .layout = layout},
                              .output_norm = norm});
        }
      }
    }
    check_all(arch, kernels_of(problems, arch));
  }
}

TEST_CASE("EveryOptionOfStatesInFp8Compiles", "[nvrtc]") {
  std::vector<DecodeProblem> problems = decode_options();
  for (std::size_t i = 0; i < problems.size(); ++i) {
    problems[i].states.dtype = i % 2 == 0 ? DType::kF8E4M3 : DType::kF8E5M2;
  }
  check_all("sm_90a", kernels_of(problems, "sm_90a"));
}

TEST_CASE("EveryNormedCandidateCompiles", "[nvrtc]") {
  check_all("sm_90a", normed_candidates(StateLayout::kVK, DType::kF32));
  check_all("sm_120a", normed_candidates(StateLayout::kKV, DType::kF32));
  check_all("sm_100a", normed_candidates(StateLayout::kVK, DType::kBF16));
  check_all("sm_90a", normed_candidates(StateLayout::kKV, DType::kBF16));
}

DecodeProblem convolved(DecodeProblem problem) {
  problem.conv.width = 4;
  return problem;
}

// Each option at least once, and the sizes with the most channels to a thread.
TEST_CASE("ConvolutionsInFrontOfADecodeCompile", "[nvrtc]") {
  using gdn::ConvStateLayout;
  std::vector<DecodeProblem> problems;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const ConvStateLayout layout : {ConvStateLayout::kColumns, ConvStateLayout::kChannels}) {
      for (const bool other : {false, true}) {
        DecodeProblem& problem = problems.emplace_back(convolved({.dtype = dtype}));
        problem.conv = {.width = other ? 3 : 4,
                        .activation = other ? gdn::Activation::kNone : gdn::Activation::kSilu,
                        .has_bias = other,
                        .weight_dtype = other ? DType::kF16 : DType::kBF16,
                        .state_dtype = dtype,
                        .state_layout = layout,
                        .whole_window = other};
        problem.states.layout = other ? StateLayout::kKV : StateLayout::kVK;
        problem.inputs.use_qk_l2norm = true;
      }
    }
  }
  for (const auto& [key_dim, value_dim] :
       {std::pair{16, 16}, std::pair{48, 96}, std::pair{256, 256}, std::pair{240, 240}}) {
    for (const auto norm : {gdn::OutputNorm::kNone, gdn::OutputNorm::kGatedRms}) {
      problems.push_back(
          convolved({.key_dim = key_dim, .value_dim = value_dim, .output_norm = norm}));
    }
  }
  problems.push_back(convolved({.states = {.has_initial = false}}));
  problems.push_back(convolved({.states = {.store = false}}));
  problems.push_back(convolved({.states = {.has_initial = false, .store = false}}));
  for (const std::string arch : {"sm_90a", "sm_100a"}) check_all(arch, kernels_of(problems, arch));
  for (DecodeProblem& problem : problems) problem.heads.v = problem.heads.k;
  std::erase_if(problems, [](const DecodeProblem& problem) { return !problem.kernels("sm_80"); });
  CHECK(problems.size() > 8);
  check_all("sm_80", kernels_of(problems, "sm_80"));
}

TEST_CASE("EveryConvolvedCandidateCompiles", "[nvrtc]") {
  check_all("sm_90a", candidates_of(GdnDecodeKey{.conv = {.width = 4}}));
}

// Those of which blocks have the most warps.
TEST_CASE("NormedHeadSizesCompile", "[nvrtc]") {
  std::vector<DecodeProblem> problems;
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int key_dim : {128, 240, 256}) {
        for (const int value_dim : {16, 96, 208, 240, 256}) {
          problems.push_back({.key_dim = key_dim,
                              .value_dim = value_dim,
                              .inputs = {.use_qk_l2norm = true},
                              .states = {.dtype = dtype, .layout = layout},
                              .output_norm = gdn::OutputNorm::kGatedRms});
        }
      }
    }
  }
  for (const std::string arch : {"sm_80", "sm_90a"}) check_all(arch, kernels_of(problems, arch));
}

TEST_CASE("EveryHeadSizeCompiles", "[nvrtc]") {
  std::vector<DecodeProblem> problems;
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (int dim = 16; dim <= 256; dim += 16) {
        problems.push_back(
            {.key_dim = dim, .value_dim = dim, .states = {.dtype = dtype, .layout = layout}});
      }
    }
  }
  check_all("sm_90a", kernels_of(problems, "sm_90a"));
}

TEST_CASE("EveryOptionCompilesForEveryFamily", "[nvrtc]") {
  for (const std::string arch : kFamilies) check_all(arch, kernels_of(decode_options(), arch));
}

TEST_CASE("HeadSizesCompileForEveryFamily", "[nvrtc]") {
  for (const std::string arch : kFamilies) {
    check_all(arch, kernels_of(decode_head_sizes(), arch));
  }
}

TEST_CASE("ServedPrefillCompilesForEveryArchitecture", "[nvrtc]") {
  for (const std::string& arch : known_architectures()) {
    check_all(arch, kernels_of<PrefillProblem>({served_prefill()}, arch));
  }
}

TEST_CASE("PrefillExtremesCompileForEveryFamily", "[nvrtc]") {
  for (const std::string arch : kFamilies) {
    check_all(arch, kernels_of(prefill_extremes(), arch, kChunksAndWidestScan));
  }
}

TEST_CASE("EveryPrefillOptionCompiles", "[nvrtc]") {
  check_all("sm_90a", kernels_of(prefill_options(), "sm_90a", kChunksAndWidestScan));
}

TEST_CASE("PrefillHeadSizesCompile", "[nvrtc]") {
  check_all("sm_90a", kernels_of(prefill_head_sizes(), "sm_90a", kChunksAndWidestScan));
}

// Serialised wgmma is in the log, which is a fault.
TEST_CASE("EveryWgmmaScanCandidateCompiles", "[nvrtc]") {
  for (const bool parts : {false, true}) {
    for (const bool threads_copy : {false, true}) {
      check_all("sm_90a",
                candidates_of(GdnPrefillScanKey{
                    .varlen = true, .parts = parts, .wgmma = true, .threads_copy = threads_copy}));
    }
  }
  check_all("sm_90a", candidates_of(GdnPrefillScanKey{
                          .varlen = true, .wgmma = true, .makes_records = true, .stages = 6}));
}

TEST_CASE("EveryPrefillOptionCompilesForWgmma", "[nvrtc]") {
  const Target target = typical_target({9, 0, 'a'});
  std::vector<PrefillProblem> problems = prefill_options();
  for (const auto& [key_dim, value_dim] : {std::pair{64, 64}, {64, 128}, {96, 192}, {32, 256}}) {
    problems.push_back({.key_dim = key_dim, .value_dim = value_dim, .varlen = true});
  }
  std::vector<KernelSpec> specs;
  std::set<std::string> seen;
  const std::vector<const gdn::PrefillPath*> paths = {
      &gdn::prefill_hopper(), &gdn::prefill_hopper_split(), &gdn::prefill_hopper_fused()};
  for (const PrefillProblem& problem : problems) {
    for (const gdn::PrefillPath* path : paths) {
      for (const auto& values : path->defaults(problem, target)) {
        for (const KernelSpec& spec : path->find(problem, values, target).kernels) {
          const bool is_new = seen.insert(spec.canonical).second;
          if (is_new && spec.kernel == Fields<GdnPrefillScanKey>::kName) specs.push_back(spec);
        }
      }
    }
  }
  CHECK(specs.size() > 40);
  check_all("sm_90a", specs);
}

TEST_CASE("EveryPrefillChunksCandidateCompiles", "[nvrtc]") {
  check_all("sm_80", candidates_of(GdnPrefillChunksKey{.inputs = {.gate_mode = GateMode::kComputed,
                                                                  .beta_mode = BetaMode::kLogit,
                                                                  .use_qk_l2norm = true},
                                                       .varlen = true}));
}

TEST_CASE("ServedVerificationsCompileForEveryFamily", "[nvrtc]") {
  for (const std::string arch : kFamilies) {
    check_all(arch, kernels_of(served_verifications(), arch));
  }
}

TEST_CASE("EveryVerifyOptionCompiles", "[nvrtc]") {
  check_all("sm_90a", kernels_of(verify_options(), "sm_90a"));
}

TEST_CASE("VerifyHeadSizesCompile", "[nvrtc]") {
  check_all("sm_120a", kernels_of(verify_head_sizes(), "sm_120a"));
}

TEST_CASE("EveryVerifyCandidateForVkStatesCompiles", "[nvrtc]") {
  check_all("sm_90a", candidates_of(GdnVerifyKey{.states = {.dtype = DType::kBF16}}));
}

TEST_CASE("EveryVerifyCandidateForKvStatesCompiles", "[nvrtc]") {
  check_all("sm_90a", candidates_of(GdnVerifyKey{.states = {.layout = StateLayout::kKV}}));
}

TEST_CASE("EveryVerifyWyCandidateCompiles", "[nvrtc]") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    GdnVerifyWyKey key{.states = {.dtype = dtype}, .stored_states = StoredStates::kEvery};
    check_all("sm_80", candidates_of(key));
    key.tree = true;
    check_all("sm_80", candidates_of(key));
    key.tree = false;
    key.max_tokens = 4;
    check_all("sm_80", candidates_of(key));
    // A kernel has the fewest registers where only the last state is stored.
    key.stored_states = StoredStates::kLast;
    check_all("sm_90a", candidates_of(key));
    key.max_tokens = 8;
    check_all("sm_80", candidates_of(key));
    key.states.layout = StateLayout::kKV;
    check_all("sm_90a", candidates_of(key));
  }
}

TEST_CASE("ServedCommitsCompileForEveryFamily", "[nvrtc]") {
  for (const std::string arch : kFamilies) check_all(arch, kernels_of(served_commits(), arch));
}

TEST_CASE("EveryCommitOptionCompiles", "[nvrtc]") {
  check_all("sm_90a", kernels_of(commit_options(), "sm_90a"));
}

TEST_CASE("CommitHeadSizesCompile", "[nvrtc]") {
  check_all("sm_80", kernels_of(commit_head_sizes(16), "sm_80"));
  check_all("sm_120a", kernels_of(commit_head_sizes(16), "sm_120a"));
}

TEST_CASE("EveryCommitCandidateCompiles", "[nvrtc]") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    check_all("sm_80", candidates_of(GdnCommitKey{.states = {.dtype = dtype}}));
    check_all("sm_90a",
              candidates_of(GdnCommitKey{.states = {.dtype = dtype, .layout = StateLayout::kKV},
                                         .max_tokens = 16}));
    for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
      for (const int max_tokens : {8, 16}) {
        check_all("sm_90a", candidates_of(GdnCommitKey{.key_dim = 256,
                                                       .value_dim = 256,
                                                       .states = {.dtype = dtype, .layout = layout},
                                                       .max_tokens = max_tokens}));
      }
    }
  }
}

TEST_CASE("ServedConvProblemsCompile", "[nvrtc]") {
  for (const std::string& arch : known_architectures()) {
    check_all(arch, kernels_of(served_convs(), arch));
  }
}

TEST_CASE("EveryConvOptionCompiles", "[nvrtc]") {
  check_all("sm_90a", kernels_of(conv_options(), "sm_90a"));
}

TEST_CASE("ConvHeadSizesCompile", "[nvrtc]") {
  check_all("sm_90a", kernels_of(conv_head_sizes(), "sm_90a"));
}

TEST_CASE("EveryConvCandidateCompiles", "[nvrtc]") {
  std::vector<ConvProblem> problems = served_convs();
  for (const ConvProblem& problem : served_convs()) {
    if (!problem.inputs.use_qk_l2norm) continue;
    problems.push_back(problem);  // where a state lies takes registers, too
    problems.back().states = {};
  }
  for (const ConvProblem& problem : problems) {
    INFO(problem.to_json());
    check_all("sm_90a", candidates_of(std::get<0>(gdn::conv_portable().fixed_keys(problem))));
  }
}

TEST_CASE("EveryPrefillScanCandidateCompiles", "[nvrtc]") {
  check_all("sm_90a", candidates_of(GdnPrefillScanKey{
                          .states = {.location = StateLocation::kPool, .padding = Padding::kSkip},
                          .varlen = true}));
}

}  // namespace
}  // namespace cubinery
