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
  using Rows = SwizzledRows<kRows, kSwizzled>;
  // Where the rows' elements are as tiles, from a shared address on.
  using Matrix = SwizzledMatrix<kDType, Rows>;
  // Runs of `rows` rows from the first on: each of so many bytes, so far apart.
  static constexpr int kRuns = kKeyDim * 2 / kSwizzled;
  static constexpr int kRunStride = kRows * kSwizzled;
  static constexpr int run_bytes(int rows) { return rows * kSwizzled; }

  // This lane's addresses in the tiles that start in row 0 (load_tile_at()).
  struct Lane {
    unsigned row, turned;
    __device__ explicit Lane(unsigned address)
        : row(address + row_of_lane<kDType>() * kSwizzled),
          turned(Rows::at(row_of_lane<kDType>(), byte_of_lane<kDType>() / 16) -
                 row_of_lane<kDType>() * kSwizzled) {}
    // `column`: the tile's first.
    __device__ unsigned at(unsigned column) const {
      return row + column / Rows::kColumns * Rows::kBlock + (column % Rows::kColumns * 2 ^ turned);
    }
  };
  // From an address of a lane to that 16 rows below, or some columns, of whole runs, to the right.
  static constexpr unsigned kDown = 16 * kSwizzled;
  static constexpr unsigned right(int columns) { return columns / Rows::kColumns * Rows::kBlock; }
  static __device__ Tile<kDType> load_tile(unsigned at) {
    return load_tile_at<kDType, kSwizzled>(at);
  }
  static __device__ void store_tile(unsigned at, const Tile<kDType>& tile) {
    store_tile_at<kDType, kSwizzled>(at, tile);
  }
};
template <int kRows, int kKeyDim, DType kDType>
struct WyRows<kRows, kKeyDim, kDType, 0> : PlainRows<channel_row_bytes(kKeyDim, kDType)> {
  static constexpr int kRowBytes = channel_row_bytes(kKeyDim, kDType);
  using Matrix = SharedMatrix<kDType, padded_row(kKeyDim, kDType)>;
  static constexpr int kRuns = 1;
  static constexpr int kRunStride = kRows * kRowBytes;
  static constexpr int run_bytes(int rows) { return rows * kRowBytes; }

  struct Lane {
    unsigned first;
    __device__ explicit Lane(unsigned address)
        : first(address + row_of_lane<kDType>() * kRowBytes + byte_of_lane<kDType>()) {}
    __device__ unsigned at(unsigned column) const { return first + column * size_of(kDType); }
  };
  static constexpr unsigned kDown = 16 * kRowBytes;
  static constexpr unsigned right(int columns) { return columns * size_of(kDType); }
  static __device__ Tile<kDType> load_tile(unsigned at) {
    return load_tile_at<kDType, kRowBytes>(at);
  }
  static __device__ void store_tile(unsigned at, const Tile<kDType>& tile) {
    store_tile_at<kDType, kRowBytes>(at, tile);
  }
};

}  // namespace cubinery::dev
