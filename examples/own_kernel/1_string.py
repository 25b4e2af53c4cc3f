import cubinery
import torch

RAMP = """template <class T> __global__ void ramp(T* x, T by, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = by * i; }"""
x = torch.empty(1000, device="cuda")
kernel = cubinery.compile(RAMP, name="ramp<float>")
kernel[4, 256](x, 2.0, 1000)
