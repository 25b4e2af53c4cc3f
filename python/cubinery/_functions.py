"""The operators as functions."""

# Written by scripts/print_fields.py: change the tables of runtime/gdn/shared and the rules of
# _rules.py instead.

from __future__ import annotations

from typing import Any

from cubinery import _rules
from cubinery._arrays import dtype_of, dtype_or
from cubinery._context import Context, context_for
from cubinery.problems import (
    BetaMode,
    Checkpoints,
    ConvActivation,
    ConvBetaMode,
    ConvProblem,
    ConvStateLayout,
    Decay,
    DecodeProblem,
    Dtype,
    GateMode,
    OutputNorm,
    PrefillProblem,
    Segments,
    StateLayout,
    StoredStates,
    TokenLayout,
    VerifyProblem,
)
from cubinery.ranks import Ranks, Share, on_ranks

_DECODE_FIELDS = (
    "q_heads", "k_heads", "v_heads", "key_dim", "value_dim", "dtype", "output_dtype", "gate_dtype",
    "beta_dtype", "a_log_dtype", "dt_bias_dtype", "state_dtype", "index_dtype", "state_location",
    "has_initial_state", "store_state", "state_layout", "decay", "gate_mode", "beta_mode",
    "use_qk_l2norm", "output_norm", "norm_weight_dtype", "batch_invariant",
)  # fmt: skip


