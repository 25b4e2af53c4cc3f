"""An engine that is not there: modules, classes and functions with the parameters that
scripts/engine_signatures.py has recorded of a release, without any of its code.
"""

from __future__ import annotations

import inspect
import json
import sys
import types
from pathlib import Path

RECORDS = Path(__file__).parent / "data" / "engines"
_KINDS = {
    "positional": inspect.Parameter.POSITIONAL_OR_KEYWORD,
    "rest": inspect.Parameter.VAR_POSITIONAL,
    "keyword": inspect.Parameter.KEYWORD_ONLY,
    "keywords": inspect.Parameter.VAR_KEYWORD,
}


def record(name: str) -> dict:
    """What is recorded of "vllm-0.33.0"."""
    return json.loads((RECORDS / f"{name}.json").read_text())


def signature(about: dict) -> inspect.Signature:
    """Of a function or class, less self."""
    made = [
        inspect.Parameter(
            each["name"], _KINDS[each["kind"]],
            default=inspect.Parameter.empty
            if each["required"] or each["kind"] in ("rest", "keywords")
            else None,
        )
        for each in about["parameters"]
    ]  # fmt: skip
    return inspect.Signature(made)


def _function(path: str, about: dict):
    def refuse(*args, **kwargs):
        raise AssertionError(f"the engine's own {path} ran")

    refuse.__signature__ = signature(about)
    refuse.__name__ = path.split(":")[-1].split(".")[-1]
    return refuse


def _anything(cls, *args, **kwargs):
    """A class's __new__, which hides what it takes."""
    return object.__new__(cls)


def _module(name: str, monkeypatch) -> types.ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    made = types.ModuleType(name)
    made.__path__ = []
    monkeypatch.setitem(sys.modules, name, made)
    above, _, last = name.rpartition(".")
    if above:
        setattr(_module(above, monkeypatch), last, made)
    return made


def install(name: str, monkeypatch, **own) -> None:
    """Puts the recorded release's modules where `import` finds them.

    Args:
        own: classes and functions to put there instead, by the last part of their names; they
            take what is recorded.
    """
    objects = record(name)["objects"]
    for path in sorted(objects, key=lambda path: path.count(".", path.find(":"))):
        about = objects[path]
        module, _, names = path.partition(":")
        owner = _module(module, monkeypatch)
        if not names:
            continue
        *outer, last = names.split(".")
        for each in outer:
            if not hasattr(owner, each):
                setattr(owner, each, type(each, (), {}))
            owner = getattr(owner, each)
        if last in own:
            made = own[last]
        elif hasattr(owner, last):
            continue
        elif about["kind"] == "class":
            made = type(last, (), {"__init__": _function(path, about), "__new__": _anything})
        elif about["kind"] == "function":
            made = _function(path, about)
            made = staticmethod(made) if outer else made
        else:
            made = types.SimpleNamespace()
        setattr(owner, last, made)
