// First kernel of a prefill: what every chunk of tokens contributes that does not depend on the
// state, for all chunks and heads at once.  common/chunk_record.h has the formulas.
//
// One block <-> one chunk of one sequence and heads_per_block heads that share a key and a query
// head.  k k^T and q k^T are computed once, by all warps; then a warp takes a head, inverts I + L
// and adds the gates.  The inverse is taken without gates, which a product of decays could not
// survive, and gated element by element afterwards.
#include "common/copy.cuh"
#include "common/gates.cuh"
#include "common/inverse.cuh"
#include "common/launch.cuh"
#include "common/norm.cuh"
#include "common/operands.cuh"
#include "common/sequences.cuh"
#include "common/shared.cuh"
#include "common/tile.cuh"
#include "common/warp.cuh"
#include "gdn_prefill_chunks/key.h"

#ifdef CUBINERY_KEY
constexpr cubinery::GdnPrefillChunksKey kKey = CUBINERY_KEY;
#else
constexpr cubinery::GdnPrefillChunksKey kKey{};  // stand-alone build: nvcc, clangd, profilers
#endif
static_assert(cubinery::valid(kKey), "gdn_prefill_chunks: key outside the tuning space");

namespace {

using namespace cubinery;  // NOLINT: a translation unit of its own

constexpr DType kF32 = DType::kF32;
constexpr int kChunk = kKey.chunk_size;
constexpr int kBlocks = kChunk / 16;  // tiles along a side of the chunk's matrices
constexpr int kTiles = lower_tiles(kChunk);
constexpr int kTilesOfWarp = (kTiles + kKey.warps - 1) / kKey.warps;
constexpr int kStride = padded_row(kKey.key_dim, kKey.dtype);
constexpr int kRowsBytes = kChunk * kStride * size_of(kKey.dtype);
constexpr int kTilesBytes = kTiles * 16 * 16 * 4;
constexpr ChunkRecord kRecord = chunk_record(kChunk, kKey.dtype);
constexpr float kLog2e = 1.4426950408889634f;

extern __shared__ __align__(16) unsigned char shared[];

// fp32 tiles over the dead rows of k and q: k^ k^T, scale q^ k^T, and the inverse of the warp's
// head.
__device__ float* kk_tiles() { return reinterpret_cast<float*>(shared); }
__device__ float* qk_tiles() { return reinterpret_cast<float*>(shared + kTilesBytes); }
__device__ float* inverse_tiles() {
  return reinterpret_cast<float*>(shared + (2 + threadIdx.x / 32) * kTilesBytes);
}
__device__ float* k_norms() { return reinterpret_cast<float*>(shared + tile_area_bytes(kKey)); }
__device__ float* q_norms() { return k_norms() + kChunk; }
__device__ float* gate_sums(int head) { return q_norms() + (1 + 2 * head) * kChunk; }
__device__ float* betas(int head) { return gate_sums(head) + kChunk; }

struct Chunk {
  long long batch;
  long long first;  // token
  int tokens;       // fewer than kChunk at the end of a sequence
};

// Sums of g inside the chunk, for base 2, and betas of the block's heads, a warp for each head.
// Tokens behind the sequence's end neither decay nor write.
__device__ void load_gates(const GdnPrefillChunksParams& p, const Chunk& chunk, int first_head) {
  constexpr int kEach = kChunk > 32 ? kChunk / 32 : 1;  // neighbouring tokens of a lane
  const int lane = threadIdx.x % 32;
  for (int i = threadIdx.x / 32; i < p.heads_per_block; i += kKey.warps) {
    float sums[kEach];
    float sum = 0.0f;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int token = lane * kEach + e;
      const bool exists = token < chunk.tokens;
      const TokenStrides::At at{chunk.batch, chunk.first + token, first_head + i};
      if (exists) sum += dev::log_decay_of<kKey>(p.gates, at);
      sums[e] = sum;
      const float beta = exists ? dev::beta_of<kKey>(p.gates, at) : 0.0f;
      if (token < kChunk) betas(i)[token] = beta;
    }
    const float before = dev::sum_of_lanes_before(sum);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int token = lane * kEach + e;
      if (token < kChunk) gate_sums(i)[token] = (before + sums[e]) * kLog2e;
    }
  }
}

