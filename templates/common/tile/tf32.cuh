// Products of fp32 numbers on the tensor cores, as pairs of tf32 (an 11-bit significand and fp32's
// range).
#pragma once

#include "common/tile/tile.cuh"

namespace cubinery::dev {

// x = high + low: high is x cut off to 11 bits, and of the rest, which it takes exactly, mma.sync
// takes 11 bits more.  NaN stays one: it is in low, whatever becomes of high.
template <int kCount>
struct PairsOfTf32 {
  unsigned high[kCount], low[kCount];

  PairsOfTf32() = default;
  explicit __device__ PairsOfTf32(const float (&x)[kCount]) { split(x); }

  __device__ void split(const float (&x)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      high[i] = __float_as_uint(x[i]) & 0xffffe000u;
      low[i] = __float_as_uint(x[i] - __uint_as_float(high[i]));
    }
  }

  // In both, or rounded to high alone.
  __device__ void take(const float (&x)[kCount], bool in_both) {
    if (in_both) {
      split(x);
    } else {
      round(x);
    }
  }

  // To high alone.
  __device__ void round(const float (&x)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) high[i] = round_to_tf32(x[i]);
  }
};

// One m16n8k8 product, whose operands' columns t and t + 4 are in lane t; `upper` and `lower` are
// the accumulators of the lane's two rows.
__device__ inline void mma_tf32(float (&upper)[2], float (&lower)[2], const unsigned (&a)[4],
                                const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(upper[0]), "+f"(upper[1]), "+f"(lower[0]), "+f"(lower[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace cubinery::dev
