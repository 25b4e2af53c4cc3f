// The cost model: that it is sane.  regret_test.cc has how good its choices are.
#include <cmath>
#include <string>
#include <vector>

#include "cubinery/context.h"
#include "gdn_decode/fields.h"
#include "runtime/gdn/decode/cost.h"
#include "runtime/gdn/prefill/cost.h"
#include "runtime/gdn/verify/cost.h"
#include "tests/catch.h"
#include "tests/runtime/portable_keys.h"

namespace cubinery {
namespace {

const Target kH200 = typical_target({9, 0, 'a'});

std::vector<Target> all_rates() {
  std::vector<Target> rates;
  for (const std::string& arch : known_architectures()) {
    rates.push_back(typical_target(parse_arch(arch).value()));
  }
  return rates;
}

TEST_CASE("EveryArchitectureHasRates", "[cpu]") {
  for (const std::string& name : known_architectures()) {
    INFO(name);
    const Arch arch = parse_arch(name).value();
    const Target rates = typical_target(arch);
    CHECK(rates.sm_count >= 16);
    CHECK(rates.clock_ghz > 1);
    CHECK(rates.memory_gb_s > 100);
    CHECK(rates.shared_bytes_per_sm >= max_shared_bytes(arch));
    CHECK(rates.max_threads_per_sm >= 1024);
    CHECK(rates.mma_flop_per_clock_per_sm >= 256);
  }
}

TEST_CASE("APartOfAGpuHasItsPartOfTheMemory", "[cpu]") {
  const Arch arch{9, 0, 'a'};
  GpuIdentity part{};
  part.sm_count = 66;
  part.shared_bytes_per_sm = 200 << 10;
  const Target rates = target_of(arch, part);
  CHECK(rates.sm_count == 66);
  CHECK(rates.memory_gb_s == kH200.memory_gb_s / 2);
  CHECK(rates.shared_bytes_per_sm == 200 << 10);
  CHECK(target_of(arch, {}).sm_count == kH200.sm_count);
}

TEST_CASE("MoreStatesTakeLonger", "[cpu]") {
  const gdn::DecodeProblem vk;
  const gdn::DecodeProblem kv{.states = {.dtype = DType::kBF16, .layout = gdn::StateLayout::kKV}};
  for (const Target& gpu : all_rates()) {
    for (const gdn::DecodeProblem& problem : {vk, kv}) {
      const TuningSpace space = test::planner_of(problem).space();
      for (const Configuration& configuration : space.configurations) {
        const GdnDecodeKey key = *test::decode_key(problem, configuration.values);
        INFO(canonical(key) << " on " << gpu.sm_count << " SMs");
        double last = 0;
        for (std::int64_t states = 1; states <= 1 << 20; states *= 2) {
          const double us = gdn::decode_us(key, states, gpu);
          if (!(us >= last)) FAIL_CHECK(states << " states: " << us << " after " << last);
          last = us;
        }
        CHECK(std::isfinite(last));
      }
    }
  }
}

TEST_CASE("MoreStatesAndTokensTakeLongerToVerify", "[cpu]") {
  const gdn::VerifyProblem last{.draft_tokens = 16};
  const gdn::VerifyProblem every{.states = {.dtype = DType::kBF16},
                                 .draft_tokens = 16,
                                 .stored_states = gdn::StoredStates::kEvery};
  for (const Target& gpu : all_rates()) {
    for (const gdn::VerifyProblem& problem : {last, every}) {
      const auto check = [&](const auto& key) {
        INFO(canonical(key) << " on " << gpu.sm_count << " SMs");
        double before = 0;
        for (std::int64_t states = 1; states <= 1 << 20; states *= 4) {
          double us = gdn::verify_us(key, states, 1, gpu);
          if (!(us >= before)) FAIL_CHECK(states << " states: " << us << " after " << before);
          before = us;
          for (std::int64_t tokens = 2; tokens <= 16; tokens *= 2) {
            const double more = gdn::verify_us(key, states, tokens, gpu);
            if (!(more >= us)) FAIL_CHECK(tokens << " tokens: " << more << " after " << us);
            us = more;
          }
          CHECK(std::isfinite(us));
        }
      };
      const test::VerifyKeys keys = test::verify_keys(problem);
      for (const GdnVerifyKey& key : keys.steps) check(key);
      for (const GdnVerifyWyKey& key : keys.wy) check(key);
    }
  }
}

TEST_CASE("MoreStatesTakeLongerToCommit", "[cpu]") {
  const gdn::CommitProblem half{.states = {.dtype = DType::kBF16}, .draft_tokens = 16};
  for (const Target& gpu : all_rates()) {
    for (const gdn::CommitProblem& problem : {gdn::CommitProblem{}, half}) {
      for (const GdnCommitKey& key : test::commit_keys(problem)) {
        INFO(canonical(key) << " on " << gpu.sm_count << " SMs");
        double last = 0;
        for (std::int64_t states = 1; states <= 1 << 20; states *= 2) {
          const double us = gdn::commit_us(key, states, gpu);
          if (!(us >= last)) FAIL_CHECK(states << " states: " << us << " after " << last);
          last = us;
        }
        CHECK(std::isfinite(last));
        // It has no q, o and their products.
        GdnVerifyWyKey verify;
        copy_fields(key, &verify);
        verify.warp_v = key.warp_v;
        verify.warps = key.warps;
        CHECK(gdn::commit_us(key, 4096, gpu) <= gdn::verify_us(verify, 4096, 16, gpu));
      }
    }
  }
}

TEST_CASE("MoreBytesCostMore", "[cpu]") {
  for (const Target& gpu : all_rates()) {
    const GdnDecodeKey key;
    GdnDecodeKey reads = key;
    reads.states.store = false;
    CHECK(gdn::decode_us(reads, 4096, gpu) < gdn::decode_us(key, 4096, gpu));
    GdnDecodeKey half = key;
    half.states.dtype = DType::kBF16;
    CHECK(gdn::decode_us(half, 4096, kH200) < gdn::decode_us(key, 4096, kH200));
  }
}

TEST_CASE("LongerSequencesTakeLonger", "[cpu]") {
  const gdn::PrefillProblem problem{.varlen = true};
  for (const std::string& name : known_architectures()) {
    const Arch arch = parse_arch(name).value();
    const Target gpu = typical_target(arch);
    const TuningSpace space = test::planner_of(problem, gpu).space();
    for (const Configuration& configuration : space.configurations) {
      const auto pair = *test::prefill_pair(problem, configuration.values, max_shared_bytes(arch));
      const gdn::PrefillCost cost(pair.chunks, pair.scan, 32, 1, gpu);
      double last = 0;
      for (std::int64_t length = 16; length <= 1 << 17; length *= 2) {
        const gdn::PrefillLoad even{.sequences = 4, .length = length, .longest = length};
        gdn::PrefillLoad skewed = even;
        skewed.longest = 4 * length;
        const double us = cost.us(even);
        if (!(us >= last)) FAIL_CHECK(name << ": " << us << " after " << last);
        if (!(cost.us(skewed) >= us)) FAIL_CHECK(name);
        last = us;
      }
    }
  }
}

// Of many short sequences, 16 key and 32 value heads: what they take on an H200.
TEST_CASE("BlocksThatGoThroughShortSequencesStartOnce", "[cpu]") {
  struct Measured {
    std::int64_t sequences, length;
    double us;
  };
  const GdnPrefillScanKey scan{
      .varlen = true, .wgmma = true, .makes_wy = true, .warps = 8, .stages = 6};
  const gdn::PrefillCost cost({}, scan, 32, 2, kH200);
  for (const auto& [sequences, length, us] :
       {Measured{32, 64, 65.3}, Measured{32, 256, 117.2}, Measured{128, 128, 270.4},
        Measured{256, 16, 353.7}, Measured{64, 4, 99.3}}) {
    INFO(sequences << " x " << length);
    CHECK(gdn::blocks_stay(scan, sequences * length, sequences));
    const gdn::PrefillLoad load{.sequences = sequences, .length = length, .longest = length};
    CHECK(std::abs(std::log2(cost.us(load) / us)) < 0.15);
  }
  CHECK(gdn::blocks_stay(scan, 8 * 767, 8));
  CHECK_FALSE(gdn::blocks_stay(scan, 8 * 768, 8));
  CHECK_FALSE(gdn::blocks_stay({.varlen = true, .wgmma = true}, 8, 8));
}

// Of one sequence: what segments whose WY factors are made in place take on an H200.
TEST_CASE("SegmentsThatMakeTheirWyFactorsAreMadeInWaves", "[cpu]") {
  struct Measured {
    int k_heads, heads;
    std::int64_t tokens;
    int warps_per_sm;
    double us;
  };
  const GdnPrefillScanKey scan{
      .varlen = true, .segments = true, .wgmma = true, .makes_wy = true, .warps = 8, .stages = 6};
  for (const auto& [k_heads, heads, tokens, warps_per_sm, us] :
       {Measured{16, 16, 32768, 16, 264.6}, Measured{32, 32, 32768, 16, 474.9},
        Measured{16, 32, 32768, 16, 470.0}, Measured{16, 64, 32768, 12, 833.8},
        Measured{16, 32, 8192, 10, 153.4}, Measured{16, 16, 8192, 10, 96.1},
        Measured{4, 16, 32768, 16, 258.9}, Measured{2, 8, 32768, 16, 169.5}}) {
    INFO(k_heads << ", " << heads << " heads, " << tokens << " tokens");
    const gdn::PrefillProblem problem{.heads = {.q = k_heads, .k = k_heads, .v = heads}};
    const gdn::PrefillCost cost({}, scan, heads, heads / k_heads, kH200);
    const gdn::SegmentRule rule(problem, scan, warps_per_sm, 132);
    const double model = cost.split_us(rule, {.length = tokens, .longest = tokens});
    CHECK(std::abs(std::log2(model / us)) < 0.25);
  }
}

TEST_CASE("HeadsShareABlockWhereEveryMultiprocessorKeepsOne", "[cpu]") {
  CHECK(gdn::heads_per_block(8, 32, 2, 132) == 1);
  CHECK(gdn::heads_per_block(9, 32, 2, 132) == 2);
  CHECK(gdn::heads_per_block(33, 8, 4, 132) == 2);
  CHECK(gdn::heads_per_block(66, 8, 4, 132) == 4);
  CHECK(gdn::heads_per_block(40, 12, 6, 132) == 3);
  CHECK(gdn::heads_per_block(1 << 20, 24, 1, 132) == 1);
}

}  // namespace
}  // namespace cubinery
