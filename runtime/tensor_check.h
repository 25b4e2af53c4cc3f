// Checks of tensor arguments.  The good path compares integers and allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
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

// Not null, aligned to its elements, of this dtype.
Status check_data(TensorName name, const Tensor& tensor, DType dtype);

// Of this shape, with strides that do not overflow.  On success strides[i] is that of dims[i]. With
// `token_dim` a tensor of one rank more is taken too, if the dimension behind the first has extent
// 1 (one token).
Status check_shape(TensorName name, const Tensor& tensor, std::initializer_list<Dim> dims,
                   bool token_dim, std::int64_t* strides);

Status invalid(TensorName name, std::string_view what);

}  // namespace cubinery
