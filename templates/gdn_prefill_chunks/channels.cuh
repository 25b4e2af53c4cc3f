// The WY factors of a chunk of one head whose decay is one for each channel of k
// (common/chunk/wy.h).  Part of gdn_prefill_chunks.cu, which has defined kKey.
//
// e^(G_i - G_j) is the product of what a row r between them makes of both, e^(G_i - G_r) and
// e^(G_r - G_j): both are at most 1, so that nothing overflows, and what underflows is 0.  It is
// r <= i for all j, so that nothing behind token i has a part in what it gives.  Of a chunk, cut
// into halves, and these into halves again, r is the first row of the upper half where i and j are
// in different halves.  Of halves that are whole tiles that is a product of scaled tiles.  Inside a
// tile on the diagonal, there is a product for each size of halves, and each element is that of the
// size that parts its row from its column; on the diagonal itself nothing decays.
#pragma once

#include "common/chunk/inverse.cuh"
#include "common/chunk/make_wy.cuh"
#include "common/chunk/wy_rows.cuh"
#include "common/chunk/wy_tiles.cuh"
#include "common/gates.cuh"
#include "common/math.cuh"
#include "common/norm.cuh"
#include "common/operands.cuh"
#include "common/shared.cuh"
#include "common/tile/tile.cuh"
#include "common/uniform.cuh"
#include "common/vec.cuh"
#include "common/warp.cuh"
#include "gdn_prefill_chunks/chunk.cuh"

namespace {

// Functions: constants would lie in the memory of kernels that have no use for them.
consteval ChannelPlaces places() { return channel_places(kKey); }
consteval ChannelWy channel_factors() { return channel_wy(kChunk, kKey.key_dim, kKey.dtype); }
constexpr int kBlocks = kChunk / 16;
constexpr int kGroups = channel_groups(kKey);
constexpr int kGateRow = gate_row(kKey);

// Whether 16 rows decay by no more than the operands' type holds (gdn::kLeastLowerBound).
constexpr bool kBounded =
    kKey.inputs.gate_mode == gdn::GateMode::kLowerBound && kKey.dtype != DType::kF16;

using Sums = dev::SharedMatrix<DType::kF32, kGateRow>;
using ChannelNorms = dev::Norms<kNormalises>;
using Tile = dev::Tile<kKey.dtype>;
using dev::Acc;

template <class T>
__device__ T* place(int offset) {
  return reinterpret_cast<T*>(shared + offset);
}
__device__ RowMatrix k_rows() { return {dev::shared_address(shared)}; }
__device__ RowMatrix q_rows() { return {dev::shared_address(shared) + places().q}; }
__device__ Sums gate_sums() { return {dev::shared_address(shared) + places().sums}; }
__device__ ChannelNorms channel_norms() {
  return {.k = place<float>(places().numbers), .q = place<float>(places().numbers) + kChunk};
}
__device__ float* betas() { return place<float>(places().numbers) + 2 * kChunk; }

// Writes the sums of g inside the chunk, for base 2, of all channels, and e^G_C to `decays`.
// Tokens behind the sequence's end do not decay.
__device__ void sum_gates(const GdnPrefillChunksParams& p, const Chunk& chunk, int head,
                          float* decays) {
  constexpr DType kGate = kKey.inputs.gate_dtype;
  constexpr bool kGiven = kKey.inputs.gate_mode != gdn::GateMode::kNone;
  const auto* const first =
      dev::as<kGate>(p.gates.g.data) +
      dev::offset_of(p.gates.g.stride, TokenStrides::At{chunk.batch, chunk.first, head});
  dev::GatesOfTokens all = dev::gates_of_tokens<kKey>(p.gates, head, p.lower_bound);
#pragma unroll 1
  for (int d = threadIdx.x; d < kKey.key_dim; d += threads(kKey)) {
    all.dt_bias = dev::to_float<kKey.inputs.dt_bias_dtype>(dev::dt_bias_of<kKey>(p.gates, head, d));
    float* const sums = place<float>(places().sums) + d;
    float sum = 0.0f;
#pragma unroll 1
    for (int begin = 0; begin < kChunk; begin += 16) {
      dev::Storage<kGate> given[16] = {};
#pragma unroll
      for (int e = 0; e < 16; ++e) {
        const int t = begin + e;
        if (kGiven && t < chunk.tokens) given[e] = first[t * p.gates.g.stride.token + d];
      }
#pragma unroll
      for (int e = 0; e < 16; ++e) {
        const float g = dev::log_decay_of<kKey>(all, {.g = dev::to_float<kGate>(given[e])});
        if (begin + e < chunk.tokens) sum += g;
        sums[(begin + e) * kGateRow] = sum * dev::kLog2E;
      }
    }
    decays[d] = dev::exp2(sum * dev::kLog2E);
  }
}

__device__ void store_betas(const GdnPrefillChunksParams& p, const Chunk& chunk, int head) {
  for (int t = threadIdx.x; t < kChunk; t += threads(kKey)) {
    float beta = 0.0f;
    if (t < chunk.tokens) {
      const TokenStrides::At at{chunk.batch, chunk.first + t, head};
      beta = dev::beta_of<kKey>({.beta = dev::load_beta<kKey>(p.gates, at)});
    }
    betas()[t] = beta;
  }
}

// G_r of this lane's columns, from channel d on.
struct Anchor {
  float x[2][2];  // [column half][column]
  __device__ Anchor(int r, int d) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      dev::load_shared(x[c], gate_sums().element(r, d + dev::tile_column() + 8 * c));
    }
  }
};

