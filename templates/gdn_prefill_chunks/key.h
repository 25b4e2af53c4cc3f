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
  const int rows = 2 * key.chunk_size * padded_row(key.key_dim, key.dtype) * size_of(key.dtype);
  const int tiles = 2 * lower_tiles(key.chunk_size) * 16 * 16 * 4;
  const int used = tiles + key.warps * kInverseScratchBytes;
  return rows > used ? rows : used;
}
// Behind it: inverse norms of k and q, then gate sums and betas of each head.
constexpr int head_shared_bytes(const GdnPrefillChunksKey& key) {
  return tile_area_bytes(key) + (2 + 2 * kMaxHeadsPerBlock) * key.chunk_size * 4;
}

// With a decay for each channel a block has one head.  Sums over channels are taken in groups of
// them, one of a warp.
constexpr int channel_groups(const GdnPrefillChunksKey& key) {
  return key.key_dim < 64 ? key.key_dim / 16 : 4;
}
// Whether 16 tokens decay by no more than the operands' type holds (gdn::kLeastLowerBound).
constexpr bool has_bounded_blocks(const GdnPrefillChunksKey& key) {
  return key.inputs.gate_mode == gdn::GateMode::kLowerBound && key.dtype != DType::kF16;
}
// Floats between rows of sums of g: eight rows of a column's pairs lie in different banks.
constexpr int gate_row(const GdnPrefillChunksKey& key) { return key.key_dim + 8; }

// Byte offsets in shared memory.  First comes what the WY factors have from `keys` on, in the place
// of k and q.
struct ChannelPlaces {
  int updates, decay;
  int sums, parts;  // of g; fp32 tiles of both products, of each group: one takes the other's place
  int inverse;      // its scratch
  int numbers;      // inverse norms of k and q, betas, the diagonal of q k^T, decays of blocks
  int bytes;
};
constexpr ChannelPlaces channel_places(const GdnPrefillChunksKey& key) {
  const ChannelWy wy = channel_wy(key.chunk_size, key.key_dim, key.dtype);
  const int sums = key.chunk_size * gate_row(key) * 4;
  const int parts = channel_groups(key) * 2 * lower_tiles(key.chunk_size) * 16 * 16 * 4;
  ChannelPlaces places{};
  places.updates = wy.updates - wy.keys;
  places.decay = wy.decay - wy.keys;
  places.sums = places.parts = wy.bytes - wy.keys;
  places.inverse = places.sums + (sums > parts ? sums : parts);
  places.numbers = places.inverse + kInverseScratchBytes;
  places.bytes = places.numbers + (4 * key.chunk_size + key.chunk_size / 16 * key.key_dim) * 4;
  return places;
}

constexpr int shared_bytes(const GdnPrefillChunksKey& key) {
  return key.inputs.decay == gdn::Decay::kChannel ? channel_places(key).bytes
                                                  : head_shared_bytes(key);
}

// Blocks of a multiprocessor that registers must suffice for.
constexpr int resident_blocks(const GdnPrefillChunksKey& key) {
  const bool is_small = size_of(key.dtype) == 2 && key.key_dim <= 128;
  if (key.inputs.decay != gdn::Decay::kChannel || !is_small) return 1;
  return has_bounded_blocks(key) ? 4 : 3;
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
  // The largest block of any architecture so far.
  if (shared_bytes(key) > 227 * 1024) return "the chunk passes 227 KiB of shared memory";
  return nullptr;
}

constexpr bool valid(const GdnPrefillChunksKey& key) { return why_invalid(key) == nullptr; }

struct GdnPrefillChunksParams {
  InputRows<TokenStrides> q, k;
  GateParams<TokenStrides> gates;
  StridedVector cu_seqlens;
  void* wy;          // [chunk_slots][heads] of wy_bytes()
  int* order;        // [sequences], varlen: written; see common/chunk/sequences.cuh
  unsigned* zeroed;  // [counters]: set to 0, for the kernels behind this one
  long long counters;

  long long tokens;  // of a sequence; varlen: of all
  int sequences;
  int slots;  // chunk_slots of the launch
  int heads;
  int heads_per_block;  // divides heads and the groups of q and k; at most kMaxHeadsPerBlock, with
                        // a decay for each channel 1
  float scale;
  float lower_bound;
};

}  // namespace cubinery
