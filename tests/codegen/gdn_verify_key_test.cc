// The views of GdnVerifyKey and GdnVerifyWyKey.
#include <string>

#include "gdn_verify/fields.h"
#include "gdn_verify_wy/fields.h"
#include "tests/catch.h"
#include "tests/codegen/key_checks.h"

namespace cubinery::gdn_verify_key_test {
namespace {

using gdn::StateLayout;
using gdn::StoredStates;
using test::broken_rule;
using test::count_candidates;
using Steps = GdnVerifyKey;
using Wy = GdnVerifyWyKey;

// Persistent: a part of kernel identities.
TEST_CASE("VerifyKeysPrintTheirFields", "[cpu]") {
  const std::string problem =
      "key_dim=128;value_dim=128;dtype=bf16;output_dtype=bf16;gate_dtype=f32;beta_dtype=f32;"
      "a_log_dtype=f32;dt_bias_dtype=f32;state_dtype=f32;index_dtype=i32;cu_seqlens_dtype=i32;"
      "varlen=false;state_layout=vk;state_location=dense;"
      "decay=head;gate_mode=log;beta_mode=given;use_qk_l2norm=false;has_initial_state=true;store_"
      "state=true;"
      "stored_states=last;from_accepted=false;accepted_dtype=i32;";
  CHECK(canonical(Steps{}) == "gdn_verify;" + problem +
                                  "round_each_token=false;output_norm=none;"
                                  "norm_weight_dtype=f32;warp_v=16;k_lanes=8;vec_bytes=16;"
                                  "warps=4");
  CHECK(canonical(Wy{}) ==
        "gdn_verify_wy;" + problem +
            "tree=false;parents_dtype=i32;draft_tokens=8;output_norm=none;norm_weight_dtype=f32;"
            "warp_v=16;held_v=16;warps=4");
}

template <class Key>
Key key_of(StateLayout layout, DType state_dtype) {
  return {.states = {.dtype = state_dtype, .layout = layout}};
}

TEST_CASE("VerifyCandidatesOfTheUsualProblemsAreThisMany", "[cpu]") {
  CHECK(count_candidates(key_of<Steps>(StateLayout::kVK, DType::kF32)) == 96);
  CHECK(count_candidates(key_of<Steps>(StateLayout::kVK, DType::kBF16)) == 96);
  CHECK(count_candidates(key_of<Steps>(StateLayout::kKV, DType::kF32)) == 68);
  CHECK(count_candidates(key_of<Steps>(StateLayout::kKV, DType::kBF16)) == 40);
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    CHECK(count_candidates(key_of<Wy>(layout, DType::kF32)) == 25);
    CHECK(count_candidates(key_of<Wy>(layout, DType::kBF16)) == 28);
  }
}

TEST_CASE("EveryHeadSizeHasVerifyCandidates", "[cpu]") {
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (int key_dim = 16; key_dim <= 256; key_dim += 16) {
        for (int value_dim = 16; value_dim <= 256; value_dim += 16) {
          Steps key = key_of<Steps>(layout, dtype);
          key.key_dim = key_dim;
          key.value_dim = value_dim;
          for (const auto norm : {gdn::OutputNorm::kNone, gdn::OutputNorm::kGatedRms}) {
            key.output_norm = norm;
            int count = 0;
            for_each_candidate(key, [&](const Steps&) { ++count; });
            if (count == 0) FAIL_CHECK(canonical(key));
          }
        }
      }
    }
  }
}

// Calls f(broken) for each kernel: broken(change) is the rule that its default key breaks then.
template <class Function>
void for_each_kernel(const Function& f) {
  f([](const auto& change) { return broken_rule<Steps>([&](Steps& key) { change(key); }); });
  f([](const auto& change) { return broken_rule<Wy>([&](Wy& key) { change(key); }); });
}