def gdn_decode(
    q: Any,
    k: Any,
    v: Any,
    g: Any = None,
    beta: Any = None,
    *,
    A_log: Any = None,
    dt_bias: Any = None,
    out: Any = None,
    state: Any = None,
    state_out: Any = None,
    state_indices: Any = None,
    state_out_indices: Any = None,
    z: Any = None,
    norm_weight: Any = None,
    pad_slot_id: int | None = None,
    zero_padding: bool = False,
    scratch_slot: int | None = None,
    scale: float | None = None,
    lower_bound: float | None = None,
    norm_eps: float | None = None,
    output_dtype: Dtype | None = None,
    store_state: bool = True,
    state_layout: StateLayout = "vk",
    decay: Decay | None = None,
    gate_mode: GateMode | None = None,
    beta_mode: BetaMode | None = None,
    use_qk_l2norm: bool = False,
    output_norm: OutputNorm | None = None,
    batch_invariant: bool = False,
    stream: int | None = None,
    context: Context | None = None,
) -> Any:
    """One decode step: one token per request.

    The problem is inferred: dtypes are those of the arrays, and so is what an array that is there
    asks for.  heads is the largest of the head counts.  Decode says more of its arrays.

    Args:
        q: [B, q_heads, key_dim].
        k: [B, k_heads, key_dim].
        v: [B, v_heads, value_dim].
        g: [B, heads], with decay channel [..., key_dim]; g, alpha or a, as gate_mode says.
        beta: [B, heads]; beta or its logit, as beta_mode says.
        A_log: [heads]; None: zeros, where gate_mode is lower_bound.
        dt_bias: [heads], with decay channel [..., key_dim]; with decay channel also [heads *
            key_dim]; None: zeros, where decay is channel.
        out: [B, heads, value_dim]; None: allocated.
        state: [B or slots, heads, rows, columns].
        state_out: [B or slots, heads, rows, columns]; where new states go; None: in place.
        state_indices: [B]; the slots to read.
        state_out_indices: [B]; the slots to write; None: those that are read.
        z: [B, heads, value_dim]; the gate of the norm.
        norm_weight: [value_dim].
        pad_slot_id: the index that means that a row is padding, or, negative, that every negative
            one does; state_location pool only; None: no index is padding.
        zero_padding: outputs of rows of padding are set to zero, not left alone; needs pad_slot_id.
        scratch_slot: the slot that rows of padding are computed on; needs pad_slot_id, without
            zero_padding; None: they are not computed.
        scale: q is multiplied by it; None: key_dim^-1/2.
        lower_bound: the least of the decay's logarithm, -5 to below 0; None: gate_mode is not
            lower_bound.
        norm_eps: with output_norm only; None: 1e-6.
        output_dtype: None: out's, else q's.
        store_state: False: new states are not kept.
        state_layout: a state lies as key_dim x value_dim (kv: FLA) or value_dim x key_dim (vk:
            vLLM, SGLang, FlashInfer, llama.cpp; but llama.cpp pairs value head h with key head h
            mod k_heads, and here it is h / (v_heads / k_heads)).
        decay: "head": a token and head has one (Gated DeltaNet); "channel": one for each of key_dim
            channels (Kimi Delta Attention). None: "channel" where g ends in heads, key_dim.
        gate_mode: "none"; "log": g; "alpha": exp(g); "computed": a, with g = -exp(A_log) softplus(a
            + dt_bias); "lower_bound": a, with g = lower_bound sigmoid(exp(A_log) (a + dt_bias)).
            None: "none" without g, "lower_bound" with lower_bound, "computed" with A_log, else
            "log".
        beta_mode: "one"; "given"; "logit": its sigmoid; "doubled_logit": twice that. None: "one"
            without beta, else "given".
        use_qk_l2norm: normalise q and k in the kernel.
        output_norm: "none"; out is normalised over value_dim, weighted and gated, "gated_rms": by
            silu(z), "sigmoid_gated_rms": by sigmoid(z). None: "none" without z, else "gated_rms".
        batch_invariant: the same bits for a request whatever the batch, instead of the fastest
            kernels for each size.
        stream: a cudaStream_t as a number; None: the library's current one.
        context: None: one per device, made at first use from the environment.

    Returns:
        out.

    Raises:
        InvalidArgumentError: names the array or field, what it is and what is accepted.
        CompileError, NotCachedError, UnsupportedError, DriverError: as Context.prepare().
    """
    context = context_for(context, "q", q)
    key = (
        DecodeProblem,
        *_rules.step_sizes(q, k, v),
        dtype_of("q", q),
        _rules.output_dtype(q, out, output_dtype),
        dtype_or("g", g, "f32"),
        dtype_or("beta", beta, "f32"),
        dtype_or("A_log", A_log, "f32"),
        dtype_or("dt_bias", dt_bias, "f32"),
        *_rules.states("f32", state, state_out, state_indices, state_out_indices, store_state),
        state_layout,
        _rules.step_decay(q, k, v, g, decay),
        _rules.gate_mode(g, A_log, lower_bound, gate_mode),
        _rules.beta_mode(beta, beta_mode),
        bool(use_qk_l2norm),
        _rules.output_norm(z, output_norm),
        dtype_or("norm_weight", norm_weight, "f32"),
        bool(batch_invariant),
    )
    operator = context._kept_operator(_DECODE_FIELDS, key)
    if out is None:
        out = _rules.new_out(operator.problem, q, v)
    return operator(
        q, k, v, g, beta, A_log=A_log, dt_bias=dt_bias, out=out, state=state, state_out=state_out,
        state_indices=state_indices, state_out_indices=state_out_indices, z=z,
        norm_weight=norm_weight, pad_slot_id=pad_slot_id, zero_padding=zero_padding,
        scratch_slot=scratch_slot, scale=scale, lower_bound=lower_bound, norm_eps=norm_eps,
        stream=stream,
    )  # fmt: skip


_PREFILL_FIELDS = (
    "q_heads", "k_heads", "v_heads", "key_dim", "value_dim", "dtype", "output_dtype", "gate_dtype",
    "beta_dtype", "a_log_dtype", "dt_bias_dtype", "state_dtype", "index_dtype", "state_location",
    "has_initial_state", "store_state", "cu_seqlens_dtype", "token_layout", "varlen",
    "state_layout", "decay", "gate_mode", "beta_mode", "use_qk_l2norm", "checkpoints",
    "checkpoint_every", "segments", "context_parallel", "segment_tokens", "batch_invariant",
)  # fmt: skip


