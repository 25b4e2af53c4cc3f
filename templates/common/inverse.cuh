// The inverse of a unit lower triangular matrix, by one warp.
#pragma once

#include "common/chunk_record.h"
#include "common/shared.cuh"
#include "common/tile.cuh"

namespace cubinery::dev {

// (I + L)^-1 for L = strictlower(diag(scale) A), kBlocks 16x16 blocks to a side.  Matrices are in
// shared memory as the fp32 tiles of their lower blocks, row by row.
//
// The diagonal blocks are inverted by forward substitution in fp32; those below come by doubling,
//
//   [A 0; B C]^-1 = [A^-1 0; -C^-1 B A^-1 C^-1],
//
// on the tensor cores, in tf32 (kPairs: in pairs of tf32).  Shorter ways, such as series of powers
// of L, lose all digits when keys resemble each other.
template <int kBlocks, bool kPairs>
class UnitLowerInverse {
 public:
  __device__ UnitLowerInverse(float* inverse, const float* matrix, const float* scale)
      : inverse_(inverse), matrix_(matrix), scale_(scale) {}

  // For all lanes.  Requires: matrix and scale are there for the whole warp.
  __device__ void compute() const {
    // Orders what other lanes still read of the last inverse before it is overwritten.
    __syncwarp();
#pragma unroll
    for (int pair = 0; pair < (kBlocks + 1) / 2; ++pair) invert_diagonal(pair);
    // Orders the diagonal blocks before the products that read them.
    __syncwarp();
    double_size<1>();
  }

 private:
  // The inverses of two diagonal blocks, one by each half of the warp, a lane for each column:
  // T_ij = [i = j] - scale_i sum_m<i A_im T_mj.
  __device__ void invert_diagonal(int pair) const {
    const int b = 2 * pair + threadIdx.x % 32 / 16;
    if (b >= kBlocks) return;
    const float* a = matrix_ + lower_tile(b, b) * 256;
    float* inverse = inverse_ + lower_tile(b, b) * 256;
    const int column = threadIdx.x % 16;
    float t[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float sum = 0.0f;
#pragma unroll
      for (int m = 0; m < i; ++m) sum = fmaf(a[tile_element(i, m)], t[m], sum);
      t[i] = fmaf(-scale_[16 * b + i], sum, i == column ? 1.0f : 0.0f);
      inverse[tile_element(i, column)] = t[i];
    }
  }

  // Joins square parts of kSize blocks two by two, then those of twice the size.
  template <int kSize>
  __device__ void double_size() const {
    if constexpr (kSize < kBlocks) {
      constexpr int kJobs = kBlocks / (2 * kSize) * kSize * kSize;
#pragma unroll
      for (int job = 0; job < kJobs; ++job) {
        const int pair = job / (kSize * kSize) * 2 * kSize;
        join<kSize>(pair + kSize + job / kSize % kSize, pair + job % kSize);
      }
      // Orders this size's blocks before the next size's products, and before the caller's reading.
      __syncwarp();
      double_size<2 * kSize>();
    }
  }

  // Block (row, column): -sum_r T_row,r X_r with X_r = sum_m L_r,m T_m,column.  X is computed as
  // its transpose, which is how the second product takes it.
  template <int kSize>
  __device__ void join(int row, int column) const {
    const int top = column / kSize * kSize;  // first block row of the upper part
    const int low = top + kSize;             // of the lower part
    Acc sum{};
#pragma unroll
    for (int r = 0; r < kSize; ++r) {
      if (low + r > row) break;
      Acc x{};
#pragma unroll
      for (int m = 0; m < kSize; ++m) {
        if (top + m < column) continue;
        multiply(x, transposed_inverse(top + m, column), scaled(low + r, top + m));
      }
      multiply(sum, inverse(row, low + r), round_to<DType::kF32>(x));
    }
    for_each_element([&](int r, int c, int j) { sum.x[r][c][j] *= -1.0f; });
    store_tile<DType::kF32>(inverse_, lower_tile(row, column), round_to<DType::kF32>(sum));
  }

  static __device__ void multiply(Acc& c, const Tile<DType::kF32>& a, const Tile<DType::kF32>& b) {
    if constexpr (kPairs) {
      mma(c, a, b);
    } else {
      mma_rounded_to_tf32(c, a, b);
    }
  }

  // Block (row, column) of diag(scale) A.
  __device__ Tile<DType::kF32> scaled(int row, int column) const {
    auto tile = load_tile<DType::kF32>(shared_address(matrix_), lower_tile(row, column));
    for_each_element(
        [&](int r, int c, int j) { tile.x[r][c][j] *= scale_[16 * row + tile_row() + 8 * r]; });
    return tile;
  }

  __device__ Tile<DType::kF32> inverse(int row, int column) const {
    return load_tile<DType::kF32>(shared_address(inverse_), lower_tile(row, column));
  }

  __device__ Tile<DType::kF32> transposed_inverse(int row, int column) const {
    const float* from = inverse_ + lower_tile(row, column) * 256;
    Tile<DType::kF32> tile;
    for_each_element([&](int r, int c, int j) {
      tile.x[r][c][j] = from[tile_element(tile_column() + 8 * c + j, tile_row() + 8 * r)];
    });
    return tile;
  }

  float* inverse_;
  const float* matrix_;
  const float* scale_;
};

}  // namespace cubinery::dev
