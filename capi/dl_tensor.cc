#include "capi/dl_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "capi/dl_data.h"

namespace cubinery::capi {
namespace {

// As a number: newer versions of DLPack have devices that its enumeration here does not hold.
int type_of(const DLDevice& device) {
  static_assert(sizeof device.device_type == sizeof(int));
  int type = 0;
  std::memcpy(&type, &device.device_type, sizeof type);
  return type;
}

std::string device_text(const DLDevice& device) {
  const int type = type_of(device);
  switch (type) {
    case kDLCPU:
      return "cpu";
    case kDLCUDA:
      return fmt::format("cuda:{}", device.device_id);
    case kDLCUDAHost:
      return "cuda_host";
    case kDLROCM:
      return fmt::format("rocm:{}", device.device_id);
    default:
      return fmt::format("{} of DLPack's device type {}", device.device_id, type);
  }
}

// Codes of DLPack 0.8 (bool) and 1.1 (fp8); older headers end before them.
constexpr int kDLBool = 6;
constexpr int kDLFloat8E4M3FN = 10;
constexpr int kDLFloat8E5M2 = 12;

std::optional<DType> dtype_of(const DLDataType& type) {
  if (type.lanes != 1) return std::nullopt;
  if (type.code == kDLFloat && type.bits == 32) return DType::kF32;
  if (type.code == kDLFloat && type.bits == 16) return DType::kF16;
  if (type.code == kDLBfloat && type.bits == 16) return DType::kBF16;
  if (type.code == kDLInt && type.bits == 32) return DType::kI32;
  if (type.code == kDLInt && type.bits == 64) return DType::kI64;
  if (type.code == kDLBool && type.bits == 8) return DType::kBool;
  if (type.code == kDLFloat8E4M3FN && type.bits == 8) return DType::kF8E4M3;
  if (type.code == kDLFloat8E5M2 && type.bits == 8) return DType::kF8E5M2;
  return std::nullopt;
}

std::string dtype_text(const DLDataType& type) {
  std::string text;
  switch (type.code) {
    case kDLInt:
      text = "i";
      break;
    case kDLUInt:
      text = "u";
      break;
    case kDLFloat:
      text = "f";
      break;
    case kDLBfloat:
      text = "bf";
      break;
    default:
      text = fmt::format("of DLPack's type code {} with bits ", type.code);
  }
  text += std::to_string(type.bits);
  return type.lanes == 1 ? text : text + fmt::format("x{}", type.lanes);
}

// Of a tensor whose strides are not given.
Status set_row_major(TensorName name, Tensor* tensor) {
  std::int64_t stride = 1;
  for (int d = tensor->rank - 1; d >= 0; --d) {
    const auto at = static_cast<std::size_t>(d);
    tensor->strides[at] = stride;
    if (d > 0 && __builtin_mul_overflow(stride, tensor->shape[at], &stride)) {
      return invalid(name, "has a shape of more than 2^63 elements; accepted: what memory holds");
    }
  }
  return {};
}

}  // namespace

Status from_dlpack(TensorName name, const DLTensor* given, int device, Tensor* tensor) {
  *tensor = {};
  if (given == nullptr) return {};
  const int type = type_of(given->device);
  if (type != kDLCUDAManaged && (type != kDLCUDA || given->device.device_id != device)) {
    return invalid(name, fmt::format("is on device {}; accepted: cuda:{}",
                                     device_text(given->device), device));
  }
  const std::optional<DType> dtype = dtype_of(given->dtype);
  if (!dtype) {
    return invalid(
        name, fmt::format("has dtype {}; accepted: f32, bf16, f16, i32, i64, f8e4m3, f8e5m2, bool",
                          dtype_text(given->dtype)));
  }
  if (given->ndim < 1 || given->ndim > Tensor::kMaxRank) {
    return invalid(
        name, fmt::format("has {} dimensions; accepted: 1 to {}", given->ndim, Tensor::kMaxRank));
  }
  if (given->shape == nullptr) return invalid(name, "has shape NULL; accepted: its extents");
  if (!first_element(*given, &tensor->data)) {
    return invalid(
        name, fmt::format("has byte_offset {}; accepted: what memory holds", given->byte_offset));
  }
  tensor->dtype = *dtype;
  tensor->rank = given->ndim;
  const auto rank = static_cast<std::size_t>(given->ndim);
  std::copy_n(given->shape, rank, tensor->shape.begin());
  if (given->strides == nullptr) return set_row_major(name, tensor);
  std::copy_n(given->strides, rank, tensor->strides.begin());
  return {};
}

}  // namespace cubinery::capi
