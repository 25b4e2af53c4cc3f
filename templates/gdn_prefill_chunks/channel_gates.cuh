// Sums of the gates of a chunk's channels.  Part of gdn_prefill_chunks.cu, which has defined kKey.
#pragma once

#include "common/copy.cuh"
#include "common/gates.cuh"
#include "common/math.cuh"
#include "common/operands.cuh"
#include "common/shared.cuh"
#include "common/vec.cuh"
#include "gdn_prefill_chunks/channel_places.cuh"

namespace {

constexpr DType kGate = kKey.inputs.gate_dtype;
constexpr bool kGatesAhead = loads_gates_ahead(kKey);

// A thread sums two neighbouring channels of a block of 16 tokens, or of some.
constexpr int kChannelPairs = kKey.key_dim / 2;
constexpr int kSumsOfThread = (kBlocks * kChannelPairs + threads(kKey) - 1) / threads(kKey);
__device__ int block_of_sum(int n) {
  return (threadIdx.x + n * threads(kKey)) / kChannelPairs;  // from kBlocks on: none
}
__device__ int channel_of_sum(int n) {
  return (threadIdx.x + n * threads(kKey)) % kChannelPairs * 2;
}

// What of a head's gates a thread takes, as it lies in memory: nothing waits for it yet.
struct GatesOfThread {
  using DtBias = dev::Storage<kKey.inputs.dt_bias_dtype>;
  using Beta = dev::Storage<kKey.inputs.beta_dtype>;
  dev::GatesOfTokens all;  // without dt_bias
  DtBias dt_bias[kSumsOfThread][2];
  Beta beta;  // of token threadIdx.x

  __device__ GatesOfThread(const GdnPrefillChunksParams& p, const ChannelPair& pair)
      : all(dev::gates_of_tokens<kKey>(p.gates, pair.head, p.lower_bound)), beta() {
#pragma unroll
    for (int n = 0; n < kSumsOfThread; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        dt_bias[n][j] = dev::dt_bias_of<kKey>(p.gates, pair.head, channel_of_sum(n) + j);
      }
    }
    if constexpr (kKey.inputs.beta_mode != gdn::BetaMode::kOne) {
      if (threadIdx.x < static_cast<unsigned>(pair.tokens)) {
        const TokenStrides::At at{pair.batch, pair.first + threadIdx.x, pair.head};
        beta = dev::as<kKey.inputs.beta_dtype>(
            p.gates.beta.data)[dev::offset_of(p.gates.beta.stride, at)];
      }
    }
  }
};

using GateRows = dev::PlainRows<kKey.key_dim * size_of(kGate)>;
using GateCopier =
    dev::RowCopier<kGate, kChunk, kKey.key_dim, GateRows, threads(kKey), CopyingThread>;

// Where the chunk's rows of gates are copied to, in the place of rows that write.
__device__ InputRows<TokenStrides> gate_rows(const GdnPrefillChunksParams& p) {
  const auto bytes = [](long long elements) { return elements * size_of(kGate); };
  const TokenStrides& stride = p.gates.g.stride;
  const long long all = reinterpret_cast<long long>(p.gates.g.data) | bytes(stride.batch) |
                        bytes(stride.token) | bytes(stride.head);
  return {.data = p.gates.g.data, .stride = stride, .group = 1, .aligned = all % 16 == 0};
}

// Two neighbouring channels' gates.
using GatePair = dev::Vec<kGate, 2 * size_of(kGate)>;

