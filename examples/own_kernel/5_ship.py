import sys

import cubinery

SOURCE = """#include "gelu.h"
__global__ void activate(float* x) { x[threadIdx.x] = gelu(threadIdx.x); }"""
if len(sys.argv) > 1:  # an architecture: fills the cache, without a GPU
    context = cubinery.Context(-1, arch=sys.argv[1])
    found = context.compile_source(SOURCE, name="activate", includes=["include"])
    sys.exit(print(found["source"], found["path"]))
import torch

kernel = cubinery.compile(SOURCE, name="activate", includes=["include"])
kernel[1, 256](torch.empty(256, device="cuda"))
