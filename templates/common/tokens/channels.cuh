// Tokens whose decay is one for each channel of k: what products over tokens and with the state
// take of them, made by all warps of a block in shared memory.
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

#include "common/gates.cuh"
#include "common/operands.cuh"
#include "common/params.h"
#include "common/tokens/key.h"
#include "common/tokens/order.cuh"
#include "common/uniform.cuh"
#include "common/warp.cuh"

namespace cubinery::dev {

// Rows of fp32 numbers as right operands of tf32 products, in shared memory: a lane's two numbers
// of each product side by side, and those of a warp without gaps.
//
// Of products over channels (K', Q'): step s has eight channels, two of the run of each of four
// lanes, as StateTile has them, and lane l those of row l / 4 of the half.  Of products over tokens
// (K"): step s has the same channels as columns, and lane l tokens 2 (l % 4) and the next of the
// half.
template <auto kKey>
class ChannelRows {
  static constexpr int kRun = key_run(kKey);
  static constexpr int kHalves = token_rows(kKey) / 8;

 public:
  explicit __device__ ChannelRows(const float* numbers) : numbers_(numbers) {}

  __device__ void get(int step, int half, float (&pair)[2]) const {
    const float2 both =
        reinterpret_cast<const float2*>(numbers_)[(step * kHalves + half) * 32 + threadIdx.x % 32];
    pair[0] = both.x, pair[1] = both.y;
  }

  // Where the numbers of a channel are, of row 0, and those of a row behind that.
  static __device__ int over_channels(int channel) {
    return (step_of(channel) * kHalves * 32 + channel / kRun % 4) * 2 + channel % 2;
  }
  static __device__ constexpr int row_over_channels(int row) {
    return (row / 8 * 32 + row % 8 * 4) * 2;
  }
  static __device__ int over_tokens(int channel) {
    const int column = channel / kRun % 4 * 2 + channel % 2;
    return (step_of(channel) * kHalves * 32 + column * 4) * 2;
  }
  static __device__ constexpr int row_over_tokens(int row) {
    return (row / 8 * 32 + row % 8 / 2) * 2 + row % 2;
  }

 private:
  static __device__ int step_of(int channel) {
    return channel / (4 * kRun) * (kRun / 2) + channel % kRun / 2;
  }

  const float* numbers_;
};

// What a lane's channel of all tokens is made of, in flight until it is used.
template <auto kKey>
struct ChannelTokens {
  static constexpr int kTokens = kKey.draft_tokens;
  static constexpr bool kOutputs = has_outputs(kKey);

  // As they lie in memory: a conversion would wait for its number, and all that follows with it.
  Storage<kKey.dtype> k[kTokens], q[kTokens];
  Storage<kKey.inputs.gate_dtype> g[kTokens];
  Storage<kKey.inputs.dt_bias_dtype> dt_bias = 0;
  float A_log = 0.0f, lower_bound = 0.0f;

  // `q_rows`: with outputs.  0 for tokens, and in a channel, that are not there.
  __device__ ChannelTokens(const GateParams<TokenStrides>& gates, float lower_bound,
                           const InputRows<TokenStrides>& k_rows,
                           const InputRows<TokenStrides>* q_rows, TokenStrides::At at, int count,
                           int channel) {
    const bool is_channel = channel < kKey.key_dim;
    if (!is_channel) count = 0;
    const auto row_of = [&](const InputRows<TokenStrides>& rows) {
      TokenStrides::At own = at;
      own.head = own_head(rows, at.head);
      return as<kKey.dtype>(rows.data) + offset_of(rows.stride, own) + channel;
    };
    const auto* k_row = row_of(k_rows);
    const auto* q_row = kOutputs ? row_of(*q_rows) : k_row;
    const auto* g_row =
        as<kKey.inputs.gate_dtype>(gates.g.data) + offset_of(gates.g.stride, at) + channel;
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      k[t] = q[t] = 0;
      g[t] = 0;
      if (t < count) {
        k[t] = *k_row;
        if constexpr (kOutputs) q[t] = *q_row;
        if constexpr (kKey.inputs.gate_mode != gdn::GateMode::kNone) {
          g[t] = *g_row;
        }
      }
      k_row += k_rows.stride.token;
      if constexpr (kOutputs) q_row += q_rows->stride.token;
      g_row += gates.g.stride.token;
    }
    if constexpr (!gdn::is_computed(kKey.inputs.gate_mode)) return;
    A_log = A_log_of<kKey>(gates, at.head);
    this->lower_bound = lower_bound;
    if (gates.dt_bias.data != nullptr && is_channel) {
      dt_bias = as<kKey.inputs.dt_bias_dtype>(
          gates.dt_bias.data)[at.head * gates.dt_bias.stride + channel];
    }
  }

