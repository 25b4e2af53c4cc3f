"""TensorRT-LLM's Gated DeltaNet functions (tensorrt_llm/_torch/modules/fla) and causal convolutions
(tensorrt_llm/_torch/modules/mamba), by cubinery.

States are [.., HV, V, K].  In decodes and verifications a negative index is padding: the request's
output is zero and no state is touched (TensorRT-LLM computes its output from a zero state).
Importing this module imports neither torch nor TensorRT-LLM.
"""

from __future__ import annotations

from typing import Any

from cubinery import _arrays
from cubinery._errors import InvalidArgumentError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _convolution as convolution
from cubinery.compat import _engines as engines
from cubinery.compat import _prefill as prefill

_PAD_SLOT_ID = -1


def chunk_gated_delta_rule(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    scale: float | None = None,
    initial_state: Any = None,
    initial_state_indices: Any = None,
    inplace_indexed_state_update: bool = False,
    output_final_state: bool = False,
    cu_seqlens: Any = None,
    head_first: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    output: Any = None,
    state_workspace: Any = None,
    output_state_indices: Any = None,
    use_cp: str | bool = "auto",
    g_is_linear: bool = False,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """TensorRT-LLM's function of this name, of fla.chunk and fla.flashinfer_chunk: prefill.

    q, k [1, total, H, K], v [1, total, HV, V], g and beta [1, total, HV] with `cu_seqlens` [N + 1],
    or [B, T, ..] without it; g is a log decay, with `g_is_linear` the decay itself.
    `initial_state` is [N, HV, V, K], or a pool that is read at `initial_state_indices` [N]; None
    starts from zero.  No index is padding.

    With `inplace_indexed_state_update` the pool is written at these indices, or at
    `output_state_indices`, and the second result is None.  Else the final states are another array
    [N, HV, V, K] in the dtype of `initial_state` (None: f32) with `output_final_state`, None without.
    Returns (o, that), o in `output` if given.

    `use_cp` is cubinery's `segments`: "auto", True "always", False "never".  `state_workspace` is not
    read: nothing is gathered.

    Raises InvalidArgumentError for head_first and for states and indices that do not fit each other,
    UnsupportedError for use_cp=True where no kernel of cubinery's splits.
    """
    name = "tensorrt_llm.chunk_gated_delta_rule"
    arguments.refuse_unknown(name, kwargs)
    engines.refuse_head_first(name, head_first)
    arguments.refuse_autograd(name, q=q, k=k, v=v, g=g, beta=beta, initial_state=initial_state)
    arguments.require_rank(name, "q", q, "[B, T, H, K]")
    arguments.require_rank(name, "v", v, "[B, T, HV, V]")
    in_place = arguments.flag(name, "inplace_indexed_state_update", inplace_indexed_state_update)
    is_linear = arguments.flag(name, "g_is_linear", g_is_linear)
    if in_place and initial_state_indices is None:
        raise InvalidArgumentError(
            f"{name}: inplace_indexed_state_update needs initial_state_indices"
        )
    if initial_state_indices is not None and initial_state is None:
        raise InvalidArgumentError(f"{name}: initial_state_indices needs initial_state")
    if output_state_indices is not None and not in_place:
        raise InvalidArgumentError(
            f"{name}: output_state_indices needs inplace_indexed_state_update"
        )
    shape = (engines.count_requests(q, cu_seqlens), v.shape[2], v.shape[3], q.shape[3])
    final = None
    if in_place:
        arguments.require_state_dtype(name, "initial_state", initial_state)
        written = arguments.of_dtype(output_state_indices, initial_state_indices)
        states = {"state_indices": initial_state_indices, "state_out_indices": written}
    else:
        wanted = arguments.flag(name, "output_final_state", output_final_state)
        final, states = _new_states(name, q, initial_state, initial_state_indices, shape, wanted)
    out = prefill.run(
        q, k, v, g, beta, engines.normalises(name, use_qk_l2norm_in_kernel), scale=scale,
        gate_mode="alpha" if is_linear else "log", cu_seqlens=cu_seqlens,
        segments=arguments.segments_of(name, use_cp), out=output,
        **{"state": initial_state, **states},
    )  # fmt: skip
    return out, final


def _new_states(
    name: str, q: Any, state: Any, indices: Any, shape: tuple[int, ...], wanted: bool
) -> tuple[Any, dict[str, Any]]:
    """An array for the final states of sequences whose first are only read (None unless `wanted`),
    and functional.gdn_prefill's options that fill it."""
    if indices is None:
        arguments.require_initial_state(name, state, shape)
        state = arguments.whole_matrices(state)
    else:
        arguments.require_state_dtype(name, "initial_state", state)
    options = {"state": state, "state_indices": indices}
    if not wanted:
        return None, {**options, "store_state": False}
    dtype = "f32" if state is None else _arrays.dtype_name(state)
    final = options["state_out"] = _arrays.empty(q, shape, dtype)
    if indices is not None:
        options["state_out_indices"] = _arrays.arange(indices, shape[0])
    return final, options


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
    output: Any = None,
    **kwargs: Any,
) -> Any:
    """TensorRT-LLM's function of this name: decode on a pool.

    q, k [1, total, H, K], v [1, total, HV, V], a and b [total, HV] or [1, total, HV] with
    `cu_seqlens` [N + 1] (for one token per request: 0, 1, .. N), or [N, T, ..] without it.
    `initial_state_source` [slots, HV, V, K] is updated in place at `initial_state_indices` [N]; None
    starts from zero and keeps nothing.  Returns o in v's shape, `output` if given.

    Raises UnsupportedError for a softplus other than beta = 1, threshold = 20, and for requests of
    more than 16 tokens or, packed, of several tokens where there are more than 16 in all;
    InvalidArgumentError for arguments that do not fit each other.
    """
    name = "tensorrt_llm.fused_sigmoid_gating_delta_rule_update"
    arguments.refuse_unknown(name, kwargs)
    engines.require_plain_softplus(
        name, "softplus_beta", softplus_beta, softplus_threshold=softplus_threshold
    )
    arguments.refuse_autograd(name, A_log=A_log, dt_bias=dt_bias)
    return engines.update(
        name, q, k, v, {"a": a, "b": b}, pool=initial_state_source, indices=initial_state_indices,
        cu_seqlens=cu_seqlens, disable_state_update=False, buffer=None, rows=None,
        cache_steps=None, pad_slot_id=_PAD_SLOT_ID, out=output, scale=scale,
        **engines.computed_gates(name, A_log, dt_bias, use_qk_l2norm_in_kernel),
    )  # fmt: skip


