// What a chunk's WY factors (wy.h) is made of: gates, the products of the chunk's keys and
// queries, the inverse.  For the kernel that makes all WY factors, a block for each chunk, and for
// one that makes them beside what takes them, a warp for each.
#pragma once

#include "common/chunk/inverse.cuh"
#include "common/chunk/wy.h"
#include "common/chunk/wy_tiles.cuh"
#include "common/gates.cuh"
#include "common/norm.cuh"
#include "common/shared.cuh"
#include "common/tile/tile.cuh"
#include "common/warp.cuh"

namespace cubinery::dev {

constexpr float kLog2e = 1.4426950408889634f;

// Neighbouring tokens of a chunk whose gates a lane has.
constexpr int tokens_of_lane(int chunk_size) { return chunk_size > 32 ? chunk_size / 32 : 1; }

// The sums of a head's g inside a chunk, for base 2, and its betas, both in shared memory.
struct GatesOfHead {
  float* sums;
  float* betas;
};

// Writes them, with one warp.  Tokens from `tokens` on, behind the sequence's end, neither decay
// nor write.  Returns the sum at this lane's last token.
template <auto kKey, int kChunk>
__device__ float store_gates(const GatesOfHead& to, const GatesOfTokens& all,
                             const GivenGates (&given)[tokens_of_lane(kChunk)], int tokens) {
  constexpr int kEach = tokens_of_lane(kChunk);
  const int first_token = threadIdx.x % 32 * kEach;
  float sums[kEach];
  float sum = 0.0f;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const bool exists = first_token + e < tokens;
    if (exists) sum += log_decay_of<kKey>(all, given[e]);
    sums[e] = sum;
    const float beta = exists ? beta_of<kKey>(given[e]) : 0.0f;
    if (first_token + e < kChunk) to.betas[first_token + e] = beta;
  }
  const float before = sum_of_lanes_before(sum);
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    if (first_token + e < kChunk) to.sums[first_token + e] = (before + sums[e]) * kLog2e;
  }
  return (before + sum) * kLog2e;
}

// Gates tile (row, column) of a chunk's matrix: element (i, j) of that is multiplied by
// e^(G_i - G_j) factor(i, j), and 0 above the diagonal, whatever it was.  `sums`: of g.
template <class Factor>
__device__ void gate_tile(Acc& tile, int row, int column, const float* sums, Factor factor) {
  for_each_element([&](int r, int c, int e) {
    const int i = tile_row() + 8 * r, j = tile_column() + 8 * c + e;  // in the tile
    float& x = tile.x[r][c][e];
    x *= dev::exp2(sums[16 * row + i] - sums[16 * column + j]) *
         factor(16 * row + i, 16 * column + j);
    if (row == column && (r < c || (r == c && i < j))) x = 0.0f;
  });
}

// Inverse norms of the rows of k and q of a chunk, in shared memory; none without use_qk_l2norm.
template <bool kExist>
struct Norms {
  float* k;
  float* q;

  __device__ float of_k(int i) const { return kExist ? k[i] : 1.0f; }
  __device__ float of_q(int i) const { return kExist ? q[i] : 1.0f; }

  // Writes those of 16 rows, to the first's place, from the squares on a tile's diagonal.
  static __device__ void store(float* norms, const Acc& squares) {
    if constexpr (kExist) {
      for_diagonal(squares, [&](int i, float square) { norms[i] = inverse_norm(square); });
    }
  }
};

// What a token's key and value are multiplied by on their ways to the state and from it, norms
// aside.  NOTE: sums behind a sequence's end differ from its last by rounding.
struct TokenFactors {
  float in, out;

  __device__ TokenFactors(float sum, float last) : in(dev::exp2(sum)), out(dev::exp2(last - sum)) {}

  // Writes those of token i to the WY factors, whose byte k_in is at `to`.
  template <ChunkWy kWy, bool kNorms>
  __device__ void store(char* to, int i, const Norms<kNorms>& norms, float beta,
                        float scale) const {
    auto* const factors = reinterpret_cast<float*>(to) + i;
    factors[0] = norms.of_k(i) * in;
    factors[(kWy.q_in - kWy.k_in) / 4] = scale * norms.of_q(i) * in;
    factors[(kWy.v_out - kWy.k_in) / 4] = norms.of_k(i) * out * beta;
  }
};

// The logarithm of max(1, |1 - beta k^2|).  NOTE: fmaxf would drop a NaN.
__device__ inline float log2_growth(float beta, float k_squared) {
  const float factor = fabsf(1.0f - beta * k_squared);
  return factor <= 1.0f ? 0.0f : __log2f(factor);
}

enum Product { kKeys, kQueries };  // k k^T, q k^T

struct WyShape {
  DType dtype;
  int chunk_size;
  int key_dim;
  bool use_qk_l2norm;
  int warps;  // that make the products of a chunk together: 1, 2 or 4
};
// Of a kernel whose warps all do.
template <class Key>
constexpr WyShape wy_shape(const Key& key) {
  return {.dtype = key.dtype,
          .chunk_size = key.chunk_size,
          .key_dim = key.key_dim,
          .use_qk_l2norm = key.inputs.use_qk_l2norm,
          .warps = key.warps};
}

// The products of a chunk, by kShape.warps warps, and what one warp makes of them for a head.  In
// shared memory it keeps fp32 tiles, as they are stored, of k^ k^T and of scale q^ k^T.
template <WyShape kShape>
struct WyMaker {
  static constexpr int kChunk = kShape.chunk_size;
  static constexpr int kBlocks = kChunk / 16;  // tiles along a side of the chunk's matrices
  static constexpr int kTilesBytes = lower_tiles(kChunk) * 16 * 16 * 4;
  static constexpr ChunkWy kWy = chunk_wy(kChunk, kShape.dtype);

