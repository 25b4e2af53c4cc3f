"""The Gated DeltaNet recurrence in numpy, and cubinery's functions on top of it.

`tokens()` is include/cubinery/gdn.h written down, token by token; in float64 it is what results are
compared with, in float32 what naive arithmetic loses.  `chunks()` is the same algebra by chunks,
the operands of its products rounded as gdn.h lists: the yardstick of a prefill.

`gdn_prefill`, `gdn_decode` and `gdn_verify` have the contract of cubinery.functional, for numpy
arrays on the host.  `install()` puts them in its place, so that what calls it can be tested without
a GPU.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from cubinery import _arrays, functional

Array = np.ndarray
Round = Callable[[Array], Array]

_MODES = ("A_log", "dt_bias", "gate_mode", "beta_mode", "use_qk_l2norm", "scale")
_CHANNEL_MODES = ("decay", "lower_bound")
_LEAST_LOG = -128.0  # decays below e^-128 are taken as that


def rounding(dtype: str) -> Round:
    """To the nearest value of "f32", "bf16" or "f16", ties to even, as float32."""

    def to_bf16(x: Array) -> Array:
        bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(
            0xFFFF0000
        )
        return np.where(np.isfinite(x), rounded.view(np.float32), np.float32(x))

    return {
        "f32": lambda x: np.asarray(x, np.float32),
        "f16": lambda x: np.asarray(x, np.float16).astype(np.float32),
        "bf16": to_bf16,
    }[dtype]


def softplus(x: Array) -> Array:
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def log_decay(
    mode: str,
    g: Array | None,
    A_log: Array | None,
    dt_bias: Array | None,
    lower_bound: float | None = None,
) -> Any:
    """g of gdn.h, from what the gate mode is given; the others have g's dimensions of heads and
    channels, or 1."""
    bias = 0 if dt_bias is None else dt_bias
    rate = 1 if A_log is None else np.exp(A_log)
    with np.errstate(divide="ignore", over="ignore"):
        return {
            "none": lambda: 0.0,
            "log": lambda: g,
            "alpha": lambda: np.log(g),
            "computed": lambda: -rate * softplus(g + bias),
            "lower_bound": lambda: lower_bound * sigmoid(rate * (g + bias)),
        }[mode]()


def strength(mode: str, beta: Array | None) -> Any:
    """beta of gdn.h, from what the beta mode is given."""
    return {
        "one": lambda: 1.0,
        "given": lambda: beta,
        "logit": lambda: sigmoid(beta),
        "doubled_logit": lambda: 2 * sigmoid(beta),
    }[mode]()


def normalised(x: Array) -> Array:
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + x.dtype.type(1e-6))


def to_heads(x: Array, heads: int) -> Array:
    """[.., h, D] -> [.., heads, D]: head i is x's head i / (heads / h)."""
    return np.repeat(x, heads // x.shape[-2], axis=-2)


def tokens(
    q: Array, k: Array, v: Array, g: Array, beta: Array, state: Array
) -> tuple[Array, Array]:
    """One sequence.  q, k [T, H, K] normalised and scaled, v [T, H, V], g [T, H] or, of channels,
    [T, H, K], beta [T, H], state [H, K, V].  Returns o [T, H, V] and the states after each token
    [T, H, K, V].  In q's dtype.
    """
    outputs = np.zeros_like(v)
    states = np.zeros((len(q), *state.shape), q.dtype)
    for t in range(len(q)):
        state = np.exp(g[t]).reshape(len(state), -1, 1) * state
        u = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))
        state = state + k[t][:, :, None] * u[:, None, :]
        outputs[t] = np.einsum("hkv,hk->hv", state, q[t])
        states[t] = state
    return outputs, states


def paths(
    q: Array, k: Array, v: Array, g: Array, beta: Array, state: Array, parents: list[int]
) -> tuple[Array, Array]:
    """As tokens(), where token t goes on from the state after token parents[t], or from `state`."""
    outputs = np.zeros_like(v)
    states = np.zeros((len(q), *state.shape), q.dtype)
    for t, parent in enumerate(parents):
        token = (x[t : t + 1] for x in (q, k, v, g, beta))
        outputs[t : t + 1], states[t : t + 1] = tokens(
            *token, state if parent < 0 else states[parent]
        )
    return outputs, states


