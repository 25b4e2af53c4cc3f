#include "runtime/gdn/decode_cost.h"

#include <algorithm>
#include <cmath>

#include "gdn_decode/key.h"

namespace cubinery::gdn {
namespace {

// Coefficients, fitted to 1059 times of 174 (f32) and 216 (bf16) keys on an H200, those near the
// best of their size counting most: off by 4 % in the mean.  Cycles are at 1.755 GHz.

// From the launch to the loads of a warp and from its stores to the end.
constexpr double kDecodeStartUs = 2.78;
// Cycles of a multiprocessor that no load hides: per warp, and per state element of a lane.
constexpr double kDecodeWarpCycles = 6.1;
constexpr double kDecodeElementCycles = 1.07;
// Cycles per state element that a lane holds, for a warp alone.
constexpr double kDecodeLoneCycles = 10.3;
// A warp's life without its own cycles: the columns that it holds are on their way, and each time
// the next ones.
constexpr double kDecodeLatencyUs = 1.44;
constexpr double kDecodeNextUs = 0.825;
// Registers besides those of data_registers().
constexpr int kDecodeRegisters = 64;
// Warps of a block hold each other's registers.
constexpr double kDecodeBlockShare = 0.004;
// Every piece of a row that a warp reads at a time costs as much as this many bytes more.
constexpr double kSegmentBytes = 2.8;

// Bytes of a row of the state that a warp's lanes read side by side.
double segment_bytes(const GdnDecodeKey& key) {
  const bool rows_are_v = key.states.layout == StateLayout::kVK;
  return (rows_are_v ? key.k_lanes : 32.0 / key.k_lanes) * key.vec_bytes;
}

}  // namespace

// The time is that of the bytes, or of the warps' lives one behind the other where that is longer,
// and of the instructions of all warps of a multiprocessor, which hardly overlap with them.
double decode_us(const GdnDecodeKey& key, std::int64_t states, const Target& target) {
  const double warps = static_cast<double>(states) * key.value_dim / key.warp_v;
  const double blocks = ceil_div(warps, key.warps);
  const double resident =
      resident_blocks({.registers = static_cast<double>(data_registers(key) + kDecodeRegisters),
                       .threads = threads(key)},
                      target);
  // On the fullest multiprocessor; beyond one wave blocks follow each other as they end.
  const bool is_one_wave = blocks <= target.sm_count * resident;
  const double fullest =
      (is_one_wave ? ceil_div(blocks, target.sm_count) : blocks / target.sm_count) * key.warps;

  const double elements = key.key_dim * key.warp_v / 32.0;  // of a lane
  const double passes = (key.states.has_initial ? 1 : 0) + (key.states.store ? 1 : 0);
  const double bytes =
      passes * elements * 32 * size_of(key.states.dtype) * (1 + kSegmentBytes / segment_bytes(key));
  const double cycles = (kDecodeWarpCycles + elements * kDecodeElementCycles) *
                        (1 + kDecodeBlockShare * (key.warps - 1));
  const double lone = key.key_dim * key.held_v / 32.0 * kDecodeLoneCycles;

  const double memory = std::max(warps * bytes / copy_rate(target),
                                 us_of(fullest * bytes / kL2BytesPerClock, target));
  const double next = (key.warp_v / key.held_v - 1) * kDecodeNextUs;
  const double latency =
      is_one_wave ? next : fullest / (resident * key.warps) * (kDecodeLatencyUs + next);
  return kDecodeStartUs + std::max(memory, latency) +
         us_of(std::max(fullest * cycles, lone), target);
}

}  // namespace cubinery::gdn
