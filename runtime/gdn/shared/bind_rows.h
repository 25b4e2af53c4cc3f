// Tensors of tokens: rows and numbers of each token and head.
#pragma once

#include "runtime/gdn/shared/extent.h"

namespace cubinery::gdn {

// Of a tensor of tokens; 0 where it has no such dimension.
struct RowStrides {
  long long batch, token, head;
  long long element;  // of a row
};

// The form's dimensions, `heads` among them where it has those, then `row` if there is one.
Status check_tokens(const TensorName& name, const Tensor& x, DType dtype, const TokenForm& form,
                    const Dim& heads, const Dim* row, RowStrides* strides);

inline void set(const RowStrides& from, TokenStrides* to) {
  *to = {.batch = from.batch, .token = from.token, .head = from.head};
}
inline void set(const RowStrides& from, RequestStrides* to) {
  *to = {.request = from.batch, .head = from.head};
}

// Whether all rows start at multiples of 16 bytes.
bool rows_aligned(const Tensor& x);

}  // namespace cubinery::gdn
