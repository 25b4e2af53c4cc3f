// The gates of the tokens, of all that the tensors have, whatever their sequences.  Templates over
// GdnConvKey.
#pragma once

#include "common/conv/channels.cuh"
#include "common/gates.cuh"
#include "gdn_conv/key.h"

namespace cubinery::dev {

// Those of a run: tokens from ... from + tokens - 1 of each of `count` rows of the batch from n on.
struct GateTokens {
  int n, count;
  int from, tokens;
};

// kGateChannels neighbours of a row of numbers, as they lie in memory.
template <auto kKey, DType kDType>
struct GateRow {
  Elements<kDType, kGateChannels> x;

  // `is_shared`: others read them, too.
  __device__ void load(const void* data, long long at, bool is_shared) {
    const auto* const from = as<kDType>(data) + at;
    if constexpr (!kKey.vectors) {
      x.load(from, 1, kGateChannels);
    } else if (is_shared) {
      x.load_shared(from);
    } else {
      x.load(from);
    }
  }
  __device__ void store(Storage<kDType>* to) const {
    if constexpr (kKey.vectors) {
      x.store(to);
    } else {
      x.store(to, 1, kGateChannels);
    }
  }
};

// g of each channel of k, a lane for some channels of a head in some tokens, and beta of one of
// these.
template <auto kKey>
__device__ void make_channel_gates(const GdnConvParams& p, const GateTokens& of, int part) {
  constexpr int kLanes = kKey.key_dim / kGateChannels;  // of a head
  constexpr int kTogether = 8;                          // loaded before the first is used
  const int warps = channel_gate_warps(kKey, p.heads);
  const int lane = part % warps * 32 + threadIdx.x % 32;
  const int head = lane / kLanes, channel = lane % kLanes * kGateChannels;
  const int first = part / warps * gate_tokens(kKey);
  const int end = min(first + gate_tokens(kKey), of.count * of.tokens);
  if (head >= p.heads || first >= end) return;
  const auto at = [&](int i) -> TokenStrides::At {
    const bool is_step = of.tokens == 1;  // of each row
    return {.batch = of.n + (is_step ? i : 0), .token = of.from + (is_step ? 0 : i), .head = head};
  };
  GateRow<kKey, kKey.inputs.gate_dtype> given[kTogether];
  const auto load_from = [&](int next) {
#pragma unroll
    for (int e = 0; e < kTogether; ++e) {
      const long long row = offset_of(p.gates.g.stride, at(min(next + e, end - 1)));
      given[e].load(p.gates.g.data, row + channel, false);
    }
  };
  // All of the first on their way before one is waited for, as a load behind a branch would be.
  load_from(first);
  const int with_beta = first + lane % kLanes;
  const GivenGates given_beta{.beta = load_beta<kKey>(p.gates, at(min(with_beta, end - 1)))};
  GateRow<kKey, kKey.inputs.dt_bias_dtype> dt_bias{};
  if (p.gates.dt_bias.data != nullptr) {
    dt_bias.load(p.gates.dt_bias.data, head * p.gates.dt_bias.stride + channel, true);
  }
  GatesOfTokens of_head = gates_of_tokens<kKey>(p.gates, head, p.lower_bound);
  for (int next = first; next < end; next += kTogether) {
#pragma unroll
    for (int e = 0; e < kTogether; ++e) {
      if (next + e >= end) break;
      float g[kGateChannels];
#pragma unroll
      for (int i = 0; i < kGateChannels; ++i) {
        of_head.dt_bias = dt_bias.x.get(i);
        g[i] = log_decay_of<kKey>(of_head, {.g = given[e].x.get(i)});
      }
      GateRow<kKey, DType::kF32> made;
      made.x.set(g);
      made.store(row_at<DType::kF32>(p.g, at(next + e)) + channel);
    }
    if (next + kTogether < end) load_from(next + kTogether);
  }
  if constexpr (kKey.inputs.beta_mode != gdn::BetaMode::kOne) {
    if (with_beta < end) *row_at<DType::kF32>(p.beta, at(with_beta)) = beta_of<kKey>(given_beta);
  }
}

// g and beta of a run of tokens, a lane for a token and head: this warp's part.
template <auto kKey>
__device__ void make_gates(const GdnConvParams& p, int run, int part) {
  int n = 0, count = 1, from = run * p.run;
  if constexpr (!kKey.varlen) {
    if (has_steps(kKey) && p.tokens == 1) {
      n = from, count = min(p.run, p.sequences - n), from = 0;
    } else {
      n = run / p.runs_of_sequence, from = (run - n * p.runs_of_sequence) * p.run;
    }
  }
  const int tokens = min(p.run, static_cast<int>(p.tokens) - from);
  if constexpr (has_channel_gates(kKey.inputs)) {
    return make_channel_gates<kKey>(p, {n, count, from, tokens}, part);
  }
  const int all = count * tokens * p.heads;
  constexpr int kTogether = 4;  // loaded before the first is used
  const int first = part * 32 * kGatesOfLane + threadIdx.x % 32;
  const int end = min(first + 32 * kGatesOfLane, all);
  for (int next = first; next < end; next += 32 * kTogether) {
    TokenStrides::At at[kTogether];
    GivenGates given[kTogether];
    GatesOfTokens of_head[kTogether];
#pragma unroll
    for (int e = 0; e < kTogether; ++e) {
      const int i = min(next + 32 * e, all - 1), row = i / p.heads;
      at[e] = {.batch = n + row / tokens, .token = from + row % tokens, .head = i % p.heads};
      given[e] = load_gates<kKey>(p.gates, at[e]);
      of_head[e] = gates_of_tokens<kKey>(p.gates, at[e].head, p.lower_bound);
    }
#pragma unroll
    for (int e = 0; e < kTogether; ++e) {
      if (next + 32 * e >= end) break;
      if constexpr (kKey.inputs.gate_mode != gdn::GateMode::kNone) {
        *row_at<DType::kF32>(p.g, at[e]) = whole_log_decay_of<kKey>(of_head[e], given[e]);
      }
      if constexpr (kKey.inputs.beta_mode != gdn::BetaMode::kOne) {
        *row_at<DType::kF32>(p.beta, at[e]) = beta_of<kKey>(given[e]);
      }
    }
  }
}

}  // namespace cubinery::dev
