// Tokens whose decay is one for each channel of k and at least e^-5 (GateMode::kLowerBound): what
// products over tokens and with the state take of them, made by all warps of a block in shared
// memory.
//
// With D_t = e^(g_0 + ... + g_t), a row over channels, along the path to t in a tree, and products
// of rows element by element:
//
//   K'_i = k_i D_i    Q'_i = q_i D_i    K~_i = k_i / D_i    A_ij = K'_i.K~_j    P_ij = Q'_i.K~_j
//   S_t = D_t (S + sum over i on the path to t of K~_i u_i^T)
//
// Over 16 tokens 1 / D is at most e^80, which fp32 holds, so that A and P are products on the
// tensor cores.  A term and its element of K~ are as far from 1 as each other: nothing cancels.
//
// A warp makes the rows of 32 channels at a time, a lane one of them for all tokens, and adds up
// their part of A and P.
#pragma once

#include "common/norm.cuh"
#include "common/tile/tf32.cuh"
#include "common/tokens/channel_rows.cuh"
#include "common/tokens/key.h"
#include "common/uniform.cuh"
#include "common/warp.cuh"

namespace cubinery::dev {

// The operands of A and P, of kSteps steps each: rows of K' and Q', and rows of K~ as columns.
template <bool kBf16>
struct ProductsOverChannels {
  static constexpr int kSteps = 1;

  struct Columns {
    PairsOfTf32<2> pairs;
    __device__ void put(int, const float (&pair)[2]) { pairs.split(pair); }
  };
  struct Rows {
    PairsOfTf32<4> pairs;
    __device__ void put(int, const float (&upper)[2], const float (&lower)[2]) {
      pairs.split({upper[0], lower[0], upper[1], lower[1]});
    }
    // Adds the product with the columns of half h.
    __device__ void multiply(Acc* acc, int h, const Columns& columns) const {
      float(&first)[2] = acc->x[0][h];
      float(&second)[2] = acc->x[1][h];
      mma_tf32(first, second, pairs.low, columns.pairs.high);
      mma_tf32(first, second, pairs.high, columns.pairs.low);
      mma_tf32(first, second, pairs.high, columns.pairs.high);
    }
  };
};

// Of two bf16 for each number.
template <>
struct ProductsOverChannels<true> {
  static constexpr int kSteps = 2;

  struct Columns {
    unsigned high[2], low[2];
    __device__ void put(int c, const float (&pair)[2]) {
      const PairOfBf16Parts parts = parts_of(pair);
      high[c] = parts.high, low[c] = parts.low;
    }
  };
  struct Rows {
    Tile<DType::kBF16> high, low;
    __device__ void put(int c, const float (&upper)[2], const float (&lower)[2]) {
      const PairOfBf16Parts first = parts_of(upper), second = parts_of(lower);
      high.x[0][c] = first.high, high.x[1][c] = second.high;
      low.x[0][c] = first.low, low.x[1][c] = second.low;
    }
    __device__ void multiply(Acc* acc, int h, const Columns& columns) const {
      multiply(acc, h, low, columns.high);
      multiply(acc, h, high, columns.low);
      multiply(acc, h, high, columns.high);
    }

   private:
    static __device__ void multiply(Acc* acc, int h, const Tile<DType::kBF16>& rows,
                                    const unsigned (&right)[2]) {
      Tile<DType::kBF16> columns{};
      columns.x[h][0] = right[0], columns.x[h][1] = right[1];
      mma_half<DType::kBF16>(*acc, rows, columns, h);
    }
  };
};

// In shared memory of the block: the operands K', Q' and K~, decays of stored states, and each
// warp's part of the products and of squares of q.
template <auto kKey>
class BoundedChannels {
  static constexpr int kTokens = kKey.draft_tokens;
  static constexpr int kDim = kKey.key_dim;
  static constexpr bool kOutputs = has_outputs(kKey);
  static constexpr bool kHasQ = kOutputs && !is_paired(kKey);  // Q' is an operand of its own
  static constexpr int kHalves = token_rows(kKey) / 8;
  static constexpr int kDecayRows = bounded_decay_rows(kKey);
  static constexpr BoundedChannelPlaces kAt = bounded_channel_places(kKey);
  static constexpr int kParts = bounded_parts(kKey), kPart = bounded_part(kKey);
  static constexpr int kNumbers = bounded_numbers(kKey);  // of a lane
  using Operand = OverChannels<kKey>;
  using Tokens = ChannelTokens<kKey>;
  using Products = ProductsOverChannels<has_bf16_rows(kKey)>;

 public:
  explicit __device__ BoundedChannels(unsigned char* shared)
      : shared_(reinterpret_cast<float*>(shared)) {}

  __device__ ScaledRows<kKey> scaled_rows() const { return ScaledRows<kKey>(shared_); }
  __device__ OverTokens<kKey> updates() const { return OverTokens<kKey>(shared_ + kAt.updates); }
  // D_t, t the last token or any of those whose states are stored, of this channel and on.
  __device__ const float* decays(int t, int channel) const {
    return shared_ + kAt.decays + (kDecayRows > 1 ? t * kDim : 0) + channel;
  }

