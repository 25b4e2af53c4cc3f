// The inverse of a unit lower triangular matrix, by one warp.
#pragma once

#include "common/chunk/wy.h"
#include "common/shared.cuh"
#include "common/tile/tile.cuh"

namespace cubinery::dev {

// (I + L)^-1 for L = strictlower(A diag(scale)), kBlocks 16x16 blocks to a side.  A is in shared
// memory as the fp32 tiles of its lower blocks, row by row; the inverse stays in registers, and so
// does the transpose of every block that a product wants.
//
// The 8x8 blocks on the diagonal are inverted by forward substitution in fp32; what is below them
// comes by doubling,
//
//   [A 0; B C]^-1 = [A^-1 0; -C^-1 B A^-1 C^-1],
//
// on the tensor cores, in tf32 (kPairs: in pairs of tf32).  Shorter ways, such as series of powers
// of L, lose all digits when keys resemble each other.
template <int kBlocks, bool kPairs>
class UnitLowerInverse {
 public:
  // `scratch`: kInverseScratchBytes of the warp's own, 16-byte aligned.
  __device__ UnitLowerInverse(const float* matrix, const float* scale, float* scratch)
      : matrix_(matrix), scale_(scale), scratch_(scratch) {}

  // For all lanes.  Requires: matrix and scale are there for the whole warp.
  __device__ void compute() {
#pragma unroll
    for (int pair = 0; pair < (kBlocks + 1) / 2; ++pair) {
      // Orders what other lanes still read of the last blocks before they are overwritten.
      __syncwarp();
      invert_eights(pair);
      // Orders the blocks before their reading.
      __syncwarp();
#pragma unroll
      for (int b = 2 * pair; b < 2 * pair + 2 && b < kBlocks; ++b) join_eights(b);
    }
    double_size<1>();
  }

  // Block (row, column), column <= row.
  __device__ const Acc& block(int row, int column) const {
    return inverse_[lower_tile(row, column)];
  }

 private:
  static constexpr int kRow = 12;  // of scratch: columns of an 8x8 block lie in different banks

  // The inverses of the 8x8 blocks on the diagonal of two 16x16 blocks, a lane for each column:
  // T_ij = [i = j] - sum_m<i A_im scale_m T_mj.  Leaves the columns in scratch.
  __device__ void invert_eights(int pair) const {
    const int lane = threadIdx.x % 32;
    const int b = 2 * pair + lane / 16;
    if (b >= kBlocks) return;
    const int half = lane / 8 % 2;
    const unsigned a = shared_address(matrix_ + lower_tile(b, b) * 256 +
                                      tile_element<DType::kF32>(8 * half, 8 * half));
    float scale[2][2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      load_shared(scale[i], shared_address(scale_ + 16 * b + 8 * half + 4 * i));
    }
    float t[8];
    float scaled[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float sum = 0.0f;
#pragma unroll
      for (int m = 0; m < i; m += 2) {
        float x[2];
        load_shared(x, a + tile_element<DType::kF32>(i, m) * 4);
        sum = fmaf(x[0], scaled[m], sum);
        if (m + 1 < i) sum = fmaf(x[1], scaled[m + 1], sum);
      }
      t[i] = (i == lane % 8 ? 1.0f : 0.0f) - sum;
      scaled[i] = scale[i / 4][i / 2 % 2][i % 2] * t[i];
    }
    auto* to = reinterpret_cast<float4*>(scratch_ + lane * kRow);
    to[0] = make_float4(t[0], t[1], t[2], t[3]);
    to[1] = make_float4(t[4], t[5], t[6], t[7]);
  }