TEST_CASE("EachRuleOfAVerificationIsNamed", "[cpu]") {
  for_each_kernel([](const auto& broken) {
    const std::string dims = " must be a multiple of 16 from 16 to 256";
    for (const int dim : {-16, 0, 8, 24, 120, 272}) {
      CHECK(broken([&](auto& key) { key.key_dim = dim; }) == "key_dim" + dims);
      CHECK(broken([&](auto& key) { key.value_dim = dim; }) == "value_dim" + dims);
    }
    const std::string floats = " must be f32, bf16 or f16";
    CHECK(broken([](auto& key) { key.output_dtype = DType::kI32; }) == "output_dtype" + floats);
    CHECK(broken([](auto& key) { key.inputs.gate_dtype = DType::kI32; }) == "gate_dtype" + floats);
    CHECK(broken([](auto& key) { key.inputs.beta_dtype = DType::kI64; }) == "beta_dtype" + floats);
    for (const DType dtype : {DType::kI32, DType::kF8E4M3, DType::kF8E5M2}) {
      CHECK(broken([&](auto& key) { key.states.dtype = dtype; }) == "state_dtype" + floats);
    }
    const std::string integers = " must be i32 or i64";
    CHECK(broken([](auto& key) { key.states.index_dtype = DType::kF32; }) ==
          "index_dtype" + integers);
    CHECK(broken([](auto& key) { key.cu_seqlens_dtype = DType::kF32; }) ==
          "cu_seqlens_dtype" + integers);
    CHECK(broken([](auto& key) { key.accepted_dtype = DType::kF16; }) ==
          "accepted_dtype" + integers);
    CHECK(broken([](auto& key) {
            key.states.has_initial = false;
            key.from_accepted = true;
          }) == "from_accepted needs has_initial_state");
    for (const int warps : {-1, 0, 17}) {
      CHECK(broken([&](auto& key) { key.warps = warps; }) == "warps must be from 1 to 16");
    }
    CHECK(broken([](auto& key) { key.norm_weight_dtype = DType::kI32; }) ==
          "norm_weight_dtype" + floats);
    const auto normed = [&](int value_dim, int warps) {
      return broken([=](auto& key) {
        key.value_dim = value_dim;
        key.warps = warps;
        key.output_norm = gdn::OutputNorm::kSigmoidGatedRms;
      });
    };
    for (const int warps : {1, 2, 4, 8}) CHECK(normed(128, warps) == "none");
    CHECK(normed(48, 3) == "none");
    CHECK(normed(48, 2) ==
          "warps must divide value_dim / warp_v with output_norm: all columns of a head lie in one "
          "block");
  });
}

TEST_CASE("EachRuleOfTheStepsIsNamed", "[cpu]") {
  const auto kv = [](int warp_v, int k_lanes, int vec_bytes) {
    return broken_rule<Steps>([=](Steps& key) {
      key.states.layout = StateLayout::kKV;
      key.warp_v = warp_v;
      key.k_lanes = k_lanes;
      key.vec_bytes = vec_bytes;
    });
  };
  CHECK(broken_rule<Steps>([](Steps& key) { key.dtype = DType::kI32; }) ==
        "dtype must be f32, bf16 or f16");
  for (const int lanes : {-8, 0, 3, 64}) {
    CHECK(broken_rule<Steps>([&](Steps& key) { key.k_lanes = lanes; }) ==
          "k_lanes must be 1, 2, 4, 8, 16 or 32");
  }
  for (const int bytes : {-4, 0, 2, 12, 32}) {
    CHECK(broken_rule<Steps>([&](Steps& key) { key.vec_bytes = bytes; }) ==
          "vec_bytes must be 4, 8 or 16");
  }
  for (const int columns : {-16, 0, 12, 256}) {
    CHECK(broken_rule<Steps>([&](Steps& key) { key.warp_v = columns; }) ==
          "warp_v must divide value_dim");
  }
  CHECK(broken_rule<Steps>([](Steps& key) { key.key_dim = 48; }) ==
        "k_lanes * vec_bytes must divide a row of key_dim");
  CHECK(broken_rule<Steps>([](Steps& key) { key.warp_v = 2; }) ==
        "warp_v must be a multiple of 32 / k_lanes");
  CHECK(broken_rule<Steps>([](Steps& key) {
          key.states.layout = StateLayout::kKV;
          key.key_dim = 16;
          key.k_lanes = 32;
          key.vec_bytes = 4;
        }) == "k_lanes must divide key_dim");
  CHECK(kv(16, 8, 16) == "none");
  CHECK(kv(8, 8, 16) == "warp_v must be a multiple of a row of (32 / k_lanes) * vec_bytes");
  CHECK(kv(64, 8, 16) == "a thread's part of the state, k and q passes 176 registers");
}

