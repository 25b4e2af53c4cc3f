"""A Gated DeltaNet layer between its projections, as an engine runs it for two requests: a packed
prefill, a decoding step, then draft tokens of which some are accepted.  Each time the causal
convolution makes q, k and v of what the projection gave, and the recurrence makes o of them.  Both
keep what a request has behind it in slots of a pool.  Checked against the layer in float64 on the
host, which takes the accepted tokens one by one.  07_layer.cc is the same in C++.

    python examples/08_layer.py [config.json [tp]]    of a model; without: of a small one
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
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 64, "linear_value_head_dim": 64, "dtype": "bfloat16",
}  # fmt: skip
# What is done, on how many tokens of the two requests, behind how many of the step in front.
STEPS = (
    ("prefill", (37, 64), (0, 0)),
    ("decode", (1, 1), (37, 64)),  # and the norm behind it
    ("verify", (4, 4), (1, 1)),  # a token and three drafts
    ("verify", (4, 4), (2, 4)),
    ("verify", (1, 1), (3, 1)),
)
TOKENS = sum(sum(counts) for _, counts, _ in STEPS)
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
# In the last place; products of f32 operands have fewer bits.
UNITS = {"f32": 2.0**-17, "bf16": 2.0**-8, "f16": 2.0**-11}


class Layer:
    """Its weights, its inputs and outputs for the tokens of all steps, and its pools."""

    def __init__(self, problems: cubinery.ModelProblems, device: str) -> None:
        conv = problems.conv
        self.keys, self.heads, self.most = conv.k_heads, conv.v_heads, problems.verify.draft_tokens
        self.key_dim, self.value_dim, self.width = conv.key_dim, conv.value_dim, conv.width
        channels = 2 * self.keys * self.key_dim + self.heads * self.value_dim
        random = torch.Generator().manual_seed(1)

        def values(*shape: int, dtype: str = conv.dtype, mean: float = 0, spread: float = 1) -> Any:
            drawn = mean + spread * torch.randn(shape, generator=random)
            return drawn.to(device, DTYPES[dtype])

        per_token = {
            # What the projections give, and what kernels write.
            "x": (channels,), "a": (self.heads,), "b": (self.heads,),
            "z": (self.heads, self.value_dim),
            "q": (self.keys, self.key_dim), "k": (self.keys, self.key_dim),
            "v": (self.heads, self.value_dim), "o": (self.heads, self.value_dim),
        }  # fmt: skip
        self.tokens = {name: values(TOKENS, *shape) for name, shape in per_token.items()}
        self.weight = values(channels, self.width, spread=0.5)
        # Decays of about 0.9, so that what lies far behind a token counts.
        self.A_log = values(self.heads, dtype="f32", mean=-2, spread=0.3)
        self.dt_bias = values(self.heads, spread=0.5)
        self.norm_weight = values(self.value_dim, dtype="f32", mean=1, spread=0.1)

        # The convolution's pool.  A request has one slot, with the columns that a verification of
        # `most` tokens fills: all its inputs, of which the next launch takes those that `accepted`
        # says.  It is told which requests are new (is_old): nobody has to clear their slots.
        columns = self.width - 2 + self.most
        self.windows = values(3, channels, columns, dtype=conv.state_dtype)
        self.window_slots = self.ints([2, 0])
        self.is_old = torch.zeros(2, dtype=torch.bool, device=device)
        # The recurrence's.  A request has `most` slots, for the state after each token of a
        # verification.  A prefill and a decoding step use the first, zero for a new request.
        state = (9, self.heads, self.value_dim, self.key_dim)
        self.states = values(*state, dtype=problems.decode.state_dtype, spread=0)
        self.state_slots = self.ints([[7, 2, 5, 0], [1, 8, 3, 6]])

    def ints(self, numbers: Any) -> Any:
        return torch.tensor(numbers, dtype=torch.int32, device=self.weight.device)


class Operators:
    def __init__(self, context: Any, problems: cubinery.ModelProblems) -> None:
        self.conv = context.prepare(problems.conv)
        self.conv_of_drafts = context.prepare(problems.conv_verify)
        self.prefill = context.prepare(problems.prefill)
        self.decode = context.prepare(replace(problems.decode, output_norm="gated_rms"))
        self.verify = context.prepare(problems.verify)

    def launch(
        self, layer: Layer, kind: str, first: int, counts: tuple[int, ...], accepted: Any
    ) -> None:
        """Enqueues a step whose tokens begin in row `first`: the convolution, the recurrence."""
        end = first + sum(counts)
        part = {name: x[first:end] for name, x in layer.tokens.items()}
        qkv = {name: part[name] for name in ("q", "k", "v")}
        common = {
            **qkv, "g": part["a"], "beta": part["b"], "A_log": layer.A_log,
            "dt_bias": layer.dt_bias, "out": part["o"], "state": layer.states,
        }  # fmt: skip
        bounds = layer.ints([0, counts[0], sum(counts)])
        convolve = {"x": part["x"], "weight": layer.weight, **qkv, "cu_seqlens": bounds}
        convolve["state_indices"] = layer.window_slots
        if kind == "verify":
            # Both go on behind the accepted tokens of the launch in front; a prefill, and a
            # decoding step, leave what a verification of one token would.
            chosen = {"cu_seqlens": bounds, "accepted": layer.ints(accepted)}
            self.conv_of_drafts(**convolve, state=layer.windows, accepted=chosen["accepted"])
            self.verify(**common, **chosen, state_indices=layer.state_slots)
            return
        windows = layer.windows[:, :, : layer.width - 1]  # a view: the first columns
        flags = layer.is_old if kind == "prefill" else None
        self.conv(**convolve, state=windows, has_initial_state=flags)
        slots = layer.state_slots[:, 0]
        if kind == "prefill":
            self.prefill(**common, state_indices=slots, cu_seqlens=bounds)
        else:
            norm = {"z": part["z"], "norm_weight": layer.norm_weight}
            self.decode(**common, state_indices=slots, **norm)


class Request:
    """What a request has behind it, in float64: last inputs of channels, states of heads."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.inputs = torch.zeros(layer.width - 1, len(layer.weight), dtype=torch.float64)
        shape = (layer.heads, layer.key_dim, layer.value_dim)
        self.states = torch.zeros(shape, dtype=torch.float64)

    def take(self, row: int, is_normed: bool = False) -> Any:
        """o of the token in this row, [H, V]."""
        layer = self.layer
        x, a, b, z = (layer.tokens[name][row].double().cpu() for name in ("x", "a", "b", "z"))
        window = torch.cat([self.inputs, x[None]])
        self.inputs = window[1:]
        y = (window.T * layer.weight.double().cpu()).sum(1)
        y = y * y.sigmoid()
        keys = layer.keys * layer.key_dim
        q, k, v = y.split([keys, keys, len(y) - 2 * keys])
        q, k = (head.view(layer.keys, -1) for head in (q, k))
        q, k = (head / (head.square().sum(1, keepdim=True) + 1e-6).sqrt() for head in (q, k))
        q, k = (head.repeat_interleave(layer.heads // layer.keys, 0) for head in (q, k))
        A_log, dt_bias = layer.A_log.double().cpu(), layer.dt_bias.double().cpu()
        g = -A_log.exp() * torch.nn.functional.softplus(a + dt_bias)
        states = self.states * g.exp()[:, None, None]
        held = torch.einsum("hkv,hk->hv", states, k)
        u = b.sigmoid()[:, None] * (v.view(layer.heads, -1) - held)
        self.states = states + k[:, :, None] * u[:, None, :]
        o = torch.einsum("hkv,hk->hv", self.states, q) * layer.key_dim**-0.5
        if is_normed:
            o = o / (o.square().mean(1, keepdim=True) + 1e-6).sqrt()
            o = o * layer.norm_weight.double().cpu() * z * z.sigmoid()
        return o


def run(context: Any, config: Any, tp: int = 1, device: str = "cuda") -> bool:
    """Whether o is right, which is printed for each step."""
    problems = cubinery.problems_for_model(config, tp)
    layer = Layer(problems, device)
    operators = Operators(context, problems)
    limit = 3 * UNITS[problems.conv.dtype]
    requests = [Request(layer), Request(layer)]
    row, in_front = 0, [0, 0]  # where the tokens of this step begin, and of the one in front
    worst = 0.0
    for kind, counts, accepted in STEPS:
        operators.launch(layer, kind, row, counts, accepted)
        expected = []
        for n, request in enumerate(requests):
            for t in range(accepted[n]):
                request.take(in_front[n] + t)
            drafts = copy.copy(request)  # nobody knows yet which of them are accepted
            in_front[n] = row
            expected += [drafts.take(row + t, kind == "decode") for t in range(counts[n])]
            row += counts[n]
        of_step = torch.stack(expected)
        found = layer.tokens["o"][in_front[0] : row].double().cpu()  # waits
        error = ((found - of_step).abs().max() / of_step.abs().max()).item()
        print(f"{kind}, {counts[0]} + {counts[1]}: o differs by {error:.1e} of its largest value")
        worst = max(worst, error) if error == error else float("inf")
    print(f"limit {limit:.1e}")
    return worst < limit


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit(print("no GPU") or 77)
    chosen = sys.argv[1] if len(sys.argv) > 1 else SMALL_MODEL
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    sys.exit(0 if run(cubinery.Context(0), chosen, size) else 1)
