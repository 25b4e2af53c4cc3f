#include "runtime/jit/tensor_map.h"

#include <cuda.h>

namespace cubinery {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) &&
              alignof(TensorMap) % alignof(CUtensorMap) == 0);  // of CUDA 12 64, of CUDA 13 128

bool make_tensor_map(const CurrentContext& current, const BoxedTensor& tensor, TensorMap* map) {
  constexpr std::int64_t kUnit = 16;  // bytes
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % kUnit != 0) return false;
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
    if (bytes <= 0 || bytes >= kMostBytes || bytes % kUnit != 0) return false;
    strides[d - 1] = static_cast<cuuint64_t>(bytes);
  }
  const CUresult result = current.driver().cuTensorMapEncodeTiled(
      reinterpret_cast<CUtensorMap*>(map->bytes),
      tensor.dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                   : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      4, const_cast<void*>(tensor.data), extents.data(), strides.data(), box.data(), kSteps.data(),
      CU_TENSOR_MAP_INTERLEAVE_NONE,
      tensor.swizzle_bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS;
}

}  // namespace cubinery