def chunks(
    q: Array, k: Array, v: Array, g: Array, beta: Array, state: Array, dtype: str, chunk: int = 32
) -> tuple[Array, Array]:
    """As tokens(), float32, by chunks; returns o and the last state [H, K, V].  Products take the
    state, the corrected values, the new values (as they are, and decayed to the chunk's end), and
    the two chunk matrices rounded to `dtype`.
    """
    rounded = rounding(dtype)
    outputs = np.zeros_like(v)
    for first in range(0, len(q), chunk):
        part = slice(first, first + chunk)
        # [H, tokens, ..]
        qc, kc, vc = (np.swapaxes(x[part], 0, 1) for x in (q, k, v))
        bc = beta[part].T
        sums = np.cumsum(np.maximum(g[part], np.float32(_LEAST_LOG)), axis=0).T
        lower = np.tril(np.ones((qc.shape[1],) * 2, bool))
        gate = np.where(lower, np.exp(np.where(lower, sums[:, :, None] - sums[:, None, :], 0)), 0)
        system = np.tril((kc @ np.swapaxes(kc, 1, 2)) * bc[:, None, :], -1) + np.eye(qc.shape[1])
        inverse = np.linalg.inv(system).astype(np.float32)
        transition = rounded(inverse * gate)
        attention = rounded((qc @ np.swapaxes(kc, 1, 2)) * gate * bc[:, None, :])
        decay = np.exp(sums)[:, :, None]
        held = rounded(state)
        new = transition @ rounded(vc - decay * (kc @ held))
        outputs[part] = np.swapaxes(decay * (qc @ held) + attention @ rounded(new), 0, 1)
        left = (np.exp(sums[:, -1:] - sums) * bc)[:, :, None]
        state = np.exp(sums[:, -1])[:, None, None] * state
        state = (state + np.swapaxes(kc, 1, 2) @ rounded(left * new)).astype(np.float32)
    return outputs, state


def modes_of(options: dict[str, Any]) -> dict[str, Any]:
    """Those that sequence_operands() takes."""
    return {name: options[name] for name in (*_MODES, *_CHANNEL_MODES) if name in options}


def sequence_operands(
    real: type, q: Array, k: Array, v: Array, g: Array | None, beta: Array | None, **modes: Any
) -> tuple[Array, ...]:
    """What tokens() takes, in the dtype `real`, of one sequence's arrays as a caller has them.

    q [T, Hq, K], k [T, Hk, K], v [T, Hv, V], g and beta [T, H], with decay "channel" g [T, H, K];
    modes: those of _MODES, and perhaps of _CHANNEL_MODES.
    """
    q, k, v = (np.asarray(x, real) for x in (q, k, v))
    g, beta, A_log, dt_bias = (
        None if x is None else np.asarray(x, real)
        for x in (g, beta, modes["A_log"], modes["dt_bias"])
    )
    heads = max(q.shape[1], k.shape[1], v.shape[1])
    if modes["use_qk_l2norm"]:
        q, k = normalised(q), normalised(k)
    scale = q.shape[-1] ** -0.5 if modes["scale"] is None else modes["scale"]
    per_token = np.zeros((len(q), heads), real)
    per_decay, bound = per_token, modes.get("lower_bound")
    if modes.get("decay") == "channel":
        per_decay = np.zeros((len(q), heads, q.shape[-1]), real)
        A_log = None if A_log is None else A_log[:, None]
        dt_bias = None if dt_bias is None else dt_bias.reshape(heads, -1)
    g = per_decay + np.asarray(log_decay(modes["gate_mode"], g, A_log, dt_bias, bound), real)
    beta = per_token + np.asarray(strength(modes["beta_mode"], beta), real)
    q, k, v = (to_heads(x, heads) for x in (q * real(scale), k, v))
    return q, k, v, np.maximum(g, real(_LEAST_LOG)), beta


