"""vLLM's Gated DeltaNet functions (vllm/model_executor/layers/fla/ops), those of Kimi Delta Attention,
and causal convolutions (vllm/model_executor/layers/mamba/ops/causal_conv1d.py), by cubinery.

States are [.., HV, V, K].  Slot 0 of a pool is padding, as in vLLM today; `pad_slot_id=-1`, which
vLLM does not have, asks for the older convention.  Under `pad_slot_id=0` a negative index is no
slot: its request gets NaN and touches no state (vLLM skips it).  The output of a padding request is
zero (vLLM leaves it unwritten).  Importing this module imports neither torch nor vLLM.
"""

from __future__ import annotations

from typing import Any

from cubinery import _arrays, functional
from cubinery._errors import InvalidArgumentError, UnsupportedError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _convolution as convolution
from cubinery.compat import _engines as engines
from cubinery.compat import _prefill as prefill
from cubinery.compat import _verify as verification
from cubinery.compat._vllm_kda import chunk_kda as chunk_kda
from cubinery.compat._vllm_kda import chunk_kda_with_fused_gate as chunk_kda_with_fused_gate
from cubinery.compat._vllm_kda import flashkda_fwd as flashkda_fwd
from cubinery.compat._vllm_kda import fused_kda_decode as fused_kda_decode
from cubinery.compat._vllm_kda import fused_recurrent_kda as fused_recurrent_kda
from cubinery.compat._vllm_kda import fused_recurrent_kda_fwd as fused_recurrent_kda_fwd
from cubinery.compat._vllm_kda import (
    fused_recurrent_kda_packed_decode as fused_recurrent_kda_packed_decode,
)
from cubinery.compat._vllm_kda import (
    glm5next_chunk_kda_with_fused_gate as glm5next_chunk_kda_with_fused_gate,
)
from cubinery.compat._vllm_kda import glm5next_fused_recurrent_kda as glm5next_fused_recurrent_kda
from cubinery.problems import OutputNorm

_ONE_BLOCK = "a sequence has one slot, which is read and written"
_OUTPUT_NORMS: dict[str, OutputNorm] = {"silu": "gated_rms", "sigmoid": "sigmoid_gated_rms"}


