import cubinery
import torch

SOURCE = """#include "gelu.h"
__global__ void activate(float* x) { x[threadIdx.x] = gelu(threadIdx.x); }"""
x = torch.empty(256, device="cuda")
kernel = cubinery.compile(SOURCE, name="activate", includes=["include"])
kernel[1, 256](x)
