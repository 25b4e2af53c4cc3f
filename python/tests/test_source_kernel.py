"""Kernels from texts: what reaches the driver on a GPU that is not there, and what is refused."""

import ctypes
import gc
import os
import re
import struct
import sys
import threading
import weakref
from pathlib import Path

import cubinery
import pytest
from cubinery import _arrays
from fake_gpu import CPU, CUDA, ROOT, FakeArray

SAXPY = """
__global__ void saxpy(const float* x, float* y, float a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""
# Every kind of parameter that is packed.
KINDS = """
struct __half { unsigned short bits; };
struct Pair { int first; double second; };
enum class Color : short { kRed };
__global__ void kinds(bool b, signed char s, unsigned short t, int i, unsigned j, long long x,
                      unsigned long long y, float f, double d, __half h, Pair pair, Color color,
                      char c, const void* p) {}
extern "C" __global__ void plain(int i, float f, void* p, short s) {}
"""


@pytest.fixture
def saxpy(context):
    return context.kernel(SAXPY, name="saxpy")


def kernel_of(context, parameters, name="take", before="", symbol=""):
    """A kernel that takes these and does nothing."""
    source = f"{before}\n{symbol} __global__ void take({parameters}) {{}}\n"
    return context.kernel(source, name=name)


def refused(message):
    return pytest.raises(cubinery.InvalidArgumentError, match="^" + re.escape(message))


# ---- Launches -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fast", [False, True])
def test_arguments_reach_the_driver(saxpy, gpu, fast):
    array = gpu.FastArray if fast else FakeArray
    x, y = array(1000), array(1000)
    assert saxpy[4, 256](x, y, 2.0, 1000) is None
    assert gpu.launches == 1
    assert gpu.last_kernel == saxpy.info.symbol == "_Z5saxpyPKfPffi"
    assert gpu.last_arguments == struct.pack("<QQfi", x.address, y.address, 2.0, 1000)
    assert gpu.last_config == {
        **{"grid": (4, 1, 1), "block": (256, 1, 1), "shared_bytes": 0},
        **{"cluster": (1, 1, 1), "cooperative": False, "enable_pdl": False},
    }


def test_every_way_to_launch(saxpy, gpu):
    x, y = FakeArray(8), FakeArray(8)
    saxpy[(1, 2, 3), (8, 4, 2), 512](x, y, 1.0, 8)
    config = gpu.last_config
    assert (config["grid"], config["block"]) == ((1, 2, 3), (8, 4, 2))
    assert config["shared_bytes"] == 512
    saxpy.launch(x, y, 1.0, 8, grid=(4, 2), block=(32,))
    assert gpu.last_config["grid"] == (4, 2, 1)
    more = {"shared_bytes": 16, "cluster": (2, 1), "cooperative": True, "enable_pdl": True}
    saxpy.launch(x, y, 1.0, 8, grid=4, block=32, **more, stream=0x70)
    assert gpu.last_config == {
        **{"grid": (4, 1, 1), "block": (32, 1, 1)},
        **more,
        "cluster": (2, 1, 1),
    }
    assert gpu.last_stream == 0x70
    run = saxpy[4, 32]  # may be kept
    run(x, y, 1.0, 8)
    run(x, y, 3.0, 8)
    assert gpu.last_arguments[16:20] == struct.pack("<f", 3.0)
    assert gpu.launches == 5


def test_numbers_of_numpy_for_grids(saxpy, gpu):
    numpy = pytest.importorskip("numpy")
    saxpy[numpy.int64(3), (numpy.int32(32), True)](None, None, 1.0, 8)
    assert gpu.last_config["grid"] == (3, 1, 1)
    assert gpu.last_config["block"] == (32, 1, 1)


def test_all_kinds_of_parameters(context, gpu):
    numpy = pytest.importorskip("numpy")

    class Pair(ctypes.Structure):
        _fields_ = [("first", ctypes.c_int), ("second", ctypes.c_double)]

    kernel = context.kernel(KINDS, name="kinds")
    assert kernel.info.parameter_bytes == (1, 1, 2, 4, 4, 8, 8, 4, 8, 2, 16, 2, 1, 8)
    half = numpy.float16(1.5)
    most = 2**64 - 1
    pair = Pair(7, 0.5)
    kernel[1, 1](
        True, -128, 65535, -5, 2**32 - 1, -(2**63), most, 0.5, 0.1, half, pair, 3, 255, None
    )
    assert gpu.last_arguments == (
        struct.pack("<?bHiIqQfd", True, -128, 65535, -5, 2**32 - 1, -(2**63), most, 0.5, 0.1)
        + half.tobytes()
        + bytes(pair)
        + struct.pack("<hBQ", 3, 255, 0)
    )


def test_values_that_show_their_bytes(context, gpu):
    numpy = pytest.importorskip("numpy")
    kernel = kernel_of(context, "float f, double d, int i, float4 v, void* p")
    vector = numpy.arange(4, dtype=numpy.float32)
    wanted = struct.pack("<fdi4fQ", 2.0, 3.0, 4, 0, 1, 2, 3, 77)
    for f, d, i, v, p in [
        (numpy.float32(2), numpy.float64(3), numpy.int32(4), vector.tobytes(), 77),
        (ctypes.c_float(2), ctypes.c_double(3), ctypes.c_int(4), (ctypes.c_float * 4)(0, 1, 2, 3),
         ctypes.c_void_p(77)),
        (bytearray(struct.pack("<f", 2)), memoryview(struct.pack("<d", 3)), struct.pack("<i", 4),
         memoryview(vector.tobytes()), numpy.uint64(77)),
    ]:  # fmt: skip
        kernel[1, 1](f, d, i, v, p)
        assert gpu.last_arguments == wanted
    half = pytest.importorskip("ml_dtypes").bfloat16(1.5)
    kernel = kernel_of(context, "__nv_bfloat16 h", before="struct __nv_bfloat16 { short bits; };")
    kernel[1, 1](half)
    assert gpu.last_arguments == b"\xc0\x3f"


def test_a_scalar_without_a_buffer(context, gpu):
    class Scalar:
        dtype = "f16"

        def tobytes(self):
            return b"\x00\x3c"

    kernel = kernel_of(context, "short h")
    kernel[1, 1](Scalar())
    assert gpu.last_arguments == b"\x00\x3c"


def test_python_floats_by_another_name(context, gpu):
    class Metres(float):
        pass

    kernel_of(context, "float f")[1, 1](Metres(2))
    assert gpu.last_arguments == struct.pack("<f", 2)


def test_floats_that_are_no_numbers(context, gpu):
    kernel = kernel_of(context, "float f, float g")
    kernel[1, 1](float("inf"), float("-inf"))
    assert gpu.last_arguments == struct.pack("<ff", float("inf"), float("-inf"))
    kernel[1, 1](float("nan"), -1.0)
    assert gpu.last_arguments[4:] == struct.pack("<f", -1.0)


def test_many_and_large_arguments(context, gpu):
    """More than the usual numbers: 40 arrays that need capsules, and 3000 bytes."""
    arrays = [FakeArray(1) for _ in range(40)]
    parameters = ", ".join(f"float* p{i}" for i in range(40))
    kernel = kernel_of(context, parameters + ", Large s", before="struct Large { int a[750]; };")
    large = bytes(range(250)) * 12
    kernel[1, 1](*arrays, large)
    addresses = struct.pack("<40Q", *(array.address for array in arrays))
    assert gpu.last_arguments == addresses + large
    fast = [gpu.FastArray(1) for _ in range(40)]
    kernel[1, 1](*fast, large)
    assert gpu.last_arguments == struct.pack("<40Q", *(a.address for a in fast)) + large


def test_a_kernel_of_nothing(context, gpu):
    kernel_of(context, "")[2, 3]()
    assert gpu.last_arguments == b""
    assert gpu.last_stream == 0


def test_arrays_are_passed_as_they_lie(context, gpu):
    kernel = kernel_of(context, "void* p")
    offset = FakeArray(4, 4, strides=(1, 4), byte_offset=64, dtype="f8e4m3")
    kernel[1, 1](offset)
    assert gpu.last_arguments == struct.pack("<Q", offset.address + 64)
    managed = FakeArray(4, device=(13, 5))  # every device reaches it
    kernel[1, 1](managed)
    assert gpu.last_arguments == struct.pack("<Q", managed.address)


class Interface:
    """An array with nothing but CUDA's array interface, as Numba's."""

    def __init__(self, address, **more):
        self.__cuda_array_interface__ = {
            **{"shape": (4,), "typestr": "<f4", "data": (address, False), "version": 3},
            **more,
        }


def test_cuda_array_interface(context, gpu):
    kernel = kernel_of(context, "float* p, float* q")
    kernel[1, 1](Interface(0x1000), Interface(0))
    assert gpu.last_arguments == struct.pack("<QQ", 0x1000, 0)
    assert gpu.last_stream == 0
    kernel[1, 1](Interface(0x1000, stream=2), FakeArray(1))
    assert gpu.last_stream == 2
    kernel[1, 1](Interface(0x1000, stream=None), FakeArray(1))
    assert gpu.last_stream == 0
    with refused("argument 2 of take has a mask; accepted: arrays without"):
        kernel[1, 1](None, Interface(0x1000, mask=Interface(0x2000)))


def test_the_stream_is_the_arrays(saxpy, gpu):
    x, y = gpu.FastArray(8), gpu.FastArray(8)
    gpu.set_current_stream(0x50)
    saxpy[1, 8](x, y, 2.0, 8)
    assert gpu.last_stream == 0x50
    saxpy[1, 8](None, y, 2.0, 8)  # of the first that is one
    assert gpu.last_stream == 0x50
    saxpy.launch(x, y, 2.0, 8, grid=1, block=8, stream=0x60)
    assert gpu.last_stream == 0x60
    saxpy.launch(x, y, 2.0, 8, grid=1, block=8, stream=0)
    assert gpu.last_stream == 0
    slow = FakeArray(8)
    saxpy.launch(slow, y, 2.0, 8, grid=1, block=8, stream=0x60)
    assert slow.streams == [0x60]  # its library orders its work before
    saxpy[1, 8](slow, y, 2.0, 8)
    assert (slow.streams, gpu.last_stream) == ([0x60, 1], 0)


def test_launches_are_captured(saxpy, gpu):
    x = gpu.FastArray(8)
    saxpy[1, 8](x, x, 2.0, 8)
    with gpu.capture():
        saxpy[1, 8](x, x, 2.0, 8)
        saxpy.launch(FakeArray(8), x, 2.0, 8, grid=2, block=8, stream=0x60)
    assert gpu.launches == 3


# ---- What is refused ----------------------------------------------------------------------------


def test_another_number_of_arguments(saxpy, gpu):
    with refused(
        "saxpy: 3 arguments given; accepted: 4: an array, None or an address (a pointer); "
        "an array, None or an address (a pointer); a float (float); an int (an integer of 4 bytes)"
    ):
        saxpy[1, 8](None, None, 2.0)
    with refused("saxpy: 5 arguments given; accepted: 4"):
        saxpy.launch(None, None, 2.0, 1, 2, grid=1, block=8)
    assert gpu.launches == 0


RANGES = [
    ("bool v", 2, "integers from 0 to 1"),
    ("signed char v", 128, "integers from -128 to 127"),
    ("char v", 256, "integers from -128 to 255"),
    ("unsigned char v", -1, "integers from 0 to 255"),
    ("short v", -32769, "integers from -32768 to 32767"),
    ("unsigned short v", 65536, "integers from 0 to 65535"),
    ("int v", 2**31, "integers from -2147483648 to 2147483647"),
    ("unsigned v", 2**32, "integers from 0 to 4294967295"),
    ("long v", 2**63, "integers from -9223372036854775808 to 9223372036854775807"),
    ("unsigned long v", -1, "integers from 0 to 18446744073709551615"),
    ("unsigned long v", 2**64, "integers from 0 to 18446744073709551615"),
    ("long long v", -(2**63) - 1, "integers from -9223372036854775808 to 9223372036854775807"),
    ("void* v", -1, "integers from 0 to 18446744073709551615"),
]


@pytest.mark.parametrize(("parameter", "value", "accepted"), RANGES)
def test_integers_have_to_fit(context, gpu, parameter, value, accepted):
    kernel = kernel_of(context, parameter)
    with refused(f"argument 1 of take = {value}; accepted: {accepted}"):
        kernel[1, 1](value)
    least, most = (int(word) for word in re.findall(r"-?\d+", accepted))
    for fits in (least, most):
        kernel[1, 1](fits)
        assert int.from_bytes(gpu.last_arguments, "little", signed=fits < 0) == fits
    assert gpu.launches == 2


def test_integers_where_only_the_size_is_known(context, gpu):
    kernel = kernel_of(context, "int i, float f, void* p, short s", symbol='extern "C"')
    assert kernel.info.symbol == "take"
    kernel[1, 1](2**32 - 1, -(2**31), -1, 65535)
    kernel[1, 1](1, 2.0, FakeArray(1), -32768)
    with refused(
        "argument 1 of take = 4294967296; accepted: integers from -2147483648 to 4294967295"
    ):
        kernel[1, 1](2**32, 2.0, None, 0)
    with refused(
        "argument 4 of take = 2.0; accepted: an int or other 2 bytes, such as numpy.float16(1)"
    ):
        kernel[1, 1](1, 2.0, None, 2.0)
    with refused("argument 1 of take = None; accepted: an int, a float or other 4 bytes"):
        kernel[1, 1](None, 2.0, None, 2)
    with refused(
        "argument 2 of take is of type FakeArray; accepted: an int, a float or other 4 bytes"
    ):
        kernel[1, 1](1, FakeArray(1), None, 2)
    assert gpu.launches == 2


WRONG = [
    ("float v", 2, "= 2; accepted: a float (float)"),
    ("float v", True, "= True; accepted: a float (float)"),
    ("double v", 2, "= 2; accepted: a float (double)"),
    ("float v", 1e39, "= 1e+39; accepted: what a float of 4 bytes holds"),
    ("float v", None, "= None; accepted: a float (float)"),
    ("int v", 2.0, "= 2.0; accepted: an int (an integer of 4 bytes)"),
    ("long v", 2.0, "= 2.0; accepted: an int (an integer of 8 bytes)"),
    ("long v", None, "= None; accepted: an int (an integer of 8 bytes)"),
    ("unsigned char v", 2.0, "= 2.0; accepted: an int (an integer of 1 byte)"),
    ("bool v", 1.0, "= 1.0; accepted: a bool (bool)"),
    ("float* v", 2.0, "= 2.0; accepted: an array, None or an address (a pointer)"),
    ("int v", "2", "is of type str; accepted: an int (an integer of 4 bytes)"),
    ("float4 v", 2, "= 2; accepted: 16 bytes, as a ctypes structure, bytes or a numpy scalar"),
    ("float4 v", b"abc", "is of type bytes and has 3 bytes; accepted: 16 bytes, as a ctypes"),
    ("int v", b"abcdefgh", "is of type bytes and has 8 bytes; accepted: an int (an integer of 4"),
    ("int v", ctypes.c_long(2), "is of type c_long and has 8 bytes; accepted: an int (an integer"),
    ("float v", [2.0], "is of type list; accepted: a float (float)"),
    ("int v", object, "is of type type; accepted: an int (an integer of 4 bytes)"),
]


@pytest.mark.parametrize(("parameter", "value", "message"), WRONG)
def test_values_of_another_kind(context, gpu, parameter, value, message):
    kernel = kernel_of(context, f"int first, {parameter}")
    with refused(f"argument 2 of take {message}"):
        kernel[1, 1](1, value)
    assert gpu.launches == 0


def test_an_array_is_no_number(context, gpu):
    for parameter, accepted in [
        ("long v", "an int (an integer of 8 bytes)"),
        ("double v", "a float (double)"),
        ("float4 v", "16 bytes, as a ctypes structure"),
    ]:
        for array in (FakeArray(1), gpu.FastArray(1), Interface(4096)):
            with refused(
                f"argument 1 of take is of type {type(array).__name__}; accepted: {accepted}"
            ):
                kernel_of(context, parameter)[1, 1](array)
    assert gpu.launches == 0


def test_numpy_scalars_have_the_size(context, gpu):
    numpy = pytest.importorskip("numpy")
    half = kernel_of(context, "__half h", before="struct __half { short bits; };")
    accepted = "accepted: 2 bytes as numpy or ctypes has them, such as numpy.float16(1)"
    for value in (1, 1.0):
        with refused(f"argument 1 of take = {value}; {accepted}"):
            half[1, 1](value)
    with refused(f"argument 1 of take is of type float32 and has 4 bytes; {accepted}"):
        half[1, 1](numpy.float32(1))
    with refused(
        "argument 1 of take is of type float64 and has 8 bytes; accepted: a float (float)"
    ):
        kernel_of(context, "float f")[1, 1](numpy.float64(1))
    half[1, 1](numpy.float16(1))
    assert gpu.last_arguments == b"\x00\x3c"


def test_numbers_of_cudas_headers(context, gpu):
    numpy = pytest.importorskip("numpy")
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    source = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n"
    source += "__global__ void take(__half h, __nv_bfloat16 b, __half2 t, float f) {}"
    kernel = context.kernel(source, name="take", includes=[toolkit])
    half = numpy.float16(1.5)
    kernel[1, 1](half, b"\xc0\x3f", bytes(half) * 2, 2.0)
    assert gpu.last_arguments == b"\x00\x3e\xc0\x3f\x00\x3e\x00\x3e" + struct.pack("<f", 2)
    for i, given in enumerate([(1, b"12", b"1234"), (half, 1.0, b"1234"), (half, half, 1)]):
        with refused(f"argument {i + 1} of take = {given[i]}; accepted: "):
            kernel[1, 1](*given, 2.0)
    assert gpu.launches == 1


def test_arrays_that_are_elsewhere(saxpy, gpu):
    numpy = pytest.importorskip("numpy")
    here = FakeArray(8)
    for array, where in [
        (FakeArray(8, device=(CUDA, 3)), "cuda:3"),
        (gpu.FastArray(8, device=(CUDA, 1)), "cuda:1"),
        (FakeArray(8, device=(CPU, 0)), "cpu"),
        (numpy.zeros(8, numpy.float32), "cpu"),
        (FakeArray(8, device=(10, 0)), "a device of DLPack type 10"),
    ]:
        with refused(f"argument 2 of saxpy is on device {where}; accepted: cuda:0"):
            saxpy[1, 8](here, array, 2.0, 8)
        with refused(f"argument 1 of saxpy is on device {where}; accepted: cuda:0"):
            saxpy[1, 8](array, here, 2.0, 8)
    far = FakeArray(8, byte_offset=2**64 - 1)
    with refused("argument 1 of saxpy has byte_offset 18446744073709551615; accepted: what memory"):
        saxpy[1, 8](far, here, 2.0, 8)
    assert gpu.launches == 0


def test_a_torch_that_is_elsewhere(saxpy, gpu):
    torch = pytest.importorskip("torch")
    with refused("argument 1 of saxpy is on device cpu; accepted: cuda:0"):
        saxpy[1, 8](torch.zeros(8), FakeArray(8), 2.0, 8)


@pytest.mark.parametrize(
    "config", [4, (4,), (1, 2, 3, 4), [1, 2], None], ids=["int", "one", "four", "list", "None"]
)
def test_what_is_in_the_brackets(saxpy, config):
    with refused(
        f"kernel[...] = {config!r}; accepted: kernel[grid, block], kernel[grid, block, sh"
    ):
        saxpy[config]


EXTENTS = "an int or a tuple of 1 to 3, each from 0 to 2^32 - 1"


@pytest.mark.parametrize(
    "extent", [-1, 2**32, 2**70, 1.5, "4", (), (1, 2, 3, 4), (1, -1), (1, None), [4]]
)
def test_extents_are_checked(saxpy, extent):
    with refused(f"grid = {extent!r}; accepted: {EXTENTS}"):
        saxpy[extent, 8]
    with refused(f"block = {extent!r}; accepted: {EXTENTS}"):
        saxpy[1, extent]
    with refused(f"cluster = {extent!r}; accepted: {EXTENTS}"):
        saxpy.launch(None, None, 2.0, 1, grid=1, block=8, cluster=extent)
    with refused(f"shared_bytes = {extent!r}; accepted: an int from 0 to 2^32 - 1"):
        saxpy[1, 8, extent]


def test_what_the_library_refuses(saxpy, gpu):
    for config, message in [
        ((0, 8), "grid is 0 x 1 x 1; accepted: at least 1 each way"),
        ((1, 0), "block is 0 x 1 x 1; accepted: 1 to 1024 threads"),
        ((1, 2048), "block is 2048 x 1 x 1; accepted: 1 to 1024 threads"),
        ((1, 8, 1 << 20), "shared_bytes is 1048576; accepted: at most"),
    ]:
        with pytest.raises(cubinery.InvalidArgumentError, match=re.escape(message)):
            saxpy[config](None, None, 2.0, 8)
    with pytest.raises(cubinery.InvalidArgumentError, match="cluster is 2 x 1 x 1"):
        saxpy.launch(None, None, 2.0, 8, grid=3, block=8, cluster=2)
    with pytest.raises(cubinery.InvalidArgumentError, match="stream = 1267650600228229401496703"):
        saxpy.launch(None, None, 2.0, 8, grid=3, block=8, stream=2**100)
    with pytest.raises(TypeError, match="stream = 'legacy'; accepted: a cudaStream_t as an int"):
        saxpy.launch(None, None, 2.0, 8, grid=3, block=8, stream="legacy")
    with pytest.raises(TypeError, match=r"takes no keyword arguments; kernel.launch\(\) has them"):
        saxpy[1, 8](None, None, 2.0, 8, stream=0)
    gpu.refuse_launches(100)
    with pytest.raises(cubinery.DriverError, match="CUDA_ERROR_NO_DEVICE"):
        saxpy[1, 8](None, None, 2.0, 8)
    assert gpu.launches == 0


def test_errors_of_an_array_are_its_own(saxpy, gpu):
    class Broken(FakeArray):
        def __dlpack__(self, stream=None):
            raise BufferError("this array is gone")

    with pytest.raises(BufferError, match="this array is gone"):
        saxpy[1, 8](FakeArray(8), Broken(8), 2.0, 8)
    with pytest.raises(BufferError):
        saxpy[1, 8](FakeArray(8), None, memoryview(bytes(8))[::2], 8)
    assert gpu.launches == 0


# ---- What a symbol says -------------------------------------------------------------------------


def accepted(kernel):
    """Of each parameter, by the message about another number of arguments."""
    with pytest.raises(cubinery.InvalidArgumentError) as error:
        kernel[1, 1](*[None] * (len(kernel.info.parameter_bytes) + 1))
    words = str(error.value).split("; accepted: ")[1].partition(": ")[2]
    ours = {"a pointer": "p", "float": "f", "double": "d", "bool": "b"}
    found = (re.search(r"\(([^()]*)\)", word) for word in words.split("; "))
    return "".join(
        "?" if one is None else ours.get(one[1], one[1][:1] + one[1][-7:-6]) for one in found
    )


SYMBOLS = [
    ("take", "float* a, float* b, float c, double d", "ppfd"),
    (
        "take",
        "const float* a, const float* b, float* c, float* const* d, float** e, float f",
        "pppppf",
    ),
    ("take", "volatile const int* __restrict__ a, const double b, bool c", "pdb"),
    ("take", "Pair a, Pair* b, Pair* c, float d", "?ppf"),
    ("take", "Box<float, 3> a, Box<float, 3>* b, float d, double* e", "?pfp"),
    ("take", "float2 a, float4 b, float4* c, float2* d, float e", "??ppf"),
    ("take", "void (*a)(int), float b", "??"),  # from there on unknown
    ("take", "float b, void (*a)(int), float c", "f??"),
    ("ns::inner::take", "float* a, ns::Deep b, float c", "p??"),
    ("ns::inner::take", "float* a, Pair* b, Pair* d, float c", "pppf"),
    ("take<float, 4>", "T* a, T* b, T c, float d, Pair e, Pair* f", "ppff?p"),
    ("take<double, -7>", "const T* a, T* b, double* e, T c, float d", "pppdf"),
    ("take<Pair, 0>", "T* a, T b, Pair* c, float d", "p?pf"),
    ("take<Pair*, 0>", "T* a, T b, Pair* c, float d", "pppf"),
    ("take<Box<int, 2>, 0>", "T* a, T b, Pair* c, float d", "p?pf"),
    ("ns::inner::take<float, 4>", "T* a, T b, Pair* c, float d, Pair* e", "pfpfp"),
]
TYPES = """
struct Pair { int a; float b; };
template <class T, int N> struct Box { T values[N]; };
namespace ns { struct Deep { int x; }; }
"""


@pytest.mark.parametrize(("name", "parameters", "kinds"), SYMBOLS)
def test_symbols_are_read(context, name, parameters, kinds):
    scopes = re.findall(r"(\w+)::", name.partition("<")[0])
    template = "template <class T, int N>" if "<" in name else ""
    source = (
        TYPES
        + " ".join(f"namespace {scope} {{" for scope in scopes)
        + f"{template} __global__ void take({parameters}) {{}}"
        + "}" * len(scopes)
    )
    assert accepted(context.kernel(source, name=name)) == kinds


def test_packs_are_not_read(context):
    source = "template <class... T> __global__ void take(float first, T... more) {}"
    kernel = context.kernel(source, name="take<int, float*>")
    assert accepted(kernel)[1:] == "??"
    kernel[1, 1](2.0, 3, None)


# ---- Compiling ----------------------------------------------------------------------------------


def test_info(saxpy, context):
    info = saxpy.info
    assert (info.kernel, info.arch, info.symbol) == ("saxpy", "sm_90a", "_Z5saxpyPKfPffi")
    assert info.parameter_bytes == (8, 8, 4, 4)
    assert info.registers > 0 and info.spill_store_bytes == info.spill_load_bytes == 0
    assert saxpy.context is context and saxpy.name == "saxpy"
    assert repr(saxpy) == "<cubinery.Kernel saxpy on cuda:0, 4 arguments>"
    with pytest.raises(AttributeError):
        info.registers = 1


def test_one_cache_for_all(empty_kernels, gpu, tmp_path):
    options = {**empty_kernels, "cache_dir": tmp_path}
    source = {"source": SAXPY, "name": "saxpy", "options": ["-DBLOCK=256"]}
    first = cubinery.Context(0, **options)
    assert not first.explain_source(**source)["cached"]
    first.kernel(**source)
    assert (first.stats().compiles, first.stats().misses) == (1, 1)
    first.kernel(**source)
    assert first.stats().memory_hits == 1
    explained = first.explain_source(**source)
    assert explained["cached"] and explained["path"].startswith(str(tmp_path))
    second = cubinery.Context(0, **options, offline=True)
    second.kernel(**source)
    assert (second.stats().compiles, second.stats().disk_hits) == (0, 1)
    for other in (
        {**source, "options": ["-DBLOCK=128"]},
        {**source, "source": SAXPY + "\n"},
        {**source, "allow_spills": False},
        {**source, "compiler": "nvcc"},
    ):
        with pytest.raises(cubinery.NotCachedError):
            second.kernel(**other)
    # Neither decides what is made.
    assert second.explain_source(**source, share_headers=True)["cached"]


def test_a_text_with_one_kernel_needs_no_name(context, gpu):
    source = "template <class T> __global__ void f(T) {} template __global__ void f(int);"
    kernel = context.kernel(source)
    kernel[1, 32](7)
    assert kernel.info.symbol == "_Z1fIiEvT_" and gpu.last_arguments == b"\7\0\0\0"
    with pytest.raises(cubinery.CompileError, match="the text gives 2 kernels"):
        context.kernel("__global__ void f() {} __global__ void g() {}")


def test_a_text_has_listings(context, compiler):
    assert ".visible .entry _Z5saxpy" in context.listing(SAXPY, "ptx", name="saxpy")
    with pytest.raises(cubinery.InvalidArgumentError, match="form = 'asm'; accepted: ptx, sass"):
        context.listing(SAXPY, "asm")


def test_nvcc_compiles_what_nvrtc_cannot(context, gpu):
    source = """
        #include <cuda_fp16.h>
        #include <type_traits>
        extern "C" __global__ void add(__half* x, __half y) { *x = __hadd(*x, y); }
    """
    with pytest.raises(cubinery.CompileError, match="NVRTC"):
        context.kernel(source)
    kernel = context.kernel(source, compiler="nvcc", options=["-O3", "--expt-relaxed-constexpr"])
    assert kernel.info.parameter_bytes == (8, 2)
    assert kernel.info.canonical.endswith(";compiler=nvcc")
    with pytest.raises(cubinery.InvalidArgumentError, match="compiler = 'gcc'; accepted: nvrtc"):
        context.kernel(source, compiler="gcc")
    with pytest.raises(TypeError, match="unexpected keyword argument 'compilers'; accepted: name"):
        context.kernel(source, compilers="nvcc")


def test_prewarming_needs_no_gpu(empty_kernels, gpu, tmp_path, compiler):
    options = {"arch": "sm_90a", "cache_dir": tmp_path}
    machine = cubinery.Context(-1, **options)
    report = machine.compile_source(SAXPY, name="saxpy")
    assert (report["source"], report["symbol"]) == ("compiled", "_Z5saxpyPKfPffi")
    assert report["path"].startswith(str(tmp_path))
    assert machine.compile_source(SAXPY, name="saxpy")["source"] == "memory"
    with pytest.raises(cubinery.UnsupportedError, match="device=-1"):
        machine.kernel(SAXPY, name="saxpy")
    offline = cubinery.Context(-1, **options, offline=True)
    assert offline.compile_source(SAXPY, name="saxpy")["source"] == "disk"


def test_includes_are_read_by_content(context, gpu, tmp_path):
    header = tmp_path / "factor.h"
    header.write_text("#define FACTOR 2\n")
    source = '#include "factor.h"\n__global__ void f(float* x) { x[0] *= FACTOR; }'
    with pytest.raises(cubinery.CompileError) as error:
        context.kernel(source, name="f")
    assert "factor.h" in error.value.log
    for includes in ([str(tmp_path)], (tmp_path,), [bytes(tmp_path)]):
        context.kernel(source, name="f", includes=includes)
    compiles = context.stats().compiles
    assert context.explain_source(source, name="f", includes=[tmp_path])["cached"]
    header.write_text("#define FACTOR 3\n")
    context.kernel(source, name="f", includes=[tmp_path])
    assert context.stats().compiles == compiles + 1


def test_options_reach_the_compiler(context):
    source = "__global__ void f(Type* x) {}"
    assert context.kernel(source, name="f", options=("-DType=double",)).info.symbol == "_Z1fPd"
    with pytest.raises(cubinery.CompileError) as error:
        context.kernel(source, name="f")
    assert "Type" in error.value.log
    with pytest.raises(cubinery.InvalidArgumentError, match="-include"):
        context.kernel(source, name="f", options=["-include=x.h"])


def test_spills_are_an_error_on_request(context):
    source = "__global__ void f(float* x) { float a[64]; for (int i = 0; i < 64; ++i) a[i] = x[i];"
    source += " __syncthreads(); for (int i = 0; i < 64; ++i) x[64 * i] = a[i] * a[63 - i]; }"
    few = ["--maxrregcount=24"]
    kernel = context.kernel(source, name="f", options=few)
    assert kernel.info.spill_store_bytes > 0
    with pytest.raises(cubinery.CompileError, match="spill"):
        context.kernel(source, name="f", options=few, allow_spills=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": b"x"}, "source: is of type bytes; accepted: a str of CUDA C++"),
        ({"source": cubinery.DecodeProblem()}, "source: is of type DecodeProblem; accepted: a str"),
        ({"source": "a\0b"}, "source = 'a\\x00b'; accepted: text without NUL characters"),
        ({"source": " "}, "source of saxpy is empty"),
        ({"name": 3}, "name = 3; accepted: a str"),
        ({"name": "saxpy\0"}, "name = 'saxpy\\x00'; accepted: text without NUL characters"),
        (
            {"includes": "folder"},
            "includes: is of type str; accepted: a list or tuple of str, byte",
        ),
        ({"includes": [3]}, "includes[0] = 3; accepted: a str, bytes or a path"),
        ({"options": "-DX"}, "options: is of type str; accepted: a list or tuple of str"),
        ({"options": ["-DX", b"-DY"]}, "options[1] = b'-DY'; accepted: a str"),
        ({"options": None}, "options: is of type NoneType; accepted: a list or tuple of str"),
    ],
)
def test_arguments_of_kernel_are_checked(context, given, message):
    source = {"source": SAXPY, "name": "saxpy", **given}
    for call in (context.kernel, context.compile_source, context.explain_source):
        with refused(message):
            call(**source)


def test_names_are_checked(context):
    with pytest.raises(cubinery.InvalidArgumentError, match="sax py"):
        context.kernel(SAXPY, name="sax py")
    with pytest.raises(cubinery.CompileError, match="other"):
        context.kernel(SAXPY, name="other")


def test_compile_keeps_a_context(monkeypatch, context, gpu):
    made = []
    monkeypatch.setattr(
        cubinery.kernels, "context_of", lambda device: made.append(device) or context
    )
    kernel = cubinery.compile(SAXPY, name="saxpy", options=["-DX=1"])
    assert made == [0] and kernel.context is context
    monkeypatch.setattr(_arrays, "current_device", lambda: 3)
    cubinery.compile(SAXPY, name="saxpy")
    assert made == [0, 3]
    assert cubinery.compile(SAXPY, name="saxpy", context=context).context is context
    assert made == [0, 3]
    with refused("context: is of type int; accepted: a cubinery.Context, or None"):
        cubinery.compile(SAXPY, name="saxpy", context=3)


def test_the_current_device_is_a_librarys(monkeypatch):
    class Cuda:
        ready = False

        def is_initialized(self):
            return self.ready

        def current_device(self):
            return 2

        def Device(self):
            return self

        id = 1

    class Library:
        cuda = Cuda()

    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert _arrays.current_device() == 0
    monkeypatch.setitem(sys.modules, "torch", Library)
    assert _arrays.current_device() == 0  # no CUDA is woken up
    monkeypatch.setitem(sys.modules, "cupy", Library)
    assert _arrays.current_device() == 1
    Library.cuda.ready = True
    assert _arrays.current_device() == 2


def test_import_star_leaves_pythons_compile():
    assert "compile" not in cubinery.__all__ and callable(cubinery.compile)


# ---- Threads and lifetimes ----------------------------------------------------------------------


def test_a_kernel_is_shared_by_threads(saxpy, gpu):
    errors = []

    def work():
        try:
            for i in range(300):
                saxpy[4, 256](gpu.FastArray(8), FakeArray(8), 2.0, i)
            with refused("argument 4 of saxpy = 0.5"):
                saxpy[4, 256](None, None, 2.0, 0.5)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert gpu.launches == 600


def test_a_kernel_outlives_its_context(gpu, empty_kernels):
    lines = []

    def log(level, text):
        lines.append((level, text))

    context = cubinery.Context(0, **empty_kernels, log=log)
    kernel = context.kernel(SAXPY, name="saxpy")
    handle, gone = kernel._handle, weakref.ref(log)
    run = kernel[1, 8]
    arrays = [FakeArray(8), FakeArray(8), b"1234", 8]
    references = [sys.getrefcount(value) for value in arrays[:3]]
    run(*arrays)
    assert [sys.getrefcount(value) for value in arrays[:3]] == references
    del context, kernel, handle, log
    gc.collect()
    assert gone() is not None  # it may still write to the log
    run(*arrays)
    assert gpu.launches == 2
    del run
    gc.collect()
    assert gone() is None


def test_a_cycle_through_a_log_is_collected(gpu, empty_kernels):
    class Server:
        def __init__(self):
            self.context = cubinery.Context(0, **empty_kernels, log=self.log)
            self.kernel = self.context.kernel(SAXPY, name="saxpy")
            self.run = self.kernel[1, 8]

        def log(self, level, text): ...

    gone = weakref.ref(Server())
    gc.collect()
    assert gone() is None


def test_handles_are_not_mixed_up(saxpy, context):
    for call in (
        lambda: cubinery._core.kernel_with(context._handle, 1, 8),
        lambda: cubinery._core.kernel_info(context._handle),
        lambda: cubinery._core.operator_choice(saxpy._handle, 1),
        lambda: cubinery._core.context_compile_source(
            saxpy._handle, "x", "x", [], [], False, "nvrtc", False
        ),
    ):
        with pytest.raises(TypeError, match="a handle of another kind"):
            call()
    with pytest.raises(TypeError, match="3 arguments given; taken: 8|2 arguments given; taken: 8"):
        cubinery._core.kernel_with(saxpy._handle, 1)


# ---- Types and documents ------------------------------------------------------------------------

CALLS = """
import cubinery
kernel = cubinery.compile("", name="scale", includes=("folder", b"folder"), options=["-DX"])
kernel[1, (2, 3)](None, 2.0, 3)
kernel.launch(1, grid={grid}, block=(1, 2), stream=None)
count: int = kernel.info.registers
report: dict[str, object] = cubinery.Context(-1).compile_source("", {name}="scale")
"""


@pytest.mark.parametrize(("grid", "name", "errors"), [("1", "name", 0), ("'1'", "nam", 2)])
def test_a_type_checker_knows_kernels(tmp_path, grid, name, errors):
    api = pytest.importorskip("mypy.api")
    text, failed, _ = api.run(
        ["--config-file=", f"--cache-dir={tmp_path}", f"--python-executable={sys.executable}"]
        + ["-c", CALLS.format(grid=grid, name=name)]
    )
    assert failed == ""
    lines = {line.split(":")[1] for line in text.splitlines() if "error:" in line}
    assert len(lines) == errors, text


def test_the_documents_example_runs(context, gpu, monkeypatch, tmp_path):
    """As far as no GPU is needed: on arrays that are not there."""
    page = (ROOT / "docs" / "python.md").read_text()
    section = page.split("## Your own kernel\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    monkeypatch.setattr(cubinery.kernels, "context_of", lambda device: context)
    monkeypatch.setenv("CUBINERY_CACHE_DIR", str(tmp_path))
    names = {"x": gpu.FastArray(1000), "context": context, "cubinery": cubinery}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    assert gpu.launches > 0
