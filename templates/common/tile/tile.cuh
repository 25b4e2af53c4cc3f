// 16x16 tiles in the registers of a warp, and their products on the tensor cores (mma.sync).
//
// Lane l holds, of rows l / 4 and l / 4 + 8, the columns 2 (l % 4), 2 (l % 4) + 1 and the same plus
// 8.  That is how mma.sync leaves an accumulator, how it takes its left operand, and how it takes
// the transpose of its right one: with c += a b^T as the only product, results feed the next
// product from registers, and no element ever changes lanes.
#pragma once

#include "common/shared.cuh"
#include "common/types.cuh"

namespace cubinery::dev {

// fp32: accumulators, and what is computed on them.  x[row half][column half][column].
struct Acc {
  float x[2][2][2];
};

// This lane's first row and first column in a tile.
__device__ inline int tile_row() { return threadIdx.x % 32 / 4; }
__device__ inline int tile_column() { return threadIdx.x % 4 * 2; }

// An operand of 16-bit elements: a word holds two columns.
template <DType kDType>
struct Tile {
  unsigned x[2][2];
};
// An operand of fp32 elements.
template <>
struct Tile<DType::kF32> {
  float x[2][2][2];
};

// Calls f(row half, column half, column) for each of this lane's elements of a tile of fp32.
template <class Function>
__device__ void for_each_element(Function f) {
#pragma unroll
  for (int e = 0; e < 8; ++e) f(e / 4, e / 2 % 2, e % 2);
}

// Rounds to the operand's type.
template <DType kDType>
__device__ Tile<kDType> round_to(const Acc& acc) {
  Tile<kDType> tile;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if constexpr (kDType == DType::kF32) {
        tile.x[r][c][0] = acc.x[r][c][0];
        tile.x[r][c][1] = acc.x[r][c][1];
      } else {
        tile.x[r][c] = pack<kDType>(acc.x[r][c][0], acc.x[r][c][1]);
      }
    }
  }
  return tile;
}

template <DType kDType>
__device__ Acc to_float(const Tile<kDType>& tile) {
  Acc acc;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if constexpr (kDType == DType::kF32) {
        acc.x[r][c][0] = tile.x[r][c][0];
        acc.x[r][c][1] = tile.x[r][c][1];
      } else {
        acc.x[r][c][0] = to_float<kDType>(static_cast<unsigned short>(tile.x[r][c]));
        acc.x[r][c][1] = to_float<kDType>(static_cast<unsigned short>(tile.x[r][c] >> 16));
      }
    }
  }
  return acc;
}

// The upper rows of one tile, or the lower ones, above those of another.
template <int kHalf, DType kDType>
__device__ Tile<kDType> stacked(const Tile<kDType>& above, const Tile<kDType>& below) {
  Tile<kDType> tile;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    if constexpr (kDType == DType::kF32) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        tile.x[0][c][j] = above.x[kHalf][c][j];
        tile.x[1][c][j] = below.x[kHalf][c][j];
      }
    } else {
      tile.x[0][c] = above.x[kHalf][c];
      tile.x[1][c] = below.x[kHalf][c];
    }
  }
  return tile;
}

// Only of 16-bit elements.
template <DType kDType>
__device__ Tile<kDType> transpose(const Tile<kDType>& tile) {
  Tile<kDType> transposed;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
        : "=r"(transposed.x[e / 2][e % 2])
        : "r"(tile.x[e % 2][e / 2]));
  }
  return transposed;
}

// The tile of 16-bit elements whose element (0, 0) is (row, column) of a matrix in shared memory.
// kLeft: it becomes a left operand, which wants its registers in another order.
template <DType kDType, bool kLeft, class Matrix>
__device__ Tile<kDType> load_matrices_of(const Matrix& matrix, int row, int column) {
  // Lanes 8 m to 8 m + 7 name the rows of the m-th 8x8 part.  Parts arrive in neighbouring
  // registers: those of a row of the tile first, for a left operand those of a column.
  Tile<kDType> tile;
  const unsigned lane = threadIdx.x % 32;
  const unsigned first = lane / 8 % 2 * 8;
  const unsigned second = lane / 16 * 8;
  const unsigned at =
      matrix.element(row + lane % 8 + (kLeft ? first : second), column + (kLeft ? second : first));
  unsigned(&x)[2][2] = tile.x;
  load_matrices(x[0][0], x[kLeft][!kLeft], x[!kLeft][kLeft], x[1][1], at);
  return tile;
}
// Its transpose.
template <DType kDType, class Matrix>
__device__ Tile<kDType> load_transposed_matrices_of(const Matrix& matrix, int row, int column) {
  Tile<kDType> tile;
  const unsigned lane = threadIdx.x % 32;
  load_transposed_matrices(tile.x[0][0], tile.x[0][1], tile.x[1][0], tile.x[1][1],
                           matrix.element(row + lane % 16, column + lane / 16 * 8));
  return tile;
}

