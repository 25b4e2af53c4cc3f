"""CUDA kernels for Gated DeltaNet, compiled at first use and cached.

Works on arrays of PyTorch, CuPy, JAX and whatever else speaks DLPack; none of them is imported here.

    import cubinery

    out = cubinery.gdn_prefill(q, k, v, g, beta, state=state, use_qk_l2norm=True)
    out = cubinery.gdn_decode(q, k, v, g, beta, state=state, use_qk_l2norm=True)
    cubinery.compile(source, name="scale")[grid, block](x, 2.0, n)   # a kernel of your own

Engines prepare operators, which neither infer nor allocate:

    context = cubinery.Context(0)                                    # device 0
    problems = cubinery.problems_for_model("config.json", tp=2)      # one for each form of launch
    decode = context.prepare(problems.decode)                        # compiles, or loads: once
    decode(q, k, v, a, b, A_log=A_log, dt_bias=dt_bias, out=out, state=pool, state_indices=slots)
"""

from cubinery._core import architectures as _architectures
from cubinery._core import version as _version
from cubinery._context import CacheStats, Context
from cubinery._errors import (
    CacheIOError,
    CompileError,
    DriverError,
    Error,
    InternalError,
    InvalidArgumentError,
    InvalidKeyError,
    LeftOutWarning,
    NotCachedError,
    UnsupportedError,
)
from cubinery import conv as _conv
from cubinery import gdn as _gdn
from cubinery import problems as _problems
from cubinery import ranks as ranks
from cubinery.conv import *
from cubinery.gdn import *
from cubinery.kernels import Kernel, KernelInfo, SourceOptions, TunableKernel, TunedKernel
from cubinery.kernels import compile as compile  # not in __all__: `import *` leaves Python's own
from cubinery.models import problems_for_engine, problems_for_model
from cubinery.problems import *
from cubinery.tuning import tuning_report

__version__ = _version()


def architectures() -> tuple[str, ...]:
    """The architectures that kernels can be compiled for: "sm_80", ..., "sm_90a", ..."""
    return tuple(_architectures().split(","))


__all__ = [
    "CacheIOError",
    "CacheStats",
    "CompileError",
    "Context",
    "DriverError",
    "Error",
    "InternalError",
    "InvalidArgumentError",
    "InvalidKeyError",
    "Kernel",
    "KernelInfo",
    "LeftOutWarning",
    "NotCachedError",
    "SourceOptions",
    "TunableKernel",
    "TunedKernel",
    "UnsupportedError",
    "architectures",
    "problems_for_engine",
    "problems_for_model",
    "tuning_report",
]
__all__ += _conv.__all__
__all__ += _gdn.__all__
__all__ += _problems.__all__
