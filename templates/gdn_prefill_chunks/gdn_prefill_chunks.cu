// First kernel of a prefill: what every chunk of tokens contributes that does not depend on the
// state, for all chunks and heads at once.  common/chunk/wy.h has the formulas.
//
// Decays of channels stand inside these products: channels.cuh has all that a block does then.
// Else:
//
// One block <-> one chunk of one sequence and heads_per_block heads that share a key and a query
// head.  k k^T and q k^T are computed once, by all warps, and so are the norms, which are on the
// diagonals of k k^T and q q^T; then a warp takes a head, inverts I + L and adds the gates.  The
// inverse is taken without gates, which a product of decays could not survive, and gated element by
// element afterwards, on its way from registers to the WY factors.
#include "common/chunk/make_wy.cuh"
#include "common/copy.cuh"
#include "common/launch.cuh"
#include "common/operands.cuh"
#include "common/shared.cuh"
#include "gdn_prefill_chunks/key.h"

#ifdef CUBINERY_KEY
constexpr cubinery::GdnPrefillChunksKey kKey = CUBINERY_KEY;
#else
constexpr cubinery::GdnPrefillChunksKey kKey{};  // stand-alone build: nvcc, clangd, profilers
#endif
static_assert(cubinery::valid(kKey), "gdn_prefill_chunks: key outside the tuning space");

#include "gdn_prefill_chunks/channels.cuh"
#include "gdn_prefill_chunks/chunk.cuh"
#include "gdn_prefill_chunks/decays.cuh"

