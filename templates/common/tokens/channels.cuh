// Tokens whose decay is one for each channel of k, of any gate: what products over tokens and with
// the state take of them, made by all warps of a block in shared memory.
//
// With d_t = e^g of token t, a row over channels, and products of rows element by element:
//
//   A_ij = sum over channels of k_i k_j d_j+1 ... d_i, j <= i       P_ij likewise, of q_i and k_j
//   K'_i = k_i d_0 ... d_i       Q'_i likewise       K"_i = k_i d_i+1 ... d_last
//
// In a tree, products go along the path to i.  Each factor is at most 1: there is no exponential of
// a sum or of a difference, nothing overflows, and what underflows is 0.
//
// A warp makes the rows of 32 channels at a time, a lane one of them for all tokens; then, of all
// channels, two rows of A and P, which have kTokens + 1 elements together.
#pragma once

#include "common/tokens/channel_rows.cuh"
#include "common/tokens/key.h"
#include "common/tokens/order.cuh"
#include "common/uniform.cuh"
#include "common/warp.cuh"

namespace cubinery::dev {

// In shared memory of the block: the operands K', Q' and K", the decay over all tokens, rows of k,
// q and d, and sums.
template <auto kKey>
class AnyChannels {
  static constexpr int kTokens = kKey.draft_tokens;
  static constexpr int kDim = kKey.key_dim;
  static constexpr bool kOutputs = has_outputs(kKey);
  static constexpr bool kUpdates = stores_channels_once(kKey);
  static constexpr AnyChannelPlaces kAt = any_channel_places(kKey);
  static constexpr int kPairs = kTokens * (kTokens + 1) / 2;  // of j <= i
  using Tokens = ChannelTokens<kKey>;
  using Path = typename TokenOrder<kTokens, is_tree(kKey)>::Path;

 public:
  explicit __device__ AnyChannels(unsigned char* shared)
      : shared_(reinterpret_cast<float*>(shared)) {}

  __device__ ScaledRows<kKey> scaled_rows() const { return ScaledRows<kKey>(shared_); }
  // With the last state stored.
  __device__ OverTokens<kKey> updates() const { return OverTokens<kKey>(shared_ + kAt.updates); }
  // The decay over all tokens, the last of which is t, of this channel and on; likewise.
  __device__ const float* decays(int /*t*/, int channel) const {
    return shared_ + kAt.last_decay + channel;
  }

  // k and the decay of token i, in this channel and on.
  __device__ const float* k_row(int i, int channel) const {
    return shared_ + kAt.k + i * kDim + channel;
  }
  __device__ const float* decay_row(int i, int channel) const {
    return shared_ + kAt.decays + i * kDim + channel;
  }

  // A_ij and P_ij, j on the path of i; A_ii is k_i.k_i.
  __device__ float kk(int i, int j, Path path) const {
    return shared_[kAt.sums + number_of(i, path.steps(j, i))];
  }
  __device__ float qk(int i, int j, Path path) const {
    return shared_[kAt.sums + kPairs + number_of(i, path.steps(j, i))];
  }
  __device__ float k_squares(int i) const { return shared_[kAt.sums + number_of(i, 0)]; }
  __device__ float q_squares(int i) const { return shared_[kAt.sums + 2 * kPairs + i]; }

  // For all warps of the block.  `first`: the tokens of channels 32 (threadIdx.x / 32) and on;
  // tokens_of(unit) loads those of channels 32 unit and on.  Lane l has the parent of token
  // l % kTokens, -1 for none, in a tree.
  template <class TokensOf>
  __device__ void make(const Tokens& first, int count, int parent, TokensOf tokens_of) const {
    const int warp = uniform(threadIdx.x / 32), lane = threadIdx.x % 32;
    const Parents<kKey> parents(parent);
    for_each_unit<kKey>(first, tokens_of, [&](int unit, const Tokens& given) {
      store_rows(given, count, unit * 32 + lane, parents);
    });
    // Orders the rows before their reading by all warps.
    __syncthreads();
    if constexpr (kTokens <= 8) {  // with the rows' lengths as constants
#pragma unroll
      for (int pair = 0; pair < kTokens / 2; ++pair) {
        if (pair % kKey.warps == warp) store_sums(pair, parent);
      }
    } else {
#pragma unroll 1
      for (int pair = warp; pair < kTokens / 2; pair += kKey.warps) store_sums(pair, parent);
    }
    // Orders the sums before their reading by all warps, and reading of q before updates.
    __syncthreads();
    if constexpr (kUpdates) {
#pragma unroll 1
      for (int unit = warp; unit < channel_units(kKey); unit += kKey.warps) {
        store_updates(unit * 32 + lane);
      }
      // Orders updates before their reading; of several warps the factors' barrier does.
      if constexpr (kKey.warps == 1) __syncwarp();
    }
  }

