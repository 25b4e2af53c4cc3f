// The chunk of a block, and its rows in shared memory.  Part of gdn_prefill_chunks.cu, which has
// defined kKey.
#pragma once

#include "common/chunk/sequences.cuh"
#include "common/copy.cuh"
#include "common/operands.cuh"
#include "common/shared.cuh"
#include "common/tile/tile.cuh"
#include "gdn_prefill_chunks/key.h"

namespace {

using namespace cubinery;  // NOLINT: a translation unit of its own

constexpr int kChunk = kKey.chunk_size;
constexpr int kStride = padded_row(kKey.key_dim, kKey.dtype);
constexpr bool kNormalises = kKey.inputs.use_qk_l2norm;

using RowMatrix = dev::SharedMatrix<kKey.dtype, kStride>;

extern __shared__ __align__(16) unsigned char shared[];

struct Chunk {
  long long batch;
  long long first;  // token
  int tokens;       // fewer than kChunk at the end of a sequence
  int number, of;   // in its sequence, which has so many
};

// The chunk of a slot.  No tokens: the slot is not used.
__device__ Chunk chunk_of(const GdnPrefillChunksParams& p, int slot) {
  long long n;
  dev::Sequence sequence;
  if constexpr (kKey.varlen) {
    constexpr DType kIndex = kKey.cu_seqlens_dtype;
    n = dev::sequence_of_slot<kIndex>(slot, kChunk, p.cu_seqlens, p.sequences);
    sequence = dev::packed_sequence<kChunk, kIndex>(n, p.cu_seqlens);
  } else {
    n = slot / ((p.tokens + kChunk - 1) / kChunk);
    sequence = dev::dense_sequence<kChunk>(n, p.tokens);
  }
  const long long first = (slot - sequence.slot) * kChunk;  // in the sequence
  long long tokens = sequence.tokens - first;
  // Malformed bounds must not reach memory.
  const bool inside = first >= 0 && sequence.first >= 0 && tokens > 0 &&
                      sequence.first + sequence.tokens <= p.tokens;
  if (tokens > kChunk) tokens = kChunk;
  return {.batch = sequence.batch,
          .first = sequence.first + first,
          .tokens = inside ? static_cast<int>(tokens) : 0,
          .number = static_cast<int>(slot - sequence.slot),
          .of = static_cast<int>((sequence.tokens + kChunk - 1) / kChunk)};
}

// Copies a chunk's rows of k or q.
template <class Layout, class Thread = dev::ThisThread>
using ChunkCopier = dev::RowCopier<kKey.dtype, kChunk, kKey.key_dim, Layout, threads(kKey), Thread>;

// Starts copying the chunk's rows of k and, `queries` bytes behind them, of q, which the heads from
// `head` on share.
template <class Layout>
__device__ void copy_rows(const GdnPrefillChunksParams& p, const Chunk& chunk, int head,
                          int queries) {
  ChunkCopier<Layout>(p.k, dev::row_at<kKey.dtype>(p.k, {chunk.batch, chunk.first, head}))
      .copy_next(dev::shared_address(shared), chunk.tokens, p.k);
  ChunkCopier<Layout>(p.q, dev::row_at<kKey.dtype>(p.q, {chunk.batch, chunk.first, head}))
      .copy_next(dev::shared_address(shared + queries), chunk.tokens, p.q);
  dev::commit_copies();
}

}  // namespace
