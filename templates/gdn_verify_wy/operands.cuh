// Rows of k and q of a request's tokens, and what is computed with both.
#pragma once

#include "common/operands.cuh"
#include "common/tokens/factors.cuh"
#include "common/tokens/state_tile.cuh"
#include "common/tokens/values.cuh"

namespace cubinery::dev {

// Apart.
template <auto kKey, bool kPaired = is_paired(kKey)>
class Operands {
  using Rows = TokenRows<kKey>;
  using Factors = WyFactors<kKey>;

 public:
  __device__ Operands(const InputRows<TokenStrides>& k, const InputRows<TokenStrides>& q,
                      TokenStrides::At at, int k_head, int q_head, int count)
      : k_(k, at, k_head, count), q_(q, at, q_head, count) {}

  __device__ const Rows& k() const { return k_; }
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
class Operands<kKey, true> {
  using Rows = TokenRows<kKey>;
  using Factors = WyFactors<kKey>;

 public:
  __device__ Operands(const InputRows<TokenStrides>& k, const InputRows<TokenStrides>& q,
                      TokenStrides::At at, int k_head, int q_head, int count)
      : both_(k, q, at, k_head, q_head, count) {}

  __device__ const Rows& k() const { return both_; }
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

}  // namespace cubinery::dev