__device__ Acc sums_at(int row, int d) { return dev::to_float(gate_sums().load(row, d)); }

// Of all elements.
template <class Factor>
__device__ Tile scaled(const Acc& x, Factor factor) {
  Acc y;
  dev::for_each_element(
      [&](int r, int c, int j) { y.x[r][c][j] = x.x[r][c][j] * factor(r, c, j); });
  return dev::round_to<kKey.dtype>(y);
}

// Of a tile of k k^T and of q k^T, some channels' part.
struct Pair {
  Acc kk{}, qk{};
};

// Adds a product for a tile on the diagonal from rows `first` on, with halves of kHalf rows, to
// what other elements may get anything of.
template <int kHalf>
__device__ void add_level(Acc& kk, Acc& qk, const Acc& k, const Acc& q, const Acc& sums, int first,
                          int d) {
  Acc factors;
  if constexpr (kHalf == 8) {
    const Anchor anchor(first + 8, d);
    dev::for_each_element([&](int r, int c, int j) {
      const float up = sums.x[r][c][j] - anchor.x[c][j];
      factors.x[r][c][j] = dev::exp2(r == 1 ? up : -up);
    });
  } else {
    const int row = dev::tile_row();
    const bool is_upper = (row & kHalf) != 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Anchor anchor(first + 8 * r + ((row & ~(2 * kHalf - 1)) | kHalf), d);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float up = sums.x[r][e / 2][e % 2] - anchor.x[e / 2][e % 2];
        factors.x[r][e / 2][e % 2] = dev::exp2(is_upper ? up : -up);
      }
    }
  }
  const auto of = [&](int r, int c, int j) { return factors.x[r][c][j]; };
  const Tile keys = scaled(k, of), queries = scaled(q, of);
  if constexpr (kHalf == 8 && kKey.dtype != DType::kF32) {
    dev::mma_half(kk, keys, keys, 0);
    dev::mma_half(qk, queries, keys, 0);
  } else {
    dev::mma(kk, keys, keys);
    dev::mma(qk, queries, keys);
  }
}

// The same of decays that are e^-5 at least: all elements below the diagonal, with the tile's first
// row in the place of a row between them.  Its factors for columns are e^75 at most.
__device__ void add_bounded(Acc& kk, Acc& qk, const Acc& k, const Acc& q, const Acc& sums,
                            int first, int d) {
  const Anchor anchor(first, d);
  Acc factors, inverse;
  dev::for_each_element([&](int r, int c, int j) {
    const float up = sums.x[r][c][j] - anchor.x[c][j];
    factors.x[r][c][j] = dev::exp2(up);
    inverse.x[r][c][j] = dev::exp2(-up);
  });
  const auto of_rows = [&](int r, int c, int j) { return factors.x[r][c][j]; };
  const Tile columns = scaled(k, [&](int r, int c, int j) { return inverse.x[r][c][j]; });
  dev::mma(kk, scaled(k, of_rows), columns);
  dev::mma(qk, scaled(q, of_rows), columns);
}

