"""What Context's arguments may be, and how the C API takes them: as text."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fspath

from cubinery._errors import refuse, refuse_type

_LONGEST = 1e9  # seconds, some thirty years


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        refuse(name, value, "a str")
    if "\0" in value:
        refuse(name, value, "text without NUL characters")
    return value


def path_text(name: str, value: object) -> str:
    """A path, which the library takes as UTF-8."""
    if isinstance(value, PathLike):
        value = fspath(value)
    if not isinstance(value, str):
        refuse(name, value, "a str or a path")
    try:
        value.encode()
    except UnicodeEncodeError:
        refuse(name, value, "paths in UTF-8")
    return _text(name, value)


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


def _list(name: str, value: object, text: Callable[[str, object], str]) -> str:
    if not isinstance(value, (list, tuple)):
        refuse_type(name, value, "a list or tuple of str" + " or paths" * (text is path_text))
    items = [text(name, item) for item in value]
    for item in items:
        if ":" in item:
            refuse(name, item, "text without a colon")
    return ":".join(items)


_KINDS: dict[str, Callable[[str, object], str]] = {
    "device": _integer,
    "arch": _text,
    "offline": _switch,
    "nvrtc_path": path_text,
    "driver_path": path_text,
    "cache_dir": path_text,
    "cache_layers": lambda name, value: _list(name, value, path_text),
    "use_disk_cache": _switch,
    "cache_limit_bytes": _integer,
    "trust_shared_dirs": _switch,
    "trust": _text,
    "lock_wait": lambda name, value: str(milliseconds(name, value)),
    "template_dirs": lambda name, value: _list(name, value, path_text),
    "paths": lambda name, value: _list(name, value, _text),
}


def text_of(name: str, value: object) -> str:
    """An option as the C API takes it.

    Raises:
        InvalidArgumentError: names the option, its value and what is accepted.
    """
    return _KINDS[name](name, value)
