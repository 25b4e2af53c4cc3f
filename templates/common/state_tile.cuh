// 16 value columns of a head's transposed state, by key_dim, in shared memory.
#pragma once

#include "common/copy.cuh"
#include "common/tf32.cuh"
#include "common/token_factors.cuh"
#include "common/token_rows.cuh"
#include "common/vec.cuh"

namespace cubinery::dev {

// Starts copying 4, 8 or 16 bytes to shared memory.  Requires: both addresses are multiples of
// that.
template <int kBytes>
__device__ void copy_vector(unsigned shared, const void* global) {
  if constexpr (kBytes == 16) {
    copy_16(shared, global);
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(global), "n"(kBytes)
                 : "memory");
  }
}

// A lane reads the bytes that it copied itself, and no others: nothing but its own wait is between
// the two.  Registers would do as a place too, but the compiler moves loads behind what does not
// need them, and fewer warps would fit.
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
  explicit __device__ StateTile(unsigned char* shared)
      : vectors_(reinterpret_cast<Vector*>(shared) + threadIdx.x % 32) {}

  // Of a lane's first element in the head's matrix; its first column is v.
  static __device__ int first(int v) {
    const int key = threadIdx.x % 4 * kRun;
    return kRowsAreV ? v * kKey.key_dim + key : key * kKey.value_dim + v;
  }

  // `from`: the lane's first element.
  __device__ void start_loading(const Storage<kDType>* from) const {
    const unsigned shared = shared_address(vectors_);
#pragma unroll
    for (int s = 0; s < kRuns; ++s) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        copy_vector<sizeof(Vector)>(shared + place(s, i) * sizeof(Vector), from + offset(s, i));
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

  // decay S + updates^T k, rounded, to `to`, the lane's first element.
  __device__ void store_updated(Storage<kDType>* to, float decay,
                                const PairsOfTf32<4> (&updates)[kHalves], const Rows& k) const {
#pragma unroll
    for (int s = 0; s < kRuns; ++s) {
      const Part part(*this, s);
      float x[2][kRun];
#pragma unroll
      for (int j = 0; j < kRun; j += 2) {
        float upper[2] = {decay * part.get(0, j), decay * part.get(0, j + 1)};
        float lower[2] = {decay * part.get(1, j), decay * part.get(1, j + 1)};
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
          unsigned right[2];
          k.tf32_transposed(h, s, j / 2, right);
          mma_tf32(upper, lower, updates[h].low, right);
          mma_tf32(upper, lower, updates[h].high, right);
        }
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
        store_streaming(to + offset(s, i), vector);
      }
    }
  }

 private:
  // Rows of V: a column's run of keys, for both columns; else both columns' element of each key.
  static constexpr int kVectors = kRowsAreV ? 2 : kRun;
  using Vector = Vec<kDType, (kRowsAreV ? kRun : 2) * size_of(kDType)>;

  // Of vector i of run `s`: behind the lane's first element in memory, and behind its first vector
  // in shared memory, where those of all lanes lie side by side.
  static __device__ constexpr int offset(int s, int i) {
    return kRowsAreV ? i * kKey.key_dim + s * 4 * kRun : (s * 4 * kRun + i) * kKey.value_dim;
  }
  static __device__ constexpr int place(int s, int i) { return (s * kVectors + i) * 32; }

  // One run of keys of the lane's two columns.
  class Part {
   public:
    __device__ Part(const StateTile& tile, int s) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if constexpr (kKey.states.has_initial) {
          vectors_[i] = tile.vectors_[place(s, i)];
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

  const Vector* vectors_;  // the lane's first
};

// The state after token `t`, whose path this is, from the first one, to `to`, the warp's columns
// there.
template <auto kKey>
__device__ void store_state(const StateTile<kKey>& state, const WyFactors<kKey>& factors,
                            const Acc& u, const TokenRows<kKey>& k, int t,
                            typename OrderOf<kKey>::Path path, Storage<kKey.states.dtype>* to) {
  constexpr int kHalves = kTokenHalves<kKey>;
  const LongSum sum = shfl(factors.all_g, t);
  // Left operands of the products with k: what is left of each token's update.
  PairsOfTf32<4> updates[kHalves];
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    float factor[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const bool is_in = path.number_of(tile_column() + 8 * h + e) <= t;
      const LongSum of_token{factors.sum_g.x[h][e], factors.rest_g.x[h][e]};
      factor[e] = is_in ? exp2(sum - of_token) * factors.k_norm.x[h][e] : 0.0f;
    }
    updates[h].split({u.x[0][h][0] * factor[0], u.x[1][h][0] * factor[0], u.x[0][h][1] * factor[1],
                      u.x[1][h][1] * factor[1]});
  }
  state.store_updated(to, exp2(sum.high), updates, k);
}

}  // namespace cubinery::dev
