// First kernel of a prefill: what every chunk of tokens contributes that does not depend on the
// state, for all chunks and heads at once.  common/chunk_record.h has the formulas.
//
// One block <-> one chunk of one sequence and heads_per_block heads that share a key and a query
// head.  k k^T and q k^T are computed once, by all warps, and so are the norms, which are on the
// diagonals of k k^T and q q^T; then a warp takes a head, inverts I + L and adds the gates.  The
// inverse is taken without gates, which a product of decays could not survive, and gated element by
// element afterwards, on its way from registers to the record.
#include "common/copy.cuh"
#include "common/given_gates.cuh"
#include "common/inverse.cuh"
#include "common/launch.cuh"
#include "common/norm.cuh"
#include "common/operands.cuh"
#include "common/record_tiles.cuh"
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

constexpr int kChunk = kKey.chunk_size;
constexpr int kBlocks = kChunk / 16;  // tiles along a side of the chunk's matrices
constexpr int kTilesBytes = lower_tiles(kChunk) * 16 * 16 * 4;
constexpr int kStride = padded_row(kKey.key_dim, kKey.dtype);
constexpr int kRowsBytes = kChunk * kStride * size_of(kKey.dtype);
constexpr ChunkRecord kRecord = chunk_record(kChunk, kKey.dtype);
constexpr float kLog2e = 1.4426950408889634f;

extern __shared__ __align__(16) unsigned char shared[];

// fp32 tiles over the dead rows of k and q: k^ k^T and scale q^ k^T.  Behind them, what the inverse
// of the warp's head takes.
__device__ float* kk_tiles() { return reinterpret_cast<float*>(shared); }
__device__ float* qk_tiles() { return reinterpret_cast<float*>(shared + kTilesBytes); }
__device__ float* inverse_scratch() {
  return reinterpret_cast<float*>(shared + 2 * kTilesBytes +
                                  threadIdx.x / 32 * kInverseScratchBytes);
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

constexpr int kTokensOfLane = kChunk > 32 ? kChunk / 32 : 1;  // neighbouring ones
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

// Writes the sums of g inside the chunk, for base 2, and the betas.  Tokens behind the sequence's
// end neither decay nor write.
__device__ void store_gates(const Gates& gates, const GdnPrefillChunksParams& p, int tokens,
                            int first_head) {
  const int first_token = threadIdx.x % 32 * kTokensOfLane;
#pragma unroll
  for (int n = 0; n < kHeadsOfWarp; ++n) {
    const int i = threadIdx.x / 32 + n * kKey.warps;
    if (i >= p.heads_per_block) break;
    float sums[kTokensOfLane];
    float sum = 0.0f;
#pragma unroll
    for (int e = 0; e < kTokensOfLane; ++e) {
      const dev::GivenGates& given = gates.given[n][e];
      const bool exists = first_token + e < tokens;
      if (exists) sum += dev::log_decay_of<kKey>(p.gates, given, first_head + i);
      sums[e] = sum;
      const float beta = exists ? dev::beta_of<kKey>(given) : 0.0f;
      if (first_token + e < kChunk) betas(i)[first_token + e] = beta;
    }
    const float before = dev::sum_of_lanes_before(sum);
#pragma unroll
    for (int e = 0; e < kTokensOfLane; ++e) {
      if (first_token + e < kChunk) {
        gate_sums(i)[first_token + e] = (before + sums[e]) * kLog2e;
      }
    }
  }
}

// Rows of tiles of the products go round the warps; with two and four, a warp has rows of one
// product only.
enum Product { kKeys, kQueries };  // k k^T, q k^T
constexpr int kWarpsOfProduct = kKey.warps > 1 ? kKey.warps / 2 : 1;
constexpr int kRowsOfWarp = (kBlocks + kWarpsOfProduct - 1) / kWarpsOfProduct;

// Some rows of tiles of a product, by a warp.
struct Rows {
  dev::Acc tiles[kRowsOfWarp][kBlocks];
  dev::Acc squares[kRowsOfWarp];  // of q: the diagonal tiles of q q^T
};

// Rows kFirst, kFirst + kWarpsOfProduct, ... from what is in shared memory.
template <Product kProduct, int kFirst>
__device__ void multiply_rows(Rows& rows) {
  const dev::SharedMatrix<kKey.dtype, kStride> k{dev::shared_address(shared)};
  const dev::SharedMatrix<kKey.dtype, kStride> left{k.address + kProduct * kRowsBytes};
  rows = {};
#pragma unroll(kKey.dtype == DType::kF32 ? 2 : 8)
  for (int d = 0; d < kKey.key_dim; d += 16) {
    dev::Tile<kKey.dtype> a[kRowsOfWarp];
#pragma unroll
    for (int i = 0; i < kRowsOfWarp; ++i) {
      const int row = kFirst + i * kWarpsOfProduct;
      if (row < kBlocks) a[i] = left.template load<true>(16 * row, d);
    }
#pragma unroll
    for (int column = 0; column < kBlocks; ++column) {
      if (column > kFirst + (kRowsOfWarp - 1) * kWarpsOfProduct) break;
      // Keys may be in the warp's registers already.
      const int held = (column - kFirst) / kWarpsOfProduct;
      const bool holds = kProduct == kKeys && column == kFirst + held * kWarpsOfProduct;
      const auto b = holds ? a[held] : k.load(16 * column, d);
#pragma unroll
      for (int i = 0; i < kRowsOfWarp; ++i) {
        const int row = kFirst + i * kWarpsOfProduct;
        if (row < kBlocks && column <= row) dev::mma(rows.tiles[i][column], a[i], b);
      }
    }
    if constexpr (kProduct == kQueries && kKey.inputs.use_qk_l2norm) {
#pragma unroll
      for (int i = 0; i < kRowsOfWarp; ++i) {
        if (kFirst + i * kWarpsOfProduct < kBlocks) dev::mma(rows.squares[i], a[i], a[i]);
      }
    }
  }
}

// Writes the inverse norms of the rows of k or q, from the squares on the diagonal; 1 without
// use_qk_l2norm.
template <Product kProduct, int kFirst>
__device__ void store_norms(const Rows& rows) {
  // The lane that holds elements (j, j) and (j + 8, j + 8) of a tile.
  if (dev::tile_row() / 2 != threadIdx.x % 4) return;
  const int odd = dev::tile_row() % 2;
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const int row = kFirst + i * kWarpsOfProduct;
    if (row >= kBlocks) break;
    const dev::Acc& squares = kProduct == kKeys ? rows.tiles[i][row] : rows.squares[i];
    float* norms = (kProduct == kKeys ? k_norms() : q_norms()) + 16 * row + dev::tile_row();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float square = odd ? squares.x[r][r][1] : squares.x[r][r][0];
      norms[8 * r] = kKey.inputs.use_qk_l2norm ? dev::inverse_norm(square) : 1.0f;
    }
  }
}

