"""SGLang's Gated DeltaNet functions (sglang/srt/layers/attention/fla), by cubinery.

States are pools [slots, HV, V, K], updated in place; a negative index is padding: the request's
output is zero and no state is touched (SGLang computes its output from a zero state).  Importing
this module imports neither torch nor SGLang.
"""

from __future__ import annotations

from typing import Any

from cubinery import functional
from cubinery._errors import InvalidArgumentError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _engines as engines

_PAD_SLOT_ID = -1


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
    num_warps: int = 1,
) -> Any:
    """SGLang's function of this name, for decode: one token per request.

    q, k [1, N, H, K], v [1, N, HV, V], a and b [N, HV] or [1, N, HV] with `cu_seqlens` [N + 1] (0,
    1, .. N), or [N, 1, ..] without it.  `initial_state_source` [slots, HV, V, K] is updated in
    place at `initial_state_indices` [N] unless `disable_state_update`; None starts from zero and
    keeps nothing.  Returns o in q's dtype and v's shape.

    `num_warps` shapes SGLang's launch; it cannot change the result and is not read.

    Raises UnsupportedError for several tokens per request, verification (intermediate states, token
    trees, ReplaySSM), KDA, and a softplus other than beta = 1, threshold = 20.
    """
    name = "sglang.fused_sigmoid_gating_delta_rule_update"
    engines.require_plain_softplus(
        name, "softplus_beta", softplus_beta, softplus_threshold=softplus_threshold
    )
    arguments.refuse_given(name, "one decay per head", is_kda=is_kda, lower_bound=lower_bound)
    arguments.refuse_given(
        name,
        "one token per request and its final state",
        intermediate_states_buffer=intermediate_states_buffer,
        intermediate_state_indices=intermediate_state_indices,
        cache_steps=cache_steps,
        retrieve_parent_token=retrieve_parent_token,
        cache_ring=cache_ring,
        replayssm_rawv=replayssm_rawv,
        replayssm_rawk=replayssm_rawk,
        replayssm_g=replayssm_g,
        replayssm_beta=replayssm_beta,
    )
    arguments.refuse_autograd(name, A_log=A_log, dt_bias=dt_bias)
    has_pool = initial_state_source is not None
    if has_pool and initial_state_indices is None:
        raise InvalidArgumentError(f"{name}: initial_state_source needs initial_state_indices")
    return engines.decode(
        name,
        q,
        k,
        v,
        {"a": a, "b": b},
        cu_seqlens=cu_seqlens,
        states=initial_state_source,
        indices=initial_state_indices if has_pool else None,
        pad_slot_id=_PAD_SLOT_ID,
        A_log=A_log,
        dt_bias=dt_bias,
        gate_mode="computed",
        beta_mode="logit",
        use_qk_l2norm=use_qk_l2norm_in_kernel,
        scale=scale,
        store_state=not disable_state_update,
    )


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
) -> tuple[Any, Any]:
    """SGLang's function of this name: decode from the convolution's output, split as it lies.

    `mixed_qkv` [B, 2 H K + HV V], a and b [B, HV], `initial_state` [slots, HV, V, K], updated in
    place at `ssm_state_indices` [B]; `out` [B, 1, HV, V] is written, with zeros where the index is
    negative.  Returns (out, initial_state).
    """
    return engines.packed_decode(
        "sglang.fused_recurrent_gated_delta_rule_packed_decode", mixed_qkv, a, b, A_log, dt_bias,
        scale, initial_state, out, ssm_state_indices, use_qk_l2norm_in_kernel, _PAD_SLOT_ID,
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
) -> tuple[Any, None, None]:
    """SGLang's function of this name: prefill, on a pool that is updated in place.

    q, k [1, total, H, K], v [1, total, HV, V], g and beta [1, total, HV], `cu_seqlens` [N + 1];
    `initial_state` [slots, HV, V, K] read and written at `initial_state_indices` [N].  Returns (o,
    None, None): SGLang's third value, the states before each chunk, is not kept.  Whoever tracks
    states for prefix caching asks functional.gdn_prefill for checkpoints.

    Raises InvalidArgumentError for head_first and for a pool without indices.
    """
    name = "sglang.chunk_gated_delta_rule"
    engines.refuse_head_first(name, head_first)
    if (initial_state is None) != (initial_state_indices is None):
        raise InvalidArgumentError(
            f"{name}: initial_state and initial_state_indices belong together"
        )
    arguments.refuse_autograd(name, q=q, k=k, v=v, g=g, beta=beta, initial_state=initial_state)
    options: dict[str, Any] = {}
    if initial_state is not None:
        arguments.require_state_dtype(name, "initial_state", initial_state)
        options = {
            "state_indices": initial_state_indices,
            "padding": "zero",
            "pad_index": "negative",
        }
    q, k, v = (arguments.unit_rows(array) for array in (q, k, v))
    out = functional.gdn_prefill(
        q,
        k,
        v,
        g,
        beta,
        use_qk_l2norm=use_qk_l2norm_in_kernel,
        scale=scale,
        state=initial_state,
        store_state=initial_state is not None,
        state_layout="vk",
        cu_seqlens=cu_seqlens,
        **options,
    )
    return out, None, None
