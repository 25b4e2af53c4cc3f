"""In an environment that has cubinery and an engine, without what the engine needs (stand_ins.py): the
engine's own loader finds the plugin, which takes the engine's class.  Prints what there is then.

    bind_engine.py vllm|sglang [SEAM]     SEAM: "module:Class" that is taken away first
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import logging
import sys
from typing import Any

import stand_ins


def take_away(path: str) -> None:
    module, _, name = path.partition(":")
    delattr(importlib.import_module(module), name)


def bind_vllm(without: str | None) -> tuple[type, type | None]:
    platforms = importlib.import_module("vllm.platforms")
    interface = importlib.import_module("vllm.platforms.interface")
    names = {"_enum": interface.PlatformEnum.CUDA, "device_name": "cuda", "device_type": "cuda"}
    platforms._current_platform = type("Gpu", (interface.Platform,), names)()
    gdn = importlib.import_module("vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn")
    if without:
        take_away(without)
    importlib.import_module("vllm.plugins").load_general_plugins()
    registry = importlib.import_module("vllm.model_executor.custom_op").op_registry_oot
    behind = gdn.QwenGatedDeltaNetAttention
    return behind, registry.get(behind.__name__)


def bind_sglang(without: str | None) -> tuple[type, type | None]:
    plugins = importlib.import_module("sglang.srt.plugins")
    gdn = importlib.import_module("sglang.srt.layers.attention.linear.gdn_backend")
    behind = gdn.GDNAttnBackend
    if without:
        take_away(without)
    plugins.load_plugins()
    taken = gdn.GDNAttnBackend
    return behind, None if taken is behind else taken


def main(engine: str, without: str | None = None) -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    made = stand_ins.install(engine, "cubinery")
    behind, taken = {"vllm": bind_vllm, "sglang": bind_sglang}[engine](without)
    plugin: Any = importlib.import_module(f"cubinery.plugins.{engine}").plugin
    line = [] if taken is None else [f"{cls.__module__}.{cls.__name__}" for cls in taken.__mro__]
    print(json.dumps({
        "engine": importlib.metadata.version(engine),
        "cubinery": importlib.metadata.version("cubinery"),
        "mode": plugin.mode,
        "behind": f"{behind.__module__}.{behind.__name__}",
        "line": line,
        "ours": sorted(vars(taken.__mro__[1])) if taken else [],
        "stand_ins": sorted(made),
    }))  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
