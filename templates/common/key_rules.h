// Rules that several keys share.  Compiled by the host and by NVRTC.
#pragma once

#include "cubinery/dtype.h"

namespace cubinery {

constexpr bool is_power_of_two(int x) { return x > 0 && (x & (x - 1)) == 0; }

constexpr bool is_head_dim(int x) { return x >= 16 && x <= 256 && x % 16 == 0; }

// Elements between rows of a matrix in shared memory: 16 bytes more than the row, which is an odd
// number of 16-byte units.  Eight rows of a column then lie in different banks.  Requires: dim is a
// multiple of 16.
constexpr int padded_row(int dim, DType dtype) { return dim + 16 / size_of(dtype); }

}  // namespace cubinery
