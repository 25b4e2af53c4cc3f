// Values of the tokens of a request, in the lanes that have them in products' results: rows are
// value columns, columns tokens.
#pragma once

#include "common/operands.cuh"
#include "common/step.cuh"
#include "common/tile/tile.cuh"
#include "common/tokens/factors.cuh"
#include "common/tokens/key.h"
#include "common/tokens/rows.cuh"

namespace cubinery::dev {

// Calls f(row half r, token half h, token e) for each of a lane's numbers of values and tokens.
template <auto kKey, class Function>
__device__ void for_each_value(Function f) {
#pragma unroll
  for (int i = 0; i < 4 * kTokenHalves<kKey>; ++i) f(i % 2, i / 4, i / 2 % 2);
}

// Values v of this lane's tokens, in flight until they are used.
template <auto kKey>
struct TokenValues {
  static constexpr int kHalves = kTokenHalves<kKey>;

  unsigned pairs[kHalves][2];  // token half, token: of the lane's two columns

  // `v`: the lane's first column.  0 for tokens that are not there.
  __device__ void load(const InputRows<TokenStrides>& values, TokenStrides::At at, int count,
                       int v) {
    at.head = own_head(values, at.head);
    const auto* rows = as<kKey.dtype>(values.data) + offset_of(values.stride, at) + v;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int i = tile_column() + 8 * h + e;
        pairs[h][e] = 0;
        if (i >= count) continue;
        pairs[h][e] = load_pair<kKey.dtype>(rows + i * values.stride.token, values.aligned);
      }
    }
  }

  __device__ float get(int r, int h, int e) const {
    const unsigned pair = pairs[h][e];
    return to_float<kKey.dtype>(static_cast<unsigned short>(r == 0 ? pair : pair >> 16));
  }
};

// u = T beta (v - e^G k^ S), of products with the state: without outputs, or paired.
template <auto kKey>
__device__ void solve(const Acc& products, const WyFactors<kKey>& factors,
                      const TokenValues<kKey>& values, Acc* u) {
  Acc x{};
  for_each_value<kKey>([&](int r, int half, int e) {
    const float decay = exp2(factors.sum_g.x[half][e]);
    x.x[r][half][e] =
        factors.beta.x[half][e] *
        fmaf(-decay * factors.k_norm.x[half][e], products.x[r][half][e], values.get(r, half, e));
  });
  multiply_by_lower(*u, x, factors.t);
}

}  // namespace cubinery::dev