def _check_operands(
    sequences: int, options: dict[str, Any], read_steps: int = 0, written_steps: int = 0
) -> None:
    """What the operators demand of the arrays that adapters may have to copy or cut.  Steps: the
    least of the second dimension of indices; 0: they have none."""
    for name in ("q", "k", "v"):
        x = options[name]
        assert x.size == 0 or _arrays.strides_of(x)[-1] == 1, f"{name} has no unit innermost stride"
    is_row = options["decay"] == "channel"
    assert not is_row or _arrays.strides_of(options["g"])[-1] == 1, "g has no unit innermost stride"
    dtypes = set()
    for name, steps in (("state_indices", read_steps), ("state_out_indices", written_steps)):
        indices = options[name]
        if indices is None:
            continue
        dtypes.add(indices.dtype)
        assert indices.ndim == (1 if steps == 0 else 2) and len(indices) == sequences, name
        assert steps == 0 or indices.shape[1] >= steps, name
    assert len(dtypes) <= 1, "indices of two dtypes"


class Places:
    """Where sequence n reads and writes its state, by the rules of StateArgs."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.source = options["state"]
        self.target = self.source if options["state_out"] is None else options["state_out"]
        assert len({state.dtype for state in (self.source, self.target) if state is not None}) <= 1
        if not options["store_state"]:
            self.target = None

    def _is_pad(self, index: int) -> bool:
        pad = self.options["pad_slot_id"]
        if pad is None:
            return False
        return index < 0 if pad < 0 else index == pad

    def of(self, n: int) -> tuple[str, int, int | None]:
        """("compute" | "skip" | "zero" | "invalid", slot to read, slot to write or None)."""
        reads = self.options["state_indices"]
        if reads is None:
            return "compute", n, n
        writes = self.options["state_out_indices"]
        return self.resolve(int(reads[n]), int((reads if writes is None else writes)[n]))

    def resolve(self, read: int, write: int | None) -> tuple[str, int, int | None]:
        """of(), from the indices."""
        scratch = self.options["scratch_slot"]
        if self._is_pad(read):
            if scratch is None:
                return "zero" if self.options["zero_padding"] else "skip", 0, None
            read = write = scratch
        elif self._is_pad(write):
            write = scratch
        for slot, pool in ((read, self.source), (write, self.target)):
            if pool is not None and slot is not None and not 0 <= slot < pool.shape[0]:
                return "invalid", 0, None
        return "compute", read, write


class _Slots(Places):
    """Of states that are matrices."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        for state in (self.source, self.target):
            assert state is None or _arrays.strides_of(state)[-2:] == (state.shape[-1], 1)

    def load(self, slot: int | tuple[int, int], shape: tuple[int, ...]) -> Array:
        """[H, K, V] in float64.  A pair is a row and a step."""
        if self.source is None:
            return np.zeros(shape)
        return self._turned(np.asarray(self.source[slot], np.float64))

    def store(self, slot: int | tuple[int, int] | None, state: Array) -> None:
        if self.target is not None and slot is not None:
            self.target[slot] = self._turned(state)

    def _turned(self, state: Array) -> Array:
        return np.swapaxes(state, -1, -2) if self.options["state_layout"] == "vk" else state

    def keep(self, rows: Array, states: Array) -> None:
        rows[...] = self._turned(states)


def _run_sequence(
    slots: _Slots, n: int, part: tuple[Any, ...], out: Array, options: dict[str, Any]
) -> Array | None:
    """Writes `out` and the final state; returns the states, the first of them the initial one."""
    kind, read, write = slots.of(n)
    if kind == "invalid":
        out[...] = np.nan
    if kind == "zero":
        out[...] = 0
    if kind != "compute":
        return None
    operands = sequence_operands(np.float64, *part, **modes_of(options))
    shape = (out.shape[1], operands[0].shape[-1], out.shape[-1])
    flags = options.get("has_initial_state")
    initial = slots.load(read, shape) if flags is None or flags[n] else np.zeros(shape)
    outputs, states = tokens(*operands, initial)
    out[...] = outputs
    states = np.concatenate([initial[None], states])
    slots.store(write, states[-1])
    return states


def _settings(arrays: dict[str, Any]) -> dict[str, Any]:
    """Resolves the options whose None has a meaning."""
    options = dict(arrays)
    if options["gate_mode"] is None:
        named = "log" if options["A_log"] is None else "computed"
        if options.get("lower_bound") is not None:
            named = "lower_bound"
        options["gate_mode"] = "none" if options["g"] is None else named
    if options["beta_mode"] is None:
        options["beta_mode"] = "one" if options["beta"] is None else "given"
    return options


