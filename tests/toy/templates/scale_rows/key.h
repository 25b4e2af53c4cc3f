// Compile-time parameters and arguments of scale_rows.  Compiled by the host and by NVRTC.
#pragma once

#include "cubinery/dtype.h"

namespace cubinery {

struct ScaleRowsKey {
  DType dtype = DType::kF32;  // the problem

  int threads = 128;  // tuned, per block
};

constexpr int threads(const ScaleRowsKey& key) { return key.threads; }

constexpr const char* why_invalid(const ScaleRowsKey& key) {
  if (!is_float(key.dtype)) return "dtype must be f32, bf16 or f16";
  if (key.threads < 32 || key.threads > 1024 || key.threads % 32 != 0)
    return "threads must be a multiple of 32 from 32 to 1024";
  return nullptr;
}

struct ScaleRowsParams {
  void* x;
  long long elements;
  float factor;
};

}  // namespace cubinery
