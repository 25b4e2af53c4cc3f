#include "runtime/operator/tensor_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

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

std::string shape_text(std::span<const Dim> dims) {
  std::string text = "[";
  for (const Dim& dim : dims) {
    text += fmt::format("{}{} = {}", text.size() == 1 ? "" : ", ", dim.name, dim.extent);
  }
  return text + "]";
}

std::string_view extra_text(ExtraDim extra) {
  if (extra == ExtraDim::kFirst) return ", or with a dimension of 1 in front";
  if (extra == ExtraDim::kSecond) return ", or with one token behind the first dimension";
  return "";
}

bool is_empty(const Tensor& tensor) {
  const auto rank = static_cast<std::size_t>(std::clamp(tensor.rank, 0, Tensor::kMaxRank));
  return std::any_of(tensor.shape.begin(), tensor.shape.begin() + rank,
                     [](std::int64_t extent) { return extent == 0; });
}

// Whether every element's offset in bytes fits in 63 bits, of strides of any size.  Requires: no
// extent is negative.
bool large_offsets_fit(const Tensor& tensor) {
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

// Whether every dimension steps over all of those behind it, as in most tensors.
bool is_nested(const Tensor& tensor) {
  std::int64_t reach = 0;  // offset of the last element of the dimensions so far
  for (auto d = static_cast<std::size_t>(tensor.rank); d-- > 0;) {
    const std::int64_t extent = tensor.shape[d];
    if (extent == 1) continue;
    if (tensor.strides[d] <= reach) return false;
    reach += tensor.strides[d] * (extent - 1);
  }
  return true;
}

}  // namespace

Status invalid(const TensorName& name, std::string_view what) {
  return Status(Code::kInvalidArgument, fmt::format("{}: {} {}", name.op, name.tensor, what));
}

Status internal::check_unusual_data(const TensorName& name, const Tensor& tensor, DType dtype) {
  if (!tensor.present()) return invalid(name, "is missing; accepted: a tensor");
  if (tensor.dtype != dtype) {
    return invalid(name, fmt::format("has dtype {}; accepted: {}",
                                     internal::field_text("", tensor.dtype, false).value,
                                     internal::field_text("", dtype, false).value));
  }
  if (tensor.data == nullptr && !is_empty(tensor)) {
    return invalid(name, "is null; accepted: a device pointer");
  }
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (address % static_cast<std::uintptr_t>(size_of(dtype)) != 0) {
    return invalid(name, fmt::format("at {:#x} is misaligned; accepted: a multiple of {} bytes",
                                     address, size_of(dtype)));
  }
  return {};
}

Status check_shape(const TensorName& name, const Tensor& tensor, std::span<const Dim> dims,
                   ExtraDim extra, std::int64_t* strides) {
  const int rank = static_cast<int>(dims.size());
  const std::size_t extra_at = extra == ExtraDim::kSecond ? 1 : 0;
  const bool has_extra =
      extra != ExtraDim::kNone && tensor.rank == rank + 1 && tensor.shape[extra_at] == 1;
  const std::size_t skipped = has_extra ? extra_at : dims.size();
  ShapeComparison comparison(tensor);
  for (std::size_t d = 0; d < dims.size(); ++d) {
    const std::size_t at = d + (d >= skipped ? 1 : 0);
    strides[d] = comparison.add(at, dims[d].extent);
  }
  const bool same = (tensor.rank == rank || has_extra) && comparison.is_same();
  if (same && (comparison.is_small() || large_offsets_fit(tensor))) return {};
  if (same) {
    return invalid(name,
                   "has strides that overflow 64-bit offsets; accepted: strides inside its memory");
  }
  return invalid(name, fmt::format("has shape {}; accepted: {}{}", shape_text(tensor),
                                   shape_text(dims), extra_text(extra)));
}

Status internal::bad_innermost(const TensorName& name, std::int64_t stride) {
  return invalid(name, fmt::format("has innermost stride {}; accepted: 1", stride));
}

Status check_no_overlap(const TensorName& name, const Tensor& tensor) {
  if (is_nested(tensor) || is_empty(tensor)) return {};
  struct Axis {
    std::int64_t stride;
    std::int64_t extent;
  };
  std::array<Axis, Tensor::kMaxRank> axes{};
  const auto rank = static_cast<std::size_t>(tensor.rank);
  for (std::size_t d = 0; d < rank; ++d) {
    axes[d] = {std::abs(tensor.strides[d]), tensor.shape[d]};
  }
  std::sort(axes.begin(), axes.begin() + rank,
            [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
  std::int64_t reach = 0;  // offset of the last element of the axes so far
  for (const Axis& axis : std::span(axes.data(), rank)) {
    if (axis.extent == 1) continue;
    if (axis.stride <= reach) {
      return invalid(name, fmt::format("is written and has overlapping elements, by stride {}; "
                                       "accepted: no overlap",
                                       axis.stride));
    }
    reach += axis.stride * (axis.extent - 1);
  }
  return {};
}

Status internal::not_absent(const TensorName& name, std::string_view why) {
  return invalid(name, fmt::format("is given; accepted: no tensor, {}", why));
}

Status internal::check_unusual_vector(const TensorName& name, const Tensor& tensor, DType dtype,
                                      const Dim& dim) {
  CUBINERY_RETURN_IF_ERROR(check_data(name, tensor, dtype));
  std::int64_t same_stride = 0;
  return check_shape(name, tensor, {dim}, ExtraDim::kNone, &same_stride);
}

}  // namespace cubinery
