#include "tuner/choose/model.h"

#include <algorithm>
#include <cmath>

namespace cubinery {
namespace {

// Coefficients.  Fitted by hand to the rows of benchmarks/results/h200.json and to what
// docs/performance.md says of other keys; cycles are those of the H200 at 1.755 GHz.

// Of the data sheet's memory rate, what a copy reaches: 4.26 of 4.8 TB/s.
constexpr double kCopyShare = 0.8875;
// A multiprocessor's share of the L2's and of its shared memory's rate.
constexpr double kL2BytesPerClock = 64;
constexpr double kSharedBytesPerClock = 128;
constexpr int kBlocksPerSm = 24;  // the fewest that an architecture allows

// Decode.  From the launch to the loads of a warp and from its stores to the end.
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

// Prefill.  Of each of the two launches; then of the first blocks of the first kernel.
constexpr double kPrefillStartUs = 2;
constexpr double kChunksStartUs = 3;
// The first kernel's cycles for a chunk of 32 x 128: of the products that heads share, of one head,
// and of one head's part that does not grow with the chunk.  Squares of the chunk size.
constexpr double kChunksSharedCycles = 1000;
constexpr double kChunksHeadCycles = 400;
constexpr double kChunksFixedCycles = 140;
// A block alone on a multiprocessor takes so much longer: kLone + kLonePerWarp / warps.
constexpr double kChunksLone = 1.5;
constexpr double kChunksLonePerWarp = 3;
constexpr int kChunksRegisters = 128;
// Heads share a block of the first kernel when there remain this many blocks per multiprocessor.
constexpr std::int64_t kSharedBlocksPerSm = 4;
// The second kernel's cycles for a chunk when a warp has the multiprocessor to itself: fixed, for
// each token, and for each token of 128 key dims.  740, 1230, 2210 for 16, 32, 64 tokens.
constexpr double kScanCycles = 250;
constexpr double kScanTokenCycles = 6;
constexpr double kScanRowCycles = 24.6;
// What copies take from the products of other warps.
constexpr double kScanCopyShare = 0.7;
// Registers: fixed, per token of the chunk, and for 128 key dims.
constexpr double kScanRegisters = 75;
constexpr double kScanTokenRegisters = 1.4;
constexpr double kScanStateRegisters = 64;
// With two stages the copies of a chunk are not hidden behind the one before.
constexpr double kScanTwoStages = 1.33;
// From the start of a block to its first chunk and from its last to its end, besides the bytes of
// its state.
constexpr double kScanBlockUs = 2.5;
// f32 operands: three products of tf32, which run at half the rate of bf16, twice the bytes.
constexpr double kF32Products = 6;
constexpr double kF32Lone = 3;

double ceil_div(double a, double b) { return std::ceil(a / b); }

struct Footprint {
  double registers = 0;  // of a thread
  int threads = 0;
  int shared_bytes = 0;
};

// Blocks that a multiprocessor holds at a time; at least one, as the kernel was compiled for it.
double resident_blocks(const Footprint& block, const GpuRates& gpu) {
  constexpr double kReservedShared = 1024;  // of each block, by CUDA
  const double registers = ceil_div(std::min(block.registers, 255.0), 8) * 8 * block.threads;
  const double by_registers = gpu.registers_per_sm / registers;
  const double by_threads = gpu.max_threads_per_sm / static_cast<double>(block.threads);
  const double by_shared =
      static_cast<double>(gpu.shared_bytes_per_sm) / (block.shared_bytes + kReservedShared);
  const double most = std::min({by_registers, by_threads, by_shared, double{kBlocksPerSm}});
  return std::max(std::floor(most), 1.0);
}

// Bytes per microsecond.
double copy_rate(const GpuRates& gpu) { return gpu.memory_gb_s * 1e3 * kCopyShare; }
double us_of(double cycles, const GpuRates& gpu) { return cycles / (gpu.clock_ghz * 1e3); }

// Bytes of a row of the state that a warp's lanes read side by side.
double segment_bytes(const GdnDecodeKey& key) {
  const bool rows_are_v = key.state_layout == gdn::StateLayout::kVK;
  return (rows_are_v ? key.k_lanes : 32.0 / key.k_lanes) * key.vec_bytes;
}

// Of one chunk of one head in the second kernel.
struct ScanChunk {
  double lone = 0;  // cycles of a warp by itself
  double warp = 0;  // cycles of the multiprocessor for each warp: products and their operands
  double copy = 0;  // cycles of the multiprocessor for each block: from L2 to shared memory
};

ScanChunk scan_chunk(const GdnPrefillScanKey& key, const GpuRates& gpu) {
  const bool is_f32 = key.dtype == DType::kF32;
  const double tokens = key.chunk_size;
  const double triangle = tokens * (tokens + 16) / 2;
  constexpr double kColumns = 16;
  // S^T K, S^T Q and the update; T V' and P U.
  const double flop = 2 * kColumns * (3 * tokens * key.key_dim + 2 * triangle);
  const double operands = (3 * tokens * key.key_dim + 2 * triangle) * size_of(key.dtype);
  ScanChunk chunk;
  chunk.lone = kScanCycles + tokens * (kScanTokenCycles + kScanRowCycles * key.key_dim / 128);
  if (is_f32) chunk.lone *= kF32Lone;
  if (key.stages == 2) chunk.lone *= kScanTwoStages;
  chunk.warp = flop * (is_f32 ? kF32Products : 1) / gpu.mma_flop_per_clock_per_sm +
               operands / kSharedBytesPerClock;
  chunk.copy = stage_bytes(key) / kL2BytesPerClock;
  return chunk;
}

// Of one state, read and written.
double state_bytes(const GdnPrefillScanKey& key) {
  const int passes = (key.has_initial_state ? 1 : 0) + (key.store_state ? 1 : 0);
  return static_cast<double>(passes) * key.key_dim * key.value_dim * size_of(key.state_dtype);
}

double scan_us(const GdnPrefillScanKey& key, const PrefillLoad& load, const GpuRates& gpu) {
  const double registers = key.dtype == DType::kF32
                               ? 255
                               : kScanRegisters + kScanTokenRegisters * key.chunk_size +
                                     kScanStateRegisters * key.key_dim / 128;
  const double most = resident_blocks({registers, threads(key), shared_bytes(key)}, gpu);
  const double per_sequence = load.heads * (key.value_dim / (16.0 * key.warps));
  const double blocks = static_cast<double>(load.sequences) * per_sequence;
  const ScanChunk chunk = scan_chunk(key, gpu);
  const double block = key.warps * chunk.warp + kScanCopyShare * chunk.copy;
  const auto chunks_of = [&](std::int64_t tokens) {
    return ceil_div(static_cast<double>(tokens), key.chunk_size);
  };
  // Of so many blocks, each of so many chunks: each waits for itself, and all share what a
  // multiprocessor can do.
  const auto scan_of = [&](double count, double chunks) {
    const double waves = ceil_div(count, gpu.sm_count * most);
    const double fullest = waves > 1 ? count / gpu.sm_count : ceil_div(count, gpu.sm_count);
    return chunks *
           us_of(std::max({waves * chunk.lone, fullest * block, fullest * chunk.copy}), gpu);
  };
  const double work = scan_of(blocks, chunks_of(load.length));
  // The longest sequence goes on when the others have ended.
  const double tail = scan_of(per_sequence, chunks_of(load.longest));
  const double bytes = static_cast<double>(load.sequences) * chunks_of(load.length) * load.heads *
                       key.chunk_size * 2 * key.value_dim * size_of(key.dtype);
  const double states = static_cast<double>(load.sequences) * load.heads * state_bytes(key);
  const double waves = ceil_div(blocks, gpu.sm_count * most);
  return waves * kScanBlockUs + states / copy_rate(gpu) +
         std::max({work, tail, bytes / copy_rate(gpu)});
}

double chunks_us(const GdnPrefillChunksKey& key, const PrefillLoad& load, const GpuRates& gpu) {
  const std::int64_t slots = load.sequences * ((load.length + key.chunk_size - 1) / key.chunk_size);
  const int shared = heads_per_block(slots, load.heads, load.shared_heads, gpu.sm_count);
  const double blocks = static_cast<double>(slots) * load.heads / shared;
  const double size = key.chunk_size / 32.0;
  const double squares = size * size * (key.dtype == DType::kF32 ? 2 : 1);
  const double cycles = kChunksSharedCycles * squares * key.key_dim / 128 +
                        shared * (kChunksFixedCycles + kChunksHeadCycles * squares);
  const double resident = resident_blocks({kChunksRegisters, threads(key), shared_bytes(key)}, gpu);
  const double waves = ceil_div(blocks, gpu.sm_count * resident);
  const double lone = waves * cycles * (kChunksLone + kChunksLonePerWarp / key.warps);
  const double bytes =
      static_cast<double>(slots) * load.heads * chunk_record(key.chunk_size, key.dtype).bytes;
  return kChunksStartUs + std::max(us_of(std::max(blocks / gpu.sm_count * cycles, lone), gpu),
                                   bytes / copy_rate(gpu));
}

}  // namespace

// Clocks are boost clocks where a GPU holds them.  mma.sync reaches 60 % of what wgmma and tcgen05
// do on the GPUs that have those (measured on the H200, taken over for the others).
GpuRates nominal_rates(const Arch& arch) {
  constexpr int kRegisters = 65536;
  const auto rates = [](int sms, double ghz, double gb_s, std::int64_t shared_kb, int max_threads,
                        double flop) {
    return GpuRates{sms, ghz, gb_s, shared_kb * 1024, kRegisters, max_threads, flop};
  };
  switch (arch.major * 10 + arch.minor) {
    case 80:  // A100 SXM 80 GB
      return rates(108, 1.41, 2039, 164, 2048, 2048);
    case 86:  // RTX 3090
      return rates(82, 1.695, 936, 100, 1536, 512);
    case 87:  // Jetson AGX Orin 64 GB
      return rates(16, 1.3, 204.8, 164, 1536, 1024);
    case 89:  // RTX 4090
      return rates(128, 2.52, 1008, 100, 1536, 512);
    case 90:  // H200 SXM
      return rates(132, 1.755, 4800, 228, 2048, 2458);
    case 100:  // B200
    case 103:  // B300
      return rates(148, 1.85, 8000, 228, 2048, 2458);
    case 110:  // Jetson T5000
      return rates(20, 1.575, 273, 228, 1536, 2458);
    case 120:  // RTX 5090
      return rates(170, 2.407, 1792, 100, 1536, 512);
    default:  // 121: GB10
      return rates(48, 2.418, 273, 100, 1536, 512);
  }
}

GpuRates rates_of(const Arch& arch, const GpuIdentity& gpu) {
  GpuRates rates = nominal_rates(arch);
  if (gpu.sm_count > 0) {
    rates.memory_gb_s *= static_cast<double>(gpu.sm_count) / rates.sm_count;
    rates.sm_count = gpu.sm_count;
  }
  if (gpu.shared_bytes_per_sm > 0) rates.shared_bytes_per_sm = gpu.shared_bytes_per_sm;
  return rates;
}

// Loads of a warp are all under way before the first is used, and so are stores behind them: the
// time is that of the bytes, and of the instructions of all warps of a multiprocessor, which hardly
// overlap with them.
double decode_us(const GdnDecodeKey& key, std::int64_t states, const GpuRates& gpu) {
  const double warps = static_cast<double>(states) * key.value_dim / key.warp_v;
  const double blocks = ceil_div(warps, key.warps);
  const double resident =
      resident_blocks({.registers = static_cast<double>(data_registers(key) + kDecodeRegisters),
                       .threads = threads(key)},
                      gpu);
  // On the fullest multiprocessor; beyond one wave blocks follow each other as they end.
  const bool is_one_wave = blocks <= gpu.sm_count * resident;
  const double fullest =
      (is_one_wave ? ceil_div(blocks, gpu.sm_count) : blocks / gpu.sm_count) * key.warps;

  const bool is_short = size_of(key.state_dtype) < 4;
  const double elements = key.key_dim * key.warp_v / 32.0;  // of a lane
  const double passes = (key.has_initial_state ? 1 : 0) + (key.store_state ? 1 : 0);
  const double bytes =
      passes * elements * 32 * size_of(key.state_dtype) * (1 + kSegmentBytes / segment_bytes(key));
  const double cycles =
      (kDecodeWarpCycles +
       elements * (kDecodeElementCycles + (is_short ? kDecodeShortElementCycles : 0))) *
      (1 + kDecodeBlockShare * (key.warps - 1));
  const double lone = elements * (kDecodeLoneCycles + (is_short ? kDecodeShortLoneCycles : 0));

  const double memory =
      std::max(warps * bytes / copy_rate(gpu), us_of(fullest * bytes / kL2BytesPerClock, gpu));
  const double latency = fullest / (resident * key.warps) * kDecodeLatencyUs;
  return kDecodeStartUs + std::max(memory, is_one_wave ? 0 : latency) +
         us_of(std::max(fullest * cycles, lone), gpu);
}

int heads_per_block(std::int64_t slots, int heads, int shared_heads, int sm_count) {
  const std::int64_t blocks = slots * (heads / shared_heads);
  return blocks >= kSharedBlocksPerSm * sm_count ? shared_heads : 1;
}

double prefill_us(const GdnPrefillChunksKey& chunks, const GdnPrefillScanKey& scan,
                  const PrefillLoad& load, const GpuRates& gpu) {
  return 2 * kPrefillStartUs + chunks_us(chunks, load, gpu) + scan_us(scan, load, gpu);
}

}  // namespace cubinery
