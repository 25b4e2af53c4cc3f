"""Tuning: which kernels are fastest here.  `Context.tune` measures, operators take the results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cubinery import _core
from cubinery._errors import Error, refuse, refuse_type
from cubinery._options import StrPath, milliseconds, path_bytes, with_paths
from cubinery._problem import Problem

# As Context.tune() describes it.
Progress = Callable[[dict[str, Any]], object]


class _Asked:
    """Passes progress on.  What the callable raises, Ctrl-C too, ends the tuning and is kept."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.error: BaseException | None = None

    def __call__(self, at: str) -> bool:
        try:
            return self.progress is not None and bool(self.progress(json.loads(at)))
        except BaseException as error:
            self.error = error
            return True


def settings_of(
    budget: float, exhaustive_up_to: int, seed: int, compile_threads: int, again: bool
) -> dict[str, object]:
    """What Context.tune() takes, as the C API names it."""
    return {
        "budget_ms": milliseconds("budget", budget),
        "exhaustive_up_to": exhaustive_up_to,
        "seed": seed,
        "compile_threads": compile_threads,
        "again": again,
    }


def settings_json(settings: Mapping[str, object]) -> str:
    return _json("settings", settings)


def _json(name: str, value: object) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        refuse(name, value, "numbers, text, True and False")


def shapes_json(shapes: object) -> str:
    """A sequence of mappings as JSON."""
    if not isinstance(shapes, Sequence) or isinstance(shapes, str):
        refuse_type("shapes", shapes, "a sequence of mappings such as {'batch': 8}")
    for i, shape in enumerate(shapes):
        if not isinstance(shape, Mapping):
            refuse_type(f"shapes[{i}]", shape, "a mapping such as {'batch': 8}")
    return _json("shapes", [dict(shape) for shape in shapes])


def asked(
    progress: Progress | None,
    call: Callable[[Callable[[str], bool]], str],
    error: Callable[[], BaseException | None] = lambda: None,
) -> dict[str, Any]:
    """The summary that call(progress) returns as JSON.

    What progress raises is raised, and before that what `error` says, also where the call fails.
    """
    if progress is not None and not callable(progress):
        refuse_type("progress", progress, "a callable, or None")
    asks = _Asked(progress)
    try:
        text = call(asks)
    except Error:
        if (own := error()) is not None:
            raise own from None
        raise
    if asks.error is not None:
        raise asks.error
    return with_paths(json.loads(text), "directory")


def tune(
    handle: object,
    problem: Problem[Any],
    shapes: Sequence[Mapping[str, int]],
    settings: Mapping[str, object],
    progress: Progress | None,
    directory: bytes = b"",
) -> dict[str, Any]:
    """Context.tune() with the context's handle, and settings as the C API names them."""
    return asked(
        progress,
        lambda told: _core.tune(
            handle,
            problem.op,
            problem.to_json(),
            shapes_json(shapes),
            settings_json(settings),
            told,
            *([directory] if directory else []),
        ),
    )


def tuning_report(
    directory: StrPath,
    *,
    format: str = "table",
    op: str = "",
    bucket: str = "",
    setting: str = "",
    copy_rate: float = 0,
) -> str:
    """What a directory of tuning results holds, as text.  Needs neither a GPU nor a context.

    Args:
        directory: where `Context.tune` wrote: its summary's "directory".
        format: "table" (for people), "json" (everything), "t4" or "kernel-tuner" (one setting's
            measurements, as other tools read them).
        op, bucket, setting: only settings of this operator or kernel, of this bucket
            ("states=256"), and whose id begins like this; empty: any.
        copy_rate: the best rate at which the GPU copies memory, in bytes per second, to compare
            times with; 0: not known.

    Raises:
        InvalidArgumentError: no setting fits, or several where the format describes one.
        CacheIOError: the directory or a file cannot be read.
    """
    request = {
        "format": format,
        "op": op,
        "bucket": bucket,
        "setting": setting,
        "copy_rate": copy_rate,
    }
    return _core.tuning_report(path_bytes("directory", directory), _json("request", request))
