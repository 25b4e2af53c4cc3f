"""Exceptions: one class for each code of ``cubinery/status.h``."""

from __future__ import annotations


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


def from_code(code: str, message: str, log: str) -> Error:
    """The exception of a code's name; InternalError for one that is not known here."""
    return _CLASSES.get(code, InternalError)(message, log)
