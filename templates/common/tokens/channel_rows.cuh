// Tokens whose decay is one for each channel of k, as they are loaded, and rows over channels as
// operands of products.
#pragma once

#include "common/gates.cuh"
#include "common/operands.cuh"
#include "common/params.h"
#include "common/tile/bf16_parts.cuh"
#include "common/tile/tile.cuh"
#include "common/tokens/key.h"
#include "common/tokens/order.cuh"

namespace cubinery::dev {

// Where a channel is in an operand: step s of a product has eight channels, two of the run of each
// of four lanes, as StateTile has them.
template <auto kKey>
struct ChannelPlace {
  static constexpr int kRun = key_run(kKey);
  int step, column;  // of the eight

  explicit __device__ ChannelPlace(int channel)
      : step(channel / (4 * kRun) * (kRun / 2) + channel % kRun / 2),
        column(channel / kRun % 4 * 2 + channel % 2) {}
};

// Operands of products in shared memory, of fp32 numbers of tokens, which are rows, and channels:
// for products in tf32 as they are, or, has_bf16_rows(), as two bf16.  A step's eight rows and
// channels lie together, so that a warp reads 256 neighbouring bytes; in each order in which the
// lanes that write have 32 neighbouring channels, rows or columns are swapped by the step, so that
// these lie in different banks.
template <auto kKey>
__device__ float stored_number(float x) {
  return has_bf16_rows(kKey) ? __uint_as_float(bf16_parts(x)) : x;
}
__device__ inline PairOfBf16Parts parts_of(const float (&pair)[2]) {
  const unsigned words[2] = {__float_as_uint(pair[0]), __float_as_uint(pair[1])};
  return PairOfBf16Parts(words);
}

// For products over channels (K', Q').
template <auto kKey>
class OverChannels {
  static constexpr int kHalves = token_rows(kKey) / 8;

 public:
  explicit __device__ OverChannels(float* numbers) : numbers_(numbers) {}

  // Row l / 4 of the half, of lane l, in channels 2 (l % 4) and the next of the step.
  __device__ void get(int step, int half, float (&pair)[2]) const {
    const int row = tile_row() ^ step % 4;
    const float2 both = *reinterpret_cast<const float2*>(
        numbers_ + ((step * kHalves + half) * 8 + row) * 8 + tile_column());
    pair[0] = both.x, pair[1] = both.y;
  }

  // Of one channel.
  class Column {
   public:
    __device__ void put(int row, float x) const {
      first_[row / 8 * 64 + row % 8 / 4 * 32 + (row % 4 ^ swap_) * 8] = stored_number<kKey>(x);
    }

   private:
    friend OverChannels;
    __device__ Column(float* first, int swap) : first_(first), swap_(swap) {}
    float* first_;
    int swap_;
  };
  __device__ Column column(int channel) const {
    const ChannelPlace<kKey> place(channel);
    return {numbers_ + place.step * kHalves * 64 + place.column, place.step % 4};
  }

 private:
  float* numbers_;
};

// K' and Q' of all tokens; of up to four, Q' is behind K', as rows of one operand.
template <auto kKey>
class ScaledRows {
  static constexpr int kOperand = token_rows(kKey) * kKey.key_dim;
  using Operand = OverChannels<kKey>;

 public:
  explicit __device__ ScaledRows(float* numbers) : numbers_(numbers) {}

  __device__ Operand k() const { return Operand(numbers_); }
  __device__ Operand q() const { return Operand(numbers_ + kOperand); }  // not paired

  // Of one channel.
  class Column {
   public:
    // q is not there without outputs.
    __device__ void put(int token, float k, float q) const {
      k_.put(token, k);
      if constexpr (!has_outputs(kKey)) return;
      if constexpr (is_paired(kKey)) {
        k_.put(kKey.draft_tokens + token, q);
      } else {
        q_.put(token, q);
      }
    }

   private:
    friend ScaledRows;
    __device__ Column(const ScaledRows& rows, int channel)
        : k_(rows.k().column(channel)), q_(rows.q().column(channel)) {}
    typename Operand::Column k_, q_;
  };
  __device__ Column column(int channel) const { return {*this, channel}; }

 private:
  float* numbers_;
};

// For products over tokens (K", K~).
template <auto kKey>
class OverTokens {
  static constexpr int kRows = token_rows(kKey);
  static constexpr int kHalves = kRows / 8;

 public:
  explicit __device__ OverTokens(float* numbers) : numbers_(numbers) {}

