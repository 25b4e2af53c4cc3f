// Compile-time parameters and arguments of scale_rows_wide.  Compiled by the host and by NVRTC.
#pragma once

#include "cubinery/dtype.h"

namespace cubinery {

struct ScaleRowsWideKey {
  DType dtype = DType::kF32;  // the problem

  int vec = 4;        // tuned: elements of a thread; a stand-in for what changes bits
  int threads = 128;  // tuned, per block
};

constexpr int threads(const ScaleRowsWideKey& key) { return key.threads; }

constexpr const char* why_invalid(const ScaleRowsWideKey& key) {
  if (!is_float(key.dtype)) return "dtype must be f32, bf16 or f16";
  if (key.threads < 32 || key.threads > 1024 || key.threads % 32 != 0)
    return "threads must be a multiple of 32 from 32 to 1024";
  if (key.vec != 2 && key.vec != 4) return "vec must be 2 or 4";
  return nullptr;
}

struct ScaleRowsWideParams {
  void* x;
  long long elements;
  float factor;
};

}  // namespace cubinery