  __device__ float decay(int t) const {
    const GatesOfTokens all{.A_log = A_log,
                            .dt_bias = to_float<kKey.inputs.dt_bias_dtype>(dt_bias),
                            .lower_bound = lower_bound};
    return decay_of<kKey>(all, GivenGates{.g = to_float<kKey.inputs.gate_dtype>(g[t])});
  }
};

// In shared memory of the block: the operands K', Q' and K", the decay over all tokens, rows of k,
// q and d, and sums.
template <auto kKey>
class Channels {
  static constexpr int kTokens = kKey.draft_tokens;
  static constexpr int kDim = kKey.key_dim;
  static constexpr bool kOutputs = has_outputs(kKey);
  static constexpr bool kPaired = is_paired(kKey);  // Q' is behind K', as rows of one operand
  static constexpr bool kUpdates = stores_channels_once(kKey);
  static constexpr int kOperand = token_rows(kKey) * kDim;
  static constexpr int kRowsAt = (kOutputs && !kPaired ? 2 : 1) * kOperand;
  static constexpr int kDAt = kRowsAt, kKAt = kDAt + kTokens * kDim, kQAt = kKAt + kTokens * kDim;
  static constexpr int kUpdatesAt = kQAt;  // K" of outputs' keys, in the place of q
  static constexpr int kLast = kUpdates ? kOperand : kOutputs ? kTokens * kDim : 0;
  static constexpr int kDecaysAt = kQAt + kLast;
  static constexpr int kSumsAt = kDecaysAt + (kUpdates ? kDim : 0);
  static constexpr int kPairs = kTokens * (kTokens + 1) / 2;  // of j <= i
  using Operand = ChannelRows<kKey>;
  using Tokens = ChannelTokens<kKey>;
  using Path = typename TokenOrder<kTokens, is_tree(kKey)>::Path;

 public:
  explicit __device__ Channels(unsigned char* shared) : shared_(reinterpret_cast<float*>(shared)) {}

  __device__ Operand k() const { return Operand(shared_); }
  __device__ Operand q() const { return Operand(shared_ + kOperand); }  // not paired
  __device__ Operand updates() const {
    return Operand(shared_ + kUpdatesAt);
  }  // with the last state stored
  // The decay over all tokens, of this channel and on; likewise.
  __device__ const float* decays(int channel) const { return shared_ + kDecaysAt + channel; }

  // k and the decay of token i, in this channel and on.
  __device__ const float* k_row(int i, int channel) const {
    return shared_ + kKAt + i * kDim + channel;
  }
  __device__ const float* decay_row(int i, int channel) const {
    return shared_ + kDAt + i * kDim + channel;
  }

  // A_ij and P_ij, j on the path of i; A_ii is k_i.k_i.
  __device__ float kk(int i, int j, Path path) const {
    return shared_[kSumsAt + number_of(i, path.steps(j, i))];
  }
  __device__ float qk(int i, int j, Path path) const {
    return shared_[kSumsAt + kPairs + number_of(i, path.steps(j, i))];
  }
  __device__ float k_squares(int i) const { return shared_[kSumsAt + number_of(i, 0)]; }
  __device__ float q_squares(int i) const { return shared_[kSumsAt + 2 * kPairs + i]; }