// The same from the address that this lane gives there, `at`: of a tile of 16-bit elements its part
// of a row, one of 16 bytes; of fp32 its first element, and rows are kRowBytes apart.
template <DType kDType, int kRowBytes>
__device__ Tile<kDType> load_tile_at(unsigned at) {
  Tile<kDType> tile;
  if constexpr (kDType == DType::kF32) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < 2; ++c) load_shared(tile.x[r][c], at + 8 * r * kRowBytes + 32 * c);
    }
  } else {
    load_matrices(tile.x[0][0], tile.x[0][1], tile.x[1][0], tile.x[1][1], at);
  }
  return tile;
}
// Writes one to where that reads it.
template <DType kDType, int kRowBytes>
__device__ void store_tile_at(unsigned at, const Tile<kDType>& tile) {
  if constexpr (kDType == DType::kF32) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < 2; ++c) store_shared(at + 8 * r * kRowBytes + 32 * c, tile.x[r][c]);
    }
  } else {
    store_matrices(at, tile.x[0][0], tile.x[0][1], tile.x[1][0], tile.x[1][1]);
  }
}
// Which row and which byte of it this lane's address is of.
template <DType kDType>
__device__ unsigned row_of_lane() {
  if constexpr (kDType == DType::kF32) return tile_row();
  return threadIdx.x % 8 + threadIdx.x % 32 / 16 * 8;
}
template <DType kDType>
__device__ unsigned byte_of_lane() {
  if constexpr (kDType == DType::kF32) return tile_column() * 4;
  return threadIdx.x / 8 % 2 * 16;
}

// A matrix in shared memory, rows kStride elements apart, and where this lane reads in it.
// Requires: rows start at multiples of 16 bytes.
template <DType kDType, int kStride>
struct SharedMatrix {
  unsigned address;  // of element (0, 0), as shared-space instructions take it

  // The tile whose element (0, 0) is (row, column) of the matrix.
  template <bool kLeft = false>
  __device__ Tile<kDType> load(int row, int column) const {
    if constexpr (kDType == DType::kF32) {
      Tile<kDType> tile;
      const unsigned at = element(row + tile_row(), column + tile_column());
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          load_shared(tile.x[r][c], at + (8 * r * kStride + 8 * c) * 4);
        }
      }
      return tile;
    } else {
      return load_matrices_of<kDType, kLeft>(*this, row, column);
    }
  }

  // The transpose of load(row, column).
  __device__ Tile<kDType> load_transposed(int row, int column) const {
    if constexpr (kDType == DType::kF32) {
      Tile<kDType> tile;
      const unsigned at = element(row + tile_column(), column + tile_row());
      for_each_element([&](int r, int c, int j) {
        load_shared(tile.x[r][c][j], at + ((8 * c + j) * kStride + 8 * r) * 4);
      });
      return tile;
    } else {
      return load_transposed_matrices_of<kDType>(*this, row, column);
    }
  }

  __device__ unsigned element(unsigned row, unsigned column) const {
    return address + (row * kStride + column) * size_of(kDType);
  }
};