def _output(q: Array, k: Array, v: Array, out: Array | None, output_dtype: str | None) -> Array:
    if out is not None:
        return out
    heads = max(x.shape[-2] for x in (q, k, v))
    return _arrays.empty(
        q, (*v.shape[:-2], heads, v.shape[-1]), output_dtype or _arrays.dtype_name(q)
    )


def gdn_prefill(
    q: Array,
    k: Array,
    v: Array,
    g: Array | None = None,
    beta: Array | None = None,
    *,
    A_log: Array | None = None,
    dt_bias: Array | None = None,
    decay: str = "head",
    gate_mode: str | None = None,
    beta_mode: str | None = None,
    use_qk_l2norm: bool = False,
    scale: float | None = None,
    state: Array | None = None,
    state_out: Array | None = None,
    store_state: bool = True,
    state_layout: str = "vk",
    state_indices: Array | None = None,
    state_out_indices: Array | None = None,
    pad_slot_id: int | None = None,
    zero_padding: bool = False,
    scratch_slot: int | None = None,
    cu_seqlens: Array | None = None,
    has_initial_state: Array | None = None,
    token_layout: str = "bthd",
    checkpoints: Array | None = None,
    checkpoint_mode: str = "none",
    checkpoint_every: int = 64,
    checkpoint_cu_starts: Array | None = None,
    checkpoint_offsets: Array | None = None,
    checkpoint_slots: Array | None = None,
    segments: str = "auto",
    out: Array | None = None,
    output_dtype: str | None = None,
    workspace: Any = None,
    lower_bound: float | None = None,
    max_seqlen: int | None = None,
    stream: int | None = None,
    context: Any = None,
) -> Array:
    """functional.gdn_prefill for numpy arrays, token_layout "bthd"."""
    options = _settings(dict(locals()))
    assert token_layout == "bthd" and (checkpoint_mode == "none") == (checkpoints is None)
    slots = _Slots(options)
    out = _output(q, k, v, out, output_dtype)
    flat_out = out.reshape(-1, *out.shape[-2:]) if cu_seqlens is not None else None
    assert flat_out is None or np.shares_memory(flat_out, out)
    sequences = len(q) if cu_seqlens is None else len(cu_seqlens) - 1
    gate_depth = -2 if decay == "channel" else -1
    _check_operands(sequences, options)
    row = 0
    for n in range(sequences):
        if cu_seqlens is None:
            part = tuple(None if x is None else x[n] for x in (q, k, v, g, beta))
            rows = out[n]
        else:
            span = slice(int(cu_seqlens[n]), int(cu_seqlens[n + 1]))
            part = tuple(
                None if x is None else x.reshape(-1, *x.shape[depth:])[span]
                for x, depth in ((q, -2), (k, -2), (v, -2), (g, gate_depth), (beta, -1))
            )
            rows = flat_out[span]
        states = _run_sequence(slots, n, part, rows, options)
        if checkpoints is None or states is None:
            continue
        last = len(states) - 1  # tokens
        if checkpoint_mode == "at":
            for count, slot in zip(checkpoint_offsets[n], checkpoint_slots[n]):
                if count > 0 and slot >= 0 and slot != pad_slot_id:
                    assert count % checkpoint_every == 0 and count <= last
                    slots.keep(checkpoints[slot : slot + 1], states[count : count + 1])
            continue
        kept = {"before": states[:last:checkpoint_every], "after": states[1:]}[checkpoint_mode]
        if checkpoint_mode == "after":
            kept = kept[checkpoint_every - 1 :: checkpoint_every]
        start = row if checkpoint_cu_starts is None else int(checkpoint_cu_starts[n])
        slots.keep(checkpoints[start : start + len(kept)], kept)
        row += len(kept)
    return out


