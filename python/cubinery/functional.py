"""The operators as functions: the problem is inferred from the arrays, outputs are allocated, and
operators are kept in the context that made them.

A first call with new dtypes, head counts or modes loads or compiles kernels; token counts, batch
sizes, strides and pool sizes never do.  For the least host time keep a Decode or Prefill and give it
every array.
"""

from __future__ import annotations

import threading
from typing import Any

from cubinery import _arrays
from cubinery._errors import InvalidArgumentError
from cubinery.operators import Context, Decode, Prefill
from cubinery.problems import (
    BetaMode,
    Checkpoints,
    DecodeProblem,
    Dtype,
    GateMode,
    Padding,
    PadIndex,
    PrefillProblem,
    StateLayout,
    TokenLayout,
)

_contexts: dict[int, Context] = {}
_contexts_lock = threading.Lock()


def _context_of(device: int) -> Context:
    """The context that calls without one use: one per device, made from the environment."""
    context = _contexts.get(device)
    if context is None:
        with _contexts_lock:
            context = _contexts.get(device)
            if context is None:
                context = _contexts[device] = Context(device)
    return context


def _dtype(array: Any, default: str) -> str:
    return default if array is None else _arrays.dtype_name(array)


def _heads(name: str, array: Any, ranks: tuple[int, ...], axis: int) -> tuple[int, int]:
    """Heads and dim of q, k or v."""
    shape = getattr(array, "shape", None)
    if shape is None or len(shape) not in ranks:
        found = type(array).__name__ if shape is None else f"{len(shape)} dimensions"
        accepted = " or ".join(str(rank) for rank in ranks)
        raise InvalidArgumentError(f"{name}: {found}; accepted: arrays of {accepted} dimensions")
    return shape[axis], shape[-1]


def _gate_mode(gate_mode: str | None, g: Any, A_log: Any) -> str:
    if gate_mode is not None:
        return gate_mode
    if g is None:
        return "none"
    return "log" if A_log is None else "computed"


def _check_states(state: Any, state_out: Any, store_state: bool, indices: tuple[Any, Any]) -> None:
    """Refuses what the inferred problem could not say."""
    if state_out is not None and not store_state:
        raise InvalidArgumentError("state_out: given; accepted: None, store_state is False")
    if state is None and state_out is None:
        for name, array in zip(("state_indices", "state_out_indices"), indices):
            if array is not None:
                raise InvalidArgumentError(
                    f"{name}: given; accepted: None, without state and state_out"
                )


def _shared_key(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    A_log: Any,
    dt_bias: Any,
    gate_mode: str | None,
    beta_mode: str | None,
    use_qk_l2norm: bool,
    state: Any,
    state_out: Any,
    store_state: bool,
    state_layout: str,
    state_indices: Any,
    padding: str,
    pad_index: str,
    out_dtype: str,
    ranks: tuple[int, ...],
    axis: int,
) -> tuple[Any, ...]:
    """The values of _SHARED_FIELDS."""
    q_heads, key_dim = _heads("q", q, ranks, axis)
    k_heads, _ = _heads("k", k, ranks, axis)
    v_heads, value_dim = _heads("v", v, ranks, axis)
    return (
        q_heads,
        k_heads,
        v_heads,
        key_dim,
        value_dim,
        _arrays.dtype_name(q),
        out_dtype,
        _dtype(g, "f32"),
        _dtype(beta, "f32"),
        _dtype(A_log, "f32"),
        _dtype(dt_bias, "f32"),
        _dtype(state_out if state is None else state, "f32"),
        _dtype(state_indices, "i32"),
        state_layout,
        "dense" if state_indices is None else "pool",
        padding,
        pad_index,
        _gate_mode(gate_mode, g, A_log),
        ("one" if beta is None else "given") if beta_mode is None else beta_mode,
        bool(use_qk_l2norm),
        state is not None,
        bool(store_state) and (state is not None or state_out is not None),
    )


