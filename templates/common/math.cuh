// Scalar functions of the gates.
#pragma once

namespace cubinery::dev {

inline constexpr float kLog2E = 1.44269504088896340736f;

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// log(1 + e^x), x itself from 20 up, where they agree to fp32 (PyTorch's threshold).
__device__ inline float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// 2^x, to 2 units in the last place; 0 below -126.
__device__ inline float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// log2(x), to 2^-22, or of x from 0.5 to 2 to 2^-22.6.
__device__ inline float log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x, to 1 unit in the last place; 0 from 2^126 up.
__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// softplus(x) to some units in the last place, short and without a branch: max(x, 0) + log(1 + t)
// with t = e^-|x|, and log(1 + t) = 2 artanh(t / (2 + t)) by its series, as that is 1/3 at most.
__device__ inline float short_softplus(float x) {
  const float t = exp2(-fabsf(x) * kLog2E);
  const float s = t * reciprocal(2.0f + t), square = s * s;
  float series = 2.0f / 13.0f;
  series = fmaf(series, square, 2.0f / 11.0f);
  series = fmaf(series, square, 2.0f / 9.0f);
  series = fmaf(series, square, 2.0f / 7.0f);
  series = fmaf(series, square, 2.0f / 5.0f);
  series = fmaf(series, square, 2.0f / 3.0f);
  series = fmaf(series, square, 2.0f);
  return fmaf(s, series, fmaxf(x, 0.0f));
}

__device__ inline float nan() { return __int_as_float(0x7fffffff); }

}  // namespace cubinery::dev
