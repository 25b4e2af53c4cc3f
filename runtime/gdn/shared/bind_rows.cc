#include "runtime/gdn/shared/bind_rows.h"

#include <span>

namespace cubinery::gdn {
namespace {

// Rows that start at multiples of this are read in whole vectors.
constexpr std::uint64_t kRowAlignment = 16;

// check_tokens() of any tensor, with a message for those that it refuses.
Status check_unusual_tokens(const TensorName& name, const Tensor& x, const TokenForm& form,
                            const Dim& heads, const Dim* row, RowStrides* strides) {
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

}  // namespace

// Most of what a launch costs is here: tensors without an extra dimension, with small strides, are
// told without copying the form.
Status check_tokens(const TensorName& name, const Tensor& x, DType dtype, const TokenForm& form,
                    const Dim& heads, const Dim* row, RowStrides* strides) {
  CUBINERY_RETURN_IF_ERROR(check_data(name, x, dtype));
  const std::size_t outer = form.rank;
  ShapeComparison comparison(x);
  for (std::size_t d = 0; d < outer; ++d) {
    comparison.add(d, d == form.head ? heads.extent : form.dims[d].extent);
  }
  if (row != nullptr) comparison.add(outer, row->extent);
  if (!comparison.is_usual()) return check_unusual_tokens(name, x, form, heads, row, strides);
  const auto stride_of = [&](std::size_t d) { return d == TokenForm::kNone ? 0 : x.strides[d]; };
  *strides = {.batch = stride_of(form.batch),
              .token = stride_of(form.token),
              .head = stride_of(form.head),
              .element = row != nullptr ? x.strides[outer] : 0};
  return {};
}

bool rows_aligned(const Tensor& x) {
  const auto size = static_cast<std::uint64_t>(size_of(x.dtype));
  std::uint64_t bits = reinterpret_cast<std::uintptr_t>(x.data);
  for (std::size_t d = 0; d + 1 < static_cast<std::size_t>(x.rank); ++d) {
    if (x.shape[d] > 1) bits |= static_cast<std::uint64_t>(x.strides[d]) * size;
  }
  return bits % kRowAlignment == 0;
}

}  // namespace cubinery::gdn
