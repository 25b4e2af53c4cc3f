#include "runtime/gdn/shared/bind_rows.h"

#include <span>

namespace cubinery::gdn {
namespace {

// Rows that start at multiples of this are read in whole vectors.
constexpr std::uint64_t kRowAlignment = 16;

}  // namespace

// Much of what a launch costs is here.
bool has_usual_tokens(const Tensor& x, DType dtype, const TokenForm& form, std::int64_t heads,
                      std::int64_t row, RowStrides* strides) {
  constexpr unsigned kNone = TokenForm::kNone;
  const unsigned batch = form.batch, token = form.token, head = form.head;
  ShapeComparison comparison(x);
  RowStrides found{.batch = 0, .token = 0, .head = 0, .element = 1};
  if (batch != kNone) found.batch = comparison.add(batch, form.dims[batch].extent);
  if (token != kNone) found.token = comparison.add(token, form.dims[token].extent);
  if (head != kNone) found.head = comparison.add(head, heads);
  if (row != 0) found.element = comparison.add(form.rank, row);
  *strides = found;
  return has_usual_data(x, dtype) && comparison.is_usual() && found.element == 1;
}

Status check_tokens(const TensorName& name, const Tensor& x, DType dtype, const TokenForm& form,
                    const Dim& heads, const Dim* row, RowStrides* strides) {
  CUBINERY_RETURN_IF_ERROR(check_data(name, x, dtype));
  std::array<Dim, 5> dims{form.dims[0], form.dims[1], form.dims[2]};
  std::size_t rank = form.rank;
  dims[form.head] = heads;
  if (row != nullptr) dims[rank++] = *row;
  std::array<std::int64_t, TokenForm::kNone + 1> found{};  // the last one: of no dimension
  CUBINERY_RETURN_IF_ERROR(
      check_shape(name, x, std::span(dims.data(), rank), form.extra, found.data()));
  *strides = {.batch = found[form.batch],
              .token = found[form.token],
              .head = found[form.head],
              .element = row != nullptr ? found[rank - 1] : 0};
  return {};
}

bool rows_aligned(const Tensor& x) {
  std::uint64_t strides = 0;
  for (std::size_t d = 0; d + 1 < static_cast<std::size_t>(x.rank); ++d) {
    if (x.shape[d] > 1) strides |= static_cast<std::uint64_t>(x.strides[d]);
  }
  const std::uint64_t bytes = strides * static_cast<std::uint64_t>(size_of(x.dtype));
  return (reinterpret_cast<std::uintptr_t>(x.data) | bytes) % kRowAlignment == 0;
}

}  // namespace cubinery::gdn
