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
constexpr int kTiles = lower_tiles(kChunk);
constexpr int kGroups = channel_groups(kKey);
constexpr int kGateRow = gate_row(kKey);

constexpr bool kBounded = has_bounded_blocks(kKey);
// Where blocks are bounded rows are multiplied by 2^kShift and columns by 2^-kShift, so that both
// have room for keys that are no unit vectors.
constexpr float kShift = kBounded && !kNormalises ? 40.0f : 0.0f;
constexpr float kShifted = kBounded && !kNormalises ? 0x1p40f : 1.0f;

using ReadRows = dev::WyRows<2 * kChunk, kKey.key_dim, kKey.dtype>;
using WrittenRows = dev::WyRows<kChunk, kKey.key_dim, kKey.dtype>;
using Sums = dev::SharedMatrix<DType::kF32, kGateRow>;
using ChannelNorms = dev::Norms<kNormalises>;
using Tile = dev::Tile<kKey.dtype>;
using dev::Acc;

template <class T>
__device__ T* place(int offset) {
  return reinterpret_cast<T*>(shared + offset);
}
// k's rows, and q's behind them; in their places what the scan reads with, and then what it writes
// with, as they lie among the WY factors.
__device__ ReadRows::Matrix read_rows() { return {dev::shared_address(shared)}; }
__device__ WrittenRows::Matrix written_rows() {
  return {dev::shared_address(shared) + places().updates};
}
// Of g inside each block of 16 tokens.
__device__ Sums gate_sums() { return {dev::shared_address(shared) + places().sums}; }
__device__ ChannelNorms channel_norms() {
  return {.k = place<float>(places().numbers), .q = place<float>(places().numbers) + kChunk};
}
__device__ float* betas() { return place<float>(places().numbers) + 2 * kChunk; }
__device__ float* diagonal() { return betas() + kChunk; }  // of q k^T
// Of each block of 16 tokens.
__device__ float* block_decays(int block) { return diagonal() + kChunk + block * kKey.key_dim; }

// Writes the sums of g, for base 2, of one channel, and the decays of blocks; gives that of the
// chunk.  `a`: of the first token.  kFull: the chunk has all tokens; those that one has not do not
// decay.
template <bool kFull>
__device__ float sum_gates_of(const GdnPrefillChunksParams& p, const Chunk& chunk,
                              const dev::GatesOfTokens& all, int d,
                              const dev::Storage<kKey.inputs.gate_dtype>* a) {
  constexpr DType kGate = kKey.inputs.gate_dtype;
  constexpr bool kGiven = kKey.inputs.gate_mode != gdn::GateMode::kNone;
  dev::Storage<kGate> given[kChunk] = {};  // all are on their way before the first is used
#pragma unroll
  for (int t = 0; t < kChunk; ++t, a += p.gates.g.stride.token) {
    if (kGiven && (kFull || t < chunk.tokens)) given[t] = *a;
  }
  float* const sums = place<float>(places().sums) + d;
  float decay = 1.0f;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    float sum = 0.0f;
#pragma unroll
    for (int t = 16 * block; t < 16 * block + 16; ++t) {
      const dev::GivenGates gates{.g = dev::to_float<kGate>(given[t])};
      // A bound is far above where logarithms are cut off.
      const float g = kKey.inputs.gate_mode == gdn::GateMode::kLowerBound
                          ? dev::whole_log_decay_of<kKey>(all, gates)
                          : dev::log_decay_of<kKey>(all, gates);
      if (kFull || t < chunk.tokens) sum = fmaf(g, dev::kLog2E, sum);
      sums[t * kGateRow] = sum;
    }
    const float of_block = dev::exp2(sum);
    block_decays(block)[d] = of_block;
    decay *= of_block;
  }
  return decay;
}