// Writes the rows, scaled.
template <Product kProduct, int kFirst>
__device__ void store_rows(Rows& rows, float scale) {
  const float* row_norms = kProduct == kKeys ? k_norms() : q_norms();
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const int row = kFirst + i * kWarpsOfProduct;
    if (row >= kBlocks) break;
    float factors[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factors[r] = row_norms[16 * row + dev::tile_row() + 8 * r];
      if (kProduct == kQueries) factors[r] *= scale;
    }
#pragma unroll
    for (int column = 0; column <= row; ++column) {
      const float* columns = k_norms() + 16 * column + dev::tile_column();
      dev::Acc& tile = rows.tiles[i][column];
      dev::for_each_element(
          [&](int r, int c, int j) { tile.x[r][c][j] *= factors[r] * columns[8 * c + j]; });
      dev::store_tile(kProduct == kKeys ? kk_tiles() : qk_tiles(), lower_tile(row, column),
                      dev::round_to<DType::kF32>(tile));
    }
  }
}

// Calls f.operator()<product, first row>() for what is this warp's: a branch for each warp, so that
// every row is known when the kernel is compiled.
template <int kWarp = 0, class Function>
__device__ void for_rows_of_warp(Function f) {
  if constexpr (kKey.warps == 1) {
    f.template operator()<kKeys, 0>(0);
    f.template operator()<kQueries, 0>(1);
  } else {
    if (threadIdx.x / 32 == kWarp) {
      constexpr int kFirst = kWarp / 2;
      if constexpr (kFirst < kBlocks) {
        f.template operator()<kWarp % 2 == 0 ? kKeys : kQueries, kFirst>(0);
      }
    } else if constexpr (kWarp + 1 < kKey.warps) {
      for_rows_of_warp<kWarp + 1>(f);
    }
  }
}

