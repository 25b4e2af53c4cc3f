// Step 3, a typed key: the folder that `cubinery new-kernel rms_norm` writes, launched.
#include <cuda_runtime.h>

#include "cubinery/context.h"
#include "rms_norm/fields.h"

int main() {
  constexpr int kRows = 1000;
  constexpr RmsNormKey kKey{.dtype = cubinery::DType::kF32, .cols = 768, .warps = 4};
  cubinery::Options options = cubinery::Options::from_env().value();
  options.template_dirs.emplace_back("templates");  // the folder above rms_norm/
  const auto context = cubinery::Context::create(options).value();
  const cubinery::Kernel kernel = context.get(kKey).value();
  void *x = nullptr, *weight = nullptr;
  cudaMalloc(&x, kRows * kKey.cols * sizeof(float));
  cudaMalloc(&weight, kKey.cols * sizeof(float));
  const RmsNormParams params{.x = x, .weight = weight, .y = x, .rows = kRows};
  kernel.launch(nullptr, {.grid = {kRows / kKey.warps}}, params).value();
  return cudaDeviceSynchronize();
}
