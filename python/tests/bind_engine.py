"""In an environment that has cubinery and an engine, without what the engine needs (stand_ins.py): the
engine's own loader finds the plugin, which takes the engine's classes.  Prints what there is then.

    bind_engine.py vllm|sglang [SEAM]     SEAM: "module:Class" that is taken away first
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import logging
import sys
import types
from pathlib import Path
from typing import Any

import stand_ins


def take_away(path: str) -> None:
    module, _, name = path.partition(":")
    delattr(importlib.import_module(module), name)


def bare(name: str) -> None:
    """A package without what its own __init__ imports: whole models."""
    above = importlib.import_module(name.rpartition(".")[0])
    made = types.ModuleType(name)
    made.__path__ = [str(Path(path) / name.rpartition(".")[2]) for path in above.__path__]
    sys.modules[name] = made


Taken = dict[str, type]  # what is in the place of an engine's classes, by their names


def bind_vllm(without: str | None) -> Taken:
    platforms = importlib.import_module("vllm.platforms")
    interface = importlib.import_module("vllm.platforms.interface")
    names = {"_enum": interface.PlatformEnum.CUDA, "device_name": "cuda", "device_type": "cuda"}
    platforms._current_platform = type("Gpu", (interface.Platform,), names)()
    for package in ("vllm.models.kimi_k3", "vllm.models.glm5next"):
        bare(package)
    places = importlib.import_module("cubinery.plugins._vllm_places")
    layers = []
    for place in places.PLACES:
        module, _, name = place.path.partition(":")
        layers.append(getattr(importlib.import_module(module), name))
    if without:
        take_away(without)
    importlib.import_module("vllm.plugins").load_general_plugins()
    for layer in layers:
        layer.__new__(layer)  # as for the first layer of a model
    registry = importlib.import_module("vllm.model_executor.custom_op").op_registry_oot
    return {place.path: registry[place.name] for place in places.PLACES if place.name in registry}


def bind_sglang(without: str | None) -> Taken:
    plugins = importlib.import_module("sglang.srt.plugins")

    def there() -> Taken:
        found = {}
        for path in importlib.import_module("cubinery.plugins.sglang").ATTRIBUTES:
            module, _, name = path.partition(":")
            found[path] = getattr(importlib.import_module(module), name)
        return found

    behind = there()
    if without:
        take_away(without)
    plugins.load_plugins()
    return {path: cls for path, cls in there().items() if cls is not behind[path]}


def main(engine: str, without: str | None = None) -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    made = stand_ins.install(engine, "cubinery")
    taken = {"vllm": bind_vllm, "sglang": bind_sglang}[engine](without)
    plugin: Any = importlib.import_module(f"cubinery.plugins.{engine}").plugin
    print(json.dumps({
        "engine": importlib.metadata.version(engine),
        "cubinery": importlib.metadata.version("cubinery"),
        "mode": plugin.mode,
        "lines": {
            path: [f"{each.__module__}:{each.__name__}" for each in cls.__mro__]
            for path, cls in taken.items()
        },
        "stand_ins": sorted(made),
    }))  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
