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

// Not null (unless it has no elements), aligned to its elements, of this dtype.
Status check_data(const TensorName& name, const Tensor& tensor, DType dtype);

// Of this shape, with strides that do not overflow.  On success strides[i] is that of dims[i].
Status check_shape(const TensorName& name, const Tensor& tensor, std::span<const Dim> dims,
                   ExtraDim extra, std::int64_t* strides);
inline Status check_shape(const TensorName& name, const Tensor& tensor,
                          std::initializer_list<Dim> dims, ExtraDim extra, std::int64_t* strides) {
  return check_shape(name, tensor, std::span(dims.begin(), dims.size()), extra, strides);
}

// For tensors whose rows are read whole.
Status check_innermost(const TensorName& name, std::int64_t stride);

// For tensors that are written: no two elements in one place.  Refuses interleaved dimensions, too.
// Requires: check_shape() is OK.
Status check_no_overlap(const TensorName& name, const Tensor& tensor);

Status check_absent(const TensorName& name, const Tensor& tensor, std::string_view why);

// One dimension, any stride.
Status bind_vector(const TensorName& name, const Tensor& tensor, DType dtype, const Dim& dim,
                   const void** data, long long* stride);

Status invalid(const TensorName& name, std::string_view what);

}  // namespace cubinery
