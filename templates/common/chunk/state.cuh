// A warp's part of the transposed state S^T, in fp32 accumulators: 16 value columns by key_dim.
#pragma once

#include "common/tile/tile.cuh"
#include "cubinery/gdn_types.h"

namespace cubinery::dev {

template <gdn::StateLayout kLayout, int kKeyDim, int kValueDim>
struct State {
  // Rows are value columns.
  Acc tiles[kKeyDim / 16];

  // `matrix` is a head's state as stored; this warp's columns start at `first`.
  template <DType kDType>
  __device__ void load(const Storage<kDType>* matrix, int first) {
    matrix += lane_offset(first);
    for_each([&](float& x, int at) { x = to_float<kDType>(matrix[at]); });
  }
  // Rounds.
  template <DType kDType>
  __device__ void store(Storage<kDType>* matrix, int first) {
    matrix += lane_offset(first);
    for_each([&](float& x, int at) { matrix[at] = from_float<kDType>(x); });
  }

 private:
  // Of an element, in the matrix.
  static __device__ constexpr int offset(int key, int value) {
    return kLayout == gdn::StateLayout::kKV ? key * kValueDim + value : value * kKeyDim + key;
  }
  static __device__ int lane_offset(int first) { return offset(tile_column(), first + tile_row()); }

  // Calls f(element, its offset from the lane's first) for this lane's elements.
  template <class Function>
  __device__ void for_each(Function f) {
#pragma unroll
    for (int k = 0; k < kKeyDim / 16; ++k) {
      for_each_element(
          [&](int r, int c, int j) { f(tiles[k].x[r][c][j], offset(16 * k + 8 * c + j, 8 * r)); });
    }
  }
};

}  // namespace cubinery::dev
