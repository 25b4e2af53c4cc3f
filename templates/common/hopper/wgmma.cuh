// Products of a warpgroup (wgmma, only on sm_90a): four warps, the first one's number a multiple of
// four, multiply 64 rows, which they hold in registers as tiles, by a matrix in shared memory.
//
// Warp w has rows 16 w to 16 w + 15, and each of its lanes what it has of tiles with mma.sync
// (tile.cuh).  Products run by themselves, like copies: operands, sums and the matrix must not be
// touched from start_products() to the next finish_products().
#pragma once

#include "common/tile/tile.cuh"

namespace cubinery::dev {

// Orders this thread's accesses to registers before the products that follow.
__device__ inline void start_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Ends a group of products.
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most the kPending last groups run.  The others have read their matrices.
template <int kPending>
__device__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// The same; `sums` are those of a group that has ended.
template <int kPending, int kTiles>
__device__ void finish_products(Acc (&sums)[kTiles]) {
  wait_for_products<kPending>();
  // Keeps the compiler from using the sums before the wait.
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    for_each_element([&](int r, int c, int j) { asm volatile("" : "+f"(sums[i].x[r][c][j])); });
  }
}

// Of a right operand in shared memory: where it starts, `offset` bytes behind an address, and the
// bytes from one 8x8 matrix to the next, by the rules of the swizzle: 0 without, 1 for blocks of
// 128 bytes, 2 for those of 64.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-shared-memory-layout-matrix-descriptor
//
// NOTE: instructions take descriptors from registers that a warp has once, and the compiler
// computes them there only if it knows the address to be the same in all lanes (uniform.cuh).
// What differs between the products of an operand is then one addition, of 64 bits: with 32 there
// would be two moves more for each.  An address is below 2^18, so it never reaches the bits behind
// its own.  Requires: the block is in no cluster, where it would not be.
__device__ inline unsigned long long matrix_descriptor(unsigned address, int offset, int leading,
                                                       int stride, unsigned swizzle) {
  const unsigned start = address >> 4 | static_cast<unsigned>(leading >> 4) << 16;
  const unsigned rest = static_cast<unsigned>(stride >> 4) | swizzle << 30;
  const unsigned long long first = static_cast<unsigned long long>(rest) << 32 | start;
  return first + static_cast<unsigned>(offset >> 4);
}

// Tiles of the WY factors (common/chunk/wy_tiles.cuh), one behind the other: their rows are the
// product's columns.
__device__ inline unsigned long long record_tiles(unsigned address, int offset) {
  return matrix_descriptor(address, offset, 128, 256, 0);
}

// Rows of 16-bit elements as wgmma reads them: in blocks of kRowBytes columns, 128 or 64 bytes,
// one behind the other, each of kRows rows.  The 16-byte pieces of a row change places with its
// number, so that eight rows of a column lie in different banks.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-swizzling-modes
template <int kRows, int kRowBytes>
struct SwizzledRows {
  static_assert(kRowBytes == 128 || kRowBytes == 64);
  static constexpr bool kIsLinear = false;
  static constexpr int kPieces = kRowBytes / 16;
  static constexpr int kBlock = kRows * kRowBytes;  // bytes
  static constexpr int kColumns = kRowBytes / 2;    // of a block

  static __device__ constexpr unsigned at(unsigned row, unsigned piece) {
    const unsigned turn = row * kPieces / 8 % kPieces;
    return piece / kPieces * kBlock + row * kRowBytes + (piece % kPieces ^ turn) * 16;
  }

  // Descriptors of a right operand.  `address`: of the rows' first block, plus whole groups of
  // eight rows.
  //
  // Rows are the product's columns, and columns from 16 step on what is summed over.
  static __device__ unsigned long long by_rows(unsigned address, int step) {
    const int column = 16 * step;
    return descriptor(address, column / kColumns * kBlock + column % kColumns * 2, 16);
  }
  // Columns are the product's columns, and rows from 16 step on what is summed over.
  static __device__ unsigned long long by_columns(unsigned address, int step) {
    return descriptor(address, 16 * step * kRowBytes, kBlock);
  }

 private:
  static __device__ unsigned long long descriptor(unsigned address, int offset, int leading) {
    return matrix_descriptor(address, offset, leading, 8 * kRowBytes, kRowBytes == 128 ? 1 : 2);
  }
};

// The same rows as tiles of mma.sync (tile.cuh).
template <DType kDType, class Rows>
struct SwizzledMatrix {
  unsigned address;  // of element (0, 0)

  __device__ Tile<kDType> load(int row, int column) const {
    return load_matrices_of<kDType, false>(*this, row, column);
  }
  __device__ Tile<kDType> load_transposed(int row, int column) const {
    return load_transposed_matrices_of<kDType>(*this, row, column);
  }
  // The first of eight elements.
  __device__ unsigned element(unsigned row, unsigned column) const {
    return address + Rows::at(row, column / 8);
  }
};