_SHARED_FIELDS = (
    "q_heads",
    "k_heads",
    "v_heads",
    "key_dim",
    "value_dim",
    "dtype",
    "output_dtype",
    "gate_dtype",
    "beta_dtype",
    "a_log_dtype",
    "dt_bias_dtype",
    "state_dtype",
    "index_dtype",
    "state_layout",
    "state_location",
    "padding",
    "pad_index",
    "gate_mode",
    "beta_mode",
    "use_qk_l2norm",
    "has_initial_state",
    "store_state",
)
_PREFILL_FIELDS = (
    *_SHARED_FIELDS,
    "cu_seqlens_dtype",
    "token_layout",
    "varlen",
    "checkpoints",
    "checkpoint_every",
)


def _operator(context: Context, fields: tuple[str, ...], key: tuple[Any, ...]) -> Any:
    """The context's operator for these values of a problem's fields."""
    operator = context._operators.get(key)
    if operator is None:
        problem = DecodeProblem if fields is _SHARED_FIELDS else PrefillProblem
        made = context.prepare(problem(**dict(zip(fields, key))))
        # Of threads that come here at the same time, all go on with the first one's operator; the
        # library has compiled its kernels once.
        operator = context._operators.setdefault(key, made)
    return operator


def gdn_decode(
    q: Any,
    k: Any,
    v: Any,
    g: Any = None,
    beta: Any = None,
    *,
    A_log: Any = None,
    dt_bias: Any = None,
    gate_mode: GateMode | None = None,
    beta_mode: BetaMode | None = None,
    use_qk_l2norm: bool = False,
    scale: float | None = None,
    state: Any = None,
    state_out: Any = None,
    store_state: bool = True,
    state_layout: StateLayout = "vk",
    state_indices: Any = None,
    state_out_indices: Any = None,
    padding: Padding = "none",
    pad_index: PadIndex = "negative",
    scratch_slot: int = 0,
    out: Any = None,
    output_dtype: Dtype | None = None,
    stream: int | None = None,
    context: Context | None = None,
) -> Any:
    """One token for each of B requests.

    H is the largest of the three head counts.  Dtypes are those of the arrays: f32, bf16 or f16,
    indices i32 or i64.

    Args:
        q, k, v: [B, heads, dim] or [B, 1, heads, dim].
        g: [B, H] or [B, 1, H], as gate_mode says; None: no decay.
        beta: likewise, as beta_mode says; None: 1.
        A_log, dt_bias: [H], for gate_mode "computed".
        gate_mode: "none"; "log": g; "alpha": exp(g); "computed": a, with
            g = -exp(A_log) softplus(a + dt_bias).  None: "none" without g, "computed" with A_log,
            else "log".
        beta_mode: "one"; "given"; "logit": its sigmoid; "doubled_logit": twice that.  None: "one"
            without beta, else "given".
        use_qk_l2norm: q and k are normalised in the kernel.
        scale: None: K ** -0.5.
        state: [B or slots, H, rows, cols] (state_layout "vk": V x K, "kv": K x V); None: zero.
        state_out: likewise, where new states go; None: in place.
        store_state: False: new states are not kept.
        state_indices: [B], slots that requests read; makes states a pool.
        state_out_indices: [B], slots that they write; None: those they read.
        padding, pad_index, scratch_slot: what an index that means padding does (`cubinery/gdn.h`).
        out: [B, H, V] or [B, 1, H, V]; None: allocated, of v's rank.
        output_dtype: "f32", "bf16" or "f16"; None: out's, else q's.
        stream: a cudaStream_t as a number; None: the library's current one.
        context: None: one per device, made at first use from the environment.

    Returns:
        out.

    Raises:
        InvalidArgumentError: names the array or field, what it is and what is accepted.
        CompileError, NotCachedError, UnsupportedError, DriverError: as Context.prepare().
    """
    _check_states(state, state_out, store_state, (state_indices, state_out_indices))
    if context is None:
        context = _context_of(_arrays.device_of(q, "q"))
    out_dtype = output_dtype or _arrays.dtype_name(q if out is None else out)
    key = _shared_key(
        q, k, v, g, beta, A_log, dt_bias, gate_mode, beta_mode, use_qk_l2norm, state, state_out,
        store_state, state_layout, state_indices, padding, pad_index, out_dtype, (3, 4), -2,
    )  # fmt: skip
    decode: Decode = _operator(context, _SHARED_FIELDS, key)
    if out is None:
        *batch, _, value_dim = v.shape
        out = _arrays.empty(q, (*batch, decode.problem.heads, value_dim), out_dtype)
    return decode(
        q,
        k,
        v,
        g,
        beta,
        A_log=A_log,
        dt_bias=dt_bias,
        out=out,
        state=state,
        state_out=state_out,
        state_indices=state_indices,
        state_out_indices=state_out_indices,
        scratch_slot=scratch_slot,
        scale=scale,
        stream=stream,
    )


