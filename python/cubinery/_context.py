"""Contexts, which know no operator by name."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from cubinery import _arrays, _core, tuning
from cubinery._errors import refuse, refuse_type
from cubinery._kernel import Kernel, SourceOptions, checked_source
from cubinery._operator import Operator, operator_class
from cubinery._options import StrPath, path_bytes, text_of, with_paths
from cubinery._problem import OperatorT, Problem, checked


@dataclass(frozen=True)
class CacheStats:
    """Counts since the context was created."""

    memory_hits: int
    disk_hits: int
    misses: int  # neither in memory nor on disk
    compiles: int
    damaged: int  # entries that were passed over: damaged, foreign or newer
    failed_writes: int  # entries that could not be published


class Context:
    """Where kernels come from: compiler, cache and loaded kernels of one device.

    Immutable apart from its caches; all methods may be called from any thread.  The driver and the
    device's context are kept until the context and its operators are gone.

    Args:
        device: CUDA ordinal; -1 compiles for `arch` and needs no GPU.
        arch: "sm_90a" and so on (`cubinery.architectures()`); None: the device's own.
        offline: never compile; a kernel that the cache does not hold is a NotCachedError.
        nvrtc_path: path of libnvrtc.so.
        nvcc_path: path of nvcc, for kernels from texts that ask for it.
        driver_path: path of libcuda.so.1.
        cache_dir: the writable cache directory.
        cache_layers: read-only directories and packs (files of `cubinery cache export`),
            searched after it, in order.
        use_disk_cache: False: nothing is read from or written to disk.
        cache_limit_bytes: entries of cache_dir are evicted when they pass this size in all.
        trust_shared_dirs: load (templates too) from directories that others can write.
        trust: the same for these users and groups only, "uid:65534,gid:2000", or "all".
        lock_wait: seconds to wait for other processes that compile the same kernels, in one call.
        template_dirs: folders of templates searched before those of the library.
        paths: ways to compute that operators may take: "gdn_prefill=portable" only this one,
            "gdn_prefill=-portable" never this one; `choice()` names them.
        record: a file to which the context adds what it is asked for, a line for each thing, for
            `cubinery prewarm --manifest`.
        log: called as log(level, message), level "info" or "warning", from any thread; must not
            call the library.

    Paths are str, bytes or path objects, as Python's own functions take them.

    None leaves what the environment says (CUBINERY_CACHE_DIR and others, `cubinery/options.h`).

    Raises:
        InvalidArgumentError: an unknown or missing arch, a device that is not there, an option or
            variable with a value that it does not take.
        UnsupportedError: no driver, one that is too old, or an arch that does not run there.
    """

    def __init__(
        self,
        device: int = 0,
        *,
        arch: str | None = None,
        offline: bool | None = None,
        nvrtc_path: StrPath | None = None,
        nvcc_path: StrPath | None = None,
        driver_path: StrPath | None = None,
        cache_dir: StrPath | None = None,
        cache_layers: Sequence[StrPath] | None = None,
        use_disk_cache: bool | None = None,
        cache_limit_bytes: int | None = None,
        trust_shared_dirs: bool | None = None,
        trust: str | None = None,
        lock_wait: float | None = None,
        template_dirs: Sequence[StrPath] | None = None,
        paths: Sequence[str] | None = None,
        record: StrPath | None = None,
        log: Callable[[str, str], object] | None = None,
    ) -> None:
        options = {
            "device": device,
            "arch": arch,
            "offline": offline,
            "nvrtc_path": nvrtc_path,
            "nvcc_path": nvcc_path,
            "driver_path": driver_path,
            "cache_dir": cache_dir,
            "cache_layers": cache_layers,
            "use_disk_cache": use_disk_cache,
            "cache_limit_bytes": cache_limit_bytes,
            "trust_shared_dirs": trust_shared_dirs,
            "trust": trust,
            "lock_wait": lock_wait,
            "template_dirs": template_dirs,
            "paths": paths,
            "record": record,
        }
        self._given = {name: value for name, value in options.items() if value is not None}
        given = {name: text_of(name, value) for name, value in self._given.items()}
        if log is not None and not callable(log):
            refuse_type("log", log, "a callable of level and message, or None")
        self._handle = _core.context_create(given, log)
        self._arch, self._device, self._sm_count = _core.context_info(self._handle)
        self._operators: dict[tuple[Any, ...], Operator[Any]] = {}

    def __repr__(self) -> str:
        """Its architecture, and what it was given."""
        given = {
            name: value for name, value in self._given.items() if name not in ("device", "arch")
        }
        options = "".join(f", {name}={value!r}" for name, value in given.items())
        return f"Context({self._device}, arch={self._arch!r}{options})"

    @property
    def arch(self) -> str:
        """ "sm_90a"."""
        return self._arch

    @property
    def device(self) -> int:
        """CUDA ordinal; -1 without one."""
        return self._device

    @property
    def sm_count(self) -> int:
        """Streaming multiprocessors; 0 without a device."""
        return self._sm_count

    @property
    def nvrtc_version(self) -> str:
        """ "13.0.88".  Raises UnsupportedError: says where NVRTC was looked for, or offline."""
        return _core.context_nvrtc_version(self._handle)

    def stats(self) -> CacheStats:
        return CacheStats(*_core.context_stats(self._handle))

    def prepare(self, problem: Problem[OperatorT]) -> OperatorT:
        """The problem's operator: loads or compiles its kernels, so call it off the request path.

        Raises:
            InvalidArgumentError: names the field of the problem.
            CompileError, NotCachedError, UnsupportedError, DriverError.
        """
        operator: OperatorT = operator_class(checked(problem).op)(self, problem)
        return operator

    def _kept_operator(self, fields: tuple[str, ...], key: tuple[Any, ...]) -> Any:
        """The operator of a problem whose class and values of `fields` are the key: made once."""
        operator = self._operators.get(key)
        if operator is None:
            problem, *values = key
            made = self.prepare(problem(**dict(zip(fields, values))))
            # Of threads that come here at the same time, all go on with the first one's operator;
            # the library has compiled its kernels once.
            operator = self._operators.setdefault(key, made)
        return operator

    def compile(self, problem: Problem[Any] | Sequence[Problem[Any]]) -> list[dict[str, Any]]:
        """Makes sure that the cache holds the problem's kernels, without loading them.  Needs no GPU.

        They are compiled side by side, those of a list of problems too, and `log` is told of each.

        Returns:
            For each kernel, which a list names once, "kernel", "canonical", "arch", "source" ("memory", "disk" or
            "compiled"), "path", "nvrtc", "registers", "spill_store_bytes", "spill_load_bytes",
            "compile_ms".

        Raises: as prepare(), less DriverError.

        compile_source() does the same for a kernel from a text.
        """
        if isinstance(problem, (list, tuple)):
            listed = (
                f'{{"op": "{checked(each).op}", "problem": {each.to_json()}}}' for each in problem
            )
            text = _core.context_compile_problems(self._handle, f"[{', '.join(listed)}]")
        else:
            one = checked(problem)
            text = _core.context_compile(self._handle, one.op, one.to_json())
        return [with_paths(report, "path") for report in json.loads(text)]

    def explain(self, problem: Problem[Any]) -> list[dict[str, Any]]:
        """Why the problem's kernels are, or are not, in the cache.  Compiles nothing.

        Returns:
            For each kernel "kernel", "canonical", "identity", "source_path", "options", "cached",
            "path", "nearest_path", "differences".
        """
        text = _core.context_explain(self._handle, checked(problem).op, problem.to_json())
        names = ("path", "nearest_path", "source_path")
        return [with_paths(report, *names) for report in json.loads(text)]

    def kernel(self, source: str, **given: Unpack[SourceOptions]) -> Kernel:
        """A kernel of your own from a text: loads or compiles it, so call it off the request path.

            kernel = context.kernel(source, name="scale")
            kernel[grid, block](x, 2.0, n)

        Args:
            source: CUDA C++.
            given: name, includes, options, allow_spills, compiler, share_headers, each of which
                may be left out: see SourceOptions.

        Raises:
            InvalidArgumentError: a name that is none, an empty text, a file that cannot be
                included, an option that is refused.
            CompileError: `log` has the compiler's text; also no such function, several, or spills
                that are not allowed.
            NotCachedError, UnsupportedError, DriverError: as prepare().
        """
        return Kernel(self, checked_source(source, given))

    def compile_source(self, source: str, **given: Unpack[SourceOptions]) -> dict[str, Any]:
        """Makes sure that the cache holds a kernel from a text, without loading it.  Needs no GPU.

        Args: as for kernel().

        Returns:
            "kernel", "canonical", "arch", "source" ("memory", "disk" or "compiled"), "path",
            "nvrtc", "symbol", "registers", "static_shared_bytes", "spill_store_bytes",
            "spill_load_bytes", "compile_ms", "log".

        Raises: as kernel(), less DriverError.
        """
        report = _core.context_compile_source(self._handle, *checked_source(source, given))
        return with_paths(json.loads(report), "path")

    def explain_source(self, source: str, **given: Unpack[SourceOptions]) -> dict[str, Any]:
        """Why a kernel from a text is, or is not, in the cache.  Compiles nothing.

        Args: as for kernel().

        Returns: as explain() for each kernel.
        """
        text = _core.context_explain_source(self._handle, *checked_source(source, given))
        report = json.loads(text)
        return with_paths(report, "path", "nearest_path", "source_path")

    def listing(
        self, source: str, form: Literal["ptx", "sass"], **given: Unpack[SourceOptions]
    ) -> str:
        """A kernel from a text as "ptx", what the compiler hands to the assembler, or as "sass",
        what the GPU executes, by the toolkit's nvdisasm.

        Args: as for kernel().

        Raises: as kernel(), less DriverError; UnsupportedError: there is no nvdisasm.
        """
        lists = {"ptx": _core.context_ptx, "sass": _core.context_sass}
        if form not in lists:
            refuse("form", form, ", ".join(lists))
        return lists[form](self._handle, *checked_source(source, given))

    def tune(
        self,
        problem: Problem[Any],
        shapes: Sequence[Mapping[str, int]],
        *,
        budget: float = 600,
        progress: tuning.Progress | None = None,
        exhaustive_up_to: int = 256,
        seed: int = 1,
        compile_threads: int = 0,
        directory: StrPath = "",
        again: bool = False,
    ) -> dict[str, Any]:
        """Measures which kernels of the problem are fastest for some shapes, and writes it down.

        Slow; needs the GPU for itself.  Continues where an earlier call stopped.  Operators that
        are created afterwards take the results.

        Args:
            shapes: {"batch": 8} for a decode; {"tokens": 8192, "sequences": 4} for a prefill, with
                "max_seqlen" where one sequence is longer than the others; {"batch": 8,
                "tokens_each": 4} for a verification; {"tokens": 8192, "sequences": 4} for a
                convolution, with "channels" where it does not split.
            budget: seconds for all shapes.
            progress: called with a dict of "op", "bucket", "shapes_done", "shapes", "measured",
                "candidates", "best", "best_ms", "default_ms", "what"; ends the tuning when it
                returns something true or raises, after the measurement that is running.
            exhaustive_up_to: larger spaces are searched instead of gone through.
            seed: of that search.
            compile_threads: 0: as many as there are processors.
            directory: where measurements and results are; "": "tuning" in the cache directory.
            again: measure again what the directory already has.

        Returns:
            "shapes" (for each "shape", "bucket", "complete", "why", and when it is complete
            "chosen", "default", "chosen_ms", "default_ms", "margin", "uncertainty"), "measured",
            "reused", "rejected", "stopped", "directory".

        Raises:
            InvalidArgumentError: a shape or setting that is not taken.
            UnsupportedError: no device, or no NVRTC.
            CacheIOError: the directory cannot be written.
            DriverError: CUDA failed in a way that ends everything.
        """
        settings = tuning.settings_of(budget, exhaustive_up_to, seed, compile_threads, again)
        where = path_bytes("directory", directory)
        return tuning.tune(self._handle, checked(problem), shapes, settings, progress, where)


_contexts: dict[int, Context] = {}
_contexts_lock = threading.Lock()


def _forget_lock() -> None:
    """A thread that held it may not be in this child of a fork."""
    global _contexts_lock
    _contexts_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def checked_context(context: object) -> Context:
    """The context.  Raises InvalidArgumentError for anything else."""
    if not isinstance(context, Context):
        refuse_type("context", context, "a cubinery.Context, or None")
    return context


def context_of(device: int) -> Context:
    """The context that calls without one use: one per device, made from the environment."""
    context = _contexts.get(device)
    if context is None:
        with _contexts_lock:
            context = _contexts.get(device)
            if context is None:
                context = _contexts[device] = Context(device)
    return context


def context_for(context: Context | None, name: str, array: Any) -> Context:
    """The context that is given, or the one of the array's device.

    Raises:
        InvalidArgumentError: neither; the message names the argument.
    """
    if context is None:
        return context_of(_arrays.device_of(array, name))
    return context if type(context) is Context else checked_context(context)