def gdn_prefill(
    q: Any,
    k: Any,
    v: Any,
    g: Any = None,
    beta: Any = None,
    *,
    A_log: Any = None,
    dt_bias: Any = None,
    out: Any = None,
    state: Any = None,
    state_out: Any = None,
    state_indices: Any = None,
    state_out_indices: Any = None,
    cu_seqlens: Any = None,
    has_initial_state: Any = None,
    checkpoints: Any = None,
    checkpoint_cu_starts: Any = None,
    checkpoint_offsets: Any = None,
    checkpoint_slots: Any = None,
    pad_slot_id: int | None = None,
    zero_padding: bool = False,
    scratch_slot: int | None = None,
    scale: float | None = None,
    lower_bound: float | None = None,
    max_seqlen: int | None = None,
    output_dtype: Dtype | None = None,
    store_state: bool = True,
    token_layout: TokenLayout = "bthd",
    state_layout: StateLayout = "vk",
    decay: Decay | None = None,
    gate_mode: GateMode | None = None,
    beta_mode: BetaMode | None = None,
    use_qk_l2norm: bool = False,
    checkpoint_mode: Checkpoints = "none",
    checkpoint_every: int = 64,
    segments: Segments = "auto",
    context_parallel: bool = False,
    segment_tokens: int | None = None,
    batch_invariant: bool = False,
    share: Share | None = None,
    ranks: Ranks | None = None,
    workspace: Any = None,
    stream: int | None = None,
    context: Context | None = None,
) -> Any:
    """A prefill: whole sequences.

    The problem is inferred: dtypes are those of the arrays, and so is what an array that is there
    asks for.  heads is the largest of the head counts.  Prefill says more of its arrays.

    Args:
        q: [B, T, q_heads, key_dim], packed [total, q_heads, key_dim].
        k: [B, T, k_heads, key_dim], packed [total, k_heads, key_dim].
        v: [B, T, v_heads, value_dim], packed [total, v_heads, value_dim].
        g: [B, T, heads], packed [total, heads], with decay channel [..., key_dim]; g, alpha or a,
            as gate_mode says.
        beta: [B, T, heads], packed [total, heads]; beta or its logit, as beta_mode says.
        A_log: [heads]; None: zeros, where gate_mode is lower_bound.
        dt_bias: [heads], with decay channel [..., key_dim]; with decay channel also [heads *
            key_dim]; None: zeros, where decay is channel.
        out: [B, T, heads, value_dim], packed [total, heads, value_dim]; None: allocated.
        state: [N or slots, heads, rows, columns].
        state_out: [N or slots, heads, rows, columns]; where new states go; None: in place.
        state_indices: [N]; the slots to read.
        state_out_indices: [N]; the slots to write; None: those that are read.
        cu_seqlens: [N + 1]; sequence n is tokens cu_seqlens[n] to cu_seqlens[n + 1] - 1.
        has_initial_state: [N]; whether a sequence starts from its state, or from zero; None: all
            do.
        checkpoints: [checkpoints, heads, rows, columns]; states that are kept besides the last.
        checkpoint_cu_starts: [N + 1]; where the checkpoints of each sequence begin.
        checkpoint_offsets: [N, K]; tokens of the sequence that each of its checkpoints has taken
            in, ascending; 0 or less: there is none; None: the launch keeps none.
        checkpoint_slots: [N, K]; the rows of checkpoints that they go to; negative or padding:
            there is none; None: the launch keeps none.
        pad_slot_id: the index that means that a row is padding, or, negative, that every negative
            one does; state_location pool only; None: no index is padding.
        zero_padding: outputs of rows of padding are set to zero, not left alone; needs pad_slot_id.
        scratch_slot: the slot that rows of padding are computed on; needs pad_slot_id, without
            zero_padding; None: they are not computed.
        scale: q is multiplied by it; None: key_dim^-1/2.
        lower_bound: the least of the decay's logarithm, -5 to below 0; None: gate_mode is not
            lower_bound.
        max_seqlen: tokens of the longest sequence, a hint; varlen only; None: not known.
        output_dtype: None: out's, else q's.
        store_state: False: new states are not kept.
        token_layout: heads come after the tokens (bthd) or before them (bhtd).
        state_layout: a state lies as key_dim x value_dim (kv: FLA) or value_dim x key_dim (vk:
            vLLM, SGLang, FlashInfer, llama.cpp; but llama.cpp pairs value head h with key head h
            mod k_heads, and here it is h / (v_heads / k_heads)).
        decay: "head": a token and head has one (Gated DeltaNet); "channel": one for each of key_dim
            channels (Kimi Delta Attention). None: "channel" where g has as many dimensions as k.
        gate_mode: "none"; "log": g; "alpha": exp(g); "computed": a, with g = -exp(A_log) softplus(a
            + dt_bias); "lower_bound": a, with g = lower_bound sigmoid(exp(A_log) (a + dt_bias)).
            None: "none" without g, "lower_bound" with lower_bound, "computed" with A_log, else
            "log".
        beta_mode: "one"; "given"; "logit": its sigmoid; "doubled_logit": twice that. None: "one"
            without beta, else "given".
        use_qk_l2norm: normalise q and k in the kernel.
        checkpoint_mode: "none"; "before": states before tokens 0, N, 2N... are kept; "after": those
            after tokens N, 2N...; "at": those after as many tokens as checkpoint_offsets says.
        checkpoint_every: tokens from one checkpoint to the next, or what offsets are multiples of;
            a multiple of 16.
        segments: long sequences are cut into segments that run side by side: where that is faster
            (auto), never, or always; with batch_invariant, auto means never.
        context_parallel: sequences may be spread over several GPUs, which launch a prefill in three
            steps; so they are with share.
        segment_tokens: tokens of the segments that sequences are cut into, a multiple of 64
            (context_parallel). None: 8192; with share ranks.segment_tokens() of its tokens, so
            ranks with other numbers of tokens give it.
        batch_invariant: the same bits for a request whatever the batch, instead of the fastest
            kernels for each size.
        share: what this GPU has of sequences that are spread over several (cubinery.ranks), all of
            which call; needs dense f32 states that are given and stored; None: it has all of them.
        ranks: with share: what they exchange things by; None: TorchRanks(). They agree on the
            problem, which waits for all, once for each kept operator.
        workspace: as for the operator; None: allocated with torch and cupy.
        stream: a cudaStream_t as a number; None: the library's current one.
        context: None: one per device, made at first use from the environment.

    Returns:
        out.

    Raises:
        InvalidArgumentError: names the array or field, what it is and what is accepted.
        CompileError, NotCachedError, UnsupportedError, DriverError: as Context.prepare().
    """
    context = context_for(context, "q", q)
    key = (
        PrefillProblem,
        *_rules.sizes(q, k, v, cu_seqlens, token_layout),
        dtype_of("q", q),
        _rules.output_dtype(q, out, output_dtype),
        dtype_or("g", g, "f32"),
        dtype_or("beta", beta, "f32"),
        dtype_or("A_log", A_log, "f32"),
        dtype_or("dt_bias", dt_bias, "f32"),
        *_rules.states(
            "f32", state, state_out, state_indices, state_out_indices, store_state, checkpoints,
            checkpoint_slots
        ),
        dtype_or("cu_seqlens", cu_seqlens, "i32"),
        token_layout,
        cu_seqlens is not None,
        state_layout,
        _rules.decay(k, g, decay),
        _rules.gate_mode(g, A_log, lower_bound, gate_mode),
        _rules.beta_mode(beta, beta_mode),
        bool(use_qk_l2norm),
        _rules.checkpoint_mode(checkpoint_mode),
        _rules.checkpoint_grain(checkpoints, checkpoint_every),
        segments,
        _rules.context_parallel(context_parallel, share),
        _rules.segment_tokens(q, k, v, cu_seqlens, token_layout, segment_tokens, share),
        bool(batch_invariant),
    )
    operator = context._kept_operator(_PREFILL_FIELDS, key)
    launch = operator if share is None and ranks is None else on_ranks(operator, ranks, share)
    if out is None:
        out = _rules.new_out(operator.problem, q, v)
    return launch(
        q, k, v, g, beta, A_log=A_log, dt_bias=dt_bias, out=out, state=state, state_out=state_out,
        state_indices=state_indices, state_out_indices=state_out_indices, cu_seqlens=cu_seqlens,
        has_initial_state=has_initial_state, checkpoints=checkpoints,
        checkpoint_cu_starts=checkpoint_cu_starts, checkpoint_offsets=checkpoint_offsets,
        checkpoint_slots=checkpoint_slots, pad_slot_id=pad_slot_id, zero_padding=zero_padding,
        scratch_slot=scratch_slot, checkpoint_every=checkpoint_every, scale=scale,
        lower_bound=lower_bound, max_seqlen=max_seqlen, workspace=workspace, stream=stream,
    )  # fmt: skip


