// Rows of k of a request's tokens, and what is computed with them.
#pragma once

#include "common/tokens/factors.cuh"
#include "common/tokens/rows.cuh"
#include "common/tokens/state_tile.cuh"
#include "gdn_commit/key.h"

namespace cubinery::dev {

template <auto kKey, bool kChannels = has_channels(kKey)>
class Operands {
  using State = StateTile<kKey>;
  using Element = Storage<kKey.states.dtype>;

 public:
  __device__ Operands(const GdnCommitLayer& layer, float, TokenStrides::At at, int count,
                      unsigned char*)
      : k_(layer.k, at, own_head(layer.k, at.head), count) {}

  // For all warps of the block, in front of all else.
  __device__ void make() const {}
  __device__ void forget_operands() { k_.forget_operands(); }
  __device__ Gram<kKey> gram(const OrderOf<kKey>&) const { return Gram<kKey>(k_); }
  // S^T K^T
  __device__ void multiply(const State& state, Acc (&products)[1]) const {
    state.multiply(products, {&k_});
  }
  __device__ void store(const State& state, const WyFactors<kKey>& factors, const Acc& u,
                        const OrderOf<kKey>& order, Element* to) const {
    constexpr int kLast = kKey.draft_tokens - 1;
    store_state(state, factors, u, k_, kLast, order.path_of(kLast), false, to);
  }

 private:
  TokenRows<kKey> k_;
};

// Where each channel of k has a decay: rows that the block makes in shared memory.
template <auto kKey>
class Operands<kKey, true> {
  using State = StateTile<kKey>;
  using Element = Storage<kKey.states.dtype>;
  using Tokens = ChannelTokens<kKey>;

 public:
  __device__ Operands(const GdnCommitLayer& layer, float lower_bound, TokenStrides::At at,
                      int count, unsigned char* shared)
      : layer_(layer),
        lower_bound_(lower_bound),
        at_(at),
        count_(count),
        channels_(shared),
        first_(tokens_of(threadIdx.x / 32)) {}

  __device__ void make() const {
    channels_.make(first_, count_, -1, [&](int unit) { return tokens_of(unit); });
  }
  __device__ void forget_operands() {}
  __device__ Gram<kKey> gram(const OrderOf<kKey>& order) const {
    return Gram<kKey>(channels_, order);
  }
  __device__ void multiply(const State& state, Acc (&products)[1]) const {
    state.multiply(products, {channels_.scaled_rows().k()});
  }
  __device__ void store(const State& state, const WyFactors<kKey>& factors, const Acc& u,
                        const OrderOf<kKey>& order, Element* to) const {
    constexpr int kLast = kKey.draft_tokens - 1;
    store_state(state, factors, u, channels_, kLast, order.path_of(kLast), to);
  }

 private:
  __device__ Tokens tokens_of(int unit) const {
    return Tokens(layer_.gates, lower_bound_, layer_.k, nullptr, at_, count_,
                  unit * 32 + threadIdx.x % 32);
  }

  const GdnCommitLayer& layer_;
  float lower_bound_;
  TokenStrides::At at_;
  int count_;
  Channels<kKey> channels_;
  Tokens first_;
};

}  // namespace cubinery::dev
