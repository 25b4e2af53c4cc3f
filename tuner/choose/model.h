// What a launch should take, from first principles: the choice where nothing was measured.  Pure
// functions; docs/design.md says how good they are.
#pragma once

#include <cstdint>

#include "codegen/arch.h"
#include "cubinery/tuning.h"
#include "gdn_decode/key.h"
#include "gdn_prefill_chunks/key.h"
#include "gdn_prefill_scan/key.h"

namespace cubinery {

// What a GPU can do.
struct GpuRates {
  int sm_count = 0;
  double clock_ghz = 0;    // of the multiprocessors, under load
  double memory_gb_s = 0;  // by its data sheet
  std::int64_t shared_bytes_per_sm = 0;
  int registers_per_sm = 0;
  int max_threads_per_sm = 0;
  double mma_flop_per_clock_per_sm = 0;  // that mma.sync reaches: bf16, summed in fp32
};

// A typical GPU of the architecture.  Requires: a known architecture.
GpuRates nominal_rates(const Arch& arch);
// A GPU of which the identity is known; the rest as for a typical one, memory in proportion to
// multiprocessors (a part of a GPU has its part of the memory).
GpuRates rates_of(const Arch& arch, const GpuIdentity& gpu);

// Microseconds of one decode launch over so many states (requests x heads).
double decode_us(const GdnDecodeKey& key, std::int64_t states, const GpuRates& gpu);

// Sizes of one prefill launch.
struct PrefillLoad {
  std::int64_t sequences = 1;
  std::int64_t length = 1;   // tokens of a sequence, on average
  std::int64_t longest = 1;  // tokens of the longest sequence
  int heads = 1;
  int shared_heads = 1;  // the most that may share a block of the first kernel
};

// Heads that share a block of the first kernel in a launch of so many slots (chunks of all
// sequences), when at most `shared_heads` may.
int heads_per_block(std::int64_t slots, int heads, int shared_heads, int sm_count);

// Microseconds of one prefill launch: of both kernels, behind each other.
double prefill_us(const GdnPrefillChunksKey& chunks, const GdnPrefillScanKey& scan,
                  const PrefillLoad& load, const GpuRates& gpu);

}  // namespace cubinery
