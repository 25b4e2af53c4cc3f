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

// In shared memory of the block: the operands K', Q' and K~, decays of stored states, and each
// warp's part of the products and of squares of q.
template <auto kKey>
class BoundedChannels {
  static constexpr int kTokens = kKey.draft_tokens;
  static constexpr int kDim = kKey.key_dim;
  static constexpr bool kOutputs = has_outputs(kKey);
  static constexpr bool kPaired = is_paired(kKey);  // Q' is behind K', as rows of one operand
  static constexpr bool kHasQ = kOutputs && !kPaired;
  static constexpr int kHalves = token_rows(kKey) / 8;
  static constexpr int kOperand = token_rows(kKey) * kDim;
  static constexpr int kInverseAt = (kHasQ ? 2 : 1) * kOperand;
  static constexpr int kDecaysAt = kInverseAt + kOperand;
  static constexpr int kDecayRows = bounded_decay_rows(kKey);
  static constexpr int kPartsAt = kDecaysAt + kDecayRows * kDim;
  static constexpr int kParts = bounded_parts(kKey), kPart = bounded_part(kKey);
  static constexpr int kNumbers = bounded_numbers(kKey);  // of a lane
  using Operand = OverChannels<kKey>;
  using Tokens = ChannelTokens<kKey>;

 public:
  explicit __device__ BoundedChannels(unsigned char* shared)
      : shared_(reinterpret_cast<float*>(shared)) {}

  __device__ Operand k() const { return Operand(shared_); }
  __device__ Operand q() const { return Operand(shared_ + kOperand); }  // not paired
  __device__ OverTokens<kKey> updates() const { return OverTokens<kKey>(shared_ + kInverseAt); }
  // D_t, t the last token or any of those whose states are stored, of this channel and on.
  __device__ const float* decays(int t, int channel) const {
    return shared_ + kDecaysAt + (kDecayRows > 1 ? t * kDim : 0) + channel;
  }

  // The products K' K~^T and Q' K~^T, of which elements on a path are A and P.
  __device__ void products(Acc* kk, Acc* qk) const {
    float numbers[kNumbers] = {};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < kNumbers; ++i) {
        numbers[i] += shared_[kPartsAt + part * kPart + i * 32 + threadIdx.x % 32];
      }
    }
    int i = 0;
    for_each_number(kk, qk, [&](float& x) { x = numbers[i++]; });
  }
  __device__ float q_squares(int i) const {
    float sum = 0.0f;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      sum += shared_[kPartsAt + part * kPart + kNumbers * 32 + i];
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
    const auto k_column = this->k().column(channel), q_column = this->q().column(channel);
    float decay[kTokens];                  // D
    float inverse[token_rows(kKey)] = {};  // K~
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const float before = decay_before<kKey>(decay, i, parents.of);
      decay[i] = i < count ? given.decay(i) * before : before;
      const float k = to_float<kKey.dtype>(given.k[i]);
      k_column.put(i, k * decay[i]);
      inverse[i] = k * reciprocal(decay[i]);
      if constexpr (kOutputs) {
        const float q = to_float<kKey.dtype>(given.q[i]);
        if constexpr (kKey.inputs.use_qk_l2norm) squares[i] = fmaf(q, q, squares[i]);
        if constexpr (kPaired) {
          k_column.put(kTokens + i, q * decay[i]);
        } else {
          q_column.put(i, q * decay[i]);
        }
      }
      if (kDecayRows > 1 || (kDecayRows == 1 && i == kTokens - 1)) {
        shared_[kDecaysAt + (kDecayRows > 1 ? i * kDim : 0) + channel] = decay[i];
      }
    }
    updates().put(channel, inverse);
  }

  // The products over channels 32 unit and on, which are four steps of operands.
  __device__ void add_products(int unit, Acc* kk, Acc* qk) const {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int step = unit * 4 + n;
      if (kDim % 32 != 0 && step * 8 >= kDim) break;
      PairsOfTf32<4> rows;
      take_rows(k(), step, &rows);
      PairsOfTf32<4> q_rows;
      if constexpr (kHasQ && kHalves == 2) take_rows(q(), step, &q_rows);
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        float inverse[2];
        updates().get_row(step, h, inverse);
        const PairsOfTf32<2> columns(inverse);
        mma_pairs(kk, h, rows, columns);
        if constexpr (kHasQ && kHalves == 2) mma_pairs(qk, h, q_rows, columns);
      }
    }
  }
  // Of 8 tokens, k and q are the halves of one operand.
  __device__ void take_rows(const Operand& operand, int step, PairsOfTf32<4>* rows) const {
    float upper[2], lower[2] = {};
    operand.get(step, 0, upper);
    if constexpr (kHalves == 2) {
      operand.get(step, 1, lower);
    } else if constexpr (kHasQ) {
      q().get(step, 0, lower);
    }
    rows->split({upper[0], lower[0], upper[1], lower[1]});
  }
  static __device__ void mma_pairs(Acc* acc, int h, const PairsOfTf32<4>& a,
                                   const PairsOfTf32<2>& b) {
    mma_tf32(acc->x[0][h], acc->x[1][h], a.low, b.high);
    mma_tf32(acc->x[0][h], acc->x[1][h], a.high, b.low);
    mma_tf32(acc->x[0][h], acc->x[1][h], a.high, b.high);
  }

  __device__ void store_part(int part, const float (&squares)[kTokens], Acc* kk, Acc* qk) const {
    float* const to = shared_ + kPartsAt + part * kPart;
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
