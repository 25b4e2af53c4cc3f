// 16 value columns of a head's transposed state, by key_dim, in shared memory; and a warp's columns
// on their way through it.
#pragma once

#include "common/copy.cuh"
#include "common/tile/tf32.cuh"
#include "common/tokens/channel_rows.cuh"
#include "common/tokens/factors.cuh"
#include "common/tokens/rows.cuh"
#include "common/tokens/updates.cuh"
#include "common/vec.cuh"

namespace cubinery::dev {

// Registers would do as a place too, but the compiler moves loads behind what does not need them,
// and fewer warps would fit.
//
// Where rows are of V, the tile is one piece of memory, and every instruction copies 512
// neighbouring bytes of it, in and out: memory takes 7 % longer for 64 bytes of each of eight rows,
// as products have them.
//
// Row l / 4 of a product's left operand is the first of lane l's two columns, row l / 4 + 8 the
// second, its neighbour.  Keys lie among lanes as TokenRows has them.
template <auto kKey>
class StateTile {
  using Rows = TokenRows<kKey>;
  static constexpr DType kDType = kKey.states.dtype;
  static constexpr bool kRowsAreV = kKey.states.layout == gdn::StateLayout::kVK;
  static constexpr int kHalves = kTokenHalves<kKey>;
  static constexpr int kRun = Rows::kRun;
  static constexpr int kRuns = kKey.key_dim / (4 * kRun);

  // Products with f32 states.  What a 16-bit o is rounded by afterwards is 16 times as much as tf32
  // is rounded by, or more.
  static constexpr bool is_exact() {
    if constexpr (has_outputs(kKey)) return kKey.states.store || kKey.output_dtype == DType::kF32;
    return true;
  }
  static constexpr bool kPairs = kDType == DType::kF32 && is_exact();

 public:
  static constexpr int kBytes = 16 * kKey.key_dim * size_of(kDType);

  // `shared`: kBytes of the warp's own, 16-byte aligned.
  explicit __device__ StateTile(unsigned char* shared) : shared_(shared) {
    if constexpr (kRowsAreV) {
      const int swap = kSwaps ? tile_row() % 2 : 0;
      auto* const first = shared + 2 * tile_row() * kRowBytes + threadIdx.x % 4 * sizeof(Vector);
      runs_[0] = first + swap * kRunsBytes;
      runs_[1] = first + (1 - swap) * kRunsBytes;
    } else {
      runs_[0] = shared + threadIdx.x % 32 * sizeof(Vector);
    }
  }

  // Of the tile in the head's matrix; `v` is its first column.
  static __device__ int first(int v) { return kRowsAreV ? v * kKey.key_dim : v; }

  // `from`: the tile in memory.
  __device__ void start_loading(const Storage<kDType>* from) const {
    if constexpr (kRowsAreV) {
      const unsigned shared = shared_address(shared_);
      for_each_piece([&](int piece, int at) { copy_16(shared + at, piece_of(from, piece)); });
    } else {
      const unsigned shared = shared_address(runs_[0]);
      from += lane_offset();
#pragma unroll
      for (int s = 0; s < kRuns; ++s) {
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          copy_vector<sizeof(Vector)>(shared + place(s, i), from + offset(s, i));
        }
      }
    }
  }