__device__ void sum_gates(const GdnPrefillChunksParams& p, const Chunk& chunk, int head) {
  constexpr DType kGate = kKey.inputs.gate_dtype;
  const auto* const first =
      dev::as<kGate>(p.gates.g.data) +
      dev::offset_of(p.gates.g.stride, TokenStrides::At{chunk.batch, chunk.first, head});
  dev::GatesOfTokens all = dev::gates_of_tokens<kKey>(p.gates, head, p.lower_bound);
#pragma unroll 1
  for (int d = threadIdx.x; d < kKey.key_dim; d += threads(kKey)) {
    all.dt_bias = dev::to_float<kKey.inputs.dt_bias_dtype>(dev::dt_bias_of<kKey>(p.gates, head, d));
    place<float>(places().decay)[d] = chunk.tokens == kChunk
                                          ? sum_gates_of<true>(p, chunk, all, d, first + d)
                                          : sum_gates_of<false>(p, chunk, all, d, first + d);
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

// Norms, and the diagonal of q k^T where that is of no product below: a warp for 16 rows of k or q.
__device__ void store_norms() {
  constexpr bool kDiagonal = !kBounded;
#pragma unroll 1
  for (int block = dev::uniform(threadIdx.x / 32); block < 2 * kBlocks; block += kKey.warps) {
    const bool is_q = block >= kBlocks;
    Acc squares{}, products{};
#pragma unroll 4
    for (int d = 0; d < kKey.key_dim; d += 16) {
      const Tile rows = read_rows().load(16 * block, d);
      if constexpr (kNormalises) dev::mma(squares, rows, rows);
      if (kDiagonal && is_q) dev::mma(products, rows, read_rows().load(16 * (block - kBlocks), d));
    }
    ChannelNorms::store(channel_norms().k + 16 * block, squares);
    if (kDiagonal && is_q) {
      float* const to = diagonal() + 16 * (block - kBlocks);
      dev::for_diagonal(products, [&](int i, float product) { to[i] = product; });
    }
  }
}

// Numbers of this lane's columns, of a row that starts at a shared address.
struct OfColumns {
  float x[2][2];  // [column half][column]
  __device__ explicit OfColumns(unsigned row) {
#pragma unroll
    for (int c = 0; c < 2; ++c) dev::load_shared(x[c], row + (dev::tile_column() + 8 * c) * 4);
  }
};
__device__ OfColumns sums_of(int row, int d) { return OfColumns(gate_sums().element(row, d)); }

// Factors of this lane's rows from row `first` on.
struct OfRows {
  float k[2], q[2];
  __device__ OfRows(int first, float scale) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = first + dev::tile_row() + 8 * r;
      k[r] = channel_norms().of_k(row);
      q[r] = scale * channel_norms().of_q(row);
    }
  }
};

template <class Factor>
__device__ Acc times(const Acc& x, Factor factor) {
  Acc y;
  dev::for_each_element(
      [&](int r, int c, int j) { y.x[r][c][j] = x.x[r][c][j] * factor(r, c, j); });
  return y;
}
__device__ Tile rounded(const Acc& x) { return dev::round_to<kKey.dtype>(x); }

// Of products of keys, and of queries below them, with keys: some channels' part, of eight rows of
// each and eight columns.
//
// Of a tile on the diagonal [0] is what is below its first half, at column half 0; the others
// are of both halves with themselves, each at its own column half: of each size of parts that has
// rows and columns in different halves of it, 4, 2, 1, or of all.
constexpr int kLevels = kBounded ? 2 : 4;
using Levels = Acc[kLevels];

template <int kRowHalf, int kColumnHalf>
__device__ void add_eights(Acc& sum, const Tile& keys, const Tile& queries, const Tile& columns) {
  const Tile rows = dev::stacked<kRowHalf>(keys, queries);
  if constexpr (kKey.dtype == DType::kF32) {
    Acc product{};
    dev::mma(product, rows, columns);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) sum.x[r][kColumnHalf][j] += product.x[r][kColumnHalf][j];
    }
  } else {
    dev::mma_half(sum, rows, columns, kColumnHalf);
  }
}

