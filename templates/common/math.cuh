// Scalar functions of the gates.
#pragma once

namespace cubinery::dev {

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// log(1 + e^x), x itself from 20 up, where they agree to fp32 (PyTorch's threshold).
__device__ inline float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// 2^x, to 2 units in the last place; 0 below -126.
__device__ inline float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float nan() { return __int_as_float(0x7fffffff); }

}  // namespace cubinery::dev
