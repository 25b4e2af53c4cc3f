"""A layer of Kimi Delta Attention, whose decay is a number for each channel of k, where a draft
model runs in front: a verification reads the states of the requests and keeps none; when it is
known how many tokens of each are accepted, a commit makes the states behind these, and decoding
goes on.  The gated norm of the layer is in the launches of the verification and of the decode.
Checked against the layer in float64 on the host, which takes the accepted tokens one by one.

08_layer.py has the convolution in front; 06_speculate.cc commits all layers in one launch.

    python examples/10_kda.py [config.json [tp]]    of a model; without: of a small one
"""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from typing import Any

import cubinery

try:
    import torch
except ImportError:
    sys.exit(print("no PyTorch") or 77)

SMALL_MODEL = {
    "model_type": "kimi_linear", "num_hidden_layers": 1, "dtype": "bfloat16",
    "linear_attn_config": {
        "num_heads": 4, "head_dim": 64, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
        "kda_layers": [1], "full_attn_layers": [],
    },
}  # fmt: skip
LOWER_BOUND = -5.0  # of all models whose gate has one
ACCEPTED = (4, 1, 3, 2)  # of the tokens of each request: what sampling decides
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
# In the last place; products of f32 operands have fewer bits.
UNITS = {"f32": 2.0**-17, "bf16": 2.0**-8, "f16": 2.0**-11}


class Layer:
    """Its weights and states, and what convolution and projections give for tokens."""

    def __init__(self, p: cubinery.DecodeProblem, device: str) -> None:
        self.problem, self.device = p, device
        self.random = torch.Generator().manual_seed(1)
        # As checkpoints have them: a rate for each head, a bias for each channel of each head.
        self.gates = {
            "A_log": self.values(p.v_heads, dtype=p.a_log_dtype, spread=0.3),
            "dt_bias": self.values(p.v_heads * p.key_dim, dtype=p.dt_bias_dtype, mean=-2),
        }
        # The number is of each launch: kernels are the same whatever the bound.
        self.bound = {"lower_bound": LOWER_BOUND} if p.gate_mode == "lower_bound" else {}
        self.norm_weight = self.values(p.value_dim, dtype=p.norm_weight_dtype, mean=1, spread=0.1)
        state = (len(ACCEPTED) + 1, p.v_heads, p.value_dim, p.key_dim)
        self.states = self.values(*state, dtype=p.state_dtype, spread=0.1)
        self.slots = self.ints(range(len(ACCEPTED), 0, -1))  # of the requests

    def values(self, *shape: int, dtype: str, mean: float = 0, spread: float = 1) -> Any:
        drawn = mean + spread * torch.randn(shape, generator=self.random)
        return drawn.to(self.device, DTYPES[dtype])

    def ints(self, numbers: Any) -> Any:
        return torch.tensor(list(numbers), dtype=torch.int32, device=self.device)

    def tokens(self, count: int) -> dict[str, Any]:
        """`count` tokens of each request, one request behind the other; `out` is to be written."""
        p, rows = self.problem, len(ACCEPTED) * count
        keys, values = (rows, p.k_heads, p.key_dim), (rows, p.v_heads, p.value_dim)
        made = {name: self.values(*shape, dtype=p.dtype) for name, shape in
                {"q": keys, "k": keys, "v": values, "z": values, "out": values}.items()}  # fmt: skip
        made["g"] = self.values(*keys, dtype=p.gate_dtype)  # the gate's input, a row for each head
        made["beta"] = self.values(rows, p.v_heads, dtype=p.beta_dtype)  # its logit
        return made


