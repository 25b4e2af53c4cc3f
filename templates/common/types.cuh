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
