"""SGLang's Gated DeltaNet functions (sglang/srt/layers/attention/fla), those of Kimi Delta Attention,
and causal convolutions (sglang/srt/layers/attention/mamba/causal_conv1d_triton.py), by cubinery.

States are pools [slots, HV, V, K], updated in place; a negative index is padding: the request's
output is zero and no state is touched (SGLang computes its output from a zero state).  Importing
this module imports neither torch nor SGLang.
"""

from __future__ import annotations

from typing import Any

from cubinery._errors import InvalidArgumentError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _convolution as convolution
from cubinery.compat import _engines as engines
from cubinery.compat import _prefill as prefill

_PAD_SLOT_ID = -1
_DRAFTS = "draft tokens, and the states after each of them"


def fused_sigmoid_gating_delta_rule_update(
    A_log: Any,
    a: Any,
    dt_bias: Any,
    softplus_beta: float,
    softplus_threshold: float,
    q: Any,
    k: Any,
    v: Any,
    b: Any,
    initial_state_source: Any,
    initial_state_indices: Any,
    scale: float | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Any = None,
    is_kda: bool = False,
    *,
    lower_bound: float | None = None,
    disable_state_update: bool = False,
    intermediate_states_buffer: Any = None,
    intermediate_state_indices: Any = None,
    cache_steps: int | None = None,
    retrieve_parent_token: Any = None,
    cache_ring: bool = False,
    replayssm_rawv: Any = None,
    replayssm_rawk: Any = None,
    replayssm_g: Any = None,
    replayssm_beta: Any = None,
    match_cutedsl_decode: bool = False,
    num_warps: int = 1,
    **kwargs: Any,
) -> Any:
    """SGLang's function of this name, for decode and for verification (target_verify).

    q, k [1, total, H, K], v [1, total, HV, V], a and b [total, HV] or [1, total, HV] with
    `cu_seqlens` [N + 1] (for one token per request: 0, 1, .. N), or [N, T, ..] without it.
    `initial_state_source` [slots, HV, V, K] is read at `initial_state_indices` [N] and, unless
    `disable_state_update`, updated there; None starts from zero and keeps nothing.  Returns o in
    q's dtype and v's shape.

    With `is_kda`, Kimi Delta Attention, a has a decay for each channel of k, [.., HV, K] or
    [.., HV K], and so has `dt_bias`, [HV, K] or flat; `A_log` is [HV] or [1, 1, HV, 1].  The decay
    is above `lower_bound`, or without one made by softplus.

    `intermediate_states_buffer` [rows, steps, HV, V, K], of the pool's dtype, receives the state
    after token t of request n at [intermediate_state_indices[n], t]; rows may lie further apart
    than they are long.  A negative index there drops the states of its request, a negative one in
    `initial_state_indices` makes the request padding, whose row is left as it is too.  Without
    `disable_state_update` that takes two launches.

    `retrieve_parent_token` [N, T], int32 or int64, makes each request a tree: token t goes on from
    the state after token retrieve_parent_token[n, t] of it, which is in front of it; the first one
    from the initial state, whatever its entry says.  It needs `intermediate_states_buffer` and
    `disable_state_update`.  With `cu_seqlens` requests must lie as [N, T] does: request n is tokens
    n T to n T + T - 1, or has none; the host sees only that total = N T.

    Requests have up to 16 tokens.  The most of any is `cache_steps` if given, else the buffer's
    steps, else 16; the host does not see how many they are.  More than that in one of them fills
    its output with NaN and touches no state.

    `num_warps` shapes SGLang's launch; it cannot change the result and is not read.

    Raises UnsupportedError for more than 16 tokens per request, trees without a buffer, with the
    state after the last token, in f32 or in requests of several lengths, ReplaySSM, `lower_bound`
    without is_kda, a buffer of another dtype or without initial_state_source, and a softplus other
    than beta = 1, threshold = 20; InvalidArgumentError for arguments that do not fit each other.
    """
    name = "sglang.fused_sigmoid_gating_delta_rule_update"
    arguments.refuse_unknown(name, kwargs)
    engines.require_plain_softplus(
        name, "softplus_beta", softplus_beta, softplus_threshold=softplus_threshold
    )
    arguments.refuse_set(
        name, _DRAFTS, cache_ring=cache_ring, match_cutedsl_decode=match_cutedsl_decode
    )
    arguments.refuse_given(
        name,
        _DRAFTS,
        replayssm_rawv=replayssm_rawv,
        replayssm_rawk=replayssm_rawk,
        replayssm_g=replayssm_g,
        replayssm_beta=replayssm_beta,
    )
    arguments.refuse_autograd(name, A_log=A_log, dt_bias=dt_bias)
    arguments.require_rank(name, "k", k, "[B, T, H, K]")
    arguments.require_rank(name, "v", v, "[B, T, HV, V]")
    channels = (v.shape[2], k.shape[3]) if arguments.flag(name, "is_kda", is_kda) else None
    return engines.update(
        name, q, k, v, {"a": a, "b": b}, pool=initial_state_source, indices=initial_state_indices,
        cu_seqlens=cu_seqlens, disable_state_update=disable_state_update,
        buffer=intermediate_states_buffer, rows=intermediate_state_indices,
        cache_steps=cache_steps, parents=retrieve_parent_token, pad_slot_id=_PAD_SLOT_ID,
        **engines.computed_gates(
            name, A_log, dt_bias, use_qk_l2norm_in_kernel, lower_bound=lower_bound,
            channels=channels,
        ),
        scale=scale,
    )  # fmt: skip