class Request:
    """What a request has behind it, in float64: a state of each head, [H, K, V]."""

    def __init__(self, layer: Layer, n: int) -> None:
        self.layer = layer
        self.states = layer.states[layer.slots[n]].double().cpu().transpose(1, 2)

    def take(self, tokens: dict[str, Any], row: int) -> Any:
        """`out` of the token in this row, [H, V]."""
        layer, scale = self.layer, self.layer.problem.key_dim**-0.5
        q, k, v, z, a, b = (
            tokens[x][row].double().cpu() for x in ("q", "k", "v", "z", "g", "beta")
        )
        q, k = (x / (x.square().sum(1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
        rate, dt_bias = layer.gates["A_log"].double().exp().cpu(), layer.gates["dt_bias"].cpu()
        a = a + dt_bias.double().view(a.shape)
        if layer.bound:
            g = LOWER_BOUND * (rate[:, None] * a).sigmoid()
        else:
            g = -rate[:, None] * torch.nn.functional.softplus(a)
        states = self.states * g.exp()[:, :, None]
        u = b.sigmoid()[:, None] * (v - torch.einsum("hkv,hk->hv", states, k))
        self.states = states + k[:, :, None] * u[:, None, :]
        o = torch.einsum("hkv,hk->hv", self.states, q) * scale
        o = o / (o.square().mean(1, keepdim=True) + 1e-6).sqrt()
        return o * layer.norm_weight.double().cpu() * z.sigmoid()


def difference(found: Any, expected: list[Any]) -> float:
    """The largest one, relative to the largest value."""
    of = torch.stack(expected)
    error = ((found.double().cpu() - of).abs().max() / of.abs().max()).item()
    return error if error == error else float("inf")


def run(context: Any, config: Any, tp: int = 1, device: str = "cuda") -> bool:
    """Whether outputs and states are right, which is printed."""
    problems = cubinery.problems_for_model(config, tp, output_norm="auto")
    # When the model is loaded.
    reads = {"store_state": False, "stored_states": "last", "from_accepted": False}
    verify = context.prepare(replace(problems.verify, **reads))
    commit = context.prepare(problems.commit)
    decode = context.prepare(problems.decode)

    layer = Layer(problems.decode, device)
    requests = [Request(layer, n) for n in range(len(ACCEPTED))]
    most = problems.verify.draft_tokens
    drafts, after = layer.tokens(most), layer.tokens(1)
    pool = {"state": layer.states, "state_indices": layer.slots}
    bounds = layer.ints(range(0, len(ACCEPTED) * most + 1, most))
    given = {**layer.gates, **layer.bound, **pool}
    norm = {"norm_weight": layer.norm_weight}

    verify(**drafts, **given, **norm, cu_seqlens=bounds)
    accepted = layer.ints(ACCEPTED)
    kept = {name: drafts[name] for name in ("k", "v", "g", "beta")}
    commit(**kept, **given, cu_seqlens=bounds, accepted=accepted)
    committed = layer.states[layer.slots.long()]  # a copy
    decode(**after, **given, **norm)

    of_drafts, of_states, of_after = [], [], []
    for n, request in enumerate(requests):
        rows = range(n * most, (n + 1) * most)
        speculative = copy.copy(request)
        of_drafts += [speculative.take(drafts, row) for row in rows]
        for row in rows[: ACCEPTED[n]]:
            request.take(drafts, row)
        of_states.append(request.states.transpose(1, 2))
        of_after.append(request.take(after, n))
    p = problems.decode
    is_right = True
    for what, found, expected, dtype in (
        ("verify: out", drafts["out"], of_drafts, p.output_dtype),
        ("commit: states", committed, of_states, p.state_dtype),
        ("decode: out", after["out"], of_after, p.output_dtype),
    ):
        error, limit = difference(found, expected), 3 * UNITS[dtype]
        print(f"{what} differs by {error:.1e} of its largest value, limit {limit:.1e}")
        is_right = is_right and error < limit
    return is_right


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit(print("no GPU") or 77)
    chosen = sys.argv[1] if len(sys.argv) > 1 else SMALL_MODEL
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    sys.exit(0 if run(cubinery.Context(0), chosen, size) else 1)
