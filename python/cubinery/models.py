"""From a model's configuration to the problems of its linear layers."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from os import PathLike, fsdecode, fsencode, path
from typing import Any, Literal, Protocol, get_type_hints

from cubinery import _core
from cubinery._errors import (
    CacheIOError,
    InvalidArgumentError,
    LeftOutWarning,
    refuse,
    refuse_type,
)
from cubinery._options import StrPath, path_bytes, shown
from cubinery._problem import Problem, problem_class
from cubinery.problems import ModelProblems

Engine = Literal[
    "vllm", "sglang", "transformers", "fla", "flashinfer", "tensorrt_llm", "tokenspeed"
]


class _Configuration(Protocol):
    """What transformers' configurations have."""

    def to_dict(self) -> dict[str, Any]: ...


Config = StrPath | Mapping[str, Any] | _Configuration


def problems_for_model(
    config: Config, tp: int = 1, *, model_type: str | None = None, **switches: str | int | bool
) -> ModelProblems:
    """What an engine serves a model with linear layers with on each of `tp` GPUs.

    Their kernels are those that ``cubinery prewarm --hf-config config.json --tp 2`` compiles.  The
    configuration says which model it is (Gated DeltaNet: Qwen3-Next, Qwen3.5, OLMo-Hybrid; Kimi
    Delta Attention: Kimi-Linear, Kimi-K3, GLM-5.3-Flash, Ling-3.0, AliceAI), and with that head
    counts, head dims, dtypes and what decays and beta are; fields that are missing have the
    class's defaults.  The rest is what vLLM and SGLang do (``include/cubinery/gdn_models.h`` has
    the list).

    Args:
        config: the path of the model's config.json or of its directory, the file's text, a dict of
            it, or a configuration of transformers.
        tp: the tensor-parallel size, which divides the heads.
        model_type: read the configuration as a model of this type ("qwen3_next"), whatever it says.
        switches: properties of the model, by the names of fields.  Each changes all forms that have
            it: ``state_dtype="bf16"`` the states that decode, prefill, verify and commit share,
            ``dtype="f16"`` all that engines keep in the model's dtype, ``conv_state_dtype`` the
            convolution's.  ``state_dtype="auto"``: the model's dtype where the configuration has no
            ``mamba_ssm_dtype`` (vLLM; else f32, as SGLang and Transformers).  ``output_norm="auto"``:
            the norm of decode and verify is the model's.  ``cubinery prewarm`` has the same:
            ``--state-dtype bf16``.

    Warns:
        LeftOutWarning: the model cannot have some forms; ``left_out()`` of the result lists them.

    Raises:
        InvalidArgumentError: no model that is known, one with layers of another kind, a field or
            switch that cannot be used, or a `tp` that does not divide the heads.
        CacheIOError: the file cannot be read.
    """
    name, found = _found(_core.model_problems, config, tp, (), model_type, switches)
    problems = ModelProblems(
        **{
            form: problem._unchecked(found[form])
            for form, problem in get_type_hints(ModelProblems).items()
        }
    )
    _warn_of(name, {one["form"]: one["why"] for one in found["left_out"]})
    return problems


