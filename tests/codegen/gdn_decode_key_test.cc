// The views of GdnDecodeKey.
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>

#include "gdn_decode/fields.h"
#include "tests/catch.h"
#include "tests/codegen/key_checks.h"

namespace cubinery {
namespace {

using gdn::BetaMode;
using gdn::GateMode;
using gdn::StateLayout;
using gdn::StateLocation;

GdnDecodeKey key_of(StateLayout layout, DType state_dtype) {
  return {.states = {.dtype = state_dtype, .layout = layout}};
}

// No field has its default.
constexpr GdnDecodeKey kUnusual{.key_dim = 64,
                                .value_dim = 96,
                                .dtype = DType::kF32,
                                .output_dtype = DType::kF16,
                                .inputs = {.gate_dtype = DType::kBF16,
                                           .beta_dtype = DType::kF16,
                                           .a_log_dtype = DType::kBF16,
                                           .dt_bias_dtype = DType::kF16,
                                           .gate_mode = GateMode::kComputed,
                                           .beta_mode = BetaMode::kDoubledLogit,
                                           .use_qk_l2norm = true},
                                .states = {.dtype = DType::kBF16,
                                           .index_dtype = DType::kI64,
                                           .layout = StateLayout::kKV,
                                           .location = StateLocation::kPool,
                                           .has_initial = false,
                                           .store = false},
                                .output_norm = gdn::OutputNorm::kGatedRms,
                                .norm_weight_dtype = DType::kF16,
                                .conv = {.width = 3,
                                         .activation = gdn::Activation::kNone,
                                         .has_bias = true,
                                         .weight_dtype = DType::kF16,
                                         .state_dtype = DType::kF32,
                                         .state_layout = gdn::ConvStateLayout::kChannels,
                                         .whole_window = true},
                                .warp_v = 32,
                                .held_v = 8,
                                .k_lanes = 16,
                                .vec_bytes = 8,
                                .warps = 3};

// Bytes of this file change: decode's cubins in every cache are compiled again, and its results
// written before are lost.  If that is meant, rename the file and say so in CHANGELOG.md.
TEST_CASE("GdnDecodeKeysPrintAsInTheGoldenFile", "[cpu]") {
  std::ifstream file(CUBINERY_TEST_DIR "/golden/gdn_decode_key_v1.txt");
  const std::string golden{std::istreambuf_iterator<char>(file), {}};
  std::string text;
  for (const GdnDecodeKey& key : {GdnDecodeKey{}, kUnusual}) {
    text += canonical(key) + "\n" + to_json(key) + "\n" + initializer(key) + "\n";
  }
  CHECK(text == golden);
}

TEST_CASE("TheGoldenKeysAreStillRead", "[cpu]") {
  std::ifstream file(CUBINERY_TEST_DIR "/golden/gdn_decode_key_v1.txt");
  std::string name;
  std::string json;
  std::string code;
  int count = 0;
  while (std::getline(file, name) && std::getline(file, json) && std::getline(file, code)) {
    const Result<GdnDecodeKey> key = from_json<GdnDecodeKey>(json);
    REQUIRE(key);
    CHECK(canonical(*key) == name);
    ++count;
  }
  CHECK(count == 2);
}

TEST_CASE("CandidatesOfTheUsualProblemsAreThisMany", "[cpu]") {
  CHECK(test::count_candidates(key_of(StateLayout::kVK, DType::kF32)) == 207);
  CHECK(test::count_candidates(key_of(StateLayout::kVK, DType::kBF16)) == 207);
  CHECK(test::count_candidates(key_of(StateLayout::kVK, DType::kF16)) == 207);
  CHECK(test::count_candidates(key_of(StateLayout::kKV, DType::kF32)) == 123);
  CHECK(test::count_candidates(key_of(StateLayout::kKV, DType::kBF16)) == 69);
  CHECK(test::count_candidates(key_of(StateLayout::kKV, DType::kF16)) == 69);
  for (const DType dtype : {DType::kF8E4M3, DType::kF8E5M2}) {
    CHECK(test::count_candidates(key_of(StateLayout::kVK, dtype)) == 180);
    CHECK(test::count_candidates(key_of(StateLayout::kKV, dtype)) == 75);
  }
}

TEST_CASE("CandidatesKeepTheirProblem", "[cpu]") {
  for_each_candidate(kUnusual, [](const GdnDecodeKey& key) {
    GdnDecodeKey same = kUnusual;
    same.warp_v = key.warp_v;
    same.held_v = key.held_v;
    same.k_lanes = key.k_lanes;
    same.vec_bytes = key.vec_bytes;
    same.warps = key.warps;
    if (canonical(same) != canonical(key)) FAIL(canonical(key));
  });
}

TEST_CASE("EveryHeadSizeHasCandidates", "[cpu]") {
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const DType dtype : gdn::kStateFloats) {
      for (int key_dim = 16; key_dim <= 256; key_dim += 16) {
        for (int value_dim = 16; value_dim <= 256; value_dim += 16) {
          GdnDecodeKey key = key_of(layout, dtype);
          key.key_dim = key_dim;
          key.value_dim = value_dim;
          for (const auto norm : {gdn::OutputNorm::kNone, gdn::OutputNorm::kGatedRms}) {
            key.output_norm = norm;
            int count = 0;
            for_each_candidate(key, [&](const GdnDecodeKey&) { ++count; });
            if (count == 0) FAIL_CHECK(canonical(key));
          }
        }
      }
    }
  }
}