  // Rows of tiles of the products go round the warps; with two and four, a warp has rows of one
  // product only.
  static constexpr int kWarpsOfProduct = kShape.warps > 1 ? kShape.warps / 2 : 1;
  static constexpr int kRowsOfWarp = (kBlocks + kWarpsOfProduct - 1) / kWarpsOfProduct;

  // Some rows of tiles of a product, by a warp.
  struct Rows {
    Acc tiles[kRowsOfWarp][kBlocks];
    Acc squares[kRowsOfWarp];  // of q: the diagonal tiles of q q^T
  };

  // One tf32 product is as exact as bf16 calls for; f16 and f32 take pairs.
  using Inverse = UnitLowerInverse<kBlocks, kShape.dtype != DType::kBF16>;

  // kTilesBytes each.
  float* kk_tiles;
  float* qk_tiles;
  Norms<kShape.use_qk_l2norm> norms;

  // Rows kFirst, kFirst + kWarpsOfProduct, ... from k and q in shared memory.
  template <Product kProduct, int kFirst, class Matrix>
  __device__ void multiply_rows(Rows& rows, const Matrix& k, const Matrix& q) const {
    const Matrix& left = kProduct == kKeys ? k : q;
    rows = {};
#pragma unroll(kShape.dtype == DType::kF32 ? 2 : 8)
    for (int d = 0; d < kShape.key_dim; d += 16) {
      Tile<kShape.dtype> a[kRowsOfWarp];
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
          if (row < kBlocks && column <= row) mma(rows.tiles[i][column], a[i], b);
        }
      }
      if constexpr (kProduct == kQueries && kShape.use_qk_l2norm) {
#pragma unroll
        for (int i = 0; i < kRowsOfWarp; ++i) {
          if (kFirst + i * kWarpsOfProduct < kBlocks) mma(rows.squares[i], a[i], a[i]);
        }
      }
    }
  }

  // Writes the norms of the rows.
  template <Product kProduct, int kFirst>
  __device__ void store_norms(const Rows& rows) const {
#pragma unroll
    for (int i = 0; i < kRowsOfWarp; ++i) {
      const int row = kFirst + i * kWarpsOfProduct;
      if (row >= kBlocks) break;
      norms.store((kProduct == kKeys ? norms.k : norms.q) + 16 * row,
                  kProduct == kKeys ? rows.tiles[i][row] : rows.squares[i]);
    }
  }

  // Writes the rows, scaled.  Requires: the norms are there.
  template <Product kProduct, int kFirst>
  __device__ void store_rows(Rows& rows, float scale) const {
#pragma unroll
    for (int i = 0; i < kRowsOfWarp; ++i) {
      const int row = kFirst + i * kWarpsOfProduct;
      if (row >= kBlocks) break;
      float factors[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int at = 16 * row + tile_row() + 8 * r;
        factors[r] = kProduct == kQueries ? scale * norms.of_q(at) : norms.of_k(at);
      }
#pragma unroll
      for (int column = 0; column <= row; ++column) {
        Acc& tile = rows.tiles[i][column];
        for_each_element([&](int r, int c, int j) {
          tile.x[r][c][j] *= factors[r] * norms.of_k(16 * column + tile_column() + 8 * c + j);
        });
        store_tile(kProduct == kKeys ? kk_tiles : qk_tiles, lower_tile(row, column),
                   round_to<DType::kF32>(tile));
      }
    }
  }

  // Gates both matrices and writes them, with one warp.
  __device__ void store_matrices(char* wy, const Inverse& inverse, const GatesOfHead& gates) const {
#pragma unroll
    for (int row = 0; row < kBlocks; ++row) {
#pragma unroll
      for (int column = 0; column <= row; ++column) {
        Acc t = inverse.block(row, column);
        Acc s = to_float(load_tile<DType::kF32>(shared_address(qk_tiles), lower_tile(row, column)));
        gate_tile(t, row, column, gates.sums, [](int, int) { return 1.0f; });
        gate_tile(s, row, column, gates.sums, [&](int, int j) { return gates.betas[j]; });
        const int place = wy_tile(row, column, kChunk);
        store_wy_tile<kShape.dtype>(wy, place, round_to<kShape.dtype>(t));
        store_wy_tile<kShape.dtype>(wy + kWy.attention, place, round_to<kShape.dtype>(s));
      }
    }
  }

  // Writes all else, with one warp.
  __device__ void store_vectors(char* wy, const GatesOfHead& gates, int tokens, float scale) const {
    const float last = gates.sums[tokens - 1];
    float growth = 0.0f;
    for (int i = threadIdx.x % 32; i < kChunk; i += 32) {
      TokenFactors(gates.sums[i], last)
          .template store<kWy>(wy + kWy.k_in, i, norms, gates.betas[i], scale);
      growth += log2_growth(gates.betas[i], diagonal(kk_tiles, i));
    }
    growth = sum_over_lanes<32, 1>(growth);
    if (threadIdx.x % 32 == 0) {
      *reinterpret_cast<float*>(wy + kWy.decay) = dev::exp2(last);
      *reinterpret_cast<float*>(wy + kWy.bound) = last + growth;
    }
  }

 private:
  // Element (i, i) of fp32 tiles.
  static __device__ float diagonal(const float* tiles, int i) {
    return tiles[lower_tile(i / 16, i / 16) * 256 + tile_element<DType::kF32>(i % 16, i % 16)];
  }
};

}  // namespace cubinery::dev
