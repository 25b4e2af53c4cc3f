// What tokens add to the columns of a state, as left operands of products with k.
#pragma once

#include "common/tile/tf32.cuh"
#include "common/tile/tile.cuh"
#include "common/tokens/channels.cuh"
#include "common/tokens/order.cuh"
#include "common/tokens/rows.cuh"

namespace cubinery::dev {

// u of each token, times the decay from it to the stored state.  In two tf32, which have 22 bits.
template <auto kKey, DType kDType = kKey.dtype>
class TokenUpdates {
  static constexpr int kHalves = kTokenHalves<kKey>;

 public:
  // x: of the lane's two columns, of tokens tile_column() + 8 half + e.
  explicit __device__ TokenUpdates(const Acc& x) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      pairs_[h].split({x.x[0][h][0], x.x[1][h][0], x.x[0][h][1], x.x[1][h][1]});
    }
  }

  // Adds the products with elements 2 pair and 2 pair + 1 of k's runs `s` to the lane's two
  // columns.
  __device__ void add_to(float (&first)[2], float (&second)[2], const TokenRows<kKey>& k, int s,
                         int pair) const {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      Vec<kDType, 4> words{k.transposed(h, s, pair)};
      const unsigned right[2] = {__float_as_uint(words.get(0)), __float_as_uint(words.get(1))};
      mma_tf32(first, second, pairs_[h].low, right);
      mma_tf32(first, second, pairs_[h].high, right);
    }
  }

 private:
  PairsOfTf32<4> pairs_[kHalves];
};

// With k in bf16, which has fp32's range: in so many bf16, of 8 bits each, that a stored state does
// not tell.  A product takes 16 columns: two parts of 8 tokens, or one of 16.
template <auto kKey>
class TokenUpdates<kKey, DType::kBF16> {
  static constexpr int kHalves = kTokenHalves<kKey>;
  static constexpr int kParts = size_of(kKey.states.dtype) == 4 ? 3 : 2;
  static constexpr int kProducts = (kParts * kHalves + 1) / 2;

 public:
  explicit __device__ TokenUpdates(Acc x) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
          float(&pair)[2] = x.x[r][h];
          const Vec<DType::kBF16, 4> rounded{pack<DType::kBF16>(pair[0], pair[1])};
          const int place = part * kHalves + h;
          lefts_[place / 2].x[r][place % 2] = rounded.words[0];
          pair[0] -= rounded.get(0);
          pair[1] -= rounded.get(1);
        }
      }
    }
  }

  __device__ void add_to(float (&first)[2], float (&second)[2], const TokenRows<kKey>& k, int s,
                         int pair) const {
    Tile<DType::kBF16> right{};
    right.x[0][0] = k.transposed(0, s, pair);
    right.x[0][1] = kHalves == 1 ? right.x[0][0] : k.transposed(kHalves - 1, s, pair);
    Acc sum{{{{first[0], first[1]}}, {{second[0], second[1]}}}};
    // The smallest part first.
#pragma unroll
    for (int i = kProducts - 1; i >= 0; --i) mma_half<DType::kBF16>(sum, lefts_[i], right, 0);
#pragma unroll
    for (int e = 0; e < 2; ++e) first[e] = sum.x[0][0][e], second[e] = sum.x[1][0][e];
  }

 private:
  Tile<DType::kBF16> lefts_[kProducts]{};
};

// What becomes of elements 2 pair and 2 pair + 1 of the lane's runs `s`, of its two columns of the
// state: decay S + updates^T k.
template <auto kKey>
struct HeadUpdate {
  TokenUpdates<kKey> updates;
  const TokenRows<kKey>& k;
  float decay;

  __device__ void operator()(float (&first)[2], float (&second)[2], int s, int pair) const {
#pragma unroll
    for (int e = 0; e < 2; ++e) first[e] *= decay, second[e] *= decay;
    updates.add_to(first, second, k, s, pair);
  }
};

// u of each token as the left operand of a product with rows of fp32 numbers.
template <auto kKey, bool = has_bf16_rows(kKey)>
class ChannelUpdates {
  static constexpr int kHalves = kTokenHalves<kKey>;

 public:
  // x: as TokenUpdates takes it.
  explicit __device__ ChannelUpdates(const Acc& x) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      lefts_[h].split({x.x[0][h][0], x.x[1][h][0], x.x[0][h][1], x.x[1][h][1]});
    }
  }

  // Adds the products with the channels of a step to the lane's two columns.
  __device__ void add_to(float (&first)[2], float (&second)[2], const OverTokens<kKey>& rows,
                         int step) const {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      float numbers[2];
      rows.get(step, h, numbers);
      const PairsOfTf32<2> right(numbers);
      mma_tf32(first, second, lefts_[h].low, right.high);
      mma_tf32(first, second, lefts_[h].high, right.low);
      mma_tf32(first, second, lefts_[h].high, right.high);
    }
  }

 private:
  PairsOfTf32<4> lefts_[kHalves];
};

// In two bf16, as the rows: a product takes 16 columns, both parts of 8 tokens, or one of 16.
template <auto kKey>
class ChannelUpdates<kKey, true> {
  static constexpr int kHalves = kTokenHalves<kKey>;
  using Left = Tile<DType::kBF16>;