_VERIFY_FIELDS = (
    "q_heads", "k_heads", "v_heads", "key_dim", "value_dim", "dtype", "output_dtype", "gate_dtype",
    "beta_dtype", "a_log_dtype", "dt_bias_dtype", "state_dtype", "index_dtype", "state_location",
    "has_initial_state", "store_state", "cu_seqlens_dtype", "varlen", "draft_tokens",
    "state_layout", "decay", "gate_mode", "beta_mode", "use_qk_l2norm", "stored_states",
    "from_accepted", "accepted_dtype", "tree", "parents_dtype", "round_each_token", "output_norm",
    "norm_weight_dtype", "batch_invariant",
)  # fmt: skip


def gdn_verify(
    q: Any,
    k: Any,
    v: Any,
    g: Any = None,
    beta: Any = None,
    *,
    A_log: Any = None,
    dt_bias: Any = None,
    out: Any = None,
    state: Any = None,
    state_out: Any = None,
    state_indices: Any = None,
    state_out_indices: Any = None,
    cu_seqlens: Any = None,
    accepted: Any = None,
    parents: Any = None,
    z: Any = None,
    norm_weight: Any = None,
    pad_slot_id: int | None = None,
    zero_padding: bool = False,
    scratch_slot: int | None = None,
    scale: float | None = None,
    lower_bound: float | None = None,
    norm_eps: float | None = None,
    output_dtype: Dtype | None = None,
    store_state: bool = True,
    draft_tokens: int | None = None,
    state_layout: StateLayout = "vk",
    decay: Decay | None = None,
    gate_mode: GateMode | None = None,
    beta_mode: BetaMode | None = None,
    use_qk_l2norm: bool = False,
    stored_states: StoredStates = "last",
    round_each_token: bool = False,
    output_norm: OutputNorm | None = None,
    batch_invariant: bool = False,
    stream: int | None = None,
    context: Context | None = None,
) -> Any:
    """A verification: the draft tokens of each request.

    The problem is inferred: dtypes are those of the arrays, and so is what an array that is there
    asks for.  heads is the largest of the head counts.  Verify says more of its arrays.

    Args:
        q: [B, T, q_heads, key_dim], packed [total, q_heads, key_dim].
        k: [B, T, k_heads, key_dim], packed [total, k_heads, key_dim].
        v: [B, T, v_heads, value_dim], packed [total, v_heads, value_dim].
        g: [B, T, heads], packed [total, heads], with decay channel [..., key_dim]; g, alpha or a,
            as gate_mode says.
        beta: [B, T, heads], packed [total, heads]; beta or its logit, as beta_mode says.
        A_log: [heads]; None: zeros, where gate_mode is lower_bound.
        dt_bias: [heads], with decay channel [..., key_dim]; with decay channel also [heads *
            key_dim]; None: zeros, where decay is channel.
        out: [B, T, heads, value_dim], packed [total, heads, value_dim]; None: allocated.
        state: [N or slots, heads, rows, columns].
        state_out: [N or slots, heads, rows, columns]; where new states go; None: in place.
        state_indices: [N]; the slots to read.
        state_out_indices: [N]; the slots to write; None: those that are read.
        cu_seqlens: [N + 1]; sequence n is tokens cu_seqlens[n] to cu_seqlens[n + 1] - 1.
        accepted: [N]; so many tokens of the launch before were accepted; 0 is taken as 1.
        parents: [B, T], packed [total]; the token of its request that each follows, from 0, in
            front of it; -1: the initial state.
        z: [B, T, heads, value_dim], packed [total, heads, value_dim]; the gate of the norm.
        norm_weight: [value_dim].
        pad_slot_id: the index that means that a row is padding, or, negative, that every negative
            one does; state_location pool only; None: no index is padding.
        zero_padding: outputs of rows of padding are set to zero, not left alone; needs pad_slot_id.
        scratch_slot: the slot that rows of padding are computed on; needs pad_slot_id, without
            zero_padding; None: they are not computed.
        scale: q is multiplied by it; None: key_dim^-1/2.
        lower_bound: the least of the decay's logarithm, -5 to below 0; None: gate_mode is not
            lower_bound.
        norm_eps: with output_norm only; None: 1e-6.
        output_dtype: None: out's, else q's.
        store_state: False: new states are not kept.
        draft_tokens: the most tokens of a request, 1 to 16. None: 16.
        state_layout: a state lies as key_dim x value_dim (kv: FLA) or value_dim x key_dim (vk:
            vLLM, SGLang, FlashInfer, llama.cpp; but llama.cpp pairs value head h with key head h
            mod k_heads, and here it is h / (v_heads / k_heads)).
        decay: "head": a token and head has one (Gated DeltaNet); "channel": one for each of key_dim
            channels (Kimi Delta Attention). None: "channel" where g has as many dimensions as k.
        gate_mode: "none"; "log": g; "alpha": exp(g); "computed": a, with g = -exp(A_log) softplus(a
            + dt_bias); "lower_bound": a, with g = lower_bound sigmoid(exp(A_log) (a + dt_bias)).
            None: "none" without g, "lower_bound" with lower_bound, "computed" with A_log, else
            "log".
        beta_mode: "one"; "given"; "logit": its sigmoid; "doubled_logit": twice that. None: "one"
            without beta, else "given".
        use_qk_l2norm: normalise q and k in the kernel.
        stored_states: new states are those after a request's last token (last) or after each of its
            tokens (every).
        round_each_token: the state is rounded to state_dtype after each token, as by decode steps.
        output_norm: "none"; out is normalised over value_dim, weighted and gated, "gated_rms": by
            silu(z), "sigmoid_gated_rms": by sigmoid(z). None: "none" without z, else "gated_rms".
        batch_invariant: the same bits for a request whatever the batch, instead of the fastest
            kernels for each size.
        stream: a cudaStream_t as a number; None: the library's current one.
        context: None: one per device, made at first use from the environment.

    Returns:
        out.

    Raises:
        InvalidArgumentError: names the array or field, what it is and what is accepted.
        CompileError, NotCachedError, UnsupportedError, DriverError: as Context.prepare().
    """
    context = context_for(context, "q", q)
    key = (
        VerifyProblem,
        *_rules.sizes(q, k, v, cu_seqlens),
        dtype_of("q", q),
        _rules.output_dtype(q, out, output_dtype),
        dtype_or("g", g, "f32"),
        dtype_or("beta", beta, "f32"),
        dtype_or("A_log", A_log, "f32"),
        dtype_or("dt_bias", dt_bias, "f32"),
        *_rules.states("f32", state, state_out, state_indices, state_out_indices, store_state),
        dtype_or("cu_seqlens", cu_seqlens, "i32"),
        cu_seqlens is not None,
        _rules.draft_tokens(draft_tokens),
        state_layout,
        _rules.decay(k, g, decay),
        _rules.gate_mode(g, A_log, lower_bound, gate_mode),
        _rules.beta_mode(beta, beta_mode),
        bool(use_qk_l2norm),
        stored_states,
        accepted is not None,
        dtype_or("accepted", accepted, "i32"),
        parents is not None,
        dtype_or("parents", parents, "i32"),
        bool(round_each_token),
        _rules.output_norm(z, output_norm),
        dtype_or("norm_weight", norm_weight, "f32"),
        bool(batch_invariant),
    )
    operator = context._kept_operator(_VERIFY_FIELDS, key)
    if out is None:
        out = _rules.new_out(operator.problem, q, v)
    return operator(
        q, k, v, g, beta, A_log=A_log, dt_bias=dt_bias, out=out, state=state, state_out=state_out,
        state_indices=state_indices, state_out_indices=state_out_indices, cu_seqlens=cu_seqlens,
        accepted=accepted, parents=parents, z=z, norm_weight=norm_weight, pad_slot_id=pad_slot_id,
        zero_padding=zero_padding, scratch_slot=scratch_slot, scale=scale, lower_bound=lower_bound,
        norm_eps=norm_eps, stream=stream,
    )  # fmt: skip


