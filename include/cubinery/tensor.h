// A view of device memory.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "cubinery/dtype.h"

namespace cubinery {

// A pointer with a dtype, a shape and strides in elements.  Owns nothing.  A default-constructed
// tensor is absent: optional arguments are left that way.
struct Tensor {
  static constexpr int kMaxRank = 5;

  // Device pointer of element [0, ..., 0].
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  // In elements; may be any value that stays inside the caller's allocation.
  std::array<std::int64_t, kMaxRank> strides{};

  // Row-major without gaps.  Requires: at most kMaxRank dimensions (further ones are dropped, and
  // the operator reports the rank).  Strides that no memory has room for become the largest number,
  // which operators refuse.
  static Tensor contiguous(const void* data, DType dtype,
                           std::initializer_list<std::int64_t> shape) {
    Tensor tensor{.data = const_cast<void*>(data), .dtype = dtype};
    for (const std::int64_t extent : shape) {
      if (tensor.rank < kMaxRank) tensor.shape[static_cast<std::size_t>(tensor.rank++)] = extent;
    }
    std::int64_t stride = 1;
    for (int d = tensor.rank - 1; d >= 0; --d) {
      tensor.strides[static_cast<std::size_t>(d)] = stride;
      const std::int64_t extent = tensor.shape[static_cast<std::size_t>(d)];
      if (__builtin_mul_overflow(stride, extent, &stride)) {
        stride = std::numeric_limits<std::int64_t>::max();
      }
    }
    return tensor;
  }

  bool present() const { return data != nullptr || rank != 0; }
};

}  // namespace cubinery
