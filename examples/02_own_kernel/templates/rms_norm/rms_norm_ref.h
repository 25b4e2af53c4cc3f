// Reference of rms_norm: plain loops in double precision.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

// x: [rows, cols], weight: [cols]; returns y: [rows, cols].
inline std::vector<double> rms_norm_ref(const std::vector<float>& x,
                                        const std::vector<float>& weight) {
  const std::size_t cols = weight.size();
  std::vector<double> y(x.size());
  for (std::size_t row = 0; row < x.size() / cols; ++row) {
    double squares = 0;
    for (std::size_t c = 0; c < cols; ++c) squares += double{x[row * cols + c]} * x[row * cols + c];
    const double rms = std::sqrt(squares / static_cast<double>(cols) + 1e-6);
    for (std::size_t c = 0; c < cols; ++c) y[row * cols + c] = x[row * cols + c] / rms * weight[c];
  }
  return y;
}
