"""As much of torch as the plugins use, on a GPU that is not there: tensors are numpy's arrays in
host memory, which say that they are CUDA's.  Views are views, so a test sees where they lead.
"""

from __future__ import annotations

import ctypes
import sys
import types

import fake_gpu
import numpy as np

_STORED = {
    "bfloat16": np.uint16,
    "float16": np.uint16,
    "float32": np.float32,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "bool": np.bool_,
}
_SHORT = {long: short for short, long in fake_gpu._LONG.items()} | {"uint8": "u8"}
fake_gpu._CODES.setdefault("u8", (1, 8))
fake_gpu._LONG.setdefault("u8", "uint8")


class Dtype:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


_DTYPES = {name: Dtype(name) for name in _STORED}


class Tensor:
    __module__ = "torch"

    def __init__(self, array: np.ndarray, dtype: Dtype) -> None:
        self.array = array
        self.dtype = dtype
        self.device = types.SimpleNamespace(type="cuda", index=0)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def data_ptr(self) -> int:
        return self.array.__array_interface__["data"][0]

    def size(self, axis: int) -> int:
        return self.shape[axis]

    def stride(self) -> tuple[int, ...]:
        return tuple(stride // self.array.itemsize for stride in self.array.strides)

    def _like(self, array: np.ndarray) -> Tensor:
        return Tensor(array, self.dtype)

    def __getitem__(self, at: object) -> Tensor:
        return self._like(self.array[at])

    def view(self, *shape: int) -> Tensor:
        array = self.array.view()
        array.shape = shape  # refuses to copy
        return self._like(array)

    def unflatten(self, axis: int, shape: tuple[int, ...]) -> Tensor:
        assert axis == -1
        array = self.array
        inner = array.shape[-1] // shape[-1]
        strides = (*array.strides[:-1], array.strides[-1] * shape[-1], array.strides[-1])
        whole = (*array.shape[:-1], inner, shape[-1])
        return self._like(np.lib.stride_tricks.as_strided(array, whole, strides))

    def transpose(self, one: int, other: int) -> Tensor:
        return self._like(self.array.swapaxes(one, other))

    def expand(self, *shape: int) -> Tensor:
        return self._like(np.broadcast_to(self.array, shape))

    def index_select(self, axis: int, rows: Tensor) -> Tensor:
        return self._like(self.array.take(rows.array, axis))

    def index_copy_(self, axis: int, rows: Tensor, values: Tensor) -> None:
        assert axis == 0
        self.array[rows.array] = values.array

    def new_empty(self, shape: tuple[int, ...], dtype: Dtype | None = None) -> Tensor:
        return empty(shape, dtype=dtype or self.dtype)

    def max(self) -> object:
        return self.array.max()

    def capsule(self) -> object:
        self._shown = fake_gpu.FakeArray(
            *self.shape, dtype=_SHORT[self.dtype.name], strides=self.stride()
        )
        self._shown._managed.tensor.data = ctypes.c_void_p(self.data_ptr())
        return self._shown.__dlpack__()


def empty(shape: tuple[int, ...], dtype: Dtype = _DTYPES["float32"], device: object = None):
    """Aligned as torch's."""
    stored = np.dtype(_STORED[dtype.name])
    size = int(np.prod(shape, dtype=np.int64)) * stored.itemsize
    memory = np.zeros(size + 256, np.uint8)
    at = -memory.__array_interface__["data"][0] % 256
    return Tensor(memory[at : at + size].view(stored).reshape(shape), dtype)


def tensor(values: object, dtype: Dtype = _DTYPES["int32"], device: object = None) -> Tensor:
    made = np.asarray(values, _STORED[dtype.name])
    found = empty(made.shape, dtype)
    found.array[...] = made
    return found


def arange(end: int, dtype: Dtype = _DTYPES["int64"], device: object = None) -> Tensor:
    return tensor(np.arange(end), dtype)


def module() -> types.ModuleType:
    """What `import torch` gives."""
    torch = types.ModuleType("torch")
    torch.__version__ = "2.11"
    for name, dtype in _DTYPES.items():
        setattr(torch, name, dtype)
    torch.Tensor, torch.empty, torch.zeros = Tensor, empty, empty
    torch.tensor, torch.arange = tensor, arange
    stream = types.SimpleNamespace(cuda_stream=0)
    torch.cuda = types.SimpleNamespace(
        current_stream=lambda device=None: stream, is_available=lambda: False
    )
    torch.utils = types.SimpleNamespace(
        dlpack=types.SimpleNamespace(to_dlpack=lambda array: array.capsule())
    )
    return torch


def install(monkeypatch) -> types.ModuleType:
    torch = module()
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch
