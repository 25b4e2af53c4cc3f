"""FlashInfer's Gated DeltaNet functions (flashinfer.gdn_prefill, flashinfer.gdn_decode), by
cubinery.

States are [.., HV, V, K] (gated_delta_rule_decode: [.., HV, K, V]) in f32, bf16 or f16.
FlashInfer's other arguments keep their meaning; where it limits dims, dtypes or strides further
than cubinery does, cubinery takes more.  Importing this module imports neither torch nor
FlashInfer.
"""

from __future__ import annotations

from typing import Any

from cubinery import _arrays, functional
from cubinery._errors import InvalidArgumentError, UnsupportedError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _verify as verify
from cubinery.problems import StateLayout

_BACKENDS = ("auto", "flashinfer")
_KEPT = "the states after the last or after each token"


def chunk_gated_delta_rule(
    q: Any,
    k: Any,
    v: Any,
    g: Any = None,
    beta: Any = None,
    scale: float | None = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    cu_seqlens: Any = None,
    use_qk_l2norm_in_kernel: bool = False,
    output: Any = None,
    output_state: Any = None,
    state_checkpoints: Any = None,
    checkpoint_cu_starts: Any = None,
    checkpoint_every_n_tokens: int = 0,
    use_cp: str | bool = "auto",
    state_indices: Any = None,
    _cp_chunk_len: int | None = None,
    backend: str = "auto",
    max_seqlen: int | None = None,
    **kwargs: Any,
) -> Any:
    """flashinfer.gdn_prefill.chunk_gated_delta_rule.

    q [total, Hq, K], k [total, Hk, K], v [total, Hv, V]; `g`, the factor alpha = exp(log decay),
    and `beta` [total, H] with H the most heads of the three, each 1 when absent; `cu_seqlens` [N +
    1]. `scale` None or 0 is K^-0.5.  Returns `output` [total, H, V], with `output_final_state`
    (output, final states).  Final states go to `output_state`, when given even without
    `output_final_state`, else to a new f32 array.  With `state_indices` [N] the states are pools,
    and no index is padding.  Checkpoints are the states after each `checkpoint_every_n_tokens`
    tokens.  `use_cp` is cubinery's `segments`: "auto", True "always", False "never".

    `max_seqlen` is a hint that cannot change the result; values that cannot be are passed over.

    Raises InvalidArgumentError where FlashInfer would raise, UnsupportedError for a
    `_cp_chunk_len`, use_cp=True where no kernel of cubinery's splits, other backends, fp8 states,
    and states of two dtypes, unless a dense `output_state` is f32.
    """
    name = "flashinfer.chunk_gated_delta_rule"
    arguments.refuse_unknown(name, kwargs)
    arguments.refuse_given(name, "cubinery chooses the length", _cp_chunk_len=_cp_chunk_len)
    segments = arguments.segments_of(name, use_cp)
    _check_prefill(name, q, v, cu_seqlens, backend)
    output_final_state = arguments.flag(name, "output_final_state", output_final_state)
    normalises = arguments.flag(name, "use_qk_l2norm_in_kernel", use_qk_l2norm_in_kernel)
    options = arguments.checkpoints_after(
        name, checkpoint_every_n_tokens, state_checkpoints, checkpoint_cu_starts, cu_seqlens
    )
    arguments.refuse_autograd(name, q=q, k=k, v=v, g=g, beta=beta, initial_state=initial_state)
    for which, array in {"initial_state": initial_state, "output_state": output_state}.items():
        if array is not None:
            arguments.require_state_dtype(name, which, array)
    if output_final_state and output_state is None:
        if state_indices is not None:
            raise InvalidArgumentError(
                f"{name}: state_indices needs output_state, the pool that they index"
            )
        heads = max(q.shape[1], v.shape[1])
        shape = (cu_seqlens.shape[0] - 1, heads, v.shape[2], q.shape[2])
        output_state = _arrays.empty(q, shape, "f32")
    state, state_out = _prefill_states(name, initial_state, output_state, state_indices)
    has_states = initial_state is not None or output_state is not None
    out = functional.gdn_prefill(
        q, k, v, g, beta, gate_mode="none" if g is None else "alpha",
        use_qk_l2norm=normalises, scale=scale or None,  # 0.0 asks for the default too
        state=state, state_out=state_out, store_state=output_state is not None, state_layout="vk",
        state_indices=state_indices if has_states else None, cu_seqlens=cu_seqlens,
        segments=segments, max_seqlen=min(max(max_seqlen or 0, 0), q.shape[0]), out=output,
        **options,
    )  # fmt: skip
    return (out, output_state) if output_final_state else out