  // Tokens 2 (l % 4) and the next of the half, of lane l, in channel l / 4 of the step.
  __device__ void get(int step, int half, float (&pair)[2]) const {
    const float2 both = *reinterpret_cast<const float2*>(at(step, half, tile_row(), tile_column()));
    pair[0] = both.x, pair[1] = both.y;
  }
  // Token l / 4 of the half, in channels 2 (l % 4) and the next of the step: over channels.
  __device__ void get_row(int step, int half, float (&pair)[2]) const {
#pragma unroll
    for (int e = 0; e < 2; ++e) pair[e] = *at(step, half, tile_column() + e, tile_row());
  }

  // All rows of a channel.
  __device__ void put(int channel, const float (&rows)[kRows]) const {
    const ChannelPlace<kKey> place(channel);
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      *reinterpret_cast<float4*>(at(place.step, i / 8, place.column, i % 8)) =
          make_float4(stored_number<kKey>(rows[i]), stored_number<kKey>(rows[i + 1]),
                      stored_number<kKey>(rows[i + 2]), stored_number<kKey>(rows[i + 3]));
    }
  }

 private:
  __device__ float* at(int step, int half, int column, int token) const {
    return numbers_ + ((step * kHalves + half) * 8 + (column ^ (step & 2))) * 8 +
           (token / 4 ^ (step & 1)) * 4 + token % 4;
  }

  float* numbers_;
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
  GatesOfTokens all;  // but for dt_bias

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
    all = gates_of_tokens<kKey>(gates, at.head, lower_bound);
    if (is_channel) dt_bias = dt_bias_of<kKey>(gates, at.head, channel);
  }

  // The compiler moves no conversion in front of this.
  __device__ void hold() {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      hold(k[t]);
      if constexpr (kOutputs) hold(q[t]);
      if constexpr (kKey.inputs.gate_mode != gdn::GateMode::kNone) hold(g[t]);
    }
    hold(dt_bias);
  }

  // 1 from token `count` on.  Held in front of that choice, lest the compiler make it a branch:
  // then tokens would wait for each other.
  __device__ float decay(int t, int count) const {
    GatesOfTokens own = all;
    own.dt_bias = to_float<kKey.inputs.dt_bias_dtype>(dt_bias);
    float decay = decay_of<kKey>(own, GivenGates{.g = to_float<kKey.inputs.gate_dtype>(g[t])});
    hold(decay);
    return t < count ? decay : 1.0f;
  }

 private:
  static __device__ void hold(unsigned short& x) { asm volatile("" : "+h"(x)); }
  static __device__ void hold(float& x) { asm volatile("" : "+f"(x)); }
};

// The product of decays up to and with the token that token i follows, of those up to and with
// each; 1 where it follows none.  parents[i]: of token i, -1 for none, in a tree.
template <auto kKey>
__device__ float decay_before(const float (&decay)[kKey.draft_tokens], int i,
                              const int (&parents)[kKey.draft_tokens]) {
  if constexpr (!is_tree(kKey)) return i > 0 ? decay[i - 1] : 1.0f;
  float found = 1.0f;
#pragma unroll
  for (int j = 0; j < kKey.draft_tokens; ++j) {
    if (j < i && parents[i] == j) found = decay[j];
  }
  return found;
}

// Calls f(unit, tokens) for each 32 channels that the warp has, a lane one of them.  `first`: the
// tokens of those of the warp's first unit; tokens_of(unit) loads others.
template <auto kKey, class TokensOf, class Function>
__device__ void for_each_unit(const ChannelTokens<kKey>& first, TokensOf tokens_of, Function f) {
  constexpr int kUnits = channel_units(kKey);
  const int warp = uniform(threadIdx.x / 32);
  if (warp < kUnits) {
    ChannelTokens<kKey> held = first;
    held.hold();
    f(warp, held);
  }
  if constexpr (kUnits > kKey.warps) {
#pragma unroll 1
    for (int unit = warp + kKey.warps; unit < kUnits; unit += kKey.warps) f(unit, tokens_of(unit));
  }
}

// From a lane's parent of token l % draft_tokens, those of all tokens.
template <auto kKey>
struct Parents {
  int of[kKey.draft_tokens];
  explicit __device__ Parents(int parent) {
#pragma unroll
    for (int i = 0; i < kKey.draft_tokens; ++i) {
      of[i] = is_tree(kKey) ? __shfl_sync(0xffffffffu, parent, i) : i - 1;
    }
  }
};

}  // namespace cubinery::dev
