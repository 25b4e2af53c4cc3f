"""What Context's arguments may be, and how the C API takes them: as text."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fsdecode, fsencode
from typing import Any

from cubinery._errors import refuse, refuse_type

StrPath = str | bytes | PathLike[str] | PathLike[bytes]

_LONGEST = 1e9  # seconds, some thirty years


def plain_text(name: str, value: object) -> str:
    """A str that the C API can take."""
    if not isinstance(value, str):
        refuse(name, value, "a str")
    if "\0" in value:
        refuse(name, value, "text without NUL characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        refuse(name, value, "text without surrogates")
    return value


def path_bytes(name: str, value: object) -> bytes:
    """A path as the system takes it: `os.fsencode()` of what Python's own functions take."""
    if not isinstance(value, (str, bytes, PathLike)):
        refuse(name, value, "a str, bytes or a path")
    try:
        path = fsencode(value)
    except UnicodeEncodeError:
        refuse(name, value, "paths that os.fsencode() takes")
    if b"\0" in path:
        refuse(name, value, "text without NUL characters")
    return path


def with_paths(report: dict[str, Any], *names: str) -> dict[str, Any]:
    """The library's report, whose fields of these names are paths, as `os.fsdecode()` has them."""
    for name in report.keys() & set(names):
        report[name] = fsdecode(report[name].encode("utf-8", "surrogateescape"))
    return report


def shown(path: bytes) -> str:
    """A path in messages, as the library's own have it."""
    return path.decode("utf-8", "backslashreplace")


def _integer(name: str, value: object) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        refuse(name, value, "an int")
    return str(value)


def _switch(name: str, value: object) -> str:
    if not isinstance(value, bool):
        refuse(name, value, "True, False or None")
    return str(int(value))


def milliseconds(name: str, value: object) -> int:
    """Of a time in seconds."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value <= _LONGEST:  # type: ignore[operator]
        refuse(name, value, "seconds, from 0 to 1e9")
    return round(value * 1000)  # type: ignore[operator]


def _refuse_colon(name: str, item: object, has_colon: bool) -> None:
    if has_colon:
        refuse(name, item, "text without a colon")


def _texts(name: str, value: object) -> str:
    if not isinstance(value, (list, tuple)):
        refuse_type(name, value, "a list or tuple of str")
    items = [plain_text(name, item) for item in value]
    for item in items:
        _refuse_colon(name, item, ":" in item)
    return ":".join(items)


def _paths(name: str, value: object) -> bytes:
    if not isinstance(value, (list, tuple)):
        refuse_type(name, value, "a list or tuple of str, bytes or paths")
    items = [path_bytes(name, item) for item in value]
    for item in items:
        _refuse_colon(name, item, b":" in item)
    return b":".join(items)


_KINDS: dict[str, Callable[[str, object], str | bytes]] = {
    "device": _integer,
    "arch": plain_text,
    "offline": _switch,
    "nvrtc_path": path_bytes,
    "nvcc_path": path_bytes,
    "driver_path": path_bytes,
    "cache_dir": path_bytes,
    "cache_layers": _paths,
    "use_disk_cache": _switch,
    "cache_limit_bytes": _integer,
    "trust_shared_dirs": _switch,
    "trust": plain_text,
    "lock_wait": lambda name, value: str(milliseconds(name, value)),
    "template_dirs": _paths,
    "paths": _texts,
    "record": path_bytes,
}


def text_of(name: str, value: object) -> str | bytes:
    """An option as the C API takes it.

    Raises:
        InvalidArgumentError: names the option, its value and what is accepted.
    """
    return _KINDS[name](name, value)
