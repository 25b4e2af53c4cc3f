"""The module of python/core.cc.  Handles are opaque objects; JSON comes and goes as text."""

from collections.abc import Callable

def version() -> str: ...
def architectures() -> str: ...
def check_problem(op: str, problem: str, /) -> str: ...
def model_problems(config: str, tp: int, options: str, /) -> str: ...
def engine_problems(config: str, tp: int, engine: str, options: str, /) -> str: ...
def context_create(
    fields: dict[str, str | bytes], log: Callable[[str, str], object] | None, /
) -> object: ...
def context_info(context: object, /) -> tuple[str, int, int]: ...
def context_nvrtc_version(context: object, /) -> str: ...
def context_stats(context: object, /) -> tuple[int, int, int, int, int, int]: ...
def context_compile(context: object, op: str, problem: str, /) -> str: ...
def context_compile_problems(context: object, problems: str, /) -> str: ...
def context_explain(context: object, op: str, problem: str, /) -> str: ...
def tune(
    context: object,
    op: str,
    problem: str,
    shapes: str,
    settings: str,
    progress: Callable[[str], object],
    directory: bytes = ...,
    /,
) -> str: ...
def tune_source(
    text: tuple[object, ...],
    choices: str,
    shapes: str,
    settings: str,
    calls: object,
    progress: Callable[[str], object],
    directory: bytes,
    /,
) -> str: ...
def choose_source(text: tuple[object, ...], choices: str, shapes: str, /) -> str: ...
def tuning_report(directory: bytes, request: str, /) -> str: ...
def operator_create(context: object, op: str, problem: str, /) -> object: ...
def operator_choice(operator: object, /, *sizes: int) -> str: ...
def operator_workspace_bytes(operator: object, /, *sizes: int) -> int: ...
def operator_table(operator: object, /, *arrays: object) -> list[int]: ...
def operator_launch(operator: object, /, *arguments: object) -> None: ...

class KernelLaunch:
    """A kernel with grid and block; called with the kernel's arguments, it enqueues it."""

    def __call__(self, /, *arguments: object) -> None: ...

def kernel_create(
    context: object,
    source: str,
    name: str,
    includes: list[bytes],
    options: list[str],
    forbid_spills: bool,
    compiler: str,
    share_headers: bool,
    /,
) -> object: ...
def kernel_info(kernel: object, /) -> str: ...
def kernel_with(kernel: object, grid: object, block: object, /, *more: object) -> KernelLaunch: ...
def context_compile_source(
    context: object,
    source: str,
    name: str,
    includes: list[bytes],
    options: list[str],
    forbid_spills: bool,
    compiler: str,
    share_headers: bool,
    /,
) -> str: ...
def context_explain_source(
    context: object,
    source: str,
    name: str,
    includes: list[bytes],
    options: list[str],
    forbid_spills: bool,
    compiler: str,
    share_headers: bool,
    /,
) -> str: ...
def context_ptx(
    context: object,
    source: str,
    name: str,
    includes: list[bytes],
    options: list[str],
    forbid_spills: bool,
    compiler: str,
    share_headers: bool,
    /,
) -> str: ...
def context_sass(
    context: object,
    source: str,
    name: str,
    includes: list[bytes],
    options: list[str],
    forbid_spills: bool,
    compiler: str,
    share_headers: bool,
    /,
) -> str: ...
