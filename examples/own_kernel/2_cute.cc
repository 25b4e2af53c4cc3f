#include <cuda_runtime.h>

#include "cubinery/context.h"

int main(int argc, char** argv) {  // the folders: of CUTLASS, of the toolkit, of CCCL
  cubinery::KernelSource ramp{.name = "ramp", .includes = {argv + 1, argv + argc}};
  ramp.source = R"(#include <cute/tensor.hpp>
      __global__ void ramp(float* x) { cute::make_tensor(x, 256)(threadIdx.x) = threadIdx.x; })";
  const auto context = cubinery::Context::create(cubinery::Options::from_env().value()).value();
  float* x = nullptr;
  cudaMalloc(&x, 256 * sizeof(float));
  return context.get(ramp)->launch(nullptr, {.block = {256}}, x).ok() ? cudaDeviceSynchronize() : 1;
}