namespace {

constexpr ChunkWy kWy = chunk_wy(kChunk, kKey.dtype);
constexpr int kHeadRowsBytes = kChunk * kStride * size_of(kKey.dtype);

using Maker = dev::WyMaker<dev::wy_shape(kKey)>;

// fp32 tiles over the dead rows of k and q: k^ k^T and scale q^ k^T.  Behind them, what the inverse
// of the warp's head takes, then norms and the heads' gates.
__device__ Maker producer() {
  auto* const tiles = reinterpret_cast<float*>(shared);
  auto* const norms = reinterpret_cast<float*>(shared + tile_area_bytes(kKey));
  return {.kk_tiles = tiles,
          .qk_tiles = tiles + Maker::kTilesBytes / 4,
          .norms = {.k = norms, .q = norms + kChunk}};
}
__device__ float* inverse_scratch() {
  return reinterpret_cast<float*>(shared + 2 * Maker::kTilesBytes +
                                  threadIdx.x / 32 * kInverseScratchBytes);
}
__device__ dev::GatesOfHead gates_of(int head) {
  float* const sums = producer().norms.q + (1 + 2 * head) * kChunk;
  return {.sums = sums, .betas = sums + kChunk};
}

constexpr int kTokensOfLane = dev::tokens_of_lane(kChunk);
constexpr int kHeadsOfWarp = (kMaxHeadsPerBlock + kKey.warps - 1) / kKey.warps;

// The gates of the block's heads, a warp for each.  All are loaded before one is waited for, which
// is worth a fifth of the kernel.
struct Gates {
  dev::GivenGates given[kHeadsOfWarp][kTokensOfLane];
};

__device__ void load_gates(Gates& gates, const GdnPrefillChunksParams& p, const Chunk& chunk,
                           int first_head) {
#pragma unroll
  for (int n = 0; n < kHeadsOfWarp; ++n) {
    const int i = threadIdx.x / 32 + n * kKey.warps;
#pragma unroll
    for (int e = 0; e < kTokensOfLane; ++e) {
      const int token = threadIdx.x % 32 * kTokensOfLane + e;
      if (i >= p.heads_per_block || token >= chunk.tokens) continue;
      gates.given[n][e] = dev::load_gates<kKey>(
          p.gates, TokenStrides::At{chunk.batch, chunk.first + token, first_head + i});
    }
  }
}

// Writes the sums of g inside the chunk, and the betas.
__device__ void store_gates(const Gates& gates, const GdnPrefillChunksParams& p, int tokens,
                            int first_head) {
#pragma unroll
  for (int n = 0; n < kHeadsOfWarp; ++n) {
    const int i = threadIdx.x / 32 + n * kKey.warps;
    if (i >= p.heads_per_block) break;
    dev::store_gates<kKey, kChunk>(
        gates_of(i), dev::gates_of_tokens<kKey>(p.gates, first_head + i, p.lower_bound),
        gates.given[n], tokens);
  }
}

// Calls f.operator()<product, first row>() for what is this warp's: a branch for each warp, so that
// every row is known when the kernel is compiled.
template <int kWarp = 0, class Function>
__device__ void for_rows_of_warp(Function f) {
  if constexpr (kKey.warps == 1) {
    f.template operator()<dev::kKeys, 0>(0);
    f.template operator()<dev::kQueries, 0>(1);
  } else {
    if (threadIdx.x / 32 == kWarp) {
      constexpr int kFirst = kWarp / 2;
      if constexpr (kFirst < Maker::kBlocks) {
        f.template operator()<kWarp % 2 == 0 ? dev::kKeys : dev::kQueries, kFirst>(0);
      }
    } else if constexpr (kWarp + 1 < kKey.warps) {
      for_rows_of_warp<kWarp + 1>(f);
    }
  }
}

// The WY factors of heads that share their keys and queries.
__device__ void make_head_wy(const GdnPrefillChunksParams& p, const Chunk& chunk, int slot,
                             int first_head) {
  Gates gates;
  load_gates(gates, p, chunk, first_head);
  copy_rows<dev::PlainRows<kStride * size_of(kKey.dtype)>>(p, chunk, first_head, kHeadRowsBytes);
  store_gates(gates, p, chunk.tokens, first_head);
  dev::wait_copies<0>();
  // Orders everybody's copies before the products and norms.
  __syncthreads();
  const RowMatrix k{dev::shared_address(shared)};
  const RowMatrix q{k.address + kHeadRowsBytes};
  Maker::Rows rows[kKey.warps == 1 ? 2 : 1];
  for_rows_of_warp([&]<dev::Product kProduct, int kFirst>(int n) {
    producer().template multiply_rows<kProduct, kFirst>(rows[n], k, q);
    producer().template store_norms<kProduct, kFirst>(rows[n]);
  });
  // Orders the norms before their use, and the last reading of the rows before the tiles that
  // overwrite them.
  __syncthreads();
  for_rows_of_warp([&]<dev::Product kProduct, int kFirst>(int n) {
    producer().template store_rows<kProduct, kFirst>(rows[n], p.scale);
  });

  // Orders products and gates before what each warp makes of them.
  __syncthreads();
  for (int i = threadIdx.x / 32; i < p.heads_per_block; i += kKey.warps) {
    const dev::GatesOfHead of_head = gates_of(i);
    Maker::Inverse inverse(producer().kk_tiles, of_head.betas, inverse_scratch());
    inverse.compute();
    char* wy = static_cast<char*>(p.wy) +
               (static_cast<long long>(slot) * p.heads + first_head + i) * kWy.bytes;
    producer().store_matrices(wy, inverse, of_head);
    producer().store_vectors(wy, of_head, chunk.tokens, p.scale);
  }
}

// What they decay, and no more.
template <int kRows = kChunk>
__device__ void make_head_decays(const GdnPrefillChunksParams& p, const Chunk& chunk, int slot,
                                 int first_head) {
  Gates gates;
  load_gates(gates, p, chunk, first_head);
  store_gates(gates, p, chunk.tokens, first_head);
  // Orders a head's gates before their reading, by the same warp.
  __syncwarp();
  for (int i = threadIdx.x / 32; i < p.heads_per_block; i += kKey.warps) {
    store_decay<kRows>(p, chunk, slot, first_head + i, gates_of(i));
  }
}

// Writes the place of sequence n in the order, with the whole block.
__device__ void rank_sequence(const GdnPrefillChunksParams& p, int n) {
  dev::rank_sequence<kKey.cu_seqlens_dtype, threads(kKey)>(n, p.cu_seqlens, p.sequences, p.tokens,
                                                           p.order, reinterpret_cast<int*>(shared));
  // Orders the use of `shared` there before the rows'.
  __syncthreads();
}

// Shared memory of older architectures does not hold three.
consteval int blocks_that_fit() {
  constexpr int kBlocks = resident_blocks(kKey);
#if __CUDA_ARCH__ >= 900
  return kBlocks;
#else
  return kBlocks < 2 ? kBlocks : 2;
#endif
}

// All that a block does behind the kernel in front.
__device__ void make_wy_of_heads(const GdnPrefillChunksParams& p, int slot, int first_head) {
  if constexpr (kKey.varlen) {
    if (first_head == 0 && slot < p.sequences) rank_sequence(p, slot);
  }
  const Chunk chunk = chunk_of(p, slot);
  if (chunk.tokens == 0) return;  // all threads
  if constexpr (kKey.only_decays) {
    make_head_decays(p, chunk, slot, first_head);
  } else {
    make_head_wy(p, chunk, slot, first_head);
  }
}
__device__ void make_wy_of_pairs(const GdnPrefillChunksParams& p) {
  if constexpr (kKey.varlen) {
    for (int n = blockIdx.x; n < p.sequences; n += gridDim.x) rank_sequence(p, n);
  }
  make_channel_wy(p);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(threads(kKey), blocks_that_fit())
    gdn_prefill_chunks(const __grid_constant__ GdnPrefillChunksParams p) {
  const int head_blocks = p.heads / p.heads_per_block;
  const int slot = blockIdx.x / head_blocks;
  const int first_head = blockIdx.x % head_blocks * p.heads_per_block;
  dev::wait_for_previous_kernel();
  for (long long i = 1LL * blockIdx.x * threads(kKey) + threadIdx.x; i < p.counters;
       i += 1LL * gridDim.x * threads(kKey)) {
    p.zeroed[i] = 0;
  }
  if constexpr (kKey.inputs.decay == gdn::Decay::kChannel) {
    make_wy_of_pairs(p);
  } else {
    make_wy_of_heads(p, slot, first_head);
  }
}
