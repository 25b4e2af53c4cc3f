"""vLLM's functions of Kimi Delta Attention, by cubinery: compat.vllm has them.

States of decoding are pools [slots, HV, V, K], updated in place, in which slot 0 is padding, as
there; of prefills they are gathered, [N, HV, V, K].  ReplaySSM's verification
(kda_recoverssm_verify) stays vLLM's.
"""

from __future__ import annotations

from typing import Any

from cubinery import _arrays
from cubinery._context import context_for
from cubinery._errors import InvalidArgumentError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _engines as engines
from cubinery.compat import _prefill as prefill
from cubinery.problems import DecodeProblem


def fused_recurrent_kda(
    q: Any,
    k: Any,
    v: Any,
    raw_g: Any,
    raw_beta: Any,
    A_log: Any,
    dt_bias: Any,
    lower_bound: float | None,
    initial_state: Any,
    cu_seqlens: Any,
    ssm_state_indices: Any,
    num_accepted_tokens: Any = None,
    out: Any = None,
    fuse_gate: bool | None = None,
    *,
    pad_slot_id: int = 0,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """vLLM's function of this name in vllm.models.kimi_k3.nvidia.ops.third_party.kda, for decode and
    for the draft tokens of speculative decoding: as fused_recurrent_gated_delta_rule() with
    `cu_seqlens` and indices, with a decay for each channel of k.

    `raw_g` [1, total, HV, K] and `raw_beta` [1, total, HV]: the kernel makes the decay of
    raw_g + dt_bias, above `lower_bound` or, without one, by softplus, and sigmoid(raw_beta).
    `A_log` [HV] or [1, 1, HV, 1], `dt_bias` [HV, K], flat or None.  q and k are normalised, and
    the scale is K^-0.5.  `out` [1, total, HV, V] is written; None: allocated.  Returns
    (out, initial_state).

    `fuse_gate` says where vLLM makes the gates; it cannot change the result and is not read.
    """
    name = "vllm.fused_recurrent_kda"
    arguments.refuse_unknown(name, kwargs)
    arguments.refuse_autograd(name, A_log=A_log, dt_bias=dt_bias)
    heads, key_dim = engines.pool_heads(name, initial_state)
    return engines.recurrent(
        name, q, k, v, {"raw_g": raw_g, "raw_beta": raw_beta}, None, initial_state, True,
        cu_seqlens, ssm_state_indices, num_accepted_tokens, pad_slot_id, out=out,
        **engines.computed_gates(
            name, A_log, dt_bias, True, lower_bound=lower_bound, channels=(heads, key_dim)
        ),
    )  # fmt: skip


def fused_recurrent_kda_packed_decode(
    mixed_qkv: Any,
    raw_g: Any,
    raw_beta: Any,
    A_log: Any,
    dt_bias: Any,
    lower_bound: float | None,
    initial_state: Any,
    state_indices: Any,
    scale: float | None = None,
    out: Any = None,
    *,
    pad_slot_id: int = 0,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """vLLM's function of this name, beside fused_recurrent_kda(): decode from the convolution's
    output, split as it lies.

    `mixed_qkv` [B, 2 H K + HV V], `raw_g` [1, B, HV, K] and `raw_beta` [1, B, HV], gates as there;
    `initial_state` [slots, HV, V, K], updated in place at `state_indices` [B]; `out` [1, B, HV, V]
    is written, with zeros where the slot is padding; None: allocated.  Returns
    (out, initial_state).  Slots that do not begin at multiples of 16 bytes are copied in each call,
    and back.
    """
    name = "vllm.fused_recurrent_kda_packed_decode"
    arguments.refuse_unknown(name, kwargs)
    channels = engines.pool_heads(name, initial_state)
    return engines.packed_decode(
        name, mixed_qkv, {"raw_g": raw_g, "raw_beta": raw_beta}, scale, initial_state, out,
        ("state_indices", state_indices), pad_slot_id, tokens_first=False,
        **engines.computed_gates(
            name, A_log, dt_bias, True, lower_bound=lower_bound, channels=channels
        ),
    )  # fmt: skip


def fused_recurrent_kda_fwd(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    scale: float | None,
    initial_state: Any,
    inplace_final_state: bool = True,
    cu_seqlens: Any = None,
    ssm_state_indices: Any = None,
    num_accepted_tokens: Any = None,
    use_qk_l2norm_in_kernel: bool = False,
    *,
    pad_slot_id: int = 0,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """vLLM's function of this name in vllm.third_party.flash_linear_attention.ops.kda:
    fused_recurrent_gated_delta_rule() with g [.., HV, K], the logarithm of a decay for each channel
    of k."""
    name = "vllm.fused_recurrent_kda_fwd"
    arguments.refuse_unknown(name, kwargs)
    return engines.recurrent(
        name, q, k, v, {"g": g, "beta": beta}, scale, initial_state, inplace_final_state,
        cu_seqlens, ssm_state_indices, num_accepted_tokens, pad_slot_id, decay="channel",
        gate_mode="log", use_qk_l2norm=engines.normalises(name, use_qk_l2norm_in_kernel),
    )  # fmt: skip


def glm5next_fused_recurrent_kda(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any = None,
    scale: float | None = None,
    initial_state: Any = None,
    inplace_final_state: bool = True,
    use_qk_l2norm_in_kernel: bool = True,
    cu_seqlens: Any = None,
    ssm_state_indices: Any = None,
    num_accepted_tokens: Any = None,
    out: Any = None,
    sigmoid_beta: bool = False,
    a_log: Any = None,
    g_bias: Any = None,
    compute_gate: bool = False,
    lower_bound: float | None = -5.0,
    *,
    safe_gate: Any = None,
    pad_slot_id: int = 0,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """vLLM's fused_recurrent_kda of vllm.models.glm5next.nvidia.ops.third_party.kda, and that of
    vllm.third_party.flash_linear_attention.ops.kda, which has the first of its arguments.

    As fused_recurrent_gated_delta_rule() with g [.., HV, K], the logarithm of a decay for each
    channel of k; with `compute_gate` g is
    lower_bound sigmoid(exp(a_log) (g + g_bias)), `a_log` [HV] or [1, 1, HV, 1], `g_bias` [HV, K] or
    flat.  With `sigmoid_beta` beta is a logit.  `out`, of v's shape, is written; None: allocated.

    `safe_gate` says how vLLM's prefill makes gates; here they are given, or as `compute_gate` says,
    and without that `a_log`, `g_bias` and `lower_bound` are not read either.
    """
    name = "vllm.glm5next_fused_recurrent_kda"
    arguments.refuse_unknown(name, kwargs)
    options: dict[str, Any] = {"decay": "channel", "gate_mode": "log"}
    if arguments.flag(name, "compute_gate", compute_gate):
        if lower_bound is None or a_log is None or g_bias is None:
            raise InvalidArgumentError(f"{name}: compute_gate needs a_log, g_bias and lower_bound")
        options = _decay(name, a_log, g_bias, lower_bound, k, v, ("a_log", "g_bias"))
    if arguments.flag(name, "sigmoid_beta", sigmoid_beta):
        options["beta_mode"] = "logit"
    return engines.recurrent(
        name, q, k, v, {"g": g, "beta": beta}, scale, initial_state, inplace_final_state,
        cu_seqlens, ssm_state_indices, num_accepted_tokens, pad_slot_id, out=out,
        use_qk_l2norm=engines.normalises(name, use_qk_l2norm_in_kernel), **options,
    )  # fmt: skip


def chunk_kda(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    scale: float | None = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Any = None,
    *,
    safe_gate: Any = None,
    lower_bound: Any = None,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """vLLM's function of this name, in vllm.third_party.flash_linear_attention.ops.kda and beside the
    others: prefill with g [B, T, HV, K], the logarithm of a decay for each channel of k.

    q, k [B, T, H, K], v [B, T, HV, V], beta [B, T, HV]; with `cu_seqlens` [N + 1] B is 1.
    `initial_state` [N, HV, V, K] is not written; the final states are a new f32 array of that shape,
    or None.  Returns (o, final states).  `safe_gate` and `lower_bound`, which layers pass, say how g
    was made: vLLM does not read them either.
    """
    name = "vllm.chunk_kda"
    arguments.refuse_unknown(name, kwargs)
    return _prefill(
        name, q, k, v, {"g": g, "beta": beta}, scale, initial_state, output_final_state,
        use_qk_l2norm_in_kernel, cu_seqlens, {"decay": "channel", "gate_mode": "log"},
    )  # fmt: skip


def chunk_kda_with_fused_gate(
    q: Any,
    k: Any,
    v: Any,
    raw_g: Any,
    raw_beta: Any,
    A_log: Any,
    g_bias: Any,
    scale: float | None = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    lower_bound: float | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Any = None,
    out: Any = None,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """vLLM's function of this name, beside fused_recurrent_kda(): chunk_kda() with gates that the
    kernel makes, as there, of `raw_g` + `g_bias` and of `raw_beta`.  `out` [B, T, HV, V] is written;
    None: allocated.
    """
    name = "vllm.chunk_kda_with_fused_gate"
    arguments.refuse_unknown(name, kwargs)
    options = _decay(name, A_log, g_bias, lower_bound, k, v, ("A_log", "g_bias"))
    return _prefill(
        name, q, k, v, {"raw_g": raw_g, "raw_beta": raw_beta}, scale, initial_state,
        output_final_state, use_qk_l2norm_in_kernel, cu_seqlens, {**options, "beta_mode": "logit"},
        out,
    )  # fmt: skip


def glm5next_chunk_kda_with_fused_gate(
    q: Any,
    k: Any,
    v: Any,
    raw_g: Any,
    beta: Any,
    A_log: Any,
    g_bias: Any,
    scale: float | None = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Any = None,
    safe_gate: bool = False,
    lower_bound: float = -5.0,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """vLLM's chunk_kda_with_fused_gate of vllm.models.glm5next.nvidia.ops.third_party.kda:
    chunk_kda() with a decay that the kernel makes of `raw_g` + `g_bias`, with `safe_gate` above
    `lower_bound`, without it by softplus.  beta is given, no logit.
    """
    name = "vllm.glm5next_chunk_kda_with_fused_gate"
    arguments.refuse_unknown(name, kwargs)
    is_safe = arguments.flag(name, "safe_gate", safe_gate)
    if is_safe and lower_bound is None:
        raise InvalidArgumentError(f"{name}: safe_gate needs lower_bound")
    bound = lower_bound if is_safe else None
    options = _decay(name, A_log, g_bias, bound, k, v, ("A_log", "g_bias"))
    return _prefill(
        name, q, k, v, {"raw_g": raw_g, "beta": beta}, scale, initial_state, output_final_state,
        use_qk_l2norm_in_kernel, cu_seqlens, options,
    )  # fmt: skip


def flashkda_fwd(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    scale: float,
    out: Any,
    workspace: Any,
    A_log: Any,
    dt_bias: Any,
    lower_bound: float,
    initial_state: Any = None,
    final_state: Any = None,
    cu_seqlens: Any = None,
    checkpoint_state: Any = None,
    checkpoint_offsets: Any = None,
    **kwargs: Any,
) -> None:
    """vLLM's torch.ops._flashkda_C.fwd: flash_kda.fwd() with checkpoints.

    `checkpoint_state` [N, H, V, K], of the states' dtype, receives the state of each sequence after
    `checkpoint_offsets` [N] of its tokens; where that is no multiple of 16, or 0 or less, its row is
    left as it is.  o of a sequence with fewer tokens is NaN.  `workspace` is FlashKDA's: it is not
    read.

    Raises as that does, and InvalidArgumentError for one of the two without the other.
    """
    name = "vllm.flashkda_fwd"
    arguments.refuse_unknown(name, kwargs)
    prefill.flash_kda(
        name, q, k, v, g, beta, scale, out, A_log, dt_bias, lower_bound, initial_state,
        final_state, cu_seqlens, checkpoint_state, checkpoint_offsets,
    )  # fmt: skip


def _decay(
    function: str,
    A_log: Any,
    dt_bias: Any,
    lower_bound: float | None,
    k: Any,
    v: Any,
    names: tuple[str, str],
) -> dict[str, Any]:
    """arguments.channel_decay() for the heads of [B, T, HV, V] and the channels of [B, T, H, K]."""
    arguments.refuse_autograd(function, **dict(zip(names, (A_log, dt_bias))))
    arguments.require_rank(function, "k", k, "[B, T, H, K]")
    arguments.require_rank(function, "v", v, "[B, T, HV, V]")
    return arguments.channel_decay(
        function, A_log, dt_bias, lower_bound, v.shape[2], k.shape[3], names
    )


def _prefill(
    function: str,
    q: Any,
    k: Any,
    v: Any,
    gates: dict[str, Any],
    scale: float | None,
    initial_state: Any,
    output_final_state: bool,
    use_qk_l2norm_in_kernel: bool,
    cu_seqlens: Any,
    options: dict[str, Any],
    out: Any = None,
) -> tuple[Any, Any]:
    """o and the final states.  `options`: those of gates; `gates` under the caller's names."""
    arguments.refuse_autograd(function, **gates)
    shape = prefill.check(function, q, k, v, None, None, initial_state, cu_seqlens)
    wanted = arguments.flag(function, "output_final_state", output_final_state)
    use_qk_l2norm = engines.normalises(function, use_qk_l2norm_in_kernel)
    final, states = arguments.final_states(q, initial_state, shape, wanted)
    o = prefill.run_channels(
        function, q, k, v, gates, use_qk_l2norm, cu_seqlens=cu_seqlens, out=out, scale=scale,
        **states, **options,
    )  # fmt: skip
    return o, final


def fused_kda_decode(
    x: Any,
    weight: Any,
    bias: Any,
    conv_state: Any,
    raw_g: Any,
    raw_beta: Any,
    A_log: Any,
    dt_bias: Any,
    state_indices: Any,
    state: Any,
    out: Any = None,
    lower_bound: float | None = None,
    output_gate: Any = None,
    norm_weight: Any = None,
    norm_eps: float = 1e-5,
    *,
    pad_slot_id: int = 0,
    **kwargs: Any,
) -> Any:
    """vLLM's function of this name in vllm._custom_ops: decode with the convolution in front of it
    and the gated norm behind it, in one launch.

    x [B, 3 H K], q, k and v in front of the convolution; `weight` [3, W, H K], `bias` of 3 H K or
    None; `conv_state` [slots, 3 H K, W - 1], in either layout of vLLM's, and `state`
    [slots, H, K, K] are updated in place at `state_indices` [B].  `raw_g` [1, B, H, K], `raw_beta`
    [1, B, H], `A_log`, `dt_bias` and `lower_bound` as in fused_recurrent_kda(); q and k are
    normalised, and the scale is K^-0.5.  `out` [1, B, H, K] is written; None: allocated.  With
    `output_gate` [B, H, K] or [1, B, H, K] and `norm_weight` [K] it is
    o / sqrt(mean(o^2) + norm_eps) * norm_weight * sigmoid(output_gate).  Returns out, with zeros
    where the slot is padding (vLLM computes on slot 0).

    Any number of heads; W from 2 to 4.  The kernel reads weights as [3 H K, W] and rows of x at
    multiples of 4 elements: unless the memory of `weight` lies as [3, H K, W], and x so, each is a
    copy in each call.
    """
    name = "vllm.fused_kda_decode"
    arguments.refuse_unknown(name, kwargs)
    arguments.refuse_autograd(
        name, x=x, weight=weight, bias=bias, raw_g=raw_g, raw_beta=raw_beta, A_log=A_log,
        dt_bias=dt_bias, output_gate=output_gate, norm_weight=norm_weight,
    )  # fmt: skip
    heads, dim = engines.pool_heads(name, state, "state")
    arguments.require_shape(name, "state", state, (state.shape[0], heads, dim, dim))
    _check_convolution(name, x, weight, bias, conv_state, heads * dim)
    batch, channels = x.shape
    arguments.require_shape(name, "state_indices", state_indices, (batch,))
    z = _gate_of_norm(name, output_gate, norm_weight, (batch, heads, dim))
    if out is None:
        out = _arrays.empty(x, (1, batch, heads, dim), _arrays.dtype_name(x))
    arguments.require_shape(name, "out", out, (1, batch, heads, dim))
    g, beta = engines.gate_rows(
        name, {"raw_g": raw_g, "raw_beta": raw_beta}, [(batch,), (1, batch)], heads, dim
    )
    gates = arguments.channel_decay(name, A_log, dt_bias, lower_bound, heads, dim)
    fields = {
        **dict.fromkeys(("q_heads", "k_heads", "v_heads"), heads),
        **dict.fromkeys(("key_dim", "value_dim"), dim),
        **_dtypes(
            dtype=x, output_dtype=out, gate_dtype=g, beta_dtype=beta, a_log_dtype=A_log,
            dt_bias_dtype=dt_bias, state_dtype=state, index_dtype=state_indices,
            norm_weight_dtype=norm_weight, conv_weight_dtype=weight, conv_state_dtype=conv_state,
        ),
        "state_location": "pool", "decay": "channel", "gate_mode": gates["gate_mode"],
        "beta_mode": "logit", "use_qk_l2norm": True,
        "output_norm": "none" if z is None else "sigmoid_gated_rms",
        "conv_width": weight.shape[1], "conv_has_bias": bias is not None,
        "conv_state_layout": _layout(conv_state),
    }  # fmt: skip
    context = context_for(None, "x", x)
    operator = context._kept_operator(tuple(fields), (DecodeProblem, *fields.values()))
    operator(
        g=g, beta=beta, A_log=gates["A_log"], dt_bias=dt_bias, lower_bound=lower_bound, out=out[0],
        state=state, state_indices=state_indices, z=z, norm_weight=norm_weight,
        norm_eps=None if z is None else norm_eps, x=arguments.vector_rows(x, 4),
        conv_weight=weight.swapaxes(1, 2).reshape(channels, -1), conv_bias=bias,
        conv_state=conv_state, **engines.zeroed_padding(name, pad_slot_id),
    )  # fmt: skip
    return out


def _check_convolution(
    function: str, x: Any, weight: Any, bias: Any, conv_state: Any, segment: int
) -> None:
    arguments.require_rank(function, "x", x, "[B, 3 H K]")
    arguments.require_shape(function, "x", x, (x.shape[0], 3 * segment))
    arguments.require_rank(function, "weight", weight, "[3, W, H K]")
    width = weight.shape[1]
    arguments.require_shape(function, "weight", weight, (3, width, segment))
    arguments.require_value(function, "the width of weight", width, (2, 3, 4))
    if bias is not None:
        arguments.require_shape(function, "bias", bias, (3 * segment,))
    arguments.require_rank(function, "conv_state", conv_state, "[slots, 3 H K, W - 1]")
    slots = conv_state.shape[0]
    arguments.require_shape(function, "conv_state", conv_state, (slots, 3 * segment, width - 1))
    arguments.require_state_dtype(function, "conv_state", conv_state)


def _gate_of_norm(function: str, output_gate: Any, norm_weight: Any, shape: tuple[int, ...]) -> Any:
    """output_gate as [B, H, K]; None: there is no norm."""
    if (output_gate is None) != (norm_weight is None):
        raise InvalidArgumentError(f"{function}: output_gate and norm_weight belong together")
    if output_gate is None:
        return None
    gate = output_gate[0] if len(output_gate.shape) == 4 else output_gate
    arguments.require_shape(function, "output_gate", gate, shape)
    return gate


def _dtypes(**arrays: Any) -> dict[str, str]:
    """By field; without those of arrays that are not there."""
    return {
        field: _arrays.dtype_of(field.removesuffix("_dtype"), array)
        for field, array in arrays.items()
        if array is not None
    }


def _layout(conv_state: Any) -> str:
    """vLLM has its windows in either."""
    _, channel, column = arguments.strides(conv_state)
    return "channels" if channel == 1 and column != 1 else "columns"
