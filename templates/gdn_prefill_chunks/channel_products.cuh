// Products of a chunk's keys and queries with keys, with their decays, and the rows that the scan
// takes.  channels.cuh says how.  Part of gdn_prefill_chunks.cu, which has defined kKey.
#pragma once

#include "common/chunk/make_wy.cuh"
#include "common/gates.cuh"
#include "common/math.cuh"
#include "common/shared.cuh"
#include "common/tile/tile.cuh"
#include "gdn_prefill_chunks/channel_places.cuh"

namespace {

// Where blocks are bounded rows are multiplied by 2^kShift and columns by 2^-kShift, so that both
// have room for keys that are no unit vectors.
constexpr float kShift = 40.0f;
constexpr bool kIsShifted = kBounded && !kNormalises;
constexpr float kShifted = kIsShifted ? 0x1p40f : 1.0f;

// Norms, and the diagonal of q k^T where that is of no product below: a warp for 16 rows of k or q.
__device__ void store_norms(unsigned stage) {
  constexpr bool kDiagonal = !kBounded;
#pragma unroll 1
  for (int block = dev::uniform(threadIdx.x / 32); block < 2 * kBlocks; block += kKey.warps) {
    const bool is_q = block >= kBlocks;
    const ReadRows::Lane rows(stage + block * ReadRows::kDown);
    Acc squares{}, products{};
#pragma unroll(kKey.dtype == DType::kF32 ? 2 : 8)
    for (int d = 0; d < kKey.key_dim; d += 16) {
      const Tile x = ReadRows::load_tile(rows.at(d));
      if constexpr (kNormalises) dev::mma(squares, x, x);
      if (kDiagonal && is_q) {
        dev::mma(products, x, ReadRows::load_tile(rows.at(d) - kBlocks * ReadRows::kDown));
      }
    }
    ChannelNorms::store(channel_norms().k + 16 * block, squares);
    if (kDiagonal && is_q) {
      float* const to = diagonal() + 16 * (block - kBlocks);
      dev::for_diagonal(products, [&](int i, float product) { to[i] = product; });
    }
  }
}

// Numbers of this lane's columns of a tile, from the shared address of its first on.
struct OfColumns {
  float x[2][2];  // [column half][column]
  __device__ explicit OfColumns(unsigned at) {
#pragma unroll
    for (int c = 0; c < 2; ++c) dev::load_shared(x[c], at + 32 * c);
  }
};

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

// This lane's addresses in some channels: tiles of the rows that read and write, its first row and
// column of the sums of g, its first column there, and its first one of a block's decays.
struct Lane {
  unsigned read, written, sums, first_sums, decays;

  __device__ Lane(unsigned stage, int group)
      : read(ReadRows::Lane(stage).at(16 * group)),
        written(WrittenRows::Lane(stage + places().updates).at(16 * group)) {
    const unsigned column = (16 * group + dev::tile_column()) * 4;
    first_sums = dev::shared_address(shared) + places().sums + column;
    sums = first_sums + dev::tile_row() * kGateRow * 4;
    decays = dev::shared_address(block_decays(0)) + column;
  }
  __device__ void next_channels() {
    constexpr int kColumns = 16 * kGroups;
    read += ReadRows::right(kColumns);
    written += WrittenRows::right(kColumns);
    sums += kColumns * 4;
    first_sums += kColumns * 4;
    decays += kColumns * 4;
  }