_CONV_FIELDS = (
    "q_heads", "k_heads", "v_heads", "key_dim", "value_dim", "width", "split_qkv", "dtype",
    "weight_dtype", "activation", "has_bias", "gate_dtype", "beta_dtype", "a_log_dtype",
    "dt_bias_dtype", "state_dtype", "index_dtype", "state_location", "has_initial_state",
    "store_state", "cu_seqlens_dtype", "varlen", "state_layout", "whole_window", "decay",
    "gate_mode", "beta_mode", "use_qk_l2norm", "stored_states", "from_accepted", "accepted_dtype",
    "circular_state", "checkpoints", "checkpoint_every", "batch_invariant",
)  # fmt: skip


def gdn_conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    y: Any = None,
    q: Any = None,
    k: Any = None,
    v: Any = None,
    a: Any = None,
    b: Any = None,
    A_log: Any = None,
    dt_bias: Any = None,
    g: Any = None,
    beta: Any = None,
    cu_seqlens: Any = None,
    has_initial_state: Any = None,
    accepted: Any = None,
    cache_seqlens: Any = None,
    state: Any = None,
    state_out: Any = None,
    state_indices: Any = None,
    state_out_indices: Any = None,
    checkpoints: Any = None,
    checkpoint_cu_starts: Any = None,
    checkpoint_offsets: Any = None,
    checkpoint_slots: Any = None,
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
    activation: ConvActivation = "silu",
    store_state: bool = True,
    state_layout: ConvStateLayout | None = None,
    decay: Decay | None = None,
    beta_mode: ConvBetaMode | None = None,
    use_qk_l2norm: bool = False,
    stored_states: StoredStates = "last",
    checkpoint_mode: Checkpoints = "none",
    checkpoint_every: int = 64,
    batch_invariant: bool = False,
    share: Share | None = None,
    ranks: Ranks | None = None,
    stream: int | None = None,
    context: Context | None = None,
) -> Any:
    """A causal convolution in front of the others: its sums, SiLU, the split into q, k and v.

    The problem is inferred: dtypes are those of the arrays, and so is what an array that is there
    asks for.  heads is the largest of the head counts.  Conv says more of its arrays.

    Args:
        x: [B, T, channels], packed [total, channels].
        weight: [channels, width].
        bias: [channels].
        y: [B, T, channels], packed [total, channels]; None: allocated.
        q: [B, T, q_heads, key_dim], packed [total, q_heads, key_dim]; None: allocated.
        k: [B, T, k_heads, key_dim], packed [total, k_heads, key_dim]; None: allocated.
        v: [B, T, v_heads, value_dim], packed [total, v_heads, value_dim]; None: allocated.
        a: [B, T, heads], packed [total, heads], with decay channel [..., key_dim]; the decay's
            input.
        b: [B, T, heads], packed [total, heads]; beta's logit.
        A_log: [heads]; None: zeros, where gate_mode is lower_bound.
        dt_bias: [heads], with decay channel [..., key_dim]; with decay channel also [heads *
            key_dim]; None: zeros, where decay is channel.
        g: [B, T, heads], packed [total, heads], with decay channel [..., key_dim]; the decay's
            logarithm; None: allocated.
        beta: [B, T, heads], packed [total, heads]; None: allocated.
        cu_seqlens: [N + 1]; sequence n is tokens cu_seqlens[n] to cu_seqlens[n + 1] - 1.
        has_initial_state: [N]; whether a sequence starts from its state, or from zero; None: all
            do.
        accepted: [N]; so many tokens of the launch before were accepted; 0 is taken as 1.
        cache_seqlens: [N]; the inputs that a sequence has had: input i is in column i mod columns.
        state: [N or slots, channels, columns].
        state_out: [N or slots, channels, columns]; where new states go; None: in place.
        state_indices: [N]; the slots to read.
        state_out_indices: [N]; the slots to write; None: those that are read.
        checkpoints: [checkpoints, channels, columns]; states that are kept besides the last.
        checkpoint_cu_starts: [N + 1]; where the checkpoints of each sequence begin.
        checkpoint_offsets: [N, K]; tokens of the sequence that each of its checkpoints has taken
            in, ascending; 0 or less: there is none; None: the launch keeps none.
        checkpoint_slots: [N, K]; the rows of checkpoints that they go to; negative or padding:
            there is none; None: the launch keeps none.
        pad_slot_id: the index that means that a row is padding, or, negative, that every negative
            one does; state_location pool only; None: no index is padding.
        zero_padding: outputs of rows of padding are set to zero, not left alone; needs pad_slot_id.
        scratch_slot: the slot that rows of padding are computed on; needs pad_slot_id, without
            zero_padding; None: they are not computed.
        scale: q is multiplied by it; split_qkv only; None: 1.
        lower_bound: the least of the decay's logarithm, -5 to below 0; None: gate_mode is not
            lower_bound.
        max_seqlen: tokens of the longest sequence, a hint; varlen only; None: not known.
        q_heads, k_heads, v_heads, key_dim, value_dim: the channels are q's heads behind each other,
            then k's, then v's, and become q, k and v. None, all of them: y is written.
        activation: what the sums go through.
        store_state: False: new states are not kept.
        state_layout: "columns" lie next to each other in memory, or "channels". None: as state's
            strides say (torch, cupy), else "columns". It is what is fast; any strides are read.
        decay: "head": a token and head has one (Gated DeltaNet); "channel": one for each of key_dim
            channels (Kimi Delta Attention). None: "channel" where a has one dimension more than x.
        beta_mode: "logit": beta is b's sigmoid; "doubled_logit": twice that. None: "logit" with b.
        use_qk_l2norm: q and k are normalised; needs split_qkv.
        stored_states: new states are those after a sequence's last token (last) or after each of up
            to 16 tokens (every).
        checkpoint_mode: "none"; "before": states before tokens 0, N, 2N... are kept; "after": those
            after tokens N, 2N...; "at": those after as many tokens as checkpoint_offsets says.
        checkpoint_every: tokens from one checkpoint to the next; without meaning for "at".
        batch_invariant: the same bits for a request whatever the batch, instead of the fastest
            kernels for each size.
        share: what this GPU has of sequences that are spread over several (cubinery.ranks), all of
            which call; needs dense states of packed sequences that are given and stored; None: it
            has all of them.
        ranks: with share: what they exchange things by; None: TorchRanks(). They agree on the
            problem, which waits for all, once for each kept operator.
        stream: a cudaStream_t as a number; None: the library's current one.
        context: None: one per device, made at first use from the environment.

    Returns:
        y; with head counts ConvOutputs.

    Raises:
        InvalidArgumentError: names the array or field, what it is and what is accepted.
        CompileError, NotCachedError, UnsupportedError, DriverError: as Context.prepare().
    """
    context = context_for(context, "x", x)
    key = (
        ConvProblem,
        *_rules.conv_sizes(x, weight, cu_seqlens, q_heads, k_heads, v_heads, key_dim, value_dim),
        dtype_of("x", x),
        dtype_of("weight", weight),
        activation,
        bias is not None,
        dtype_or("a", a, "f32"),
        dtype_or("b", b, "f32"),
        dtype_or("A_log", A_log, "f32"),
        dtype_or("dt_bias", dt_bias, "f32"),
        *_rules.states(
            "bf16", state, state_out, state_indices, state_out_indices, store_state, checkpoints,
            checkpoint_slots
        ),
        dtype_or("cu_seqlens", cu_seqlens, "i32"),
        cu_seqlens is not None,
        *_rules.window_layout(
            weight, state, state_out, checkpoints, stored_states, accepted, cache_seqlens,
            state_layout
        ),
        _rules.conv_decay(x, a, decay),
        _rules.conv_gate_mode(a, lower_bound),
        _rules.conv_beta_mode(b, beta_mode),
        bool(use_qk_l2norm),
        stored_states,
        accepted is not None,
        dtype_or("accepted", accepted, "i32"),
        cache_seqlens is not None,
        _rules.checkpoint_mode(checkpoint_mode),
        _rules.window_grain(checkpoints, checkpoint_every),
        bool(batch_invariant),
    )
    operator = context._kept_operator(_CONV_FIELDS, key)
    launch = operator if share is None and ranks is None else on_ranks(operator, ranks, share)
    y, q, k, v, g, beta = _rules.new_conv_outputs(operator.problem, x, y, q, k, v, g, beta)
    launch(
        x, weight, bias, y=y, q=q, k=k, v=v, a=a, b=b, A_log=A_log, dt_bias=dt_bias, g=g, beta=beta,
        cu_seqlens=cu_seqlens, has_initial_state=has_initial_state, accepted=accepted,
        cache_seqlens=cache_seqlens, state=state, state_out=state_out, state_indices=state_indices,
        state_out_indices=state_out_indices, checkpoints=checkpoints,
        checkpoint_cu_starts=checkpoint_cu_starts, checkpoint_offsets=checkpoint_offsets,
        checkpoint_slots=checkpoint_slots, pad_slot_id=pad_slot_id, zero_padding=zero_padding,
        scratch_slot=scratch_slot, checkpoint_every=checkpoint_every, scale=scale,
        lower_bound=lower_bound, max_seqlen=max_seqlen, stream=stream,
    )  # fmt: skip
    return _rules.ConvOutputs(q, k, v, g, beta) if operator.problem.split_qkv else y