// The products for a tile on the diagonal: of each size of halves (8, 4, 2, 1), or one.
constexpr int kLevels = kBounded ? 1 : 4;

// That tile, and the diagonal's elements of this lane's rows.
__device__ Acc joined(const Acc (&levels)[kLevels], const float (&diagonal)[2]) {
  const int row = dev::tile_row();
  Acc tile{};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int column = dev::tile_column() + j;
    const int apart = row ^ column;  // which bit is the first to differ
    tile.x[1][0][j] = levels[0].x[1][0][j];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int level = kBounded ? 0 : 1;
      float below = levels[level].x[half][half][j];
      if constexpr (!kBounded) {
        if (apart < 4) below = levels[2].x[half][half][j];
        if (apart < 2) below = levels[3].x[half][half][j];
      }
      tile.x[half][half][j] = row > column ? below : row == column ? diagonal[half] : 0.0f;
    }
  }
  return tile;
}

// A group's part of tile (row, row) of both products, and of the squares of this lane's rows of q.
__device__ Pair multiply_diagonal(int group, int row, float (&q_squares)[2]) {
  Acc kk[kLevels] = {}, qk[kLevels] = {};
  float k_squares[2] = {}, products[2] = {};
#pragma unroll 1
  for (int d = 16 * group; d < kKey.key_dim; d += 16 * kGroups) {
    const Acc k = dev::to_float(k_rows().load<true>(16 * row, d));
    const Acc q = dev::to_float(q_rows().load<true>(16 * row, d));
    const Acc sums = sums_at(16 * row, d);
    dev::for_each_element([&](int r, int c, int j) {
      k_squares[r] = fmaf(k.x[r][c][j], k.x[r][c][j], k_squares[r]);
      products[r] = fmaf(q.x[r][c][j], k.x[r][c][j], products[r]);
      q_squares[r] = fmaf(q.x[r][c][j], q.x[r][c][j], q_squares[r]);
    });
    if constexpr (kBounded) {
      add_bounded(kk[0], qk[0], k, q, sums, 16 * row, d);
    } else {
      add_level<8>(kk[0], qk[0], k, q, sums, 16 * row, d);
      add_level<4>(kk[1], qk[1], k, q, sums, 16 * row, d);
      add_level<2>(kk[2], qk[2], k, q, sums, 16 * row, d);
      add_level<1>(kk[3], qk[3], k, q, sums, 16 * row, d);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    k_squares[r] = dev::sum_over_lanes<4, 1>(k_squares[r]);
    products[r] = dev::sum_over_lanes<4, 1>(products[r]);
    q_squares[r] = dev::sum_over_lanes<4, 1>(q_squares[r]);
  }
  return {.kk = joined(kk, k_squares), .qk = joined(qk, products)};
}

// The same of tile (row, column), below the diagonal.
__device__ Pair multiply_below(int group, int row, int column) {
  // The first row of the upper half of what has both in different halves.
  const int size = 1 << (31 - __clz(row ^ column));
  const int anchor_row = 16 * (row & ~(size - 1));
  Pair pair;
#pragma unroll 1
  for (int d = 16 * group; d < kKey.key_dim; d += 16 * kGroups) {
    const Anchor anchor(anchor_row, d);
    Acc sums = sums_at(16 * column, d);
    const Acc right = dev::to_float(k_rows().load(16 * column, d));
    const Tile columns = scaled(
        right, [&](int r, int c, int j) { return dev::exp2(anchor.x[c][j] - sums.x[r][c][j]); });
    sums = sums_at(16 * row, d);
    Acc factors;
    dev::for_each_element([&](int r, int c, int j) {
      factors.x[r][c][j] = dev::exp2(sums.x[r][c][j] - anchor.x[c][j]);
    });
    const auto of = [&](int r, int c, int j) { return factors.x[r][c][j]; };
    dev::mma(pair.kk, scaled(dev::to_float(k_rows().load<true>(16 * row, d)), of), columns);
    dev::mma(pair.qk, scaled(dev::to_float(q_rows().load<true>(16 * row, d)), of), columns);
  }
  return pair;
}

// Writes tile (row, column) of both products, one warp's work, from all groups' parts; of one on
// the diagonal norms too.
__device__ void store_products(int row, int column) {
  Pair pair;
  float q_squares = 0.0f;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const unsigned part = dev::shared_address(shared) + places().parts + group * kChannelPartBytes;
    const Acc kk = dev::to_float(dev::load_tile<DType::kF32>(part, 0));
    const Acc qk = dev::to_float(dev::load_tile<DType::kF32>(part, 1));
    dev::for_each_element([&](int r, int c, int j) {
      pair.kk.x[r][c][j] += kk.x[r][c][j];
      pair.qk.x[r][c][j] += qk.x[r][c][j];
    });
    float squares;
    dev::load_shared(squares, part + 2 * 16 * 16 * 4 + threadIdx.x % 16 * 4);
    q_squares += squares;
  }
  const int at = lower_tile(row, column);
  dev::store_tile(place<float>(places().kk), at, dev::round_to<DType::kF32>(pair.kk));
  dev::store_tile(place<float>(places().qk), at, dev::round_to<DType::kF32>(pair.qk));
  if (row != column || !kNormalises) return;
  ChannelNorms::store(channel_norms().k + 16 * row, pair.kk);
  if (threadIdx.x % 32 < 16) {
    channel_norms().q[16 * row + threadIdx.x % 32] = dev::inverse_norm(q_squares);
  }
}