// Adds that of halves of kHalf rows of the block from row `first` on.
template <int kHalf>
__device__ void add_level(Acc& sum, const Acc& k, const Acc& q, const Acc& sums, int first, int d) {
  Acc factors;
  if constexpr (kHalf == 8) {
    const OfColumns anchor = sums_of(first + 8, d);
    dev::for_each_element([&](int r, int c, int j) {
      const float up = sums.x[r][c][j] - anchor.x[c][j];
      factors.x[r][c][j] = dev::exp2(r == 1 ? up : -up);
    });
  } else {
    const int row = dev::tile_row();
    const bool is_upper = (row & kHalf) != 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const OfColumns anchor = sums_of(first + 8 * r + ((row & ~(2 * kHalf - 1)) | kHalf), d);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float up = sums.x[r][e / 2][e % 2] - anchor.x[e / 2][e % 2];
        factors.x[r][e / 2][e % 2] = dev::exp2(is_upper ? up : -up);
      }
    }
  }
  const auto of = [&](int r, int c, int j) { return factors.x[r][c][j]; };
  const Tile keys = rounded(times(k, of)), queries = rounded(times(q, of));
  if constexpr (kHalf == 8) {
    add_eights<1, 0>(sum, keys, queries, keys);
  } else {
    add_eights<0, 0>(sum, keys, queries, keys);
    add_eights<1, 1>(sum, keys, queries, keys);
  }
}

// The tile of q k^T, or of k k^T, whose diagonal nobody wants.
template <bool kQueries>
__device__ Acc joined(const Levels& levels, const float (&diagonal)[2]) {
  const int row = dev::tile_row();
  Acc tile{};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int column = dev::tile_column() + j;
    const int apart = row ^ column;  // which bit is the first to differ
    tile.x[1][0][j] = levels[0].x[kQueries][0][j];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float below = levels[1].x[kQueries][half][j];
      float on = kBounded ? below : diagonal[half];
      if constexpr (!kBounded) {
        if (apart < 4) below = levels[2].x[kQueries][half][j];
        if (apart < 2) below = levels[3].x[kQueries][half][j];
      }
      tile.x[half][half][j] = row > column ? below : kQueries && row == column ? on : 0.0f;
    }
  }
  return tile;
}

// A group's part of all tiles.
struct Parts {
  Acc kk[kTiles], qk[kTiles];
};

// Writes rows that the scan reads with, of which `x` has the decays inside block kBlock.  Gives
// `x`.
template <int kBlock>
__device__ Tile store_read_rows(int row, int d, const Acc& x) {
  const Tile tile = rounded(x);
  if constexpr (kBlock > 0) {
    const OfColumns before(dev::shared_address(block_decays(kBlock - 1) + d));
    const auto of = [&](int, int c, int j) { return before.x[c][j] * (1.0f / kShifted); };
    dev::store_matrix(read_rows(), row, d, rounded(times(x, of)));
  } else if constexpr (kShifted != 1.0f) {
    const auto of = [](int, int, int) { return 1.0f / kShifted; };
    dev::store_matrix(read_rows(), row, d, rounded(times(x, of)));
  } else {
    dev::store_matrix(read_rows(), row, d, tile);
  }
  return tile;
}

