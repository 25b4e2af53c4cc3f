// Element types.  Compiled by the host and by NVRTC: no includes.
#pragma once

namespace cubinery {

// Persistent: names are part of kernel identities.
enum class DType : int { kF32, kBF16, kF16, kI32, kI64 };

constexpr int size_of(DType dtype) {
  return dtype == DType::kI64 ? 8 : dtype == DType::kF32 || dtype == DType::kI32 ? 4 : 2;
}

constexpr bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

}  // namespace cubinery