// k k^T and q k^T with the decays between their rows, and norms, with all warps.
__device__ void multiply_rows_of_channels() {
  const int warp = dev::uniform(threadIdx.x / 32);
#pragma unroll 1
  for (int row = 0; row < kBlocks; ++row) {
#pragma unroll 1
    for (int column = 0; column <= row; ++column) {
#pragma unroll 1
      for (int group = warp; group < kGroups; group += kKey.warps) {
        auto* const part = place<float>(places().parts + group * kChannelPartBytes);
        Pair pair;
        if (row == column) {
          float q_squares[2] = {};
          pair = multiply_diagonal(group, row, q_squares);
          if (dev::tile_column() == 0) {
            part[2 * 16 * 16 + dev::tile_row()] = q_squares[0];
            part[2 * 16 * 16 + dev::tile_row() + 8] = q_squares[1];
          }
        } else {
          pair = multiply_below(group, row, column);
        }
        dev::store_tile(part, 0, dev::round_to<DType::kF32>(pair.kk));
        dev::store_tile(part, 1, dev::round_to<DType::kF32>(pair.qk));
      }
      // Orders the groups' parts before their reading.
      __syncthreads();
      if (warp == lower_tile(row, column) % kKey.warps) store_products(row, column);
      // Orders the reading before the parts of the next tile.  The last one orders products and
      // norms before what is made of them.
      __syncthreads();
    }
  }
}

