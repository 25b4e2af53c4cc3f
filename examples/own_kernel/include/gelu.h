// For step 2 of docs/own_kernel.md: no more than a kernel's own header.
#pragma once

__device__ inline float gelu(float x) {
  return 0.5f * x * (1 + tanhf(0.7978846f * (x + 0.044715f * x * x * x)));
}
