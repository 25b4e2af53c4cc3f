// A warp's part of the transposed state S^T, in fp32 accumulators: 16 value columns by key_dim.
#pragma once

#include "common/tile.cuh"
#include "cubinery/gdn_types.h"

namespace cubinery::dev {

template <gdn::StateLayout kLayout, int kKeyDim, int kValueDim>
struct State {
  // Rows are value columns.
  Acc tiles[kKeyDim / 16];

  // `matrix` is a head's state as stored; this warp's columns start at `first`.
  template <DType kDType>
  __device__ void load(const Storage<kDType>* matrix, int first) {
    for_each(first, [&](float& x, int at) { x = to_float<kDType>(matrix[at]); });
  }
  // Rounds.
  template <DType kDType>
  __device__ void store(Storage<kDType>* matrix, int first) {
    for_each(first, [&](float& x, int at) { matrix[at] = from_float<kDType>(x); });
  }

 private:
  // Calls f(element, its offset in the matrix) for this lane's elements.
  template <class Function>
  __device__ void for_each(int first, Function f) {
#pragma unroll
    for (int k = 0; k < kKeyDim / 16; ++k) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int r = e / 4, c = e / 2 % 2, j = e % 2;
        const int key = 16 * k + tile_column() + 8 * c + j;
        const int value = first + tile_row() + 8 * r;
        const bool is_kv = kLayout == gdn::StateLayout::kKV;
        f(tiles[k].x[r][c][j], is_kv ? key * kValueDim + value : value * kKeyDim + key);
      }
    }
  }
};

}  // namespace cubinery::dev
