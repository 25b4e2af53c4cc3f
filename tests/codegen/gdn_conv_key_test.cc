// The views of GdnConvKey.
#include <string>

#include "gdn_conv/fields.h"
#include "tests/catch.h"
#include "tests/codegen/key_checks.h"
#include "tests/conv_shapes.h"
#include "tests/function_ref.h"

namespace cubinery::gdn_conv_key_test {
namespace {

using gdn::BetaMode;
using gdn::Checkpoints;
using gdn::ConvStateLayout;
using gdn::Decay;
using gdn::GateMode;
using gdn::StateLocation;
using gdn::StoredStates;
using test::broken_rule;
using test::count_candidates;
using Key = GdnConvKey;

// As engines run it: q and k normalised, gates, states in a pool.
Key engine_key() {
  return {.split_qkv = true,
          .inputs = {.gate_mode = GateMode::kComputed,
                     .beta_mode = BetaMode::kLogit,
                     .use_qk_l2norm = true},
          .states = {.location = StateLocation::kPool}};
}

Key normed_key(int key_dim, int lane_channels) {
  Key key = engine_key();
  key.key_dim = key_dim;
  key.lane_channels = lane_channels;
  return key;
}

// Persistent: a part of kernel identities.
TEST_CASE("ConvKeysPrintTheirFields", "[cpu]") {
  CHECK(canonical(Key{}) ==
        "gdn_conv;key_dim=128;dtype=bf16;weight_dtype=bf16;width=4;activation=silu;has_bias=false;"
        "split_qkv=false;gate_dtype=f32;beta_dtype=f32;a_log_dtype=f32;dt_bias_dtype=f32;"
        "state_dtype=bf16;index_dtype=i32;cu_seqlens_dtype=i32;varlen=false;state_layout=columns;"
        "state_location=dense;decay=head;gate_mode=none;beta_mode="
        "one;"
        "use_qk_l2norm=false;has_initial_state=true;store_state=true;whole_window=false;"
        "stored_states=last;checkpoints=none;from_accepted=false;accepted_dtype=i32;"
        "circular_state=false;vectors=true;lane_channels=8;ahead=4;warps=4;"
        "resident=512;together=1");
}

TEST_CASE("ConvCandidatesOfTheUsualProblemsAreThisMany", "[cpu]") {
  for (const ConvStateLayout layout : {ConvStateLayout::kColumns, ConvStateLayout::kChannels}) {
    CHECK(count_candidates(Key{.states = {.layout = layout}}) == 78);
    CHECK(count_candidates(Key{.states = {.layout = layout}, .varlen = true}) == 60);
  }
  CHECK(count_candidates(engine_key()) == 78);
  CHECK(count_candidates(Key{.dtype = DType::kF32, .states = {.dtype = DType::kF32}}) == 40);
}

TEST_CASE("EveryShapeHasConvCandidates", "[cpu]") {
  test::for_each_conv_shape<Key>([](Key key) {
    for (const bool varlen : {false, true}) {
      key.varlen = varlen;
      int count = 0;
      for_each_candidate(key, [&](const Key&) { ++count; });
      if (count == 0) FAIL_CHECK(canonical(key));
    }
  });
}

// Sums of squares go over the lanes of a head by shuffles.
TEST_CASE("AHeadHasAPowerOfTwoOfLanes", "[cpu]") {
  CHECK(head_lanes(normed_key(8, 8)) == 1);
  CHECK(head_lanes(normed_key(8, 4)) == 2);
  CHECK(head_lanes(normed_key(16, 8)) == 2);
  CHECK(head_lanes(normed_key(16, 4)) == 4);
  CHECK(head_lanes(normed_key(24, 8)) == 4);
  CHECK(head_lanes(normed_key(48, 8)) == 8);
  CHECK(head_lanes(normed_key(64, 8)) == 8);
  CHECK(head_lanes(normed_key(80, 4)) == 32);
  CHECK(head_lanes(normed_key(128, 8)) == 16);
  CHECK(head_lanes(normed_key(128, 4)) == 32);
  CHECK(head_lanes(normed_key(256, 8)) == 32);
  CHECK(head_lanes(normed_key(256, 4)) == 64);
}

TEST_CASE("WarpsHaveAllChannels", "[cpu]") {
  const Key wide{}, narrow{.lane_channels = 4};
  for (const int heads : {0, 32}) {  // they mean nothing without a norm
    CHECK(channel_warps(wide, heads, 1) == 1);
    CHECK(channel_warps(wide, heads, 256) == 1);
    CHECK(channel_warps(wide, heads, 257) == 2);
    CHECK(channel_warps(wide, heads, 8192) == 32);
    CHECK(channel_warps(narrow, heads, 8192) == 64);
    CHECK(channel_warps(wide, heads, 1 << 20) == 4096);
  }
  // 32 heads of q and k by pairs, and 4096 channels of v.
  CHECK(channel_warps(normed_key(128, 8), 32, 8192) == 32);
  CHECK(channel_warps(normed_key(128, 4), 32, 8192) == 64);
  // Of 48 channels a head has 8 lanes, 2 of them without channels; 80 of v are 2 times 8 lanes.
  CHECK(channel_warps(normed_key(48, 8), 2, 2 * 48 + 80) == 1);
  CHECK(channel_warps(normed_key(48, 8), 3, 3 * 48 + 80) == 2);
  CHECK(channel_warps(normed_key(256, 8), 2, 2 * 256 + 16) == 3);
  // Of 8 channels a head has one lane, and each 8 of v another.
  CHECK(channel_warps(normed_key(8, 8), 30, 30 * 8 + 16) == 1);
  CHECK(channel_warps(normed_key(8, 8), 30, 30 * 8 + 24) == 2);
}

TEST_CASE("GatesHaveWarps", "[cpu]") {
  CHECK(gate_warps(Key{}, 1000, 32) == 0);
  Key key = engine_key();
  CHECK(gate_warps(key, 1, 32) == 1);
  CHECK(gate_warps(key, 16, 32) == 1);
  CHECK(gate_warps(key, 17, 32) == 2);
  // Of each channel: a warp has a head of 128 of them, in 16 tokens.
  key.inputs.decay = Decay::kChannel;
  CHECK(gate_warps(key, 0, 32) == 0);
  CHECK(gate_warps(key, 1, 32) == 32);
  CHECK(gate_warps(key, 16, 32) == 32);
  CHECK(gate_warps(key, 17, 32) == 2 * 32);
  key.key_dim = 256;
  CHECK(gate_warps(key, 17, 3) == 2 * 6);
  // Five heads of 24 channels are 30 lanes, of 6 lanes each, so 6 tokens.
  key.key_dim = 24;
  CHECK(gate_tokens(key) == 6);
  CHECK(gate_warps(key, 7, 5) == 2);
  CHECK(gate_warps(key, 7, 6) == 2 * 2);
  // beta alone is of heads.
  key.inputs.gate_mode = GateMode::kNone;
  CHECK(gate_warps(key, 17, 32) == 2);
}

// Each lane of a head makes beta of one of its tokens.
TEST_CASE("AHeadHasNoFewerLanesThanTokens", "[cpu]") {
  for (int dim = 8; dim <= 256; dim += 8) {
    Key key = engine_key();
    key.key_dim = dim;
    CHECK(dim % kGateChannels == 0);
    CHECK((gate_tokens(key) >= 1 && gate_tokens(key) <= dim / kGateChannels));
    CHECK((gate_tokens(key) == 16 || dim < 64));
  }
}

TEST_CASE("StepsHaveCodeWhereOneRowIsOnItsWay", "[cpu]") {
  CHECK_FALSE(has_steps(Key{}));
  CHECK(has_steps(Key{.ahead = 1}));
  CHECK_FALSE(has_steps(Key{.varlen = true, .ahead = 1}));
  CHECK_FALSE(has_steps(Key{.stored_states = StoredStates::kEvery, .ahead = 1}));
  CHECK_FALSE(has_steps(Key{.checkpoints = Checkpoints::kAfter, .ahead = 1}));
  CHECK_FALSE(has_steps(Key{.checkpoints = Checkpoints::kAt, .ahead = 1}));
}

TEST_CASE("RegistersGrowWithWhatAThreadHolds", "[cpu]") {
  // Taps and sums of 8 channels.
  CHECK(registers(Key{}) == 44 + 4 * 8 + 4 * 8);
  CHECK(registers(Key{.has_bias = true}) == registers(Key{}) + 8);
  CHECK(registers(Key{.width = 3}) == registers(Key{}) - 16);
  CHECK(registers(Key{.varlen = true}) == registers(Key{}) + 16);
  Key normed{.split_qkv = true, .inputs = {.use_qk_l2norm = true}, .varlen = true};
  CHECK(registers(normed) == registers(Key{}) + 16 + 8);
  normed.ahead = 1;
  CHECK(registers(normed) == registers(Key{}) + 16);
  CHECK(registers(Key{.from_accepted = true}) == registers(Key{}) + 24);
  CHECK(registers(Key{.circular_state = true}) == registers(Key{}) + 24);
  CHECK(registers(Key{.stored_states = StoredStates::kEvery}) == registers(Key{}) + 12 + 24);
  CHECK(registers(Key{.checkpoints = Checkpoints::kAfter}) == registers(Key{}) + 24);
  CHECK(registers(Key{.checkpoints = Checkpoints::kAt}) == registers(Key{}) + 24);
  CHECK(registers(Key{.dtype = DType::kF32, .lane_channels = 4}) == 44 + 16 + 16);
  // Steps: taps, outputs and inputs, and for each sequence a row, 3 columns of bf16 and slots.
  const auto steps = [](int together, int lane_channels) {
    return registers(Key{.lane_channels = lane_channels, .ahead = 1, .together = together});
  };
  CHECK(steps(1, 8) == 44 + 4 * 8 + 2 * 8 + (4 + 12 + 4));
  CHECK(steps(2, 8) == 44 + 4 * 8 + 2 * 8 + 2 * (4 + 12 + 4));
  CHECK(steps(4, 4) == 44 + 4 * 4 + 2 * 4 + 4 * (2 + 6 + 4));
}

// Columns of each token of a launch, or a window for each.
TEST_CASE("AcceptedTokensHaveALongWindowOrSteps", "[cpu]") {
  Key key{.from_accepted = true};
  CHECK(has_long_window(key));
  CHECK_FALSE(stores_every(key));
  key.stored_states = StoredStates::kEvery;
  CHECK_FALSE(has_long_window(key));
  CHECK(stores_every(key));
  key.states.store = false;
  CHECK_FALSE(stores_every(key));
  CHECK_FALSE(has_long_window(Key{}));
  CHECK(has_long_window(Key{.circular_state = true}));
  CHECK(has_circular_state(Key{.circular_state = true}));
  CHECK_FALSE(has_circular_state(Key{.from_accepted = true}));
}

// Those on their way, and the one that is read.
TEST_CASE("RowsOfABlockAreInSharedMemory", "[cpu]") {
  CHECK(shared_bytes(Key{}) == (4 + 2) * 128 * 16);
  CHECK(shared_bytes(Key{.lane_channels = 4, .ahead = 12, .warps = 2}) == (12 + 4) * 64 * 8);
  // A queue of one row gives one at a time.
  CHECK(shared_bytes(Key{.ahead = 1}) == (1 + 1) * 128 * 16);
  CHECK(shared_bytes(Key{.vectors = false}) == 0);
}

TEST_CASE("EachRuleOfAConvIsNamed", "[cpu]") {
  const auto broken = [](FunctionRef<void(Key&)> change) { return broken_rule<Key>(change); };
  const std::string floats = " must be f32, bf16 or f16", integers = " must be i32 or i64";
  for (const DType dtype : {DType::kI32, DType::kI64, DType::kBool, DType::kF8E4M3}) {
    CHECK(broken([&](Key& key) { key.dtype = dtype; }) == "dtype" + floats);
    CHECK(broken([&](Key& key) { key.weight_dtype = dtype; }) == "weight_dtype" + floats);
    CHECK(broken([&](Key& key) { key.states.dtype = dtype; }) == "state_dtype" + floats);
    CHECK(broken([&](Key& key) { key.inputs.gate_dtype = dtype; }) == "gate_dtype" + floats);
  }
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kBool, DType::kF8E5M2}) {
    CHECK(broken([&](Key& key) { key.states.index_dtype = dtype; }) == "index_dtype" + integers);
    CHECK(broken([&](Key& key) { key.cu_seqlens_dtype = dtype; }) == "cu_seqlens_dtype" + integers);
    CHECK(broken([&](Key& key) { key.accepted_dtype = dtype; }) == "accepted_dtype" + integers);
  }
  for (const int width : {-1, 0, 1, 5}) {
    CHECK(broken([&](Key& key) { key.width = width; }) == "width must be 2, 3 or 4");
  }
  for (const int dim : {-8, 0, 4, 12, 124, 264}) {
    CHECK(broken([&](Key& key) { key.key_dim = dim; }) ==
          "key_dim must be a multiple of 8 from 8 to 256");
  }
  for (const GateMode mode : {GateMode::kLog, GateMode::kAlpha}) {
    CHECK(broken([&](Key& key) { key.inputs.gate_mode = mode; }) ==
          "gate_mode must be none, computed or lower_bound");
  }
  for (const GateMode mode : {GateMode::kComputed, GateMode::kLowerBound}) {
    for (const Decay decay : {Decay::kHead, Decay::kChannel}) {
      CHECK(broken([&](Key& key) {
              key.split_qkv = true;
              key.inputs.decay = decay;
              key.inputs.gate_mode = mode;
            }) == "none");
    }
  }
  CHECK(broken([](Key& key) { key.inputs.beta_mode = BetaMode::kGiven; }) ==
        "beta_mode must be one, logit or doubled_logit");
  const std::string split = "gates and use_qk_l2norm need split_qkv";
  CHECK(broken([](Key& key) { key.inputs.gate_mode = GateMode::kComputed; }) == split);
  CHECK(broken([](Key& key) { key.inputs.beta_mode = BetaMode::kLogit; }) == split);
  CHECK(broken([](Key& key) { key.inputs.use_qk_l2norm = true; }) == split);
  const auto accepted = [](bool has_initial, bool store, bool whole_window) {
    return broken_rule<Key>([=](Key& key) {
      key.from_accepted = true;
      key.resident = 384;
      key.states.has_initial = has_initial;
      key.states.store = store;
      key.states.whole_window = whole_window;
    });
  };
  CHECK(accepted(true, true, false) == "none");
  CHECK(accepted(false, true, false) == "from_accepted needs has_initial_state and store_state");
  CHECK(accepted(true, false, false) == "from_accepted needs has_initial_state and store_state");
  CHECK(accepted(true, true, true) ==
        "whole_window must be false with from_accepted, unless stored_states is every");
  const std::string no_checkpoints =
      "checkpoints must be none with from_accepted, and with stored_states every";
  const auto kept = [&](FunctionRef<void(Key&)> change) {
    return broken([&](Key& key) {
      key.resident = 256;
      change(key);
    });
  };
  CHECK(kept([](Key& key) { key.checkpoints = Checkpoints::kAfter; }) == "none");
  CHECK(kept([](Key& key) { key.checkpoints = Checkpoints::kAt; }) == "none");
  CHECK(kept([](Key& key) { key.stored_states = StoredStates::kEvery; }) == "none");
  CHECK(kept([](Key& key) {
          key.stored_states = StoredStates::kEvery;
          key.from_accepted = key.states.whole_window = true;
        }) == "none");
  CHECK(kept([](Key& key) {
          key.checkpoints = Checkpoints::kAfter;
          key.from_accepted = true;
        }) == no_checkpoints);
  CHECK(kept([](Key& key) {
          key.checkpoints = Checkpoints::kAt;
          key.stored_states = StoredStates::kEvery;
        }) == no_checkpoints);
  CHECK(kept([](Key& key) {
          key.checkpoints = Checkpoints::kBefore;
          key.stored_states = StoredStates::kEvery;
        }) == no_checkpoints);
  const auto circular = [&](FunctionRef<void(Key&)> change) {
    return kept([&](Key& key) {
      key.circular_state = true;
      change(key);
    });
  };
  CHECK(circular([](Key&) {}) == "none");
  CHECK(circular([](Key& key) { key.varlen = true; }) == "none");
  const std::string needed = "circular_state needs has_initial_state and store_state";
  CHECK(circular([](Key& key) { key.states.has_initial = false; }) == needed);
  CHECK(circular([](Key& key) { key.states.store = false; }) == needed);
  const std::string not_with =
      "circular_state must be false with from_accepted, stored_states every, checkpoints and "
      "whole_window";
  CHECK(circular([](Key& key) { key.from_accepted = true; }) == not_with);
  CHECK(circular([](Key& key) { key.stored_states = StoredStates::kEvery; }) == not_with);
  CHECK(circular([](Key& key) { key.checkpoints = Checkpoints::kAfter; }) == not_with);
  CHECK(circular([](Key& key) { key.states.whole_window = true; }) == not_with);
}

