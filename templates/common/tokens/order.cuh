// Which tokens of a request a token goes on from: all in front of it, or its ancestors in a tree.
#pragma once

#include "common/tokens/long_sum.cuh"

namespace cubinery::dev {

// Tokens that follow each other.
template <int kTokens, bool kTree>
class TokenOrder {
 public:
  // Of token i, so that it goes on from token j, or is it, where number_of(j) <= i.
  struct Path {
    __device__ int number_of(int j) const { return j; }
    // Tokens from token j on to token i, whose path it is; j is one of it.
    __device__ int steps(int j, int i) const { return i - j; }
  };

  explicit __device__ TokenOrder(int) {}  // parents are of trees

  __device__ Path path_of(int) const { return {}; }

  // Of numbers of tokens, of which lane l has that of token l % kTokens: the sum along its path.
  __device__ LongSum sum_up(float number) const {
    LongSum x{number};
#pragma unroll
    for (int step = 1; step < kTokens; step *= 2) {
      const LongSum below{__shfl_up_sync(0xffffffffu, x.high, step, kTokens),
                          __shfl_up_sync(0xffffffffu, x.low, step, kTokens)};
      if (threadIdx.x % kTokens >= step) x = x + below;
    }
    return x;
  }
};

// A tree: every token follows one in front of it, or none.
template <int kTokens>
class TokenOrder<kTokens, true> {
 public:
  struct Path {
    unsigned tokens;  // bit j: of token j
    // More than any where the path does not have the token.
    __device__ int number_of(int j) const { return (tokens >> j & 1u) != 0 ? j : kTokens; }
    __device__ int steps(int j, int) const { return __popc(tokens >> j) - 1; }
  };

  // Lane l has the parent of token l % kTokens; -1: none.
  explicit __device__ TokenOrder(int parent)
      : parent_(parent),
        path_(along_path(1u << threadIdx.x % kTokens,
                         [](unsigned own, unsigned above) { return own | above; })) {}

  __device__ Path path_of(int i) const { return {__shfl_sync(0xffffffffu, path_, i)}; }

  // Where the tree is a chain, in the same order as above: the bits are the same.
  __device__ LongSum sum_up(float number) const {
    return along_path(LongSum{number}, [](LongSum own, LongSum above) { return own + above; });
  }

 private:
  static __device__ LongSum shfl(LongSum x, int lane, int width) {
    return dev::shfl(x, lane, width);
  }
  static __device__ unsigned shfl(unsigned x, int lane, int width) {
    return __shfl_sync(0xffffffffu, x, lane, width);
  }

  // Joins the numbers of each token's path: of 1, 2, 4.. tokens up to and with it, then also those
  // of the path of the token in front of these.
  template <class T, class Join>
  __device__ T along_path(T x, Join join) const {
    int above = parent_;
#pragma unroll
    for (int step = 1; step < kTokens; step *= 2) {
      const int from = above < 0 ? 0 : above;
      const T joined = shfl(x, from, kTokens);
      const int next = __shfl_sync(0xffffffffu, above, from, kTokens);
      if (above >= 0) {
        x = join(x, joined);
        above = next;
      }
    }
    return x;
  }

  int parent_;
  unsigned path_;
};

}  // namespace cubinery::dev
