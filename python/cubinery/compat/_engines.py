"""What the adapters of engines share: packed batches of few tokens on a pool of states."""

from __future__ import annotations

import math
from typing import Any

from cubinery import _arrays, functional
from cubinery._errors import InvalidArgumentError, UnsupportedError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _verify as verification
from cubinery.problems import StateLayout

_WRITTEN = "ssm_state_indices_output"


def zeroed_padding(function: str, pad_slot_id: int | None) -> dict[str, Any]:
    """functional's options of a pool where requests of this index, or of any negative one, are
    padding and get zeros.  None: no index is padding."""
    if pad_slot_id is None:
        return {}
    arguments.require_value(function, "pad_slot_id", pad_slot_id, (0, -1))
    return {"pad_slot_id": pad_slot_id, "zero_padding": True}


def refuse_head_first(function: str, head_first: bool) -> None:
    """Raises InvalidArgumentError for inputs that have the heads before the tokens."""
    if arguments.flag(function, "head_first", head_first):
        raise InvalidArgumentError(
            f"{function}: head_first is not supported; inputs are [B, T, H, ...]"
        )


def require_plain_softplus(function: str, beta_name: str, beta: float, **threshold: float) -> None:
    """Raises UnsupportedError unless the gate's softplus is the one that cubinery computes."""
    ((threshold_name, limit),) = threshold.items()
    if beta != 1.0 or limit != 20.0:
        raise UnsupportedError(
            f"{function}: {beta_name} is {beta} and {threshold_name} is {limit}; supported: "
            "1.0 and 20.0"
        )


def count_requests(q: Any, cu_seqlens: Any) -> int:
    """Requests of [1, total, ..] with `cu_seqlens` [N + 1], or of [N, T, ..] without."""
    return int(q.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1)


def rows_of(function: str, name: str, array: Any, requests: int, form: str) -> Any:
    """The first N rows of an array of requests; None if there is none.  InvalidArgumentError where
    it has another rank than `form`, say "[N, S]", or fewer rows: a captured graph has more."""
    if array is None:
        return None
    if len(array.shape) != form.count(",") + 1 or array.shape[0] < requests:
        raise InvalidArgumentError(
            f"{function}: {name} has shape {list(array.shape)}; expected {form}, N = {requests}"
        )
    return array[:requests]


def gate_rows(
    function: str,
    gates: dict[str, Any],
    leads: list[tuple[int, ...]],
    heads: int,
    key_dim: int | None,
) -> list[Any]:
    """The gates, under the caller's names, with the first of `leads` as their leading dimensions:
    decays, then betas.  Given, they have any of `leads`.

    Behind them are the heads; behind those of decays `key_dim` channels (None: there is one decay
    for all), which may be one dimension with the heads.
    """
    tails = [(heads,) if key_dim is None else (heads, key_dim), (heads,)]
    rows = []
    for (name, gate), tail in zip(gates.items(), tails):
        if gate is not None:
            shape, wanted = tuple(gate.shape), (*leads[0], *tail)
            if shape not in [(*lead, *end) for lead in leads for end in (tail, (math.prod(tail),))]:
                raise InvalidArgumentError(
                    f"{function}: {name} has shape {list(shape)}; expected {list(wanted)}"
                )
            gate = gate if shape == wanted else gate.reshape(wanted)
            gate = arguments.unit_rows(gate) if len(tail) > 1 else gate
        rows.append(gate)
    return rows


def _channels(q: Any, options: dict[str, Any]) -> int | None:
    """gate_rows()'s key_dim."""
    return int(q.shape[-1]) if options.setdefault("decay", "head") == "channel" else None


def decode_rows(
    function: str,
    q: Any,
    k: Any,
    v: Any,
    gates: dict[str, Any],
    cu_seqlens: Any,
    key_dim: int | None = None,
) -> tuple[Any, ...]:
    """q, k, v and the gates as one row per request: [N, heads, dim] and [N, heads], or with
    `key_dim` [N, heads, key_dim].

    With `cu_seqlens` [N + 1] q, k and v are [1, N, ..]; without it [N, 1, ..].  Gates have these
    leading dimensions too, or [N] alone.  InvalidArgumentError when that is not one token per
    request.
    """
    arguments.require_rank(function, "q", q, "[B, T, H, K]")
    arguments.require_rank(function, "v", v, "[B, T, HV, V]")
    requests = count_requests(q, cu_seqlens)
    tokens = q.shape[0] * q.shape[1]
    if tokens != requests or (cu_seqlens is not None and q.shape[0] != 1):
        raise UnsupportedError(
            f"{function}: q has {q.shape[0]} x {q.shape[1]} tokens for {requests} requests; "
            "supported: one token per request, [1, N, H, K] with cu_seqlens or [N, 1, H, K]"
        )

    def rows(array: Any) -> Any:
        return array[0] if cu_seqlens is not None else array[:, 0]

    shaped = gate_rows(function, gates, [(requests,), tuple(q.shape[:2])], v.shape[2], key_dim)
    return (*(arguments.unit_rows(rows(array)) for array in (q, k, v)), *shaped)


