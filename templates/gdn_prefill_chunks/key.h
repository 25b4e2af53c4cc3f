// Compile-time parameters and arguments of gdn_prefill_chunks.  Compiled by the host and by NVRTC.
#pragma once

#include "common/chunk/wy.h"
#include "common/key_rules.h"
#include "common/params.h"
#include "cubinery/dtype.h"
#include "cubinery/gdn_parts.h"

namespace cubinery {

struct GdnPrefillChunksKey {
  static constexpr bool kTakesChannelDecays = true;

  // The problem: gdn::PrefillProblem explains each.
  int key_dim = 128;
  DType dtype = DType::kBF16;
  gdn::Inputs inputs{};
  DType cu_seqlens_dtype = DType::kI32;
  bool varlen = false;

  // Leaves a ChunkDecay (common/chunk/wy.h), and no WY factors.  Every row of k starts at a
  // multiple of 16 bytes.
  bool only_decays = false;

  // Tuned.
  int chunk_size = 32;  // tokens
  int warps = 2;        // per block
};

// Heads of one block, at most: they share a key head and a query head.
inline constexpr int kMaxHeadsPerBlock = 8;

constexpr int threads(const GdnPrefillChunksKey& key) { return key.warps * 32; }

// Shared memory: k and q of the chunk, later overwritten by the fp32 tiles of both products and by
// each warp's scratch.
constexpr int tile_area_bytes(const GdnPrefillChunksKey& key) {
  if (key.only_decays) return 0;
  const int rows = 2 * key.chunk_size * padded_row(key.key_dim, key.dtype) * size_of(key.dtype);
  const int tiles = 2 * lower_tiles(key.chunk_size) * 16 * 16 * 4;
  const int used = tiles + key.warps * kInverseScratchBytes;
  return rows > used ? rows : used;
}
// Behind it: inverse norms of k and q, then gate sums and betas of each head.
constexpr int head_shared_bytes(const GdnPrefillChunksKey& key) {
  return tile_area_bytes(key) + (2 + 2 * kMaxHeadsPerBlock) * key.chunk_size * 4;
}

// With a decay for each channel a block makes the WY factors of (chunk, head) pairs, one behind the
// other.  Sums over channels are taken in groups of them, one of a warp.
constexpr int channel_groups(const GdnPrefillChunksKey& key) {
  return key.key_dim < 64 ? key.key_dim / 16 : 4;
}
// Whether 16 tokens decay by no more than the operands' type holds (gdn::kLeastLowerBound).
constexpr bool has_bounded_blocks(const GdnPrefillChunksKey& key) {
  return key.inputs.gate_mode == gdn::GateMode::kLowerBound && key.dtype != DType::kF16;
}
// Whether the rows of the next pair are on their way while those of one are computed.
constexpr bool loads_pairs_ahead(const GdnPrefillChunksKey& key) {
  return size_of(key.dtype) == 2 && key.key_dim <= 128;
}
// Whether rows of gates are, too: where they fit in the place of the rows that write.
constexpr bool loads_gates_ahead(const GdnPrefillChunksKey& key) {
  return key.inputs.gate_mode != gdn::GateMode::kNone &&
         key.key_dim * size_of(key.inputs.gate_dtype) <= channel_row_bytes(key.key_dim, key.dtype);
}
// Floats between rows of sums of g: eight rows of a column's pairs lie in different banks.
constexpr int gate_row(const GdnPrefillChunksKey& key) { return key.key_dim + 8; }
// Groups other than a warp's own that have parts of the tiles that it sums.
constexpr int other_groups(const GdnPrefillChunksKey& key) {
  const int groups = channel_groups(key);
  return lower_tiles(key.chunk_size) <= groups ? groups - 1 : groups;
}

// Which rows and numbers a pair has.
struct ChannelPair {
  const void *k, *q, *gates;  // rows of the first token and the head
  long long batch, first;     // token
  int tokens;                 // fewer than the chunk size at the end of a sequence; 0: no pair
  int head;
  int number;  // slot heads + head
};

// Byte offsets in shared memory.
struct ChannelPlaces {
  // Of the rows of a pair: k and q, and in their place what the WY factors have from `keys` on.  A
  // second pair's lie behind them if they are loaded ahead.
  int stage;           // bytes
  int updates, decay;  // in it
  int sums, parts;     // of g; fp32 tiles of both products, of other groups: in the same place
  int product;         // fp32 tiles of k k^T
  int inverse;         // its scratch
  int pairs;           // four ChannelPair
  int betas;           // of two pairs
  int numbers;         // inverse norms of k and q, the diagonal of q k^T, decays of blocks
  int bytes;
};
constexpr ChannelPlaces channel_places(const GdnPrefillChunksKey& key) {
  const ChannelWy wy = channel_wy(key.chunk_size, key.key_dim, key.dtype);
  const int sums = key.chunk_size * gate_row(key) * 4;
  const int tiles = lower_tiles(key.chunk_size) * 16 * 16 * 4;
  const int parts = other_groups(key) * 2 * tiles;
  ChannelPlaces places{};
  places.stage = wy.bytes - wy.keys;
  places.updates = wy.updates - wy.keys;
  places.decay = wy.decay - wy.keys;
  places.sums = places.parts = (loads_pairs_ahead(key) ? 2 : 1) * places.stage;
  places.product = places.sums + (sums > parts ? sums : parts);
  places.inverse = places.product + tiles;
  places.pairs = places.inverse + kInverseScratchBytes;
  places.betas = places.pairs + 4 * static_cast<int>(sizeof(ChannelPair));
  places.numbers = places.betas + 2 * key.chunk_size * 4;
  places.bytes = places.numbers + (3 * key.chunk_size + key.chunk_size / 16 * key.key_dim) * 4;
  return places;
}

constexpr int shared_bytes(const GdnPrefillChunksKey& key) {
  return key.inputs.decay == gdn::Decay::kChannel ? channel_places(key).bytes
                                                  : head_shared_bytes(key);
}

// Blocks of a multiprocessor that registers must suffice for.
constexpr int resident_blocks(const GdnPrefillChunksKey& key) {
  if (key.only_decays) return 32 / key.warps;
  if (key.inputs.decay != gdn::Decay::kChannel) return 1;
  return loads_pairs_ahead(key) ? 3 : 2;
}

constexpr const char* why_invalid(const GdnPrefillChunksKey& key) {
  if (!is_head_dim(key.key_dim)) return "key_dim must be a multiple of 16 from 16 to 256";
  if (!is_float(key.dtype)) return "dtype must be f32, bf16 or f16";
  if (const char* reason = why_inputs_invalid(key)) return reason;
  if (!is_integer(key.cu_seqlens_dtype)) return "cu_seqlens_dtype must be i32 or i64";
  if (key.chunk_size != 16 && key.chunk_size != 32 && key.chunk_size != 64)
    return "chunk_size must be 16, 32 or 64";
  if (key.warps != 1 && key.warps != 2 && key.warps != 4) return "warps must be 1, 2 or 4";
  if (key.inputs.decay == gdn::Decay::kChannel) {
    // Never near the fastest on an H200.
    if (key.chunk_size > 32) return "decay = channel needs chunk_size = 16 or 32";
    if (key.warps != 4) return "decay = channel needs warps = 4";
  }
  if (key.only_decays) {
    if (key.inputs.decay != gdn::Decay::kHead) return "only_decays needs decay = head";
    if (key.chunk_size != 32) return "only_decays needs chunk_size = 32";
    if (key.key_dim != 128 || size_of(key.dtype) != 2)
      return "only_decays needs key_dim = 128 and dtype = bf16 or f16";
  }
  // The largest block of any architecture so far.
  if (shared_bytes(key) > 227 * 1024) return "the chunk passes 227 KiB of shared memory";
  return nullptr;
}

constexpr bool valid(const GdnPrefillChunksKey& key) { return why_invalid(key) == nullptr; }

struct GdnPrefillChunksParams {
  InputRows<TokenStrides> q, k;
  GateParams<TokenStrides> gates;
  StridedVector cu_seqlens;
  void* wy;          // [chunk_slots][heads] of wy_bytes(), or of ChunkDecay
  int* order;        // [sequences], varlen: written; see common/chunk/sequences.cuh
  unsigned* zeroed;  // [counters]: set to 0, for the kernels behind this one
  long long counters;

  long long tokens;  // of a sequence; varlen: of all
  int sequences;
  int slots;  // chunk_slots of the launch
  int heads;
  int heads_per_block;  // divides heads and the groups of q and k; at most kMaxHeadsPerBlock
  float scale;
  float lower_bound;
  int segment_chunks;  // with only_decays: as SegmentParams::chunks
};

}  // namespace cubinery
