#include "runtime/tensor_check.h"

#include <fmt/format.h>

#include <string>

#include "cubinery/fields.h"

namespace cubinery {
namespace {

std::string shape_text(const Tensor& tensor) {
  std::string text = "[";
  for (int d = 0; d < tensor.rank && d < Tensor::kMaxRank; ++d) {
    text += fmt::format("{}{}", d == 0 ? "" : ", ", tensor.shape[static_cast<std::size_t>(d)]);
  }
  return text + "]";
}

std::string shape_text(std::initializer_list<Dim> dims) {
  std::string text = "[";
  for (const Dim& dim : dims) {
    text += fmt::format("{}{} = {}", text.size() == 1 ? "" : ", ", dim.name, dim.extent);
  }
  return text + "]";
}

// Whether every element's offset in bytes fits in 63 bits.
bool offsets_fit(const Tensor& tensor) {
  std::int64_t reach = size_of(tensor.dtype);
  for (std::size_t d = 0; d < static_cast<std::size_t>(tensor.rank); ++d) {
    std::int64_t step = 0;
    if (__builtin_mul_overflow(tensor.strides[d], size_of(tensor.dtype), &step) ||
        __builtin_mul_overflow(step, tensor.shape[d] - 1, &step) ||
        (step < 0 ? __builtin_sub_overflow(reach, step, &reach)
                  : __builtin_add_overflow(reach, step, &reach))) {
      return false;
    }
  }
  return true;
}

}  // namespace

Status invalid(TensorName name, std::string_view what) {
  return Status(Code::kInvalidArgument, fmt::format("{}: {} {}", name.op, name.tensor, what));
}

Status check_data(TensorName name, const Tensor& tensor, DType dtype) {
  if (!tensor.present()) return invalid(name, "is missing; accepted: a tensor");
  if (tensor.dtype != dtype) {
    return invalid(name, fmt::format("has dtype {}; accepted: {}",
                                     internal::field_text("", tensor.dtype, false).value,
                                     internal::field_text("", dtype, false).value));
  }
  if (tensor.data == nullptr) return invalid(name, "is null; accepted: a device pointer");
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (address % static_cast<std::uintptr_t>(size_of(dtype)) != 0) {
    return invalid(name, fmt::format("at {:#x} is misaligned; accepted: a multiple of {} bytes",
                                     address, size_of(dtype)));
  }
  return {};
}

Status check_shape(TensorName name, const Tensor& tensor, std::initializer_list<Dim> dims,
                   bool token_dim, std::int64_t* strides) {
  const int rank = static_cast<int>(dims.size());
  const bool has_token_dim = token_dim && tensor.rank == rank + 1 && tensor.shape[1] == 1;
  bool same = tensor.rank == rank || has_token_dim;
  std::size_t d = 0;
  for (const Dim& dim : dims) {
    if (!same) break;
    const std::size_t at = d + (has_token_dim && d > 0 ? 1 : 0);
    same = tensor.shape[at] == dim.extent;
    strides[d++] = tensor.strides[at];
  }
  if (same && offsets_fit(tensor)) return {};
  if (same) {
    return invalid(name,
                   "has strides that overflow 64-bit offsets; accepted: strides inside its memory");
  }
  return invalid(name,
                 fmt::format("has shape {}; accepted: {}{}", shape_text(tensor), shape_text(dims),
                             token_dim ? ", or with one token behind the first dimension" : ""));
}

}  // namespace cubinery