  // products[i] += S^T rows[i]^T, each.
  template <int kCount>
  __device__ void multiply(Acc (&products)[kCount], const Rows* const (&rows)[kCount]) const {
    Acc low[kCount]{};
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const Part part(*this, run);
      if constexpr (kDType == kKey.dtype) {
#pragma unroll
        for (int i = 0; i < kRun / 4; ++i) {
          const auto left = part.tile(i);
          const int s = run * (kRun / 4) + i;
#pragma unroll
          for (int h = 0; h < kHalves; ++h) {
#pragma unroll
            for (int n = 0; n < kCount; ++n) {
              mma_half<kDType>(products[n], left, rows[n]->tile(s), h);
            }
          }
        }
      } else {
#pragma unroll
        for (int j = 0; j < kRun; j += 2) {
          const float x[4] = {part.get(0, j), part.get(1, j), part.get(0, j + 1),
                              part.get(1, j + 1)};
          PairsOfTf32<4> left;
          if constexpr (kPairs) {
            left.split(x);
          } else {
            left.round(x);
          }
          const int s = (run * kRun + j) / 4;
#pragma unroll
          for (int h = 0; h < kHalves; ++h) {
            unsigned pairs[kCount][2];
#pragma unroll
            for (int n = 0; n < kCount; ++n) rows[n]->tf32_pair(h, s, j / 2 % 2, pairs[n]);
#pragma unroll
            for (int n = 0; n < kCount && kPairs; ++n) {
              mma_tf32(low[n].x[0][h], low[n].x[1][h], left.low, pairs[n]);
            }
#pragma unroll
            for (int n = 0; n < kCount; ++n) {
              mma_tf32(products[n].x[0][h], products[n].x[1][h], left.high, pairs[n]);
            }
          }
        }
      }
    }
    for_each_element([&](int r, int h, int e) {
#pragma unroll
      for (int n = 0; n < kCount; ++n) products[n].x[r][h][e] += low[n].x[r][h][e];
    });
  }

  // The same with rows of fp32 numbers, as exactly.
  template <int kCount>
  __device__ void multiply(Acc (&products)[kCount],
                           const OverChannels<kKey> (&rows)[kCount]) const {
    if constexpr (has_bf16_rows(kKey)) return multiply_bf16(products, rows);
    Acc low[kCount]{};
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const Part part(*this, run);
#pragma unroll
      for (int j = 0; j < kRun; j += 2) {
        const float x[4] = {part.get(0, j), part.get(1, j), part.get(0, j + 1), part.get(1, j + 1)};
        PairsOfTf32<4> left;
        left.take(x, kPairs);
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
#pragma unroll
          for (int n = 0; n < kCount; ++n) {
            float pair[2];
            rows[n].get((run * kRun + j) / 2, h, pair);
            PairsOfTf32<2> right;
            right.take(pair, is_exact());
            float(&low_upper)[2] = low[n].x[0][h];
            float(&low_lower)[2] = low[n].x[1][h];
            if constexpr (kPairs) mma_tf32(low_upper, low_lower, left.low, right.high);
            if constexpr (is_exact()) mma_tf32(low_upper, low_lower, left.high, right.low);
            mma_tf32(products[n].x[0][h], products[n].x[1][h], left.high, right.high);
          }
        }
      }
    }
    for_each_element([&](int r, int h, int e) {
#pragma unroll
      for (int n = 0; n < kCount; ++n) products[n].x[r][h][e] += low[n].x[r][h][e];
    });
  }

  // What `update` makes of S, rounded, to `to`, the tile in memory: HeadUpdate or ChannelUpdate.
  template <class Update>
  __device__ void store_updated(Storage<kDType>* to, const Update& update) const {
    to += lane_offset();
    for_each_updated(update, [&](int s, int i, const Vector& vector) {
      store_streaming(to + offset(s, i), vector);
    });
  }

  // The same, and S is gone.  In whole pieces, which wait for all of the tile: with no other tile
  // on its way meanwhile that costs more than it gains.
  template <class Update>
  __device__ void replace_and_store(Storage<kDType>* to, const Update& update) const {
    if constexpr (!kRowsAreV || kKey.warp_v == 16) return store_updated(to, update);
    for_each_updated(update, [&](int s, int i, const Vector& vector) { *at(s, i) = vector; });
    // Orders all lanes' results before their reading, piece by piece.
    __syncwarp();
    for_each_piece([&](int piece, int at) {
      store_streaming(piece_of(to, piece), *reinterpret_cast<const Piece*>(shared_ + at));
    });
  }

 private:
  // Of two bf16 each.
  template <int kCount>
  __device__ void multiply_bf16(Acc (&products)[kCount],
                                const OverChannels<kKey> (&rows)[kCount]) const {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const Part part(*this, run);
#pragma unroll
      for (int i = 0; i < kRun / 4; ++i) {
        const auto left = part.tile(i);
#pragma unroll
        for (int n = 0; n < kCount; ++n) {
          Tile<kDType> high{}, low{};
#pragma unroll
          for (int h = 0; h < kHalves; ++h) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              float pair[2];
              rows[n].get((run * kRun + 4 * i) / 2 + c, h, pair);
              const PairOfBf16Parts parts = parts_of(pair);
              high.x[h][c] = parts.high;
              low.x[h][c] = parts.low;
            }
            mma_half<kDType>(products[n], left, low, h);
            mma_half<kDType>(products[n], left, high, h);
          }
        }
      }
    }
  }

  // Rows of V: a column's run of keys, for both columns; else both columns' element of each key.
  static constexpr int kVectors = kRowsAreV ? 2 : kRun;
  using Vector = Vec<kDType, (kRowsAreV ? kRun : 2) * size_of(kDType)>;

  static constexpr int kRowBytes = kKey.key_dim * size_of(kDType);  // of V
  static constexpr int kRunsBytes = 4 * sizeof(Vector);             // of four lanes side by side
  // Eight lanes have runs of two rows.  Where those would lie in the same banks, every second pair
  // of rows has its halves of 128 bytes swapped.
  static constexpr bool kSwaps = kRowBytes % 128 == 0;
  using Piece = Vec<kDType, 16>;

  // Calls f(piece, its place in shared memory) for this lane's pieces of the tile: of 32
  // neighbours, one.  `piece`: that of the first lane.
  template <class Function>
  static __device__ void for_each_piece(Function f) {
#pragma unroll
    for (int i = 0; i < kBytes / 512; ++i) {
      const unsigned byte = i * 512 + threadIdx.x % 32 * 16;
      f(i * 32, kSwaps ? byte ^ (byte / kRowBytes / 2 % 2 * 64) : byte);
    }
  }
  // Of this lane.
  template <class Element>
  static __device__ Element* piece_of(Element* tile, int piece) {
    return tile + threadIdx.x % 32 * Piece::kElements + piece * Piece::kElements;
  }

  // Of the lane's first element behind the tile's.
  static __device__ int lane_offset() {
    const int key = threadIdx.x % 4 * kRun, v = 2 * tile_row();
    return kRowsAreV ? v * kKey.key_dim + key : key * kKey.value_dim + v;
  }
  // Of vector i of run `s` behind the lane's first element in memory.
  static __device__ constexpr int offset(int s, int i) {
    return kRowsAreV ? i * kKey.key_dim + s * 4 * kRun : (s * 4 * kRun + i) * kKey.value_dim;
  }
  // The same in shared memory, behind runs_[s % 2] where rows are of V, else behind runs_[0].
  static __device__ constexpr int place(int s, int i) {
    if constexpr (kRowsAreV) return s / 2 * 2 * kRunsBytes + i * kRowBytes;
    return (s * kVectors + i) * 32 * sizeof(Vector);
  }
  __device__ Vector* at(int s, int i) const {
    return reinterpret_cast<Vector*>(runs_[kRowsAreV ? s % 2 : 0] + place(s, i));
  }

  // Calls f(s, i, vector) for vector i of each run `s` of what `update` makes of S, rounded.
  template <class Update, class Function>
  __device__ void for_each_updated(const Update& update, Function f) const {
#pragma unroll
    for (int s = 0; s < kRuns; ++s) {
      const Part part(*this, s);
      float x[2][kRun];
#pragma unroll
      for (int j = 0; j < kRun; j += 2) {
        float upper[2] = {part.get(0, j), part.get(0, j + 1)};
        float lower[2] = {part.get(1, j), part.get(1, j + 1)};
        update(upper, lower, s, j / 2);
        x[0][j] = upper[0], x[0][j + 1] = upper[1];
        x[1][j] = lower[0], x[1][j + 1] = lower[1];
      }
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        Vector vector;
        float values[Vector::kElements];
#pragma unroll
        for (int j = 0; j < Vector::kElements; ++j) values[j] = kRowsAreV ? x[i][j] : x[j][i];
        vector.set(values);
        f(s, i, vector);
      }
    }
  }

  // One run of keys of the lane's two columns.
  class Part {
   public:
    __device__ Part(const StateTile& tile, int s) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if constexpr (kKey.states.has_initial) {
          vectors_[i] = *tile.at(s, i);
        } else {
          vectors_[i] = {};
        }
      }
    }

    // Element j of column r.
    __device__ float get(int r, int j) const {
      return kRowsAreV ? vectors_[r].get(j) : vectors_[j].get(r);
    }

    // Four elements from 4 i on, of 16-bit states, as a left operand.
    __device__ Tile<kDType> tile(int i) const {
      Tile<kDType> tile;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int j = 4 * i + 2 * c;
          if constexpr (kRowsAreV) {
            tile.x[r][c] = vectors_[r].words[j / 2];
          } else {
            tile.x[r][c] = __byte_perm(vectors_[j].words[0], vectors_[j + 1].words[0],
                                       r == 0 ? 0x5410 : 0x7632);
          }
        }
      }
      return tile;
    }

   private:
    Vector vectors_[kVectors];
  };

  unsigned char* shared_;
  unsigned char* runs_[2];  // the lane's first run, and, where rows are of V, its second
};

