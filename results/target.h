// The GPU that something is planned for.  Pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "codegen/arch.h"
#include "cubinery/tuning.h"

namespace cubinery {

// What a GPU has and what it can do.
struct Target {
  Arch arch{};
  int sm_count = 0;
  double clock_ghz = 0;    // of the multiprocessors, under load
  double memory_gb_s = 0;  // by its data sheet
  std::int64_t shared_bytes_per_sm = 0;
  int shared_bytes_per_block = 0;
  int registers_per_sm = 65536;  // and at most per block
  int max_threads_per_sm = 0;
  double mma_flop_per_clock_per_sm = 0;  // that mma.sync reaches: bf16, summed in fp32
};

// A typical GPU of the architecture.  Requires: a known architecture.
Target typical_target(const Arch& arch);
// A GPU of which the identity is known; the rest as for a typical one, memory in proportion to
// multiprocessors (a part of a GPU has its part of the memory).
Target target_of(const Arch& arch, const GpuIdentity& gpu);

// Those of the architecture by their data sheets, and the parts that MIG makes of them: what
// results are scaled to.  Other sizes than the number of multiprocessors are not given.
std::vector<GpuIdentity> known_gpus(const Arch& arch);

// What a block takes of a multiprocessor.
struct Footprint {
  double registers = 0;  // of a thread
  int threads = 0;
  int shared_bytes = 0;
};
// Blocks that a multiprocessor holds at a time; at least one, as the kernel was compiled for it.
double resident_blocks(const Footprint& block, const Target& target);

inline double ceil_div(double a, double b) { return std::ceil(a / b); }
constexpr std::int64_t int_ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}
// Bytes per microsecond that a copy reaches.
double copy_rate(const Target& target);
inline double us_of(double cycles, const Target& target) {
  return cycles / (target.clock_ghz * 1e3);
}

// Of a multiprocessor: its share of the L2's rate, and the rate of its shared memory.
inline constexpr double kL2BytesPerClock = 64;
inline constexpr double kSharedBytesPerClock = 128;

}  // namespace cubinery
