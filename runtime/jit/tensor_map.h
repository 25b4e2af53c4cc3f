// Tensor maps: how TMA learns of a tensor (common/hopper/tma.cuh).
#pragma once

#include <array>
#include <cstdint>

#include "cubinery/dtype.h"
#include "cubinery/tensor_map.h"
#include "runtime/jit/driver.h"

namespace cubinery {

// A tensor of 16-bit elements, its dimensions from the innermost one out, whose elements are
// neighbours; and the boxes that are copied.
struct BoxedTensor {
  const void* data = nullptr;
  DType dtype = DType::kBF16;
  std::array<std::int64_t, 4> extents{};
  std::array<std::int64_t, 4> strides{};  // in elements; the first is 1
  std::array<int, 4> box{};
  int swizzle_bytes = 128;  // 128 or 64: common/hopper/wgmma.cuh
};

// Without a current context the driver makes no map.  False: TMA cannot read the tensor, which
// needs addresses and strides in multiples of 16 bytes, among other things.
bool make_tensor_map(const CurrentContext& current, const BoxedTensor& tensor, TensorMap* map);

}  // namespace cubinery