def _check_prefill(name: str, q: Any, v: Any, cu_seqlens: Any, backend: str) -> None:
    _check_backend(name, backend)
    arguments.require_rank(name, "q", q, "[total, Hq, K]")
    arguments.require_rank(name, "v", v, "[total, Hv, V]")
    if cu_seqlens is None or cu_seqlens.shape[0] < 2:
        raise InvalidArgumentError(
            f"{name}: cu_seqlens is required, [N + 1] with at least 2 entries"
        )


def _check_backend(name: str, backend: str) -> None:
    if backend in ("cake_gdn", "cudnn", "rubin"):
        raise UnsupportedError(f"{name}: backend {backend!r} is FlashInfer's own; pass 'auto'")
    arguments.require_value(name, "backend", backend, _BACKENDS)


def _prefill_states(
    name: str, initial_state: Any, output_state: Any, state_indices: Any
) -> tuple[Any, Any]:
    """Where functional.gdn_prefill reads states and where it writes them (None: in place)."""
    if initial_state is None or output_state is None or output_state is initial_state:
        return (initial_state, None if output_state is initial_state else output_state)
    dtypes = [_arrays.dtype_name(state) for state in (initial_state, output_state)]
    if dtypes[0] == dtypes[1]:
        return initial_state, output_state
    if dtypes[1] != "f32" or state_indices is not None:
        raise UnsupportedError(
            f"{name}: initial_state is {dtypes[0]} and output_state {dtypes[1]}; supported: the "
            "same dtype, or a dense f32 output_state"
        )
    output_state[...] = initial_state  # f32 holds every value of the others; advanced in place
    return output_state, None


def gated_delta_rule_decode_pretranspose(
    q: Any,
    k: Any,
    v: Any,
    state: Any,
    A_log: Any,
    a: Any,
    dt_bias: Any,
    b: Any,
    scale: float | None = None,
    output: Any = None,
    use_qk_l2norm: bool = True,
    initial_state: Any = None,
    initial_state_indices: Any = None,
    output_state_indices: Any = None,
    intermediate_states_buffer: Any = None,
    disable_state_update: bool = False,
    backend: str = "auto",
    **kwargs: Any,
) -> tuple[Any, Any]:
    """flashinfer.gdn_decode.gated_delta_rule_decode_pretranspose, 1 to 16 tokens per request.

    q, k [B, T, H, K], v [B, T, HV, V], a and b [B, T, HV]; `state` [B, HV, V, K], or the pool
    `initial_state` with `initial_state_indices` [B]: updated in place, a pool at
    `output_state_indices` [B] if given, and returned beside `output` [B, T, HV, V].  A read index
    of -1 is padding: with an f32 pool the output is zero (T > 1: left as it is in an `output` that
    is given) and no state is touched, with a bf16 or f16 pool the row is computed on slot 0.  A
    write index of -1 beside a slot to read goes to slot 0 with a bf16 or f16 pool; with an f32 pool
    the new state is dropped (FlashInfer with T = 1: slot 0).

    T > 1 alone: `intermediate_states_buffer` [B or more, T or more, HV, V, K], of the states'
    dtype, receives the state after token t of request n at [n, t]; without `disable_state_update`
    that takes two launches.  With `disable_state_update` nothing else is written.

    Raises UnsupportedError for T > 16, a pool of ugpu_state_pool(), a buffer of another dtype and
    other backends; InvalidArgumentError where FlashInfer would raise.
    """
    name = "flashinfer.gated_delta_rule_decode_pretranspose"
    arguments.refuse_unknown(name, kwargs)
    _check_decode(name, q, v, backend)
    disable_state_update = arguments.flag(name, "disable_state_update", disable_state_update)
    several = q.shape[1] != 1
    for which, value in {
        "intermediate_states_buffer": intermediate_states_buffer is not None,
        "disable_state_update": disable_state_update,
    }.items():
        if value and not several:
            raise InvalidArgumentError(f"{name}: {which} is for T > 1")
    pool = _pool_options(name, initial_state, initial_state_indices, output_state_indices)
    if (state is None) == (initial_state is None):
        raise InvalidArgumentError(f"{name}: expected state or initial_state, and not both")
    states = state if initial_state is None else initial_state
    if len(states.shape) == 5:
        raise UnsupportedError(
            f"{name}: initial_state has 5 dimensions; supported: a pool [slots, HV, V, K]"
        )
    run: Any = _verify if several else _decode
    if several:
        pool = _several_tokens(pool, output, intermediate_states_buffer)
        pool.update(update=not disable_state_update, buffer=intermediate_states_buffer)
    inputs = (q, k, v, states, A_log, a, dt_bias, b, scale, output, use_qk_l2norm, "vk")
    return run(name, inputs, **pool), states


