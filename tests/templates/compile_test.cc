// Every kernel that can be asked for compiles, without warnings and without spills.
#include <atomic>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cubinery/context.h"
#include "cubinery/gdn.h"
#include "gdn_decode/fields.h"
#include "runtime/decode_problem.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

using gdn::BetaMode;
using gdn::DecodeProblem;
using gdn::GateMode;
using gdn::Padding;
using gdn::PadIndex;
using gdn::StateLayout;
using gdn::StateLocation;

constexpr int kThreads = 2;

// What is wrong with the kernel; empty when nothing is.
std::string fault(const Context& context, const GdnDecodeKey& key) {
  const Result<CompiledKernel> kernel = context.compile(key);
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

void check_all(const std::string& arch, const std::vector<GdnDecodeKey>& keys) {
  Options options;
  options.device = kNoDevice;
  options.arch = arch;
  options.use_disk_cache = false;
  const Result<Context> context = Context::create(options);
  REQUIRE(context);
  std::vector<std::string> faults(keys.size());
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (std::size_t n = next++; n < keys.size(); n = next++) {
        faults[n] = fault(*context, keys[n]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t n = 0; n < keys.size(); ++n) {
    if (!faults[n].empty()) FAIL_CHECK(arch << ": " << canonical(keys[n]) << ": " << faults[n]);
  }
  CHECK_FALSE(keys.empty());
}

// Every `stride`-th candidate of the default problem.
std::vector<GdnDecodeKey> candidates(StateLayout layout, DType state_dtype) {
  std::vector<GdnDecodeKey> keys;
  for_each_candidate(GdnDecodeKey{.state_dtype = state_dtype, .state_layout = layout},
                     [&](const GdnDecodeKey& key) { keys.push_back(key); });
  return keys;
}

void add_keys(const DecodeProblem& problem, std::vector<GdnDecodeKey>* keys) {
  INFO(problem.to_json());
  REQUIRE(problem.check().ok());
  const gdn::DecodeKeys made = gdn::decode_keys(problem);
  keys->push_back(made.wide);
  keys->push_back(made.narrow);
}

// Each option at least once.
std::vector<GdnDecodeKey> keys_of_all_options() {
  constexpr StateLocation kPool = StateLocation::kPool;
  std::vector<GdnDecodeKey> keys;
  for (const DecodeProblem& problem : std::vector<DecodeProblem>{
           {},
           {.dtype = DType::kF32, .output_dtype = DType::kF32},
           {.dtype = DType::kF16, .output_dtype = DType::kF16},
           {.gate_dtype = DType::kBF16, .beta_dtype = DType::kF16},
           {.state_dtype = DType::kF16},
           {.state_dtype = DType::kBF16},
           {.state_dtype = DType::kBF16, .state_layout = StateLayout::kKV},
           {.state_layout = StateLayout::kKV},
           {.state_location = kPool},
           {.index_dtype = DType::kI64, .state_location = kPool, .padding = Padding::kSkip},
           {.state_location = kPool, .padding = Padding::kZero, .pad_index = PadIndex::kZero},
           {.state_location = kPool, .padding = Padding::kScratch},
           {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne},
           {.gate_mode = GateMode::kAlpha, .beta_mode = BetaMode::kLogit},
           {.a_log_dtype = DType::kBF16,
           .dt_bias_dtype = DType::kF16,
           .gate_mode = GateMode::kComputed,
           .beta_mode = BetaMode::kDoubledLogit},
           {.use_qk_l2norm = true},
           {.has_initial_state = false},
           {.store_state = false},
           {.has_initial_state = false, .store_state = false}}) {
    add_keys(problem, &keys);
  }
  return keys;
}

// Extreme and odd head sizes.
std::vector<GdnDecodeKey> keys_of_some_head_sizes() {
  std::vector<GdnDecodeKey> keys;
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const auto& [key_dim, value_dim] :
         {std::pair{16, 16}, std::pair{48, 96}, std::pair{96, 48}, std::pair{256, 256},
          std::pair{240, 240}}) {
      add_keys({.key_dim = key_dim, .value_dim = value_dim, .state_layout = layout}, &keys);
    }
  }
  return keys;
}

void check_candidates_everywhere(StateLayout layout, DType state_dtype) {
  for (const std::string& arch : known_architectures()) {
    check_all(arch, candidates(layout, state_dtype));
  }
}

TEST_CASE("EveryCandidateForVkStatesCompiles", "[nvrtc]") {
  check_candidates_everywhere(StateLayout::kVK, DType::kF32);
}

TEST_CASE("EveryCandidateForKvStatesCompiles", "[nvrtc]") {
  check_candidates_everywhere(StateLayout::kKV, DType::kF32);
}

// On the architectures whose compilers have differed: all of them would take CI five minutes.
TEST_CASE("EveryCandidateForHalfStatesCompiles", "[nvrtc]") {
  for (const std::string arch : {"sm_90a", "sm_100a"}) {
    check_all(arch, candidates(StateLayout::kVK, DType::kBF16));
    check_all(arch, candidates(StateLayout::kKV, DType::kBF16));
  }
}

TEST_CASE("EveryHeadSizeCompiles", "[nvrtc]") {
  std::vector<GdnDecodeKey> keys;
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (int dim = 16; dim <= 256; dim += 16) {
        add_keys({.key_dim = dim, .value_dim = dim, .state_dtype = dtype, .state_layout = layout},
                 &keys);
      }
    }
  }
  check_all("sm_90a", keys);
}

TEST_CASE("EveryOptionCompilesForEveryArchitecture", "[nvrtc]") {
  const std::vector<GdnDecodeKey> keys = keys_of_all_options();
  for (const std::string& arch : known_architectures()) check_all(arch, keys);
}

TEST_CASE("HeadSizesCompileForEveryArchitecture", "[nvrtc]") {
  const std::vector<GdnDecodeKey> keys = keys_of_some_head_sizes();
  for (const std::string& arch : known_architectures()) check_all(arch, keys);
}

}  // namespace
}  // namespace cubinery