// The inverse norms of the rows; 1 without use_qk_l2norm.
__device__ void compute_norms(float* norms, const unsigned char* rows) {
  if constexpr (kKey.inputs.use_qk_l2norm) {
    dev::inverse_norms<kKey.dtype, kChunk, kKey.key_dim, kStride, threads(kKey)>(norms, rows);
  } else {
    for (int row = threadIdx.x; row < kChunk; row += threads(kKey)) norms[row] = 1.0f;
  }
}

struct Position {
  int row, column;
};
// Of the i-th lower tile, row by row.
__device__ Position lower_position(int i) {
  int row = 0;
#pragma unroll
  for (int r = 1; r < kBlocks; ++r) row += lower_tile(r, 0) <= i;
  return {row, i - lower_tile(row, 0)};
}

// The warp's tiles of k k^T and q k^T, from the rows in shared memory.
__device__ void multiply_rows(dev::Acc (&kk)[kTilesOfWarp], dev::Acc (&qk)[kTilesOfWarp]) {
  const dev::SharedMatrix<kKey.dtype, kStride> k{dev::shared_address(shared)};
  const dev::SharedMatrix<kKey.dtype, kStride> q{dev::shared_address(shared + kRowsBytes)};
#pragma unroll
  for (int i = 0; i < kTilesOfWarp; ++i) {
    kk[i] = {};
    qk[i] = {};
    const int tile = threadIdx.x / 32 + i * kKey.warps;
    if (tile >= kTiles) return;
    const Position at = lower_position(tile);
#pragma unroll 4
    for (int d = 0; d < kKey.key_dim; d += 16) {
      const auto right = k.load(16 * at.column, d);
      dev::mma(kk[i], k.template load<true>(16 * at.row, d), right);
      dev::mma(qk[i], q.template load<true>(16 * at.row, d), right);
    }
  }
}

// x[i][j] *= rows[i] * columns[j].
__device__ void scale_tile(dev::Acc& acc, const float* rows, const float* columns) {
  dev::for_each_element([&](int r, int c, int j) {
    acc.x[r][c][j] *= rows[dev::tile_row() + 8 * r] * columns[dev::tile_column() + 8 * c + j];
  });
}

__device__ void store_products(const dev::Acc (&kk)[kTilesOfWarp],
                               const dev::Acc (&qk)[kTilesOfWarp], float scale) {
#pragma unroll
  for (int i = 0; i < kTilesOfWarp; ++i) {
    const int tile = threadIdx.x / 32 + i * kKey.warps;
    if (tile >= kTiles) return;
    const Position at = lower_position(tile);
    dev::Acc k = kk[i];
    dev::Acc q = qk[i];
    scale_tile(k, k_norms() + 16 * at.row, k_norms() + 16 * at.column);
    scale_tile(q, q_norms() + 16 * at.row, k_norms() + 16 * at.column);
    dev::for_each_element([&](int r, int c, int j) { q.x[r][c][j] *= scale; });
    dev::store_tile<kF32>(kk_tiles(), tile, dev::round_to<kF32>(k));
    dev::store_tile<kF32>(qk_tiles(), tile, dev::round_to<kF32>(q));
  }
}

// Gates both matrices and writes them, with one warp.
__device__ void store_matrices(char* record, const float* sums, const float* beta) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const Position at = lower_position(tile);
    dev::Acc t =
        dev::to_float<kF32>(dev::load_tile<kF32>(dev::shared_address(inverse_tiles()), tile));
    dev::Acc s = dev::to_float<kF32>(dev::load_tile<kF32>(dev::shared_address(qk_tiles()), tile));
    dev::for_each_element([&](int r, int c, int j) {
      const int row = 16 * at.row + dev::tile_row() + 8 * r;
      const int column = 16 * at.column + dev::tile_column() + 8 * c + j;
      const float decay = dev::exp2(sums[row] - sums[column]);
      t.x[r][c][j] *= decay * beta[column];
      s.x[r][c][j] *= decay;
      if (at.row == at.column && row < column) t.x[r][c][j] = s.x[r][c][j] = 0.0f;
    });
    dev::store_tile<kKey.dtype>(record, tile, dev::round_to<kKey.dtype>(t));
    dev::store_tile<kKey.dtype>(record + kRecord.attention, tile, dev::round_to<kKey.dtype>(s));
  }
}

// Element (i, i) of fp32 tiles.
__device__ float diagonal(const float* tiles, int i) {
  return tiles[lower_tile(i / 16, i / 16) * 256 + dev::tile_element(i % 16, i % 16)];
}

