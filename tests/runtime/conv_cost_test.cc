// How a convolution's tokens are spread over warps.
#include "runtime/gdn/conv/cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "results/target.h"
#include "tests/catch.h"

namespace cubinery::gdn {
namespace {

constexpr int kSms = 132;

GdnConvKey dense_key() { return {}; }
GdnConvKey packed_key() { return {.varlen = true}; }
GdnConvKey step_key(int together) {
  return {.lane_channels = 4, .ahead = 1, .resident = 256, .together = together};
}

struct Span {
  std::int64_t begin = 0, end = 0;
};

// Tokens of run `run`, as the kernel takes them: of one sequence; packed: of all.
Span span_of(const GdnConvKey& key, const ConvLoad& load, const ConvGrid& grid, std::int64_t run) {
  const std::int64_t place = key.varlen ? run : run % grid.runs_of_sequence;
  const std::int64_t begin = place * grid.run;
  return {begin, std::min(begin + grid.run, load.tokens)};
}

// Every token of every sequence is in one run, and only the last run of a sequence may be short.
void check_runs(const GdnConvKey& key, const ConvLoad& load) {
  const ConvGrid grid = conv_grid(key, load, kSms);
  const std::int64_t rows = key.varlen ? 1 : load.sequences;
  INFO("sequences " << load.sequences << ", tokens " << load.tokens << ", channels "
                    << load.channels << ": runs " << grid.runs << " of " << grid.run);
  REQUIRE(grid.by_sequence == takes_sequences(key, load));
  if (grid.by_sequence) {
    REQUIRE(grid.runs == load.sequences);
    CHECK(grid.runs * grid.run >= load.tokens);  // what gates are made of
    return;
  }
  REQUIRE(grid.run > key.width - 2);
  REQUIRE(grid.runs >= 1);
  std::int64_t runs_of_row = grid.runs;
  if (!key.varlen) runs_of_row = grid.runs_of_sequence;
  REQUIRE(grid.runs == rows * runs_of_row);
  std::int64_t next = 0;
  for (std::int64_t run = 0; run < runs_of_row; ++run) {
    const Span span = span_of(key, load, grid, run);
    if (span.begin != next) FAIL("a gap in front of run " << run);
    if (span.end <= span.begin && load.tokens > 0) FAIL("nothing in run " << run);
    if (run + 1 < runs_of_row && span.end - span.begin < key.width - 1) FAIL("a short run " << run);
    next = span.end;
  }
  CHECK(next == load.tokens);
}

TEST_CASE("EveryTokenIsInOneRun", "[cpu]") {
  for (const GdnConvKey& key : {dense_key(), packed_key(), GdnConvKey{.ahead = 1}}) {
    for (const std::int64_t channels : {1, 300, 8192, 1 << 20}) {
      for (const std::int64_t sequences : {1, 3, 64, 1000}) {
        for (const std::int64_t tokens :
             {0, 2, 3, 4, 5, 7, 8, 9, 100, 511, 512, 513, 2048, 32768, 1000003}) {
          check_runs(key, {.sequences = sequences, .tokens = tokens, .channels = channels});
        }
      }
    }
  }
}

TEST_CASE("OneTokenOfEachIsARunWhereThereAreNoSteps", "[cpu]") {
  const ConvLoad load{.sequences = 256, .tokens = 1, .channels = 8192};
  CHECK_FALSE(takes_steps(dense_key(), load));
  check_runs(dense_key(), load);
  CHECK(conv_grid(dense_key(), load, kSms).runs == 256);
}

// Where the host knows that they are short.
TEST_CASE("ShortPackedSequencesHaveWarpsOfTheirOwn", "[cpu]") {
  const auto takes = [](std::int64_t tokens, std::int64_t longest) {
    return takes_sequences(packed_key(),
                           {.sequences = 64, .tokens = tokens, .longest = longest, .channels = 8});
  };
  CHECK(takes(64, 0));
  CHECK_FALSE(takes(65, 0));
  CHECK(takes(256, 1));
  CHECK(takes(256, 16));
  CHECK_FALSE(takes(256, 17));
  CHECK(takes(64, 17));
  CHECK_FALSE(takes(256, -1));
  CHECK_FALSE(takes_sequences(dense_key(), {.sequences = 64, .tokens = 1, .longest = 1}));
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  CHECK(takes_sequences(packed_key(), {.sequences = kMost - 64, .tokens = 64}));
  CHECK_FALSE(takes_sequences(packed_key(), {.sequences = kMost - 63, .tokens = 64}));
  // A window goes on from token to token, dense too.
  for (const bool varlen : {false, true}) {
    const GdnConvKey every{.varlen = varlen, .stored_states = StoredStates::kEvery};
    const ConvGrid steps =
        conv_grid(every, {.sequences = 64, .tokens = varlen ? 1024 : 16, .channels = 8}, kSms);
    CHECK((steps.by_sequence && steps.runs == 64 && steps.run == 16));
    CHECK(steps.runs_of_sequence == 1);
  }
  ConvLoad load{.sequences = 64, .tokens = 150, .longest = 5, .channels = 8192, .heads = 512};
  GdnConvKey key = packed_key();
  key.split_qkv = true;
  key.inputs.beta_mode = BetaMode::kLogit;
  const ConvGrid grid = conv_grid(key, load, kSms);
  CHECK((grid.by_sequence && grid.runs == 64 && grid.run == 3));
  CHECK(grid.warps == grid.channel_warps + 3 * 512 / (32 * kGatesOfLane));
  load.longest = 0;
  CHECK_FALSE(conv_grid(key, load, kSms).by_sequence);
  // Slots that are free have no tokens.
  load.tokens = 0;
  CHECK(conv_grid(key, load, kSms).run == 1);
}

TEST_CASE("StepsAreTakenTogether", "[cpu]") {
  const ConvLoad load{.sequences = 10, .tokens = 1, .channels = 8192};
  for (const int together : {1, 2, 4, 8}) {
    const GdnConvKey key = step_key(together);
    REQUIRE(takes_steps(key, load));
    const ConvGrid grid = conv_grid(key, load, kSms);
    CHECK((grid.run == together && grid.runs == (10 + together - 1) / together));
    CHECK((grid.channel_warps == 64 && grid.warps == 64));
  }
  CHECK_FALSE(takes_steps(step_key(4), {.sequences = 10, .tokens = 2, .channels = 8192}));
  CHECK_FALSE(takes_steps(step_key(4), {.sequences = 10, .tokens = 0, .channels = 8192}));
  GdnConvKey packed = step_key(1);
  packed.varlen = true;
  CHECK_FALSE(takes_steps(packed, load));
}

TEST_CASE("GatesHaveWarpsOfTheirOwn", "[cpu]") {
  GdnConvKey key{.split_qkv = true};
  ConvLoad load{.sequences = 1, .tokens = 64, .channels = 8192, .heads = 32};
  CHECK(conv_grid(key, load, kSms).warps == 32);
  key.inputs = {.gate_mode = GateMode::kComputed, .beta_mode = BetaMode::kOne};
  const ConvGrid one = conv_grid(key, load, kSms);
  CHECK((one.channel_warps == 32 && one.run == 4 && one.warps == 33));
  key.inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kLogit};
  CHECK(conv_grid(key, load, kSms).warps == 33);
  // A lane has a few of them, and a long run more lanes.
  load.tokens = 32768;
  const ConvGrid several = conv_grid(key, load, kSms);
  const int gates = several.run * 32;
  CHECK(several.warps - 32 == (gates + 32 * kGatesOfLane - 1) / (32 * kGatesOfLane));
  CHECK(several.warps > 33);
  key.ahead = 1;
  key.together = 8;
  key.lane_channels = 4;
  load = {.sequences = 256, .tokens = 1, .channels = 8192, .heads = 65536};
  CHECK(conv_grid(key, load, kSms).warps == 64 + 8 * 65536 / (32 * kGatesOfLane));
}

// The same runs with warps for each channel's gates, which cost their bytes.
TEST_CASE("GatesOfChannelsHaveMoreWarps", "[cpu]") {
  GdnConvKey key{.split_qkv = true, .inputs = {.gate_mode = GateMode::kComputed}};
  const ConvLoad load{.sequences = 1, .tokens = 32768, .channels = 12288, .heads = 32};
  const ConvGrid heads = conv_grid(key, load, kSms);
  const Target target = typical_target({9, 0, 'a'});
  const double us = conv_us(key, load, target);
  key.inputs.decay = Decay::kChannel;
  const ConvGrid channels = conv_grid(key, load, kSms);
  CHECK((channels.run == heads.run && channels.runs == heads.runs));
  CHECK(channels.warps - channels.channel_warps == (channels.run + 15) / 16 * 32);
  // 4 bytes of a and 4 of g for each 3 times 4 of q, k and v.
  CHECK(conv_us(key, load, target) / us > 1.5);
  CHECK(conv_us(key, load, target) / us < 1.7);
}

TEST_CASE("NormalisedHeadsHaveWarps", "[cpu]") {
  const GdnConvKey key{
      .split_qkv = true,
      .inputs = {.gate_mode = GateMode::kNone, .beta_mode = BetaMode::kOne, .use_qk_l2norm = true}};
  const ConvLoad load{.sequences = 1, .tokens = 64, .channels = 2 * 128 + 80, .norm_heads = 2};
  CHECK(conv_grid(key, load, kSms).warps == channel_warps(key, 2, 2 * 128 + 80));
}

// Warps of a launch that fills the GPU more than once: of about 28 tokens, in waves that have next
// to no empty places: a run is whole tokens, so up to one in 28.
TEST_CASE("LongLaunchesAreWholeWaves", "[cpu]") {
  for (const std::int64_t channels : {4096, 6144, 8192, 12288}) {
    for (const std::int64_t tokens : {4096, 8192, 32768, 65536, 131072, 1 << 20}) {
      const ConvLoad load{.sequences = 1, .tokens = tokens, .channels = channels};
      const GdnConvKey key = packed_key();
      const ConvGrid grid = conv_grid(key, load, kSms);
      const double at_once = kSms * key.resident / 32.0;
      const double waves = static_cast<double>(grid.runs) * grid.warps / at_once;
      INFO(channels << " channels, " << tokens << " tokens: " << waves << " waves of runs of "
                    << grid.run);
      CHECK((grid.run >= 19 && grid.run <= 42));
      CHECK(std::ceil(waves) / waves < 1.04);
    }
  }
}

// A short launch is one wave, as full as runs of four tokens make it.
TEST_CASE("ShortLaunchesAreOneWave", "[cpu]") {
  const GdnConvKey key = packed_key();
  for (const std::int64_t tokens : {2, 16, 256, 512, 1024, 2048}) {
    const ConvGrid grid =
        conv_grid(key, {.sequences = 1, .tokens = tokens, .channels = 8192}, kSms);
    CHECK(grid.runs * grid.warps <= kSms * key.resident / 32);
    if (tokens <= 256) CHECK(grid.run == 4);
  }
  // More multiprocessors take shorter runs.
  const ConvLoad load{.sequences = 1, .tokens = 512, .channels = 8192};
  CHECK(conv_grid(key, load, 32).run > conv_grid(key, load, 132).run);
}

// Dense sequences of one length have runs of one length, as nearly as that goes.
TEST_CASE("RunsOfASequenceAreEven", "[cpu]") {
  const ConvLoad load{.sequences = 64, .tokens = 1000, .channels = 8192};
  const ConvGrid grid = conv_grid(dense_key(), load, kSms);
  const std::int64_t last = load.tokens - (grid.runs_of_sequence - 1) * std::int64_t{grid.run};
  CHECK(grid.run - last < grid.runs_of_sequence);
  CHECK(grid.runs == 64 * grid.runs_of_sequence);
}

// The largest sizes that check_shape() lets pass: offsets of outputs fit in 63 bits.
TEST_CASE("LargeSizesDoNotOverflow", "[cpu]") {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  struct Case {
    std::int64_t sequences, tokens, channels;
  };
  for (const Case& at : {Case{1, kMost, 1},
                         {1, kMost, 1 << 20},
                         {kMost, 1, 1 << 20},
                         {kMost, kMost, 1},
                         {1 << 20, 1 << 20, 1 << 20},
                         {kMost, 5, 1 << 20},
                         {1 << 29, 100, 64},
                         {(1 << 29) + 1, 1 << 12, 64},
                         {3, kMost, 1 << 20}}) {
    for (const int sm_count : {1, 132}) {
      for (const GdnConvKey& key : {dense_key(), step_key(8), step_key(1)}) {
        const ConvLoad load{
            .sequences = at.sequences, .tokens = at.tokens, .channels = at.channels};
        const ConvGrid grid = conv_grid(key, load, sm_count);
        INFO(at.sequences << " x " << at.tokens << " x " << at.channels);
        CHECK((grid.run >= 1 && grid.runs >= 1 && grid.runs <= kMost));
        if (takes_steps(key, load)) {
          CHECK(grid.runs * grid.run >= at.sequences);
          continue;
        }
        CHECK(grid.run >= 4);
        CHECK(grid.runs == at.sequences * grid.runs_of_sequence);
        CHECK(std::int64_t{grid.run} * grid.runs_of_sequence >= at.tokens);
        CHECK(std::int64_t{grid.run} * (grid.runs_of_sequence - 1) < at.tokens);
      }
    }
  }
  GdnConvKey gated = dense_key();
  gated.inputs.beta_mode = BetaMode::kLogit;
  const ConvGrid grid = conv_grid(
      gated, {.sequences = 1 << 24, .tokens = 1 << 20, .channels = 1 << 17, .heads = 1 << 16}, 1);
  CHECK((grid.channel_warps == 512 && grid.warps > 512));
  for (const std::int64_t channels : {1, 1 << 20}) {
    const ConvLoad load{.sequences = kMost, .tokens = kMost, .channels = channels};
    const ConvGrid grid = conv_grid(packed_key(), load, 1);
    CHECK((grid.runs <= kMost && grid.runs * grid.run >= kMost));
  }
}

}  // namespace
}  // namespace cubinery::gdn
