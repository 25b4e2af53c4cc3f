"""A GPU that is not there: a libcuda that writes down launches, and arrays on its device.

Its kernels are empty ones: tests/data/empty_nvrtc.cc, in the same library, compiles them.
Needs g++ and the CUDA headers, to build fake_gpu.cc beside the fake driver of the C++ tests.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CPU, CUDA = 1, 2  # DLPack device types
_CODES = {
    "f32": (2, 32),
    "f16": (2, 16),
    "bf16": (4, 16),
    "i32": (0, 32),
    "i64": (0, 64),
    "f8e4m3": (10, 8),
    "f8e5m2": (12, 8),
    "u8": (1, 8),
    "bool": (6, 8),
}
_LONG = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i32": "int32",
    "i64": "int64",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "u8": "uint8",
    "bool": "bool",
}


def build(folder: Path) -> Path | None:
    """The library, or None where it cannot be built."""
    compiler = os.environ.get("CXX") or shutil.which("g++")
    cuda = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    if compiler is None or not (cuda / "cuda.h").exists():
        return None
    dlpack = (compiler, "-fsyntax-only", "-x", "c++", "-include", "dlpack/dlpack.h", os.devnull)
    if subprocess.run(dlpack, capture_output=True).returncode != 0:
        return None
    library = folder / "libfake_gpu.so"
    includes = [ROOT, ROOT / "templates", ROOT / "include", cuda]
    data = ROOT / "tests" / "data"
    command = [
        compiler,
        *("-std=c++20", "-DFMT_HEADER_ONLY", "-shared", "-fPIC", "-o", str(library)),
        *(f"-I{path}" for path in includes),
        str(Path(__file__).with_suffix(".cc")),
        str(data / "empty_nvrtc.cc"),
        *(str(data / name) for name in ("fake_driver.cc", "fake_driver_stubs.cc")),
        str(ROOT / "cache" / "cubin_note.cc"),
    ]
    subprocess.run(command, check=True)
    return library


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensor(ctypes.Structure):
    _fields_ = [
        ("tensor", _DLTensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


def _new_capsule(pointer: int, name: bytes) -> object:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(pointer, name, None)


class FakeArray:
    """An array of no known library: nothing but shape, dtype and DLPack's Python protocol.

    Its memory is an address that nobody looks behind.
    """

    _addresses = itertools.count(1 << 32, 1 << 28)

    def __init__(
        self,
        *shape: int,
        dtype: str = "f32",
        device: tuple[int, int] = (CUDA, 0),
        strides: tuple[int, ...] | None = None,
        byte_offset: int = 0,
    ) -> None:
        self.shape = shape
        self.dtype = _LONG[dtype]
        self.streams: list[int | None] = []  # what __dlpack__ was asked for
        self._device = device
        extents = ctypes.c_int64 * len(shape)
        self._shape = extents(*shape)
        self._strides = None if strides is None else extents(*strides)
        code, bits = _CODES[dtype]
        self.address = address = next(self._addresses)
        tensor = _DLTensor(
            address, *device, len(shape), code, bits, 1, self._shape, self._strides, byte_offset
        )
        self._managed = _DLManagedTensor(tensor, None, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, stream: int | None = None) -> object:
        self.streams.append(stream)
        return _new_capsule(ctypes.addressof(self._managed), b"dltensor")


class FakeGpu:
    """The built library."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = library = ctypes.CDLL(str(path))
        library.fake_exchange_api.restype = ctypes.c_void_p
        library.fake_stream_of_launch.restype = ctypes.c_void_p
        library.fake_kernel_of_launch.restype = ctypes.c_char_p
        library.fake_set_current_stream.argtypes = [ctypes.c_void_p]
        library.fake_add_array.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.fake_remove_array.argtypes = [ctypes.c_void_p]
        library.fake_set_cost.argtypes = [ctypes.c_uint, ctypes.c_float]
        library.fake_prepare()

        class FastArray(FakeArray):
            """An array whose type has DLPack's C exchange API, as PyTorch's have."""

            __dlpack_c_exchange_api__ = _new_capsule(
                library.fake_exchange_api(), b"dlpack_exchange_api"
            )

            def __init__(self, *shape: int, **options: object) -> None:
                super().__init__(*shape, **options)
                library.fake_add_array(id(self), ctypes.addressof(self._managed))

            def __del__(self) -> None:
                library.fake_remove_array(id(self))

        self.FastArray = FastArray

    @property
    def arrays(self) -> int:
        """The FastArrays that there are."""
        return self._library.fake_arrays()

    @property
    def launches(self) -> int:
        return self._library.fake_launches()

    def forget_launches(self) -> None:
        self._library.fake_forget_launches()

    @property
    def last_stream(self) -> int:
        """The stream of the last launch."""
        return self._library.fake_stream_of_launch() or 0

    @property
    def last_kernel(self) -> str:
        """The symbol of the last launch's kernel."""
        return self._library.fake_kernel_of_launch().decode()

    @property
    def last_arguments(self) -> bytes:
        """The parameters of the last launch, one behind the other."""
        data = ctypes.POINTER(ctypes.c_char)()
        size = self._library.fake_arguments_of_launch(ctypes.byref(data))
        return ctypes.string_at(data, size)

    @property
    def last_config(self) -> dict[str, Any]:
        """How the last launch was made."""
        numbers = (ctypes.c_uint * 12)()
        self._library.fake_config_of_launch(numbers)
        return {
            "grid": tuple(numbers[0:3]),
            "block": tuple(numbers[3:6]),
            "shared_bytes": numbers[6],
            "cluster": tuple(numbers[7:10]),
            "cooperative": bool(numbers[10]),
            "enable_pdl": bool(numbers[11]),
        }

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        """A stream is captured meanwhile; raises where something has invalidated that."""
        self._library.fake_capture(1)
        try:
            yield
            assert not self._library.fake_invalidated()
        finally:
            self._library.fake_capture(0)

    def set_current_stream(self, stream: int) -> None:
        """The current stream of FastArray's library."""
        self._library.fake_set_current_stream(stream)

    def set_cost(self, block: int, ms: float) -> None:
        """What a launch with so many threads in a block takes, by events around graphs."""
        self._library.fake_set_cost(block, ms)

    def refuse_launches(self, code: int) -> None:
        """What cuLaunchKernelEx returns from now on; 0 is success."""
        self._library.fake_refuse_launches(code)