def problems_for_engine(
    config: Config,
    engine: Engine,
    tp: int = 1,
    *,
    arch: str | None = None,
    functions: bool = False,
    model_type: str | None = None,
    **switches: str | int | bool,
) -> dict[str, Problem[Any]]:
    """What one engine launches for a model on each of `tp` GPUs: a problem for each form.

    Their kernels are those that ``cubinery prewarm --engine vllm --hf-config config.json``
    compiles: of vLLM and SGLang those of the plugin.  docs/problems.md lists all forms.

    Args:
        config, tp, model_type: as of `problems_for_model()`.
        engine: "vllm", "sglang", "transformers", "fla", "flashinfer", "tensorrt_llm" or
            "tokenspeed".
        arch: of forms that are in the place of each other, those of this architecture: decodes with
            the convolution in their launch where there are kernels for that, else behind it.  None:
            all of them.
        functions: also the forms of the single functions of ``cubinery.compat.vllm`` and
            ``cubinery.compat.sglang``, whose names begin with ``functions.``
        switches: as of `problems_for_model()`.  Without ``state_dtype`` it is as the engine
            decides.  ``draft_tokens``: the most tokens of a verification, its drafts and the one in
            front of them; 0 or 1: there are no drafts, and no forms of theirs.

    Warns:
        LeftOutWarning: forms that the model cannot have, which the result does not hold.

    Raises:
        InvalidArgumentError: as problems_for_model(), and for an engine that is not known, or that
            has no place for the model's layers (of Kimi Delta Attention vLLM and SGLang have).
        CacheIOError: the file cannot be read.
    """
    if not isinstance(engine, str):
        refuse("engine", engine, "a str")
    given = switches | {"functions": bool(functions)}
    if arch is not None:
        given["arch"] = arch
    name, found = _found(_core.engine_problems, config, tp, (engine,), model_type, given)
    _warn_of(name, {one["form"]: one["left_out"] for one in found if "left_out" in one})
    return {
        one["form"]: problem_class(one["op"])._unchecked(one["problem"])
        for one in found
        if "left_out" not in one
    }


def _found(
    ask: Callable[..., str],
    config: object,
    tp: object,
    engine: tuple[str, ...],
    model_type: object,
    switches: dict[str, Any],
) -> tuple[str, Any]:
    """What messages call the configuration, and what `ask` says of it."""
    if not isinstance(tp, int) or isinstance(tp, bool) or not 0 < tp < 1 << 31:
        refuse("tp", tp, "an int from 1 up")
    name, text = _text_of(config)
    options = _options(model_type, switches)
    try:
        return name, json.loads(ask(text, tp, *engine, options))
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{name}: {error}") from None


def _warn_of(name: str, left_out: dict[str, str]) -> None:
    """The caller of the caller is told of forms that are left out, and why."""
    if left_out:
        forms = "; ".join(f"{form} ({why})" for form, why in left_out.items())
        warnings.warn(f"{name}: left out: {forms}", LeftOutWarning, stacklevel=3)


def _options(model_type: object, switches: dict[str, Any]) -> str:
    given = dict(switches)
    if model_type is not None:
        if not isinstance(model_type, str):
            refuse("model_type", model_type, "a str")
        given["model_type"] = model_type
    for name, value in given.items():
        if not isinstance(value, (str, int)):
            refuse(name, value, "a str, an int, True, False")
    return json.dumps(given)


def _text_of(config: object) -> tuple[str, str]:
    """What messages call the configuration, and its JSON."""
    if isinstance(config, str) and config.lstrip().startswith("{"):
        return "config", config
    if isinstance(config, (str, bytes, PathLike)):
        return _read(fsdecode(path_bytes("config", config)))
    values = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(values, Mapping):
        refuse_type("config", config, "a path, JSON, a dict, or an object with to_dict()")
    return "config", json.dumps(dict(values), default=_plain)


def _plain(value: Any) -> Any:
    """What JSON has in the place of an object inside a configuration."""
    if hasattr(value, "to_dict"):  # a configuration within another
        return value.to_dict()
    # A dtype of torch is "torch.bfloat16".
    return str(value).removeprefix("torch.")


def _read(place: str) -> tuple[str, str]:
    if path.isdir(place):
        place = path.join(place, "config.json")
    name = shown(fsencode(place))
    try:
        if path.exists(place) and not path.isfile(place):
            raise CacheIOError(f"config: {name} is no file; accepted: config.json, its directory")
        with open(place, encoding="utf-8") as file:
            return name, file.read()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{name}: not UTF-8 at byte {error.start}") from None
    except OSError as error:
        if isinstance(error, CacheIOError):
            raise
        raise CacheIOError(f"config: cannot read {name}: {error.strerror}") from None
