// Storage types of DType and their conversion to and from float.  Own PTX instead of cuda_fp16.h
// and cuda_bf16.h, so that NVRTC needs no include path and no time to parse them.
#pragma once

#include "cubinery/dtype.h"

namespace cubinery::dev {

template <DType kDType>
struct StorageOf {
  using Type = unsigned short;
};
template <>
struct StorageOf<DType::kF32> {
  using Type = float;
};
template <>
struct StorageOf<DType::kI32> {
  using Type = int;
};
template <>
struct StorageOf<DType::kI64> {
  using Type = long long;
};
template <>
struct StorageOf<DType::kF8E4M3> {
  using Type = unsigned char;
};
template <>
struct StorageOf<DType::kF8E5M2> {
  using Type = unsigned char;
};
template <>
struct StorageOf<DType::kBool> {
  using Type = unsigned char;
};
template <DType kDType>
using Storage = typename StorageOf<kDType>::Type;

template <DType kDType>
__device__ float to_float(Storage<kDType> x) {
  if constexpr (kDType == DType::kF32) {
    return x;
  } else if constexpr (kDType == DType::kBF16) {
    return __uint_as_float(static_cast<unsigned>(x) << 16);
  } else {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
  }
}

// Rounds to nearest, ties to even.
template <DType kDType>
__device__ Storage<kDType> from_float(float x) {
  if constexpr (kDType == DType::kF32) {
    return x;
  } else if constexpr (kDType == DType::kBF16) {
    unsigned short y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
  } else {
    unsigned short y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
  }
}

// Two floats to a word of 16-bit elements, the first one in the low half.  Rounds likewise.
template <DType kDType>
__device__ unsigned pack(float low, float high) {
  unsigned word;
  if constexpr (kDType == DType::kBF16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  }
  return word;
}

// Two floats to a pair of fp8, the first one in the low byte.  Rounds likewise, what is larger than
// the largest finite number to that; NaN stays NaN.  sm_89 and newer, like unpack_fp8().
template <DType kDType>
__device__ unsigned short pack_fp8(float low, float high) {
  unsigned short pair;
  if constexpr (kDType == DType::kF8E4M3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// A pair of fp8 as a pair of f16, which has all their values.
template <DType kDType>
__device__ unsigned unpack_fp8(unsigned short pair) {
  unsigned halves;
  if constexpr (kDType == DType::kF8E4M3) {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
  } else {
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(pair));
  }
  return halves;
}

template <DType kDType>
__device__ const Storage<kDType>* as(const void* p) {
  return static_cast<const Storage<kDType>*>(p);
}
template <DType kDType>
__device__ Storage<kDType>* as(void* p) {
  return static_cast<Storage<kDType>*>(p);
}

// Element `i` of an array of kDType, as float.
template <DType kDType>
__device__ float load(const void* p, long long i) {
  return to_float<kDType>(as<kDType>(p)[i]);
}

}  // namespace cubinery::dev
