"""From a model's configuration to the problems of its Gated DeltaNet layers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike, path
from typing import Any, Protocol, get_type_hints

from cubinery import _core
from cubinery._errors import CacheIOError, InvalidArgumentError, refuse, refuse_type
from cubinery._options import path_text
from cubinery.problems import ModelProblems


class _Configuration(Protocol):
    """What transformers' configurations have."""

    def to_dict(self) -> dict[str, Any]: ...


Config = str | PathLike[str] | Mapping[str, Any] | _Configuration


def problems_for_model(config: Config, tp: int = 1) -> ModelProblems:
    """What an engine serves a Qwen3-Next or Qwen3.5 model with on each of `tp` GPUs.

    Their kernels are those that ``cubinery prewarm --hf-config config.json --tp 2`` compiles.  Head
    counts, head dims, the model's dtype and the state's come from the configuration; the rest is
    what vLLM and SGLang do.  An engine that does otherwise uses ``dataclasses.replace(...)``, and
    pre-warms with the same changes (``--state-dtype bf16``).

    Args:
        config: the path of the model's config.json or of its directory, the file's text, a dict of
            it, or a configuration of transformers.
        tp: the tensor-parallel size, which divides the heads.

    Raises:
        InvalidArgumentError: not such a model, a field that is missing or has another type, or a
            `tp` that does not divide the heads.
        CacheIOError: the file cannot be read.
    """
    if not isinstance(tp, int) or isinstance(tp, bool) or not 0 < tp < 1 << 31:
        refuse("tp", tp, "an int from 1 up")
    name, text = _text_of(config)
    try:
        return ModelProblems(
            **{
                form: problem(**json.loads(_core.form_for_model(form, text, tp)))
                for form, problem in get_type_hints(ModelProblems).items()
            }
        )
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{name}: {error}") from None


def _text_of(config: object) -> tuple[str, str]:
    """What messages call the configuration, and its JSON."""
    if isinstance(config, str) and config.lstrip().startswith("{"):
        return "config", config
    if isinstance(config, (str, PathLike)):
        return _read(path_text("config", config))
    values = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(values, Mapping):
        refuse_type("config", config, "a path, JSON, a dict, or an object with to_dict()")
    # A dtype of torch is "torch.bfloat16".
    return "config", json.dumps(dict(values), default=lambda x: str(x).removeprefix("torch."))


def _read(place: str) -> tuple[str, str]:
    if path.isdir(place):
        place = path.join(place, "config.json")
    try:
        if path.exists(place) and not path.isfile(place):
            raise CacheIOError(f"config: {place} is no file; accepted: config.json, its directory")
        with open(place, encoding="utf-8") as file:
            return place, file.read()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{place}: not UTF-8 at byte {error.start}") from None
    except OSError as error:
        if isinstance(error, CacheIOError):
            raise
        raise CacheIOError(f"config: cannot read {place}: {error.strerror}") from None
