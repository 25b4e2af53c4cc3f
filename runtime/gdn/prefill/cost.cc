#include "runtime/gdn/prefill/cost.h"

#include <algorithm>
#include <cmath>

namespace cubinery::gdn {
namespace {

// Coefficients, fitted by hand to the rows of benchmarks/results/h200.json and to what
// docs/performance.md says of other keys; cycles are those of the H200 at 1.755 GHz.

// Of each of the two launches; then of the first blocks of the first kernel.
constexpr double kPrefillStartUs = 2;
constexpr double kChunksStartUs = 3;
// The first kernel's cycles for a chunk of 32 x 128: of the products that heads share, of one head,
// and of one head's part that does not grow with the chunk.  Squares of the chunk size.
constexpr double kChunksSharedCycles = 600;
constexpr double kChunksHeadCycles = 240;
constexpr double kChunksFixedCycles = 85;
// A block alone on a multiprocessor takes so much longer: kLone + kLonePerWarp / warps.
constexpr double kChunksLone = 1.5;
constexpr double kChunksLonePerWarp = 3;
constexpr int kChunksRegisters = 128;
// Of a chunk of 32 x 128 of a head whose channels have decays; a bounded one, and any.
constexpr double kBoundedChannelCycles = 2900;
constexpr double kChannelCycles = 4600;
constexpr int kChannelRegisters = 168;
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
// Where sequences are cut: tickets and certificates; each step of carrying a state; and what N and
// D of the heads that do not forget take besides, as a share of the segments that have them, all
// but the first of a sequence.
struct CutCost {
  double us;
  double carry_us;
  double share;
};
constexpr CutCost kMmaCut{.us = 12, .carry_us = 3, .share = 0.4};
constexpr CutCost kWgmmaCut{.us = 6.5, .carry_us = 1.9, .share = 0.46};
// Where the scan makes its WY factors: the same, fitted to 1657 configurations of 209 shapes on an
// H200, within 12 % (root mean square); until the first chunk of a wave of blocks; and of how much
// of a wave is full, the power that says how much of its time the last one takes.
constexpr CutCost kFusedCut{.us = 8, .carry_us = 1.2, .share = 0.46};
constexpr double kFusedWaveUs = 7.5;
constexpr double kFusedLastWave = 0.2;
// Where channels have decays all heads have N and D.
constexpr double kChannelShare = 0.8;
// The second kernel with wgmma, fitted with the above to 105 shapes on an H200 and on an H100:
// cycles for a chunk when a block has the multiprocessor to itself, fixed and for each token; and
// of the multiprocessor for each block, all for 128 key dims.
constexpr double kWgmmaCycles = 700;
constexpr double kWgmmaTokenCycles = 19;
constexpr double kWgmmaBlockCycles = 540;
constexpr double kWgmmaBlockTokenCycles = 14.5;
constexpr double kWgmmaRegisters = 168;
// With a decay for each channel, fitted to 138 shapes on an H200
// (tests/data/tuning/channels.jsonl).  Times the cycles of a block by itself: with mma.sync, of two
// warps and of more; with wgmma and so many stages that a multiprocessor holds one block.
constexpr double kChannelRows = 1.15;
constexpr double kWideChannelRows = 1.45;
constexpr double kDeepRows = 0.89;
// Times the time of the scan's bytes, which are mostly WY factors: with mma.sync, and with wgmma
// and fewer stages where a block has a multiprocessor to itself, and where two share it.
constexpr double kMmaBytes = 1.2;
constexpr double kLoneBytes = 1.15;
constexpr double kPairBytes = 0.93;
// Where the scan makes its WY factors, one block for each multiprocessor: a chunk of 32 tokens with
// key_dim = 128, and until the first WY factors are made.
constexpr double kFusedCycles = 2120;
constexpr double kFusedStartUs = 11;
constexpr double kFusedRegisters = 128;
// f32 operands: three products of tf32, which run at half the rate of bf16, twice the bytes.
constexpr double kF32Products = 6;
constexpr double kF32Lone = 3;

// Of one chunk of one head in the second kernel.
struct ScanChunk {
  double lone = 0;  // cycles of a warp by itself
  double warp = 0;  // cycles of the multiprocessor for each warp: products and their operands
  double copy = 0;  // cycles of the multiprocessor for each block: from L2 to shared memory
};

ScanChunk scan_chunk(const GdnPrefillScanKey& key, const Target& target) {
  const bool is_f32 = key.dtype == DType::kF32;
  const double tokens = key.chunk_size;
  const double triangle = tokens * (tokens + 16) / 2;
  constexpr double kColumns = 16;
  // S^T K, S^T Q and the update; T V' and P U.
  const double flop = 2 * kColumns * (3 * tokens * key.key_dim + 2 * triangle);
  const double operands = (3 * tokens * key.key_dim + 2 * triangle) * size_of(key.dtype);
  ScanChunk chunk;
  if (key.makes_wy) {
    chunk.lone = kFusedCycles * (1 + key.key_dim / 128.0) / 2;
    chunk.warp = chunk.lone / key.warps;
    return chunk;
  }
  if (key.wgmma) {
    const double rows = tokens * (1 + key.key_dim / 128.0) / 2;
    chunk.lone = kWgmmaCycles + rows * kWgmmaTokenCycles;
    chunk.warp = (kWgmmaBlockCycles + rows * kWgmmaBlockTokenCycles) / key.warps;
    return chunk;
  }
  chunk.lone = kScanCycles + tokens * (kScanTokenCycles + kScanRowCycles * key.key_dim / 128);
  if (is_f32) chunk.lone *= kF32Lone;
  if (!copies_far_ahead(key)) chunk.lone *= kScanTwoStages;
  if (has_channel_decays(key)) chunk.lone *= key.warps > 2 ? kWideChannelRows : kChannelRows;
  chunk.warp = flop * (is_f32 ? kF32Products : 1) / target.mma_flop_per_clock_per_sm +
               operands / kSharedBytesPerClock;
  chunk.copy = stage_bytes(key) / kL2BytesPerClock;
  return chunk;
}

// Of one state, read and written.
double state_bytes(const GdnPrefillScanKey& key) {
  const int passes = (key.states.has_initial ? 1 : 0) + (key.states.store ? 1 : 0);
  return static_cast<double>(passes) * key.key_dim * key.value_dim * size_of(key.states.dtype);
}

double scan_registers(const GdnPrefillScanKey& key) {
  if (key.makes_wy) return kFusedRegisters;
  if (key.dtype == DType::kF32 || (key.wgmma && resident_blocks(key) == 1)) return 255;
  if (key.wgmma) return kWgmmaRegisters;
  return kScanRegisters + kScanTokenRegisters * key.chunk_size +
         kScanStateRegisters * key.key_dim / 128;
}

// Of a chunk and head: v and o; of channels, WY factors for each block of columns, of `slices`.
double row_bytes(const GdnPrefillScanKey& key, double slices) {
  const double row = key.chunk_size * 2.0 * key.value_dim * size_of(key.dtype);
  if (!has_channel_decays(key)) return row;
  return (row + wy_bytes(key) * slices) * (key.wgmma ? 1 : kMmaBytes);
}

// Of a multiprocessor in the first kernel for a block of so many heads.
double chunk_cycles(const GdnPrefillChunksKey& key, int heads) {
  const double size = key.chunk_size / 32.0;
  const double products = key.dtype == DType::kF32 ? 2 : 1;
  if (key.inputs.decay == Decay::kChannel) {
    const double cycles = has_bounded_blocks(key) ? kBoundedChannelCycles : kChannelCycles;
    return cycles * products * size * key.key_dim / 128;
  }
  const double squares = size * size * products;
  return kChunksSharedCycles * squares * key.key_dim / 128 +
         heads * (kChunksFixedCycles + kChunksHeadCycles * squares);
}

}  // namespace

int heads_per_block(std::int64_t slots, int heads, int shared_heads, int sm_count) {
  int most = shared_heads;
  while (shared_heads % most != 0 || (most > 1 && slots * (heads / most) < sm_count)) --most;
  return most;
}

bool blocks_stay(const GdnPrefillScanKey& scan, std::int64_t tokens, std::int64_t sequences) {
  constexpr std::int64_t kChunks = 24;  // of a sequence
  return scan.makes_wy && tokens < sequences * kChunks * scan.chunk_size;
}

PrefillCost::PrefillCost(const GdnPrefillChunksKey& chunks, const GdnPrefillScanKey& scan,
                         int heads, int shared_heads, const Target& target)
    : chunks_(chunks),
      scan_(scan),
      heads_(heads),
      shared_heads_(shared_heads),
      target_(target),
      copy_rate_(copy_rate(target)) {
  const int registers =
      chunks.inputs.decay == Decay::kChannel ? kChannelRegisters : kChunksRegisters;
  chunks_resident_ = resident_blocks(
      {static_cast<double>(registers), threads(chunks), shared_bytes(chunks)}, target);
  wy_bytes_ = wy_bytes(chunks.inputs.decay, chunks.chunk_size, chunks.key_dim, chunks.dtype);
  resident_ = resident_blocks({scan_registers(scan), threads(scan), shared_bytes(scan)}, target);
  slices_ = scan.value_dim / (16.0 * scan.warps);
  is_deep_ = scan.wgmma && has_channel_decays(scan) && resident_ < 2;
  const ScanChunk chunk = scan_chunk(scan, target);
  lone_ = chunk.lone * (is_deep_ ? kDeepRows : 1);
  block_ = scan.warps * chunk.warp + kScanCopyShare * chunk.copy;
  copy_ = chunk.copy;
  row_bytes_ = row_bytes(scan, slices_);
  state_bytes_ = state_bytes(scan);
}

double PrefillCost::chunks_us(const PrefillLoad& load) const {
  const std::int64_t slots = load.sequences * int_ceil_div(load.length, chunks_.chunk_size);
  const int shared = heads_per_block(slots, heads_, shared_heads_, target_.sm_count);
  const double blocks = static_cast<double>(slots) * heads_ / shared;
  const double cycles = chunk_cycles(chunks_, shared);
  const double waves = ceil_div(blocks, target_.sm_count * chunks_resident_);
  const double lone = waves * cycles * (kChunksLone + kChunksLonePerWarp / chunks_.warps);
  const double bytes = static_cast<double>(slots) * heads_ * wy_bytes_;
  const double all = std::max(blocks / target_.sm_count * cycles, lone);
  return kChunksStartUs + std::max(us_of(all, target_), bytes / copy_rate_);
}

double PrefillCost::scan_us(const PrefillLoad& load) const {
  const double places = target_.sm_count * resident_;
  const double per_sequence = heads_ * slices_;
  const double blocks = static_cast<double>(load.sequences) * per_sequence;
  const auto chunks_of = [&](std::int64_t tokens) {
    return ceil_div(static_cast<double>(tokens), scan_.chunk_size);
  };
  const double chunks = chunks_of(load.length);
  // Of so many blocks, each of so many chunks: each waits for itself, and all share what a
  // multiprocessor can do.
  const auto scan_of = [&](double count, double each) {
    if (scan_.wgmma) {
      // Blocks of one length, which end together: wave after wave, the last of them less full.
      const auto wave_of = [&](double shared) { return std::max(lone_, shared * block_); };
      // Of segments not all have N and D: they end one after another, and others start.
      if (scan_.segments && count > places) {
        return each * us_of(count / places * wave_of(resident_), target_);
      }
      const double full = std::floor(count / places);
      const double rest = count - full * places;
      const double cycles =
          full * wave_of(resident_) + (rest > 0 ? wave_of(ceil_div(rest, target_.sm_count)) : 0);
      return each * us_of(cycles, target_);
    }
    const double waves = ceil_div(count, places);
    const double fullest = waves > 1 ? count / target_.sm_count : ceil_div(count, target_.sm_count);
    return each * us_of(std::max({waves * lone_, fullest * block_, fullest * copy_}), target_);
  };
  const double work = scan_of(blocks, chunks);
  // The longest sequence goes on when the others have ended.
  const double tail = scan_of(per_sequence, chunks_of(load.longest));
  double row = row_bytes_;
  if (has_channel_decays(scan_) && scan_.wgmma && !is_deep_) {
    row *= blocks > target_.sm_count ? kPairBytes : kLoneBytes;
  }
  const double bytes = static_cast<double>(load.sequences) * chunks * heads_ * row;
  const double states = static_cast<double>(load.sequences) * heads_ * state_bytes_;
  const bool stay = blocks_stay(scan_, load.sequences * load.length, load.sequences);
  const double waves = stay ? 1 : ceil_div(blocks, places);
  return waves * kScanBlockUs + states / copy_rate_ + std::max({work, tail, bytes / copy_rate_});
}

double PrefillCost::us(const PrefillLoad& load) const {
  if (scan_.makes_wy) return kPrefillStartUs + kFusedStartUs + scan_us(load);
  return 2 * kPrefillStartUs + chunks_us(load) + scan_us(load);
}

double PrefillCost::split_us(const SegmentRule& rule, const PrefillLoad& load) const {
  const std::int64_t segment =
      std::int64_t{rule.chunks(load.sequences * load.length, load.longest)} * scan_.chunk_size;
  const std::int64_t segments = int_ceil_div(load.length, segment);
  const std::int64_t longest = int_ceil_div(load.longest, segment);
  if (scan_.makes_wy) return fused_split_us({.segments = segments, .longest = longest}, load);
  const double once = scan_us({.sequences = load.sequences * segments,
                               .length = int_ceil_div(load.length, segments),
                               .longest = int_ceil_div(load.longest, longest)});
  const CutCost& cost = scan_.wgmma ? kWgmmaCut : kMmaCut;
  const auto carries = static_cast<double>(longest - 1);
  const double share = has_channel_decays(scan_) ? kChannelShare : cost.share;
  const double joined =
      once * share * carries / static_cast<double>(longest) + carries * cost.carry_us;
  return 2 * kPrefillStartUs + chunks_us(load) + cost.us + once + joined;
}

double PrefillCost::fused_split_us(const Pieces& pieces, const PrefillLoad& load) const {
  const auto carries = static_cast<double>(pieces.longest - 1);
  const double share = kFusedCut.share * carries / static_cast<double>(pieces.longest);
  const double units = static_cast<double>(load.sequences * pieces.segments) * heads_ * slices_;
  const auto chunks_in = [&](std::int64_t tokens, std::int64_t segments) {
    return ceil_div(static_cast<double>(int_ceil_div(tokens, segments)), scan_.chunk_size);
  };
  const double waves = units * (1 + share) / (target_.sm_count * resident_);
  const double full = std::floor(waves);
  const double all =
      (full + std::pow(waves - full, kFusedLastWave)) * chunks_in(load.length, pieces.segments);
  // Outputs that wait for a state come behind the units that find it.
  const double chain = (carries > 0 ? 2 : 1) * chunks_in(load.longest, pieces.longest);
  return 2 * kPrefillStartUs + kFusedCut.us + us_of(std::max(all, chain) * lone_, target_) +
         std::ceil(waves) * kFusedWaveUs + carries * kFusedCut.carry_us;
}

}  // namespace cubinery::gdn
