// What a warp knows of its tokens without a state: T, P and the factors.
#pragma once

#include "common/norm.cuh"
#include "common/tile/tf32.cuh"
#include "common/tile/tile.cuh"
#include "common/tokens/bounded_channels.cuh"
#include "common/tokens/channels.cuh"
#include "common/tokens/key.h"
#include "common/tokens/long_sum.cuh"
#include "common/tokens/order.cuh"
#include "common/tokens/rows.cuh"

namespace cubinery::dev {

// Numbers of this lane's tokens, or of its rows where k and q are paired.  Of a row of L and P:
// tokens row + 8 r; of a column: tokens column + 8 h + e, with tile_row() and tile_column().
template <auto kKey>
struct RowNumbers {
  static constexpr int kHalves = kTokenHalves<kKey>;
  float x[kHalves];
  // `of_token`: lane l has that of token, or row, l % token_rows(kKey).
  explicit __device__ RowNumbers(float of_token) {
#pragma unroll
    for (int r = 0; r < kHalves; ++r) {
      x[r] = __shfl_sync(0xffffffffu, of_token, tile_row() + 8 * r);
    }
  }
};
template <auto kKey>
struct ColumnNumbers {
  static constexpr int kHalves = kTokenHalves<kKey>;
  float x[kHalves][2];
  ColumnNumbers() = default;
  explicit __device__ ColumnNumbers(float of_token) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        x[h][e] = __shfl_sync(0xffffffffu, of_token, tile_column() + 8 * h + e);
      }
    }
  }
};

template <auto kKey, bool = is_bounded(kKey)>
struct ChannelsOf {
  using Type = AnyChannels<kKey>;
};
template <auto kKey>
struct ChannelsOf<kKey, true> {
  using Type = BoundedChannels<kKey>;
};
template <auto kKey>
using Channels = typename ChannelsOf<kKey>::Type;

template <auto kKey>
using OrderOf = TokenOrder<kKey.draft_tokens, is_tree(kKey)>;

// A matrix of tokens by tokens: row half, column half, column.
template <auto kKey>
struct TokenMatrix {
  static constexpr int kHalves = kTokenHalves<kKey>;
  float x[kHalves][kHalves][2];

  // The right operand of a product with the transpose, of 8 columns: row half r, columns of half h.
  __device__ const float (&operand(int r, int h) const)[2] { return x[r][h]; }
};

// The products of tokens that T, P and norms are made of.
template <auto kKey>
struct Gram {
  using Rows = TokenRows<kKey>;
  static constexpr int kHalves = kTokenHalves<kKey>;
  static constexpr bool kPaired = is_paired(kKey);
  static constexpr bool kOutputs = has_outputs(kKey) && !kPaired;

  // kk: also of q, where both are paired; qk: where they are not.
  TokenMatrix<kKey> kk, qk;
  float k_squares, q_squares;  // lane l: of row l % token_rows(kKey)