def fused_recurrent_gated_delta_rule(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any = None,
    scale: float | None = None,
    initial_state: Any = None,
    inplace_final_state: bool = True,
    cu_seqlens: Any = None,
    ssm_state_indices: Any = None,
    num_accepted_tokens: Any = None,
    use_qk_l2norm_in_kernel: bool = False,
    *,
    pad_slot_id: int = 0,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """vLLM's function of this name, for decode and for the draft tokens of speculative decoding.

    One token per request: q, k [1, N, H, K], v [1, N, HV, V], g and beta [1, N, HV] with
    `cu_seqlens` [N + 1] (0, 1, .. N; a request of no tokens has a padding slot), or [N, 1, ..]
    without it.  `initial_state` [slots, HV, V, K] is updated in place at `ssm_state_indices` [N];
    or, without indices and with inplace_final_state=False, [N, HV, V, K] is read and the new states
    are another array.

    Up to S tokens per request, S <= 16, with `ssm_state_indices` [N, S]: q is [1, total, H, K] with
    `cu_seqlens`, or [N, T, H, K].  Request n starts from the slot [n, num_accepted_tokens[n] - 1]
    (a count of 0 is taken as 1; without `num_accepted_tokens` [N] from [n, 0]), and the state after
    its token t goes to the slot [n, t].  A request whose first slot is padding is padding; a later
    one that is drops its state.  A request of no tokens touches nothing.

    Returns (o, states), o in q's dtype.

    Raises UnsupportedError for several tokens per request with indices [N], for S > 16 and for
    indices without inplace_final_state; InvalidArgumentError for arguments that do not fit each
    other.
    """
    name = "vllm.fused_recurrent_gated_delta_rule"
    arguments.refuse_unknown(name, kwargs)
    return engines.recurrent(
        name, q, k, v, {"g": g, "beta": beta}, scale, initial_state, inplace_final_state,
        cu_seqlens, ssm_state_indices, num_accepted_tokens, pad_slot_id,
        use_qk_l2norm=engines.normalises(name, use_qk_l2norm_in_kernel),
    )  # fmt: skip


def fused_sigmoid_gating_delta_rule_update(
    A_log: Any,
    a: Any,
    b: Any,
    dt_bias: Any,
    q: Any,
    k: Any,
    v: Any,
    beta: float = 1.0,
    threshold: float = 20.0,
    scale: float | None = None,
    initial_state: Any = None,
    inplace_final_state: bool = True,
    cu_seqlens: Any = None,
    ssm_state_indices: Any = None,
    num_accepted_tokens: Any = None,
    use_qk_l2norm_in_kernel: bool = False,
    is_kda: bool = False,
    *,
    ssm_state_indices_output: Any = None,
    pad_slot_id: int = 0,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """vLLM's function of this name: fused_recurrent_gated_delta_rule() with
    g = -exp(A_log) softplus(a + dt_bias) and sigmoid(b) computed by the kernel.

    a and b [N, HV] or with the leading dimensions of q; with `is_kda` a is [.., HV, K], one decay
    for each channel of k, and `dt_bias` [HV, K] or flat.  With `ssm_state_indices_output`, [N] or
    [N, S] as `ssm_state_indices`, new states go to the slots there, and those that are read are
    left as they are; a padding slot drops its state.  No slot that is written may be one that
    another request reads.

    Raises as fused_recurrent_gated_delta_rule(), and UnsupportedError for a softplus other than
    beta = 1, threshold = 20.
    """
    name = "vllm.fused_sigmoid_gating_delta_rule_update"
    arguments.refuse_unknown(name, kwargs)
    engines.require_plain_softplus(name, "beta", beta, threshold=threshold)
    arguments.refuse_autograd(name, A_log=A_log, dt_bias=dt_bias)
    arguments.require_rank(name, "k", k, "[B, T, H, K]")
    arguments.require_rank(name, "v", v, "[B, T, HV, V]")
    channels = (v.shape[2], k.shape[3]) if arguments.flag(name, "is_kda", is_kda) else None
    return engines.recurrent(
        name, q, k, v, {"a": a, "b": b}, scale, initial_state, inplace_final_state, cu_seqlens,
        ssm_state_indices, num_accepted_tokens, pad_slot_id, ssm_state_indices_output,
        **engines.computed_gates(name, A_log, dt_bias, use_qk_l2norm_in_kernel, channels=channels),
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
    *,
    pad_slot_id: int = 0,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """vLLM's function of this name: decode from the convolution's output, split as it lies.

    `mixed_qkv` [B, 2 H K + HV V], a and b [B, HV], `initial_state` [slots, HV, V, K], updated in
    place at `ssm_state_indices` [B]; `out` [B, 1, HV, V] is written, with zeros where the slot is
    padding.  Returns (out, initial_state).  Slots that do not begin at multiples of 16 bytes are
    copied in each call, and back.
    """
    name = "vllm.fused_recurrent_gated_delta_rule_packed_decode"
    arguments.refuse_unknown(name, kwargs)
    engines.pool_heads(name, initial_state)
    return engines.packed_decode(
        name, mixed_qkv, {"a": a, "b": b}, scale, initial_state, out,
        ("ssm_state_indices", ssm_state_indices), pad_slot_id,
        **engines.computed_gates(name, A_log, dt_bias, use_qk_l2norm_in_kernel),
    )  # fmt: skip


def fused_gdn_decode_post_conv_mtp(
    mixed_qkv: Any,
    a: Any,
    b: Any,
    A_log: Any,
    dt_bias: Any,
    state_indices: Any,
    cu_seqlens: Any,
    num_accepted_tokens: Any,
    state: Any,
    output_gate: Any,
    norm_weight: Any,
    out: Any,
    scale: float | None,
    norm_eps: float = 1e-5,
    output_gate_activation: str = "silu",
    *,
    pad_slot_id: int = 0,
    **kwargs: Any,
) -> None:
    """vLLM's torch.ops._C.fused_gdn_decode_post_conv_mtp: draft tokens from the convolution's
    output, split as it lies, and the gated norm behind them, in one launch.

    `mixed_qkv` [L, 2 H K + HV V], a and b [L, HV], `output_gate` [L, HV, V]; request n is tokens
    cu_seqlens[n] to cu_seqlens[n + 1] - 1, at most S of them, S <= 16.  It starts from the slot
    state_indices[n, num_accepted_tokens[n] - 1] of `state` [slots, HV, V, K], and the state after
    its token t goes to the slot [n, t].  `out` [L, HV, V] is written: o / sqrt(mean(o^2) +
    norm_eps) * norm_weight * silu(output_gate), or sigmoid(output_gate).  q and k are normalised.

    o is rounded once, after the norm; vLLM rounds it to bf16 in front of it, too.  A count of 0 is
    taken as 1, and one above S fills the request's outputs with NaN (vLLM: with zeros).

    Raises UnsupportedError for S > 16; InvalidArgumentError for another activation, and for arrays
    that do not fit each other.
    """
    name = "vllm.fused_gdn_decode_post_conv_mtp"
    arguments.refuse_unknown(name, kwargs)
    arguments.refuse_autograd(
        name, mixed_qkv=mixed_qkv, a=a, b=b, A_log=A_log, dt_bias=dt_bias, output_gate=output_gate,
        norm_weight=norm_weight,
    )  # fmt: skip
    if output_gate_activation not in _OUTPUT_NORMS:
        raise InvalidArgumentError(
            f"{name}: output_gate_activation is {output_gate_activation!r}; expected "
            f"{' or '.join(map(repr, _OUTPUT_NORMS))}"
        )
    arguments.require_rank(name, "state", state, "[slots, HV, V, K]")
    arguments.require_state_dtype(name, "state", state)
    arguments.require_rank(name, "state_indices", state_indices, "[N, S]")
    requests, steps = state_indices.shape
    verification.require_tokens(name, "state_indices has S", steps)
    arguments.require_shape(name, "cu_seqlens", cu_seqlens, (requests + 1,))
    arguments.require_shape(name, "num_accepted_tokens", num_accepted_tokens, (requests,))
    q, k, v = engines.packed_rows(name, mixed_qkv, state)
    arguments.require_shape(name, "output_gate", output_gate, tuple(v.shape))
    arguments.require_shape(name, "out", out, tuple(v.shape))
    functional.gdn_verify(
        q, k, v, a, b, A_log=A_log, dt_bias=dt_bias, gate_mode="computed", beta_mode="logit",
        use_qk_l2norm=True, scale=scale, state=state, state_layout="vk",
        state_indices=state_indices, accepted=num_accepted_tokens, stored_states="every",
        **engines.zeroed_padding(name, pad_slot_id), cu_seqlens=cu_seqlens, draft_tokens=steps,
        z=output_gate, norm_weight=norm_weight, norm_eps=norm_eps,
        output_norm=_OUTPUT_NORMS[output_gate_activation], out=out,
    )  # fmt: skip


def chunk_gated_delta_rule(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    scale: float | None = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    cu_seqlens: Any = None,
    *,
    head_first: bool = False,
    chunk_indices: Any = None,
    chunk_offsets: Any = None,
    use_qk_l2norm_in_kernel: bool = False,
    core_attn_out: Any = None,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """vLLM's function of this name: prefill.

    q, k [B, T, H, K], v [B, T, HV, V], g and beta [B, T, HV]; with `cu_seqlens` [N + 1] B is 1.
    `initial_state` [N, HV, V, K] is not written; the final states are a new f32 array of that
    shape, or None.  `core_attn_out` [tokens or more, HV, V], for B = 1, receives o in its first
    rows.  Returns (o, final states), o in q's dtype.  vLLM's releases differ in the order of the
    arguments after `cu_seqlens`: pass those by name.

    chunk_indices and chunk_offsets tell vLLM how to lay out its work.  They cannot change the
    result, and cubinery lays out its own: they are accepted and not read.

    Raises InvalidArgumentError for head_first and arrays that do not fit; UnsupportedError for
    inputs that require grad while grad is enabled.
    """
    name = "vllm.chunk_gated_delta_rule"
    arguments.refuse_unknown(name, kwargs)
    engines.refuse_head_first(name, head_first)
    shape = prefill.check(name, q, k, v, g, beta, initial_state, cu_seqlens)
    wanted = arguments.flag(name, "output_final_state", output_final_state)
    final, states = arguments.final_states(q, initial_state, shape, wanted)
    out = prefill.run(
        q, k, v, g, beta, engines.normalises(name, use_qk_l2norm_in_kernel), scale=scale,
        cu_seqlens=cu_seqlens, out=_output_rows(name, q, v, core_attn_out), **states,
    )  # fmt: skip
    return out, final


def fi_chunk_gated_delta_rule(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    initial_state: Any,
    output_final_state: bool,
    cu_seqlens: Any = None,
    use_qk_l2norm_in_kernel: bool = True,
    state_checkpoints: Any = None,
    checkpoint_cu_starts: Any = None,
    checkpoint_every_n_tokens: int = 0,
    use_cp: str | bool = "auto",
    **kwargs: Any,
) -> tuple[Any, Any]:
    """vLLM's function of this name, around FlashInfer's prefill: chunk_gated_delta_rule() with
    checkpoints.

    Shapes as there; g is the logarithm of the decay.  `initial_state` is not written; the final
    states are a new f32 array, or None.  `state_checkpoints` [rows, HV, V, K], f32, receives the
    states after each `checkpoint_every_n_tokens` tokens, a multiple of 64, those of sequence n from
    row checkpoint_cu_starts[n] on; it needs `cu_seqlens` and `checkpoint_cu_starts` [N + 1], int32
    or int64.  `use_cp` is cubinery's `segments`: "auto", True "always", False "never".

    Raises InvalidArgumentError for arrays that do not fit, UnsupportedError for checkpoints of
    another dtype, use_cp=True where no kernel of cubinery's splits, and inputs that require grad
    while grad is enabled.
    """
    name = "vllm.fi_chunk_gated_delta_rule"
    arguments.refuse_unknown(name, kwargs)
    segments = arguments.segments_of(name, use_cp)
    shape = prefill.check(name, q, k, v, g, beta, initial_state, cu_seqlens)
    if checkpoint_every_n_tokens != 0 and cu_seqlens is None:
        raise InvalidArgumentError(f"{name}: checkpoint_every_n_tokens needs cu_seqlens")
    kept = arguments.checkpoints_after(
        name, checkpoint_every_n_tokens, state_checkpoints, checkpoint_cu_starts, cu_seqlens
    )
    if kept and _arrays.dtype_name(state_checkpoints) != "f32":
        raise UnsupportedError(
            f"{name}: state_checkpoints is {_arrays.dtype_name(state_checkpoints)}; supported: f32"
        )
    wanted = arguments.flag(name, "output_final_state", output_final_state)
    # Checkpoints have the dtype of the states, which is f32 where final ones are kept.
    final, states = arguments.final_states(q, initial_state, shape, wanted or bool(kept))
    out = prefill.run(
        q, k, v, g, beta, engines.normalises(name, use_qk_l2norm_in_kernel), cu_seqlens=cu_seqlens,
        segments=segments, **states, **kept,
    )  # fmt: skip
    return out, final if wanted else None


def causal_conv1d_fn(
    x: Any,
    weight: Any,
    bias: Any,
    conv_states: Any,
    query_start_loc: Any,
    cache_indices: Any = None,
    has_initial_state: Any = None,
    activation: bool | str | None = "silu",
    pad_slot_id: int = 0,
    *,
    null_block_id: int | None = None,
    block_idx_first_scheduled_token: Any = None,
    block_idx_last_scheduled_token: Any = None,
    initial_state_idx: Any = None,
    num_computed_tokens: Any = None,
    block_size_to_align: int = 0,
    metadata: Any = None,
    validate_data: bool = False,
    **kwargs: Any,
) -> Any:
    """vLLM's function of this name: the convolution of a prefill, on a pool updated in place.

    x [dim, T], the tokens of N sequences behind each other, whose bounds are `query_start_loc`
    [N + 1]; `weight` [dim, W], `bias` [dim] or None.  `conv_states` [slots, dim, W - 1 or more] are
    read where `has_initial_state` [N] says so (None: nowhere) and written at `cache_indices` [N],
    or [N, blocks], of which the first column counts (None: sequence n has row n).  Their first
    W - 1 columns count, in any layout.  Returns y in x's shape and dtype.

    The padding slot is `null_block_id`, by its older name `pad_slot_id`; with both, `pad_slot_id` is
    what fills vLLM's tables of launches, and is not read.  Neither is what lays out vLLM's work:
    `metadata`, `validate_data`, and `block_size_to_align`, which goes with the refused arguments.

    Raises UnsupportedError for the states of prefix caching (`block_idx_first_scheduled_token`,
    `block_idx_last_scheduled_token`, `initial_state_idx`, `num_computed_tokens`) and for inputs that
    require grad while grad is enabled; InvalidArgumentError for arrays that do not fit.
    """
    name = "vllm.causal_conv1d_fn"
    arguments.refuse_unknown(name, kwargs)
    arguments.refuse_given(
        name,
        _ONE_BLOCK,
        block_idx_first_scheduled_token=block_idx_first_scheduled_token,
        block_idx_last_scheduled_token=block_idx_last_scheduled_token,
        initial_state_idx=initial_state_idx,
        num_computed_tokens=num_computed_tokens,
    )
    if query_start_loc is None:
        raise InvalidArgumentError(f"{name}: query_start_loc is required")
    options = convolution.prefill_options(
        name, x, weight, bias, conv_states, query_start_loc, _first_slots(cache_indices),
        has_initial_state, activation, pad_slot_id if null_block_id is None else null_block_id,
    )  # fmt: skip
    return convolution.run(x, weight, bias, **options)


def causal_conv1d_update(
    x: Any,
    conv_state: Any,
    weight: Any,
    bias: Any = None,
    activation: bool | str | None = None,
    conv_state_indices: Any = None,
    num_accepted_tokens: Any = None,
    query_start_loc: Any = None,
    max_query_len: int = -1,
    pad_slot_id: int = 0,
    *,
    null_block_id: int | None = None,
    block_idx_last_scheduled_token: Any = None,
    initial_state_idx: Any = None,
    retrieve_parent_token: Any = None,
    validate_data: bool = False,
    out: Any = None,
    **kwargs: Any,
) -> Any:
    """vLLM's function of this name: the convolution of a decode, or of draft tokens.

    x [N, dim], one token of each request; [N, dim, T]; or [T, dim], the tokens of all requests,
    with `query_start_loc` [N + 1] and `conv_state_indices`.  `conv_state` [slots, dim, columns] is
    updated in place at `conv_state_indices` [N], or [N, blocks], of which the first column counts
    (None: request n has row n).  Returns y in x's shape and dtype: `out` if that is given, which
    does not overlap x.

    Without `num_accepted_tokens` the first W - 1 columns count.  With it, [N], a request goes on
    behind so many tokens of the launch in front (0 is taken as 1), and W - 2 + T columns hold what
    the next one may need.  `max_query_len`, the most tokens of a request, is compared with them.  A
    request of more tokens than that gets NaN, and its state is left as it is.

    The padding slot is `pad_slot_id`, by its newer name `null_block_id`.  `validate_data` is not
    read.  Raises as causal_conv1d_fn(), and UnsupportedError for trees (`retrieve_parent_token`).
    """
    name = "vllm.causal_conv1d_update"
    arguments.refuse_unknown(name, kwargs)
    arguments.refuse_given(
        name,
        _ONE_BLOCK,
        block_idx_last_scheduled_token=block_idx_last_scheduled_token,
        initial_state_idx=initial_state_idx,
    )
    arguments.refuse_given(
        name, "drafts are chains of tokens", retrieve_parent_token=retrieve_parent_token
    )
    return convolution.update(
        name, x, conv_state, weight, bias, activation, _first_slots(conv_state_indices),
        ("num_accepted_tokens", num_accepted_tokens), query_start_loc, max_query_len,
        pad_slot_id if null_block_id is None else null_block_id, newest_last=False, out=out,
    )  # fmt: skip


def _first_slots(table: Any) -> Any:
    """The slot of each sequence, [N], of a vector or of a table [N, blocks] of them."""
    return table if table is None or len(table.shape) != 2 else table[:, 0]


def _output_rows(function: str, q: Any, v: Any, buffer: Any) -> Any:
    """The rows of core_attn_out that o takes, as [1, T, HV, V]."""
    if buffer is None:
        return None
    rows, row = v.shape[1], tuple(v.shape[2:])
    fits = q.shape[0] == 1 and tuple(buffer.shape[1:]) == row and buffer.shape[0] >= rows
    if not fits or _arrays.dtype_name(buffer) != _arrays.dtype_name(q):
        raise InvalidArgumentError(
            f"{function}: core_attn_out is {list(buffer.shape)}; expected [{rows} or more, "
            f"{row[0]}, {row[1]}] in q's dtype, and a batch of 1"
        )
    return buffer[:rows][None]
