"""Kernels from texts, as objects to launch; _context.py makes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from cubinery import _core
from cubinery._errors import refuse, refuse_type
from cubinery._options import StrPath, path_bytes, plain_text

if TYPE_CHECKING:
    from cubinery._context import Context

# What _core takes of a text.
Source = tuple[str, str, list[bytes], list[str], bool, str, bool]

Compiler = Literal["nvrtc", "nvcc"]


class SourceOptions(TypedDict, total=False):
    """What a text may be given with, all by keyword.  It is cached under the name, the text, every
    file that it includes, the options and the compiler, by content."""

    #: Of the __global__ function; "ns::scale<float, 4>" names an instance of a template; "": the
    #: only one that the text makes.
    name: str
    #: Folders that #include looks in, in this order.
    includes: Sequence[StrPath]
    #: More for the compiler, such as "-DBLOCK=256" and "--use_fast_math"; those that name files, or
    #: change what is made, are refused.
    options: Sequence[str]
    #: False: a kernel that spills registers is a CompileError.  Default True.
    allow_spills: bool
    #: "nvrtc", in the process, or "nvcc" with g++, of the toolkit, for what NVRTC cannot.  Nothing
    #: falls back from one to the other.
    compiler: Compiler
    #: NVRTC precompiles the headers before the first token, for this text and for others of the
    #: process that begin with the same ones: with CuTe each further kernel compiles in an eighth of
    #: the time.  Takes 400 MB of memory until the process ends; kernels are the same.
    share_headers: bool


@dataclass(frozen=True)
class KernelInfo:
    """What the compiler and the cache know about a kernel."""

    kernel: str  # the function's name
    canonical: str  # with what the cache knows it by
    arch: str  # "sm_90a"
    nvrtc: str  # "13.0.88"
    symbol: str  # in the cubin
    registers: int  # per thread
    static_shared_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    compile_ms: float  # when it was compiled
    log: str  # the compiler's, empty when it had nothing to say but resources
    parameter_bytes: tuple[int, ...]  # the size of each parameter


def _texts(name: str, value: object, what: str) -> list[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        refuse_type(name, value, f"a list or tuple of {what}")
    return list(value)


def checked_source(source: object, given: SourceOptions) -> Source:
    """The arguments of Context.kernel() as _core takes them.

    Raises:
        InvalidArgumentError: names the argument.
        TypeError: an argument that there is none of.
    """
    if not isinstance(source, str):
        refuse_type("source", source, "a str of CUDA C++")
    for keyword in given:
        if keyword not in SourceOptions.__annotations__:
            accepted = ", ".join(SourceOptions.__annotations__)
            raise TypeError(f"unexpected keyword argument {keyword!r}; accepted: {accepted}")
    compilers = get_args(Compiler)
    compiler = given.get("compiler", compilers[0])
    if compiler not in compilers:
        refuse("compiler", compiler, ", ".join(compilers))
    includes, options = given.get("includes", ()), given.get("options", ())
    folders = _texts("includes", includes, "str, bytes or paths")
    return (
        plain_text("source", source),
        plain_text("name", given.get("name", "")),
        [path_bytes(f"includes[{i}]", folder) for i, folder in enumerate(folders)],
        [
            plain_text(f"options[{i}]", option)
            for i, option in enumerate(_texts("options", options, "str"))
        ],
        not given.get("allow_spills", True),
        compiler,
        bool(given.get("share_headers", False)),
    )


class Kernel:
    """A kernel from a text, loaded on one device: Context.kernel() and cubinery.compile() make it.

        kernel[grid, block](x, y, 2.0, n)
        kernel[grid, block, shared_bytes](x, y, 2.0, n)

    Grid and block are ints, or tuples of up to three.  launch() has everything else.  Thread-safe.
    It may be used when its context is gone, and lives as long as CUDA graphs that captured it need
    it only if somebody keeps it.

    Arguments, by position, are copied byte by byte; the kernel says how many and of what size:

    - an array on the kernel's device, of any library with DLPack or CUDA's array interface, any
      dtype and shape: the address of its first element.  Strides are the kernel's affair.  Of an
      array with nothing but CUDA's array interface the device is not checked;
    - None: a null pointer;
    - a bool or int: an integer of 1, 2, 4 or 8 bytes, which it has to fit, or an address;
    - a float: float or double;
    - a scalar of numpy or the like, a ctypes value or structure, bytes, and whatever else shows its
      bytes as a buffer: these, exactly as many as the parameter has.  So numpy.float16(1) for a
      __half.

    The symbol of a C++ function tells its types: then an int for a float, a float for an integer or
    a pointer, and an array for a number are refused.  Of extern "C" functions, and of parameters
    that are classes, only sizes are known: an int for a float is its bits.

    Attributes:
        context: the context that it comes from.
        name: as it was given.
        info: registers, spills, symbol, sizes of parameters and more.
    """

    def __init__(self, context: Context, given: Source) -> None:
        self.context = context
        self.name = given[1]
        self._handle = _core.kernel_create(context._handle, *given)
        known = {field.name for field in fields(KernelInfo)}
        info = {k: v for k, v in json.loads(_core.kernel_info(self._handle)).items() if k in known}
        info["parameter_bytes"] = tuple(info["parameter_bytes"])
        self.info = KernelInfo(**info)

    def __repr__(self) -> str:
        count = len(self.info.parameter_bytes)
        return f"<cubinery.Kernel {self.name} on cuda:{self.context.device}, {count} arguments>"

    def __getitem__(self, config: Any) -> _core.KernelLaunch:
        """`kernel[grid, block]` or `kernel[grid, block, shared_bytes]`: a callable of the kernel's
        arguments, which may be kept.

        Raises:
            InvalidArgumentError: something else in the brackets.
        """
        if type(config) is not tuple or not 2 <= len(config) <= 3:
            refuse("kernel[...]", config, "kernel[grid, block], kernel[grid, block, shared_bytes]")
        return _core.kernel_with(self._handle, *config)

    def launch(
        self,
        *args: Any,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        shared_bytes: int = 0,
        cluster: int | tuple[int, ...] = 1,
        cooperative: bool = False,
        enable_pdl: bool = False,
        stream: int | None = None,
    ) -> None:
        """Enqueues the kernel; does not wait, and may be captured in a CUDA graph.

        Args:
            args: what the __global__ function takes, as the class says.
            grid: blocks.
            block: threads of each.
            shared_bytes: dynamic shared memory of each.
            cluster: blocks of a thread block cluster, which divide the grid; sm_90 and newer.
            cooperative: all blocks are resident at once, and the grid may wait for itself.
            enable_pdl: the kernel may start before the one in front of it has ended, and waits for
                it itself (programmatic dependent launch); sm_90 and newer.
            stream: a cudaStream_t as a number; None: the current one of the first array's library,
                without arrays the legacy default stream.

        Raises:
            InvalidArgumentError: another number of arguments; one of another kind or size, that
                does not fit, or on another device: the message names its position; a grid, block,
                cluster or shared memory that the device does not have.
            UnsupportedError: clusters or programmatic dependent launches before sm_90.
            DriverError: CUDA refused the launch.
        """
        _core.kernel_with(
            self._handle, grid, block, shared_bytes, cluster, cooperative, enable_pdl, stream
        )(*args)
