"""vLLM's layers of Gated DeltaNet (Qwen3-Next, Qwen3.5) and Kimi Delta Attention (Kimi-Linear,
AliceAI, Kimi-K3, GLM-5.3-Flash) on cubinery.

Tried with vLLM 0.33.  The plugin takes the place of classes of layers, through vLLM's registry of
these, and of a class the core: what is between the projections.  Decodes are one launch, with the
convolution in front and the gated norm behind, as far as there are kernels for that.  Prefills and
draft tokens are two.  States, slots, schedules and graphs stay vLLM's.
"""

from __future__ import annotations

import functools
from typing import Any

from cubinery.plugins import _common
from cubinery.plugins._vllm_core import Core
from cubinery.plugins._vllm_gdn import QwenCore
from cubinery.plugins._vllm_kda import GlmCore, K3Core, KimiCore
from cubinery.plugins._vllm_places import ATTRIBUTES, BASE, BREAK, LEFT, SEAMS, SHARED

__all__ = ["ATTRIBUTES", "SEAMS", "calls", "plugin", "register"]

plugin = _common.Plugin("vLLM", "vLLM 0.33", "vllm.cubinery")
calls = plugin.calls

# Of modules that import little, and of a model's, which vLLM imports with it.
EARLY: tuple[type[Core], ...] = (QwenCore, KimiCore)
LATE: tuple[type[Core], ...] = (K3Core, GlmCore)


def register() -> None:
    """vLLM calls this in each of its processes, before a model is built; maybe more than once."""
    plugin.register(SHARED, _install)


def _install() -> None:
    if not _common.seam("vllm.platforms:current_platform").is_cuda():
        return
    for core in EARLY:
        _take_place(core)
    _take_places_later()


def _take_place(core: type[Core]) -> None:
    """Puts a core in front of vLLM's class, for the layers that are made from now on."""
    plugin.take(core._cubinery_place, functools.partial(_put_in_front, core))


def _put_in_front(core: type[Core]) -> None:
    behind = _common.seam(core._cubinery_place.path)
    taken = _common.seam("vllm.model_executor.custom_op:op_registry_oot")
    if behind.__name__ in taken:
        raise _common.PlaceTaken(f"{taken[behind.__name__]} has taken its place")
    own: dict[str, Any] = {"_cubinery_plugin": plugin, "_cubinery_vllm": core._cubinery_find()}
    for name in core._cubinery_breaks:
        own[name] = _common.seam(BREAK)(getattr(core, name))
    layer = type(f"Cubinery{behind.__name__}", (core, behind), own)
    behind.register_oot(name=behind.__name__)(layer)


def _take_places_later() -> None:
    """The same for classes in modules of models, when the first layer of each is made; those that
    stay as they are are named then."""
    waiting = {core._cubinery_place.path: core for core in LATE}
    base = _common.seam(BASE)
    make = base.__new__

    def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:
        path = f"{cls.__module__}:{cls.__qualname__}"
        if path in LEFT:
            plugin.fall_back(f"a layer of {LEFT[path]}", "cubinery has no place for it there")
        elif path in waiting:
            _take_place(waiting.pop(path))
        return make(cls, *args, **kwargs)

    base.__new__ = staticmethod(__new__)