def decode(
    function: str,
    q: Any,
    k: Any,
    v: Any,
    gates: dict[str, Any],
    *,
    cu_seqlens: Any,
    states: Any,
    indices: Any,
    pad_slot_id: int | None,
    written: Any = None,
    out: Any = None,
    state_layout: StateLayout = "vk",
    **options: Any,
) -> Any:
    """One token per request on a pool.  Returns o in q's dtype and v's shape, `out` if given.

    `gates`: what functional.gdn_decode takes as g and beta, under the caller's names.  A request
    whose index is padding gets zeros and touches no state.  `indices` None: the states are dense,
    one row per request.  `written`: indices of new states, where they are others, with their name.
    `options` go to functional.gdn_decode.
    """
    rows = decode_rows(function, q, k, v, gates, cu_seqlens, _channels(q, options))
    arguments.refuse_autograd(function, q=q, k=k, v=v, **gates, initial_state=states)
    if states is not None:
        arguments.require_state_dtype(function, "initial_state", states)
    if indices is not None:
        requests = rows[0].shape[0]
        if len(indices.shape) != 1 or indices.shape[0] < requests:
            raise InvalidArgumentError(
                f"{function}: state indices have shape {list(indices.shape)}; expected [{requests}]"
            )
        options.update(state_indices=indices[:requests], **zeroed_padding(function, pad_slot_id))
        if written is not None:
            name, slots = written
            options["state_out_indices"] = arguments.of_dtype(
                rows_of(function, name, slots, requests, "[N]"), indices
            )
    out = _output(function, q, v, out)
    functional.gdn_decode(
        *rows, state=states, state_layout=state_layout,
        out=out[0] if cu_seqlens is not None else out[:, 0], **options,
    )  # fmt: skip
    return out


def _output(function: str, q: Any, v: Any, out: Any) -> Any:
    """`out`, or a new array of v's shape in q's dtype."""
    shape = tuple(v.shape)
    if out is None:
        return _arrays.empty(q, shape, _arrays.dtype_name(q))
    arguments.require_shape(function, "output", out, shape)
    return out


def verify_rows(
    function: str,
    q: Any,
    k: Any,
    v: Any,
    gates: dict[str, Any],
    cu_seqlens: Any,
    key_dim: int | None = None,
) -> tuple[Any, ...]:
    """q, k, v and the gates, [N, T, ..] or, with `cu_seqlens`, [1, total, ..].

    Gates may have the tokens alone as their first dimension.  InvalidArgumentError for other
    shapes.
    """
    arguments.require_rank(function, "q", q, "[B, T, H, K]")
    arguments.require_rank(function, "v", v, "[B, T, HV, V]")
    batch, tokens = q.shape[:2]
    if cu_seqlens is not None and batch != 1:
        raise InvalidArgumentError(
            f"{function}: q has B = {batch}; expected 1 with cu_seqlens: [1, total, H, K]"
        )
    shaped = gate_rows(function, gates, [(batch, tokens), (batch * tokens,)], v.shape[2], key_dim)
    return (*(arguments.unit_rows(array) for array in (q, k, v)), *shaped)


def verify(
    function: str,
    q: Any,
    k: Any,
    v: Any,
    gates: dict[str, Any],
    *,
    cu_seqlens: Any,
    states: Any,
    pad_slot_id: int | None,
    draft_tokens: int | None,
    out: Any = None,
    state_layout: StateLayout = "vk",
    **options: Any,
) -> Any:
    """Up to `draft_tokens` tokens (None: 16) per request on a pool (None: from zero, nothing is
    kept).  Returns o in q's dtype and v's shape, `out` if given.

    As decode() else; `options` go to _verify.run().
    """
    rows = verify_rows(function, q, k, v, gates, cu_seqlens, _channels(q, options))
    arguments.refuse_autograd(function, q=q, k=k, v=v, **gates, initial_state=states)
    if states is not None:
        arguments.require_state_dtype(function, "initial_state", states)
        options.update(zeroed_padding(function, pad_slot_id))
    return verification.run(
        rows, state=states, state_layout=state_layout, cu_seqlens=cu_seqlens,
        draft_tokens=draft_tokens, out=_output(function, q, v, out), **options,
    )  # fmt: skip