TEST_CASE("EachRuleOfTheWyFormIsNamed", "[cpu]") {
  CHECK(broken_rule<Wy>([](Wy& key) {
          key.output_norm = gdn::OutputNorm::kGatedRms;
          key.warp_v = 32;
          key.warps = 2;
        }) == "several passes of a block over its head, with output_norm, need warp_v = 16");
  for (const DType dtype : {DType::kF32, DType::kI32}) {
    CHECK(broken_rule<Wy>([&](Wy& key) { key.dtype = dtype; }) == "dtype must be bf16 or f16");
  }
  for (const int tokens : {-8, 0, 2, 12, 32}) {
    CHECK(broken_rule<Wy>([&](Wy& key) { key.draft_tokens = tokens; }) ==
          "draft_tokens must be 4, 8 or 16");
  }
  CHECK(broken_rule<Wy>([](Wy& key) { key.parents_dtype = DType::kF32; }) ==
        "parents_dtype must be i32 or i64");
  CHECK(broken_rule<Wy>([](Wy& key) { key.tree = true; }) ==
        "a tree has no last token, store_state needs stored_states = every");
  CHECK(broken_rule<Wy>([](Wy& key) {
          key.tree = true;
          key.stored_states = StoredStates::kEvery;
        }) == "none");
  CHECK(broken_rule<Wy>([](Wy& key) {
          key.tree = true;
          key.states.store = false;
        }) == "none");
  for (const int warp_v : {-16, 0, 8, 48, 256}) {
    CHECK(broken_rule<Wy>([&](Wy& key) { key.warp_v = warp_v; }) ==
          "warp_v must be 16, 32, 64 or 128");
  }
  for (const int held_v : {0, 8, 48, 64}) {
    CHECK(broken_rule<Wy>([&](Wy& key) { key.held_v = held_v; }) == "held_v must be 16 or 32");
  }
  CHECK(broken_rule<Wy>([](Wy& key) { key.held_v = 32; }) == "held_v must not pass warp_v");
  for (const int tokens : {8, 16}) {
    CHECK(broken_rule<Wy>([&](Wy& key) {
            key.tree = true;
            key.states.store = false;
            key.draft_tokens = tokens;
            key.warp_v = 32;
            key.warps = 1;
          }) ==
          (tokens == 8 ? "none" : "a tree, or every state, of over 8 tokens needs warp_v = 16"));
  }
  const auto with = [](int dim, int warp_v, int warps) {
    return broken_rule<Wy>([=](Wy& key) {
      key.key_dim = key.value_dim = dim;
      key.warp_v = warp_v;
      key.warps = warps;
    });
  };
  CHECK(with(48, 32, 1) == "warp_v must divide value_dim");
  CHECK(with(256, 32, 1) == "key_dim over 128 needs warp_v = 16");
  CHECK(with(256, 16, 4) == "none");
  CHECK(with(256, 16, 8) == "states of a block pass 96 KiB of shared memory");
  CHECK(with(128, 64, 8) == "none");
}

}  // namespace
}  // namespace cubinery::gdn_verify_key_test
