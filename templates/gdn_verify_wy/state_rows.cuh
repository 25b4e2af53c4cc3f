// A warp's part of the transposed state, 16 value columns by key_dim, as it was stored.
#pragma once

#include "common/tf32.cuh"
#include "common/vec.cuh"
#include "gdn_verify_wy/token_rows.cuh"

namespace cubinery::dev {

// Row l / 4 of a product's left operand is the first of lane l's two columns, row l / 4 + 8 the
// second, its neighbour.  Keys lie among lanes as TokenRows has them.
template <auto kKey>
class StateRows {
  using Rows = TokenRows<kKey>;
  static constexpr DType kDType = kKey.states.dtype;
  static constexpr bool kRowsAreV = kKey.states.layout == gdn::StateLayout::kVK;
  static constexpr int kHalves = kKey.tokens / 8;
  static constexpr int kRun = Rows::kRun;
  static constexpr int kRuns = kKey.key_dim / (4 * kRun);

 public:
  // Of a lane's first element in the head's matrix; its first column is v.
  static __device__ int first(int v) {
    const int key = threadIdx.x % 4 * kRun;
    return kRowsAreV ? v * kKey.key_dim + key : key * kKey.value_dim + v;
  }

  // `from`: the lane's first element.
  __device__ void load(const Storage<kDType>* from) {
#pragma unroll
    for (int s = 0; s < kRuns; ++s) {
      for_each_vector([&](int i) { load_streaming(vectors_[s][i], from + offset(s, i)); });
    }
  }

  // sk += S^T k^T, sq += S^T q^T.
  __device__ void multiply(Acc& sk, Acc& sq, const Rows& k, const Rows& q) const {
    if constexpr (kDType == kKey.dtype) {
#pragma unroll
      for (int s = 0; s < Rows::kSteps; ++s) {
        const auto left = tile(s), k_tile = k.tile(s), q_tile = q.tile(s);
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
          mma_half<kDType>(sk, left, k_tile, h);
          mma_half<kDType>(sq, left, q_tile, h);
        }
      }
    } else {
      Acc sk_low{}, sq_low{};
#pragma unroll
      for (int s = 0; s < 2 * Rows::kSteps; ++s) {
        const int run = s / (kRun / 2), j = s % (kRun / 2) * 2;
        const PairsOfTf32<4> left(
            {get(run, 0, j), get(run, 1, j), get(run, 0, j + 1), get(run, 1, j + 1)});
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
          unsigned k_pair[2], q_pair[2];
          k.tf32_pair(h, s / 2, s % 2, k_pair);
          q.tf32_pair(h, s / 2, s % 2, q_pair);
          if constexpr (kDType == DType::kF32) {
            mma_tf32(sk_low.x[0][h], sk_low.x[1][h], left.low, k_pair);
            mma_tf32(sq_low.x[0][h], sq_low.x[1][h], left.low, q_pair);
          }
          mma_tf32(sk.x[0][h], sk.x[1][h], left.high, k_pair);
          mma_tf32(sq.x[0][h], sq.x[1][h], left.high, q_pair);
        }
      }
      for_each_element([&](int r, int h, int e) {
        sk.x[r][h][e] += sk_low.x[r][h][e];
        sq.x[r][h][e] += sq_low.x[r][h][e];
      });
    }
  }

  // decay S + updates^T k, rounded, to `to`, the lane's first element.
  __device__ void store_updated(Storage<kDType>* to, float decay,
                                const PairsOfTf32<4> (&updates)[kHalves],
                                const typename Rows::Given& k) const {
    const int row = tile_row(), column = tile_column();
#pragma unroll
    for (int s = 0; s < kRuns; ++s) {
      // Right operands: lane l has key l / 4 of each product's 8, tokens `column` and the next.
      typename Rows::Run runs[kHalves][2];
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          runs[h][e] = k.run(column + 8 * h + e, (4 * s + row / 2) * kRun);
        }
      }
      float x[2][kRun];
#pragma unroll
      for (int j = 0; j < kRun; j += 2) {
        float upper[2] = {decay * get(s, 0, j), decay * get(s, 0, j + 1)};
        float lower[2] = {decay * get(s, 1, j), decay * get(s, 1, j + 1)};
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
          unsigned right[2];
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float even = runs[h][e].get(j), odd = runs[h][e].get(j + 1);
            right[e] = __float_as_uint(row % 2 == 0 ? even : odd);
          }
          mma_tf32(upper, lower, updates[h].low, right);
          mma_tf32(upper, lower, updates[h].high, right);
        }
        x[0][j] = upper[0], x[0][j + 1] = upper[1];
        x[1][j] = lower[0], x[1][j + 1] = lower[1];
      }
      for_each_vector([&](int i) {
        Vector vector;
        float values[Vector::kElements];
#pragma unroll
        for (int j = 0; j < Vector::kElements; ++j) values[j] = kRowsAreV ? x[i][j] : x[j][i];
        vector.set(values);
        store_streaming(to + offset(s, i), vector);
      });
    }
  }

 private:
  // Rows of V: a column's run of keys, for both columns; else both columns' element of each key.
  static constexpr int kVectors = kRowsAreV ? 2 : kRun;
  using Vector = Vec<kDType, (kRowsAreV ? kRun : 2) * size_of(kDType)>;

  template <class Function>
  static __device__ void for_each_vector(Function f) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) f(i);
  }

  // Of vector i of run `s`, behind the lane's first element.
  static __device__ constexpr int offset(int s, int i) {
    return kRowsAreV ? i * kKey.key_dim + s * 4 * kRun : (s * 4 * kRun + i) * kKey.value_dim;
  }

  // Element j of run `s` of the lane's column r.
  __device__ float get(int s, int r, int j) const {
    if constexpr (!kKey.states.has_initial) return 0.0f;
    return kRowsAreV ? vectors_[s][r].get(j) : vectors_[s][j].get(r);
  }

  // The left operand of step `s`, of 16-bit states.
  __device__ Tile<kDType> tile(int s) const {
    const int run = s / (kRun / 4), first = s % (kRun / 4) * 4;
    Tile<kDType> tile;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int j = first + 2 * c;
        if constexpr (kRowsAreV) {
          tile.x[r][c] = vectors_[run][r].words[j / 2];
        } else {
          tile.x[r][c] = __byte_perm(vectors_[run][j].words[0], vectors_[run][j + 1].words[0],
                                     r == 0 ? 0x5410 : 0x7632);
        }
      }
    }
    return tile;
  }

  Vector vectors_[kRuns][kVectors];
};

}  // namespace cubinery::dev