def gated_delta_rule_decode(
    q: Any,
    k: Any,
    v: Any,
    state: Any,
    A_log: Any,
    a: Any,
    dt_bias: Any,
    b: Any,
    scale: float | None = None,
    output: Any = None,
    use_qk_l2norm: bool = True,
    backend: str = "auto",
    **kwargs: Any,
) -> tuple[Any, Any]:
    """flashinfer.gdn_decode.gated_delta_rule_decode: as gated_delta_rule_decode_pretranspose() with
    `state` [B, HV, K, V], updated in place, for one token per request.  Returns (output, state).
    """
    name = "flashinfer.gated_delta_rule_decode"
    arguments.refuse_unknown(name, kwargs)
    _check_decode(name, q, v, backend)
    if q.shape[1] != 1:
        raise UnsupportedError(f"{name}: q has T = {q.shape[1]} tokens per request; supported: 1")
    inputs = (q, k, v, state, A_log, a, dt_bias, b, scale, output, use_qk_l2norm, "kv")
    return _decode(name, inputs), state


def gated_delta_rule_mtp(
    q: Any,
    k: Any,
    v: Any,
    initial_state: Any,
    initial_state_indices: Any,
    A_log: Any,
    a: Any,
    dt_bias: Any,
    b: Any,
    scale: float | None = None,
    output: Any = None,
    intermediate_states_buffer: Any = None,
    ssm_state_indices: Any = None,
    disable_state_update: bool | None = None,
    use_qk_l2norm: bool = True,
    output_state_indices: Any = None,
    cache_replayssm: bool = False,
    replayssm_rawv: Any = None,
    replayssm_rawk: Any = None,
    replayssm_g: Any = None,
    replayssm_beta: Any = None,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """flashinfer.gdn_decode.gated_delta_rule_mtp, 1 to 16 tokens per request.

    q, k [B, T, H, K], v [B, T, HV, V], a and b [B, T, HV].  `initial_state` [slots, HV, V, K] is
    read at `initial_state_indices` [B].  Unless `disable_state_update` (None is FlashInfer's
    default, True) the states after the last tokens go there or to `output_state_indices` [B].  A
    negative read index skips the row: its output is left as it is, zero when `output` is None.  A
    negative write index drops the new state.  Returns (output, initial_state).

    The states after each token go to `intermediate_states_buffer` [B or more, T or more, HV, V, K]
    of the pool's dtype, at [n, t], in one launch more if the pool is updated too; or, with
    disable_state_update=False and T > 1, to the slots `ssm_state_indices` [B, T] of the pool, and
    then nowhere else.  A negative index there drops its state.

    Raises UnsupportedError for T > 16, a buffer of another dtype, `output_state_indices` beside
    `ssm_state_indices` (FlashInfer does not read them then) and ReplaySSM caching;
    InvalidArgumentError where FlashInfer would raise.
    """
    name = "flashinfer.gated_delta_rule_mtp"
    arguments.refuse_unknown(name, kwargs)
    _check_decode(name, q, v, "auto")
    arguments.refuse_set(name, _KEPT, cache_replayssm=cache_replayssm)
    arguments.refuse_given(
        name,
        _KEPT,
        replayssm_rawv=replayssm_rawv,
        replayssm_rawk=replayssm_rawk,
        replayssm_g=replayssm_g,
        replayssm_beta=replayssm_beta,
    )
    update = disable_state_update is not None and not arguments.flag(
        name, "disable_state_update", disable_state_update
    )
    inputs: tuple[Any, ...] = (
        q, k, v, initial_state, A_log, a, dt_bias, b, scale, output, use_qk_l2norm, "vk"
    )  # fmt: skip
    pool = {
        "state_indices": initial_state_indices,
        "state_out_indices": output_state_indices,
        "pad_slot_id": -1,
        "zero_padding": output is None,
    }
    if ssm_state_indices is not None:
        _check_step_slots(
            name, q, ssm_state_indices, intermediate_states_buffer, update, output_state_indices
        )
    if q.shape[1] == 1 and intermediate_states_buffer is None:
        return _decode(name, inputs, store_state=update, **pool), initial_state
    out = _verify(
        name, inputs, update=update, buffer=intermediate_states_buffer,
        step_slots=ssm_state_indices, **pool,
    )  # fmt: skip
    return out, initial_state


def _check_step_slots(
    name: str, q: Any, step_slots: Any, buffer: Any, update: bool, write: Any
) -> None:
    batch, tokens = q.shape[:2]
    if buffer is not None:
        raise InvalidArgumentError(
            f"{name}: expected ssm_state_indices or intermediate_states_buffer, and not both"
        )
    if not update:
        raise InvalidArgumentError(f"{name}: ssm_state_indices needs disable_state_update=False")
    if tokens < 2:
        raise InvalidArgumentError(f"{name}: ssm_state_indices is for T > 1")
    arguments.require_shape(name, "ssm_state_indices", step_slots, (batch, tokens))
    arguments.refuse_given(
        name, "the slots ssm_state_indices alone are written", output_state_indices=write
    )


def _check_decode(name: str, q: Any, v: Any, backend: str) -> None:
    _check_backend(name, backend)
    arguments.require_rank(name, "q", q, "[B, T, H, K]")
    arguments.require_rank(name, "v", v, "[B, T, HV, V]")


def _pool_options(name: str, pool: Any, read: Any, write: Any) -> dict[str, Any]:
    """The options of a pool: FlashInfer's policy for padding depends on the pool's dtype."""
    if (pool is None) != (read is None):
        raise InvalidArgumentError(
            f"{name}: initial_state and initial_state_indices belong together"
        )
    if pool is None:
        if write is not None:
            raise InvalidArgumentError(f"{name}: output_state_indices needs initial_state")
        return {}
    is_f32 = _arrays.dtype_name(pool) == "f32"
    return {
        "state_indices": read,
        "state_out_indices": write,
        "pad_slot_id": -1,
        "zero_padding": is_f32,
        "scratch_slot": None if is_f32 else 0,
    }


def _several_tokens(pool: dict[str, Any], output: Any, buffer: Any) -> dict[str, Any]:
    """_pool_options() for T > 1: as gated_delta_rule_mtp() with an f32 pool."""
    options = dict(pool)
    if output is not None and "zero_padding" in options:
        options["zero_padding"] = False
    if options.get("scratch_slot") is not None and buffer is not None:
        # In the buffer a scratch slot would be another request's.
        for indices in ("state_indices", "state_out_indices"):
            if options[indices] is not None:
                options[indices] = options[indices].clip(min=0)
        options.update(pad_slot_id=None, scratch_slot=None)
    return options


def _inputs(
    name: str,
    q: Any,
    k: Any,
    v: Any,
    state: Any,
    A_log: Any,
    a: Any,
    dt_bias: Any,
    b: Any,
    scale: float | None,
    output: Any,
    use_qk_l2norm: bool,
    layout: StateLayout,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What functional.gdn_decode and gdn_verify take in order, and their options."""
    arguments.refuse_autograd(
        name, q=q, k=k, v=v, A_log=A_log, a=a, dt_bias=dt_bias, b=b, state=state
    )
    arguments.require_state_dtype(name, "state", state)
    return (q, k, v, a, b), {
        "A_log": A_log,
        "dt_bias": dt_bias,
        "gate_mode": "computed",
        "beta_mode": "logit",
        "use_qk_l2norm": arguments.flag(name, "use_qk_l2norm", use_qk_l2norm),
        "scale": scale,
        "state": state,
        "state_layout": layout,
        "out": output,
    }


def _decode(name: str, inputs: tuple[Any, ...], **pool: Any) -> Any:
    """`inputs`: those of _inputs()."""
    (q, k, v, a, b), options = _inputs(name, *inputs)
    return functional.gdn_decode(q, k, v, a, b, **options, **pool)


def _verify(
    name: str,
    inputs: tuple[Any, ...],
    *,
    update: bool,
    buffer: Any = None,
    step_slots: Any = None,
    state_indices: Any = None,
    state_out_indices: Any = None,
    **padding: Any,
) -> Any:
    """_decode() of T tokens.  The states after each of them go to `buffer`, or to `step_slots` of
    `state`; those after the last one to `state` with `update`, unless there are step_slots."""
    batch, tokens = inputs[0].shape[:2]
    verify.require_tokens(name, "q has T", tokens)
    rows, options = _inputs(name, *inputs)
    state, steps = options["state"], None
    if step_slots is not None:
        steps, update = state, False
        step_slots = arguments.of_dtype(step_slots, state_indices)
    elif buffer is not None:
        kept = verify.kept_in_first_rows(name, buffer, batch, tokens, state, state_indices)
        steps, step_slots = kept["steps"], kept["step_slots"]
    write = arguments.of_dtype(state_out_indices, state_indices)
    return verify.run(
        rows, read=state_indices, write=write, update=update, steps=steps, step_slots=step_slots,
        **options, **padding,
    )  # fmt: skip
