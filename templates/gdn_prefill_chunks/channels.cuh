// The WY factors of a chunk of one head whose decay is one for each channel of k
// (common/chunk/wy.h).  Part of gdn_prefill_chunks.cu, which has defined kKey.
//
// e^(G_i - G_j) is the product of what a row r between them makes of both, e^(G_i - G_r) and
// e^(G_r - G_j): both are at most 1, so that nothing overflows, and what underflows is 0.  It is
// r <= i for all j, so that nothing behind token i has a part in what it gives.  Of two blocks of
// 16 tokens r is the last row in front of the later one, and the factors are those of the rows that
// the scan takes, but for the decay of a block.  A block with itself is cut into halves, and these
// into halves again: r is the first row of the upper half where i and j are in different halves.
// There is a product for each size of halves, and each element is that of the size that parts its
// row from its column; on the diagonal itself nothing decays.  Decays that are e^-5 at least take
// one product instead, with r in front of the block, where factors of columns are e^80 at most.
//
// A warp has a fourth of the channels, of all rows, and makes of them its part of all products and
// the rows for the scan, in the place of k's and q's.
//
// A block does this for some (chunk, head) pairs, one behind the other: what the next one reads is
// under way meanwhile, and its first steps go on beside the last one's inverse, which one warp
// makes.
#pragma once

#include "common/chunk/inverse.cuh"
#include "common/chunk/wy_tiles.cuh"
#include "common/copy.cuh"
#include "common/hopper/tma.cuh"
#include "common/launch.cuh"
#include "common/uniform.cuh"
#include "gdn_prefill_chunks/channel_gates.cuh"
#include "gdn_prefill_chunks/channel_places.cuh"
#include "gdn_prefill_chunks/channel_products.cuh"
#include "gdn_prefill_chunks/chunk.cuh"

namespace {

constexpr int kInvertingWarp = kKey.warps - 1;
// Of a warp that has no tiles to join.
constexpr int kFindingThread = 32 * (kKey.warps - 1);

// The block's pairs are those from blockIdx.x on, gridDim.x apart, from the last one to the first:
// what is written last is what the scan reads first, from L2.
//
// Finds the first one from `number` on.
__device__ ChannelPair find_pair(const GdnPrefillChunksParams& p, int number) {
  for (; number >= 0; number -= static_cast<int>(gridDim.x)) {
    const int slot = number / p.heads;
    const Chunk chunk = chunk_of(p, slot);
    if (chunk.tokens == 0) continue;
    const TokenStrides::At at{chunk.batch, chunk.first, number % p.heads};
    return {.k = dev::row_at<kKey.dtype>(p.k, at),
            .q = dev::row_at<kKey.dtype>(p.q, at),
            .gates = dev::as<kGate>(p.gates.g.data) + dev::offset_of(p.gates.g.stride, at),
            .batch = chunk.batch,
            .first = chunk.first,
            .tokens = chunk.tokens,
            .head = at.head,
            .number = number};
  }
  return {};
}
__device__ ChannelPair first_pair(const GdnPrefillChunksParams& p) {
  return find_pair(p, p.slots * p.heads - 1 - static_cast<int>(blockIdx.x));
}
// The one behind `pair`.
__device__ ChannelPair next_pair(const GdnPrefillChunksParams& p, const ChannelPair& pair) {
  return find_pair(p, pair.number - static_cast<int>(gridDim.x));
}

// Starts copying a pair's rows.
__device__ void copy_pair(const GdnPrefillChunksParams& p, const ChannelPair& pair,
                          unsigned stage) {
  using Copier = ChunkCopier<ReadRows, CopyingThread>;
  Copier(p.k, dev::as<kKey.dtype>(pair.k)).copy_next(stage, pair.tokens, p.k);
  Copier(p.q, dev::as<kKey.dtype>(pair.q))
      .copy_next(stage + ReadRows::at(kChunk, 0), pair.tokens, p.q);
  if constexpr (kGatesAhead) {
    const InputRows<TokenStrides> rows = gate_rows(p);
    GateCopier(rows, dev::as<kGate>(pair.gates))
        .copy_next(stage + places().updates, pair.tokens, rows);
  }
  dev::commit_copies();
}

__device__ char* wy_of(const GdnPrefillChunksParams& p, unsigned number) {
  return static_cast<char*>(p.wy) + 1LL * pair_of(number).number * channel_factors().bytes;
}

// T of a pair whose tiles are there, with one warp.
__device__ void store_inverse(const GdnPrefillChunksParams& p, unsigned number) {
  char* const wy = wy_of(p, number);
  dev::UnitLowerInverse<kBlocks, kKey.dtype != DType::kBF16> inverse(
      place<float>(places().product), betas_of(number), place<float>(places().inverse));
  inverse.compute();
#pragma unroll
  for (int row = 0; row < kBlocks; ++row) {
#pragma unroll
    for (int column = 0; column <= row; ++column) {
      dev::store_wy_tile<kKey.dtype>(wy, wy_tile(row, column, kChunk),
                                     dev::round_to<kKey.dtype>(inverse.block(row, column)));
    }
  }
}

// Sums this warp's tile of k k^T for the inverse, and writes that of P.
template <int kRow = 0, int kColumn = 0>
__device__ void join_tile(const Parts& parts, int warp, char* wy, const float* betas) {
  constexpr int kTile = lower_tile(kRow, kColumn);
  if (warp == kTile) {
    dev::store_tile(place<float>(places().product), kTile,
                    dev::round_to<DType::kF32>(sum_of_parts<kTile>(parts)));
    const Acc tile = times(sum_of_parts<kTiles + kTile>(parts), [&](int, int c, int j) {
      return betas[16 * kColumn + dev::tile_column() + 8 * c + j];
    });
    dev::store_wy_tile<kKey.dtype>(wy + channel_factors().attention, wy_tile(kRow, kColumn, kChunk),
                                   rounded(tile));
  } else if constexpr (kColumn < kRow) {
    join_tile<kRow, kColumn + 1>(parts, warp, wy, betas);
  } else if constexpr (kRow + 1 < kBlocks) {
    join_tile<kRow + 1, 0>(parts, warp, wy, betas);
  }
}

// Copies the rows and decays of a pair to its WY factors: by TMA with one thread, which has to wait
// for it before others use the place again, or with all.
constexpr int kRowsBytes = channel_wy(kChunk, kKey.key_dim, kKey.dtype).bytes -
                           channel_wy(kChunk, kKey.key_dim, kKey.dtype).keys;
__device__ void write_rows(char* wy, unsigned stage) {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0) dev::write_run(wy + channel_factors().keys, stage, kRowsBytes);
#else
#pragma unroll 4
  for (int i = threadIdx.x * 16; i < kRowsBytes; i += threads(kKey) * 16) {
    uint4 x;
    dev::load_shared(x, stage + i);
    *reinterpret_cast<uint4*>(wy + channel_factors().keys + i) = x;
  }
#endif
}
__device__ void show_rows() {
#if __CUDA_ARCH__ >= 900
  dev::show_to_tma();
#endif
}
__device__ void wait_for_rows_read() {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0) dev::wait_for_boxes_read();
#endif
}