// sums += a b, or, without kAdd, sums = a b, where b has 16 kTiles columns, by a descriptor; of a,
// 16 columns.  kByColumns: how the descriptor was made.
template <DType kDType, bool kByColumns, bool kAdd, int kTiles>
__device__ void multiply(Acc (&sums)[kTiles], const Tile<kDType>& a, unsigned long long b) {
  static_assert(kTiles == 1 || kTiles == 2 || kTiles == 4 || kTiles == 6 || kTiles == 8);
  // clang-format off
#define SUM(i) \
  "+f"(sums[i].x[0][0][0]), "+f"(sums[i].x[0][0][1]), "+f"(sums[i].x[1][0][0]), \
  "+f"(sums[i].x[1][0][1]), "+f"(sums[i].x[0][1][0]), "+f"(sums[i].x[0][1][1]), \
  "+f"(sums[i].x[1][1][0]), "+f"(sums[i].x[1][1][1])
#define TYPED(type, columns, numbers, a0, a1, a2, a3, b0, add, by_columns, ...) \
  asm volatile("{.reg .pred p; setp.ne.b32 p, " add ", 0; " \
               "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {" numbers \
               "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b0 ", p, 1, 1, " by_columns ";}" \
               : __VA_ARGS__ \
               : "r"(a.x[0][0]), "r"(a.x[1][0]), "r"(a.x[0][1]), "r"(a.x[1][1]), "l"(b), \
                 "n"(kAdd ? 1 : 0), "n"(kByColumns ? 1 : 0))
#define MULTIPLY(...) \
  if constexpr (kDType == DType::kBF16) TYPED("bf16", __VA_ARGS__); else TYPED("f16", __VA_ARGS__)
#define N0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define N1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define N2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define N3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define N4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define N5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define N6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define N7 "%56, %57, %58, %59, %60, %61, %62, %63"
  if constexpr (kTiles == 1) {
    MULTIPLY("16", N0,
             "%8", "%9", "%10", "%11", "%12", "%13", "%14",
             SUM(0));
  } else if constexpr (kTiles == 2) {
    MULTIPLY("32", N0 ", " N1,
             "%16", "%17", "%18", "%19", "%20", "%21", "%22",
             SUM(0), SUM(1));
  } else if constexpr (kTiles == 4) {
    MULTIPLY("64", N0 ", " N1 ", " N2 ", " N3,
             "%32", "%33", "%34", "%35", "%36", "%37", "%38",
             SUM(0), SUM(1), SUM(2), SUM(3));
  } else if constexpr (kTiles == 6) {
    MULTIPLY("96", N0 ", " N1 ", " N2 ", " N3 ", " N4 ", " N5,
             "%48", "%49", "%50", "%51", "%52", "%53", "%54",
             SUM(0), SUM(1), SUM(2), SUM(3), SUM(4), SUM(5));
  } else if constexpr (kTiles == 8) {
    MULTIPLY("128", N0 ", " N1 ", " N2 ", " N3 ", " N4 ", " N5 ", " N6 ", " N7,
             "%64", "%65", "%66", "%67", "%68", "%69", "%70",
             SUM(0), SUM(1), SUM(2), SUM(3), SUM(4), SUM(5), SUM(6), SUM(7));
  }
#undef TYPED
  // clang-format on
}

// sums += a b, or, without kAdd, sums = a b, where both are in shared memory, a by the descriptor
// of its 64 rows, b as above, by rows.
template <DType kDType, bool kAdd, int kTiles>
__device__ void multiply_shared(Acc (&sums)[kTiles], unsigned long long a, unsigned long long b) {
  static_assert(kTiles == 2 || kTiles == 4);
  // clang-format off
#define TYPED(type, columns, numbers, a0, b0, add, ...) \
  asm volatile("{.reg .pred p; setp.ne.b32 p, " add ", 0; " \
               "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {" numbers \
               "}, " a0 ", " b0 ", p, 1, 1, 0, 0;}" \
               : __VA_ARGS__ : "l"(a), "l"(b), "n"(kAdd ? 1 : 0))
  if constexpr (kTiles == 2) {
    MULTIPLY("32", N0 ", " N1, "%16", "%17", "%18", SUM(0), SUM(1));
  } else {
    MULTIPLY("64", N0 ", " N1 ", " N2 ", " N3, "%32", "%33", "%34", SUM(0), SUM(1), SUM(2), SUM(3));
  }
#undef TYPED
#undef MULTIPLY
#undef SUM
#undef N0
#undef N1
#undef N2
#undef N3
#undef N4
#undef N5
#undef N6
#undef N7
  // clang-format on
}

}  // namespace cubinery::dev
