"""The causal convolution of include/cubinery/gdn_conv.h in numpy.

`sums()` is its formula, written down channel by channel of whole sequences; `gdn_conv` has the
contract of cubinery.functional, for numpy arrays on the host, in float64 but for what it stores.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import recurrence

from cubinery import ConvOutputs, _arrays

Array = np.ndarray


def sums(inputs: Array, weight: Array, bias: Array | float) -> Array:
    """bias + sum over i < W of weight[:, i] inputs[t + i]: [T, C] of inputs [W - 1 + T, C]."""
    width = weight.shape[1]
    tokens = len(inputs) - width + 1
    return bias + sum(weight[:, i] * inputs[i : i + tokens] for i in range(width))


def activated(activation: str, x: Array) -> Array:
    return {"none": lambda: x, "silu": lambda: x * recurrence.sigmoid(x)}[activation]()


class _Outputs:
    """y, or q, k and v, as tokens of channels."""

    def __init__(self, arrays: list[Array], lead: tuple[int, ...]) -> None:
        self.arrays = arrays
        self.parts = [
            array.reshape(math.prod(lead), math.prod(array.shape[len(lead) :])) for array in arrays
        ]

    def put(self, span: slice, values: list[Array | float]) -> None:
        for part, value in zip(self.parts, values):
            part[span] = value

    def fill(self, span: slice, value: float) -> None:
        self.put(span, [value] * len(self.parts))

    def finish(self) -> None:
        """Writes back what reshape() had to copy."""
        for part, array in zip(self.parts, self.arrays):
            array[...] = part.reshape(array.shape)


class _Convolution:
    """What the arrays and options of a call say."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.places = recurrence.Places(options)
        self.weight = np.asarray(options["weight"], np.float64)
        bias = options["bias"]
        self.bias = 0.0 if bias is None else np.asarray(bias, np.float64)
        self.width = self.weight.shape[1]
        kept = self.places.source if self.places.source is not None else self.places.target
        self.columns = self.width - 1 if kept is None else kept.shape[-1]
        self.has_steps = options["stored_states"] == "every" and options["store_state"]
        if options["cache_seqlens"] is not None:
            assert self.columns >= self.width - 1 and options["store_state"]
            assert options["accepted"] is None and not self.has_steps
        elif options["accepted"] is None or self.has_steps:
            assert self.columns in (self.width - 1, self.width)
        else:
            assert self.columns >= self.width - 1 and options["store_state"]

    def initial(self, n: int, slot: int | tuple[int, int]) -> Array:
        """[columns, C]: the state that sequence n starts from.  A pair is a row and a step."""
        flags = self.options["has_initial_state"]
        if self.places.source is None or (flags is not None and not flags[n]):
            return np.zeros((self.columns, len(self.weight)))
        return np.asarray(self.places.source[slot], np.float64).T

    def of(self, n: int, x: Array) -> tuple[str, Array | None]:
        """("compute" | "skip" | "zero" | "invalid", the sums) of sequence n; stores its state."""
        if self.has_steps:
            return self._of_steps(n, x)
        kind, read, write = self.places.of(n)
        if self.options["cache_seqlens"] is not None:
            return self._of_circular(n, x, kind, read, write)
        accepted = self.options["accepted"]
        start = 0
        if accepted is not None:
            start = max(int(accepted[n]), 0 if accepted[n] < 0 else 1) - 1
            room = self.columns - self.width + 2
            if kind == "compute" and not (0 <= start < room and len(x) <= room):
                kind = "invalid"
        if kind != "compute":
            return kind, None
        state = self.initial(n, read)
        if accepted is not None:
            history = state[start : start + self.width - 1]
            stored = np.concatenate([history, x])[1:] if len(x) > 0 else x
        else:
            history = state[self.columns - self.width + 1 :]
            stored = np.concatenate([state, x])[-self.columns :]
        self._keep_checkpoints(n, np.concatenate([state, x]), len(x))
        if self.places.target is not None and write is not None:
            self.places.target[write, :, : len(stored)] = stored.T
        return kind, sums(np.concatenate([history, x]), self.weight, self.bias)

    def _of_circular(
        self, n: int, x: Array, kind: str, read: Any, write: Any
    ) -> tuple[str, Array | None]:
        """of(), where input i of a sequence is in column i mod columns."""
        count = int(self.options["cache_seqlens"][n])
        if kind == "compute" and count < 0:
            kind = "invalid"
        if kind != "compute":
            return kind, None
        state = self.initial(n, read)
        history = state[[i % self.columns for i in range(count - self.width + 1, count)]]
        for i, row in enumerate(x, count):
            self.places.target[write, :, i % self.columns] = row
        return kind, sums(np.concatenate([history, x]), self.weight, self.bias)

    def _keep_checkpoints(self, n: int, inputs: Array, tokens: int) -> None:
        options = self.options
        mode, every = options["checkpoint_mode"], options["checkpoint_every"]
        assert (mode == "none") == (options["checkpoints"] is None)
        if mode == "none":
            return
        if mode == "at":
            self._keep_at_offsets(n, inputs, tokens)
            return
        behind = {"before": range(0, tokens, every), "after": range(every, tokens + 1, every)}[mode]
        starts = options["checkpoint_cu_starts"]
        first = n * len(behind) if starts is None else int(starts[n])
        for row, count in enumerate(behind, first):
            options["checkpoints"][row] = inputs[count : count + self.columns].T

    def _keep_at_offsets(self, n: int, inputs: Array, tokens: int) -> None:
        options = self.options
        pad = options["pad_slot_id"]
        for count, slot in zip(options["checkpoint_offsets"][n], options["checkpoint_slots"][n]):
            if count <= 0 or slot < 0 or slot == pad:
                continue
            assert count <= tokens
            options["checkpoints"][slot] = inputs[count : count + self.columns].T

    def _of_steps(self, n: int, x: Array) -> tuple[str, Array | None]:
        """of(), where there is a state for each step."""
        options, places, accepted = self.options, self.places, self.options["accepted"]
        reads, writes = options["state_indices"], options["state_out_indices"]
        writes = reads if writes is None else writes
        start = 0 if accepted is None else max(int(accepted[n]), 1) - 1
        assert accepted is None or 0 <= accepted[n]
        if len(x) == 0:
            return "compute", x
        slots: list[Any] = [(n, t) for t in range(len(x))]
        read: Any = n if accepted is None else (n, start)
        if reads is not None:
            index = int(reads[n] if accepted is None else reads[n, start])
            found = [places.resolve(index, int(writes[n, t])) for t in range(len(x))]
            kinds = {kind for kind, _, _ in found}
            kind = "invalid" if "invalid" in kinds else kinds.pop()
            if kind != "compute":
                return kind, None
            read, slots = found[0][1], [slot for _, _, slot in found]
        state = self.initial(n, read)
        inputs = np.concatenate([state, x])
        for t, slot in enumerate(slots):
            if slot is not None:
                places.target[slot] = inputs[t + 1 : t + 1 + self.columns].T
        return "compute", sums(inputs[self.columns - self.width + 1 :], self.weight, self.bias)

    def split(self, y: Array) -> list[Array]:
        """y [T, C] as q, k and v [T, heads * dim]."""
        options = self.options
        keys = [options[name] * options["key_dim"] for name in ("q_heads", "k_heads")]
        q, k, v = np.split(y, np.cumsum(keys), axis=1)
        if options["use_qk_l2norm"]:
            q, k = (
                recurrence.normalised(x.reshape(len(x), -1, options["key_dim"])).reshape(x.shape)
                for x in (q, k)
            )
        scale = 1.0 if options["scale"] is None else options["scale"]
        return [scale * q, k, v]