  __device__ Acc load_sums(int first) const {
    return dev::to_float(dev::load_tile_at<DType::kF32, kGateRow * 4>(sums + first * kGateRow * 4));
  }
  __device__ OfColumns sums_of(int row) const { return OfColumns(first_sums + row * kGateRow * 4); }
  __device__ OfColumns decays_of(int block) const {
    return OfColumns(decays + block * kKey.key_dim * 4);
  }
};

// The factor of a row for a row that is `up` above it in logarithms, or, is_upper, below it.
__device__ float factor_to(float up, bool is_upper) {
  // No sum rises where gates are computed.
  if constexpr (gdn::is_computed(kKey.inputs.gate_mode)) return dev::exp2(-fabsf(up));
  return dev::exp2(is_upper ? up : -up);
}

// Adds that of halves of kHalf rows of the block from row `first` on.
template <int kHalf>
__device__ void add_level(Acc& sum, const Acc& k, const Acc& q, const Acc& sums, const Lane& lane,
                          int first) {
  Acc factors;
  if constexpr (kHalf == 8) {
    const OfColumns anchor = lane.sums_of(first + 8);
    dev::for_each_element([&](int r, int c, int j) {
      factors.x[r][c][j] = factor_to(sums.x[r][c][j] - anchor.x[c][j], r == 1);
    });
  } else {
    const int row = dev::tile_row();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const OfColumns anchor = lane.sums_of(first + 8 * r + ((row & ~(2 * kHalf - 1)) | kHalf));
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        factors.x[r][e / 2][e % 2] =
            factor_to(sums.x[r][e / 2][e % 2] - anchor.x[e / 2][e % 2], (row & kHalf) != 0);
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

// A group's part of all tiles: of k k^T, and those of q k^T behind them.
using Parts = Acc[2 * kTiles];

// Writes rows that the scan reads with, of which `x` has the decays inside block kBlock.  Gives
// `x`.
template <int kBlock>
__device__ Tile store_read_rows(unsigned at, const Lane& lane, const Acc& x) {
  const Tile tile = rounded(x);
  if constexpr (kBlock > 0) {
    const OfColumns before = lane.decays_of(kBlock - 1);
    const auto of = [&](int, int c, int j) {
      return kIsShifted ? before.x[c][j] * (1.0f / kShifted) : before.x[c][j];
    };
    ReadRows::store_tile(at, rounded(times(x, of)));
  } else if constexpr (kIsShifted) {
    const auto of = [](int, int, int) { return 1.0f / kShifted; };
    ReadRows::store_tile(at, rounded(times(x, of)));
  } else {
    ReadRows::store_tile(at, tile);
  }
  return tile;
}

// The products of block kBlock with itself and with the one in front of it, and the rows that the
// scan takes of it, which replace those of k and q.  Until then the next block's rows that write
// are the keys of this one with the decays behind them inside it, as columns of the next one's
// tile.
template <int kBlock>
__device__ void multiply_block(Parts& parts, unsigned stage, int group, float scale,
                               const float* betas) {
  constexpr int kFirst = 16 * kBlock;
  constexpr unsigned kKeys = kBlock * ReadRows::kDown;
  constexpr unsigned kQueries = (kBlocks + kBlock) * ReadRows::kDown;
  constexpr unsigned kValues = kBlock * WrittenRows::kDown;
  const OfRows of_rows(kFirst, scale);
  Levels levels = {};
  Acc kk{}, qk{};
  Lane lane(stage, group);
#pragma unroll 1  // registers
  for (int d = 16 * group; d < kKey.key_dim; d += 16 * kGroups, lane.next_channels()) {
    const Acc sums = lane.load_sums(kFirst);
    const Acc k = times(dev::to_float(ReadRows::load_tile(lane.read + kKeys)),
                        [&](int r, int, int) { return of_rows.k[r]; });
    const Acc q = times(dev::to_float(ReadRows::load_tile(lane.read + kQueries)),
                        [&](int r, int, int) { return of_rows.q[r]; });
    // Orders the reading of k and q before what comes in their place, and what the block in front
    // has left before its reading.
    __syncwarp();
    if constexpr (!kBounded) {
      add_level<8>(levels[0], k, q, sums, lane, kFirst);
      add_level<4>(levels[1], k, q, sums, lane, kFirst);
      add_level<2>(levels[2], k, q, sums, lane, kFirst);
      add_level<1>(levels[3], k, q, sums, lane, kFirst);
    }
    Acc decays;
    dev::for_each_element([&](int r, int c, int j) {
      decays.x[r][c][j] = dev::exp2(kIsShifted ? sums.x[r][c][j] + kShift : sums.x[r][c][j]);
    });
    const auto decay = [&](int r, int c, int j) { return decays.x[r][c][j]; };
    const Tile keys = store_read_rows<kBlock>(lane.read + kKeys, lane, times(k, decay));
    const Tile queries = store_read_rows<kBlock>(lane.read + kQueries, lane, times(q, decay));
    if constexpr (kBlock > 0) {
      const Tile columns = WrittenRows::load_tile(lane.written + kValues);
      dev::mma(kk, keys, columns);
      dev::mma(qk, queries, columns);
    }
    // Keys with the decays behind them in the block; shifted, as columns are.
    Acc through;
    if constexpr (kBounded) {
      const Acc back = times(k, [&](int r, int c, int j) {
        return dev::exp2(kIsShifted ? -kShift - sums.x[r][c][j] : -sums.x[r][c][j]);
      });
      const Tile right = rounded(back);
      add_eights<1, 0>(levels[0], keys, queries, right);
      add_eights<0, 0>(levels[1], keys, queries, right);
      add_eights<1, 1>(levels[1], keys, queries, right);
      const OfColumns whole = lane.decays_of(kBlock);
      through = times(back, [&](int, int c, int j) { return whole.x[c][j]; });
    } else {
      const OfColumns last = lane.sums_of(kFirst + 15);
      through =
          times(k, [&](int r, int c, int j) { return dev::exp2(last.x[c][j] - sums.x[r][c][j]); });
    }
    if constexpr (kBlock + 1 < kBlocks) {
      WrittenRows::store_tile(lane.written + kValues + WrittenRows::kDown, rounded(through));
      const OfColumns behind = lane.decays_of(kBlock + 1);
      through = times(through, [&](int, int c, int j) { return behind.x[c][j]; });
    }
    float of_values[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) of_values[r] = betas[kFirst + dev::tile_row() + 8 * r] * kShifted;
    const Tile values = rounded(times(through, [&](int r, int, int) { return of_values[r]; }));
    // Orders the reading of `columns` before what comes in their place.
    if (kBlock > 0) __syncwarp();
    WrittenRows::store_tile(lane.written + kValues, values);
  }
  if constexpr (kBlock > 0) {
    parts[lower_tile(kBlock, kBlock - 1)] = kk;
    parts[kTiles + lower_tile(kBlock, kBlock - 1)] = qk;
  }
  float on_diagonal[2] = {};
  if (!kBounded && group == 0) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float product = diagonal()[kFirst + dev::tile_row() + 8 * r];
      on_diagonal[r] = product * of_rows.k[r] * of_rows.q[r];
    }
  }
  parts[lower_tile(kBlock, kBlock)] = joined<false>(levels, on_diagonal);
  parts[kTiles + lower_tile(kBlock, kBlock)] = joined<true>(levels, on_diagonal);
  if constexpr (kBlock + 1 < kBlocks) {
    multiply_block<kBlock + 1>(parts, stage, group, scale, betas);
  }
}

// Warp n sums tile n of k k^T and of q k^T: its own group's part, if it has one, and those that the
// others leave in shared memory.
__device__ float* part_of(int tile, int group) {
  constexpr int kOthers = other_groups(kKey);
  const int n = tile % kTiles;
  const bool is_behind = kOthers < kGroups && group > n;
  return place<float>(places().parts) + (tile * kOthers + group - (is_behind ? 1 : 0)) * 256;
}
__device__ void store_parts(const Parts& parts, int group) {
#pragma unroll
  for (int tile = 0; tile < 2 * kTiles; ++tile) {
    if (tile % kTiles == group) continue;
    dev::store_tile(part_of(tile, group), 0, dev::round_to<DType::kF32>(parts[tile]));
  }
}
// `tile`: one of this warp's.
template <int kTile>
__device__ Acc sum_of_parts(const Parts& parts) {
  constexpr int kOwner = kTile % kTiles;
  Acc sum{};
  if constexpr (kOwner < kGroups) sum = parts[kTile];
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    if (group == kOwner) continue;
    const Acc part =
        dev::to_float(dev::load_tile<DType::kF32>(dev::shared_address(part_of(kTile, group)), 0));
    dev::for_each_element([&](int r, int c, int j) { sum.x[r][c][j] += part.x[r][c][j]; });
  }
  return sum;
}

}  // namespace
