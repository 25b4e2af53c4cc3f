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
// A warp takes 32 channels at a time, a lane one of them, for all tokens.
#pragma once

#include "common/gates.cuh"
#include "common/operands.cuh"
#include "common/params.h"
#include "common/tokens/key.h"
#include "common/uniform.cuh"

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

  // Where the number of a row and a channel is.
  static __device__ int over_channels(int row, int channel) {
    const int lane = row % 8 * 4 + channel / kRun % 4;
    return ((step_of(channel) * kHalves + row / 8) * 32 + lane) * 2 + channel % 2;
  }
  static __device__ int over_tokens(int row, int channel) {
    const int lane = (channel / kRun % 4 * 2 + channel % 2) * 4 + row % 8 / 2;
    return ((step_of(channel) * kHalves + row / 8) * 32 + lane) * 2 + row % 2;
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

  Storage<kKey.dtype> k[kTokens], q[kTokens];
  float g[kTokens];
  GatesOfTokens all;

  // `q_rows`: with outputs.  0 for tokens, and in a channel, that are not there.
  __device__ ChannelTokens(const GateParams<TokenStrides>& gates, float lower_bound,
                           const InputRows<TokenStrides>& k_rows,
                           const InputRows<TokenStrides>* q_rows, TokenStrides::At at, int count,
                           int channel) {
    const bool is_channel = channel < kKey.key_dim;
    const auto* const k_row = row_at<kKey.dtype>(k_rows, at) + channel;
    const auto* q_row = k_row;
    if constexpr (kOutputs) q_row = row_at<kKey.dtype>(*q_rows, at) + channel;
    const long long g_row = offset_of(gates.g.stride, at) + channel;
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      k[t] = q[t] = 0;
      g[t] = 0.0f;
      if (t >= count || !is_channel) continue;
      k[t] = k_row[t * k_rows.stride.token];
      if constexpr (kOutputs) q[t] = q_row[t * q_rows->stride.token];
      g[t] = load<kKey.inputs.gate_dtype>(gates.g.data, g_row + t * gates.g.stride.token);
    }
    if constexpr (!gdn::is_computed(kKey.inputs.gate_mode)) return;
    all.A_log = A_log_of<kKey>(gates, at.head);
    all.lower_bound = lower_bound;
    if (gates.dt_bias.data != nullptr && is_channel) {
      all.dt_bias = load<kKey.inputs.dt_bias_dtype>(gates.dt_bias.data,
                                                    at.head * gates.dt_bias.stride + channel);
    }
  }
};

// In shared memory of the block: rows, then the decay over all tokens, then sums over each 32
// channels.
template <auto kKey>
class Channels {
  static constexpr int kTokens = kKey.draft_tokens;
  static constexpr bool kOutputs = has_outputs(kKey);
  static constexpr bool kPaired = is_paired(kKey);  // Q' is behind K', as rows of one operand
  static constexpr bool kUpdates = kKey.states.store;
  static constexpr int kArray = token_rows(kKey) * kKey.key_dim;
  static constexpr int kUpdatesAt = (kOutputs && !kPaired ? 2 : 1) * kArray;
  static constexpr int kDecaysAt = kUpdatesAt + (kUpdates ? kArray : 0);
  static constexpr int kSumsAt = kDecaysAt + (kUpdates ? kKey.key_dim : 0);
  static constexpr int kSums = channel_sums(kKey);
  static constexpr int kUnits = channel_units(kKey);
  using Rows = ChannelRows<kKey>;
  using Tokens = ChannelTokens<kKey>;

 public:
  explicit __device__ Channels(unsigned char* shared) : shared_(reinterpret_cast<float*>(shared)) {}

  __device__ Rows k() const { return Rows(shared_); }
  __device__ Rows q() const { return Rows(shared_ + kArray); }            // not paired
  __device__ Rows updates() const { return Rows(shared_ + kUpdatesAt); }  // with stored states
  // The decay over all tokens, of this channel and on; likewise.
  __device__ const float* decays(int channel) const { return shared_ + kDecaysAt + channel; }

  // A_ij, j <= i; A_ii is k_i.k_i.
  __device__ float kk(int i, int j) const { return sum(number_of(i, j)); }
  __device__ float qk(int i, int j) const { return sum(number_of(i, j) + 1); }
  __device__ float q_squares(int i) const { return sum(kSums - kTokens + i); }