  __device__ Gram(const Rows& k, const Rows& q) {
    // 8 tokens: k and q are the halves of one operand.
    Acc k_by_k{}, q_by_k{}, q_by_q{};
#pragma unroll
    for (int s = 0; s < Rows::kSteps; ++s) {
      const auto kt = k.tile(s), qt = q.tile(s);
      if constexpr (kHalves == 1) {
        const Tile<kKey.dtype> both{{{kt.x[0][0], kt.x[0][1]}, {qt.x[0][0], qt.x[0][1]}}};
        mma_half<kKey.dtype>(k_by_k, both, kt, 0);
        if constexpr (kKey.inputs.use_qk_l2norm) mma_half<kKey.dtype>(q_by_q, both, qt, 0);
      } else {
        mma<kKey.dtype>(k_by_k, kt, kt);
        mma<kKey.dtype>(q_by_k, qt, kt);
        if constexpr (kKey.inputs.use_qk_l2norm) mma<kKey.dtype>(q_by_q, qt, qt);
      }
    }
#pragma unroll
    for (int r = 0; r < kHalves; ++r) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          kk.x[r][h][e] = k_by_k.x[r][h][e];
          qk.x[r][h][e] = kHalves == 1 ? k_by_k.x[1][h][e] : q_by_k.x[r][h][e];
        }
      }
    }
    k_squares = diagonal(k_by_k, 0);
    q_squares = diagonal(q_by_q, kHalves == 1 ? 1 : 0);
  }
  // Without outputs, or k and q paired.
  explicit __device__ Gram(const Rows& k) {
    Acc k_by_k{};
#pragma unroll
    for (int s = 0; s < Rows::kSteps; ++s) {
      const auto tile = k.tile(s);
#pragma unroll
      for (int h = 0; h < kHalves; ++h) mma_half<kKey.dtype>(k_by_k, tile, tile, h);
    }
#pragma unroll
    for (int i = 0; i < 2 * kHalves * kHalves; ++i) {
      const int r = i / 2 / kHalves, h = i / 2 % kHalves, e = i % 2;
      kk.x[r][h][e] = k_by_k.x[r][h][e];
    }
    k_squares = diagonal(k_by_k, 0);
  }

  // Decayed by each channel.
  __device__ Gram(const BoundedChannels<kKey>& channels, const OrderOf<kKey>& order) {
    Acc k_by_k{}, q_by_k{};
    channels.products(&k_by_k, &q_by_k);
#pragma unroll
    for (int r = 0; r < kHalves; ++r) {
      const int row = tile_row() + 8 * r;
      const bool is_q = kPaired && row >= kKey.draft_tokens;
      const int i = is_q ? row - kKey.draft_tokens : row;
      const auto path = order.path_of(i);
#pragma unroll
      for (int n = 0; n < 2 * kHalves; ++n) {
        const int h = n / 2, e = n % 2;
        const bool is_there = path.number_of(tile_column() + 8 * h + e) <= i;
        const float of_q = kHalves == 1 ? k_by_k.x[1][h][e] : q_by_k.x[r][h][e];
        kk.x[r][h][e] = is_there ? k_by_k.x[r][h][e] : 0.0f;
        qk.x[r][h][e] = kOutputs && is_there ? of_q : 0.0f;
      }
    }
    const int row = threadIdx.x % token_rows(kKey);
    const bool is_q = kPaired && row >= kKey.draft_tokens;
    k_squares = diagonal(k_by_k, 0);
    if (is_q) k_squares = channels.q_squares(row - kKey.draft_tokens);
    q_squares = kOutputs ? channels.q_squares(row) : 0.0f;
  }
  __device__ Gram(const AnyChannels<kKey>& channels, const OrderOf<kKey>& order) {
#pragma unroll
    for (int r = 0; r < kHalves; ++r) {
      const int row = tile_row() + 8 * r;
      const bool is_q = kPaired && row >= kKey.draft_tokens;
      const int i = is_q ? row - kKey.draft_tokens : row;
      const auto path = order.path_of(i);
#pragma unroll
      for (int n = 0; n < 2 * kHalves; ++n) {
        const int h = n / 2, e = n % 2, j = tile_column() + 8 * h + e;
        const bool is_there = path.number_of(j) <= i;
        kk.x[r][h][e] = !is_there ? 0.0f : is_q ? channels.qk(i, j, path) : channels.kk(i, j, path);
        qk.x[r][h][e] = kOutputs && is_there ? channels.qk(i, j, path) : 0.0f;
      }
    }
    const int row = threadIdx.x % token_rows(kKey);
    const bool is_q = kPaired && row >= kKey.draft_tokens;
    k_squares = is_q ? channels.q_squares(row - kKey.draft_tokens) : channels.k_squares(row);
    q_squares = kOutputs ? channels.q_squares(row) : 0.0f;
  }

 private:
  // `first`: the row half of the first 8 tokens.
  static __device__ float diagonal(const Acc& acc, int first) {
    const int row = threadIdx.x % 8;
    const int holder = row * 4 + row / 2;  // the lane with that row's element
    const bool is_odd = tile_row() % 2 != 0;
    const float low = is_odd ? acc.x[first][0][1] : acc.x[first][0][0];
    const float of_low = __shfl_sync(0xffffffffu, low, holder);
    if constexpr (kHalves == 1) return of_low;
    const float high = is_odd ? acc.x[1][1][1] : acc.x[1][1][0];
    const float of_high = __shfl_sync(0xffffffffu, high, holder);
    return threadIdx.x % 16 < 8 ? of_low : of_high;
  }
};

