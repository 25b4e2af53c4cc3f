"""Models of Transformers on a GPU, with and without cubinery.

In float32 both compute the same formula, and what is left is rounding: layers may differ by what a
float32 prefill may be off (four units of 2^-17 of the largest value) and by eight times what
Transformers' own two ways, by chunks and token by token, differ by; logits, behind four layers, by
2^-10 of the largest.  In bfloat16 the yardstick is Transformers in float32 with the same weights:
cubinery's error may be one and a half times that of Transformers in bfloat16.
"""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager
from typing import Any

import hf_models
import pytest

from cubinery import functional
from cubinery.compat import transformers

torch = pytest.importorskip("torch")
ALONE = pytest.mark.skipif(
    any(importlib.util.find_spec(name) for name in ("fla", "causal_conv1d")),
    reason="Transformers would run FLA's or causal-conv1d's kernels in place of its own code",
)
pytestmark = [
    pytest.mark.gpu,
    ALONE,
    pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="no Transformers"),
    pytest.mark.parametrize("name", hf_models.MODELS),
]
LINEAR_LAYERS = 3
LOGITS = 2.0**-10
LAYER = 2.0**-15
REPEATED = 2.0**-20
# Below this gap of the two largest logits either of them may be the larger one.
TIE = 2.0**-11