// Writes the sums of two channels inside a block of tokens, and their decays.  Tokens from `tokens`
// of the block on, behind the sequence's end, do not decay.  `a`: of the first token's.
template <bool kIsTame, bool kFull>
__device__ void sum_gates_of(const GatesOfThread& gates, int n, int tokens, const GatePair* ahead,
                             const dev::Storage<kGate>* a, long long stride) {
  constexpr bool kGiven = kKey.inputs.gate_mode != gdn::GateMode::kNone;
  // From memory all are on their way before the first is used.
  constexpr int kAtOnce = !kGiven || kGatesAhead ? (kBounded ? 8 : 4) : 16;
  const int block = block_of_sum(n), d = channel_of_sum(n);
  const auto of_channel = [&](int j) {
    dev::GatesOfTokens all = gates.all;
    all.dt_bias = dev::to_float<kKey.inputs.dt_bias_dtype>(gates.dt_bias[n][j]);
    return dev::SummedLogDecay<kKey, kIsTame>(all);
  };
  const dev::SummedLogDecay<kKey, kIsTame> log_decays[] = {of_channel(0), of_channel(1)};
  unsigned to = dev::shared_address(shared) + places().sums + (16 * block * kGateRow + d) * 4;
  float sums[2] = {};
#pragma unroll 1  // the caches of instructions are small
  for (int first = 0; first < 16; first += kAtOnce) {
    GatePair given[kAtOnce] = {};
#pragma unroll
    for (int t = 0; t < kAtOnce; ++t) {
      if constexpr (kGiven && kGatesAhead) {
        given[t] = ahead[t * kChannelPairs];
      } else if (kGiven && (kFull || first + t < tokens)) {
        auto* const pair = reinterpret_cast<dev::Storage<kGate>*>(given[t].words);
        pair[0] = a[t * stride], pair[1] = a[t * stride + 1];
      }
    }
#pragma unroll
    for (int t = 0; t < kAtOnce; ++t) {
      if (kFull || first + t < tokens) {
#pragma unroll
        for (int j = 0; j < 2; ++j) sums[j] = log_decays[j].add_to(sums[j], given[t].get(j));
      }
      dev::store_shared(to + t * kGateRow * 4, sums);
    }
    ahead += kAtOnce * kChannelPairs;
    to += kAtOnce * kGateRow * 4;
  }
  const float decays[2] = {dev::exp2(sums[0]), dev::exp2(sums[1])};
  dev::store_shared(dev::shared_address(block_decays(block) + d), decays);
}

// Those of the chunk, and its betas.
__device__ void sum_gates(const GdnPrefillChunksParams& p, unsigned number,
                          const GatesOfThread& gates) {
  const long long stride = p.gates.g.stride.token;
  const int tokens = pair_of(number).tokens;
#pragma unroll
  for (int n = 0; n < kSumsOfThread; ++n) {
    const int block = block_of_sum(n), d = channel_of_sum(n);
    if (block >= kBlocks) break;
    const auto* const ahead = place<const GatePair>(stage_offset(number) + places().updates) +
                              16 * block * kChannelPairs + d / 2;
    const dev::Storage<kGate>* a = nullptr;
    if constexpr (!kGatesAhead) {
      a = dev::as<kGate>(pair_of(number).gates) + 16 * block * stride + d;
    }
    const auto sum = [&]<bool kIsTame, bool kFull>() {
      sum_gates_of<kIsTame, kFull>(gates, n, tokens - 16 * block, ahead, a, stride);
    };
    if (!dev::is_tame<kKey>(gates.all)) {
      sum.template operator()<false, false>();
    } else if (tokens == kChunk) {
      sum.template operator()<true, true>();
    } else {
      sum.template operator()<true, false>();
    }
  }
  for (int t = threadIdx.x; t < kChunk; t += threads(kKey)) {
    const float beta = dev::to_float<kKey.inputs.beta_dtype>(gates.beta);
    betas_of(number)[t] = t < tokens ? dev::beta_of<kKey>({.beta = beta}) : 0.0f;
  }
}

// The chunk's decays, those of its blocks joined.
__device__ void store_decays(unsigned stage) {
  for (int d = threadIdx.x; d < kKey.key_dim; d += threads(kKey)) {
    float decay = block_decays(0)[d];
#pragma unroll
    for (int block = 1; block < kBlocks; ++block) decay *= block_decays(block)[d];
    dev::store_shared(stage + places().decay + d * 4, decay);
  }
}

}  // namespace