// A warp's columns, tile by tile: it holds held_v of them in shared memory, the next ones on their
// way to where those lie that are done.
template <auto kKey>
class StateTiles {
  using Tile = StateTile<kKey>;
  using Element = Storage<kKey.states.dtype>;

 public:
  static constexpr int kTiles = kKey.warp_v / 16;

  // `shared`: of the block, 16-byte aligned.
  explicit __device__ StateTiles(unsigned char* shared)
      : shared_(shared + threadIdx.x / 32 * kHeld * Tile::kBytes) {}

  // Starts loading from a head's matrix; `v` is the warp's first column.
  __device__ void start(const Element* matrix, int v) {
    from_ = matrix + Tile::first(v);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) load(i);
  }

  // Waits for tile `i`, the one behind the last.
  __device__ Tile take(int i) const {
    // Orders the warp's copies of the tile before its reading of them.
    wait_copies<kHeld - 1>();
    __syncwarp();
    return at(i);
  }

  // Tile `i` is done: another one may take its place.
  __device__ void load_next(int i) const {
    if constexpr (kHeld == kTiles) {
      commit_copies();
    } else {
      // Orders the warp's reading of the tile before copies to its place.
      __syncwarp();
      load(i + kHeld);
    }
  }

 private:
  static constexpr int kHeld = kKey.held_v / 16;

  __device__ Tile at(int i) const { return Tile(shared_ + i % kHeld * Tile::kBytes); }

  // A group of copies for each tile, empty behind the last one, so that take() can count them.
  __device__ void load(int i) const {
    if (i < kTiles) at(i).start_loading(from_ + i * Tile::first(16));
    commit_copies();
  }

  unsigned char* shared_;
  const Element* from_;
};

