"""What is done to arrays of any library: no library is imported that has not made an array."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import ModuleType
from typing import Any, NoReturn

from cubinery._errors import InvalidArgumentError, refuse_type

_CUDA_DEVICE_TYPES = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged
_SHORT_NAMES = {
    "float32": "f32",
    "bfloat16": "bf16",
    "float16": "f16",
    "int32": "i32",
    "int64": "i64",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
    "bool": "bool",
}
_FP8 = ("f8e4m3", "f8e5m2")
_LONG_NAMES = {short: long for long, short in _SHORT_NAMES.items()}
_ITEM_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "i32": 4, "i64": 8, "f8e4m3": 1, "f8e5m2": 1}
_dtype_names: dict[Any, str] = {}
_LIBRARIES = ("torch", "cupy", "jax", "numpy")
_library_names: dict[type, str] = {}  # "": another one's


def library(array: Any) -> ModuleType | None:
    """The top-level module that the array's type comes from: torch, cupy, jax or numpy, else None."""
    cls = type(array)
    name = _library_names.get(cls)
    if name is None:
        modules = (base.__module__.partition(".")[0] for base in cls.__mro__)
        names = ("jax" if module == "jaxlib" else module for module in modules)
        name = _library_names[cls] = next((n for n in names if n in _LIBRARIES), "")
    return sys.modules.get(name)


def library_name(array: Any) -> str:
    """ "torch", "cupy", "jax", "numpy", or the name of an unknown array's type."""
    module = library(array)
    return type(array).__name__ if module is None else module.__name__


def dtype_name(array: Any) -> str:
    """ "f32", "bf16", "f16", "i32", "i64", "f8e4m3", "f8e5m2" or "bool"; the library's own name for
    other dtypes."""
    dtype = array.dtype
    name = _dtype_names.get(dtype)
    if name is None:
        long = str(dtype).removeprefix("torch.")
        name = _dtype_names[dtype] = _SHORT_NAMES.get(long, long)
    return name


def item_bytes(array: Any) -> int:
    """Of an element of an array of numbers that the library knows."""
    return _ITEM_BYTES[dtype_name(array)]


def dtype_of(name: str, array: Any) -> str:
    """dtype_name() of one that the library knows.

    Raises:
        InvalidArgumentError: no array, or another dtype; the message begins with `name`.
    """
    try:
        dtype = dtype_name(array)
    except AttributeError:
        _refuse_value(name, array)
    if dtype not in _LONG_NAMES:
        raise InvalidArgumentError(f"{name}: has dtype {dtype}; accepted: {', '.join(_LONG_NAMES)}")
    return dtype


def dtype_or(name: str, array: Any, default: str) -> str:
    """dtype_of(); of None: the default."""
    return default if array is None else dtype_of(name, array)


def shape_of(name: str, array: Any) -> tuple[int, ...]:
    """Raises InvalidArgumentError for what is no array."""
    shape = getattr(array, "shape", None)
    if shape is None:
        _refuse_value(name, array)
    return tuple(shape)


