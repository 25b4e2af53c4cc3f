"""The causal convolution in front of a Gated DeltaNet layer: as an object for one problem, and as a
function that infers it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

from cubinery import _arrays, _core
from cubinery._arrays import dtype_of, dtype_or, ranked_shape, strides_of
from cubinery._context import Context, context_for
from cubinery._errors import refuse
from cubinery._operator import Operator
from cubinery._states import STATE_FIELDS, check_states, state_values
from cubinery.problems import (
    Checkpoints,
    ConvActivation,
    ConvBetaMode,
    ConvProblem,
    ConvStateLayout,
    Padding,
    PadIndex,
    StoredStates,
)

__all__ = ["Conv", "ConvOutputs", "gdn_conv"]


class ConvOutputs(NamedTuple):
    """What a convolution makes with a split: operands of a prefill, decode or verification."""

    q: Any
    k: Any
    v: Any
    g: Any = None  # the decay's logarithm; None without a
    beta: Any = None  # None without b


class Conv(Operator[ConvProblem], op=ConvProblem.op):
    """A convolution on one device, for prefills, decode steps and verifications.  Thread-safe.

    Raises: as Context.prepare().
    """

    def choice(self, sequences: int, tokens: int, channels: int = 0) -> dict[str, str]:
        """What a launch of this size runs: "path", "configuration", "rung" (how good a choice it
        is, "exact" to "default") and "why".

        Args:
            sequences: B, or N.
            tokens: of all sequences: B T, or the packed total.
            channels: of x; with split_qkv the problem says.
        """
        return self._choice(sequences, tokens, channels)

    def __call__(
        self,
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
        checkpoints: Any = None,
        checkpoint_cu_starts: Any = None,
        state: Any = None,
        state_out: Any = None,
        state_indices: Any = None,
        state_out_indices: Any = None,
        scratch_slot: int = 0,
        scale: float = 1.0,
        enable_pdl: bool = False,
        max_seqlen: int | None = None,
        stream: int | None = None,
    ) -> None:
        """Enqueues one convolution on `stream`; does not allocate or wait.

        Arrays are on the context's device, have the problem's dtypes, and are read as they lie.  H
        is the problem's heads; varlen: [total, ...] or [1, total, ...] for [B, T, ...].

        Args:
            x: [B, T, channels].
            weight: [channels, width].
            bias: [channels]; has_bias only.
            y: [B, T, channels]; written; without split_qkv.
            q, k, v: [B, T, heads, dim] with their own head counts; written; split_qkv only.
            a: [B, T, H]; gate_mode "computed" only, as A_log and dt_bias, [H], and g.
            b: [B, T, H]; not for beta_mode "one", as beta.
            g: [B, T, H], f32; written: the decay's logarithm.
            beta: [B, T, H], f32; written.
            cu_seqlens: [N + 1], varlen only: sequence n is tokens cu_seqlens[n] to
                cu_seqlens[n + 1] - 1.
            has_initial_state: [N], bool: whether a sequence starts from its state; None: all do.
            accepted: [N], from_accepted only: so many tokens of the launch in front were accepted.
            checkpoints: [rows, channels, columns]; with the problem's checkpoints.
            checkpoint_cu_starts: [N + 1], varlen with checkpoints: the rows of sequence n.
            state: [N or slots, channels, columns], the last inputs of each sequence, the newest
                last: width - 1, or width with whole_window.  With from_accepted more: a launch
                may have columns - width + 2 tokens of a request; but dense with stored_states
                "every" [N, S, channels, columns]: request n starts from step accepted[n] - 1.
                None without has_initial_state and store_state.
            state_out: likewise, where new states go; None: in place.  Dense with stored_states
                "every": [N, steps, channels, columns]; step t has the window after token t.
            state_indices: [N], state_location "pool": slots that sequences read; with
                from_accepted and stored_states "every" [N, S].
            state_out_indices: [N]: slots that they write; None: those they read.  With
                stored_states "every" [N, steps].
            scratch_slot: the slot of padding sequences, padding "scratch".
            scale: q is multiplied by it; split_qkv only.
            enable_pdl: the launch may overlap the kernel in front of it (sm_90 and newer).
            max_seqlen: varlen: tokens of the longest sequence, as far as the caller knows; a hint
                that changes no bit.  None: not known.
            stream: a cudaStream_t as a number; None: the current stream of x's library (torch and
                cupy; for others the legacy default stream).

        Raises:
            InvalidArgumentError: names the array, what it is and what is accepted.
            UnsupportedError: enable_pdl before sm_90.
            DriverError: CUDA refused the launch.
        """
        _core.operator_launch(
            self._handle, stream, x, weight, bias, y, q, k, v, a, b, A_log, dt_bias, g, beta,
            cu_seqlens, has_initial_state, accepted, checkpoints, checkpoint_cu_starts, state,
            state_out, state_indices, state_out_indices, scratch_slot, scale, enable_pdl,
            max_seqlen or 0,
        )  # fmt: skip


_CHECKPOINT_MODES = get_args(Checkpoints)
_SPLIT_FIELDS = ("q_heads", "k_heads", "v_heads", "key_dim", "value_dim")
_UNSPLIT = tuple(getattr(ConvProblem, name) for name in _SPLIT_FIELDS)
_CONV_FIELDS = (
    *_SPLIT_FIELDS,
    "split_qkv",
    "dtype",
    "weight_dtype",
    "width",
    "activation",
    "has_bias",
    "gate_dtype",
    "beta_dtype",
    "a_log_dtype",
    "dt_bias_dtype",
    "gate_mode",
    "beta_mode",
    "use_qk_l2norm",
    "cu_seqlens_dtype",
    "varlen",
    "state_layout",
    "whole_window",
    "stored_states",
    "checkpoints",
    "checkpoint_every",
    "from_accepted",
    "accepted_dtype",
    *STATE_FIELDS,
)


def _split_values(sizes: tuple[int | None, ...]) -> tuple[Any, ...]:
    """Those of _SPLIT_FIELDS and split_qkv."""
    if all(size is None for size in sizes):
        return (*_UNSPLIT, False)
    for name, size in zip(_SPLIT_FIELDS, sizes):
        if size is None:
            refuse(name, size, f"an int, as {', '.join(_SPLIT_FIELDS)} are, or None for all")
    return (*sizes, True)


def _layout_values(
    kept: tuple[str, Any], width: int, state_layout: str | None, has_steps: bool, accepted: Any
) -> tuple[str, bool]:
    """state_layout and whole_window; `kept`: a state and its name."""
    name, state = kept
    if state is None:
        return state_layout or "columns", False
    shape = ranked_shape(name, state, (3, 4) if has_steps else (3,))
    if state_layout is None:
        strides = strides_of(state)
        is_turned = strides is not None and strides[-2] == 1 and strides[-1] != 1
        state_layout = "channels" if is_turned else "columns"
    return state_layout, (accepted is None or has_steps) and shape[-1] == width


def gdn_conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    activation: ConvActivation = "silu",
    q_heads: int | None = None,
    k_heads: int | None = None,
    v_heads: int | None = None,
    key_dim: int | None = None,
    value_dim: int | None = None,
    a: Any = None,
    b: Any = None,
    A_log: Any = None,
    dt_bias: Any = None,
    beta_mode: ConvBetaMode | None = None,
    use_qk_l2norm: bool = False,
    scale: float = 1.0,
    state: Any = None,
    state_out: Any = None,
    store_state: bool = True,
    stored_states: StoredStates = "last",
    state_layout: ConvStateLayout | None = None,
    state_indices: Any = None,
    state_out_indices: Any = None,
    padding: Padding = "none",
    pad_index: PadIndex = "negative",
    scratch_slot: int = 0,
    has_initial_state: Any = None,
    cu_seqlens: Any = None,
    max_seqlen: int | None = None,
    accepted: Any = None,
    checkpoints: Any = None,
    checkpoint_mode: Checkpoints = "none",
    checkpoint_every: int = 64,
    checkpoint_cu_starts: Any = None,
    y: Any = None,
    q: Any = None,
    k: Any = None,
    v: Any = None,
    g: Any = None,
    beta: Any = None,
    stream: int | None = None,
    context: Context | None = None,
) -> Any:
    """The causal convolution of B sequences of T tokens, or of N packed behind each other.

    Per channel y[t] = act(bias + sum over i < W of weight[i] x[t - W + 1 + i]), with the inputs in
    front of the first token from the state, or zeros.  With head counts and dims the channels
    become q, k and v in the same pass.  A decode step is sequences of one token, a verification of
    up to 16.  Arguments that are not named here are those of gdn_decode(), with sequences for
    requests.

    Args:
        x: [B, T, channels]; packed [total, channels] or [1, total, channels].  Dtypes are those of
            the arrays: f32, bf16 or f16.
        weight: [channels, W], W from 2 to 4.
        bias: [channels], of weight's dtype; None: none.
        activation: "silu" or "none".
        q_heads, k_heads, v_heads, key_dim, value_dim: channels are q's heads behind each other,
            then k's, then v's.  None, all of them: y is written.  H is the largest head count.
        a: [B, T, H], packed likewise: g = -exp(A_log) softplus(a + dt_bias) is written, which
            gdn_decode() and others take with gate_mode "log"; with the head counts only.
        b: likewise: beta, which they take with beta_mode "given".
        A_log, dt_bias: [H]; with a only.
        beta_mode: "logit": beta is b's sigmoid; "doubled_logit": twice that; None: "logit" with b.
        use_qk_l2norm: q and k are normalised.
        scale: q is multiplied by it, behind the norm.
        state: [N or slots, channels, columns], the last inputs, the newest in the last column: W - 1
            of them, or W.  With accepted W - 1 or more; but dense with stored_states "every"
            [N, S, channels, columns].  None: zeros.
        state_out: dense with stored_states "every": [N, steps, channels, columns].
        stored_states: "last": new states are those after a sequence's last token; "every": after
            each of up to 16.
        state_layout: "columns" lie next to each other in memory, or "channels".  None: as state's
            strides say (torch, cupy), else "columns".  It is what is fast; any strides are read.
        state_indices: [N]; with accepted and stored_states "every" [N, S].
        state_out_indices: [N]; with stored_states "every" [N, steps].
        has_initial_state: [N], bool: whether a sequence starts from its state, or from zeros; None:
            all do.
        cu_seqlens: [N + 1], i32 or i64: sequence n is tokens cu_seqlens[n] to
            cu_seqlens[n + 1] - 1.
        max_seqlen: as for Conv.
        accepted: [N], i32 or i64: so many tokens of the launch in front were accepted; a request
            goes on behind them (`cubinery/gdn_conv.h`).
        checkpoints: [rows, channels, columns]: states kept besides the final one.
        checkpoint_mode: "none"; "before": those before tokens 0, N, 2N...; "after": those after
            tokens N, 2N...
        checkpoint_every: N, 1 or more.
        checkpoint_cu_starts: [N + 1], packed with checkpoints: the first row of each sequence.
        y: None: allocated, of x's shape and dtype.
        q, k, v: [B, T, heads, dim], packed likewise; None: allocated, of x's dtype.
        g, beta: [B, T, H], packed likewise, f32; None: allocated, with a and b.

    Returns:
        y; with head counts ConvOutputs: q, k, v, g and beta.

    Raises: as gdn_decode().
    """
    check_states(state, state_out, store_state, (state_indices, state_out_indices))
    context = context_for(context, "x", x)
    varlen = cu_seqlens is not None
    ranked_shape("x", x, (2, 3) if varlen else (3,))
    _, width = ranked_shape("weight", weight, (2,))
    if checkpoint_mode not in _CHECKPOINT_MODES:  # the problem calls it otherwise
        refuse("checkpoint_mode", checkpoint_mode, ", ".join(map(repr, _CHECKPOINT_MODES)))
    kept = ("state_out", state_out) if state is None else ("state", state)
    if kept[1] is None:
        kept = ("checkpoints", checkpoints)
    key = (
        ConvProblem, *_split_values((q_heads, k_heads, v_heads, key_dim, value_dim)),
        dtype_of("x", x), dtype_of("weight", weight), width, activation, bias is not None,
        dtype_or("a", a, "f32"), dtype_or("b", b, "f32"), dtype_or("A_log", A_log, "f32"),
        dtype_or("dt_bias", dt_bias, "f32"), "none" if a is None else "computed",
        ("one" if b is None else "logit") if beta_mode is None else beta_mode, bool(use_qk_l2norm),
        dtype_or("cu_seqlens", cu_seqlens, "i32"), varlen,
        *_layout_values(kept, width, state_layout, stored_states == "every", accepted),
        stored_states,
        checkpoint_mode, checkpoint_every, accepted is not None,
        dtype_or("accepted", accepted, "i32"),
        *state_values(
            state, checkpoints if kept[0] == "checkpoints" else state_out,
            store_state and kept[0] != "checkpoints", state_indices, padding, pad_index,
            default_dtype="bf16",
        ),
    )  # fmt: skip
    conv: Conv = context._kept_operator(_CONV_FIELDS, key)
    y, outputs = _outputs(conv.problem, x, y, ConvOutputs(q, k, v, g, beta))
    conv(
        x, weight, bias, y=y, q=outputs.q, k=outputs.k, v=outputs.v, a=a, b=b, A_log=A_log,
        dt_bias=dt_bias, g=outputs.g, beta=outputs.beta, cu_seqlens=cu_seqlens,
        has_initial_state=has_initial_state, accepted=accepted, checkpoints=checkpoints,
        checkpoint_cu_starts=checkpoint_cu_starts, state=state, state_out=state_out,
        state_indices=state_indices, state_out_indices=state_out_indices,
        scratch_slot=scratch_slot, scale=scale, max_seqlen=max_seqlen, stream=stream,
    )  # fmt: skip
    return outputs if conv.problem.split_qkv else y


def _outputs(problem: ConvProblem, x: Any, y: Any, given: ConvOutputs) -> tuple[Any, ConvOutputs]:
    """y and the others: those that are given, and what the problem writes besides."""
    *tokens, channels = x.shape
    if not problem.split_qkv:
        return (_arrays.empty(x, (*tokens, channels), problem.dtype) if y is None else y), given

    def made(array: Any, dtype: str, *shape: int) -> Any:
        return _arrays.empty(x, (*tokens, *shape), dtype) if array is None else array

    q = made(given.q, problem.dtype, problem.q_heads, problem.key_dim)
    k = made(given.k, problem.dtype, problem.k_heads, problem.key_dim)
    v = made(given.v, problem.dtype, problem.v_heads, problem.value_dim)
    g, beta = given.g, given.beta
    if problem.gate_mode != "none":
        g = made(g, "f32", problem.heads)
    if problem.beta_mode != "one":
        beta = made(beta, "f32", problem.heads)
    return y, ConvOutputs(q, k, v, g, beta)