// Gates both matrices and writes them, with one warp.
template <class Inverse>
__device__ void store_matrices(char* record, const Inverse& inverse, const float* sums,
                               const float* beta) {
#pragma unroll
  for (int row = 0; row < kBlocks; ++row) {
#pragma unroll
    for (int column = 0; column <= row; ++column) {
      const int tile = lower_tile(row, column);
      dev::Acc t = inverse.block(row, column);
      dev::Acc s =
          dev::to_float(dev::load_tile<DType::kF32>(dev::shared_address(qk_tiles()), tile));
      dev::for_each_element([&](int r, int c, int j) {
        const int i = dev::tile_row() + 8 * r;
        const int m = dev::tile_column() + 8 * c + j;
        const float decay = dev::exp2(sums[16 * row + i] - sums[16 * column + m]);
        t.x[r][c][j] *= decay * beta[16 * column + m];
        s.x[r][c][j] *= decay;
        const bool above = row == column && (r < c || (r == c && i < m));
        if (above) t.x[r][c][j] = s.x[r][c][j] = 0.0f;
      });
      const int place = record_tile(row, column, kChunk);
      dev::store_record_tile<kKey.dtype>(record, place, dev::round_to<kKey.dtype>(t));
      dev::store_record_tile<kKey.dtype>(record + kRecord.attention, place,
                                         dev::round_to<kKey.dtype>(s));
    }
  }
}

// Element (i, i) of fp32 tiles.
__device__ float diagonal(const float* tiles, int i) {
  return tiles[lower_tile(i / 16, i / 16) * 256 + dev::tile_element<DType::kF32>(i % 16, i % 16)];
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

  using Copier = dev::RowCopier<kKey.dtype, kChunk, kKey.key_dim,
                                dev::PlainRows<kStride * size_of(kKey.dtype)>, threads(kKey)>;
  Gates gates;
  load_gates(gates, p, chunk, first_head);
  Copier(p.k, dev::row_at<kKey.dtype>(p.k, {chunk.batch, chunk.first, first_head}))
      .copy_next(dev::shared_address(shared), chunk.tokens, p.k);
  Copier(p.q, dev::row_at<kKey.dtype>(p.q, {chunk.batch, chunk.first, first_head}))
      .copy_next(dev::shared_address(shared + kRowsBytes), chunk.tokens, p.q);
  dev::commit_copies();
  store_gates(gates, p, chunk.tokens, first_head);
  dev::wait_copies<0>();
  // Orders everybody's copies before the products and norms.
  __syncthreads();
  Rows rows[kKey.warps == 1 ? 2 : 1];
  for_rows_of_warp([&]<Product kProduct, int kFirst>(int n) {
    multiply_rows<kProduct, kFirst>(rows[n]);
    store_norms<kProduct, kFirst>(rows[n]);
  });
  // Orders the norms before their use, and the last reading of the rows before the tiles that
  // overwrite them.
  __syncthreads();
  for_rows_of_warp(
      [&]<Product kProduct, int kFirst>(int n) { store_rows<kProduct, kFirst>(rows[n], p.scale); });

  // Orders products and gates before what each warp makes of them.
  __syncthreads();
  // One tf32 product is as exact as bf16 calls for; f16 and f32 take pairs.
  using Inverse = dev::UnitLowerInverse<kBlocks, kKey.dtype != DType::kBF16>;
  for (int i = threadIdx.x / 32; i < p.heads_per_block; i += kKey.warps) {
    Inverse inverse(kk_tiles(), betas(i), inverse_scratch());
    inverse.compute();
    char* record = static_cast<char*>(p.records) +
                   (static_cast<long long>(slot) * p.heads + first_head + i) * kRecord.bytes;
    store_matrices(record, inverse, gate_sums(i), betas(i));
    store_factors(record, gate_sums(i), betas(i), chunk.tokens, p.scale);
  }
}
