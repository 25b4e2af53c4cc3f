// fp32 numbers as two bf16, which have 16 of its bits and its range, for products on the tensor
// cores.
#pragma once

#include "common/types.cuh"

namespace cubinery::dev {

// Of x = high + low: high in the lower half of a word, low, what is left of it, in the upper half.
__device__ inline unsigned bf16_parts(float x) {
  const float high = __uint_as_float(pack<DType::kBF16>(0.0f, x));
  return pack<DType::kBF16>(high, x - high);
}

// Two neighbours of a product's operand, of such words.
struct PairOfBf16Parts {
  unsigned high, low;

  PairOfBf16Parts() = default;
  explicit __device__ PairOfBf16Parts(const unsigned (&words)[2])
      : high(__byte_perm(words[0], words[1], 0x5410)),
        low(__byte_perm(words[0], words[1], 0x7632)) {}
};

}  // namespace cubinery::dev