// The logarithm of max(1, |1 - beta k^2|).  NOTE: fmaxf would drop a NaN.
__device__ float log2_growth(float beta, float k_squared) {
  const float factor = fabsf(1.0f - beta * k_squared);
  return factor <= 1.0f ? 0.0f : __log2f(factor);
}

// The record's vectors, with one warp.  `tokens` are there.  NOTE: sums behind the last one differ
// from its own by rounding.
__device__ void store_factors(char* record, const float* sums, const float* beta, int tokens,
                              float scale) {
  const float last = sums[tokens - 1];
  const int lane = threadIdx.x % 32;
  float growth = 0.0f;
  for (int i = lane; i < kChunk; i += 32) {
    growth += log2_growth(beta[i], diagonal(kk_tiles(), i));
    const float decay = dev::exp2(sums[i]);
    reinterpret_cast<float*>(record + kRecord.k_in)[i] = k_norms()[i] * decay;
    reinterpret_cast<float*>(record + kRecord.q_in)[i] = scale * q_norms()[i] * decay;
    reinterpret_cast<float*>(record + kRecord.v_out)[i] = k_norms()[i] * dev::exp2(last - sums[i]);
  }
  growth = dev::sum_over_lanes<32, 1>(growth);
  if (lane == 0) {
    *reinterpret_cast<float*>(record + kRecord.decay) = dev::exp2(last);
    *reinterpret_cast<float*>(record + kRecord.bound) = last + growth;
  }
}

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
          .tokens = inside ? static_cast<int>(tokens) : 0};
}

}  // namespace

extern "C" __global__ void __launch_bounds__(threads(kKey), 1)
    gdn_prefill_chunks(const __grid_constant__ GdnPrefillChunksParams p) {
  const int head_blocks = p.heads / p.heads_per_block;
  const int slot = blockIdx.x / head_blocks;
  const int first_head = blockIdx.x % head_blocks * p.heads_per_block;
  dev::wait_for_previous_kernel();
  for (long long i = 1LL * blockIdx.x * threads(kKey) + threadIdx.x; i < p.counters;
       i += 1LL * gridDim.x * threads(kKey)) {
    p.zeroed[i] = 0;
  }
  if constexpr (kKey.varlen) {
    if (first_head == 0 && slot < p.sequences) {
      dev::rank_sequence<kKey.cu_seqlens_dtype, threads(kKey)>(
          slot, p.cu_seqlens, p.sequences, p.tokens, p.order, reinterpret_cast<int*>(shared));
      // Orders the use of `shared` there before the rows'.
      __syncthreads();
    }
  }
  const Chunk chunk = chunk_of(p, slot);
  if (chunk.tokens == 0) return;  // all threads

  using Copier = dev::RowCopier<kKey.dtype, kChunk, kKey.key_dim, kStride, threads(kKey)>;
  Copier(p.k, dev::row_at<kKey.dtype>(p.k, {chunk.batch, chunk.first, first_head}))
      .copy_next(dev::shared_address(shared), chunk.tokens, p.k);
  Copier(p.q, dev::row_at<kKey.dtype>(p.q, {chunk.batch, chunk.first, first_head}))
      .copy_next(dev::shared_address(shared + kRowsBytes), chunk.tokens, p.q);
  dev::commit_copies();
  load_gates(p, chunk, first_head);
  dev::wait_copies<0>();
  // Orders everybody's copies before the products and norms.
  __syncthreads();
  compute_norms(k_norms(), shared);
  compute_norms(q_norms(), shared + kRowsBytes);
  dev::Acc kk[kTilesOfWarp];
  dev::Acc qk[kTilesOfWarp];
  multiply_rows(kk, qk);
  // Orders the norms before their use, and the last reading of the rows before the tiles that
  // overwrite them.
  __syncthreads();
  store_products(kk, qk, p.scale);

  // Orders products and gates before what each warp makes of them.
  __syncthreads();
  // One tf32 product is as exact as bf16 calls for; f16 and f32 take pairs.
  using Inverse = dev::UnitLowerInverse<kBlocks, kKey.dtype != DType::kBF16>;
  for (int i = threadIdx.x / 32; i < p.heads_per_block; i += kKey.warps) {
    Inverse(inverse_tiles(), kk_tiles(), betas(i)).compute();
    char* record = static_cast<char*>(p.records) +
                   (static_cast<long long>(slot) * p.heads + first_head + i) * kRecord.bytes;
    store_matrices(record, gate_sums(i), betas(i));
    store_factors(record, gate_sums(i), betas(i), chunk.tokens, p.scale);
  }
}