def gdn_prefill(
    q: Any,
    k: Any,
    v: Any,
    g: Any = None,
    beta: Any = None,
    *,
    A_log: Any = None,
    dt_bias: Any = None,
    gate_mode: GateMode | None = None,
    beta_mode: BetaMode | None = None,
    use_qk_l2norm: bool = False,
    scale: float | None = None,
    state: Any = None,
    state_out: Any = None,
    store_state: bool = True,
    state_layout: StateLayout = "vk",
    state_indices: Any = None,
    state_out_indices: Any = None,
    padding: Padding = "none",
    pad_index: PadIndex = "negative",
    scratch_slot: int = 0,
    cu_seqlens: Any = None,
    token_layout: TokenLayout = "bthd",
    checkpoints: Any = None,
    checkpoint_mode: Checkpoints = "none",
    checkpoint_every: int = 64,
    checkpoint_cu_starts: Any = None,
    out: Any = None,
    output_dtype: Dtype | None = None,
    workspace: Any = None,
    max_seqlen: int | None = None,
    stream: int | None = None,
    context: Context | None = None,
) -> Any:
    """Whole sequences: B of T tokens, or N packed behind each other.

    Arguments that are not named here are those of gdn_decode(), with sequences for requests.

    Args:
        q, k, v: [B, T, heads, dim]; packed [total, heads, dim] or [1, total, heads, dim].
        g, beta: [B, T, H]; packed likewise.
        cu_seqlens: [N + 1], i32 or i64: sequence n is tokens cu_seqlens[n] to
            cu_seqlens[n + 1] - 1.
        token_layout: "bthd"; "bhtd": the heads come before the tokens everywhere.
        checkpoints: [rows, H, rows of a state, cols]: states kept besides the final one.
        checkpoint_mode: "none"; "before": those before tokens 0, N, 2N...; "after": those after
            tokens N, 2N...
        checkpoint_every: N, a multiple of 16.
        checkpoint_cu_starts: [N + 1], packed with checkpoints: the first row of each sequence.
        out: None: allocated, v's shape with H heads.
        workspace: as for Prefill; None: allocated with torch and cupy.
        max_seqlen: as for Prefill.

    Returns:
        out.

    Raises: as gdn_decode().
    """
    _check_states(state, state_out, store_state, (state_indices, state_out_indices))
    if context is None:
        context = _context_of(_arrays.device_of(q, "q"))
    varlen = cu_seqlens is not None
    axis = -3 if token_layout == "bhtd" else -2
    out_dtype = output_dtype or _arrays.dtype_name(q if out is None else out)
    kept = state_out if state is None else state
    key = _shared_key(
        q, k, v, g, beta, A_log, dt_bias, gate_mode, beta_mode, use_qk_l2norm, state,
        checkpoints if kept is None else state_out, store_state and kept is not None, state_layout,
        state_indices, padding, pad_index, out_dtype, (3, 4) if varlen else (4,), axis,
    ) + (
        _dtype(cu_seqlens, "i32"), token_layout, varlen, checkpoint_mode, checkpoint_every,
    )  # fmt: skip
    prefill: Prefill = _operator(context, _PREFILL_FIELDS, key)
    if out is None:
        shape = list(v.shape)
        shape[axis] = prefill.problem.heads
        out = _arrays.empty(q, tuple(shape), out_dtype)
    return prefill(
        q,
        k,
        v,
        g,
        beta,
        A_log=A_log,
        dt_bias=dt_bias,
        out=out,
        state=state,
        state_out=state_out,
        state_indices=state_indices,
        state_out_indices=state_out_indices,
        scratch_slot=scratch_slot,
        cu_seqlens=cu_seqlens,
        checkpoints=checkpoints,
        checkpoint_cu_starts=checkpoint_cu_starts,
        workspace=workspace,
        max_seqlen=max_seqlen,
        scale=scale,
        stream=stream,
    )