def _spans(options: dict[str, Any]) -> list[slice] | None:
    """The tokens of each sequence; None: the bounds are wrong."""
    x, bounds = options["x"], options["cu_seqlens"]
    if bounds is None:
        return [slice(n * x.shape[1], (n + 1) * x.shape[1]) for n in range(len(x))]
    total = x.shape[-2]
    if any(a > b for a, b in zip(bounds, bounds[1:])) or bounds[0] < 0 or bounds[-1] > total:
        return None
    return [slice(int(a), int(b)) for a, b in zip(bounds, bounds[1:])]


def log_decay(
    a: Array, A_log: Array | None, dt_bias: Array | None, lower_bound: float | None, has_rows: bool
) -> Array:
    """g of gdn_conv.h, of heads or of their channels."""
    scale, bias = (np.float64(0 if array is None else array) for array in (A_log, dt_bias))
    scale = np.exp(scale)
    if has_rows:
        scale, bias = scale[..., None], bias.reshape(a.shape[-2:]) if bias.ndim else bias
    if lower_bound is not None:
        return lower_bound * recurrence.sigmoid(scale * (a + bias))
    g = -scale * recurrence.softplus(a + bias)
    return np.maximum(g, -128) if has_rows else g


def gdn_conv(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    y: Array | None = None,
    q: Array | None = None,
    k: Array | None = None,
    v: Array | None = None,
    a: Array | None = None,
    b: Array | None = None,
    A_log: Array | None = None,
    dt_bias: Array | None = None,
    g: Array | None = None,
    beta: Array | None = None,
    cu_seqlens: Array | None = None,
    has_initial_state: Array | None = None,
    accepted: Array | None = None,
    cache_seqlens: Array | None = None,
    state: Array | None = None,
    state_out: Array | None = None,
    state_indices: Array | None = None,
    state_out_indices: Array | None = None,
    checkpoints: Array | None = None,
    checkpoint_cu_starts: Array | None = None,
    checkpoint_offsets: Array | None = None,
    checkpoint_slots: Array | None = None,
    pad_slot_id: int | None = None,
    zero_padding: bool = False,
    scratch_slot: int | None = None,
    scale: float | None = None,
    lower_bound: float | None = None,
    max_seqlen: int | None = None,
    q_heads: int | None = None,
    k_heads: int | None = None,
    v_heads: int | None = None,
    key_dim: int | None = None,
    value_dim: int | None = None,
    activation: str = "silu",
    store_state: bool = True,
    state_layout: str | None = None,
    decay: str | None = None,
    beta_mode: str | None = None,
    use_qk_l2norm: bool = False,
    stored_states: str = "last",
    checkpoint_mode: str = "none",
    checkpoint_every: int = 64,
    batch_invariant: bool = False,
    share: Any = None,
    ranks: Any = None,
    stream: int | None = None,
    context: Any = None,
) -> Any:
    """functional.gdn_conv for numpy arrays of one rank."""
    options = dict(locals())
    assert share is ranks is None
    convolution = _Convolution(options)
    lead = x.shape[:-1]
    is_split = q_heads is not None

    def made(array: Array | None, *shape: int, dtype: str = _arrays.dtype_name(x)) -> Array:
        return _arrays.empty(x, (*lead, *shape), dtype) if array is None else array

    if is_split:
        arrays = [made(q, q_heads, key_dim), made(k, k_heads, key_dim), made(v, v_heads, value_dim)]
        heads = max(q_heads, k_heads, v_heads)
        if a is not None:
            g = made(g, *a.shape[len(lead) :], dtype="f32")
            g[...] = log_decay(np.float64(a), A_log, dt_bias, lower_bound, a.ndim > x.ndim)
        if b is not None:
            beta = made(beta, heads, dtype="f32")
            beta[...] = recurrence.strength(beta_mode or "logit", np.float64(b))
    else:
        arrays = [made(y, x.shape[-1])]
    outputs = _Outputs(arrays, lead)
    rows = np.asarray(x, np.float64).reshape(math.prod(lead), x.shape[-1])
    spans = _spans(options)
    if spans is None:
        outputs.fill(slice(None), np.nan)
    for n, span in enumerate(spans or []):
        kind, found = convolution.of(n, rows[span])
        if kind == "compute":
            made_y = activated(activation, found)
            outputs.put(span, convolution.split(made_y) if is_split else [made_y])
        elif kind != "skip":
            outputs.fill(span, {"zero": 0.0, "invalid": np.nan}[kind])
    outputs.finish()
    return ConvOutputs(*arrays, g, beta) if is_split else arrays[0]