  // The rows and the operands in a lane's channel.  parents[i]: of token i, -1 for none, in a tree.
  __device__ void store_rows(const Tokens& given, int count, int channel,
                             const int (&parents)[kTokens]) const {
    float k[kTokens], q[kTokens], d[kTokens];
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      k[i] = to_float<kKey.dtype>(given.k[i]);
      q[i] = to_float<kKey.dtype>(given.q[i]);
      d[i] = i < count ? given.decay(i) : 1.0f;
    }
    if (channel >= kDim) return;
    float* const rows = shared_ + kDAt + channel;
    float* const over_channels = shared_ + Operand::over_channels(channel);
    float decay[kTokens];  // d_0 ... d_i
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      decay[i] = d[i] * before(decay, i, parents);
      rows[i * kDim] = d[i];
      rows[(kKAt - kDAt) + i * kDim] = k[i];
      over_channels[Operand::row_over_channels(i)] = k[i] * decay[i];
      if constexpr (kOutputs) {
        constexpr int kFirst = kPaired ? kTokens : 0;
        rows[(kQAt - kDAt) + i * kDim] = q[i];
        over_channels[(kPaired ? 0 : kOperand) + Operand::row_over_channels(kFirst + i)] =
            q[i] * decay[i];
      }
    }
  }

  // K" and the decay over all tokens in a lane's channel, once no warp needs rows of q.
  __device__ void store_updates(int channel) const {
    if (channel >= kDim) return;
    float* const over_tokens = shared_ + kUpdatesAt + Operand::over_tokens(channel);
    float behind = 1.0f;  // d_i+1 ... d_last
#pragma unroll
    for (int i = kTokens - 1; i >= 0; --i) {
      over_tokens[Operand::row_over_tokens(i)] = *k_row(i, channel) * behind;
      behind *= *decay_row(i, channel);
    }
    shared_[kDecaysAt + channel] = behind;
#pragma unroll
    for (int i = kTokens; i < token_rows(kKey); ++i) {  // that no token has
      over_tokens[Operand::row_over_tokens(i)] = 0.0f;
    }
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
          x = four(kKAt, j, first);
          if constexpr (kOutputs) {
            y = four(kQAt, j, first);
            terms[kTerms - 2 + (n == 0 ? 0 : 1)] += product(y, y);
          }
        } else if (j >= 0) {
          const Four d = four(kDAt, tokens[n > 0 ? n - 1 : 0], first);
          x = times(x, d);
          if constexpr (kOutputs) y = times(y, d);
        }
        if (j < 0) continue;
        const Four k = four(kKAt, j, first);
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
      if (term >= 0) shared_[kSumsAt + place_of(term, pair)] = sums[slot];
    }
  }

 private:
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

  // x of the token that token i follows; 1 where that is none.
  static __device__ float before(const float (&x)[kTokens], int i, const int (&parents)[kTokens]) {
    if constexpr (!is_tree(kKey)) return i > 0 ? x[i - 1] : 1.0f;
    float found = 1.0f;
#pragma unroll
    for (int j = 0; j < kTokens; ++j) {
      if (j < i && parents[i] == j) found = x[j];
    }
    return found;
  }

  float* shared_;
};

// What all warps of a block make.  `first`: the tokens of channels 32 (threadIdx.x / 32) and on;
// tokens_of(unit) loads those of channels 32 unit and on.  Lane l has the parent of token
// l % draft_tokens, -1 for none, in a tree.
template <auto kKey, class TokensOf>
__device__ void make_channels(const Channels<kKey>& channels, const ChannelTokens<kKey>& first,
                              int count, int parent, TokensOf tokens_of) {
  constexpr int kUnits = (kKey.key_dim + 31) / 32;
  const int warp = uniform(threadIdx.x / 32), lane = threadIdx.x % 32;
  int parents[kKey.draft_tokens];
#pragma unroll
  for (int i = 0; i < kKey.draft_tokens; ++i) {
    parents[i] = is_tree(kKey) ? __shfl_sync(0xffffffffu, parent, i) : i - 1;
  }
  if (warp < kUnits) channels.store_rows(first, count, warp * 32 + lane, parents);
#pragma unroll 1
  for (int unit = warp + kKey.warps; unit < kUnits; unit += kKey.warps) {
    channels.store_rows(tokens_of(unit), count, unit * 32 + lane, parents);
  }
  // Orders the rows before their reading by all warps.
  __syncthreads();
  if constexpr (kKey.draft_tokens <= 8) {  // with the rows' lengths as constants
#pragma unroll
    for (int pair = 0; pair < kKey.draft_tokens / 2; ++pair) {
      if (pair % kKey.warps == warp) channels.store_sums(pair, parent);
    }
  } else {
#pragma unroll 1
    for (int pair = warp; pair < kKey.draft_tokens / 2; pair += kKey.warps) {
      channels.store_sums(pair, parent);
    }
  }
  // Orders the sums before their reading by all warps, and reading of q before updates.
  __syncthreads();
  if constexpr (stores_channels_once(kKey)) {
#pragma unroll 1
    for (int unit = warp; unit < kUnits; unit += kKey.warps) {
      channels.store_updates(unit * 32 + lane);
    }
    // Orders updates before their reading; of several warps the factors' barrier does.
    if constexpr (kKey.warps == 1) __syncwarp();
  }
}

}  // namespace cubinery::dev