// One m16n8k16 product: columns 8 half to 8 half + 7 of c.
template <DType kDType>
__device__ void mma_half(Acc& c, const Tile<kDType>& a, const Tile<kDType>& b, int half) {
  float(&low)[2] = c.x[0][half];
  float(&high)[2] = c.x[1][half];
  if constexpr (kDType == DType::kBF16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(low[0]), "+f"(low[1]), "+f"(high[0]), "+f"(high[1])
        : "r"(a.x[0][0]), "r"(a.x[1][0]), "r"(a.x[0][1]), "r"(a.x[1][1]), "r"(b.x[half][0]),
          "r"(b.x[half][1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(low[0]), "+f"(low[1]), "+f"(high[0]), "+f"(high[1])
        : "r"(a.x[0][0]), "r"(a.x[1][0]), "r"(a.x[0][1]), "r"(a.x[1][1]), "r"(b.x[half][0]),
          "r"(b.x[half][1]));
  }
}

// Rounds to the 11 bits of tf32; mma.sync ignores the others.  NOTE: turns some NaN into 0, for an
// eighth of the instructions of cvt.rna.
__device__ inline unsigned round_to_tf32(float x) { return __float_as_uint(x) + 0x1000u; }

// Columns 8 half to 8 half + 7 of c += a b^T over the operands' columns 8 part to 8 part + 7,
// rounded to tf32: an 11-bit significand and fp32's range.  mma.sync wants columns t and t + 4 in
// lane t; this lane has 2t and 2t + 1.  The order of a sum's terms is free as long as both operands
// keep to the same.
__device__ inline void mma_tf32(Acc& c, const Tile<DType::kF32>& a, const Tile<DType::kF32>& b,
                                int part, int half) {
  float(&low)[2] = c.x[0][half];
  float(&high)[2] = c.x[1][half];
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(low[0]), "+f"(low[1]), "+f"(high[0]), "+f"(high[1])
      : "r"(round_to_tf32(a.x[0][part][0])), "r"(round_to_tf32(a.x[1][part][0])),
        "r"(round_to_tf32(a.x[0][part][1])), "r"(round_to_tf32(a.x[1][part][1])),
        "r"(round_to_tf32(b.x[half][part][0])), "r"(round_to_tf32(b.x[half][part][1])));
}

// c += a b^T over the operands' columns 8 part to 8 part + 7, nearly to fp32's precision: every x
// becomes h + l, two tf32 that have 22 of its bits.  The smaller products first; l l is below
// fp32's last bit.  NaN stays one: it is in l, whatever becomes of h.
//
// One statement, because the compiler's time goes by their number and kernels for f32 have hundreds
// of these products: 1.0 s instead of 1.5 s.
__device__ inline void mma_3xtf32(Acc& c, const Tile<DType::kF32>& a, const Tile<DType::kF32>& b,
                                  int part) {
  // clang-format off
#define SPLIT(h, l, x) \
  "mov.b32 " h ", " x "; add.u32 " h ", " h ", 0x1000; and.b32 " h ", " h ", 0xffffe000;\n\t" \
  "sub.f32 " l ", " x ", " h ";\n\t"
#define MMA(c, a, b) \
  "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 " c ", " a ", " b ", " c ";\n\t"
  asm("{\n\t"
      ".reg .b32 h<8>, l<8>;\n\t"
      SPLIT("h0", "l0", "%8")  SPLIT("h1", "l1", "%9")  // a
      SPLIT("h2", "l2", "%10") SPLIT("h3", "l3", "%11")
      SPLIT("h4", "l4", "%12") SPLIT("h5", "l5", "%13")  // b
      SPLIT("h6", "l6", "%14") SPLIT("h7", "l7", "%15")
      MMA("{%0, %1, %4, %5}", "{l0, l2, l1, l3}", "{h4, h5}")
      MMA("{%0, %1, %4, %5}", "{h0, h2, h1, h3}", "{l4, l5}")
      MMA("{%0, %1, %4, %5}", "{h0, h2, h1, h3}", "{h4, h5}")
      MMA("{%2, %3, %6, %7}", "{l0, l2, l1, l3}", "{h6, h7}")
      MMA("{%2, %3, %6, %7}", "{h0, h2, h1, h3}", "{l6, l7}")
      MMA("{%2, %3, %6, %7}", "{h0, h2, h1, h3}", "{h6, h7}")
      "}"
      : "+f"(c.x[0][0][0]), "+f"(c.x[0][0][1]), "+f"(c.x[0][1][0]), "+f"(c.x[0][1][1]),
        "+f"(c.x[1][0][0]), "+f"(c.x[1][0][1]), "+f"(c.x[1][1][0]), "+f"(c.x[1][1][1])
      : "f"(a.x[0][part][0]), "f"(a.x[0][part][1]), "f"(a.x[1][part][0]), "f"(a.x[1][part][1]),
        "f"(b.x[0][part][0]), "f"(b.x[0][part][1]), "f"(b.x[1][part][0]), "f"(b.x[1][part][1]));
#undef MMA
#undef SPLIT
  // clang-format on
}

