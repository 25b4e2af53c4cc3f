// Step 1, a string: x[i] = by * i.
#include <cuda_runtime.h>

#include "cubinery/context.h"

int main() {
  const cubinery::KernelSource ramp{.name = "ramp<float>", .source = R"(
      template <class T> __global__ void ramp(T* x, T by, int n) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] = by * i;
      })"};
  const auto context = cubinery::Context::create(cubinery::Options::from_env().value()).value();
  const cubinery::Kernel kernel = context.get(ramp).value();
  float *x = nullptr, last = 0;
  cudaMalloc(&x, 1000 * sizeof(float));
  kernel.launch(nullptr, {.grid = {4}, .block = {256}}, x, 2.0f, 1000).value();
  const int error = cudaMemcpy(&last, x + 999, sizeof last, cudaMemcpyDeviceToHost);
  return error != 0 ? error : last != 1998;
}