 private:
  // The rows and the operands in a lane's channel.
  __device__ void store_rows(const Tokens& given, int count, int channel,
                             const Parents<kKey>& parents) const {
    float k[kTokens], q[kTokens], d[kTokens];
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      k[i] = to_float<kKey.dtype>(given.k[i]);
      q[i] = to_float<kKey.dtype>(given.q[i]);
      d[i] = given.decay(i, count);
    }
    if (channel >= kDim) return;
    float* const rows = shared_ + channel;
    const auto column = scaled_rows().column(channel);
    float decay[kTokens];  // d_0 ... d_i
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      decay[i] = d[i] * decay_before<kKey>(decay, i, parents.of);
      rows[kAt.decays + i * kDim] = d[i];
      rows[kAt.k + i * kDim] = k[i];
      if constexpr (kOutputs) rows[kAt.q + i * kDim] = q[i];
      column.put(i, k[i] * decay[i], q[i] * decay[i]);
    }
  }

  // K" and the decay over all tokens in a lane's channel, once no warp needs rows of q.
  __device__ void store_updates(int channel) const {
    if (channel >= kDim) return;
    float rows[token_rows(kKey)] = {};
    float behind = 1.0f;  // d_i+1 ... d_last
#pragma unroll
    for (int i = kTokens - 1; i >= 0; --i) {
      rows[i] = *k_row(i, channel) * behind;
      behind *= *decay_row(i, channel);
    }
    updates().put(channel, rows);
    shared_[kAt.last_decay + channel] = behind;
  }

  // The sums of rows `pair` and kTokens - 1 - pair of A and P, from the rows, by a warp: a term for
  // each token on the two paths, kTokens + 1 together.  Lane l has the parent of token l % kTokens.
  __device__ void store_sums(int pair, int parent) const {
    const int last = kTokens - 1 - pair;  // the longer path
    int tokens[kTokens + 1];              // on the path of `last`, then on that of `pair`
#pragma unroll
    for (int n = 0; n <= kTokens; ++n) {
      const int behind = tokens[n > 0 ? n - 1 : 0];
      int next = behind - 1;
      if constexpr (is_tree(kKey)) {
        const int of_behind = __shfl_sync(0xffffffffu, parent, behind < 0 ? 0 : behind);
        next = behind < 0 ? -1 : of_behind;
      }
      tokens[n] = n == 0 ? last : n == last + 1 ? pair : next;
    }
    float terms[kTerms] = {};
#pragma unroll 1
    for (int first = threadIdx.x % 32 * 4; first < kDim; first += 128) {
      Four x{}, y{};  // k_i d_j+1 ... d_i, and likewise of q
#pragma unroll
      for (int n = 0; n <= kTokens; ++n) {
        const int j = tokens[n];
        const bool starts = n == 0 || n == last + 1;
        if (starts) {
          x = four(kAt.k, j, first);
          if constexpr (kOutputs) {
            y = four(kAt.q, j, first);
            terms[kTerms - 2 + (n == 0 ? 0 : 1)] += product(y, y);
          }
        } else if (j >= 0) {
          const Four d = four(kAt.decays, tokens[n > 0 ? n - 1 : 0], first);
          x = times(x, d);
          if constexpr (kOutputs) y = times(y, d);
        }
        if (j < 0) continue;
        const Four k = four(kAt.k, j, first);
        terms[n] += product(x, k);
        if constexpr (kOutputs) terms[kTokens + 1 + n] += product(y, k);
      }
    }
    constexpr int kOwn = own_sums<kTerms>();
    float sums[kOwn];
    sum_over_warp(terms, sums);
#pragma unroll
    for (int slot = 0; slot < kOwn; ++slot) {
      const int term = number_of_own<kTerms>(slot);
      if (term >= 0) shared_[kAt.sums + place_of(term, pair)] = sums[slot];
    }
  }

  static constexpr int kTerms = (kOutputs ? 2 : 1) * (kTokens + 1) + (kOutputs ? 2 : 0);

  struct Four {
    float x[4];
  };
  __device__ Four four(int rows_at, int row, int channel) const {
    const float4 x = *reinterpret_cast<const float4*>(shared_ + rows_at + row * kDim + channel);
    return {x.x, x.y, x.z, x.w};
  }
  static __device__ Four times(const Four& a, const Four& b) {
    return {a.x[0] * b.x[0], a.x[1] * b.x[1], a.x[2] * b.x[2], a.x[3] * b.x[3]};
  }
  static __device__ float product(const Four& a, const Four& b) {
    return fmaf(a.x[3], b.x[3], fmaf(a.x[2], b.x[2], fmaf(a.x[1], b.x[1], a.x[0] * b.x[0])));
  }

  // Of a row of A or P and the steps from column to row, where sums lie.
  static __device__ constexpr int number_of(int i, int steps) { return i * (i + 1) / 2 + steps; }
  static __device__ int place_of(int term, int pair) {
    const int last = kTokens - 1 - pair;
    const int squares = term - 2 * (kTokens + 1);
    if (kOutputs && squares >= 0) return 2 * kPairs + (squares == 0 ? last : pair);
    const bool is_p = term > kTokens;
    const int n = is_p ? term - (kTokens + 1) : term;
    const int number = n <= last ? number_of(last, n) : number_of(pair, n - last - 1);
    return (is_p ? kPairs : 0) + number;
  }

  float* shared_;
};

}  // namespace cubinery::dev
