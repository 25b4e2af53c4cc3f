// Tensors of tokens: rows and numbers of each token and head.
#pragma once

#include "runtime/gdn/shared/extent.h"

namespace cubinery::gdn {

// Of a tensor of tokens; 0 where it has no such dimension.
struct RowStrides {
  long long batch, token, head;
  long long element;  // of a row
};

inline void set(const RowStrides& from, TokenStrides* to) {
  *to = {.batch = from.batch, .token = from.token, .head = from.head};
}
inline void set(const RowStrides& from, RequestStrides* to) {
  *to = {.request = from.batch, .head = from.head};
}

// Whether check_tokens() and, of elements in rows, check_innermost() accept the tensor, as they do
// most: without an extra dimension, with small strides.  Costs little; false: ask them.  `row`: 0
// where there is none.
bool has_usual_tokens(const Tensor& x, DType dtype, const TokenForm& form, std::int64_t heads,
                      std::int64_t row, RowStrides* strides);

template <class Strides>
bool has_usual_tokens(const Tensor& x, DType dtype, const TokenForm& form, std::int64_t heads,
                      std::int64_t row, Strides* strides) {
  RowStrides found;
  const bool is_usual = has_usual_tokens(x, dtype, form, heads, row, &found);
  set(found, strides);
  return is_usual;
}

// The form's dimensions, `heads` among them where it has those, then `row` if there is one.
Status check_tokens(const TensorName& name, const Tensor& x, DType dtype, const TokenForm& form,
                    const Dim& heads, const Dim* row, RowStrides* strides);

// Whether all rows start at multiples of 16 bytes.
bool rows_aligned(const Tensor& x);

}  // namespace cubinery::gdn