__device__ void make_channel_wy(const GdnPrefillChunksParams& p) {
  const int warp = dev::uniform(threadIdx.x / 32);
  if (threadIdx.x == kFindingThread) {
    pair_of(0) = first_pair(p);
    pair_of(1) = next_pair(p, pair_of(0));
  }
  // Orders the first pairs before their reading.
  __syncthreads();
  if (pair_of(0).tokens == 0) return;
  copy_pair(p, pair_of(0), stage_of(0));
  GatesOfThread gates(p, pair_of(0));
  unsigned number = 0;
  for (bool is_last = false; !is_last; ++number) {
    const unsigned stage = stage_of(number);
    const float* const betas = betas_of(number);
    dev::wait_copies<0>();
    wait_for_rows_read();
    // Orders everybody's copies and the next pair before their reading; the tiles of the pair in
    // front before its inverse, and all reading of its rows and parts before what comes in their
    // places.
    __syncthreads();
    is_last = pair_of(number + 1).tokens == 0;
    if (loads_pairs_ahead(kKey) && !is_last) {
      copy_pair(p, pair_of(number + 1), stage_of(number + 1));
    }
    if (warp == kInvertingWarp && number > 0) store_inverse(p, number - 1);
    sum_gates(p, number, gates);
    store_norms(stage);
    // Orders sums, betas and norms before their use, and the reading of k, q and gates before the
    // rows that come in their places.
    __syncthreads();
    store_decays(stage);
    Parts parts;
    if (warp < kGroups) multiply_block<0>(parts, stage, warp, p.scale, betas);
    show_rows();
    // Orders the rows before they are copied, and the last reading of sums before the parts, which
    // take their place.
    __syncthreads();
    char* const wy = wy_of(p, number);
    write_rows(wy, stage);
    if (!is_last) gates = GatesOfThread(p, pair_of(number + 1));
    if (warp < kGroups) store_parts(parts, warp);
    // Orders the parts before their sums.
    __syncthreads();
    join_tile(parts, warp, wy, betas);
    if (threadIdx.x == kFindingThread && !is_last) {
      pair_of(number + 2) = next_pair(p, pair_of(number + 1));
    }
    if (!loads_pairs_ahead(kKey) && !is_last) {
      wait_for_rows_read();
      // Orders the reading of the rows before what comes in their place.
      __syncthreads();
      copy_pair(p, pair_of(number + 1), stage_of(number + 1));
    }
  }
  // Orders the tiles before their inverse.
  __syncthreads();
  if (warp == kInvertingWarp) store_inverse(p, number - 1);
  wait_for_rows_read();
}

}  // namespace
