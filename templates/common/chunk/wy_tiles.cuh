// The 16x16 tiles of the matrices among the WY factors (common/chunk/wy.h).  Those of 16-bit
// elements are four 8x8 matrices of 128 bytes each, by rows, upper left, upper right, lower left,
// lower right: so wgmma reads them (hopper/wgmma.cuh), and ldmatrix too.  Those of fp32 are as a
// warp holds them.
#pragma once

#include "common/tile/tile.cuh"

namespace cubinery::dev {

// Requires: tiles is 16-byte aligned.
template <DType kDType>
__device__ void store_wy_tile(void* tiles, int tile, const Tile<kDType>& stored) {
  if constexpr (kDType == DType::kF32) {
    store_tile<kDType>(tiles, tile, stored);
  } else {
    unsigned* const to = static_cast<unsigned*>(tiles) + tile * 128 + threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < 4; ++m) to[32 * m] = stored.x[m / 2][m % 2];
  }
}

template <DType kDType>
__device__ Tile<kDType> load_wy_tile(unsigned shared, int tile) {
  if constexpr (kDType == DType::kF32) {
    return load_tile<kDType>(shared, tile);
  } else {
    Tile<kDType> loaded;
    unsigned(&x)[2][2] = loaded.x;
    load_matrices(x[0][0], x[0][1], x[1][0], x[1][1], shared + tile * 512 + threadIdx.x % 32 * 16);
    return loaded;
  }
}

}  // namespace cubinery::dev
