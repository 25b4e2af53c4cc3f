// Step 5, shipped: with an architecture it fills the cache, without a GPU; without one it launches.
#include <cuda_runtime.h>

#include <cstdio>

#include "cubinery/context.h"

int main(int argc, char** argv) {
  cubinery::KernelSource activate{.name = "activate", .includes = {"include"}};
  activate.source = R"(#include "gelu.h"
      __global__ void activate(float* x) { x[threadIdx.x] = gelu(threadIdx.x); })";
  cubinery::Options options = cubinery::Options::from_env().value();
  if (argc > 1) options.device = cubinery::kNoDevice, options.arch = argv[1];
  const auto context = cubinery::Context::create(options).value();
  if (argc > 1) {
    const auto found = context.compile(activate).value();
    return std::printf("%s %s\n", to_string(found.source), found.path.c_str()) < 0;
  }
  float* x = nullptr;
  cudaMalloc(&x, 256 * sizeof(float));
  context.get(activate).value().launch(nullptr, {.block = {256}}, x).value();
  return cudaDeviceSynchronize();
}