def gdn_decode(
    q: Array,
    k: Array,
    v: Array,
    g: Array | None = None,
    beta: Array | None = None,
    *,
    A_log: Array | None = None,
    dt_bias: Array | None = None,
    gate_mode: str | None = None,
    beta_mode: str | None = None,
    use_qk_l2norm: bool = False,
    scale: float | None = None,
    decay: str = "head",
    lower_bound: float | None = None,
    state: Array | None = None,
    state_out: Array | None = None,
    store_state: bool = True,
    state_layout: str = "vk",
    state_indices: Array | None = None,
    state_out_indices: Array | None = None,
    pad_slot_id: int | None = None,
    zero_padding: bool = False,
    scratch_slot: int | None = None,
    z: Array | None = None,
    norm_weight: Array | None = None,
    norm_eps: float | None = None,
    output_norm: str | None = None,
    out: Array | None = None,
    output_dtype: str | None = None,
    stream: int | None = None,
    context: Any = None,
) -> Array:
    """functional.gdn_decode for numpy arrays."""
    options = _settings(dict(locals()))
    _check_operands(len(q), options)
    slots = _Slots(options)
    out = _output(q, k, v, out, output_dtype)
    rows_out = out if out.ndim == 4 else out[:, None]

    def row(x: Array | None, n: int, rank: int) -> Array | None:
        return None if x is None else x[n] if x.ndim == rank + 1 else x[n][None]

    of_g = 3 if decay == "channel" else 2
    for n in range(len(q)):
        part = (*(row(x, n, 3) for x in (q, k, v)), row(g, n, of_g), row(beta, n, 2))
        if _run_sequence(slots, n, part, rows_out[n], options) is not None and z is not None:
            rows_out[n] = normed(rows_out[n], z[n], norm_weight, norm_eps, output_norm)
    return out


class _Steps:
    """Where request n starts and where the state after each of its tokens goes, by the rules of
    VerifyArgs."""

    def __init__(self, slots: _Slots, accepted: Array | None, every: bool) -> None:
        self.slots = slots
        self.accepted = accepted
        self.every = every
        table = slots.options["state_indices"]
        self.readable = (
            0 if accepted is None else (slots.source if table is None else table).shape[1]
        )

    def of(self, n: int, tokens: int) -> tuple[str, Any, list[Any]]:
        """("compute" | "skip" | "zero" | "invalid", place to read, place to write by token): of
        every token, or of the last one alone."""
        start = 0 if self.accepted is None else max(int(self.accepted[n]), 1) - 1
        if self.accepted is not None and not 0 <= start < self.readable:
            return "invalid", 0, []
        read = n if self.accepted is None else (n, start)
        options = self.slots.options
        reads, writes = options["state_indices"], options["state_out_indices"]
        steps = range(tokens) if self.every else [None]
        if reads is None:
            in_place = options["state_out"] is None
            return (
                "compute",
                read,
                [(n, t) if self.every else read if in_place else n for t in steps],
            )
        found = []
        for t in steps:
            table = reads if writes is None else writes
            at = (n, t) if self.every else read if writes is None else n
            found.append(self.slots.resolve(int(reads[read]), int(table[at])))
        kinds = {kind for kind, _, _ in found}
        kind = "invalid" if "invalid" in kinds else found[0][0]
        return kind, found[0][1], [write for _, _, write in found]


