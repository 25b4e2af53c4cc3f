// Rows of k and q of a request's tokens, and what is computed with both.
#pragma once

#include "common/operands.cuh"
#include "common/tokens/factors.cuh"
#include "common/tokens/state_tile.cuh"
#include "common/tokens/values.cuh"

namespace cubinery::dev {

// Where k and q of a head lie, and its tokens.
struct HeadRows {
  TokenStrides::At at;
  int k_head, q_head, count;
};

// Apart.
template <auto kKey, bool kPaired = is_paired(kKey), bool kChannels = has_channels(kKey)>
class Operands {
  using Rows = TokenRows<kKey>;
  using Factors = WyFactors<kKey>;

 public:
  __device__ Operands(const GdnVerifyParams& p, const HeadRows& rows, unsigned char*)
      : k_(p.k, rows.at, rows.k_head, rows.count), q_(p.q, rows.at, rows.q_head, rows.count) {}

  // For all warps of the block, in front of all else.
  __device__ void make(long long) {}
  // The state after token `t`; `keeps_first`: the first one is still needed.
  __device__ void store(const StateTile<kKey>& state, const Factors& factors, const Acc& u, int t,
                        const OrderOf<kKey>& order, bool keeps_first,
                        Storage<kKey.states.dtype>* to) const {
    store_state(state, factors, u, k_, t, order.path_of(t), keeps_first, to);
  }
  __device__ void forget_operands() {
    k_.forget_operands();
    q_.forget_operands();
  }
  __device__ Factors factors(const OrderOf<kKey>& order, float log_decay, float write,
                             float scale) const {
    return Factors(Gram<kKey>(k_, q_), order, log_decay, write, scale);
  }
  // U and O of the tile's columns.
  __device__ void solve(const StateTile<kKey>& state, const Factors& factors,
                        const TokenValues<kKey>& values, Acc* u, Acc* o) const {
    Acc products[2]{};  // S^T K^T, S^T Q^T
    if constexpr (kKey.states.has_initial) state.multiply(products, {&k_, &q_});
    const auto& [sk, sq] = products;
    Acc x{};
    for_each_value<kKey>([&](int r, int half, int e) {
      const float decay = exp2(factors.sum_g.x[half][e]);
      x.x[r][half][e] = factors.beta.x[half][e] * fmaf(-decay * factors.k_norm.x[half][e],
                                                       sk.x[r][half][e], values.get(r, half, e));
      o->x[r][half][e] = decay * factors.q_norm.x[half][e] * sq.x[r][half][e];
    });
    multiply_by_lower(*u, x, factors.t);
    multiply_by_lower(*o, *u, factors.p);
  }

 private:
  Rows k_, q_;
};

// Paired: one operand has both, and u and o are columns of one product.
template <auto kKey>
class Operands<kKey, true, false> {
  using Rows = TokenRows<kKey>;
  using Factors = WyFactors<kKey>;

 public:
  __device__ Operands(const GdnVerifyParams& p, const HeadRows& rows, unsigned char*)
      : both_(p.k, p.q, rows.at, rows.k_head, rows.q_head, rows.count) {}

  __device__ void make(long long) {}
  // The state after token `t`; `keeps_first`: the first one is still needed.
  __device__ void store(const StateTile<kKey>& state, const Factors& factors, const Acc& u, int t,
                        const OrderOf<kKey>& order, bool keeps_first,
                        Storage<kKey.states.dtype>* to) const {
    store_state(state, factors, u, both_, t, order.path_of(t), keeps_first, to);
  }
  __device__ void forget_operands() { both_.forget_operands(); }
  __device__ Factors factors(const OrderOf<kKey>& order, float log_decay, float write,
                             float scale) const {
    return Factors::paired(Gram<kKey>(both_), order, log_decay, write, scale);
  }
  __device__ void solve(const StateTile<kKey>& state, const Factors& factors,
                        const TokenValues<kKey>& values, Acc* u, Acc* o) const {
    Acc products[1]{};  // S^T [K^T, Q^T]
    if constexpr (kKey.states.has_initial) state.multiply(products, {&both_});
    dev::solve(products[0], factors, values, u);
    *o = *u;
  }

 private:
  Rows both_;
};

// Where each channel of k has a decay: rows that the block makes in shared memory.
template <auto kKey, bool kPaired>
class Operands<kKey, kPaired, true> {
  using Factors = WyFactors<kKey>;
  using Tokens = ChannelTokens<kKey>;

 public:
  __device__ Operands(const GdnVerifyParams& p, const HeadRows& rows, unsigned char* shared)
      : p_(p), rows_(rows), channels_(shared), first_(tokens_of(threadIdx.x / 32)) {}

  // Lane l has the parent of token l % kKey.draft_tokens.
  __device__ void make(long long parent) {
    channels_.make(first_, rows_.count, static_cast<int>(parent),
                   [&](int unit) { return tokens_of(unit); });
  }
  __device__ void forget_operands() {}
  __device__ Factors factors(const OrderOf<kKey>& order, float log_decay, float write,
                             float scale) const {
    const Gram<kKey> gram(channels_, order);
    if constexpr (kPaired) return Factors::paired(gram, order, log_decay, write, scale);
    return Factors(gram, order, log_decay, write, scale);
  }
  __device__ void solve(const StateTile<kKey>& state, const Factors& factors,
                        const TokenValues<kKey>& values, Acc* u, Acc* o) const {
    const ScaledRows<kKey> rows = channels_.scaled_rows();
    if constexpr (kPaired) {
      Acc products[1]{};
      if constexpr (kKey.states.has_initial) state.multiply(products, {rows.k()});
      dev::solve(products[0], factors, values, u);
      *o = *u;
      return;
    }
    Acc products[2]{};
    if constexpr (kKey.states.has_initial) state.multiply(products, {rows.k(), rows.q()});
    const auto& [sk, sq] = products;
    dev::solve(sk, factors, values, u);
    for_each_value<kKey>([&](int r, int half, int e) {
      o->x[r][half][e] = factors.q_norm.x[half][e] * sq.x[r][half][e];
    });
    multiply_by_lower(*o, *u, factors.p);
  }
  __device__ void store(const StateTile<kKey>& state, const Factors& factors, const Acc& u, int t,
                        const OrderOf<kKey>& order, bool, Storage<kKey.states.dtype>* to) const {
    store_state(state, factors, u, channels_, t, order.path_of(t), to);
  }

 private:
  __device__ Tokens tokens_of(int unit) const {
    return Tokens(p_.gates, p_.lower_bound, p_.k, &p_.q, rows_.at, rows_.count,
                  unit * 32 + threadIdx.x % 32);
  }

  const GdnVerifyParams& p_;
  HeadRows rows_;
  Channels<kKey> channels_;
  Tokens first_;
};

}  // namespace cubinery::dev
