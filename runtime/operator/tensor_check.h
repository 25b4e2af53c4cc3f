// Checks of tensor arguments.  The good path compares integers and allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "cubinery/status.h"
#include "cubinery/tensor.h"

namespace cubinery {

// Names the operator and the tensor in messages.
struct TensorName {
  std::string_view op;      // "gdn_decode"
  std::string_view tensor;  // "q"
};

// One dimension that a tensor must have.
struct Dim {
  std::string_view name;  // "q_heads"
  std::int64_t extent;
};

// Where a tensor may have one dimension more than it must, of extent 1.
enum class ExtraDim { kNone, kFirst, kSecond };

namespace internal {
// check_data() of a tensor without an address, of another dtype, or that is not aligned.
Status bad_data(const TensorName& name, const Tensor& tensor, DType dtype);
}  // namespace internal

// Not null (unless it has no elements), aligned to its elements, of this dtype.
inline Status check_data(const TensorName& name, const Tensor& tensor, DType dtype) {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  const auto odd_bytes = static_cast<std::uintptr_t>(size_of(dtype) - 1);  // of a power of two
  if (tensor.dtype == dtype && address != 0 && (address & odd_bytes) == 0) return {};
  return internal::bad_data(name, tensor, dtype);
}

// Compares a tensor with the shape that it must have, one dimension after the other.
class ShapeComparison {
 public:
  explicit ShapeComparison(const Tensor& tensor) : tensor_(tensor) {}

  // Dimension `at` of the tensor, which must have this extent.
  void add(std::size_t at, std::int64_t extent) {
    differences_ |= tensor_.shape[at] ^ extent;
    extents_ |= tensor_.shape[at];
    strides_ |= tensor_.strides[at];
    ++rank_;
  }
  // All extents are what they must be, and none is negative.
  bool is_same() const { return differences_ == 0 && extents_ >= 0; }
  // Offsets are far from overflowing: five products of 56 bits and 8 bytes for each element stay
  // below 63 bits.
  bool is_small() const {
    return (strides_ & ~std::int64_t{0xffff'ffff}) == 0 &&
           (extents_ & ~std::int64_t{0xff'ffff}) == 0;
  }
  // There are no other dimensions, and check_shape() has nothing to add.
  bool is_usual() const { return tensor_.rank == rank_ && is_same() && is_small(); }

 private:
  const Tensor& tensor_;
  int rank_ = 0;
  std::int64_t differences_ = 0;
  std::int64_t extents_ = 0;
  std::int64_t strides_ = 0;
};

// Of this shape, with strides that do not overflow.  On success strides[i] is that of dims[i].
Status check_shape(const TensorName& name, const Tensor& tensor, std::span<const Dim> dims,
                   ExtraDim extra, std::int64_t* strides);
inline Status check_shape(const TensorName& name, const Tensor& tensor,
                          std::initializer_list<Dim> dims, ExtraDim extra, std::int64_t* strides) {
  return check_shape(name, tensor, std::span(dims.begin(), dims.size()), extra, strides);
}

Status invalid(const TensorName& name, std::string_view what);

// For tensors whose rows are read whole.
Status check_innermost(const TensorName& name, std::int64_t stride);

// For tensors that are written: no two elements in one place.  Refuses interleaved dimensions, too.
// Requires: check_shape() is OK.
Status check_no_overlap(const TensorName& name, const Tensor& tensor);

Status check_absent(const TensorName& name, const Tensor& tensor, std::string_view why);

// One dimension, any stride.
Status bind_vector(const TensorName& name, const Tensor& tensor, DType dtype, const Dim& dim,
                   const void** data, long long* stride);

}  // namespace cubinery
