// Element types.  Compiled by the host and by NVRTC: no includes.
#pragma once

namespace cubinery {

// Persistent: names are part of kernel identities.
enum class DType : int {
  kF32,
  kBF16,
  kF16,
  kI32,
  kI64,
  kF8E4M3,  // without infinities, up to 448: PyTorch's float8_e4m3fn
  kF8E5M2,  // up to 57344: PyTorch's float8_e5m2
  kBool,    // a byte: 0 is false, all else true
};

// 8-bit floats, which only some tensors may hold: is_float() does not count them.
constexpr bool is_fp8(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2; }

constexpr bool is_integer(DType dtype) { return dtype == DType::kI32 || dtype == DType::kI64; }

constexpr int size_of(DType dtype) {
  if (is_fp8(dtype) || dtype == DType::kBool) return 1;
  return dtype == DType::kI64 ? 8 : dtype == DType::kF32 || dtype == DType::kI32 ? 4 : 2;
}

constexpr bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

}  // namespace cubinery