  // Of 32 channels; for a whole warp.  parents[i]: of token i, -1 for none, in a tree.
  __device__ void make(const Tokens& given, int count, int unit,
                       const int (&parents)[kTokens]) const {
    const int channel = unit * 32 + threadIdx.x % 32;
    float k[kTokens], q[kTokens], d[kTokens];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      k[t] = to_float<kKey.dtype>(given.k[t]);
      q[t] = to_float<kKey.dtype>(given.q[t]);
      d[t] = t < count ? decay_of<kKey>(given.all, GivenGates{.g = given.g[t]}) : 1.0f;
    }
    if (channel < kKey.key_dim) store_rows(k, q, d, channel, parents);
    store_sums(k, q, d, unit, parents);
  }

 private:
  // Of the sums, in the order in which store_sums() makes them; P_ij is the next one.
  static __device__ constexpr int number_of(int i, int j) {
    return (j * kTokens - j * (j - 1) / 2 + i - j) * (kOutputs ? 2 : 1);
  }
  __device__ float sum(int number) const {
    float sum = 0.0f;
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) sum += shared_[kSumsAt + unit * kSums + number];
    return sum;
  }

  // x of the token that token i follows, from token `first` on; `otherwise` where that is none.
  static __device__ float before(const float (&x)[kTokens], int i, int first, float otherwise,
                                 const int (&parents)[kTokens]) {
    if constexpr (!is_tree(kKey)) return i > first ? x[i - 1] : otherwise;
    float found = otherwise;
#pragma unroll
    for (int j = 0; j < kTokens; ++j) {
      if (j >= first && j < i && parents[i] == j) found = x[j];
    }
    return found;
  }

  __device__ void store_rows(const float (&k)[kTokens], const float (&q)[kTokens],
                             const float (&d)[kTokens], int channel,
                             const int (&parents)[kTokens]) const {
    float decay[kTokens];  // d_0 ... d_i
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      decay[i] = d[i] * before(decay, i, 0, 1.0f, parents);
      shared_[Rows::over_channels(i, channel)] = k[i] * decay[i];
      if constexpr (kPaired) {
        shared_[Rows::over_channels(kTokens + i, channel)] = q[i] * decay[i];
      } else if constexpr (kOutputs) {
        shared_[kArray + Rows::over_channels(i, channel)] = q[i] * decay[i];
      }
    }
    if constexpr (!kUpdates) return;
    float behind = 1.0f;  // d_i+1 ... d_last
#pragma unroll
    for (int i = kTokens - 1; i >= 0; --i) {
      shared_[kUpdatesAt + Rows::over_tokens(i, channel)] = k[i] * behind;
      behind *= d[i];
    }
    shared_[kDecaysAt + channel] = behind;
    if constexpr (kPaired) {  // rows that no token has
#pragma unroll
      for (int i = kTokens; i < token_rows(kKey); ++i) {
        shared_[kUpdatesAt + Rows::over_tokens(i, channel)] = 0.0f;
      }
    }
  }

  __device__ void store_sums(const float (&k)[kTokens], const float (&q)[kTokens],
                             const float (&d)[kTokens], int unit,
                             const int (&parents)[kTokens]) const {
    float terms[32] = {};
    const auto put = [&](int number, float term) {
      terms[number % 32] = term;
      if (number % 32 != 31 && number != kSums - 1) return;
      const int first = number / 32 * 32, own = first + threadIdx.x % 32;
      const float sum = sum_of_own(terms);
      if (own < kSums) shared_[kSumsAt + unit * kSums + own] = sum;
    };
#pragma unroll
    for (int j = 0; j < kTokens; ++j) {
      float w[kTokens] = {};  // k_j d_j+1 ... d_i
#pragma unroll
      for (int i = 0; i < kTokens; ++i) {
        if (i < j) continue;
        w[i] = i == j ? k[j] : d[i] * before(w, i, j, 0.0f, parents);
        put(number_of(i, j), k[i] * w[i]);
        if constexpr (kOutputs) put(number_of(i, j) + 1, q[i] * w[i]);
      }
    }
    if constexpr (kOutputs) {
#pragma unroll
      for (int i = 0; i < kTokens; ++i) put(kSums - kTokens + i, q[i] * q[i]);
    }
  }

  // The sum over the warp's lanes of the term that has the lane's number, of 2 kStep terms.
  template <int kStep = 16>
  static __device__ float sum_of_own(const float (&terms)[2 * kStep]) {
    const bool is_upper = (threadIdx.x & kStep) != 0;
    float sums[kStep];
#pragma unroll
    for (int i = 0; i < kStep; ++i) {
      const float kept = is_upper ? terms[i + kStep] : terms[i];
      const float given = is_upper ? terms[i] : terms[i + kStep];
      sums[i] = kept + __shfl_xor_sync(0xffffffffu, given, kStep);
    }
    if constexpr (kStep == 1) {
      return sums[0];
    } else {
      return sum_of_own<kStep / 2>(sums);
    }
  }

  float* shared_;
};

// All of them, for all warps of a block: `first` are the tokens of unit threadIdx.x / 32, and
// tokens_of(unit) loads those of the others.
template <auto kKey, class TokensOf>
__device__ void make_channels(const Channels<kKey>& channels, const ChannelTokens<kKey>& first,
                              int count, const int (&parents)[kKey.draft_tokens],
                              TokensOf tokens_of) {
  constexpr int kUnits = channel_units(kKey);
  const int warp = uniform(threadIdx.x / 32);
  if (warp < kUnits) channels.make(first, count, warp, parents);
#pragma unroll 1
  for (int unit = warp + kKey.warps; unit < kUnits; unit += kKey.warps) {
    channels.make(tokens_of(unit), count, unit, parents);
  }
  // Orders what is made before its reading by all warps.
  __syncthreads();
}

}  // namespace cubinery::dev
