// Step 2, a header: #include looks in the folders that you name.
#include <cuda_runtime.h>

#include "cubinery/context.h"

int main() {
  cubinery::KernelSource activate{.name = "activate", .includes = {"include"}};
  activate.source = R"(#include "gelu.h"
      __global__ void activate(float* x) { x[threadIdx.x] = gelu(threadIdx.x); })";
  const auto context = cubinery::Context::create(cubinery::Options::from_env().value()).value();
  const cubinery::Kernel kernel = context.get(activate).value();
  float *x = nullptr, last = 0;
  cudaMalloc(&x, 256 * sizeof(float));
  kernel.launch(nullptr, {.block = {256}}, x).value();
  const int error = cudaMemcpy(&last, x + 255, sizeof last, cudaMemcpyDeviceToHost);
  return error != 0 ? error : last != 255;  // gelu of large numbers
}