  // The inverse D of the diagonal of a 16x16 block on the diagonal becomes D - D L D, which is the
  // whole block's: below the diagonal, L has one 8x8 block.
  __device__ void join_eights(int b) {
    Acc& inverse = inverse_[lower_tile(b, b)];
    Acc& transposed = transposed_[lower_tile(b, b)];
    inverse = transposed = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* columns = scratch_ + (b % 2 * 2 + half) * 8 * kRow;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        inverse.x[half][half][j] = columns[(tile_column() + j) * kRow + tile_row()];
        transposed.x[half][half][j] = columns[tile_row() * kRow + tile_column() + j];
      }
    }
    const Tile<DType::kF32> d = round_to<DType::kF32>(inverse);
    // Quadrants: (L D)^T is at (0, 1), D L D at (1, 0), its transpose at (0, 1).
    Acc product{};
    multiply_eights(product, round_to<DType::kF32>(transposed), scaled(b, b), 0, 1);
    const Tile<DType::kF32> x = round_to<DType::kF32>(product);
    Acc low{};
    multiply_eights(low, d, x, 1, 0);
    Acc high{};
    multiply_eights(high, x, d, 1, 1);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      inverse.x[1][0][j] = -low.x[1][0][j];
      transposed.x[0][1][j] = -high.x[0][1][j];
    }
  }

  // Joins square parts of kSize blocks two by two, then those of twice the size.
  template <int kSize>
  __device__ void double_size() {
    if constexpr (kSize < kBlocks) {
      constexpr int kJobs = kBlocks / (2 * kSize) * kSize * kSize;
#pragma unroll
      for (int job = 0; job < kJobs; ++job) {
        const int pair = job / (kSize * kSize) * 2 * kSize;
        join<kSize>(pair + kSize + job / kSize % kSize, pair + job % kSize);
      }
      double_size<2 * kSize>();
    }
  }

  // Block (row, column): -sum_r T_row,r X_r with X_r = sum_m L_r,m T_m,column.  X is computed as
  // its transpose, which is how the second product takes it.
  template <int kSize>
  __device__ void join(int row, int column) {
    const int top = column / kSize * kSize;  // first block row of the upper part
    const int low = top + kSize;             // of the lower part
    Acc sum{};
    Acc transposed{};
#pragma unroll
    for (int r = 0; r < kSize; ++r) {
      if (low + r > row) break;
      Acc product{};
#pragma unroll
      for (int m = 0; m < kSize; ++m) {
        if (top + m < column) continue;
        multiply(product, round_to<DType::kF32>(transposed_[lower_tile(top + m, column)]),
                 scaled(low + r, top + m));
      }
      const Tile<DType::kF32> x = round_to<DType::kF32>(product);
      const Tile<DType::kF32> t = round_to<DType::kF32>(inverse_[lower_tile(row, low + r)]);
      multiply(sum, t, x);
      multiply(transposed, x, t);
    }
    for_each_element([&](int r, int c, int j) {
      inverse_[lower_tile(row, column)].x[r][c][j] = -sum.x[r][c][j];
      transposed_[lower_tile(row, column)].x[r][c][j] = -transposed.x[r][c][j];
    });
  }

  // c += a b^T.
  static __device__ void multiply(Acc& c, const Tile<DType::kF32>& a, const Tile<DType::kF32>& b) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      if constexpr (kPairs) {
        mma_3xtf32(c, a, b, part);
      } else {
        mma_tf32(c, a, b, part, 0);
        mma_tf32(c, a, b, part, 1);
      }
    }
  }

  // Columns 8 half to 8 half + 7 of the same over columns 8 part to 8 part + 7 of a and b.  The
  // other columns of c may get anything.
  static __device__ void multiply_eights(Acc& c, const Tile<DType::kF32>& a,
                                         const Tile<DType::kF32>& b, int part, int half) {
    if constexpr (kPairs) {
      mma_3xtf32(c, a, b, part);
    } else {
      mma_tf32(c, a, b, part, half);
    }
  }

  // Block (row, column) of A diag(scale).
  __device__ Tile<DType::kF32> scaled(int row, int column) const {
    auto tile = load_tile<DType::kF32>(shared_address(matrix_), lower_tile(row, column));
    for_each_element([&](int r, int c, int j) {
      tile.x[r][c][j] *= scale_[16 * column + tile_column() + 8 * c + j];
    });
    return tile;
  }

  const float* matrix_;
  const float* scale_;
  float* scratch_;
  Acc inverse_[lower_tiles(16 * kBlocks)];
  Acc transposed_[lower_tiles(16 * kBlocks)];
};

}  // namespace cubinery::dev
