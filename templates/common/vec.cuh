// Vectors of 4, 8 or 16 bytes, or 2 where these are a pair of fp8, that a thread loads, unpacks,
// packs and stores in one instruction.
#pragma once

#include "common/types.cuh"

namespace cubinery::dev {

// kBytes / size_of(kDType) elements.
template <DType kDType, int kBytes>
struct Vec {
  static constexpr int kElements = kBytes / size_of(kDType);
  static constexpr int kWords = kBytes < 4 ? 1 : kBytes / 4;
  unsigned words[kWords];

  __device__ float get(int i) const {
    if constexpr (kDType == DType::kF32) {
      return __uint_as_float(words[i]);
    } else if constexpr (is_fp8(kDType)) {
      const unsigned word = words[i / 4];
      const unsigned halves =
          unpack_fp8<kDType>(static_cast<unsigned short>(i % 4 < 2 ? word : word >> 16));
      return to_float<DType::kF16>(static_cast<unsigned short>(i % 2 == 0 ? halves : halves >> 16));
    } else {
      const unsigned word = words[i / 2];
      return to_float<kDType>(static_cast<unsigned short>(i % 2 == 0 ? word : word >> 16));
    }
  }

  // Rounds values to kDType.
  __device__ void set(const float (&values)[kElements]) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if constexpr (kDType == DType::kF32) {
        words[w] = __float_as_uint(values[w]);
      } else if constexpr (kBytes == 2) {
        words[w] = pack_fp8<kDType>(values[0], values[1]);
      } else if constexpr (is_fp8(kDType)) {
        const unsigned high = pack_fp8<kDType>(values[4 * w + 2], values[4 * w + 3]);
        words[w] = high << 16 | pack_fp8<kDType>(values[4 * w], values[4 * w + 1]);
      } else {
        words[w] = pack<kDType>(values[2 * w], values[2 * w + 1]);
      }
    }
  }
};

// One instruction.  Requires: p is aligned to the vector.
template <DType kDType>
__device__ void load_vector(Vec<kDType, 16>& dst, const void* p) {
  const uint4 words = *static_cast<const uint4*>(p);
  dst.words[0] = words.x, dst.words[1] = words.y, dst.words[2] = words.z, dst.words[3] = words.w;
}
template <DType kDType>
__device__ void load_vector(Vec<kDType, 8>& dst, const void* p) {
  const uint2 words = *static_cast<const uint2*>(p);
  dst.words[0] = words.x, dst.words[1] = words.y;
}
template <DType kDType>
__device__ void load_vector(Vec<kDType, 4>& dst, const void* p) {
  dst.words[0] = *static_cast<const unsigned*>(p);
}

// The other way.
template <DType kDType>
__device__ void store_vector(void* p, const Vec<kDType, 16>& src) {
  *static_cast<uint4*>(p) = {src.words[0], src.words[1], src.words[2], src.words[3]};
}
template <DType kDType>
__device__ void store_vector(void* p, const Vec<kDType, 8>& src) {
  *static_cast<uint2*>(p) = {src.words[0], src.words[1]};
}
template <DType kDType>
__device__ void store_vector(void* p, const Vec<kDType, 4>& src) {
  *static_cast<unsigned*>(p) = src.words[0];
}

// Streaming accesses (.cs): the data is not used again soon, so it leaves the caches first.
// `volatile` keeps the loads in program order, in front of the arithmetic, so that all of them are
// in flight at once.  Requires: p is aligned to the vector.
template <DType kDType>
__device__ void load_streaming(Vec<kDType, 16>& dst, const void* p) {
  asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(dst.words[0]), "=r"(dst.words[1]), "=r"(dst.words[2]), "=r"(dst.words[3])
               : "l"(p)
               : "memory");
}
template <DType kDType>
__device__ void load_streaming(Vec<kDType, 8>& dst, const void* p) {
  asm volatile("ld.global.cs.v2.u32 {%0, %1}, [%2];"
               : "=r"(dst.words[0]), "=r"(dst.words[1])
               : "l"(p)
               : "memory");
}
template <DType kDType>
__device__ void load_streaming(Vec<kDType, 4>& dst, const void* p) {
  asm volatile("ld.global.cs.u32 %0, [%1];" : "=r"(dst.words[0]) : "l"(p) : "memory");
}
template <DType kDType>
__device__ void load_streaming(Vec<kDType, 2>& dst, const void* p) {
  unsigned short pair;
  asm volatile("ld.global.cs.u16 %0, [%1];" : "=h"(pair) : "l"(p) : "memory");
  dst.words[0] = pair;
}

template <DType kDType>
__device__ void store_streaming(void* p, const Vec<kDType, 16>& src) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(src.words[0]),
               "r"(src.words[1]), "r"(src.words[2]), "r"(src.words[3])
               : "memory");
}
template <DType kDType>
__device__ void store_streaming(void* p, const Vec<kDType, 8>& src) {
  asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(src.words[0]), "r"(src.words[1])
               : "memory");
}
template <DType kDType>
__device__ void store_streaming(void* p, const Vec<kDType, 4>& src) {
  asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(p), "r"(src.words[0]) : "memory");
}
template <DType kDType>
__device__ void store_streaming(void* p, const Vec<kDType, 2>& src) {
  asm volatile("st.global.cs.u16 [%0], %1;" ::"l"(p), "h"(static_cast<unsigned short>(src.words[0]))
               : "memory");
}

}  // namespace cubinery::dev