// The products of block kBlock with itself and with the one in front of it, and the rows that the
// scan takes of it, which replace those of k and q.  Until then the next block's rows that write
// are the keys of this one with the decays behind them inside it, as columns of the next one's
// tile.
template <int kBlock>
__device__ void multiply_block(Parts& parts, int group, float scale) {
  constexpr int kFirst = 16 * kBlock;
  Levels levels = {};
  Acc kk{}, qk{};
#pragma unroll 1  // registers
  for (int d = 16 * group; d < kKey.key_dim; d += 16 * kGroups) {
    const OfRows of_rows(kFirst, scale);
    const Acc sums = dev::to_float(gate_sums().load(kFirst, d));
    const auto of_keys = [&](int r, int, int) { return of_rows.k[r]; };
    const auto of_queries = [&](int r, int, int) { return of_rows.q[r]; };
    const Acc k = times(dev::to_float(read_rows().load(kFirst, d)), of_keys);
    const Acc q = times(dev::to_float(read_rows().load(kChunk + kFirst, d)), of_queries);
    // Orders the reading of k and q before what comes in their place, and what the block in front
    // has left before its reading.
    __syncwarp();
    if constexpr (!kBounded) {
      add_level<8>(levels[0], k, q, sums, kFirst, d);
      add_level<4>(levels[1], k, q, sums, kFirst, d);
      add_level<2>(levels[2], k, q, sums, kFirst, d);
      add_level<1>(levels[3], k, q, sums, kFirst, d);
    }
    Acc decays;
    dev::for_each_element(
        [&](int r, int c, int j) { decays.x[r][c][j] = dev::exp2(sums.x[r][c][j] + kShift); });
    const auto decay = [&](int r, int c, int j) { return decays.x[r][c][j]; };
    const Tile keys = store_read_rows<kBlock>(kFirst, d, times(k, decay));
    const Tile queries = store_read_rows<kBlock>(kChunk + kFirst, d, times(q, decay));
    if constexpr (kBlock > 0) {
      const Tile columns = written_rows().load(kFirst, d);
      dev::mma(kk, keys, columns);
      dev::mma(qk, queries, columns);
    }
    Acc updates;
    if constexpr (kBounded) {
      const Acc back =
          times(k, [&](int r, int c, int j) { return dev::exp2(-kShift - sums.x[r][c][j]); });
      const Tile right = rounded(back);
      add_eights<1, 0>(levels[0], keys, queries, right);
      add_eights<0, 0>(levels[1], keys, queries, right);
      add_eights<1, 1>(levels[1], keys, queries, right);
      const OfColumns through(dev::shared_address(block_decays(kBlock) + d));
      updates = times(back, [&](int, int c, int j) { return through.x[c][j] * kShifted; });
    } else {
      const OfColumns last = sums_of(kFirst + 15, d);
      updates =
          times(k, [&](int r, int c, int j) { return dev::exp2(last.x[c][j] - sums.x[r][c][j]); });
    }
    if constexpr (kBlock + 1 < kBlocks) {
      const auto unshifted = [](int, int, int) { return 1.0f / kShifted; };
      dev::store_matrix(written_rows(), kFirst + 16, d, rounded(times(updates, unshifted)));
      const OfColumns behind(dev::shared_address(block_decays(kBlock + 1) + d));
      updates = times(updates, [&](int, int c, int j) { return behind.x[c][j]; });
    }
    float beta[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      dev::load_shared(beta[r], dev::shared_address(betas() + kFirst + dev::tile_row() + 8 * r));
    }
    const auto of_values = [&](int r, int, int) { return beta[r]; };
    // Orders the reading of `columns` before what comes in their place.
    if (kBlock > 0) __syncwarp();
    dev::store_matrix(written_rows(), kFirst, d, rounded(times(updates, of_values)));
  }
  if constexpr (kBlock > 0) {
    parts.kk[lower_tile(kBlock, kBlock - 1)] = kk;
    parts.qk[lower_tile(kBlock, kBlock - 1)] = qk;
  }
  float on_diagonal[2] = {};
  if (!kBounded && group == 0) {
    const OfRows of_rows(kFirst, scale);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float product = diagonal()[kFirst + dev::tile_row() + 8 * r];
      on_diagonal[r] = product * of_rows.k[r] * of_rows.q[r];
    }
  }
  parts.kk[lower_tile(kBlock, kBlock)] = joined<false>(levels, on_diagonal);
  parts.qk[lower_tile(kBlock, kBlock)] = joined<true>(levels, on_diagonal);
  if constexpr (kBlock + 1 < kBlocks) multiply_block<kBlock + 1>(parts, group, scale);
}