def fused_recurrent_gated_delta_rule_update(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any = None,
    scale: float | None = None,
    initial_state_source: Any = None,
    initial_state_indices: Any = None,
    cu_seqlens: Any = None,
    use_qk_l2norm_in_kernel: bool = False,
    disable_state_update: bool = False,
    disable_output_calculation: bool = False,
    intermediate_states_buffer: Any = None,
    cache_steps: int | None = None,
    output: Any = None,
    **kwargs: Any,
) -> Any:
    """TensorRT-LLM's function of this name: draft tokens, and the states after each of them.

    q, k [N, T, H, K], v [N, T, HV, V], g, a log decay, and beta [N, T, HV], or packed as [1, total,
    ..] with `cu_seqlens` [N + 1]; without beta it is 1.  `initial_state_source` [slots, HV, V, K] is
    read at `initial_state_indices` [N] and, unless `disable_state_update`, updated there.  Returns o
    in v's shape, `output` if given.

    `intermediate_states_buffer` [rows, steps, HV, V, K], of the pool's dtype, receives the state
    after token t of request n at [initial_state_indices[n], t], whatever `cache_steps`, which is the
    most tokens of a request; TensorRT-LLM packs rows of more steps than that.  Without
    `disable_state_update` it takes two launches.

    Raises UnsupportedError for more than 16 tokens per request, a buffer of another dtype or without
    a pool, and `disable_output_calculation`; InvalidArgumentError for arguments that do not fit each
    other, beta per value among them.
    """
    name = "tensorrt_llm.fused_recurrent_gated_delta_rule_update"
    arguments.refuse_unknown(name, kwargs)
    arguments.refuse_set(
        name, "outputs are computed", disable_output_calculation=disable_output_calculation
    )
    return engines.update(
        name, q, k, v, {"g": g, "beta": beta}, pool=initial_state_source,
        indices=initial_state_indices, cu_seqlens=cu_seqlens,
        disable_state_update=disable_state_update, buffer=intermediate_states_buffer,
        rows=None if intermediate_states_buffer is None else initial_state_indices,
        cache_steps=cache_steps, pad_slot_id=_PAD_SLOT_ID, out=output, scale=scale,
        use_qk_l2norm=engines.normalises(name, use_qk_l2norm_in_kernel),
    )  # fmt: skip


