// The views of GdnCommitKey.
#include <string>

#include "gdn_commit/fields.h"
#include "tests/catch.h"
#include "tests/codegen/key_checks.h"
#include "tests/function_ref.h"

namespace cubinery {
namespace {

using gdn::StateLayout;
using test::broken_rule;
using test::count_candidates;
using Key = GdnCommitKey;

// Persistent: a part of kernel identities.
TEST_CASE("CommitKeysPrintTheirFields", "[cpu]") {
  CHECK(canonical(Key{}) ==
        "gdn_commit;key_dim=128;value_dim=128;dtype=bf16;gate_dtype=f32;beta_dtype=f32;"
        "a_log_dtype=f32;dt_bias_dtype=f32;state_dtype=f32;index_dtype=i32;cu_seqlens_dtype=i32;"
        "varlen=false;state_layout=vk;state_location=dense;"
        "decay=head;gate_mode=log;beta_mode=given;use_qk_l2norm=false;has_initial_state=true;"
        "store_state=true;accepted_dtype=i32;draft_tokens=8;warp_v=16;held_v=16;warps=4");
}

TEST_CASE("CommitCandidatesOfTheUsualProblemsAreThisMany", "[cpu]") {
  for (const StateLayout layout : {StateLayout::kKV, StateLayout::kVK}) {
    CHECK(count_candidates(Key{.states = {.layout = layout}}) == 25);
    CHECK(count_candidates(Key{.states = {.dtype = DType::kBF16, .layout = layout}}) == 28);
  }
}

TEST_CASE("EveryHeadSizeHasCommitCandidates", "[cpu]") {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int key_dim = 16; key_dim <= 256; key_dim += 16) {
      for (int value_dim = 16; value_dim <= 256; value_dim += 16) {
        for (const int draft_tokens : {8, 16}) {
          const Key key{.key_dim = key_dim,
                        .value_dim = value_dim,
                        .states = {.dtype = dtype},
                        .draft_tokens = draft_tokens};
          int count = 0;
          for_each_candidate(key, [&](const Key&) { ++count; });
          if (count == 0) FAIL_CHECK(canonical(key));
        }
      }
    }
  }
}

TEST_CASE("EachRuleOfACommitIsNamed", "[cpu]") {
  const auto broken = [](FunctionRef<void(Key&)> change) { return broken_rule<Key>(change); };
  const std::string dims = " must be a multiple of 16 from 16 to 256";
  for (const int dim : {-16, 0, 8, 24, 120, 272}) {
    CHECK(broken([&](Key& key) { key.key_dim = dim; }) == "key_dim" + dims);
    CHECK(broken([&](Key& key) { key.value_dim = dim; }) == "value_dim" + dims);
  }
  for (const DType dtype : {DType::kF32, DType::kI32}) {
    CHECK(broken([&](Key& key) { key.dtype = dtype; }) == "dtype must be bf16 or f16");
  }
  CHECK(broken([](Key& key) { key.inputs.gate_dtype = DType::kI32; }) ==
        "gate_dtype must be f32, bf16 or f16");
  for (const DType dtype : {DType::kI32, DType::kF8E4M3, DType::kF8E5M2}) {
    CHECK(broken([&](Key& key) { key.states.dtype = dtype; }) ==
          "state_dtype must be f32, bf16 or f16");
  }
  const std::string integers = " must be i32 or i64";
  CHECK(broken([](Key& key) { key.states.index_dtype = DType::kF32; }) == "index_dtype" + integers);
  CHECK(broken([](Key& key) { key.cu_seqlens_dtype = DType::kF32; }) ==
        "cu_seqlens_dtype" + integers);
  CHECK(broken([](Key& key) { key.cu_seqlens_dtype = DType::kF8E4M3; }) ==
        "cu_seqlens_dtype" + integers);
  CHECK(broken([](Key& key) { key.accepted_dtype = DType::kF16; }) == "accepted_dtype" + integers);
  const std::string both = "has_initial_state and store_state must be true";
  CHECK(broken([](Key& key) { key.states.has_initial = false; }) == both);
  CHECK(broken([](Key& key) { key.states.store = false; }) == both);
  for (const int tokens : {-8, 0, 4, 12, 32}) {
    CHECK(broken([&](Key& key) { key.draft_tokens = tokens; }) == "draft_tokens must be 8 or 16");
  }
  for (const int warp_v : {-16, 0, 8, 48, 256}) {
    CHECK(broken([&](Key& key) { key.warp_v = warp_v; }) == "warp_v must be 16, 32, 64 or 128");
  }
  for (const int held_v : {0, 8, 48, 64}) {
    CHECK(broken([&](Key& key) { key.held_v = held_v; }) == "held_v must be 16 or 32");
  }
  CHECK(broken([](Key& key) { key.held_v = 32; }) == "held_v must not pass warp_v");
  for (const int warps : {-1, 0, 17}) {
    CHECK(broken([&](Key& key) { key.warps = warps; }) == "warps must be from 1 to 16");
  }
  const auto with = [](int dim, int warp_v, int warps) {
    return broken_rule<Key>([=](Key& key) {
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
}  // namespace cubinery
