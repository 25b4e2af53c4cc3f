// Rows over channels among the WY factors (common/chunk/wy.h), where they lie and as operands of
// mma.sync; of wgmma they are SwizzledRows.
#pragma once

#include "common/chunk/wy.h"
#include "common/copy.cuh"
#include "common/hopper/wgmma.cuh"
#include "common/tile/tile.cuh"

namespace cubinery::dev {

template <int kRows, int kKeyDim, DType kDType, int kSwizzled = swizzled_key_bytes(kKeyDim, kDType)>
struct WyRows : SwizzledRows<kRows, kSwizzled> {
  // Where the rows' elements are as tiles, from a shared address on.
  using Matrix = SwizzledMatrix<kDType, SwizzledRows<kRows, kSwizzled>>;
  // Runs of `rows` rows from the first on: each of so many bytes, so far apart.
  static constexpr int kRuns = kKeyDim * 2 / kSwizzled;
  static constexpr int kRunStride = kRows * kSwizzled;
  static constexpr int run_bytes(int rows) { return rows * kSwizzled; }
};
template <int kRows, int kKeyDim, DType kDType>
struct WyRows<kRows, kKeyDim, kDType, 0> : PlainRows<channel_row_bytes(kKeyDim, kDType)> {
  using Matrix = SharedMatrix<kDType, padded_row(kKeyDim, kDType)>;
  static constexpr int kRuns = 1;
  static constexpr int kRunStride = kRows * channel_row_bytes(kKeyDim, kDType);
  static constexpr int run_bytes(int rows) { return rows * channel_row_bytes(kKeyDim, kDType); }
};

}  // namespace cubinery::dev
