"""Exceptions: one class for each code of ``cubinery/status.h``."""

from __future__ import annotations

import re
from typing import NoReturn


class Error(Exception):
    """What the library refused or failed to do.

    Attributes:
        code: the name of the library's error code, "InvalidArgument" for example.
        log: the compiler's log of a CompileError, else empty.
    """

    code = "Error"

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class InvalidArgumentError(Error, ValueError):
    """Fix the call: the message names the argument, its value and what is accepted."""

    code = "InvalidArgument"


class InvalidKeyError(Error, ValueError):
    """Fix the kernel key: the message names the rule that it breaks."""

    code = "InvalidKey"


class CompileError(Error, RuntimeError):
    """Fix the template: ``log`` holds the compiler's text."""

    code = "CompileFailed"


class NotCachedError(Error, LookupError):
    """An offline context has no entry for the kernel: fill the cache (``cubinery prewarm``)."""

    code = "NotCached"


class UnsupportedError(Error, NotImplementedError):
    """Needs another GPU, driver or NVRTC, or is not there yet: the message says which."""

    code = "Unsupported"


class DriverError(Error, RuntimeError):
    """CUDA said no: the message holds its error name."""

    code = "Driver"


class CacheIOError(Error, OSError):
    """A file could not be read or written."""

    code = "Io"


class InternalError(Error, RuntimeError):
    """Out of memory, or an error in the library itself."""

    code = "Internal"


_CLASSES: dict[str, type[Error]] = {
    cls.code: cls
    for cls in (
        InvalidArgumentError,
        InvalidKeyError,
        CompileError,
        NotCachedError,
        UnsupportedError,
        DriverError,
        CacheIOError,
    )
}


# What the library's messages, which speak C++, call what Python calls otherwise.
_WORDS = (
    (r"\bOptions::(?=\w)", ""),
    (r"\A(settings|request)\.(?=\w)", ""),
    (r"\bwith kNoDevice\b", "with device=-1"),
    (r"\b(device = )?kNoDevice\b", "device=-1"),
    (r'\Aarch = ""(?=;)', "arch = None"),
    (r"\bleave it empty for\b", "leave it out for"),
    (r"\A(\w+): o (?=is |has )", r"\1: out "),
    (r"\bis missing; accepted: a tensor\b", "is None; accepted: an array"),
    (r"\bis given; accepted: no tensor\b", "is given; accepted: None"),
    (r"; accepted: true, false\Z", "; accepted: True, False"),
)


class LeftOutWarning(UserWarning):
    """A model cannot have some forms: ``ModelProblems.left_out()`` says which, and why."""


def from_code(code: str, message: str, log: str) -> Error:
    """The exception of a code's name; InternalError for one that is not known here."""
    for words, ours in _WORDS:
        message = re.sub(words, ours, message)
    return _CLASSES.get(code, InternalError)(message, log)


def refuse(name: str, value: object, accepted: str) -> NoReturn:
    """Raises the InvalidArgumentError of an argument's value."""
    raise InvalidArgumentError(f"{name} = {value!r:.200}; accepted: {accepted}")


def refuse_type(name: str, value: object, accepted: str) -> NoReturn:
    """Raises the InvalidArgumentError of an argument that is of another kind."""
    raise InvalidArgumentError(f"{name}: is of type {type(value).__name__}; accepted: {accepted}")