class DecodeContext:
    """A context whose operators are decodes with a convolution in front, for numpy arrays."""

    def __init__(self) -> None:
        self.problems: list[Any] = []

    def _kept_operator(self, fields: tuple[str, ...], key: tuple[Any, ...]) -> Any:
        problem = key[0](**dict(zip(fields, key[1:], strict=True)))
        self.problems.append(problem)
        return functools.partial(_decode, problem)


_POOL = ("state_indices", "pad_slot_id", "zero_padding")
_MODES = ("decay", "gate_mode", "beta_mode", "use_qk_l2norm", "state_layout", "output_norm")


def _decode(problem: Any, *, x: Array, out: Array, **named: Any) -> Array:
    conv = {name: named.pop(f"conv_{name}") for name in ("weight", "bias", "state")}
    assert (conv["bias"] is not None) == problem.conv_has_bias
    heads = {f"{name}_heads": getattr(problem, f"{name}_heads") for name in ("q", "k", "v")}
    rows = gdn_conv(
        x[:, None], **conv, **heads, key_dim=problem.key_dim, value_dim=problem.value_dim,
        activation=problem.conv_activation, state_layout=problem.conv_state_layout,
        **{name: named[name] for name in _POOL if name in named},
    )  # fmt: skip
    modes = {name: getattr(problem, name) for name in _MODES}
    parts = (part[:, 0] for part in (rows.q, rows.k, rows.v))
    return recurrence.gdn_decode(*parts, out=out, **named, **modes)
