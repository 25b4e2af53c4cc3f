#pragma once

#include <row_ops/detail.cuh>

namespace row_ops {

// y = by * x + kBias, a block for each row.
template <int kThreads, typename T>
__global__ void __launch_bounds__(kThreads) scale(T* y, const T* x, T by, int cols) {
  for (int i = threadIdx.x; i < cols; i += kThreads) {
    const long place = static_cast<long>(blockIdx.x) * cols + i;
    y[place] = by * x[place] + T(kBias);
  }
}

}  // namespace row_ops
