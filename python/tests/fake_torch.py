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
_SHORT = {long: short for short, long in fake_gpu._LONG.items()}


def stored(name: str) -> np.dtype:
    """What a dtype of torch is kept as."""
    return np.dtype(_STORED[name])


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
        self._shown: list[fake_gpu.FakeArray] = []

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
        return self._like(self.array[at.array if isinstance(at, Tensor) else at])

    def __setitem__(self, at: object, value: Tensor) -> None:
        self.array[at.array if isinstance(at, Tensor) else at] = value.array

    def _with(self, other: object, compute: object, dtype: Dtype | None = None) -> Tensor:
        other = other.array if isinstance(other, Tensor) else other
        dtype = dtype or self.dtype
        return tensor(compute(self.array, other), dtype)

    def __add__(self, other: object) -> Tensor:
        return self._with(other, np.add)

    def __sub__(self, other: object) -> Tensor:
        return self._with(other, np.subtract)

    def __mul__(self, other: object) -> Tensor:
        return self._with(other, np.multiply)

    def __floordiv__(self, other: object) -> Tensor:
        return self._with(other, np.floor_divide)

    def __gt__(self, other: object) -> Tensor:
        return self._with(other, np.greater, _DTYPES["bool"])

    def cumsum(self, axis: int) -> Tensor:
        return tensor(self.array.cumsum(axis), self.dtype)

    def numel(self) -> int:
        return self.array.size

    def view(self, *shape: int) -> Tensor:
        array = self.array.view()
        array.shape = shape  # refuses to copy
        return self._like(array)

    def unflatten(self, axis: int, shape: tuple[int, int]) -> Tensor:
        axis %= self.array.ndim
        inner = shape[1] if shape[1] > 0 else self.shape[axis] // shape[0]
        extents, strides = list(self.shape), list(self.stride())
        extents[axis : axis + 1] = [extents[axis] // inner, inner]
        strides[axis : axis + 1] = [strides[axis] * inner, strides[axis]]
        return self.as_strided(extents, strides)

    def as_strided(self, shape: object, strides: object) -> Tensor:
        bytes_ = [stride * self.array.itemsize for stride in strides]
        return self._like(np.lib.stride_tricks.as_strided(self.array, tuple(shape), bytes_))

    def transpose(self, one: int, other: int) -> Tensor:
        return self._like(self.array.swapaxes(one, other))

    def expand(self, *shape: int) -> Tensor:
        return self._like(np.broadcast_to(self.array, shape))

    def split(self, sizes: list[int], dim: int) -> list[Tensor]:
        assert sum(sizes) == self.shape[dim]
        return [self._like(each) for each in np.split(self.array, np.cumsum(sizes)[:-1], dim)]

    def flatten(self, axis: int) -> Tensor:
        return self._like(self.array.reshape(*self.shape[:axis], -1))

    def zero_(self) -> None:
        self.array[...] = 0

    def copy_(self, other: Tensor) -> None:
        self.array[...] = other.array

    def index_select(self, axis: int, rows: Tensor) -> Tensor:
        return self._like(self.array.take(rows.array, axis))

    def index_copy_(self, axis: int, rows: Tensor, values: Tensor) -> None:
        assert axis == 0
        self.array[rows.array] = values.array

    def new_empty(self, shape: tuple[int, ...], dtype: Dtype | None = None) -> Tensor:
        return empty(shape, dtype=dtype or self.dtype)

    def new_zeros(self, shape: tuple[int, ...]) -> Tensor:
        return empty(shape, dtype=self.dtype)

    def to(self, dtype: Dtype) -> Tensor:
        return tensor(self.array, dtype)

    def max(self) -> object:
        return self.array.max()

    def capsule(self) -> object:
        shown = fake_gpu.FakeArray(
            *self.shape, dtype=_SHORT[self.dtype.name], strides=self.stride()
        )
        shown._managed.tensor.data = ctypes.c_void_p(self.data_ptr())
        self._shown.append(shown)  # what the capsule points to lives as long as the tensor
        return shown.__dlpack__()


def empty(shape: tuple[int, ...], dtype: Dtype = _DTYPES["float32"], device: object = None):
    """Aligned as torch's."""
    kept = stored(dtype.name)
    size = int(np.prod(shape, dtype=np.int64)) * kept.itemsize
    memory = np.zeros(size + 256, np.uint8)
    at = -memory.__array_interface__["data"][0] % 256
    return Tensor(memory[at : at + size].view(kept).reshape(shape), dtype)


def tensor(values: object, dtype: Dtype = _DTYPES["int32"], device: object = None) -> Tensor:
    made = np.asarray(values, stored(dtype.name))
    found = empty(made.shape, dtype)
    found.array[...] = made
    return found


def arange(end: int, dtype: Dtype = _DTYPES["int64"], device: object = None) -> Tensor:
    return tensor(np.arange(end), dtype)


def cat(parts: list[Tensor]) -> Tensor:
    return tensor(np.concatenate([each.array for each in parts]), parts[0].dtype)


def module() -> types.ModuleType:
    """What `import torch` gives."""
    torch = types.ModuleType("torch")
    torch.__version__ = "2.11"
    for name, dtype in _DTYPES.items():
        setattr(torch, name, dtype)
    torch.Tensor, torch.empty, torch.zeros = Tensor, empty, empty
    torch.tensor, torch.arange, torch.cat = tensor, arange, cat
    stream = types.SimpleNamespace(cuda_stream=0)
    torch.cuda = types.SimpleNamespace(
        current_stream=lambda device=None: stream, is_available=lambda: False,
        is_current_stream_capturing=lambda: False, current_device=lambda: 0,
    )  # fmt: skip
    torch.utils = types.SimpleNamespace(
        dlpack=types.SimpleNamespace(to_dlpack=lambda array: array.capsule())
    )
    return torch


def install(monkeypatch) -> types.ModuleType:
    torch = module()
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch
