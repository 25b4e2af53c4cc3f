// Compile-time parameters and arguments of rms_norm.  Compiled by the host and by NVRTC.
#pragma once

#include "cubinery/dtype.h"

struct RmsNormKey {
  cubinery::DType dtype = cubinery::DType::kBF16;  // of x, weight and y
  int cols = 2048;  // a row is unrolled, so its length is compiled in
  int warps = 4;    // tuned: warps per block, one row each
};

constexpr const char* why_invalid(const RmsNormKey& key) {
  if (!cubinery::is_float(key.dtype)) return "dtype must be f32, bf16 or f16";
  if (key.cols < 32 || key.cols % 32 != 0) return "cols must be a positive multiple of 32";
  if (key.warps < 1 || key.warps > 32) return "warps must be from 1 to 32";
  return nullptr;
}

constexpr int threads(const RmsNormKey& key) { return key.warps * 32; }

struct RmsNormParams {
  const void* x;       // [rows, cols]
  const void* weight;  // [cols]
  void* y;             // [rows, cols]
  int rows;
};
