#include "runtime/gdn/decode/cost.h"

#include <algorithm>
#include <cmath>

#include "gdn_decode/key.h"

namespace cubinery::gdn {
namespace {

// Coefficients, fitted to 2651 times of both layouts, f32 and bf16, on an H200, those near the best
// of their size counting most: off by 5 % in the mean.  Cycles are at 1.755 GHz.

// From the launch to the loads of a warp and from its stores to the end.
constexpr double kDecodeStartUs = 2.73;
// Cycles of a multiprocessor that no load hides: per warp, and per state element of a lane.
constexpr double kDecodeWarpCycles = 6;
constexpr double kDecodeElementCycles = 1.04;
// Cycles per state element that a lane holds, for a warp alone.
constexpr double kDecodeLoneCycles = 13;
// A warp's life without its own cycles: the columns that it holds are on their way, and each time
// the next ones.
constexpr double kDecodeLatencyUs = 1.56;
constexpr double kDecodeNextUs = 0.32;
// Registers besides those of data_registers().
constexpr int kDecodeRegisters = 57;
// Warps of a block hold each other's registers.
constexpr double kDecodeBlockShare = 0.05;

// Cycles of a multiprocessor for each block that makes its rows by a convolution: fitted to blocks
// of 32 to 128 columns and 1 to 64 requests.
constexpr double kDecodeConvCycles = 560;

// Every piece of a row that is read at a time, by a warp along key_dim or by a block along
// value_dim, costs as much as so many bytes more.
constexpr double kKeyPieceBytes = 2.2;
constexpr double kValuePieceBytes = 14.3;

// What the bytes of the state are multiplied by for that.
double bytes_factor(const GdnDecodeKey& key) {
  if (key.states.layout == StateLayout::kVK) {
    return 1 + kKeyPieceBytes / (key.k_lanes * key.vec_bytes);
  }
  const int row = key.value_dim * size_of(key.states.dtype);
  return 1 + kValuePieceBytes / std::min(row, 32 / key.k_lanes * key.vec_bytes * key.warps);
}

}  // namespace

WarpSpread spread_of(double warps, int warps_per_block, const Footprint& block,
                     const Target& target) {
  const double blocks = ceil_div(warps, warps_per_block);
  const double resident = resident_blocks(block, target);
  const bool is_one_wave = blocks <= target.sm_count * resident;
  const double fullest = is_one_wave ? ceil_div(blocks, target.sm_count) : blocks / target.sm_count;
  return {resident, is_one_wave, fullest * warps_per_block};
}

// The time is that of the bytes, or of the warps' lives one behind the other where that is longer,
// and of the instructions of all warps of a multiprocessor, which hardly overlap with them.
double decode_us(const GdnDecodeKey& key, std::int64_t states, const Target& target) {
  const double warps = static_cast<double>(states) * key.value_dim / key.warp_v;
  const auto [resident, is_one_wave, fullest] =
      spread_of(warps, key.warps,
                {.registers = static_cast<double>(data_registers(key) + kDecodeRegisters),
                 .threads = threads(key)},
                target);

  const double elements = key.key_dim * key.warp_v / 32.0;  // of a lane
  const double passes = (key.states.has_initial ? 1 : 0) + (key.states.store ? 1 : 0);
  const double bytes = passes * elements * 32 * size_of(key.states.dtype) * bytes_factor(key);
  const double cycles = (kDecodeWarpCycles + elements * kDecodeElementCycles) *
                        (1 + kDecodeBlockShare * (key.warps - 1));
  const double lone = key.key_dim * key.held_v / 32.0 * kDecodeLoneCycles;

  const double memory = std::max(warps * bytes / copy_rate(target),
                                 us_of(fullest * bytes / kL2BytesPerClock, target));
  const int rounds = key.warp_v / key.held_v;
  const double next = (rounds - 1) * kDecodeNextUs;
  const double latency =
      is_one_wave ? 0 : fullest / (resident * key.warps) * (kDecodeLatencyUs + next);
  const double conv = key.conv.is_there() ? fullest / key.warps * kDecodeConvCycles : 0;
  return kDecodeStartUs + next + std::max(memory, latency) +
         us_of(std::max(fullest * cycles, lone) + conv, target);
}

}  // namespace cubinery::gdn