// The state after token `t`, whose path this is, from the first one, to `to`, the tile in memory.
// `keeps_first`: the first one is still needed.
template <auto kKey>
__device__ void store_state(const StateTile<kKey>& state, const WyFactors<kKey>& factors,
                            const Acc& u, const TokenRows<kKey>& k, int t,
                            typename OrderOf<kKey>::Path path, bool keeps_first,
                            Storage<kKey.states.dtype>* to) {
  constexpr int kHalves = kTokenHalves<kKey>;
  // Orders nothing: it keeps the compiler from loading the state for its update in front of the
  // products, for which there are no registers.  More than four steps load it faster once.
  if (!keeps_first || kKey.draft_tokens == 4) __syncwarp();
  const LongSum sum = shfl(factors.all_g, t);
  Acc left{};  // of each token's update
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const bool is_in = path.number_of(tile_column() + 8 * h + e) <= t;
      const LongSum of_token{factors.sum_g.x[h][e], factors.rest_g.x[h][e]};
      const float factor = is_in ? exp2(sum - of_token) * factors.k_norm.x[h][e] : 0.0f;
#pragma unroll
      for (int r = 0; r < 2; ++r) left.x[r][h][e] = u.x[r][h][e] * factor;
    }
  }
  const HeadUpdate<kKey> update{TokenUpdates<kKey>(left), k, exp2(sum.high)};
  if (keeps_first) {
    state.store_updated(to, update);
  } else {
    state.replace_and_store(to, update);
  }
}

// The same, where each channel has a decay: u of rows that no token has is 0, or meets 0 in the
// rows of updates.
template <auto kKey>
__device__ void store_state(const StateTile<kKey>& state, const WyFactors<kKey>& factors,
                            const Acc& u, const Channels<kKey>& channels, int t,
                            typename OrderOf<kKey>::Path path, Storage<kKey.states.dtype>* to) {
  constexpr bool kOnce = stores_channels_once(kKey);
  __syncwarp();  // as above
  Acc left{};
#pragma unroll
  for (int i = 0; i < 4 * kTokenHalves<kKey>; ++i) {
    const int r = i % 2, h = i / 4, e = i / 2 % 2;
    const bool is_in = kOnce || path.number_of(tile_column() + 8 * h + e) <= t;
    left.x[r][h][e] = is_in ? u.x[r][h][e] * factors.k_norm.x[h][e] : 0.0f;
  }
  const int channel = threadIdx.x % 4 * key_run(kKey);  // the lane's first
  if constexpr (kOnce) {
    state.replace_and_store(
        to, ChannelUpdate<kKey>(left, channels.updates(), channels.decays(t, channel)));
  } else if constexpr (is_bounded(kKey)) {
    state.store_updated(to,
                        ChannelUpdate<kKey>(left, channels.updates(), channels.decays(t, channel)));
  } else {
    state.store_updated(to, PathUpdate<kKey>(left, channels, t, path));
  }
}

}  // namespace cubinery::dev