using test::broken_rule;

TEST_CASE("EachRuleOfAProblemIsNamed", "[cpu]") {
  using Key = GdnDecodeKey;
  const std::string dims = " must be a multiple of 16 from 16 to 256";
  for (const int dim : {-16, 0, 8, 24, 120, 272}) {
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.key_dim = dim; }) == "key_dim" + dims);
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.value_dim = dim; }) == "value_dim" + dims);
  }
  const std::string floats = " must be f32, bf16 or f16";
  for (const DType dtype : {DType::kI32, DType::kI64, DType::kF8E4M3, DType::kF8E5M2}) {
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.dtype = dtype; }) == "dtype" + floats);
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.output_dtype = dtype; }) ==
          "output_dtype" + floats);
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.inputs.gate_dtype = dtype; }) ==
          "gate_dtype" + floats);
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.inputs.beta_dtype = dtype; }) ==
          "beta_dtype" + floats);
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.inputs.a_log_dtype = dtype; }) ==
          "a_log_dtype" + floats);
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.inputs.dt_bias_dtype = dtype; }) ==
          "dt_bias_dtype" + floats);
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.norm_weight_dtype = dtype; }) ==
          "norm_weight_dtype" + floats);
  }
  for (const DType dtype : {DType::kI32, DType::kI64}) {
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.states.dtype = dtype; }) ==
          "state_dtype must be f32, bf16, f16, f8e4m3 or f8e5m2");
  }
  for (const DType dtype : gdn::kStateFloats) {
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.states.index_dtype = dtype; }) ==
          "index_dtype must be i32 or i64");
  }
}

TEST_CASE("EachRuleOfAConvolutionIsNamed", "[cpu]") {
  using Key = GdnDecodeKey;
  const auto convolved = [](const auto& change) {
    return broken_rule<GdnDecodeKey>([&](Key& key) {
      key.conv.width = 4;
      change(key);
    });
  };
  CHECK(convolved([](Key&) {}) == "none");
  for (const int width : {-1, 1, 5}) {
    CHECK(convolved([=](Key& key) { key.conv.width = width; }) ==
          "conv_width must be 0, 2, 3 or 4");
  }
  CHECK(convolved([](Key& key) { key.conv.weight_dtype = DType::kI32; }) ==
        "conv_weight_dtype must be f32, bf16 or f16");
  CHECK(convolved([](Key& key) { key.conv.state_dtype = DType::kF8E4M3; }) ==
        "conv_state_dtype must be f32, bf16 or f16");
  CHECK(convolved([](Key& key) { key.warps = 3; }) ==
        "warps * warp_v must divide value_dim with a convolution: a block has columns of one head");
  CHECK(convolved([](Key& key) {
          key.key_dim = 256;
          key.held_v = 4;
          key.warps = 1;
        }) == "a thread's channels of the convolution pass its registers");
}