def ranked_shape(name: str, array: Any, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """shape_of() of an array of one of these ranks.

    Raises:
        InvalidArgumentError: no array, or of another rank; the message begins with `name`.
    """
    shape = shape_of(name, array)
    if len(shape) not in ranks:
        accepted = " or ".join(str(rank) for rank in ranks)
        raise InvalidArgumentError(
            f"{name}: {len(shape)} dimensions; accepted: arrays of {accepted} dimensions"
        )
    return shape


def heads(name: str, array: Any, ranks: tuple[int, ...], axis: int) -> tuple[int, int]:
    """The extents of the axis of heads and of the last one.  Otherwise as ranked_shape()."""
    shape = ranked_shape(name, array, ranks)
    return shape[axis], shape[-1]


def strides_of(array: Any) -> tuple[int, ...] | None:
    """In elements; None where the library does not say."""
    module = library(array)
    name = "" if module is None else module.__name__
    if name == "torch":
        return tuple(array.stride())
    if name in ("cupy", "numpy"):
        return tuple(stride // array.itemsize for stride in array.strides)
    return None


def device_of(array: Any, name: str = "array") -> int:
    """The ordinal of the array's CUDA device.

    Raises:
        InvalidArgumentError: `array` is no array, or is not on a CUDA device; the message begins
            with `name`.
    """
    module = library(array)
    if module is not None and module.__name__ == "torch":
        if array.device.type == "cuda":
            return int(array.device.index)
        raise InvalidArgumentError(f"{name}: is on device {array.device}; accepted: CUDA devices")
    if not hasattr(array, "__dlpack_device__"):
        _refuse_value(name, array)
    device_type, ordinal = array.__dlpack_device__()
    if int(device_type) not in _CUDA_DEVICE_TYPES:
        where = "cpu" if int(device_type) == 1 else f"of DLPack type {int(device_type)}"
        raise InvalidArgumentError(f"{name}: is on device {where}; accepted: CUDA devices")
    return int(ordinal)


def empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """An uninitialised array of `like`'s library on `like`'s device.

    Args:
        dtype: what dtype_of() gives.

    Raises:
        InvalidArgumentError: another dtype, one that the library lacks, or an unknown library.
    """
    if dtype not in _LONG_NAMES:
        raise InvalidArgumentError(f"dtype: {dtype}; accepted: {', '.join(_LONG_NAMES)}")
    module = library(like)
    if module is None:
        raise InvalidArgumentError(
            f"an array like {library_name(like)} cannot be allocated; accepted: arrays of torch, "
            "cupy, jax or numpy, or outputs of your own (out=, workspace=)"
        )
    if module.__name__ == "torch":
        return module.empty(shape, dtype=getattr(module, _LONG_NAMES[dtype]), device=like.device)
    if module.__name__ == "jax":
        import jax.numpy

        return jax.numpy.empty(shape, _LONG_NAMES[dtype], device=like.device)
    with _device_scope(module, like):
        return module.empty(shape, _dtype_object(module, dtype))


def arange(like: Any, count: int) -> Any:
    """0 to count - 1, an array of `like`'s library on `like`'s device and in its dtype.

    Raises:
        InvalidArgumentError: an unknown library.
    """
    module = library(like)
    if module is None:
        raise InvalidArgumentError(
            f"an array like {library_name(like)} cannot be allocated; accepted: arrays of torch, "
            "cupy, jax or numpy"
        )
    if module.__name__ == "jax":
        import jax.numpy

        return jax.numpy.arange(count, dtype=like.dtype, device=like.device)
    with _device_scope(module, like):
        options = {"device": like.device} if module.__name__ == "torch" else {}
        return module.arange(count, dtype=like.dtype, **options)


def _dtype_object(module: ModuleType, dtype: str) -> Any:
    """The dtype of numpy and cupy, which have bf16 and fp8 through ml_dtypes."""
    if dtype not in ("bf16", *_FP8):
        return _LONG_NAMES[dtype]
    try:
        import ml_dtypes
    except ImportError:
        raise InvalidArgumentError(
            f"dtype: {dtype}; {module.__name__} has it only with the package ml_dtypes"
        ) from None
    return getattr(ml_dtypes, _LONG_NAMES[dtype])


def _device_scope(module: ModuleType, like: Any) -> Any:
    return like.device if module.__name__ == "cupy" else nullcontext()


def current_stream(array: Any, device: int) -> int:
    """The stream that the array's library works on: torch's and cupy's current one; of an array with
    nothing but CUDA's array interface the one that it names; for others the legacy default stream,
    0."""
    module = library(array)
    if module is not None and module.__name__ == "torch" and array.device.type == "cuda":
        return int(module.cuda.current_stream(device).cuda_stream)
    if module is not None and module.__name__ == "cupy":
        return int(module.cuda.get_current_stream(device).ptr)
    if hasattr(array, "__dlpack__"):
        return 0
    return getattr(array, "__cuda_array_interface__", {}).get("stream") or 0


def current_device() -> int:
    """The device that torch or cupy works on, where one of them has been imported and uses CUDA;
    else 0."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    return 0 if cupy is None else int(cupy.cuda.Device().id)


def interface_address(name: str, array: Any) -> int:
    """Where an array lies that has CUDA's array interface.

    Raises:
        InvalidArgumentError: it has a mask; the message begins with `name`.
    """
    interface = array.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise InvalidArgumentError(f"{name} has a mask; accepted: arrays without")
    return int(interface["data"][0])


def workspace(like: Any, size: int, stream: int | None, device: int) -> Any:
    """`size` bytes on `like`'s device, for kernels on `stream` (None: the library's current one):
    the library hands the memory on only to what comes later on that stream.

    Raises:
        InvalidArgumentError: the library does not order its memory by stream.
    """
    module = library(like)
    name = library_name(like)
    if module is None or name not in ("torch", "cupy"):
        raise InvalidArgumentError(
            f"workspace: None with arrays of {name}, whose memory is not tied to a stream; "
            f"accepted: an array of {size} bytes that lives until the launch has ended"
        )
    with nullcontext() if stream is None else on_stream(module, stream, device):
        return empty(like, (-(-size // _ITEM_BYTES["i64"]),), "i64")


class _Stream:
    """A CUDA stream as CuPy takes those of others."""

    def __init__(self, stream: int) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._stream  # of version 0 of this protocol


def on_stream(module: ModuleType, stream: int, device: int) -> Any:
    """The scope in which a stream of the current device is the current one of PyTorch or CuPy."""
    if module.__name__ == "torch":
        return module.cuda.stream(module.cuda.ExternalStream(stream, device=device))
    from_external = getattr(module.cuda.Stream, "from_external", None)
    if from_external is not None:  # CuPy 14 warns of the older way
        return from_external(_Stream(stream))
    return module.cuda.ExternalStream(stream, device)


def capsule(name: str, array: Any, stream: int) -> Any:
    """The DLPack capsule of an array whose library lacks DLPack's C exchange API, for work on
    `stream`.

    Raises:
        InvalidArgumentError: `array` is no array, or has a dtype that this version of its library
            does not hand on; the message begins with `name`.
    """
    module = library(array)
    if module is not None and module.__name__ == "torch":
        return _torch_capsule(name, array, module)
    if not hasattr(array, "__dlpack__"):
        _refuse_value(name, array)
    if int(array.__dlpack_device__()[0]) not in _CUDA_DEVICE_TYPES:
        return array.__dlpack__()
    # DLPack writes the legacy default stream as 1.
    return array.__dlpack__(stream=stream or 1)


def _torch_capsule(name: str, array: Any, torch: ModuleType) -> Any:
    try:
        return torch.utils.dlpack.to_dlpack(array)
    except (BufferError, RuntimeError):
        dtype = dtype_name(array)
        if dtype not in (*_FP8, "bool"):
            raise
        raise InvalidArgumentError(
            f"{name}: has dtype {dtype}, which torch {torch.__version__} does not hand on through "
            "DLPack; accepted: a newer PyTorch, or another dtype"
        ) from None


def _refuse_value(name: str, value: object) -> NoReturn:
    refuse_type(name, value, "arrays with __dlpack__")