@pytest.fixture(autouse=True)
def inference(monkeypatch):
    """No gradients, no TF32 in torch's own products and convolutions, no network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    transformers.disable()
    with torch.no_grad():
        yield
    transformers.disable()


@contextmanager
def enabled(model: Any):
    transformers.enable(model)
    try:
        yield
    finally:
        transformers.disable()


@pytest.fixture
def calls(monkeypatch):
    found = {"gdn_prefill": 0, "gdn_decode": 0, "gdn_conv": 0}

    def counted(name):
        function = getattr(functional, name)

        def call(*args, **kwargs):
            found[name] += 1
            return function(*args, **kwargs)

        return call

    for name in found:
        monkeypatch.setattr(functional, name, counted(name))
    return found


def build(name: str, **changes: Any) -> Any:
    return hf_models.build(name, **changes).to("cuda")


def prompt(batch: int, tokens: int, seed: int = 0) -> Any:
    return hf_models.prompt(batch, tokens, seed).to("cuda")


def linear_layer(model: Any) -> Any:
    return next(
        layer for layer in model.modules() if type(layer).__name__.endswith("GatedDeltaNet")
    )


def assert_alike(ours: Any, theirs: Any, tolerance: float = LOGITS) -> None:
    assert ours.isfinite().all()
    error = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    assert error <= tolerance, f"{error:.3g} of the largest value; allowed {tolerance:.3g}"


def rms(x: Any) -> float:
    return x.double().square().mean().sqrt().item()


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("tokens", [1, 3, 64, 197])
def test_layer(monkeypatch, calls, name, dim, tokens):
    layer = linear_layer(build(name, linear_key_head_dim=dim))
    generator = torch.Generator("cuda").manual_seed(tokens)
    x = torch.randn(2, tokens, hf_models.HIDDEN, generator=generator, device="cuda")
    theirs = layer(x)
    modeling = hf_models.modeling(name)
    with monkeypatch.context() as patch:
        patch.setattr(
            modeling, "torch_chunk_gated_delta_rule", modeling.torch_recurrent_gated_delta_rule
        )
        noise = (layer(x) - theirs).abs().max() / theirs.abs().max()
    with enabled(layer):
        ours = layer(x)
    assert_alike(ours, theirs, LAYER + 8 * noise.item())
    assert calls == {"gdn_prefill": 1, "gdn_decode": 0, "gdn_conv": 1}
    assert_alike(layer(x), theirs, REPEATED)  # disabled again
    assert calls["gdn_prefill"] == 1


def test_logits(calls, name):
    model, ids = build(name), prompt(2, 197)
    theirs = model(ids).logits
    transformers.enable()  # all models
    ours = model(ids).logits
    assert_alike(ours, theirs)
    assert calls == {"gdn_prefill": LINEAR_LAYERS, "gdn_decode": 0, "gdn_conv": LINEAR_LAYERS}
    transformers.enable()
    assert_alike(model(ids).logits, ours, REPEATED)  # enabling twice changes nothing
    transformers.disable()
    assert_alike(model(ids).logits, theirs, REPEATED)
    assert calls["gdn_prefill"] == 2 * LINEAR_LAYERS


def test_bf16(name):
    """Experts are all used: where they are chosen, errors of either kind choose others."""
    experts = {} if name in ("qwen3_5", "olmo_hybrid") else {"num_experts_per_tok": 4}
    rounded, ids = build(name, **experts).bfloat16(), prompt(4, 197)
    theirs = rounded(ids).logits.float()
    with enabled(rounded):
        ours = rounded(ids).logits.float()
    exact = rounded.float()(ids).logits
    assert ours.isfinite().all()
    assert rms(ours - exact) <= 1.5 * rms(theirs - exact) + 2.0**-9 * rms(exact)


def test_bf16_decode(name):
    """Steps behind a prompt, each fed the same tokens."""
    experts = {} if name in ("qwen3_5", "olmo_hybrid") else {"num_experts_per_tok": 4}
    model, ids = build(name, **experts).bfloat16(), prompt(4, 48)

    def steps():
        out = model(ids[:, :32], use_cache=True)
        rows = [out.logits[:, -1:]]
        for t in range(32, ids.shape[1]):
            out = model(ids[:, t : t + 1], past_key_values=out.past_key_values, use_cache=True)
            rows.append(out.logits)
        return torch.cat(rows, dim=1).float()

    theirs = steps()
    with enabled(model):
        ours = steps()
    exact = model.float()(ids).logits[:, 31:]
    assert rms(ours - exact) <= 1.5 * rms(theirs - exact) + 2.0**-9 * rms(exact)


def decided(logits: Any) -> Any:
    """[B, T] for T rows of logits [B, vocabulary]: whether nothing was a tie up to here."""
    top = torch.stack(logits, dim=1).topk(2, dim=-1).values
    return ((top[..., 0] - top[..., 1]) > TIE).cumprod(dim=1).bool()


def test_generation(calls, name):
    model, ids = build(name), prompt(2, 70)
    options = {
        "max_new_tokens": 64, "min_new_tokens": 64, "do_sample": False,
        "return_dict_in_generate": True, "output_logits": True,
    }  # fmt: skip
    theirs = model.generate(ids, **options)
    with enabled(model):
        ours = model.generate(ids, **options)
    sure = decided(theirs.logits)
    assert sure.sum() >= 64, "ties in the model's own logits: another seed is needed"
    same = ours.sequences[:, 70:] == theirs.sequences[:, 70:]
    assert same[sure].all()
    assert calls["gdn_prefill"] == LINEAR_LAYERS
    assert calls["gdn_decode"] == 63 * LINEAR_LAYERS and calls["gdn_conv"] == 64 * LINEAR_LAYERS


def test_left_padding(calls, name):
    model, ids = build(name), prompt(3, 90)
    mask = torch.ones_like(ids)
    mask[0, :40], mask[1, :1] = 0, 0
    theirs = model(ids, attention_mask=mask).logits
    with enabled(model):
        ours = model(ids, attention_mask=mask).logits
    assert_alike(ours[mask.bool()], theirs[mask.bool()])
    alone = model(ids[:1, 40:]).logits  # as if there were no padding
    assert_alike(ours[:1, 40:], alone)
    assert calls["gdn_prefill"] == LINEAR_LAYERS


def test_prefill_in_parts(calls, name):
    """Behind two tokens, which are fewer than the window has; then one that goes on; then one."""
    model, ids = build(name), prompt(2, 200)
    theirs = model(ids).logits
    cache, parts = None, []
    with enabled(model):
        for first, last in ((0, 2), (2, 130), (130, 199), (199, 200)):
            out = model(ids[:, first:last], past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            parts.append(out.logits)
    assert_alike(torch.cat(parts, dim=1), theirs)
    assert calls == {
        "gdn_prefill": 3 * LINEAR_LAYERS, "gdn_decode": LINEAR_LAYERS,
        "gdn_conv": 4 * LINEAR_LAYERS,
    }  # fmt: skip


def test_gradients_are_theirs(calls, name):
    model, ids = build(name), prompt(1, 40)
    with torch.enable_grad(), enabled(model):
        model(ids, labels=ids).loss.backward()
    grad = linear_layer(model).conv1d.weight.grad
    assert grad is not None and grad.abs().max() > 0
    assert set(calls.values()) == {0}


def test_packed_sequences(calls, name):
    layer = linear_layer(build(name))
    generator = torch.Generator("cuda").manual_seed(5)
    x = torch.randn(1, 150, hf_models.HIDDEN, generator=generator, device="cuda")
    alone = torch.cat([layer(x[:, :65]), layer(x[:, 65:])], dim=1)
    bounds = torch.tensor([0, 65, 150], dtype=torch.int32, device="cuda")
    index = (torch.arange(150, device="cuda") >= 65).int()[None]
    with enabled(layer):
        ours = layer(x, cu_seq_lens_q=bounds, seq_idx=index)
    assert_alike(ours, alone)
    assert calls == {"gdn_prefill": 1, "gdn_decode": 0, "gdn_conv": 1}