  // The products K' K~^T and Q' K~^T, of which elements on a path are A and P.
  __device__ void products(Acc* kk, Acc* qk) const {
    float numbers[kNumbers] = {};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < kNumbers; ++i) {
        numbers[i] += shared_[kAt.parts + part * kPart + i * 32 + threadIdx.x % 32];
      }
    }
    int i = 0;
    for_each_number(kk, qk, [&](float& x) { x = numbers[i++]; });
  }
  __device__ float q_squares(int i) const {
    float sum = 0.0f;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      sum += shared_[kAt.parts + part * kPart + kNumbers * 32 + i];
    }
    return sum;
  }

  // For all warps of the block.  `first`: the tokens of channels 32 (threadIdx.x / 32) and on;
  // tokens_of(unit) loads those of channels 32 unit and on.  Lane l has the parent of token
  // l % kTokens, -1 for none, in a tree.
  template <class TokensOf>
  __device__ void make(const Tokens& first, int count, int parent, TokensOf tokens_of) const {
    const Parents<kKey> parents(parent);
    Acc kk{}, qk{};
    float squares[kTokens] = {};
    for_each_unit<kKey>(first, tokens_of, [&](int unit, const Tokens& given) {
      store_rows(given, count, unit * 32 + threadIdx.x % 32, parents, squares);
      // Orders the warp's rows before its reading of them.
      __syncwarp();
      add_products(unit, &kk, &qk);
    });
    const int warp = uniform(threadIdx.x / 32);
    if (warp < kParts) store_part(warp, squares, &kk, &qk);
    // Orders operands, decays and parts before their reading by all warps.
    __syncthreads();
  }

 private:
  // Calls f(x) for each of this lane's numbers of the products.
  template <class Function>
  static __device__ void for_each_number(Acc* kk, Acc* qk, Function f) {
#pragma unroll
    for (int i = 0; i < 2 * kHalves * kHalves; ++i) {
      const int r = i / 2 / kHalves, h = i / 2 % kHalves, e = i % 2;
      f(kk->x[r][h][e]);
      if constexpr (kHasQ && kHalves == 1) f(kk->x[1][h][e]);
      if constexpr (kHasQ && kHalves == 2) f(qk->x[r][h][e]);
    }
  }

  // The operands in a lane's channel.
  __device__ void store_rows(const Tokens& given, int count, int channel,
                             const Parents<kKey>& parents, float (&squares)[kTokens]) const {
    if (channel >= kDim) return;
    const auto column = scaled_rows().column(channel);
    float decay[kTokens];                  // D
    float inverse[token_rows(kKey)] = {};  // K~
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const float before = decay_before<kKey>(decay, i, parents.of);
      decay[i] = given.decay(i, count) * before;
      const float k = to_float<kKey.dtype>(given.k[i]), q = to_float<kKey.dtype>(given.q[i]);
      inverse[i] = k * reciprocal(decay[i]);
      if constexpr (kOutputs && kKey.inputs.use_qk_l2norm) squares[i] = fmaf(q, q, squares[i]);
      column.put(i, k * decay[i], q * decay[i]);
      if (kDecayRows > 1 || (kDecayRows == 1 && i == kTokens - 1)) {
        shared_[kAt.decays + (kDecayRows > 1 ? i * kDim : 0) + channel] = decay[i];
      }
    }
    updates().put(channel, inverse);
  }

  // The products over channels 32 unit and on, which are four steps of operands.
  __device__ void add_products(int unit, Acc* kk, Acc* qk) const {
#pragma unroll
    for (int n = 0; n < 4; n += Products::kSteps) {
      const int step = unit * 4 + n;
      if (kDim % 32 != 0 && step * 8 >= kDim) break;
      const auto k_rows = rows_of(scaled_rows().k(), step);
      const auto q_rows = rows_of(scaled_rows().q(), step);
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        typename Products::Columns columns;
#pragma unroll
        for (int c = 0; c < Products::kSteps; ++c) {
          float inverse[2];
          updates().get_row(step + c, h, inverse);
          columns.put(c, inverse);
        }
        k_rows.multiply(kk, h, columns);
        if constexpr (kHasQ && kHalves == 2) q_rows.multiply(qk, h, columns);
      }
    }
  }
  // Of 8 tokens, k and q are the halves of one operand.
  __device__ typename Products::Rows rows_of(const Operand& operand, int first_step) const {
    typename Products::Rows rows;
#pragma unroll
    for (int c = 0; c < Products::kSteps; ++c) {
      float upper[2], lower[2] = {};
      operand.get(first_step + c, 0, upper);
      if constexpr (kHalves == 2) {
        operand.get(first_step + c, 1, lower);
      } else if constexpr (kHasQ) {
        scaled_rows().q().get(first_step + c, 0, lower);
      }
      rows.put(c, upper, lower);
    }
    return rows;
  }

  __device__ void store_part(int part, const float (&squares)[kTokens], Acc* kk, Acc* qk) const {
    float* const to = shared_ + kAt.parts + part * kPart;
    int i = 0;
    for_each_number(kk, qk, [&](float& x) { to[i++ * 32 + threadIdx.x % 32] = x; });
    if constexpr (!kOutputs || !kKey.inputs.use_qk_l2norm) return;
    constexpr int kOwn = own_sums<kTokens>();
    float sums[kOwn];
    sum_over_warp(squares, sums);
#pragma unroll
    for (int slot = 0; slot < kOwn; ++slot) {
      const int token = number_of_own<kTokens>(slot);
      if (token >= 0) to[kNumbers * 32 + token] = sums[slot];
    }
  }

  float* shared_;
};

}  // namespace cubinery::dev
