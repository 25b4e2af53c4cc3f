"""Contexts and operators: what is prepared when a model is loaded, and called for every step."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, overload

from cubinery import _arrays, _core, tuning
from cubinery._errors import InvalidArgumentError
from cubinery.problems import DecodeProblem, PrefillProblem

StrPath = str | PathLike[str]


@dataclass(frozen=True)
class CacheStats:
    """Counts since the context was created."""

    memory_hits: int
    disk_hits: int
    misses: int  # neither in memory nor on disk
    compiles: int
    damaged: int  # entries that were passed over: damaged, foreign or newer
    failed_writes: int  # entries that could not be published


def _option_text(name: str, value: object) -> str:
    """An option as the C API takes it."""
    if isinstance(value, bool):
        return str(int(value))
    if not isinstance(value, (list, tuple)):
        return str(value)
    paths = [str(path) for path in value]
    for path in paths:
        if ":" in path:
            raise InvalidArgumentError(f"{name}: {path!r}; accepted: paths without a colon")
    return ":".join(paths)


class Context:
    """Where kernels come from: compiler, cache and loaded kernels of one device.

    Immutable apart from its caches; all methods may be called from any thread.  The driver and the
    device's context are kept until the context and its operators are gone.

    Args:
        device: CUDA ordinal; -1 compiles for `arch` and needs no GPU.
        arch: "sm_90a" and so on (`cubinery.architectures()`); None: the device's own.
        offline: never compile; a kernel that the cache does not hold is a NotCachedError.
        nvrtc_path: path of libnvrtc.so.
        driver_path: path of libcuda.so.1.
        cache_dir: the writable cache directory.
        cache_layers: read-only directories searched after it, in order.
        use_disk_cache: False: nothing is read from or written to disk.
        cache_limit_bytes: entries of cache_dir are evicted when they pass this size in all.
        trust_shared_dirs: load from directories that others can write.
        lock_wait: seconds to wait for another process that compiles the same kernel.
        template_dirs: folders of templates searched before those of the library.
        log: called as log(level, message), level "info" or "warning", from any thread; must not
            call the library.

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
        driver_path: StrPath | None = None,
        cache_dir: StrPath | None = None,
        cache_layers: Sequence[StrPath] | None = None,
        use_disk_cache: bool | None = None,
        cache_limit_bytes: int | None = None,
        trust_shared_dirs: bool | None = None,
        lock_wait: float | None = None,
        template_dirs: Sequence[StrPath] | None = None,
        log: Callable[[str, str], object] | None = None,
    ) -> None:
        options = {
            "device": device,
            "arch": arch,
            "offline": offline,
            "nvrtc_path": nvrtc_path,
            "driver_path": driver_path,
            "cache_dir": cache_dir,
            "cache_layers": cache_layers,
            "use_disk_cache": use_disk_cache,
            "cache_limit_bytes": cache_limit_bytes,
            "trust_shared_dirs": trust_shared_dirs,
            "lock_wait": None if lock_wait is None else round(lock_wait * 1000),
            "template_dirs": template_dirs,
        }
        given = {
            name: _option_text(name, value) for name, value in options.items() if value is not None
        }
        self._handle = _core.context_create(given, log)
        self._arch, self._device, self._sm_count = _core.context_info(self._handle)
        # Operators that cubinery.functional has made, by what it infers them from.
        self._operators: dict[tuple[Any, ...], Decode | Prefill] = {}

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

    @overload
    def prepare(self, problem: DecodeProblem) -> Decode: ...
    @overload
    def prepare(self, problem: PrefillProblem) -> Prefill: ...
    def prepare(self, problem: DecodeProblem | PrefillProblem) -> Decode | Prefill:
        """The problem's operator: loads or compiles its kernels, so call it off the request path.

        Raises:
            InvalidArgumentError: names the field of the problem.
            CompileError, NotCachedError, UnsupportedError, DriverError.
        """
        if isinstance(problem, DecodeProblem):
            return Decode(self, problem)
        return Prefill(self, problem)

    def compile(self, problem: DecodeProblem | PrefillProblem) -> list[dict[str, Any]]:
        """Makes sure that the cache holds the problem's kernels, without loading them.  Needs no GPU.

        Returns:
            For each kernel "kernel", "canonical", "arch", "source" ("memory", "disk" or
            "compiled"), "path", "nvrtc", "registers", "spill_store_bytes", "spill_load_bytes",
            "compile_ms".

        Raises: as prepare(), less DriverError.
        """
        text = _core.context_compile(self._handle, problem.op, problem.to_json())
        reports: list[dict[str, Any]] = json.loads(text)
        return reports

    def explain(self, problem: DecodeProblem | PrefillProblem) -> list[dict[str, Any]]:
        """Why the problem's kernels are, or are not, in the cache.  Compiles nothing.

        Returns:
            For each kernel "kernel", "canonical", "identity", "source_path", "options", "cached",
            "path", "nearest_path", "differences".
        """
        text = _core.context_explain(self._handle, problem.op, problem.to_json())
        reports: list[dict[str, Any]] = json.loads(text)
        return reports

    def tune(
        self,
        problem: DecodeProblem | PrefillProblem,
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
                "max_seqlen" where one sequence is longer than the others.
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
        settings = {
            "budget_ms": round(budget * 1000),
            "exhaustive_up_to": exhaustive_up_to,
            "seed": seed,
            "compile_threads": compile_threads,
            "directory": fspath(directory),
            "again": again,
        }
        return tuning.tune(self._handle, problem, shapes, settings, progress)


class Decode:
    """A decode operator on one device: one token per request.  Thread-safe.

    Raises: as Context.prepare().
    """

    def __init__(self, context: Context, problem: DecodeProblem) -> None:
        self.context = context
        self.problem = problem
        self._handle = _core.operator_create(context._handle, problem.op, problem.to_json())

    def choice(self, batch: int) -> dict[str, str]:
        """What a batch of this size launches: "path", "configuration", "rung" (how good a choice
        it is, "exact" to "default") and "why".
        """
        choice: dict[str, str] = json.loads(_core.operator_choice(self._handle, batch))
        return choice

    def __call__(
        self,
        q: Any,
        k: Any,
        v: Any,
        g: Any = None,
        beta: Any = None,
        *,
        A_log: Any = None,
        dt_bias: Any = None,
        out: Any,
        state: Any = None,
        state_out: Any = None,
        state_indices: Any = None,
        state_out_indices: Any = None,
        scratch_slot: int = 0,
        scale: float | None = None,
        programmatic: bool = False,
        stream: int | None = None,
    ) -> Any:
        """Enqueues one step of B requests on `stream`; does not allocate or wait.

        Arrays are on the context's device, have the problem's dtypes, and are read as they lie.
        H is the problem's heads; rows x cols of a state is V x K (vk) or K x V (kv).

        Args:
            q, k, v: [B, heads, dim] or [B, 1, heads, dim] with their own head counts.
            g: [B, H] or [B, 1, H]: g, alpha or a of gate_mode; None for gate_mode "none".
            beta: likewise; beta or its logit; None for beta_mode "one".
            A_log, dt_bias: [H], gate_mode "computed" only.
            out: [B, H, V] or [B, 1, H, V]; written.
            state: [B or slots, H, rows, cols].  None without has_initial_state and store_state.
            state_out: likewise, where new states go; None: in place.
            state_indices: [B], state_location "pool": slots that requests read.
            state_out_indices: [B]: slots that they write; None: those they read.
            scratch_slot: the slot of padding requests, padding "scratch".
            scale: None: key_dim ** -0.5.
            programmatic: the launch may overlap the kernel in front of it (sm_90 and newer).
            stream: a cudaStream_t as a number; None: the current stream of q's library (torch and
                cupy; for others the legacy default stream).

        Returns:
            out.

        Raises:
            InvalidArgumentError: names the array, what it is and what is accepted.
            UnsupportedError: programmatic before sm_90.
            DriverError: CUDA refused the launch.
        """
        _core.operator_launch(
            self._handle,
            stream,
            q,
            k,
            v,
            g,
            beta,
            A_log,
            dt_bias,
            out,
            state,
            state_out,
            state_indices,
            state_out_indices,
            scratch_slot,
            scale,
            programmatic,
        )
        return out


class Prefill:
    """A prefill operator on one device: whole sequences.  Thread-safe.

    Raises: as Context.prepare().
    """

    def __init__(self, context: Context, problem: PrefillProblem) -> None:
        self.context = context
        self.problem = problem
        self._handle = _core.operator_create(context._handle, problem.op, problem.to_json())
        self._token_axis = 1 if problem.token_layout == "bthd" else 2

    def workspace_bytes(self, tokens: int, sequences: int) -> int:
        """Bytes of workspace that every launch of at most this size needs.

        Args:
            tokens: of all sequences: B T, or the packed total.
            sequences: B, or N.
        """
        return _core.operator_workspace_bytes(self._handle, tokens, sequences)

    def choice(self, tokens: int, sequences: int, max_seqlen: int | None = None) -> dict[str, str]:
        """What a launch of this size runs, as Decode.choice().

        Args:
            tokens, sequences: as for workspace_bytes().
            max_seqlen: tokens of the longest sequence; None: not known.
        """
        text = _core.operator_choice(self._handle, tokens, sequences, max_seqlen or 0)
        choice: dict[str, str] = json.loads(text)
        return choice

    def __call__(
        self,
        q: Any,
        k: Any,
        v: Any,
        g: Any = None,
        beta: Any = None,
        *,
        A_log: Any = None,
        dt_bias: Any = None,
        out: Any,
        state: Any = None,
        state_out: Any = None,
        state_indices: Any = None,
        state_out_indices: Any = None,
        scratch_slot: int = 0,
        cu_seqlens: Any = None,
        checkpoints: Any = None,
        checkpoint_cu_starts: Any = None,
        workspace: Any = None,
        max_seqlen: int | None = None,
        scale: float | None = None,
        programmatic: bool = False,
        stream: int | None = None,
    ) -> Any:
        """Enqueues one prefill on `stream`; allocates nothing but a missing workspace.

        Arrays are on the context's device, have the problem's dtypes, and are read as they lie.
        H is the problem's heads; rows x cols of a state is V x K (vk) or K x V (kv).  Shapes are
        those of token_layout "bthd"; "bhtd" has the heads before the tokens everywhere.

        Args:
            q, k, v: [B, T, heads, dim] with their own head counts; varlen: [total, heads, dim] or
                [1, total, heads, dim].
            g: [B, T, H]: g, alpha or a of gate_mode; None for gate_mode "none".
            beta: likewise; beta or its logit; None for beta_mode "one".
            A_log, dt_bias: [H], gate_mode "computed" only.
            out: [B, T, H, V]; written.
            state: [N or slots, H, rows, cols].  None without has_initial_state and store_state.
            state_out: likewise, where final states go; None: in place.
            state_indices: [N], state_location "pool": slots that sequences read.
            state_out_indices: [N]: slots that they write; None: those they read.
            scratch_slot: the slot of padding sequences, padding "scratch".
            cu_seqlens: [N + 1], varlen only: sequence n is tokens cu_seqlens[n] to
                cu_seqlens[n + 1] - 1.
            checkpoints: [rows, H, rows of a state, cols]; with the problem's checkpoints.
            checkpoint_cu_starts: [N + 1], varlen with checkpoints: the rows of sequence n.
            workspace: one dimension without gaps, 256-byte aligned, of workspace_bytes() or more;
                nothing is kept in it between launches, launches that may overlap need one each.
                None: torch or cupy allocates it, tied to the launch's stream.
            max_seqlen: varlen: tokens of the longest sequence, as far as the caller knows; a hint
                for the choice of kernels; with batch_invariant results do not depend on it.
            scale, programmatic, stream: as for Decode.

        Returns:
            out.

        Raises:
            InvalidArgumentError: names the array, what it is and what is accepted.
            UnsupportedError: programmatic before sm_90.
            DriverError: CUDA refused the launch.
        """
        if workspace is None:
            workspace = self._new_workspace(q, cu_seqlens, stream)
        _core.operator_launch(
            self._handle,
            stream,
            workspace,
            q,
            k,
            v,
            g,
            beta,
            A_log,
            dt_bias,
            out,
            state,
            state_out,
            state_indices,
            state_out_indices,
            cu_seqlens,
            checkpoints,
            checkpoint_cu_starts,
            scratch_slot,
            scale,
            programmatic,
            max_seqlen or 0,
        )
        return out

    def _new_workspace(self, q: Any, cu_seqlens: Any, stream: int | None) -> Any:
        """A workspace for one launch."""
        shape = tuple(q.shape)
        if len(shape) == 4:
            sequences, tokens = shape[0], shape[0] * shape[self._token_axis]
        else:
            sequences, tokens = 1, shape[self._token_axis - 1] if len(shape) == 3 else 0
        if cu_seqlens is not None:
            sequences = max(cu_seqlens.shape[0] - 1, 0)
        size = self.workspace_bytes(tokens, sequences)
        return _arrays.workspace(q, size, stream, self.context.device) if size > 0 else None
