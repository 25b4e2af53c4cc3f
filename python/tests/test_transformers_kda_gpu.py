"""Models of Transformers with Kimi Delta Attention on a GPU, with and without cubinery: a prompt,
another one behind it, and single tokens behind a cache.  Tolerances are those of
test_transformers_gpu.py.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import hf_models
import pytest

torch = pytest.importorskip("torch")

from test_transformers_gpu import (  # noqa: E402
    ALONE, LINEAR_LAYERS, assert_alike, build, calls, enabled, inference, prompt, rms,
)  # fmt: skip

__all__ = ["calls", "inference"]  # fixtures
pytestmark = [
    pytest.mark.gpu,
    ALONE,
    pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="no Transformers"),
    pytest.mark.parametrize("name", [*hf_models.KDA_MODELS, *hf_models.GLM]),
]
PROMPT, MORE, STEPS = 70, 21, 8


@pytest.fixture(autouse=True)
def _has_model(name: str) -> None:
    if importlib.util.find_spec(f"transformers.models.{name}") is None:
        pytest.skip(f"this Transformers has no {name}")


def last_of(out: Any) -> Any:
    return out.last_hidden_state if hasattr(out, "last_hidden_state") else out.logits


def steps(model: Any, ids: Any) -> Any:
    """What the model makes of a prompt, of another one and of one token after the other behind it."""
    out = model(ids[:, :PROMPT], use_cache=True)
    found, name = [last_of(out)], next(key for key in ("cache", "past_key_values") if key in out)
    cache = out[name]
    first = PROMPT + MORE
    for begin, end in [(PROMPT, first), *((t, t + 1) for t in range(first, first + STEPS))]:
        out = model(ids[:, begin:end], use_cache=True, **{name: cache})
        found.append(last_of(out))
    return torch.cat(found, 1)


def test_steps(calls, name):
    model, ids = build(name), prompt(2, PROMPT + MORE + STEPS)
    theirs = steps(model, ids)
    with enabled(model):
        ours = steps(model, ids)
    assert_alike(ours, theirs)
    assert calls == {
        "gdn_prefill": 2 * LINEAR_LAYERS,
        "gdn_decode": STEPS * LINEAR_LAYERS,
        "gdn_conv": (2 + STEPS) * LINEAR_LAYERS,
    }


def test_steps_in_bfloat16(calls, name):
    model, ids = build(name), prompt(2, PROMPT + MORE + STEPS)
    exact = steps(model, ids)
    model = model.to(torch.bfloat16)
    theirs = steps(model, ids)
    with enabled(model):
        ours = steps(model, ids)
    assert calls["gdn_decode"] == STEPS * LINEAR_LAYERS
    assert calls["gdn_prefill"] == 2 * LINEAR_LAYERS
    assert rms(ours - exact) <= 1.5 * rms(theirs - exact)