// Tiles of k k^T are the first kTiles of each group's parts, those of q k^T come behind.
__device__ void store_parts(const Parts& parts, int group) {
  auto* const to = place<float>(places().parts) + group * 2 * kTiles * 256;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    dev::store_tile(to, n, dev::round_to<DType::kF32>(parts.kk[n]));
    dev::store_tile(to, kTiles + n, dev::round_to<DType::kF32>(parts.qk[n]));
  }
}
__device__ Acc sum_of_parts(int n) {
  const unsigned parts = dev::shared_address(shared) + places().parts;
  Acc sum = dev::to_float(dev::load_tile<DType::kF32>(parts, n));
#pragma unroll
  for (int group = 1; group < kGroups; ++group) {
    const Acc part = dev::to_float(dev::load_tile<DType::kF32>(parts, group * 2 * kTiles + n));
    dev::for_each_element([&](int r, int c, int j) { sum.x[r][c][j] += part.x[r][c][j]; });
  }
  return sum;
}

// T, with one warp.
__device__ void store_inverse(char* wy) {
  dev::UnitLowerInverse<kBlocks, kKey.dtype != DType::kBF16> inverse(
      place<float>(places().parts), betas(), place<float>(places().inverse));
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

// A tile of P, with one warp.
__device__ void store_attention(char* wy, int row, int column) {
  const Acc sum = sum_of_parts(kTiles + lower_tile(row, column));
  const Acc tile = times(sum, [&](int, int c, int j) {
    return betas()[16 * column + dev::tile_column() + 8 * c + j];
  });
  dev::store_wy_tile<kKey.dtype>(wy + channel_factors().attention, wy_tile(row, column, kChunk),
                                 rounded(tile));
}

// All of them.
__device__ void make_channel_wy(const GdnPrefillChunksParams& p, const Chunk& chunk, int slot,
                                int head) {
  char* const wy = static_cast<char*>(p.wy) +
                   (static_cast<long long>(slot) * p.heads + head) * channel_factors().bytes;
  copy_rows<ReadRows>(p, chunk, head, ReadRows::at(kChunk, 0));
  sum_gates(p, chunk, head);
  store_betas(p, chunk, head);
  dev::wait_copies<0>();
  // Orders everybody's copies, sums and betas before their reading.
  __syncthreads();
  store_norms();
  // Orders norms and the reading for them before the rows that are made with them.
  if (kNormalises || !kBounded) __syncthreads();
  const int warp = dev::uniform(threadIdx.x / 32);
  Parts parts;
  if (warp < kGroups) multiply_block<0>(parts, warp, p.scale);
  // Orders the last reading of sums before the parts, which take their place.
  __syncthreads();
  if (warp < kGroups) store_parts(parts, warp);
  // Orders the parts before their sums.
  __syncthreads();
  if (warp < kTiles) {
    dev::store_tile(place<float>(places().parts), warp,
                    dev::round_to<DType::kF32>(sum_of_parts(warp)));
  }
  // Orders the sums before the inverse.
  __syncthreads();
  constexpr int kOthers = kKey.warps - 1;
  if (warp == kOthers) {
    store_inverse(wy);
    return;
  }
#pragma unroll
  for (int row = 0; row < kBlocks; ++row) {
#pragma unroll
    for (int column = 0; column <= row; ++column) {
      if (lower_tile(row, column) == warp) store_attention(wy, row, column);
    }
  }
  constexpr int kRowsBytes = channel_factors().bytes - channel_factors().keys;
#pragma unroll 4
  for (int i = threadIdx.x * 16; i < kRowsBytes; i += kOthers * 32 * 16) {
    *reinterpret_cast<uint4*>(wy + channel_factors().keys + i) = *place<const uint4>(i);
  }
}

}  // namespace
