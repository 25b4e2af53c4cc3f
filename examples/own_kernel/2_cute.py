import cubinery
import torch

RAMP = """#include <cute/tensor.hpp>
__global__ void ramp(float* x) { cute::make_tensor(x, 256)(threadIdx.x) = threadIdx.x; }"""
FOLDERS = ["cutlass/include", "/usr/local/cuda/include", "/usr/local/cuda/include/cccl"]
cubinery.compile(RAMP, name="ramp", includes=FOLDERS)[1, 256](torch.empty(256, device="cuda"))