// T, with one warp.
__device__ void store_inverse(char* wy) {
  float* const kk = place<float>(places().kk);
  if constexpr (kNormalises) {
    const ChannelNorms norms = channel_norms();
#pragma unroll
    for (int row = 0; row < kBlocks; ++row) {
#pragma unroll
      for (int column = 0; column <= row; ++column) {
        const int at = lower_tile(row, column);
        Acc tile = dev::to_float(dev::load_tile<DType::kF32>(dev::shared_address(kk), at));
        dev::for_each_element([&](int r, int c, int j) {
          tile.x[r][c][j] *= norms.k[16 * row + dev::tile_row() + 8 * r] *
                             norms.k[16 * column + dev::tile_column() + 8 * c + j];
        });
        dev::store_tile(kk, at, dev::round_to<DType::kF32>(tile));
      }
    }
  }
  dev::UnitLowerInverse<kBlocks, kKey.dtype != DType::kBF16> inverse(
      kk, betas(), place<float>(places().inverse));
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

// P, with warps 0 ... kCount - 1, of which this one is `warp`.
template <int kCount>
__device__ void store_attention(char* wy, float scale, int warp) {
  const unsigned qk = dev::shared_address(shared) + places().qk;
#pragma unroll
  for (int row = 0; row < kBlocks; ++row) {
#pragma unroll
    for (int column = 0; column <= row; ++column) {
      const int at = lower_tile(row, column);
      if (at % kCount != warp) continue;
      Acc tile = dev::to_float(dev::load_tile<DType::kF32>(qk, at));
      dev::for_each_element([&](int r, int c, int j) {
        const int left = 16 * row + dev::tile_row() + 8 * r;
        const int right = 16 * column + dev::tile_column() + 8 * c + j;
        tile.x[r][c][j] *=
            scale * channel_norms().of_q(left) * channel_norms().of_k(right) * betas()[right];
      });
      dev::store_wy_tile<kKey.dtype>(wy + channel_factors().attention, wy_tile(row, column, kChunk),
                                     dev::round_to<kKey.dtype>(tile));
    }
  }
}

// The rows of keys, queries and updates, with kThreads threads, of which this one is `thread`.
template <int kThreads>
__device__ void store_rows(char* wy, float scale, int thread) {
  using Piece = dev::Vec<kKey.dtype, 16>;
  constexpr int kEach = Piece::kElements;
  constexpr int kPieces = kKey.key_dim / kEach;
  const float* const sums = place<float>(places().sums);
#pragma unroll 1
  for (int i = thread; i < kChunk * kPieces; i += kThreads) {
    const int row = i / kPieces, channel = i % kPieces * kEach;
    const int at = (row * kStride + channel) * size_of(kKey.dtype);
    Piece k, q;
    dev::load_vector(k, shared + at);
    dev::load_vector(q, shared + places().q + at);
    const float of_k = channel_norms().of_k(row), of_q = scale * channel_norms().of_q(row);
    const float of_update = of_k * betas()[row];
    float keys[kEach], queries[kEach], updates[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const float sum = sums[row * kGateRow + channel + e];
      const float last = sums[(kChunk - 1) * kGateRow + channel + e];
      const float before = dev::exp2(sum);
      keys[e] = of_k * k.get(e) * before;
      queries[e] = of_q * q.get(e) * before;
      updates[e] = of_update * k.get(e) * dev::exp2(last - sum);
    }
    const auto put = [&](int place, const float(&values)[kEach]) {
      Piece piece;
      piece.set(values);
      dev::store_vector(wy + place, piece);
    };
    using ReadRows = dev::WyRows<2 * kChunk, kKey.key_dim, kKey.dtype>;
    using WrittenRows = dev::WyRows<kChunk, kKey.key_dim, kKey.dtype>;
    put(channel_factors().keys + ReadRows::at(row, channel / kEach), keys);
    put(channel_factors().keys + ReadRows::at(kChunk + row, channel / kEach), queries);
    put(channel_factors().updates + WrittenRows::at(row, channel / kEach), updates);
  }
}

// All of them.
__device__ void make_channel_wy(const GdnPrefillChunksParams& p, const Chunk& chunk, int slot,
                                int head) {
  char* const wy = static_cast<char*>(p.wy) +
                   (static_cast<long long>(slot) * p.heads + head) * channel_factors().bytes;
  copy_rows(p, chunk, head);
  sum_gates(p, chunk, head, reinterpret_cast<float*>(wy + channel_factors().decay));
  store_betas(p, chunk, head);
  dev::wait_copies<0>();
  // Orders everybody's copies, sums and betas before their reading.
  __syncthreads();
  multiply_rows_of_channels();
  if constexpr (kKey.warps == 1) {
    store_inverse(wy);
    store_attention<1>(wy, p.scale, 0);
    store_rows<32>(wy, p.scale, threadIdx.x);
  } else {
    constexpr int kOthers = kKey.warps - 1;
    const int warp = dev::uniform(threadIdx.x / 32);
    if (warp == kOthers) {
      store_inverse(wy);
    } else {
      store_attention<kOthers>(wy, p.scale, warp);
      store_rows<32 * kOthers>(wy, p.scale, threadIdx.x);
    }
  }
}

}  // namespace