def computed_gates(
    function: str,
    A_log: Any,
    dt_bias: Any,
    use_qk_l2norm_in_kernel: Any,
    *,
    lower_bound: float | None = None,
    channels: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """functional's options of gates that the kernel makes of a and b.  `channels`: HV and K, where a
    has a decay for each channel of k, as Kimi Delta Attention has it."""
    options = {"beta_mode": "logit", "use_qk_l2norm": normalises(function, use_qk_l2norm_in_kernel)}
    if channels is not None:
        return options | arguments.channel_decay(function, A_log, dt_bias, lower_bound, *channels)
    arguments.refuse_given(function, "one decay per head", lower_bound=lower_bound)
    return options | {"A_log": A_log, "dt_bias": dt_bias, "gate_mode": "computed"}


def update(
    function: str,
    q: Any,
    k: Any,
    v: Any,
    gates: dict[str, Any],
    *,
    pool: Any,
    indices: Any,
    cu_seqlens: Any,
    disable_state_update: bool,
    buffer: Any,
    rows: Any,
    cache_steps: int | None,
    pad_slot_id: int,
    parents: Any = None,
    **options: Any,
) -> Any:
    """fused_sigmoid_gating_delta_rule_update of SGLang and of TensorRT-LLM, whose adapters'
    docstrings state it: one token of each request, or several.  Returns o."""
    store = not arguments.flag(function, "disable_state_update", disable_state_update)
    has_pool = pool is not None
    if has_pool and indices is None:
        raise InvalidArgumentError(f"{function}: initial_state_source needs initial_state_indices")
    read = indices if has_pool else None
    options |= {"cu_seqlens": cu_seqlens, "states": pool, "pad_slot_id": pad_slot_id}
    arguments.require_rank(function, "q", q, "[B, T, H, K]")
    requests = count_requests(q, cu_seqlens)
    kept = _kept_steps(function, requests, buffer, rows, pool, read)
    if parents is not None:
        kept["parents"] = _parents(
            function, q, cu_seqlens, requests, parents, buffer is not None, not store
        )
    one_each = q.shape[0] * q.shape[1] == requests and (cache_steps or 1) == 1
    if not kept and one_each:
        return decode(function, q, k, v, gates, indices=read, store_state=store, **options)
    steps = None if buffer is None else buffer.shape[1]
    return verify(
        function, q, k, v, gates, update=has_pool and store,
        read=rows_of(function, "initial_state_indices", read, requests, "[N]"),
        draft_tokens=_most_tokens(function, q, cu_seqlens, steps, cache_steps), **kept, **options,
    )  # fmt: skip


def _kept_steps(
    function: str, requests: int, buffer: Any, rows: Any, pool: Any, read: Any
) -> dict[str, Any]:
    """Where the states after each token go; empty: nowhere."""
    if buffer is not None and pool is None:
        raise UnsupportedError(f"{function}: intermediate_states_buffer needs initial_state_source")
    if (buffer is None) != (rows is None):
        raise InvalidArgumentError(
            f"{function}: intermediate_states_buffer and intermediate_state_indices belong together"
        )
    if buffer is None:
        return {}
    verification.require_steps(function, "intermediate_states_buffer", buffer, None, 1, pool)
    rows = rows_of(function, "intermediate_state_indices", rows, requests, "[N]")
    steps, apart = verification.pool_of_steps(function, "intermediate_states_buffer", buffer)
    slots = verification.slots_of_rows(arguments.of_dtype(rows, read), apart, buffer.shape[1])
    return {"steps": steps, "step_slots": slots}


def _parents(
    function: str,
    q: Any,
    cu_seqlens: Any,
    requests: int,
    rows: Any,
    has_buffer: bool,
    disable_state_update: bool,
) -> Any:
    """functional.gdn_verify's parents, of retrieve_parent_token."""
    if not has_buffer:
        raise UnsupportedError(
            f"{function}: retrieve_parent_token needs intermediate_states_buffer"
        )
    if not disable_state_update:
        raise UnsupportedError(
            f"{function}: retrieve_parent_token needs disable_state_update: no token of a tree is "
            "the last"
        )
    rows = rows_of(function, "retrieve_parent_token", rows, requests, "[N, T]")
    if cu_seqlens is None:
        arguments.require_shape(function, "retrieve_parent_token", rows, tuple(q.shape[:2]))
    elif requests * rows.shape[1] != q.shape[1]:
        raise UnsupportedError(
            f"{function}: retrieve_parent_token has N = {requests}, T = {rows.shape[1]} and q has "
            f"total = {q.shape[1]}; supported: total = N T, requests of T tokens each"
        )
    return verification.parents_of(rows, cu_seqlens is not None)


def _most_tokens(
    function: str, q: Any, cu_seqlens: Any, steps: int | None, cache_steps: int | None
) -> int | None:
    """Of a request: functional.gdn_verify's draft_tokens.  `steps`: those of the buffer."""
    if cache_steps and steps is not None and cache_steps > steps:
        raise InvalidArgumentError(
            f"{function}: cache_steps is {cache_steps}; intermediate_states_buffer has {steps} "
            "steps"
        )
    bound = cache_steps or steps
    if cu_seqlens is None:
        verification.require_tokens(function, "q has T", q.shape[1])
        if bound and q.shape[1] > bound:
            raise InvalidArgumentError(
                f"{function}: q has T = {q.shape[1]} tokens per request; expected {bound} at most, "
                "cache_steps or the buffer's steps"
            )
        return None
    if bound:
        which = "cache_steps" if cache_steps else "intermediate_states_buffer has steps"
        verification.require_tokens(function, which, bound)
        return bound
    total = max(q.shape[1], 1)  # there may be none at all
    verification.require_tokens(function, "without cache_steps, q has total", total)
    return None


def normalises(function: str, use_qk_l2norm_in_kernel: Any) -> bool:
    """functional's use_qk_l2norm."""
    return arguments.flag(function, "use_qk_l2norm_in_kernel", use_qk_l2norm_in_kernel)


def recurrent(
    function: str,
    q: Any,
    k: Any,
    v: Any,
    gates: dict[str, Any],
    scale: float | None,
    initial_state: Any,
    inplace_final_state: bool,
    cu_seqlens: Any,
    indices: Any,
    num_accepted_tokens: Any,
    pad_slot_id: int | None,
    written: Any = None,
    **options: Any,
) -> tuple[Any, Any]:
    """fused_recurrent_gated_delta_rule of vLLM, whose adapter's docstring states it, and what else
    has its indices.  Returns o and the states.

    `options` as for decode() and verify().
    """
    if initial_state is None:
        raise InvalidArgumentError(f"{function}: initial_state is required")
    several = indices is not None and len(indices.shape) == 2
    if num_accepted_tokens is not None and not several:
        raise InvalidArgumentError(
            f"{function}: num_accepted_tokens needs ssm_state_indices [N, S]"
        )
    if written is not None and (indices is None or len(written.shape) != len(indices.shape)):
        raise InvalidArgumentError(
            f"{function}: ssm_state_indices_output has shape {list(written.shape)}; expected the "
            "dimensions of ssm_state_indices"
        )
    inplace_final_state = arguments.flag(function, "inplace_final_state", inplace_final_state)
    if inplace_final_state != (indices is not None):
        raise UnsupportedError(
            f"{function}: inplace_final_state is {inplace_final_state}; supported: True with "
            "ssm_state_indices, False without"
        )
    if several:
        options.update(
            _step_options(function, q, cu_seqlens, indices, num_accepted_tokens, written)
        )
        out = verify(
            function, q, k, v, gates, cu_seqlens=cu_seqlens, states=initial_state,
            steps=initial_state, update=False, pad_slot_id=pad_slot_id, scale=scale, **options,
        )  # fmt: skip
        return out, initial_state
    final = initial_state
    if indices is None:
        final = options["state_out"] = _arrays.empty(
            initial_state, tuple(initial_state.shape), _arrays.dtype_name(initial_state)
        )
    if written is not None:
        options["written"] = (_WRITTEN, written)
    out = decode(
        function, q, k, v, gates, cu_seqlens=cu_seqlens, states=initial_state, indices=indices,
        pad_slot_id=pad_slot_id, scale=scale, **options,
    )  # fmt: skip
    return out, final


def _step_options(
    function: str, q: Any, cu_seqlens: Any, indices: Any, accepted: Any, written: Any
) -> dict[str, Any]:
    """Where requests with a slot for each of S states start, and where their states go: where
    `written` says, or None: to the same slots."""
    arguments.require_rank(function, "q", q, "[B, T, H, K]")
    requests = count_requests(q, cu_seqlens)
    targets = ("ssm_state_indices", indices) if written is None else (_WRITTEN, written)
    name, steps = targets[0], targets[1].shape[1]
    verification.require_tokens(function, f"{name} has S", steps)
    if cu_seqlens is None and q.shape[1] > steps:
        raise InvalidArgumentError(
            f"{function}: q has T = {q.shape[1]} tokens per request and {name} S = {steps}; "
            "expected T <= S"
        )
    slots = rows_of(function, "ssm_state_indices", indices, requests, "[N, S]")
    counts = rows_of(function, "num_accepted_tokens", accepted, requests, "[N]")
    return {
        "read": slots[:, 0] if counts is None else slots,
        "accepted": counts,
        "step_slots": arguments.of_dtype(rows_of(function, *targets, requests, "[N, S]"), indices),
        "draft_tokens": steps,
    }


def packed_rows(function: str, mixed_qkv: Any, states: Any) -> tuple[Any, Any, Any]:
    """q, k and v [rows, heads, dim] of rows [q, k, v] as a projection leaves them, where they lie.

    `states` [slots, HV, V, K] says which heads there are.
    """
    arguments.require_rank(function, "mixed_qkv", mixed_qkv, "[B, channels]")
    rows, channels = mixed_qkv.shape
    heads, value_dim, key_dim = states.shape[1:]
    qk_channels = channels - heads * value_dim
    if qk_channels <= 0 or qk_channels % (2 * key_dim) != 0:
        raise InvalidArgumentError(
            f"{function}: mixed_qkv has {channels} channels; expected those of q, k and v for "
            f"{heads} value heads of {value_dim} and key heads of {key_dim}"
        )
    at = qk_channels // 2
    return (
        mixed_qkv[:, :at].reshape(rows, -1, key_dim),
        mixed_qkv[:, at:qk_channels].reshape(rows, -1, key_dim),
        mixed_qkv[:, qk_channels:].reshape(rows, heads, value_dim),
    )


def packed_decode(
    function: str,
    mixed_qkv: Any,
    gates: dict[str, Any],
    scale: float | None,
    initial_state: Any,
    out: Any,
    indices: tuple[str, Any],
    pad_slot_id: int,
    tokens_first: bool = True,
    **options: Any,
) -> tuple[Any, Any]:
    """Decode from the convolution's output, as the functions *_packed_decode of both engines do;
    their docstrings state it.

    `gates` as for decode(), with [B] as leading dimension; `indices` with the caller's name;
    `options`: those of computed_gates().
    `tokens_first`: out is [B, 1, HV, V], and gates may be [B, 1, ..]; else [1, B, ..].
    """
    parameters = {name: options.get(name) for name in ("A_log", "dt_bias")}
    arguments.refuse_autograd(function, mixed_qkv=mixed_qkv, **gates, **parameters)
    q, k, v = packed_rows(function, mixed_qkv, initial_state)
    batch, heads, value_dim = v.shape
    lead = (batch, 1) if tokens_first else (1, batch)
    g, beta = gate_rows(function, gates, [(batch,), lead], heads, _channels(q, options))
    if out is None:
        out = _arrays.empty(mixed_qkv, (*lead, heads, value_dim), _arrays.dtype_name(mixed_qkv))
    arguments.require_shape(function, "out", out, (*lead, heads, value_dim))
    arguments.require_shape(function, *indices, (batch,))
    states, slots, copied = initial_state, indices[1], None
    vector = 16 // _arrays.item_bytes(states)  # as kernels read slots
    if pad_slot_id == 0 and not arguments.begins_in_vectors(states, vector):
        states, slots, copied = _copied_slots(states, slots)
    functional.gdn_decode(
        q, k, v, g, beta, scale=scale, state=states, state_layout="vk", state_indices=slots,
        out=out if tokens_first else out[0], **zeroed_padding(function, pad_slot_id), **options,
    )  # fmt: skip
    if copied is not None:
        initial_state[copied] = states[1:]
    return out, initial_state


def _copied_slots(states: Any, indices: Any) -> tuple[Any, Any, Any]:
    """A pool with a copy of the slot of each of `indices` [B], behind slot 0, which is padding; the
    indices in it, -1 for those that no slot has; and the slots, 0 for those and for padding, which
    nobody writes: so they may all be written back."""
    there = (indices > 0) & (indices < states.shape[0])
    slots = indices * there
    pool = _arrays.empty(
        states, (indices.shape[0] + 1, *states.shape[1:]), _arrays.dtype_name(states)
    )
    pool[1:] = states[slots]
    behind = _arrays.arange(indices, indices.shape[0]) + 2
    moved = behind * there - (indices != 0) * 1
    return pool, arguments.of_dtype(moved, indices), slots


def pool_heads(function: str, states: Any, name: str = "initial_state") -> tuple[int, int]:
    """HV and K of a pool [slots, HV, V, K]; raises for another one."""
    arguments.require_rank(function, name, states, "[slots, HV, V, K]")
    arguments.require_state_dtype(function, name, states)
    return states.shape[1], states.shape[3]
