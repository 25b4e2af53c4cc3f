// A kernel from a string, y = a x + y.  Without a GPU it is compiled for one.
#include <cuda_runtime_api.h>

#include "cubinery/context.h"

int main() {
  const cubinery::KernelSource saxpy{.name = "saxpy<float>", .source = R"(
      template <class T> __global__ void saxpy(T a, const T* x, T* y, int n) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] += a * x[i];
      })"};
  cubinery::Options options = cubinery::Options::from_env().value();
  int devices = 0, n = 1000;
  float *x = nullptr, *y = nullptr;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) {
    options.device = cubinery::kNoDevice, options.arch = "sm_90a";
    return cubinery::Context::create(options).value().compile(saxpy) ? 0 : 1;
  }
  const cubinery::Kernel kernel = cubinery::Context::create(options).value().get(saxpy).value();
  cudaMallocManaged(reinterpret_cast<void**>(&x), 4000, cudaMemAttachGlobal);
  cudaMallocManaged(reinterpret_cast<void**>(&y), 4000, cudaMemAttachGlobal);
  for (int i = 0; i < n; ++i) x[i] = static_cast<float>(i), y[i] = 1;
  kernel.launch(nullptr, {.grid = {4}, .block = {256}}, 2.0f, x, y, n).value();
  return cudaDeviceSynchronize() == cudaSuccess && y[999] == 1999 ? 0 : 1;
}