// c += a b^T.  NOTE: tensor cores cut sums off, towards zero, instead of rounding them: long ones
// had better be added outside.
template <DType kDType>
__device__ void mma(Acc& c, const Tile<kDType>& a, const Tile<kDType>& b) {
  if constexpr (kDType == DType::kF32) {
#pragma unroll
    for (int part = 0; part < 2; ++part) mma_3xtf32(c, a, b, part);
  } else {
    mma_half<kDType>(c, a, b, 0);
    mma_half<kDType>(c, a, b, 1);
  }
}

// Calls f(i, element (i, i)) for a tile's diagonal, two by each of the lanes that hold it.
template <class Function>
__device__ void for_diagonal(const Acc& tile, Function f) {
  // The lane that holds elements (j, j) and (j + 8, j + 8).
  if (tile_row() / 2 != threadIdx.x % 4) return;
  const int odd = tile_row() % 2;
#pragma unroll
  for (int r = 0; r < 2; ++r) f(tile_row() + 8 * r, odd ? tile.x[r][r][1] : tile.x[r][r][0]);
}

// Tiles that are stored as a warp holds them: each lane's 16 bytes behind those of the lane before.
// Of fp32, whose lanes have twice as many, the upper rows of all lanes come first.
template <DType kDType>
__device__ Tile<kDType> load_tile(unsigned shared, int tile) {
  const unsigned at = shared + tile * 256 * size_of(kDType) + threadIdx.x % 32 * 16;
  Tile<kDType> loaded;
  if constexpr (kDType == DType::kF32) {
#pragma unroll
    for (int r = 0; r < 2; ++r) load_shared(loaded.x[r], at + 512 * r);
  } else {
    load_shared(loaded.x, at);
  }
  return loaded;
}

// The same in generic memory.  Requires: tiles is 16-byte aligned.
template <DType kDType>
__device__ Tile<kDType> load_tile(const void* tiles, int tile) {
  const auto* from =
      static_cast<const uint4*>(tiles) + tile * 16 * size_of(kDType) + threadIdx.x % 32;
  const uint4 x = from[0];
  if constexpr (kDType == DType::kF32) {
    const uint4 y = from[32];
    return {{{{__uint_as_float(x.x), __uint_as_float(x.y)},
              {__uint_as_float(x.z), __uint_as_float(x.w)}},
             {{__uint_as_float(y.x), __uint_as_float(y.y)},
              {__uint_as_float(y.z), __uint_as_float(y.w)}}}};
  } else {
    return {{{x.x, x.y}, {x.z, x.w}}};
  }
}
template <DType kDType>
__device__ void store_tile(void* tiles, int tile, const Tile<kDType>& stored) {
  auto* to = static_cast<uint4*>(tiles) + tile * 16 * size_of(kDType) + threadIdx.x % 32;
  if constexpr (kDType == DType::kF32) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      to[32 * r] =
          make_uint4(__float_as_uint(stored.x[r][0][0]), __float_as_uint(stored.x[r][0][1]),
                     __float_as_uint(stored.x[r][1][0]), __float_as_uint(stored.x[r][1][1]));
    }
  } else {
    *to = make_uint4(stored.x[0][0], stored.x[0][1], stored.x[1][0], stored.x[1][1]);
  }
}

// Where element (row, column) of a stored tile lies, in elements from the tile's first.
template <DType kDType>
__device__ int tile_element(int row, int column) {
  const int lane = row % 8 * 4 + column % 8 / 2;
  const int of_lane = column / 8 * 2 + column % 2;
  if constexpr (kDType == DType::kF32) return row / 8 * 128 + lane * 4 + of_lane;
  return lane * 8 + row / 8 * 4 + of_lane;
}

}  // namespace cubinery::dev