// What a warp knows of its tokens without a state.
//
// Paired, rows and columns from 4 on are of q.  Below L stands -P, so that
//
//   (1 + L    )-1     ( T     )        U = T X,  O = P T X + e^G Q^ S
//   ( -P     1)    =  ( P T  1)
//
// come out of one product with X, whose rows from 4 on are e^G Q^ S: those of values 0 and of the
// write strength -1.
template <auto kKey>
struct WyFactors {
  static constexpr int kHalves = kTokenHalves<kKey>;
  static constexpr bool kPaired = is_paired(kKey);
  static constexpr bool kOutputs = has_outputs(kKey) && !kPaired;  // P apart
  using Order = OrderOf<kKey>;

  TokenMatrix<kKey> t, p;      // p: with kOutputs, as q_norm
  ColumnNumbers<kKey> sum_g;   // G, in powers of 2
  ColumnNumbers<kKey> rest_g;  // and what it was rounded by
  ColumnNumbers<kKey> beta;
  ColumnNumbers<kKey> k_norm;  // inverse norms
  ColumnNumbers<kKey> q_norm;  // and the scale
  LongSum all_g;               // lane l: G of token l % kKey.draft_tokens

  WyFactors() = default;
  // Lane l has the logarithm of the decay, in powers of 2, and the write strength of token
  // l % kKey.draft_tokens: 0 and 0 where it is not there.
  __device__ WyFactors(const Gram<kKey>& gram, const Order& order, float log_decay, float write,
                       float scale)
      : WyFactors(gram, order, order.sum_up(log_decay), write, inverse_norm(gram.k_squares),
                  scale * inverse_norm(gram.q_squares)) {}
  // Paired: `scale` is that of q.
  static __device__ WyFactors paired(const Gram<kKey>& gram, const Order& order, float log_decay,
                                     float write, float scale) {
    const bool is_q = threadIdx.x % 8 >= kKey.draft_tokens;
    return WyFactors(gram, order, order.sum_up(log_decay), is_q ? -1.0f : write,
                     inverse_norm(gram.k_squares) * (is_q ? scale : 1.0f), 0.0f);
  }
  // Without outputs.
  __device__ WyFactors(const Gram<kKey>& gram, const Order& order, float log_decay, float write)
      : WyFactors(gram, order, order.sum_up(log_decay), write, inverse_norm(gram.k_squares), 0.0f) {
  }

  // For the lanes of other warps.
  __device__ void share(float* shared) {
    int i = 0;
    for_each([&](float& x) { shared[i++ * 32 + threadIdx.x % 32] = x; });
  }
  __device__ void take(const float* shared) {
    int i = 0;
    for_each([&](float& x) { x = shared[i++ * 32 + threadIdx.x % 32]; });
  }

 private:
  // Calls f(x) for each of this lane's numbers.
  template <class Function>
  __device__ void for_each(Function f) {
#pragma unroll
    for (int i = 0; i < kHalves * kHalves * 2; ++i) {
      f(t.x[i / 2 / kHalves][i / 2 % kHalves][i % 2]);
      if constexpr (kOutputs) f(p.x[i / 2 / kHalves][i / 2 % kHalves][i % 2]);
    }
#pragma unroll
    for (int i = 0; i < kHalves * 2; ++i) {
      f(sum_g.x[i / 2][i % 2]);
      f(rest_g.x[i / 2][i % 2]);
      f(beta.x[i / 2][i % 2]);
      f(k_norm.x[i / 2][i % 2]);
      if constexpr (kOutputs) f(q_norm.x[i / 2][i % 2]);
    }
    f(all_g.high);
    f(all_g.low);
  }

