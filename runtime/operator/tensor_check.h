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

// What most tensors are is told without a call; all others are looked at by these.
namespace internal {
Status check_unusual_data(const TensorName& name, const Tensor& tensor, DType dtype);
Status check_unusual_vector(const TensorName& name, const Tensor& tensor, DType dtype,
                            const Dim& dim);
Status bad_innermost(const TensorName& name, std::int64_t stride);
Status not_absent(const TensorName& name, std::string_view why);
}  // namespace internal

// Of this dtype, at an address that is aligned to elements of any size.
inline bool has_usual_data(const Tensor& tensor, DType dtype) {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  return tensor.dtype == dtype && address != 0 && address % 8 == 0;
}

// Not null (unless it has no elements), aligned to its elements, of this dtype.
inline Status check_data(const TensorName& name, const Tensor& tensor, DType dtype) {
  if (has_usual_data(tensor, dtype)) return {};
  return internal::check_unusual_data(name, tensor, dtype);
}

// Compares a tensor with the shape that it must have, one dimension after the other.
class ShapeComparison {
 public:
  explicit ShapeComparison(const Tensor& tensor) : tensor_(tensor) {}

  // Dimension `at` of the tensor, which must have this extent.  Returns its stride.
  std::int64_t add(std::size_t at, std::int64_t extent) {
    differences_ |= tensor_.shape[at] ^ extent;
    extents_ |= tensor_.shape[at];
    strides_ |= tensor_.strides[at];
    ++rank_;
    return tensor_.strides[at];
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
inline Status check_innermost(const TensorName& name, std::int64_t stride) {
  if (stride == 1) return {};
  return internal::bad_innermost(name, stride);
}

// For tensors that are written: no two elements in one place.  Refuses interleaved dimensions, too.
// Requires: check_shape() is OK.
Status check_no_overlap(const TensorName& name, const Tensor& tensor);

inline Status check_absent(const TensorName& name, const Tensor& tensor, std::string_view why) {
  if (!tensor.present()) return {};
  return internal::not_absent(name, why);
}

// One dimension, any stride.
inline Status check_vector(const TensorName& name, const Tensor& tensor, DType dtype,
                           const Dim& dim) {
  ShapeComparison comparison(tensor);
  comparison.add(0, dim.extent);
  if (has_usual_data(tensor, dtype) && comparison.is_usual()) return {};
  return internal::check_unusual_vector(name, tensor, dtype, dim);
}

}  // namespace cubinery
