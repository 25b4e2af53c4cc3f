#include "runtime/gdn/conv/cost.h"

#include <algorithm>
#include <limits>

namespace cubinery::gdn {
namespace {

// Runs of many tokens are about this long.  The tokens in front of a run are those at the end of
// another: of longer runs the one reads them when L2 has lost what the other brought.
constexpr std::int64_t kLongRun = 28;
// A run costs as much as some tokens before its first.  No shorter than the taps: a boundary inside
// the first tokens of a dense sequence would need its state on both sides.
constexpr std::int64_t kShortRun = 4;
// Longer sequences are worth cutting.
constexpr std::int64_t kShortSequence = 16;

// From the launch to the first loads, and from the last stores to the end.
constexpr double kConvStartUs = 2.0;
// From a load to what it brings, with a GPU at work.
constexpr double kConvLatencyUs = 0.8;
// Loads that wait for each other before a run's first row: bounds, slots, the state.
constexpr double kConvFindUs = 1.2;
// Cycles of a multiprocessor for 32 outputs.
constexpr double kConvCycles = 3.2;

}  // namespace

bool takes_steps(const GdnConvKey& key, const ConvLoad& load) {
  return has_steps(key) && load.tokens == 1;
}

bool takes_sequences(const GdnConvKey& key, const ConvLoad& load) {
  // A window goes on from token to token.
  if (stores_every(key)) return true;
  if (!key.varlen) return false;
  // NOTE: a run's number times its tokens fits in an int.
  if (load.sequences + load.tokens > std::numeric_limits<int>::max()) return false;
  const bool is_short = load.longest > 0 && load.longest <= kShortSequence;
  return is_short || load.tokens <= load.sequences;
}

ConvGrid conv_grid(const GdnConvKey& key, const ConvLoad& load, int sm_count) {
  ConvGrid grid;
  grid.channel_warps = channel_warps(key, load.norm_heads, static_cast<int>(load.channels));
  const auto warps_of = [&](std::int64_t tokens) {
    return grid.channel_warps + static_cast<int>(gate_warps(key, tokens, load.heads));
  };
  if (takes_steps(key, load)) {
    grid.run = key.together;
    grid.runs = int_ceil_div(load.sequences, key.together);
    grid.warps = warps_of(grid.run);
    return grid;
  }
  if (takes_sequences(key, load)) {
    const std::int64_t each = key.varlen ? int_ceil_div(load.tokens, load.sequences) : load.tokens;
    grid.by_sequence = true;
    grid.run = static_cast<int>(std::max<std::int64_t>(each, 1));
    grid.runs = load.sequences;
    grid.warps = warps_of(grid.run);
    return grid;
  }
  const std::int64_t rows = key.varlen ? 1 : load.sequences;
  const std::int64_t all = std::max<std::int64_t>(rows * load.tokens, 1);
  const std::int64_t at_once = std::int64_t{sm_count} * key.resident / 32;
  const std::int64_t work = all * grid.channel_warps;
  const std::int64_t wave = at_once * kLongRun;
  const std::int64_t waves = std::max<std::int64_t>((work + wave / 2) / wave, 1);
  // NOTE: more runs than CUDA has blocks for come from nothing that fits a GPU's memory.
  std::int64_t run = std::max(int_ceil_div(work, waves * at_once), kShortRun);
  run = std::max(run, int_ceil_div(all, std::numeric_limits<int>::max() / 4));
  if (!key.varlen) {
    const std::int64_t runs = std::max<std::int64_t>(int_ceil_div(load.tokens, run), 1);
    run = std::max(int_ceil_div(load.tokens, runs), kShortRun);
    grid.runs_of_sequence =
        static_cast<int>(std::max<std::int64_t>(int_ceil_div(load.tokens, run), 1));
    grid.runs = rows * grid.runs_of_sequence;
  } else {
    grid.runs = std::max<std::int64_t>(int_ceil_div(load.tokens, run), 1);
  }
  grid.run = static_cast<int>(run);
  grid.warps = warps_of(run);
  return grid;
}

// The time is that of the bytes, of the arithmetic, or of the warps' lives one behind the other.
double conv_us(const GdnConvKey& key, const ConvLoad& load, const Target& target) {
  const ConvGrid grid = conv_grid(key, load, target.sm_count);
  const double tokens =
      static_cast<double>(load.tokens) * (key.varlen ? 1.0 : static_cast<double>(load.sequences));
  const double outputs = tokens * static_cast<double>(load.channels);
  const double sequences = static_cast<double>(load.sequences);
  const double stored = stores_every(key) ? tokens : key.states.store ? sequences : 0;
  const double states = (key.states.has_initial ? sequences : 0) + stored;
  const double of_state =
      static_cast<double>(load.channels) * state_columns(key) * size_of(key.states.dtype);
  // Of a decay for each channel; those of heads are few.
  const double of_gates =
      has_channel_gates(key.inputs)
          ? load.heads * key.key_dim * (size_of(key.inputs.gate_dtype) + size_of(DType::kF32))
          : 0;
  const double bytes = 2 * outputs * size_of(key.dtype) + states * of_state + tokens * of_gates;
  const double waves = ceil_div(static_cast<double>(grid.runs) * grid.warps,
                                target.sm_count * (key.resident / 32.0));
  double life = kConvLatencyUs;
  if (takes_steps(key, load)) {
    // States wait for slots.
    life += kConvLatencyUs + 0.12 * key.together;
  } else {
    const double rows = grid.run + key.width - 1;
    life += kConvFindUs + rows * kConvLatencyUs / key.ahead / 2;
  }
  const double arithmetic = us_of(outputs / 32 * kConvCycles / target.sm_count, target);
  return kConvStartUs + std::max({bytes / copy_rate(target), arithmetic, waves * life});
}

}  // namespace cubinery::gdn
