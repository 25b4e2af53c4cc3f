#include "runtime/jit/tensor_map.h"

#include <cuda.h>

#include <cstring>

#include "runtime/jit/driver.h"
#include "runtime/jit/kernel_state.h"

namespace cubinery {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) &&
              alignof(TensorMap) % alignof(CUtensorMap) == 0);  // of CUDA 12 64, of CUDA 13 128

std::optional<TensorMap> tensor_map(const Kernel& kernel, const BoxedTensor& tensor) {
  constexpr std::int64_t kUnit = 16;  // bytes
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % kUnit != 0) return std::nullopt;
  std::array<cuuint64_t, 4> extents{};
  std::array<cuuint64_t, 3> strides{};
  std::array<cuuint32_t, 4> box{};
  constexpr std::array<cuuint32_t, 4> kSteps{1, 1, 1, 1};
  for (std::size_t d = 0; d < extents.size(); ++d) {
    extents[d] = static_cast<cuuint64_t>(tensor.extents[d]);
    box[d] = static_cast<cuuint32_t>(tensor.box[d]);
    if (d == 0) continue;
    // That of a dimension of one element is free.
    const std::int64_t bytes = tensor.extents[d] > 1 ? tensor.strides[d] * 2 : kUnit;
    if (bytes <= 0 || bytes >= kMostBytes || bytes % kUnit != 0) return std::nullopt;
    strides[d - 1] = static_cast<cuuint64_t>(bytes);
  }
  const Device& device = *kernel.state().device;
  // Without a current context, the driver makes no map.
  const CurrentContext current = with_context_of(kernel);
  CUtensorMap made{};
  const CUresult result = device.driver().cuTensorMapEncodeTiled(
      &made,
      tensor.dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                   : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      4, const_cast<void*>(tensor.data), extents.data(), strides.data(), box.data(), kSteps.data(),
      CU_TENSOR_MAP_INTERLEAVE_NONE,
      tensor.swizzle_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return std::nullopt;
  TensorMap map{};
  std::memcpy(map.bytes, &made, sizeof(made));
  return map;
}

}  // namespace cubinery