TEST_CASE("EachRuleOfAConvsTuningIsNamed", "[cpu]") {
  const auto broken = [](FunctionRef<void(Key&)> change) { return broken_rule<Key>(change); };
  for (const int channels : {-4, 0, 2, 6, 16}) {
    CHECK(broken([&](Key& key) { key.lane_channels = channels; }) ==
          "lane_channels must be 4 or 8");
  }
  const std::string wide =
      "lane_channels must be 4 with f32 rows or states, but for normalised heads over 128";
  CHECK(broken([](Key& key) { key.dtype = DType::kF32; }) == wide);
  CHECK(broken([](Key& key) { key.states.dtype = DType::kF32; }) == wide);
  CHECK(broken([](Key& key) {
          key.dtype = DType::kF32;
          key.lane_channels = 4;
        }) == "none");
  const auto normed = [](int key_dim, int lane_channels, DType dtype) {
    return broken_rule<Key>([=](Key& key) {
      key = normed_key(key_dim, lane_channels);
      key.dtype = dtype;
      key.resident = 256;
    });
  };
  CHECK(normed(128, 8, DType::kF32) == wide);
  CHECK(normed(128, 4, DType::kF32) == "none");
  CHECK(normed(144, 8, DType::kF32) == "none");
  CHECK(normed(128, 4, DType::kBF16) == "none");
  CHECK(normed(144, 4, DType::kBF16) ==
        "lane_channels must be 8 with use_qk_l2norm and key_dim over 128");
  for (const int ahead : {-1, 0, 17}) {
    CHECK(broken([&](Key& key) { key.ahead = ahead; }) == "ahead must be from 1 to 16");
  }
  for (const int warps : {-1, 0, 3, 16}) {
    CHECK(broken([&](Key& key) { key.warps = warps; }) == "warps must be 1, 2, 4 or 8");
  }
  for (const int resident : {-128, 0, 64, 200, 1152}) {
    CHECK(broken([&](Key& key) { key.resident = resident; }) ==
          "resident must be whole blocks, up to 1024");
  }
  for (const int together : {-1, 0, 3, 8}) {
    CHECK(broken([&](Key& key) { key.together = together; }) == "together must be 1, 2 or 4");
  }
  const auto steps = [](int ahead, bool varlen, int resident) {
    return broken_rule<Key>([=](Key& key) {
      key.together = 2;
      key.ahead = ahead;
      key.varlen = varlen;
      key.resident = resident;
    });
  };
  CHECK(steps(1, false, 256) == "none");
  CHECK(steps(4, false, 256) == "together needs ahead = 1 without varlen");
  CHECK(steps(1, true, 256) == "together needs ahead = 1 without varlen");
  CHECK(steps(1, false, 512) == "a thread needs more registers");
  CHECK(broken([](Key& key) { key.resident = 1024; }) == "a thread needs more registers");
}

}  // namespace
}  // namespace cubinery::gdn_conv_key_test