def causal_conv1d_fn(
    x: Any,
    weight: Any,
    bias: Any = None,
    query_start_loc: Any = None,
    cache_indices: Any = None,
    has_initial_state: Any = None,
    conv_states: Any = None,
    activation: bool | str | None = "silu",
    pad_slot_id: int = _PAD_SLOT_ID,
    out: Any = None,
    **kwargs: Any,
) -> Any:
    """TensorRT-LLM's function of this name: the convolution of a prefill, on a pool.

    x [dim, T], the tokens of N sequences, whose bounds are `query_start_loc` [N + 1]; without it
    [N, dim, T].  `conv_states` [slots, dim, W - 1 or more] are read where `has_initial_state` [N]
    says so (None: nowhere) and written at `cache_indices` [N] (None: sequence n has row n).  Returns
    y, `out` if given, else new and laid out as x: x is only read, which TensorRT-LLM writes over.

    Raises InvalidArgumentError for arrays that do not fit, UnsupportedError for inputs that require
    grad while grad is enabled.
    """
    name = "tensorrt_llm.causal_conv1d_fn"
    arguments.refuse_unknown(name, kwargs)
    options = convolution.prefill_options(
        name, x, weight, bias, conv_states, query_start_loc, cache_indices, has_initial_state,
        activation, pad_slot_id,
    )  # fmt: skip
    if out is not None:
        convolution.require_output(name, x, out)
    return convolution.run(x, weight, bias, out, **options)


def causal_conv1d_update(
    x: Any,
    conv_state: Any,
    weight: Any,
    bias: Any = None,
    activation: bool | str | None = None,
    cache_seqlens: Any = None,
    conv_state_indices: Any = None,
    *,
    num_accepted_tokens: Any = None,
    intermediate_conv_window: Any = None,
    intermediate_state_indices: Any = None,
    retrieve_next_token: Any = None,
    retrieve_next_sibling: Any = None,
    retrieve_parent_token: Any = None,
    pad_slot_id: int = _PAD_SLOT_ID,
    metadata: Any = None,
    validate_data: bool = False,
    launch_dependent_kernels: bool = False,
    **kwargs: Any,
) -> Any:
    """TensorRT-LLM's functions of this name, of mamba.causal_conv1d and mamba.causal_conv1d_triton:
    the convolution of a decode, or of draft tokens.

    As sglang.causal_conv1d_update(); `num_accepted_tokens` is `num_accept_tokens` there.  The two
    functions differ in the order of the arguments behind `conv_state_indices`: pass those by name.
    `launch_dependent_kernels`, `metadata` and `validate_data` are not read.
    """
    name = "tensorrt_llm.causal_conv1d_update"
    arguments.refuse_unknown(name, kwargs)
    return convolution.update_with_windows(
        name, x, conv_state, weight, bias, activation, conv_state_indices,
        ("num_accepted_tokens", num_accepted_tokens), intermediate_conv_window,
        intermediate_state_indices, pad_slot_id, cache_seqlens=cache_seqlens,
        retrieve_next_token=retrieve_next_token, retrieve_next_sibling=retrieve_next_sibling,
        retrieve_parent_token=retrieve_parent_token,
    )  # fmt: skip
