"""Kernels from texts on a GPU, with PyTorch's arrays."""

from __future__ import annotations

import ctypes
import struct

import cubinery
import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

SAXPY = """
__global__ void saxpy(const float* x, float* y, float a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""
# Each thread writes where it is.
PLACES = """
__global__ void places(int* to, int bias) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  const int z = blockIdx.z * blockDim.z + threadIdx.z;
  const int width = gridDim.x * blockDim.x, height = gridDim.y * blockDim.y;
  to[(z * height + y) * width + x] = 10000 * z + 100 * y + x + bias;
}
"""
STRUCT = """
struct Plane { char flag; short step; int offset; double scale; const float* from; float last[3]; };
__global__ void apply(float* to, Plane plane, bool twice) {
  const int i = threadIdx.x;
  to[i] = static_cast<float>(plane.scale) * plane.from[plane.offset + plane.step * i];
  to[i] += plane.last[2] + plane.flag;
  if (twice) to[i] *= 2;
}
"""
HALF = """
__global__ void widen(float* to, unsigned short half, signed char a, unsigned char b, double c) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(half));
  to[0] = f;
  to[1] = a;
  to[2] = b;
  to[3] = static_cast<float>(c);
}
"""
SHARED = """
template <class T, int N>
__global__ void reverse(T* x) {
  extern __shared__ char memory[];
  T* kept = reinterpret_cast<T*>(memory);
  kept[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = kept[N - 1 - threadIdx.x];
}
"""


@pytest.fixture(scope="module")
def context() -> cubinery.Context:
    return cubinery.Context(0)


@pytest.fixture(scope="module")
def saxpy(context: cubinery.Context) -> cubinery.Kernel:
    return context.kernel(SAXPY, name="saxpy")


def two(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.arange(n, dtype=torch.float32, device="cuda:0")
    return x, torch.ones_like(x)


@pytest.mark.parametrize("n", [1, 255, 257, 100_000])
def test_saxpy(saxpy, n):
    x, y = two(n)
    saxpy[(n + 255) // 256, 256](x, y, 2.0, n)
    assert torch.equal(y, 2 * x + 1)


def test_compile_takes_the_current_device():
    x, y = two(1000)
    cubinery.compile(SAXPY, name="saxpy")[4, 256](x, y, 0.5, 1000)
    assert torch.equal(y, 0.5 * x + 1)


def test_a_grid_of_three(context):
    to = torch.zeros(6, 8, 12, dtype=torch.int32, device="cuda:0")
    context.kernel(PLACES, name="places")[(3, 4, 2), (4, 2, 3)](to, -7)
    z, y, x = (torch.arange(n, device="cuda:0", dtype=torch.int32) for n in to.shape)
    expected = 10000 * z[:, None, None] + 100 * y[:, None] + x - 7
    assert torch.equal(to, expected.int())


def test_a_structure(context):
    class Plane(ctypes.Structure):
        _fields_ = [
            ("flag", ctypes.c_char),
            ("step", ctypes.c_short),
            ("offset", ctypes.c_int),
            ("scale", ctypes.c_double),
            ("from_", ctypes.c_void_p),
            ("last", ctypes.c_float * 3),
        ]

    source, _ = two(100)
    to = torch.zeros(32, device="cuda:0")
    plane = Plane(b"\x03", 2, 5, 0.5, source.data_ptr(), (0, 0, 100))
    apply = context.kernel(STRUCT, name="apply")
    for twice in (False, True):
        apply[1, 32](to, plane, twice)
        expected = 0.5 * source[5 : 5 + 64 : 2] + 103
        assert torch.equal(to, expected * (2 if twice else 1))
    apply[1, 32](to, bytes(plane), True)
    assert torch.equal(to, expected * 2)


def test_numbers_of_every_size(context):
    widen = context.kernel(HALF, name="widen")
    to = torch.zeros(4, device="cuda:0")
    widen[1, 1](to, struct.pack("<e", 1.5), -128, 255, 0.25)
    assert to.tolist() == [1.5, -128, 255, 0.25]
    numpy = pytest.importorskip("numpy")
    widen[1, 1](to, numpy.float16(-2.5), numpy.int8(7), numpy.uint8(8), numpy.float64(9))
    assert to.tolist() == [-2.5, 7, 8, 9]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.uint8])
def test_arrays_of_any_dtype_and_offset(context, dtype):
    """A view that begins inside of its storage, and shared memory."""
    word = {1: "unsigned char", 2: "unsigned short", 8: "long"}[dtype.itemsize]
    whole = torch.arange(80, device="cuda:0").to(dtype)
    expected = whole.clone()
    expected[8:72] = whole[8:72].flip(0)
    reverse = context.kernel(SHARED, name=f"reverse<{word}, 64>")
    reverse[1, 64, 64 * dtype.itemsize](whole[8:72])
    assert torch.equal(whole, expected)


def test_streams_and_graphs(saxpy):
    """The current stream's, the one that is named, and a graph's."""
    x, y = two(1000)
    side = torch.cuda.Stream(0)
    side.wait_stream(torch.cuda.current_stream(0))
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        y.fill_(3)
        saxpy[4, 256](x, y, 1.0, 1000)  # behind the sleep
    side.synchronize()
    assert torch.equal(y, x + 3)
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        y.fill_(4)
    saxpy.launch(x, y, 1.0, 1000, grid=4, block=256, stream=side.cuda_stream)
    side.synchronize()
    assert torch.equal(y, x + 4)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.zero_()
        saxpy[4, 256](x, y, 2.0, 1000)
        saxpy[4, 256](x, y, 3.0, 1000)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize(0)
    assert torch.equal(y, 5 * x)


def test_clusters_and_cooperative_launches(context):
    source = """
    __global__ void ranks(unsigned* to) {
      unsigned rank;
      asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
      if (threadIdx.x == 0) to[blockIdx.x] = rank;
    }
    """
    if torch.cuda.get_device_capability(0) < (9, 0):
        pytest.skip("no clusters")
    kernel = context.kernel(source, name="ranks")
    to = torch.zeros(8, dtype=torch.int32, device="cuda:0")
    kernel.launch(to, grid=8, block=32, cluster=4)
    assert to.tolist() == [0, 1, 2, 3] * 2
    kernel.launch(to, grid=8, block=32, cooperative=True, enable_pdl=False)
    assert to.tolist() == [0] * 8


def test_arrays_that_are_elsewhere(saxpy):
    x, y = two(8)
    with pytest.raises(cubinery.InvalidArgumentError, match="argument 2 of saxpy is on device cpu"):
        saxpy[1, 8](x, y.cpu(), 2.0, 8)
    with pytest.raises(cubinery.InvalidArgumentError, match="argument 1 of saxpy is on device cpu"):
        saxpy[1, 8](x.cpu(), y, 2.0, 8)
    if torch.cuda.device_count() > 1:
        message = "argument 1 of saxpy is on device cuda:1; accepted: cuda:0"
        with pytest.raises(cubinery.InvalidArgumentError, match=message):
            saxpy[1, 8](x.to("cuda:1"), y, 2.0, 8)
    torch.cuda.synchronize(0)
    assert torch.equal(y, torch.ones_like(y))


def test_a_null_pointer_and_an_address(context):
    source = """
    __global__ void copy(float* to, const float* from) { to[threadIdx.x] = from ? from[threadIdx.x] : -1; }
    """
    copy = context.kernel(source, name="copy")
    x, y = two(8)
    copy[1, 8](y, x.data_ptr())
    assert torch.equal(y, x)
    copy[1, 8](y, None)
    assert (y == -1).all()
    x.requires_grad_()
    copy[1, 8](y, x)
    assert torch.equal(y, x)


def test_cupy(saxpy):
    cupy = pytest.importorskip("cupy")
    x, y = cupy.arange(8, dtype="f4"), cupy.ones(8, "f4")
    saxpy[1, 8](x, y, 2.0, 8)
    assert (y == 2 * x + 1).all()
    x, y = two(8)
    saxpy[1, 8](cupy.asarray(x), y, 2.0, 8)
    torch.cuda.synchronize(0)
    assert torch.equal(y, 2 * x + 1)
