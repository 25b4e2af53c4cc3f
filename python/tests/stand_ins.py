"""Modules that stand for those that an engine imports and that are not there: torch, triton and what
else it needs.  Whatever is asked of them they have, and it does nothing.  The engine's own modules
are real.
"""

from __future__ import annotations

import abc
import importlib.abc
import importlib.machinery
import inspect
import re
import sys
import types
from collections.abc import Collection, Sequence
from typing import Any

# What engines can do without, or look for to learn on which machine they are.
_PROBED = {
    "_wmi", "aiter", "amdsmi", "deep_ep", "deep_gemm", "flashinfer", "libtpu", "mori", "nixl_ep", "org",
    "torch_npu", "torch_xla", "triton_kernels", "vllm_xpu_kernels",
}  # fmt: skip

_ABSENT = {"hpu", "mlu", "musa", "npu", "xpu"}  # of torch
_LISTS = {"__class_validators__", "__struct_fields__"}  # of transformers and msgspec

_CUDA = {
    "is_available": True, "device_count": 1, "current_device": 0,
    "get_device_capability": (9, 0), "is_current_stream_capturing": False,
}  # fmt: skip


class _Anything(abc.ABCMeta):
    """Of classes that are whatever a name is used as: base classes, decorators, values."""

    def __getattr__(cls, name: str) -> Any:
        if name in _LISTS:
            return []
        if name.startswith("__"):
            raise AttributeError(name)
        return _Thing

    def __iter__(cls) -> Any:
        return iter(())

    def __int__(cls) -> int:
        return 0

    def __setitem__(cls, item: Any, value: Any) -> None: ...

    def register(cls, *args: Any, **kwargs: Any) -> Any:
        return _Thing()

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__


class _Thing(metaclass=_Anything):
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __init_subclass__(cls, **kwargs: Any) -> None: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        is_decorator = len(args) == 1 and not kwargs and callable(args[0])
        return args[0] if is_decorator else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Thing()

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __getitem__(self, item: Any) -> Any:
        return self

    def hex(self) -> str:
        return ""

    def __setitem__(self, item: Any, value: Any) -> None: ...

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *raised: Any) -> None: ...

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __index__(self) -> int:
        return 0

    def __radd__(self, other: Any) -> Any:
        return other

    def __add__(self, other: Any) -> Any:
        return self

    __sub__ = __mul__ = __truediv__ = __floordiv__ = __or__ = __and__ = __add__
    __rmul__ = __rsub__ = __rtruediv__ = __rfloordiv__ = __ror__ = __neg__ = __pow__ = (
        lambda self, *other: self
    )

    def __lt__(self, other: Any) -> bool:
        return False

    __gt__ = __le__ = __lt__

    def __ge__(self, other: Any) -> bool:
        return True


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "99.0"
        if name.startswith("__") or name in _ABSENT:
            raise AttributeError(name)
        made = type(name, (_Thing,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, engine: str, real: Collection[str]) -> None:
        self.engine = engine
        self.real = {engine, *real, *_PROBED, *sys.stdlib_module_names}
        self.made: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if top == self.engine:
            found = importlib.machinery.PathFinder.find_spec(name, path)
            loader = None if found is None else found.loader
            if not isinstance(loader, importlib.machinery.ExtensionFileLoader):
                return found
        elif top in self.real or importlib.machinery.PathFinder.find_spec(top) is not None:
            return None
        self.made.add(name if top == self.engine else top)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None: ...


def _schema(function: Any, **given: Any) -> str:
    """torch.library.infer_schema(), as far as results are counted."""
    results = str(inspect.signature(function).return_annotation).count("Tensor")
    return f"() -> ({', '.join(['Tensor'] * results)})"


def install(engine: str, *real: str) -> set[str]:
    """Puts stand-ins in the place of an engine's compiled modules, and of all others that are not
    there, but for those of these names.  Returns the names of those that have been imported, which
    grows."""
    finder = _Finder(engine, real)
    sys.meta_path.insert(0, finder)
    sys.modules.setdefault("regex", re)  # of which it is more
    import torch.cuda
    import torch.library
    import triton

    torch.library.infer_schema = _schema
    target = types.SimpleNamespace(backend="cuda", arch=90, warp_size=32)
    triton.runtime.driver.active.get_current_target = lambda: target
    torch.version = types.SimpleNamespace(cuda="13.0", hip=None, xpu=None)
    for name, value in _CUDA.items():
        setattr(torch.cuda, name, lambda *of, value=value: value)
    return finder.made
