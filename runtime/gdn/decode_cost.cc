#include "runtime/gdn/decode_cost.h"

#include <algorithm>
#include <cmath>

#include "gdn_decode/key.h"

namespace cubinery::gdn {
namespace {

// Coefficients, fitted by hand to the rows of benchmarks/results/h200.json and to what
// docs/performance.md says of other keys; cycles are those of the H200 at 1.755 GHz.

// From the launch to the loads of a warp and from its stores to the end.
constexpr double kDecodeStartUs = 3;
// Cycles of a multiprocessor that no load hides: per warp, and per state element of a lane.
constexpr double kDecodeWarpCycles = 30;
constexpr double kDecodeElementCycles = 0.25;
constexpr double kDecodeShortElementCycles = 1.85;  // more, for elements of 16 bits
// Cycles per state element of a lane for a warp alone.
constexpr double kDecodeLoneCycles = 16.5;
constexpr double kDecodeShortLoneCycles = 9;  // more, for elements of 16 bits
// A warp's life without its own cycles: its loads are on their way.
constexpr double kDecodeLatencyUs = 1.4;
// Registers besides those of data_registers().
constexpr int kDecodeRegisters = 32;
// Warps of a block hold each other's registers: 4 warps are 3 % slower than 1.
constexpr double kDecodeBlockShare = 0.01;
// Every piece of a row that a warp reads at a time costs as much as this many bytes more.
constexpr double kSegmentBytes = 9;

// Bytes of a row of the state that a warp's lanes read side by side.
double segment_bytes(const GdnDecodeKey& key) {
  const bool rows_are_v = key.states.layout == StateLayout::kVK;
  return (rows_are_v ? key.k_lanes : 32.0 / key.k_lanes) * key.vec_bytes;
}

}  // namespace

// Loads of a warp are all under way before the first is used, and so are stores behind them: the
// time is that of the bytes, and of the instructions of all warps of a multiprocessor, which hardly
// overlap with them.
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

  const bool is_short = size_of(key.states.dtype) < 4;
  const double elements = key.key_dim * key.warp_v / 32.0;  // of a lane
  const double passes = (key.states.has_initial ? 1 : 0) + (key.states.store ? 1 : 0);
  const double bytes =
      passes * elements * 32 * size_of(key.states.dtype) * (1 + kSegmentBytes / segment_bytes(key));
  const double cycles =
      (kDecodeWarpCycles +
       elements * (kDecodeElementCycles + (is_short ? kDecodeShortElementCycles : 0))) *
      (1 + kDecodeBlockShare * (key.warps - 1));
  const double lone = elements * (kDecodeLoneCycles + (is_short ? kDecodeShortLoneCycles : 0));

  const double memory = std::max(warps * bytes / copy_rate(target),
                                 us_of(fullest * bytes / kL2BytesPerClock, target));
  const double latency = fullest / (resident * key.warps) * kDecodeLatencyUs;
  return kDecodeStartUs + std::max(memory, is_one_wave ? 0 : latency) +
         us_of(std::max(fullest * cycles, lone), target);
}

}  // namespace cubinery::gdn
