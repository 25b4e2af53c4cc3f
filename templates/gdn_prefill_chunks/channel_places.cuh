// Shared memory of a block that makes WY factors of decays of channels (channels.cuh).  Part of
// gdn_prefill_chunks.cu, which has defined kKey.
#pragma once

#include "common/chunk/make_wy.cuh"
#include "common/chunk/wy_rows.cuh"
#include "common/copy.cuh"
#include "common/shared.cuh"
#include "common/tile/tile.cuh"
#include "gdn_prefill_chunks/chunk.cuh"

namespace {

// Functions: constants would lie in the memory of kernels that have no use for them.
consteval ChannelPlaces places() { return channel_places(kKey); }
consteval ChannelWy channel_factors() { return channel_wy(kChunk, kKey.key_dim, kKey.dtype); }
constexpr int kBlocks = kChunk / 16;
constexpr int kTiles = lower_tiles(kChunk);
constexpr int kGroups = channel_groups(kKey);
constexpr int kGateRow = gate_row(kKey);

constexpr bool kBounded = has_bounded_blocks(kKey);

// k's rows, and q's behind them; in their places what the scan reads with, and then what it writes
// with, as they lie among the WY factors.
using ReadRows = dev::WyRows<2 * kChunk, kKey.key_dim, kKey.dtype>;
using WrittenRows = dev::WyRows<kChunk, kKey.key_dim, kKey.dtype>;
using ChannelNorms = dev::Norms<kNormalises>;
using Tile = dev::Tile<kKey.dtype>;
using dev::Acc;

// Where registers suffice for it the compiler works out ahead of the pairs where a thread copies.
template <bool kAhead>
struct CopyingThreads {
  using Type = dev::ThisThreadInLoop;
};
template <>
struct CopyingThreads<true> {
  using Type = dev::ThisThread;
};
using CopyingThread = CopyingThreads<kBounded>::Type;

template <class T>
__device__ T* place(int offset) {
  return reinterpret_cast<T*>(shared + offset);
}

// A pair of a chunk and a head; `number` counts the block's.
__device__ ChannelPair& pair_of(unsigned number) {
  return place<ChannelPair>(places().pairs)[number % 4];
}
// Its rows.
__device__ int stage_offset(unsigned number) {
  return loads_pairs_ahead(kKey) ? static_cast<int>(number % 2) * places().stage : 0;
}
__device__ unsigned stage_of(unsigned number) {
  return dev::shared_address(shared) + stage_offset(number);
}
__device__ float* betas_of(unsigned number) {
  return place<float>(places().betas) + number % 2 * kChunk;
}
__device__ ChannelNorms channel_norms() {
  return {.k = place<float>(places().numbers), .q = place<float>(places().numbers) + kChunk};
}
// Of q k^T.
__device__ float* diagonal() { return place<float>(places().numbers) + 2 * kChunk; }
// Of each block of 16 tokens.
__device__ float* block_decays(int block) { return diagonal() + kChunk + block * kKey.key_dim; }

}  // namespace