def gdn_verify(
    q: Array,
    k: Array,
    v: Array,
    g: Array | None = None,
    beta: Array | None = None,
    *,
    A_log: Array | None = None,
    dt_bias: Array | None = None,
    gate_mode: str | None = None,
    beta_mode: str | None = None,
    use_qk_l2norm: bool = False,
    scale: float | None = None,
    decay: str = "head",
    lower_bound: float | None = None,
    state: Array | None = None,
    state_out: Array | None = None,
    store_state: bool = True,
    stored_states: str = "last",
    round_each_token: bool = False,
    state_layout: str = "vk",
    state_indices: Array | None = None,
    state_out_indices: Array | None = None,
    pad_slot_id: int | None = None,
    zero_padding: bool = False,
    scratch_slot: int | None = None,
    cu_seqlens: Array | None = None,
    draft_tokens: int | None = None,
    accepted: Array | None = None,
    parents: Array | None = None,
    z: Array | None = None,
    norm_weight: Array | None = None,
    norm_eps: float | None = None,
    output_norm: str | None = None,
    out: Array | None = None,
    output_dtype: str | None = None,
    stream: int | None = None,
    context: Any = None,
) -> Array:
    """functional.gdn_verify for numpy arrays, without round_each_token."""
    options = _settings(dict(locals()))
    assert not round_each_token
    most = 16 if draft_tokens is None else draft_tokens
    assert 1 <= most <= 16 and (cu_seqlens is not None or q.shape[1] <= most)
    every = stored_states == "every" and bool(store_state)
    assert (
        not every
        or accepted is not None
        or (state_out if state_indices is None else state_out_indices) is not None
    )
    assert parents is None or every or not store_state
    slots = _Slots(options)
    steps = _Steps(slots, accepted, every)
    out = _output(q, k, v, out, output_dtype)
    requests = len(q) if cu_seqlens is None else len(cu_seqlens) - 1
    assert accepted is None or accepted.shape == (requests,)
    written = 0 if not every else most if cu_seqlens is not None else q.shape[1]
    read = 0 if accepted is None else written if every and state_out_indices is None else 1
    _check_operands(requests, options, read, written)
    for n in range(requests):
        *part, rows, gate = _request(n, (q, k, v, g, beta, out, z), cu_seqlens, decay)
        tree = None if parents is None else _tree(n, parents, cu_seqlens)
        if every and len(rows) == 0:
            continue
        kind, source, targets = steps.of(n, len(rows))
        if kind == "compute" and len(rows) > most:
            kind = "invalid"
        if kind == "compute" and tree and any(not -1 <= p < t for t, p in enumerate(tree)):
            kind = "invalid"
        if kind != "compute":
            rows[...] = {"skip": rows, "zero": 0, "invalid": np.nan}[kind]
            continue
        operands = sequence_operands(np.float64, *part, **modes_of(options))
        initial = slots.load(source, (rows.shape[1], operands[0].shape[-1], rows.shape[-1]))
        if tree is None:
            o, states = tokens(*operands, initial)
        else:
            o, states = paths(*operands, initial, tree)
        rows[...] = o if gate is None else normed(o, gate, norm_weight, norm_eps, output_norm)
        kept = states if every else np.concatenate([initial[None], states])[-1:]
        for target, after in zip(targets, kept, strict=True):
            slots.store(target, after)
    return out


def normed(
    o: Array, z: Array, weight: Array | None, eps: float | None, output_norm: str | None
) -> Array:
    """o behind the gated norm of outputs, in float64."""
    assert weight is not None and output_norm in (None, "gated_rms", "sigmoid_gated_rms")
    o, z = np.float64(o), np.float64(z)
    o = o / np.sqrt((o * o).mean(-1, keepdims=True) + (1e-6 if eps is None else eps))
    gate = 1 / (1 + np.exp(-z))
    return o * np.float64(weight) * (gate if output_norm == "sigmoid_gated_rms" else z * gate)


def _tree(n: int, parents: Array, cu_seqlens: Array | None) -> list[int]:
    if cu_seqlens is None:
        return [int(parent) for parent in parents[n]]
    return [int(parent) for parent in parents.reshape(-1)[cu_seqlens[n] : cu_seqlens[n + 1]]]


def _request(n: int, arrays: tuple[Any, ...], cu_seqlens: Array | None, decay: str) -> list[Any]:
    """The tokens of request n, as views, of q, k, v, g, beta, out and z."""
    if cu_seqlens is None:
        return [None if x is None else x[n] for x in arrays]
    span = slice(int(cu_seqlens[n]), int(cu_seqlens[n + 1]))
    inner = (2, 2, 2, 2 if decay == "channel" else 1, 1, 2, 2)  # dimensions besides the tokens'
    return [
        None if x is None else (x[0] if x.ndim > d + 1 else x)[span] for x, d in zip(arrays, inner)
    ]


def noted_option(monkeypatch: Any, name: str) -> list[Any]:
    """The list of what calls of functional.gdn_prefill pass for an option from now on."""
    noted: list[Any] = []
    run = functional.gdn_prefill

    def call(*args: Any, **options: Any) -> Array:
        noted.append(options[name])
        return run(*args, **options)

    monkeypatch.setattr(functional, "gdn_prefill", call)
    return noted


def install(monkeypatch: Any) -> dict[str, int]:
    """Puts them in the place of cubinery.functional's; returns the number of calls of each."""
    calls = {"gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 0}

    def counted(function: Callable[..., Array]) -> Callable[..., Array]:
        def call(*args: Any, **kwargs: Any) -> Array:
            calls[function.__name__] += 1
            return function(*args, **kwargs)

        return call

    for function in (gdn_prefill, gdn_decode, gdn_verify):
        monkeypatch.setattr(functional, function.__name__, counted(function))
    return calls