  __device__ WyFactors(const Gram<kKey>& gram, const Order& order, LongSum sum, float write,
                       float k_factor, float q_factor)
      : sum_g(sum.high),
        rest_g(sum.low),
        beta(write),
        k_norm(k_factor),
        q_norm(q_factor),
        all_g(sum) {
    const RowNumbers<kKey> row_g(sum.high), row_rest(sum.low);
    const RowNumbers<kKey> row_k(write * k_factor), row_q(q_factor);
    TokenMatrix<kKey> l;
#pragma unroll
    for (int r = 0; r < kHalves; ++r) {
      const int row = tile_row() + 8 * r;
      const bool is_q = kPaired && row >= kKey.draft_tokens;
      const int i = is_q ? row - kKey.draft_tokens : row;
      const typename Order::Path path = order.path_of(i);
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int j = tile_column() + 8 * h + e;
          const bool is_k = !kPaired || j < kKey.draft_tokens;
          // Of a token that is not on the path it may be infinite.
          const LongSum column_g{sum_g.x[h][e], rest_g.x[h][e]};
          const float decay = exp2(LongSum{row_g.x[r], row_rest.x[r]} - column_g) * k_norm.x[h][e];
          const bool is_in = is_k && path.number_of(j) < i + (is_q ? 1 : 0);
          l.x[r][h][e] = is_in ? row_k.x[r] * gram.kk.x[r][h][e] * decay : 0.0f;
          if constexpr (kOutputs) {
            p.x[r][h][e] = path.number_of(j) <= i ? row_q.x[r] * gram.qk.x[r][h][e] * decay : 0.0f;
          }
          t.x[r][h][e] = j == row ? 1.0f : 0.0f;
        }
      }
    }
    substitute(l);
  }

  static __device__ float inverse_norm(float squares) {
    return kKey.inputs.use_qk_l2norm ? cubinery::dev::inverse_norm(squares) : 1.0f;
  }

  // T <- (I + L)^-1 T, row by row.
  __device__ void substitute(const TokenMatrix<kKey>& l) {
#pragma unroll
    for (int j = 0; j < kKey.draft_tokens - (kPaired ? 0 : 1); ++j) {
      const int l_holder = threadIdx.x % 32 / 4 * 4 + j % 8 / 2;
      const int t_holder = j % 8 * 4 + threadIdx.x % 4;
      float row[kHalves][2];
#pragma unroll
      for (int h = 0; h <= j / 8; ++h) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          row[h][e] = __shfl_sync(0xffffffffu, t.x[j / 8][h][e], t_holder);
        }
      }
#pragma unroll
      for (int r = j / 8; r < kHalves; ++r) {
        const float factor = __shfl_sync(0xffffffffu, l.x[r][j / 8][j % 2], l_holder);
#pragma unroll
        for (int h = 0; h <= j / 8; ++h) {
#pragma unroll
          for (int e = 0; e < 2; ++e) t.x[r][h][e] = fmaf(-factor, row[h][e], t.x[r][h][e]);
        }
      }
    }
  }
};

// Columns 8 r to 8 r + 7 of c += a b^T, for a lower triangular b.
template <auto kKey>
__device__ void multiply_by_lower(Acc& c, const Acc& a, const TokenMatrix<kKey>& b) {
  constexpr int kHalves = kTokenHalves<kKey>;
#pragma unroll
  for (int r = 0; r < kHalves; ++r) {
#pragma unroll
    for (int h = 0; h <= r; ++h) {
      PairsOfTf32<4> left({a.x[0][h][0], a.x[1][h][0], a.x[0][h][1], a.x[1][h][1]});
      PairsOfTf32<2> right({b.operand(r, h)[0], b.operand(r, h)[1]});
      float(&low)[2] = c.x[0][r];
      float(&high)[2] = c.x[1][r];
      mma_tf32(low, high, left.low, right.high);
      mma_tf32(low, high, left.high, right.low);
      mma_tf32(low, high, left.high, right.high);
    }
  }
}

}  // namespace cubinery::dev
