#include "runtime/gdn/verify/cost.h"

#include <algorithm>

#include "runtime/gdn/decode/cost.h"

namespace cubinery::gdn {
namespace {

// Instructions of a lane for each token: of a state element (two products, decay, update), of each
// of its elements of k and q (load, convert, normalise), and of each of its columns (two sums by
// shuffles, value, output).
constexpr double kElementInstructions = 4;
constexpr double kKeyInstructions = 6;
constexpr double kColumnInstructions = 40;
// Warp instructions of a multiprocessor in a cycle, as far as dependences let them.
constexpr double kIssueRate = 2.5;
// Of a warp alone: one of its four schedulers, waiting for most results.
constexpr double kLoneIssueRate = 0.35;
// Registers besides those of data_registers().
constexpr int kOtherRegisters = 56;
// Of the tokens behind the first, where every state is stored: instructions and stores hide each
// other only in part.  16 times on an H200, off by 8 % at most.
constexpr double kStoredTokenShare = 1.2;

// The WY form, by 108 times of states that are kept never or last, f32 and bf16, on an H200: off by
// 7 % in the mean.  From the launch to the loads of a warp, and from its stores to the end; cycles
// of a multiprocessor that no load hides, for each 16 columns, for making the factors, of which 16
// tokens have many more, and for each byte of a lane that is stored; warps of a block hold each
// other's registers.  A warp alone waits for its columns behind the first that it holds.
constexpr double kWyStartUs = 3.6;
constexpr double kWyTileCycles = 52;
constexpr double kWyFactorCycles = 45;
constexpr double kWyLongFactors = 6;
constexpr double kWyStoredByteCycles = 0.47;
constexpr double kWyBlockShare = 0.05;
constexpr double kWyRoundUs = 0.4;
constexpr double kWyRoundUsOfKb = 0.2;      // of 16 columns, read and written
constexpr double kWyNextStoredShare = 0.6;  // of a state that is not the first to be stored

// With decays of channels, cycles that a warp makes their rows in, for each token and 32 channels,
// bounded or not: 26 times on an H200, f32 and bf16 states.
constexpr double kWyBoundedChannelCycles = 12;
constexpr double kWyAnyChannelCycles = 24;

// How often the state is stored.
template <class Key>
double stored_passes(const Key& key, std::int64_t tokens) {
  if (stores_every(key)) return static_cast<double>(tokens);
  return key.states.store ? 1 : 0;
}

// The decode step that moves the same state once.
GdnDecodeKey one_step(const GdnVerifyKey& key) {
  return {.key_dim = key.key_dim,
          .value_dim = key.value_dim,
          .dtype = key.dtype,
          .output_dtype = key.output_dtype,
          .inputs = key.inputs,
          .states = key.states,
          .warp_v = warp_columns(key),
          .held_v = key.warp_v,
          .k_lanes = key.k_lanes,
          .vec_bytes = key.vec_bytes,
          .warps = key.warps};
}

// Of a warp.
template <class Key>
double channel_cycles(const Key& key) {
  if (!has_channels(key)) return 0;
  const double cycles = is_bounded(key) ? kWyBoundedChannelCycles : kWyAnyChannelCycles;
  return key.draft_tokens * ceil_div(channel_units(key), key.warps) * cycles;
}

// `stored`: how often each state is written.
template <class Key>
double wy_us(const Key& key, std::int64_t states, double stored, const Target& target) {
  const double warps = static_cast<double>(states) * key.value_dim / warp_columns(key);
  const WarpSpread spread = spread_of(warps, key.warps,
                                      {.registers = static_cast<double>(registers(key)),
                                       .threads = threads(key),
                                       .shared_bytes = shared_bytes(key)},
                                      target);

  const double lane_bytes = key.key_dim * warp_columns(key) / 32.0 * size_of(key.states.dtype);
  const double passes = (key.states.has_initial ? 1 : 0) + stored;
  const double stored_share =
      std::min(stored, 1.0) + kWyNextStoredShare * std::max(stored - 1, 0.0);
  // Of k and q, against 16 of 128.
  const double rows = row_registers(key) / 32.0;
  const double makers = is_of_one_head(key) ? key.warps : 1;  // warps that share factors
  const double factor_cycles = kWyFactorCycles * (key.draft_tokens > 8 ? kWyLongFactors : 1);
  const double cycles = (kWyTileCycles * rows * warp_columns(key) / 16 +
                         factor_cycles * rows * warp_passes(key) / makers + channel_cycles(key) +
                         kWyStoredByteCycles * stored_share * lane_bytes) *
                        (1 + kWyBlockShare * (key.warps - 1));
  const double tile_kb = 16.0 * key.key_dim * size_of(key.states.dtype) / 1024;
  const int rounds = warp_columns(key) / key.held_v;
  const double alone = (rounds - 1) * (kWyRoundUs + kWyRoundUsOfKb * passes * tile_kb);
  const double all =
      warps * passes * lane_bytes * 32 / copy_rate(target) + us_of(spread.fullest * cycles, target);
  // The rows of channels take a block's first states so long that all blocks wait alike.
  if (has_channels(key) && spread.is_one_wave) return kWyStartUs + all + alone;
  return kWyStartUs + std::max(all, alone);
}

}  // namespace

// A step of decoding, which reads the state and may write it, then the instructions of all tokens,
// and the bytes of the states that every token writes.
double verify_us(const GdnVerifyKey& key, std::int64_t states, std::int64_t tokens,
                 const Target& target) {
  const double warps = static_cast<double>(states) * key.value_dim / warp_columns(key);
  const double fullest =
      spread_of(warps, key.warps,
                {.registers = static_cast<double>(data_registers(key) + kOtherRegisters),
                 .threads = threads(key)},
                target)
          .fullest;

  const int columns = warp_columns(key);
  const double elements = key.key_dim * columns / 32.0;  // of a lane
  const double instructions =
      elements * kElementInstructions +
      static_cast<double>(key.key_dim) / key.k_lanes * kKeyInstructions * warp_passes(key) +
      columns * key.k_lanes / 32.0 * kColumnInstructions;
  const double cycles =
      std::max(fullest * instructions / kIssueRate, instructions / kLoneIssueRate);
  const double more_passes = std::max(stored_passes(key, tokens) - 1, 0.0);
  const double more_bytes = more_passes * warps * elements * 32 * size_of(key.states.dtype);
  const double later = std::max(static_cast<double>(tokens) * us_of(cycles, target),
                                more_bytes / copy_rate(target)) *
                       (more_passes > 0 ? kStoredTokenShare : 1);
  return decode_us(one_step(key), states, target) + later;
}

double verify_us(const GdnVerifyWyKey& key, std::int64_t states, std::int64_t tokens,
                 const Target& target) {
  return wy_us(key, states, stored_passes(key, tokens), target);
}

double commit_us(const GdnCommitKey& key, std::int64_t states, const Target& target) {
  return wy_us(key, states, 1, target);
}

}  // namespace cubinery::gdn
