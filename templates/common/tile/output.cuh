// Rows of 16 elements from the registers of a warp to global memory.
#pragma once

#include "common/tile/tile.cuh"

namespace cubinery::dev {

// Writes 16 columns of the rows of a matrix, kRows at a time, from tiles that hold the transpose.
template <DType kDType, int kRows>
class OutputWriter {
 public:
  // `rows` is element (0, 0).  `even`: every row starts at a multiple of 4 bytes.
  __device__ OutputWriter(Storage<kDType>* rows, bool even) : rows_(rows), even_(even) {}

  // The next kRows rows, `stride` elements apart, of which `left` are there.  Column j of tiles[i]
  // is row 16 i + j.
  __device__ void write_next(const Acc (&tiles)[kRows / 16], long long stride, int left) {
    if (left >= kRows && even_) {
      write<true>(tiles, stride, left);
    } else {
      write<false>(tiles, stride, left);
    }
    rows_ += kRows * stride;
  }

 private:
  // kFast: all rows are there, and even.
  template <bool kFast>
  __device__ void write(const Acc (&tiles)[kRows / 16], long long stride, int left) const {
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
      auto* to = rows_ + 16 * i * stride;
      if constexpr (kDType == DType::kF32) {
        write_floats<kFast>(to, tiles[i], stride, left - 16 * i);
      } else {
        write_pairs<kFast>(to, transpose(round_to<kDType>(tiles[i])), stride, left - 16 * i);
      }
    }
  }

  // Eight lanes write eight neighbours of a row.
  template <bool kFast>
  static __device__ void write_floats(Storage<kDType>* to, const Acc& tile, long long stride,
                                      int left) {
    for_each_element([&](int r, int c, int j) {
      const int row = tile_column() + 8 * c + j;
      if (kFast || row < left) to[row * stride + tile_row() + 8 * r] = tile.x[r][c][j];
    });
  }

  // Four lanes write eight neighbours of a row.
  template <bool kFast>
  __device__ void write_pairs(Storage<kDType>* to, const Tile<kDType>& tile, long long stride,
                              int left) const {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int r = e / 2, c = e % 2;
      const int row = tile_row() + 8 * r;
      auto* pair = to + row * stride + tile_column() + 8 * c;
      if (!kFast && row >= left) continue;
      if (kFast || even_) {
        *reinterpret_cast<unsigned*>(pair) = tile.x[r][c];
      } else {
        pair[0] = static_cast<unsigned short>(tile.x[r][c]);
        pair[1] = static_cast<unsigned short>(tile.x[r][c] >> 16);
      }
    }
  }

  Storage<kDType>* rows_;
  bool even_;
};

}  // namespace cubinery::dev