def fused_recurrent_gated_delta_rule_packed_decode(
    mixed_qkv: Any,
    a: Any,
    b: Any,
    A_log: Any,
    dt_bias: Any,
    scale: float | None,
    initial_state: Any,
    out: Any,
    ssm_state_indices: Any,
    use_qk_l2norm_in_kernel: bool = False,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """SGLang's function of this name: decode from the convolution's output, split as it lies.

    `mixed_qkv` [B, 2 H K + HV V], a and b [B, HV], `initial_state` [slots, HV, V, K], updated in
    place at `ssm_state_indices` [B]; `out` [B, 1, HV, V] is written, with zeros where the index is
    negative.  Returns (out, initial_state).
    """
    name = "sglang.fused_recurrent_gated_delta_rule_packed_decode"
    arguments.refuse_unknown(name, kwargs)
    engines.pool_heads(name, initial_state)
    return engines.packed_decode(
        name, mixed_qkv, {"a": a, "b": b}, scale, initial_state, out,
        ("ssm_state_indices", ssm_state_indices), _PAD_SLOT_ID,
        **engines.computed_gates(name, A_log, dt_bias, use_qk_l2norm_in_kernel),
    )  # fmt: skip


def fused_recurrent_kda_packed_decode(
    mixed_qkv: Any,
    a: Any,
    b: Any,
    A_log: Any,
    dt_bias: Any,
    scale: float | None,
    initial_state: Any,
    out: Any,
    ssm_state_indices: Any,
    use_qk_l2norm_in_kernel: bool = False,
    lower_bound: float | None = None,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """SGLang's function of this name: fused_recurrent_gated_delta_rule_packed_decode() of Kimi Delta
    Attention, whose a has a decay for each channel of k, [B, HV K] or [B, HV, K], as has `dt_bias`.

    b [B, HV] is a logit.  The decay is above `lower_bound`, or without one made by softplus.
    """
    name = "sglang.fused_recurrent_kda_packed_decode"
    arguments.refuse_unknown(name, kwargs)
    channels = engines.pool_heads(name, initial_state)
    return engines.packed_decode(
        name, mixed_qkv, {"a": a, "b": b}, scale, initial_state, out,
        ("ssm_state_indices", ssm_state_indices), _PAD_SLOT_ID,
        **engines.computed_gates(
            name, A_log, dt_bias, use_qk_l2norm_in_kernel, lower_bound=lower_bound,
            channels=channels,
        ),
    )  # fmt: skip


def chunk_gated_delta_rule(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    scale: float | None = None,
    initial_state: Any = None,
    initial_state_indices: Any = None,
    cu_seqlens: Any = None,
    head_first: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    inplace_update: bool = True,
    *,
    output_h: bool = False,
    **kwargs: Any,
) -> tuple[Any, None, Any]:
    """SGLang's function of this name: prefill, on a pool that is updated in place.

    q, k [1, total, H, K], v [1, total, HV, V], g and beta [1, total, HV], `cu_seqlens` [N + 1];
    `initial_state` [slots, HV, V, K] is read at `initial_state_indices` [N] and, with
    `inplace_update`, written there.  Without it the pool is only read, and the indices may repeat.
    Returns (o, None, h).

    With `output_h`, which SGLang does not have, h holds the states before each 64 tokens, for
    prefix caches: [1, rows, HV, V, K], in the pool's dtype (without a pool in q's; SGLang always in
    q's).  Row 0 is before the first token of the first sequence, and a sequence of L tokens has
    ceil(L / 64) rows, behind those of the one in front.  There may be further rows at the end:
    these, and those of padding, are not written.  Else h is None.

    Raises InvalidArgumentError for head_first and for a pool without indices.
    """
    name = "sglang.chunk_gated_delta_rule"
    arguments.refuse_unknown(name, kwargs)
    engines.refuse_head_first(name, head_first)
    arguments.refuse_autograd(name, q=q, k=k, v=v, g=g, beta=beta, initial_state=initial_state)
    update = arguments.flag(name, "inplace_update", inplace_update)
    options = _pool_options(name, initial_state, initial_state_indices)
    h = None
    if arguments.flag(name, "output_h", output_h):
        arguments.require_rank(name, "q", q, "[B, T, H, K]")
        arguments.require_rank(name, "v", v, "[B, T, HV, V]")
        matrices = (*v.shape[2:], q.shape[3])
        h, options = prefill.chunk_states(q, matrices, cu_seqlens, options)
    out = prefill.run(
        q, k, v, g, beta, engines.normalises(name, use_qk_l2norm_in_kernel), scale=scale,
        cu_seqlens=cu_seqlens, store_state=update and initial_state is not None, **options,
    )  # fmt: skip
    return out, None, h


def chunk_kda(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    scale: float | None = None,
    initial_state: Any = None,
    initial_state_indices: Any = None,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Any = None,
    A_log: Any = None,
    dt_bias: Any = None,
    lower_bound: float | None = None,
    output_intermediate_states: bool = False,
    track_state: Any = None,
    track_chunk_idx: Any = None,
    beta_is_raw: bool = False,
    chunk_indices: Any = None,
    chunk_offsets: Any = None,
    **kwargs: Any,
) -> Any:
    """SGLang's function of this name (sglang.kernels.ops.attention.fla.kda): prefill of Kimi Delta
    Attention, on a pool that is updated in place.

    Arrays and pool as in chunk_gated_delta_rule(), g [1, total, HV, K].  With `A_log` [HV] or
    [1, 1, HV, 1] g is raw: the kernel makes the decay of g + dt_bias, `dt_bias` [HV, K], flat or
    None, above `lower_bound` or, without one, by softplus; without `A_log` g is its logarithm.  With
    `beta_is_raw` beta is a logit.  Returns o; with `output_intermediate_states` (o, h), h as in
    chunk_gated_delta_rule().

    `track_state` [N, HV, V, K], f32, receives the state of sequence n before its chunk
    track_chunk_idx[n] of 64 tokens, rounded to the pool's dtype; where that is negative, or behind
    the last chunk, its row has no meaning.

    chunk_indices and chunk_offsets tell SGLang how to lay out its work: they are not read.

    Raises InvalidArgumentError for `dt_bias` or `lower_bound` without `A_log`, for a pool without
    indices, and for one of `track_state` and `track_chunk_idx` without the other; UnsupportedError
    for a `lower_bound` below -5 and inputs that require grad while grad is enabled.
    """
    name = "sglang.chunk_kda"
    arguments.refuse_unknown(name, kwargs)
    arguments.refuse_autograd(
        name, q=q, k=k, v=v, g=g, beta=beta, A_log=A_log, dt_bias=dt_bias,
        initial_state=initial_state,
    )  # fmt: skip
    arguments.require_rank(name, "q", q, "[B, T, H, K]")
    arguments.require_rank(name, "v", v, "[B, T, HV, V]")
    matrices = (*v.shape[2:], q.shape[3])
    _check_track(name, track_state, track_chunk_idx, cu_seqlens, matrices)
    options = _pool_options(name, initial_state, initial_state_indices)
    options |= _gates_of_chunks(name, A_log, dt_bias, lower_bound, v.shape[2], q.shape[3])
    if arguments.flag(name, "beta_is_raw", beta_is_raw):
        options["beta_mode"] = "logit"
    keeps = arguments.flag(name, "output_intermediate_states", output_intermediate_states)
    h: Any = None
    if keeps or track_state is not None:
        h, options = prefill.chunk_states(q, matrices, cu_seqlens, options)
    out = prefill.run_channels(
        name, q, k, v, {"g": g, "beta": beta}, engines.normalises(name, use_qk_l2norm_in_kernel),
        cu_seqlens=cu_seqlens, scale=scale, store_state=initial_state is not None, **options,
    )  # fmt: skip
    if track_state is not None and h.shape[1] > 0:
        rows = options["checkpoint_cu_starts"][:-1] + track_chunk_idx
        track_state[...] = h[0][rows.clip(0, h.shape[1] - 1)]
    return (out, h) if keeps else out


def _pool_options(function: str, pool: Any, indices: Any) -> dict[str, Any]:
    """functional.gdn_prefill's options of a pool and of its padding."""
    if (pool is None) != (indices is None):
        raise InvalidArgumentError(
            f"{function}: initial_state and initial_state_indices belong together"
        )
    if pool is None:
        return {"state": None}
    arguments.require_state_dtype(function, "initial_state", pool)
    padding = {"pad_slot_id": _PAD_SLOT_ID, "zero_padding": True}
    return {"state": pool, "state_indices": indices, **padding}


def _gates_of_chunks(
    function: str, A_log: Any, dt_bias: Any, lower_bound: float | None, heads: int, key_dim: int
) -> dict[str, Any]:
    """functional.gdn_prefill's options of decays."""
    if A_log is not None:
        return arguments.channel_decay(function, A_log, dt_bias, lower_bound, heads, key_dim)
    for parameter, value in {"dt_bias": dt_bias, "lower_bound": lower_bound}.items():
        if value is not None:
            raise InvalidArgumentError(
                f"{function}: {parameter} needs A_log: without it g is the logarithm"
            )
    return {"decay": "channel", "gate_mode": "log"}


def _check_track(
    function: str, states: Any, chunks: Any, cu_seqlens: Any, matrices: tuple[int, ...]
) -> None:
    if (states is None) != (chunks is None):
        raise InvalidArgumentError(f"{function}: track_state and track_chunk_idx belong together")
    if states is None:
        return
    if cu_seqlens is None:
        raise InvalidArgumentError(f"{function}: track_state needs cu_seqlens")
    sequences = cu_seqlens.shape[0] - 1
    arguments.require_shape(function, "track_state", states, (sequences, *matrices))
    arguments.require_shape(function, "track_chunk_idx", chunks, (sequences,))


def causal_conv1d_fn(
    x: Any,
    weight: Any,
    bias: Any = None,
    conv_states: Any = None,
    query_start_loc: Any = None,
    seq_lens_cpu: Any = None,
    cache_indices: Any = None,
    has_initial_state: Any = None,
    activation: bool | str | None = "silu",
    pad_slot_id: int = _PAD_SLOT_ID,
    validate_data: bool = False,
    block_table: Any = None,
    **kwargs: Any,
) -> Any:
    """SGLang's function of this name: the convolution of a prefill, on a pool updated in place.

    x [dim, T], the tokens of N sequences behind each other, whose bounds are `query_start_loc`
    [N + 1]; without it [N, dim, T].  `weight` [dim, W], `bias` [dim] or None.  `conv_states`
    [slots, dim, W - 1 or more] are read where `has_initial_state` [N] says so (None: nowhere) and
    written at `cache_indices` [N] (None: sequence n has row n).  Their first W - 1 columns count, in
    any layout: where a causal_conv1d_update() with `num_accept_tokens` goes on.  Without
    `conv_states` nothing is kept.  Returns y in x's shape and dtype.  SGLang's modules differ in the
    order of the arguments after `bias`: pass those by name.

    `seq_lens_cpu`, `validate_data` and `block_table`, a list of the blocks of tokens that SGLang's
    launch consists of, tell SGLang how to lay out its work: they are not read.

    Raises InvalidArgumentError for arrays that do not fit, UnsupportedError for inputs that require
    grad while grad is enabled.
    """
    name = "sglang.causal_conv1d_fn"
    arguments.refuse_unknown(name, kwargs)
    options = convolution.prefill_options(
        name, x, weight, bias, conv_states, query_start_loc, cache_indices,
        has_initial_state, activation, pad_slot_id,
    )  # fmt: skip
    return convolution.run(x, weight, bias, **options)


def causal_conv1d_update(
    x: Any,
    conv_state: Any,
    weight: Any,
    bias: Any = None,
    activation: bool | str | None = None,
    cache_seqlens: Any = None,
    conv_state_indices: Any = None,
    num_accept_tokens: Any = None,
    intermediate_conv_window: Any = None,
    intermediate_state_indices: Any = None,
    retrieve_next_token: Any = None,
    retrieve_next_sibling: Any = None,
    retrieve_parent_token: Any = None,
    pad_slot_id: int = _PAD_SLOT_ID,
    metadata: Any = None,
    validate_data: bool = False,
    **kwargs: Any,
) -> Any:
    """SGLang's function of this name: the convolution of a decode, or of draft tokens.

    x [N, dim], one token of each request, or [N, dim, T]; `conv_state` [slots, dim, columns],
    updated in place at `conv_state_indices` [N] (None: request n has row n).  Returns y in x's shape
    and dtype.  Without `num_accept_tokens` there are W - 1 or W columns, which move by T: the newest
    input is in the last one, as in SGLang's compiled kernel (its Triton kernel takes the first W - 1
    of W columns, and leaves the last alone).  With it, [N], a request goes on behind so many tokens
    of the launch in front (0 is taken as 1), from the first columns on, and W - 2 + T columns hold
    what the next one may need.

    `intermediate_conv_window` [rows, steps, dim, W - 1], of conv_state's dtype, receives the window
    after token t of request n at [intermediate_state_indices[n], t], of up to 16 tokens; a negative
    row drops them.  conv_state is updated all the same, which takes a second launch.

    `metadata` and `validate_data` are not read.  Raises UnsupportedError for more than W columns
    without `num_accept_tokens`, a circular buffer (`cache_seqlens`), windows beside
    `num_accept_tokens` or in another dtype, trees (`retrieve_next_token`, `retrieve_next_sibling`,
    `retrieve_parent_token`), and inputs that require grad while grad is enabled;
    InvalidArgumentError for windows without rows or `conv_state_indices`.
    """
    name = "sglang.causal_conv1d_update"
    arguments.refuse_unknown(name, kwargs)
    return convolution.update_with_windows(
        name, x, conv_state, weight, bias, activation, conv_state_indices,
        ("num_accept_tokens", num_accept_tokens), intermediate_conv_window,
        intermediate_state_indices, pad_slot_id, cache_seqlens=cache_seqlens,
        retrieve_next_token=retrieve_next_token, retrieve_next_sibling=retrieve_next_sibling,
        retrieve_parent_token=retrieve_parent_token,
    )  # fmt: skip
