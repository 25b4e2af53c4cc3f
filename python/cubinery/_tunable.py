"""Your own kernels with choices, tuned; cubinery/kernels.py shows them."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Unpack

from cubinery import _arrays, _core, tuning
from cubinery._context import Context, checked_context, context_of
from cubinery._errors import (
    CompileError,
    DriverError,
    NotCachedError,
    UnsupportedError,
    refuse,
    refuse_type,
)
from cubinery._kernel import Kernel, SourceOptions, checked_source
from cubinery._options import StrPath, path_bytes

# What becomes of one configuration: it is written down and never chosen.
_OWN_ERRORS = (CompileError, DriverError, UnsupportedError)
_MOST_SETS = 256  # of operands

Launch = Callable[..., object]


class StreamKernel:
    """A Kernel on a stream: its launches go there where they name none."""

    def __init__(self, kernel: Kernel, stream: int) -> None:
        self._kernel = kernel
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def __getitem__(self, config: Any) -> Callable[..., None]:
        self._kernel[config]  # raises what it raises there
        grid, block, *shared = config
        more = {"shared_bytes": shared[0]} if shared else {}

        def run(*args: Any) -> None:
            self.launch(*args, grid=grid, block=block, **more)

        return run

    def launch(self, *args: Any, stream: int | None = None, **given: Any) -> None:
        self._kernel.launch(*args, stream=self._stream if stream is None else stream, **given)


class TunedKernel:
    """A kernel for one size, ready to launch: TunableKernel.kernel() makes it.

    Attributes:
        kernel: the cubinery.Kernel.
        choices: the value of each choice, as attributes: `choices.BLOCK`.
        rung: how good a choice that is: "exact", "nearest shape", "stale", "default" and others.
        why: the reason.
    """

    def __init__(
        self, kernel: Kernel, choices: SimpleNamespace, launch: Launch, rung: str, why: str
    ) -> None:
        self.kernel = kernel
        self.choices = choices
        self.rung = rung
        self.why = why
        self._launch = launch

    def __call__(self, *args: Any) -> None:
        """Launches it: `launch(kernel, choices, *args)`."""
        self._launch(self.kernel, self.choices, *args)


def _checked_choices(choices: object) -> dict[str, list[Any]]:
    """Names of macros, and the values of each."""
    if not isinstance(choices, Mapping):
        refuse_type("choices", choices, "a mapping such as {'BLOCK': [128, 256]}")
    checked = {}
    for name, values in choices.items():
        if not isinstance(name, str) or not name.isidentifier():
            refuse("choices", name, "names of macros")
        where = f"choices[{name!r}]"
        if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
            refuse_type(where, values, "a list or tuple of int, bool or str")
        for value in values:
            if not isinstance(value, (int, str)):
                refuse(where, value, "int, bool, str")
        checked[name] = list(values)
    return checked


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _checked_call(name: str, value: object, what: str) -> None:
    if not callable(value):
        refuse_type(name, value, what)


class TunableKernel:
    """A kernel from a text with choices, of which the fastest is measured.

        scale = cubinery.TunableKernel(
            source, name="scale", choices={"BLOCK": [256, 128, 64], "VEC": [1, 2, 4]},
            launch=lambda kernel, c, x, n: kernel[-(-n // (c.BLOCK * c.VEC)), c.BLOCK](x, n))
        scale.tune([{"n": 4096}, {"n": 1 << 24}], operands=operands, check=check)  # once, idle GPU
        scale.kernel({"n": 100_000})(x, 100_000)

    Args:
        source: CUDA C++, which uses the choices as macros.
        choices: what each macro may be.  Each combination is compiled with options "-DBLOCK=256";
            the first values are the default.
        launch: called as `launch(kernel, c, *args)`: launches the kernel on args, with c.BLOCK the
            value that it was compiled with.  Nothing else: it is captured in CUDA graphs.
        valid: called with c of each combination; those that it returns false for are left out.
        context: None: that of the current device, as for cubinery.compile().
        given: as for Context.kernel(); the name is needed: results are kept under it.

    Raises:
        InvalidArgumentError: names the argument.
    """

    def __init__(
        self,
        source: str,
        *,
        choices: Mapping[str, Sequence[int | str]],
        launch: Launch,
        valid: Callable[[Any], object] | None = None,
        context: Context | None = None,
        **given: Unpack[SourceOptions],
    ) -> None:
        _checked_call("launch", launch, "a callable of a kernel, its choices and its arguments")
        if valid is not None:
            _checked_call("valid", valid, "a callable of choices, or None")
        self._choices = _checked_choices(choices)
        names = list(self._choices)
        combinations = [
            SimpleNamespace(**dict(zip(names, values, strict=True)))
            for values in itertools.product(*self._choices.values())
        ]
        kept = [valid is None or bool(valid(c)) for c in combinations]
        self._configurations = list(itertools.compress(combinations, kept))
        texts = [[name, [_text(value) for value in self._choices[name]]] for name in names]
        self._space = json.dumps({"choices": texts, "valid": kept})
        self._source, self._given = source, given
        self._packed = checked_source(source, given)
        if not self._configurations:
            refuse("choices", dict(choices), "at least one valid combination")
        self._launch = launch
        self._context = None if context is None else checked_context(context)

    @property
    def context(self) -> Context:
        """That it was given, or that of the current device."""
        return self._context or context_of(_arrays.current_device())

    def _given_for(self, index: int) -> SourceOptions:
        c = vars(self._configurations[index])
        macros = [f"-D{name}={_text(value)}" for name, value in c.items()]
        return {**self._given, "options": [*self._given.get("options", ()), *macros]}

    def _load(self, context: Context, index: int) -> Kernel:
        return context.kernel(self._source, **self._given_for(index))

    def compile(self, context: Context | None = None) -> list[dict[str, Any]]:
        """Makes sure that the cache holds every combination.  Needs no GPU: with a
        cubinery.Context(-1, arch="sm_90a"), for that architecture.

        Returns: for each, what Context.compile_source() does, and "choices".

        Raises: as Context.compile_source().
        """
        context = self.context if context is None else checked_context(context)
        return [
            {**context.compile_source(self._source, **self._given_for(i)), "choices": dict(vars(c))}
            for i, c in enumerate(self._configurations)
        ]

    def tune(
        self,
        shapes: Sequence[Mapping[str, int]],
        *,
        operands: Callable[..., Sequence[Any]],
        check: Callable[[Any], object],
        budget: float = 600,
        progress: tuning.Progress | None = None,
        exhaustive_up_to: int = 256,
        seed: int = 1,
        compile_threads: int = 0,
        directory: StrPath = "",
        again: bool = False,
    ) -> dict[str, Any]:
        """Measures which choices are fastest for some sizes, and writes it down.

        Slow; needs the GPU for itself.  Continues where an earlier call stopped.  kernel() takes
        the results, in this process and in others with the same cache directory or layers.  An
        edit of the text, or of what it includes, makes them stale.

        Args:
            shapes: {"n": 4096}: what distinguishes launches, each rounded to a power of two.
            operands: called as operands(n=4096), returns the arguments of one launch, new ones each
                time: launches go round several, so that each finds a cold L2.
            check: called as check(run), where `run(*args)` launches a combination.  Compares what
                it computes with a reference, on several sizes and kinds of data, with outputs that
                were NaN; returns whether it is right, or (error, limit).
            budget, progress, exhaustive_up_to, seed, compile_threads, directory, again: as for
                Context.tune().

        Returns: as Context.tune().

        Raises:
            InvalidArgumentError: a shape or setting that is not taken.
            CompileError: the default does not compile.  Another combination that does not is left
                out; so is one that CUDA refuses to launch.
            UnsupportedError, CacheIOError, DriverError: as for Context.tune().
            Whatever launch, operands, check or progress raise, which ends the tuning.
        """
        _checked_call("operands", operands, "a callable that returns the arguments of a launch")
        _checked_call("check", check, "a callable of a launch that returns whether it is right")
        settings = tuning.settings_of(budget, exhaustive_up_to, seed, compile_threads, again)
        context = self.context
        context.compile_source(self._source, **self._given_for(0))
        calls = _Calls(self, context, operands, check)
        return tuning.asked(
            progress,
            lambda told: _core.tune_source(
                (context._handle, *self._packed),
                self._space,
                tuning.shapes_json(shapes),
                tuning.settings_json(settings),
                calls,
                told,
                path_bytes("directory", directory),
            ),
            lambda: calls.error,
        )

    def kernel(self, shape: Mapping[str, int]) -> TunedKernel:
        """The fastest for a size that was measured, or else the default; loads or compiles it, so
        call it off the request path.  It does not measure, and does not fail for want of results.

        Args:
            shape: as for tune().

        Raises: as Context.kernel(), where the default cannot be had either.
        """
        context = self.context
        choice = json.loads(
            _core.choose_source(
                (context._handle, *self._packed), self._space, tuning.shapes_json([shape])
            )
        )
        index, rung, why = choice["index"], choice["rung"], choice["why"]
        try:
            kernel = self._load(context, index)
        except (NotCachedError, *_OWN_ERRORS) as error:
            if index == 0:
                raise
            index, rung = 0, "default"
            why = f"the kernel that tuning chose cannot be had: {error}"
            kernel = self._load(context, index)
        return TunedKernel(kernel, self._configurations[index], self._launch, rung, why)


@contextlib.contextmanager
def _current(stream: int, device: int) -> Iterator[None]:
    """The stream is the current one of PyTorch and CuPy, where they are in use."""
    with contextlib.ExitStack() as stack:
        torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
        if torch is not None and torch.cuda.is_initialized():
            stack.enter_context(_arrays.on_stream(torch, stream, device))
        if cupy is not None:
            stack.enter_context(_arrays.on_stream(cupy, stream, device))
        yield


class _Calls:
    """What python/source_tuning.cc calls.  Each returns why a configuration cannot be had, as a
    str, or None after an exception, which it keeps."""

    def __init__(
        self,
        of: TunableKernel,
        context: Context,
        operands: Callable[..., Sequence[Any]],
        check: Callable[[Any], object],
    ) -> None:
        self.error: BaseException | None = None
        self._of, self._context = of, context
        self._operands, self._check = operands, check
        self._kernels: dict[int, Kernel] = {}
        self._sets: list[Sequence[Any]] = []

    def _kept(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except _OWN_ERRORS as error:
            return str(error)
        except BaseException as error:
            self.error = error
            return None

    def prepare(self, index: int) -> Any:
        def load() -> bool:
            self._kernels[index] = self._of._load(self._context, index)
            return True

        return self._kept(load)

    def check(self, index: int) -> Any:
        def run(*args: Any) -> None:
            self._of._launch(self._kernels[index], self._of._configurations[index], *args)

        return self._kept(lambda: _checked_answer(self._check(run)))

    def make_operands(self, shape: str, l2_bytes: int) -> Any:
        def make() -> tuple[int, int]:
            sizes = json.loads(shape)
            self._sets = [tuple(self._operands(**sizes))]
            size = sum(int(getattr(one, "nbytes", 0)) for one in self._sets[0])
            count = 4 * l2_bytes // size + 1 if size > 0 else 0
            for _ in range(1, min(max(3, count), _MOST_SETS)):
                self._sets.append(tuple(self._operands(**sizes)))
            return len(self._sets), size

        return self._kept(make)

    def forget_operands(self) -> bool:
        self._sets = []
        return True

    def launch(self, index: int, stream: int, which: int) -> Any:
        def enqueue() -> bool:
            kernel = StreamKernel(self._kernels[index], stream)
            with _current(stream, self._context.device):
                self._of._launch(kernel, self._of._configurations[index], *self._sets[which])
            return True

        return self._kept(enqueue)


def _checked_answer(answer: Any) -> tuple[float, float, str]:
    """Error, limit and what was compared, of what a user's check returns."""
    if isinstance(answer, (tuple, list)) and len(answer) == 2:
        return float(answer[0]), float(answer[1]), "by check()"
    if not isinstance(answer, bool) and "bool" not in str(getattr(answer, "dtype", "")):
        raise TypeError(f"check() returned {answer!r}; accepted: True, False or (error, limit)")
    return float(not answer), 0.0, "check() is false"


__all__ = ["TunableKernel", "TunedKernel"]
