// What a chunk decays, for scans that make its WY factors themselves and cut long sequences into
// segments (common/chunk/segments.h).  Part of gdn_prefill_chunks.cu.
#pragma once

#include "common/chunk/make_wy.cuh"
#include "common/chunk/segments.h"
#include "common/operands.cuh"
#include "common/vec.cuh"
#include "common/warp.cuh"
#include "gdn_prefill_chunks/chunk.cuh"

namespace {

// What stands for a bound that was not looked for: nothing is forgotten behind it.
constexpr float kNoBound = 1e30f;

// Chunks from this one to the next segment's first, at least 1; 0: none begins behind it, or none
// that may forget this chunk.
__device__ int chunks_to_segment(const GdnPrefillChunksParams& p, const Chunk& chunk) {
  const Cut cut = cubinery::cut(chunk.of, p.segment_chunks);
  const int segment = chunk.number / cut.chunks;
  const int to_next = (segment + 1) * cut.chunks - chunk.number;
  return segment + 1 < cut.segments && to_next <= forgetting_chunks(cut) ? to_next : 0;
}

// Whether to look for the bound of a chunk, which takes its keys, so many chunks in front of a
// segment.  Not where states would be carried, if the others decay like this one by 2^decay, nor
// where those behind it will have forgotten: both by a margin of a half.
__device__ bool is_bound_needed(int to_segment, float decay) {
  constexpr float kMargin = 1.5f;
  const float forgotten = -kForgottenBits;
  return to_segment > 0 && 32 * kMargin * decay <= forgotten &&
         (to_segment - 1) * decay >= kMargin * forgotten;
}

// The sum over the chunk's tokens of log2 max(1, |1 - beta |k^|^2|), for a warp.  A template, as
// what calls it, so that keys without `only_decays` do not compile it.
template <int kRows>
__device__ float growth_of(const GdnPrefillChunksParams& p, const Chunk& chunk, int head,
                           const float* betas) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float growth;
  if constexpr (kNormalises) {
    // |k^| is at most 1, and the largest of these is at an end.
    growth = dev::log2_growth(betas[lane], 1.0f);
  } else {
    // Half a warp has a row, a lane 16 bytes of it.
    constexpr int kElements = 16 / size_of(kKey.dtype);
    static_assert(kKey.key_dim == 16 * kElements);
    const auto* const row =
        dev::row_at<kKey.dtype>(p.k, {chunk.batch, chunk.first, head}) + lane % 16 * kElements;
    dev::Vec<kKey.dtype, 16> parts[kRows / 2] = {};
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      const int token = 2 * i + lane / 16;
      if (token < chunk.tokens) dev::load_vector(parts[i], row + token * p.k.stride.token);
    }
    float squares[kRows / 2] = {};
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        squares[i] = fmaf(parts[i].get(e), parts[i].get(e), squares[i]);
      }
    }
    float square[1];
    dev::sum_over_warp<8>(squares, square);
    const int token = 2 * dev::number_of_own<kRows / 2, 8>(0) + lane / 16;
    growth = dev::log2_growth(betas[token], square[0]);
  }
  return dev::sum_over_lanes<32, 1>(growth);
}

// Of one head, whose gates are there, with one warp.
template <int kRows>
__device__ void store_decay(const GdnPrefillChunksParams& p, const Chunk& chunk, int slot, int head,
                            const dev::GatesOfHead& gates) {
  const float last = gates.sums[chunk.tokens - 1];
  float bound = kNoBound;
  if (is_bound_needed(chunks_to_segment(p, chunk), last)) {
    bound = last + growth_of<kRows>(p, chunk, head, gates.betas);
  }
  if (threadIdx.x % 32 != 0) return;
  static_cast<ChunkDecay*>(p.wy)[static_cast<long long>(slot) * p.heads + head] = {
      .decay = dev::exp2(last), .bound = bound};
}

}  // namespace