TEST_CASE("EachRuleOfTuningIsNamed", "[cpu]") {
  using Key = GdnDecodeKey;
  const auto kv = [](int warp_v, int k_lanes, int vec_bytes) {
    return broken_rule<GdnDecodeKey>([=](Key& key) {
      key.states.layout = StateLayout::kKV;
      key.warp_v = key.held_v = warp_v;
      key.k_lanes = k_lanes;
      key.vec_bytes = vec_bytes;
    });
  };
  for (const int lanes : {-8, 0, 3, 64}) {
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.k_lanes = lanes; }) ==
          "k_lanes must be 1, 2, 4, 8, 16 or 32");
  }
  for (const int bytes : {-4, 0, 2, 12, 32}) {
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.vec_bytes = bytes; }) ==
          "vec_bytes must be 4, 8 or 16, or 2 with states in fp8");
  }
  // A pair of fp8, where a row has no longer vector for every lane.
  const auto pair = [](int key_dim, int k_lanes, DType state_dtype = DType::kF8E4M3) {
    return broken_rule<GdnDecodeKey>([=](Key& key) {
      key.key_dim = key_dim;
      key.states.dtype = state_dtype;
      key.k_lanes = k_lanes;
      key.vec_bytes = 2;
    });
  };
  CHECK(pair(48, 8) == "none");
  CHECK(pair(48, 8, DType::kBF16) == "vec_bytes must be 4, 8 or 16, or 2 with states in fp8");
  CHECK(pair(64, 8) == "vec_bytes = 2 is for rows of key_dim that k_lanes * 4 bytes do not divide");
  CHECK(broken_rule<GdnDecodeKey>([](Key& key) {
          key.key_dim = 256;
          key.states = {.dtype = DType::kF8E5M2, .layout = StateLayout::kKV};
          key.vec_bytes = 4;
        }) ==
        "a thread's part of the state, k and q passes 176 elements, in fp8 with state_layout = kv");
  for (const int warps : {-1, 0, 17}) {
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.warps = warps; }) ==
          "warps must be from 1 to 16");
  }
  CHECK(broken_rule<GdnDecodeKey>([](Key& key) { key.warps = 3; }) ==
        "warps must be 1, 2 or 4 without output_norm and convolution");
  const auto normed = [](int warp_v, int warps, DType state_dtype = DType::kF32) {
    return broken_rule<GdnDecodeKey>([=](Key& key) {
      key.states.dtype = state_dtype;
      key.output_norm = gdn::OutputNorm::kGatedRms;
      key.warp_v = warp_v;
      key.warps = warps;
    });
  };
  const std::string head =
      "warps must be 1, 2 or 4 times value_dim / warp_v with output_norm: all columns of a head "
      "lie "
      "in one block";
  CHECK(normed(64, 2) ==
        "warp_v must be 4, 8, 16 or 32 with output_norm, of whose columns a lane keeps one");
  CHECK(normed(16, 4) == head);
  CHECK(normed(32, 12) == head);
  CHECK(normed(16, 16, DType::kBF16) ==
        "a thread's part of the state, k and q passes the registers of so many warps");
  CHECK(normed(32, 16) == "none");
  for (const int columns : {-16, 0, 12, 256}) {
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.warp_v = columns; }) ==
          "warp_v must divide value_dim");
  }
  CHECK(broken_rule<GdnDecodeKey>([](Key& key) { key.key_dim = 48; }) ==
        "k_lanes * vec_bytes must divide a row of key_dim");
  for (const int columns : {-16, 0, 12, 32}) {
    CHECK(broken_rule<GdnDecodeKey>([&](Key& key) { key.held_v = columns; }) ==
          "held_v must divide warp_v");
  }
  CHECK(broken_rule<GdnDecodeKey>([](Key& key) { key.held_v = 2; }) ==
        "held_v must be a multiple of 32 / k_lanes");
  CHECK(broken_rule<GdnDecodeKey>([](Key& key) {
          key.states.layout = StateLayout::kKV;
          key.key_dim = 16;
          key.k_lanes = 32;
          key.vec_bytes = 4;
        }) == "k_lanes must divide key_dim");
  CHECK(kv(16, 8, 16) == "none");
  CHECK(kv(8, 8, 16) == "held_v must be a multiple of a row of (32 / k_lanes) * vec_bytes");
  CHECK(kv(8, 4, 4) == "k_lanes = 4 needs vec_bytes = 8 or 16 with state_layout = kv");
  CHECK(kv(32, 8, 16) == "a thread's part of the state, k and q passes 128 registers");
}

}  // namespace
}  // namespace cubinery