 public:
  explicit __device__ ChannelUpdates(const Acc& x) {
    for_each_pair([&](int r, int h) {
      const float(&pair)[2] = x.x[r][h];
      const unsigned words[2] = {bf16_parts(pair[0]), bf16_parts(pair[1])};
      const PairOfBf16Parts parts(words);
      high_.x[r][h] = parts.high;
      low_.x[r][h] = parts.low;
    });
  }

  __device__ void add_to(float (&first)[2], float (&second)[2], const OverTokens<kKey>& rows,
                         int step) const {
    PairOfBf16Parts parts[kHalves];
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      float numbers[2];
      rows.get(step, h, numbers);
      parts[h] = parts_of(numbers);
    }
    Acc sum{{{{first[0], first[1]}}, {{second[0], second[1]}}}};
    // The smallest products first.
    if constexpr (kHalves == 1) {
      multiply(sum, {{{high_.x[0][0], 0}, {high_.x[1][0], 0}}}, parts[0].low, 0);
      multiply(sum, {{{high_.x[0][0], low_.x[0][0]}, {high_.x[1][0], low_.x[1][0]}}}, parts[0].high,
               parts[0].high);
    } else {
      multiply(sum, high_, parts[0].low, parts[1].low);
      multiply(sum, low_, parts[0].high, parts[1].high);
      multiply(sum, high_, parts[0].high, parts[1].high);
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) first[e] = sum.x[0][0][e], second[e] = sum.x[1][0][e];
  }

 private:
  template <class Function>
  static __device__ void for_each_pair(Function f) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) f(r, h);
    }
  }
  static __device__ void multiply(Acc& sum, const Left& left, unsigned right, unsigned behind) {
    mma_half<DType::kBF16>(sum, left, Left{{{right, behind}, {0, 0}}}, 0);
  }

  Left high_{}, low_{};
};

// Of each channel: decay S + updates^T K", or, with a bound, decay (S + updates^T K~).
template <auto kKey>
class ChannelUpdate {
  static constexpr int kRun = key_run(kKey);

 public:
  // x: as TokenUpdates takes it.  decays: of the lane's first channel.
  __device__ ChannelUpdate(const Acc& x, const OverTokens<kKey>& rows, const float* decays)
      : updates_(x), rows_(rows), decays_(decays) {}

  __device__ void operator()(float (&first)[2], float (&second)[2], int s, int pair) const {
    if constexpr (!is_bounded(kKey)) decay(first, second, s, pair);
    updates_.add_to(first, second, rows_, s * (kRun / 2) + pair);
    if constexpr (is_bounded(kKey)) decay(first, second, s, pair);
  }

 private:
  __device__ void decay(float (&first)[2], float (&second)[2], int s, int pair) const {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float decay = decays_[s * 4 * kRun + 2 * pair + e];
      first[e] *= decay, second[e] *= decay;
    }
  }

  ChannelUpdates<kKey> updates_;
  OverTokens<kKey> rows_;
  const float* decays_;
};

// After one of several tokens, whose path this is: with x the decays from token i to it,
//
//   S_t = x_all S + sum over i on the path of (k_i x_i) u_i^T
//
// in fp32, as many steps as the path is long: less time than storing a state takes.
template <auto kKey>
class PathUpdate {
  static constexpr int kTokens = kKey.draft_tokens;
  static constexpr int kRun = key_run(kKey);
  using Path = typename TokenOrder<kTokens, is_tree(kKey)>::Path;

 public:
  // x: as TokenUpdates takes it.
  __device__ PathUpdate(const Acc& x, const AnyChannels<kKey>& channels, int t, Path path)
      : channels_(channels), t_(t), path_(path) {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int holder = threadIdx.x % 32 / 4 * 4 + i % 8 / 2;
      first_[i] = __shfl_sync(0xffffffffu, x.x[0][i / 8][i % 2], holder);
      second_[i] = __shfl_sync(0xffffffffu, x.x[1][i / 8][i % 2], holder);
    }
  }

  __device__ void operator()(float (&first)[2], float (&second)[2], int s, int pair) const {
    const int channel = (s * 4 + threadIdx.x % 4) * kRun + 2 * pair;
    float decay[2] = {1.0f, 1.0f}, first_sum[2]{}, second_sum[2]{};
#pragma unroll
    for (int i = kTokens - 1; i >= 0; --i) {
      if (path_.number_of(i) > t_) continue;
      const float2 k = *reinterpret_cast<const float2*>(channels_.k_row(i, channel));
      const float2 d = *reinterpret_cast<const float2*>(channels_.decay_row(i, channel));
      const float factors[2] = {k.x * decay[0], k.y * decay[1]};
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        first_sum[e] = fmaf(factors[e], first_[i], first_sum[e]);
        second_sum[e] = fmaf(factors[e], second_[i], second_sum[e]);
      }
      decay[0] *= d.x, decay[1] *= d.y;
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      first[e] = fmaf(decay[e], first[e], first_sum[e]);
      second[e] = fmaf(decay[e], second[e], second_sum[e]);
    }
  }

 private:
  AnyChannels<kKey> channels_;
  int t_;
  Path path_;
  float first_[kTokens], second_[kTokens];  // u of the lane's two columns
};

}  // namespace cubinery::dev
