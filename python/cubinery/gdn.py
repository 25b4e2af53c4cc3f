"""The operators of Gated DeltaNet: as objects for one problem, and as functions that infer it.

What an option of them adds in Python is in this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from cubinery import _arrays, _core
from cubinery._arrays import dtype_of, dtype_or, heads, shape_of
from cubinery._context import Context, context_for
from cubinery._errors import refuse, refuse_type
from cubinery._operator import Operator
from cubinery._states import STATE_FIELDS, check_states, state_values
from cubinery.problems import (
    BetaMode,
    Checkpoints,
    CommitProblem,
    DecodeProblem,
    Dtype,
    GateMode,
    Padding,
    PadIndex,
    PrefillProblem,
    Segments,
    StateLayout,
    StoredStates,
    TokenLayout,
    VerifyProblem,
)

__all__ = ["Commit", "Decode", "Prefill", "Verify", "gdn_decode", "gdn_prefill", "gdn_verify"]


class Decode(Operator[DecodeProblem], op=DecodeProblem.op):
    """A decode operator on one device: one token per request.  Thread-safe.

    Raises: as Context.prepare().
    """

    def choice(self, batch: int) -> dict[str, str]:
        """What a batch of this size launches: "path", "configuration", "rung" (how good a choice
        it is, "exact" to "default") and "why".
        """
        return self._choice(batch)

    def __call__(
        self,
        q: Any = None,
        k: Any = None,
        v: Any = None,
        g: Any = None,
        beta: Any = None,
        *,
        A_log: Any = None,
        dt_bias: Any = None,
        out: Any,
        state: Any = None,
        state_out: Any = None,
        state_indices: Any = None,
        state_out_indices: Any = None,
        scratch_slot: int = 0,
        z: Any = None,
        norm_weight: Any = None,
        x: Any = None,
        conv_weight: Any = None,
        conv_bias: Any = None,
        conv_state: Any = None,
        conv_state_out: Any = None,
        scale: float | None = None,
        norm_eps: float | None = None,
        enable_pdl: bool = False,
        stream: int | None = None,
    ) -> Any:
        """Enqueues one step of B requests on `stream`; does not allocate or wait.

        Arrays are on the context's device, have the problem's dtypes, and are read as they lie.
        H is the problem's heads; rows x cols of a state is V x K (vk) or K x V (kv).

        Args:
            q, k, v: [B, heads, dim] or [B, 1, heads, dim] with their own head counts.  None with
                conv_width.
            g: [B, H] or [B, 1, H]: g, alpha or a of gate_mode; None for gate_mode "none".
            beta: likewise; beta or its logit; None for beta_mode "one".
            A_log, dt_bias: [H], gate_mode "computed" only.
            out: [B, H, V] or [B, 1, H, V]; written.
            state: [B or slots, H, rows, cols].  None without has_initial_state and store_state.
            state_out: likewise, where new states go; None: in place.
            state_indices: [B], state_location "pool": slots that requests read.
            state_out_indices: [B]: slots that they write; None: those they read.
            scratch_slot: the slot of padding requests, padding "scratch".
            z: as out, but read, of q's dtype; output_norm "gated_rms" only.
            norm_weight: [V], likewise.
            x: [B, channels] or [B, 1, channels], of q's dtype: those of q's heads, k's and v's;
                conv_width only, as what follows.  Channels lie next to each other, requests at
                multiples of four.
            conv_weight: [channels, conv_width].
            conv_bias: [channels], conv_has_bias only.
            conv_state: [B or slots, channels, columns], where state is; as conv_state_layout
                says, without gaps, slots at multiples of four elements.
            conv_state_out: likewise, where new ones go; None: in place.
            scale: None: key_dim ** -0.5.
            norm_eps: None: 1e-6; output_norm "gated_rms" only.
            enable_pdl: the launch may overlap the kernel in front of it (sm_90 and newer).
            stream: a cudaStream_t as a number; None: the current stream of the library of q, or
                of x (torch and cupy; for others the legacy default stream).

        Returns:
            out.

        Raises:
            InvalidArgumentError: names the array, what it is and what is accepted.
            UnsupportedError: enable_pdl before sm_90.
            DriverError: CUDA refused the launch.
        """
        _core.operator_launch(
            self._handle, stream, q, k, v, g, beta, A_log, dt_bias, out, state, state_out,
            state_indices, state_out_indices, z, norm_weight, x, conv_weight, conv_bias,
            conv_state, conv_state_out, scratch_slot, scale, enable_pdl, norm_eps,
        )  # fmt: skip
        return out


class Prefill(Operator[PrefillProblem], op=PrefillProblem.op):
    """A prefill operator on one device: whole sequences.  Thread-safe.

    Raises: as Context.prepare().
    """

    def __init__(self, context: Context, problem: PrefillProblem) -> None:
        super().__init__(context, problem)
        self._token_axis = 1 if problem.token_layout == "bthd" else 2

    def workspace_bytes(self, tokens: int, sequences: int) -> int:
        """Bytes of workspace that every launch of at most this size needs.

        At sizes that launches refuse because no grid holds them this may be 2**64 - 1.

        Args:
            tokens: of all sequences: B T, or the packed total.
            sequences: B, or N.
        """
        return _core.operator_workspace_bytes(self._handle, tokens, sequences)

    def choice(self, tokens: int, sequences: int, max_seqlen: int | None = None) -> dict[str, str]:
        """What a launch of this size runs, as Decode.choice().

        Args:
            tokens, sequences: as for workspace_bytes().
            max_seqlen: tokens of the longest sequence; None: not known.
        """
        return self._choice(tokens, sequences, max_seqlen or 0)

    def __call__(
        self,
        q: Any,
        k: Any,
        v: Any,
        g: Any = None,
        beta: Any = None,
        *,
        A_log: Any = None,
        dt_bias: Any = None,
        out: Any,
        state: Any = None,
        state_out: Any = None,
        state_indices: Any = None,
        state_out_indices: Any = None,
        scratch_slot: int = 0,
        cu_seqlens: Any = None,
        checkpoints: Any = None,
        checkpoint_cu_starts: Any = None,
        workspace: Any = None,
        max_seqlen: int | None = None,
        scale: float | None = None,
        enable_pdl: bool = False,
        stream: int | None = None,
    ) -> Any:
        """Enqueues one prefill on `stream`; allocates nothing but a missing workspace.

        Arrays are on the context's device, have the problem's dtypes, and are read as they lie.
        H is the problem's heads; rows x cols of a state is V x K (vk) or K x V (kv).  Shapes are
        those of token_layout "bthd"; "bhtd" has the heads before the tokens everywhere.

        Args:
            q, k, v: [B, T, heads, dim] with their own head counts; varlen: [total, heads, dim] or
                [1, total, heads, dim].
            g: [B, T, H]: g, alpha or a of gate_mode; None for gate_mode "none".
            beta: likewise; beta or its logit; None for beta_mode "one".
            A_log, dt_bias: [H], gate_mode "computed" only.
            out: [B, T, H, V]; written.
            state: [N or slots, H, rows, cols].  None without has_initial_state and store_state.
            state_out: likewise, where final states go; None: in place.
            state_indices: [N], state_location "pool": slots that sequences read.
            state_out_indices: [N]: slots that they write; None: those they read.
            scratch_slot: the slot of padding sequences, padding "scratch".
            cu_seqlens: [N + 1], varlen only: sequence n is tokens cu_seqlens[n] to
                cu_seqlens[n + 1] - 1.
            checkpoints: [rows, H, rows of a state, cols]; with the problem's checkpoints.
            checkpoint_cu_starts: [N + 1], varlen with checkpoints: the rows of sequence n.
            workspace: one dimension without gaps, 256-byte aligned, of workspace_bytes() or more;
                nothing is kept in it between launches, launches that may overlap need one each.
                None: torch or cupy allocates it, tied to the launch's stream.
            max_seqlen: varlen: tokens of the longest sequence, as far as the caller knows; a hint
                for the choice of kernels; with batch_invariant results do not depend on it.
            scale, enable_pdl, stream: as for Decode.

        Returns:
            out.

        Raises:
            InvalidArgumentError: names the array, what it is and what is accepted.
            UnsupportedError: enable_pdl before sm_90.
            DriverError: CUDA refused the launch.
        """
        if workspace is None:
            workspace = self._new_workspace(q, cu_seqlens, stream)
        _core.operator_launch(
            self._handle, stream, workspace, q, k, v, g, beta, A_log, dt_bias, out, state,
            state_out, state_indices, state_out_indices, cu_seqlens, checkpoints,
            checkpoint_cu_starts, scratch_slot, scale, enable_pdl, max_seqlen or 0,
        )  # fmt: skip
        return out

    def _new_workspace(self, q: Any, cu_seqlens: Any, stream: int | None) -> Any:
        """A workspace for one launch."""
        shape = shape_of("q", q)
        if len(shape) == 4:
            sequences, tokens = shape[0], shape[0] * shape[self._token_axis]
        else:
            sequences, tokens = 1, shape[self._token_axis - 1] if len(shape) == 3 else 0
        if cu_seqlens is not None:
            sequences = max(shape_of("cu_seqlens", cu_seqlens)[0] - 1, 0)
        size = self.workspace_bytes(tokens, sequences)
        return _arrays.workspace(q, size, stream, self.context.device) if size > 0 else None


class Verify(Operator[VerifyProblem], op=VerifyProblem.op):
    """A verification operator on one device: the draft tokens of each request.  Thread-safe.

    Raises: as Context.prepare().
    """

    def choice(self, requests: int, tokens: int) -> dict[str, str]:
        """What a launch of this size runs, as Decode.choice().

        Args:
            requests: B, or N.
            tokens: of all requests: B T, or the packed total.
        """
        return self._choice(requests, tokens)

    def __call__(
        self,
        q: Any,
        k: Any,
        v: Any,
        g: Any = None,
        beta: Any = None,
        *,
        A_log: Any = None,
        dt_bias: Any = None,
        out: Any,
        state: Any = None,
        state_out: Any = None,
        state_indices: Any = None,
        state_out_indices: Any = None,
        scratch_slot: int = 0,
        cu_seqlens: Any = None,
        accepted: Any = None,
        parents: Any = None,
        scale: float | None = None,
        enable_pdl: bool = False,
        stream: int | None = None,
    ) -> Any:
        """Enqueues one verification on `stream`; does not allocate or wait.

        Arrays are on the context's device, have the problem's dtypes, and are read as they lie.
        H is the problem's heads; rows x cols of a state is V x K (vk) or K x V (kv).

        Args:
            q, k, v: [B, T, heads, dim] with their own head counts; varlen: [total, heads, dim] or
                [1, total, heads, dim].
            g: [B, T, H]: g, alpha or a of gate_mode; None for gate_mode "none".
            beta: likewise; beta or its logit; None for beta_mode "one".
            A_log, dt_bias: [H], gate_mode "computed" only.
            out: [B, T, H, V]; written.
            state: [N or slots, H, rows, cols]; dense with from_accepted: [N, S, H, rows, cols].
                None without has_initial_state and store_state.
            state_out: [N or slots, H, rows, cols]; dense with stored_states "every":
                [N, steps, H, rows, cols], the state after token t in step t.  None: in place.
            state_indices: [N], state_location "pool": slots that requests read; [N, S] with
                from_accepted.
            state_out_indices: [N]: slots that they write; [N, steps] with stored_states "every";
                None: those they read.
            scratch_slot: the slot of padding requests, padding "scratch".
            cu_seqlens: [N + 1], varlen only: request n is tokens cu_seqlens[n] to
                cu_seqlens[n + 1] - 1, at most draft_tokens.
            accepted: [N], from_accepted only: request n starts from the state of step
                accepted[n] - 1, 1 to S; 0 is taken as 1.
            parents: [B, T]; varlen: [total] or [1, total]; tree only: the token of its request, from
                0, that each token follows, in front of it; -1: none, it starts from the request's
                initial state.  Step t is the state after token t: accepted is then the token to go
                on from, plus 1.
            scale: None: key_dim ** -0.5.
            enable_pdl: the launch may overlap the kernel in front of it (sm_90 and newer).
            stream: a cudaStream_t as a number; None: the current stream of q's library (torch and
                cupy; for others the legacy default stream).

        Returns:
            out.

        Raises: as Decode.
        """
        _core.operator_launch(
            self._handle, stream, q, k, v, g, beta, A_log, dt_bias, out, state, state_out,
            state_indices, state_out_indices, cu_seqlens, accepted, parents, scratch_slot, scale,
            enable_pdl,
        )  # fmt: skip
        return out


_LAYER_ARRAYS = ("k", "v", "g", "beta", "A_log", "dt_bias", "state", "state_out")


def _layer_arrays(index: int, layer: Mapping[str, Any]) -> list[Any]:
    if not isinstance(layer, Mapping):
        refuse_type(f"layers[{index}]", layer, "a dict of arrays")
    for name in layer:
        if name not in _LAYER_ARRAYS:
            refuse(f"layers[{index}]", name, ", ".join(map(repr, _LAYER_ARRAYS)))
    return [layer.get(name) for name in _LAYER_ARRAYS]


class Commit(Operator[CommitProblem], op=CommitProblem.op):
    """A commit operator on one device: the states after the accepted tokens of a verification that
    kept none (store_state False), from the same arrays.  Thread-safe.

    Raises: as Context.prepare().
    """

    def choice(self, layers: int, requests: int) -> dict[str, str]:
        """What a launch of this size runs, as Decode.choice().

        Args:
            layers: those of the table, or 1.
            requests: N.
        """
        return self._choice(layers, requests)

    def table(self, layers: Sequence[Mapping[str, Any]]) -> list[int]:
        """The layers of a model for one launch: 32 numbers for each, which an array of i64 on the
        device holds from then on, until one of their arrays moves:

            table = torch.tensor(commit.table(layers), device="cuda").view(-1, 32)

        Args:
            layers: of each layer the arrays that a launch of it alone takes, by name: k, v, g,
                beta, A_log, dt_bias, state, state_out; those that are None may be missing.  They
                may have room for more requests and tokens than a launch has.

        Raises:
            InvalidArgumentError: names the layer and the array, what it is and what is accepted.
        """
        arrays = [a for i, layer in enumerate(layers) for a in _layer_arrays(i, layer)]
        return _core.operator_table(self._handle, *arrays)

    def __call__(
        self,
        k: Any = None,
        v: Any = None,
        g: Any = None,
        beta: Any = None,
        *,
        A_log: Any = None,
        dt_bias: Any = None,
        state: Any = None,
        state_out: Any = None,
        layers: Any = None,
        accepted: Any = None,
        cu_seqlens: Any = None,
        state_indices: Any = None,
        state_out_indices: Any = None,
        scratch_slot: int = 0,
        enable_pdl: bool = False,
        stream: int | None = None,
    ) -> None:
        """Enqueues one commit of N requests on `stream`; does not allocate or wait.

        Of all layers of a table, or of one that is given by its arrays.  Arrays are on the
        context's device, have the problem's dtypes, and are read as they lie.  H is the problem's
        heads; rows x cols of a state is V x K (vk) or K x V (kv).

        Args:
            k, v: [B, T, heads, dim] with their own head counts; varlen: [total, heads, dim] or
                [1, total, heads, dim].  None with layers, as all up to state_out.
            g: [B, T, H]: g, alpha or a of gate_mode; None for gate_mode "none".
            beta: likewise; beta or its logit; None for beta_mode "one".
            A_log, dt_bias: [H], gate_mode "computed" only.
            state: [N or slots, H, rows, cols].
            state_out: likewise, where new states go; None: in place.
            layers: [L, 32], i64 without gaps: what table() made.
            accepted: [N]: so many tokens of each request count, from its first on; with 0 its
                state stays what it was.  None: all of them.
            cu_seqlens: [N + 1], varlen only: request n is tokens cu_seqlens[n] to
                cu_seqlens[n + 1] - 1, at most draft_tokens.
            state_indices: [N], state_location "pool": slots that requests read, in every layer.
            state_out_indices: [N]: slots that they write; None: those they read.
            scratch_slot: the slot of padding requests, padding "scratch".
            enable_pdl: the launch may overlap the kernel in front of it (sm_90 and newer).
            stream: a cudaStream_t as a number; None: the current stream of layers' or k's library
                (torch and cupy; for others the legacy default stream).

        Raises: as Decode.
        """
        _core.operator_launch(
            self._handle, stream, k, v, g, beta, A_log, dt_bias, state, state_out, layers,
            accepted, cu_seqlens, state_indices, state_out_indices, scratch_slot, enable_pdl,
        )  # fmt: skip


def _gate_mode(gate_mode: str | None, g: Any, A_log: Any) -> str:
    if gate_mode is not None:
        return gate_mode
    if g is None:
        return "none"
    return "log" if A_log is None else "computed"


def _shared_key(
    problem: type, tokens: tuple[Any, Any, Any], ranks: tuple[int, ...], axis: int, out_dtype: str,
    g: Any, beta: Any, A_log: Any, dt_bias: Any, gate_mode: str | None, beta_mode: str | None,
    use_qk_l2norm: bool, state: Any, state_out: Any, store_state: bool, state_layout: str,
    state_indices: Any, padding: str, pad_index: str,
) -> tuple[Any, ...]:  # fmt: skip
    """The problem's class and the values of _SHARED_FIELDS."""
    q, k, v = tokens
    q_heads, key_dim = heads("q", q, ranks, axis)
    k_heads, _ = heads("k", k, ranks, axis)
    v_heads, value_dim = heads("v", v, ranks, axis)
    return (
        problem,
        q_heads,
        k_heads,
        v_heads,
        key_dim,
        value_dim,
        dtype_of("q", q),
        out_dtype,
        dtype_or("g", g, "f32"),
        dtype_or("beta", beta, "f32"),
        dtype_or("A_log", A_log, "f32"),
        dtype_or("dt_bias", dt_bias, "f32"),
        state_layout,
        _gate_mode(gate_mode, g, A_log),
        ("one" if beta is None else "given") if beta_mode is None else beta_mode,
        bool(use_qk_l2norm),
        *state_values(state, state_out, store_state, state_indices, padding, pad_index),
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
    "state_layout",
    "gate_mode",
    "beta_mode",
    "use_qk_l2norm",
    *STATE_FIELDS,
)
_DECODE_FIELDS = (*_SHARED_FIELDS, "output_norm", "norm_weight_dtype")
_CHECKPOINT_MODES = get_args(Checkpoints)
_PREFILL_FIELDS = (
    *_SHARED_FIELDS,
    "cu_seqlens_dtype",
    "token_layout",
    "varlen",
    "checkpoints",
    "checkpoint_every",
    "segments",
)
MOST_TOKENS = 16  # that any verification takes of a request
_VERIFY_FIELDS = (
    *_SHARED_FIELDS,
    "cu_seqlens_dtype",
    "varlen",
    "draft_tokens",
    "stored_states",
    "from_accepted",
    "accepted_dtype",
    "tree",
    "parents_dtype",
    "round_each_token",
)


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
    z: Any = None,
    norm_weight: Any = None,
    norm_eps: float | None = None,
    out: Any = None,
    output_dtype: Dtype | None = None,
    stream: int | None = None,
    context: Context | None = None,
) -> Any:
    """One token for each of B requests.

    H is the largest of the three head counts.  Dtypes are those of the arrays: f32, bf16 or f16,
    indices i32 or i64; states also float8_e4m3fn or float8_e5m2 (docs/problems.md says what that
    loses).

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
        z: [B, H, V] or [B, 1, H, V], of q's dtype; with it out is normalised over V, weighted and
            gated: x rsqrt(mean(x^2) + norm_eps) norm_weight silu(z).
        norm_weight: [V]; with z only.
        norm_eps: None: 1e-6; with z only.
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
    check_states(state, state_out, store_state, (state_indices, state_out_indices))
    context = context_for(context, "q", q)
    out_dtype = output_dtype or (dtype_of("q", q) if out is None else dtype_of("out", out))
    key = _shared_key(
        DecodeProblem, (q, k, v), (3, 4), -2, out_dtype, g, beta, A_log, dt_bias, gate_mode,
        beta_mode, use_qk_l2norm, state, state_out, store_state, state_layout, state_indices,
        padding, pad_index,
    ) + (
        "none" if z is None else "gated_rms",
        dtype_or("norm_weight", norm_weight, "f32"),
    )  # fmt: skip
    decode: Decode = context._kept_operator(_DECODE_FIELDS, key)
    if out is None:
        *batch, _, value_dim = v.shape
        out = _arrays.empty(q, (*batch, decode.problem.heads, value_dim), out_dtype)
    return decode(
        q, k, v, g, beta, A_log=A_log, dt_bias=dt_bias, out=out, state=state, state_out=state_out,
        state_indices=state_indices, state_out_indices=state_out_indices, scratch_slot=scratch_slot,
        z=z, norm_weight=norm_weight, scale=scale, norm_eps=norm_eps, stream=stream,
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
    segments: Segments = "auto",
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
        segments: long sequences are cut into segments that run side by side: where that is expected to
            be faster ("auto"), "never", or "always" (by kernels that cut; sequences too short for
            that are one piece).
        out: None: allocated, v's shape with H heads.
        workspace: as for Prefill; None: allocated with torch and cupy.
        max_seqlen: as for Prefill.

    Returns:
        out.

    Raises: as gdn_decode().
    """
    check_states(state, state_out, store_state, (state_indices, state_out_indices))
    context = context_for(context, "q", q)
    if checkpoint_mode not in _CHECKPOINT_MODES:  # the problem calls it otherwise
        refuse("checkpoint_mode", checkpoint_mode, ", ".join(map(repr, _CHECKPOINT_MODES)))
    varlen = cu_seqlens is not None
    axis = -3 if token_layout == "bhtd" else -2
    out_dtype = output_dtype or (dtype_of("q", q) if out is None else dtype_of("out", out))
    kept = state_out if state is None else state
    key = _shared_key(
        PrefillProblem, (q, k, v), (3, 4) if varlen else (4,), axis, out_dtype, g, beta, A_log,
        dt_bias, gate_mode, beta_mode, use_qk_l2norm, state,
        checkpoints if kept is None else state_out, store_state and kept is not None, state_layout,
        state_indices, padding, pad_index,
    ) + (
        dtype_or("cu_seqlens", cu_seqlens, "i32"), token_layout, varlen, checkpoint_mode,
        checkpoint_every, segments,
    )  # fmt: skip
    prefill: Prefill = context._kept_operator(_PREFILL_FIELDS, key)
    if out is None:
        shape = list(v.shape)
        shape[axis] = prefill.problem.heads
        out = _arrays.empty(q, tuple(shape), out_dtype)
    return prefill(
        q, k, v, g, beta, A_log=A_log, dt_bias=dt_bias, out=out, state=state, state_out=state_out,
        state_indices=state_indices, state_out_indices=state_out_indices, scratch_slot=scratch_slot,
        cu_seqlens=cu_seqlens, checkpoints=checkpoints, checkpoint_cu_starts=checkpoint_cu_starts,
        workspace=workspace, max_seqlen=max_seqlen, scale=scale, stream=stream,
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
    gate_mode: GateMode | None = None,
    beta_mode: BetaMode | None = None,
    use_qk_l2norm: bool = False,
    scale: float | None = None,
    state: Any = None,
    state_out: Any = None,
    store_state: bool = True,
    stored_states: StoredStates = "last",
    round_each_token: bool = False,
    state_layout: StateLayout = "vk",
    state_indices: Any = None,
    state_out_indices: Any = None,
    padding: Padding = "none",
    pad_index: PadIndex = "negative",
    scratch_slot: int = 0,
    cu_seqlens: Any = None,
    draft_tokens: int | None = None,
    accepted: Any = None,
    parents: Any = None,
    out: Any = None,
    output_dtype: Dtype | None = None,
    stream: int | None = None,
    context: Context | None = None,
) -> Any:
    """Draft tokens: T of each of B requests, or those of N packed behind each other.

    Arguments that are not named here are those of gdn_decode().

    Args:
        q, k, v: [B, T, heads, dim]; packed [total, heads, dim] or [1, total, heads, dim].
        g, beta: [B, T, H]; packed likewise.
        state: dense with accepted: [N, S, H, rows, cols].
        state_out: dense with stored_states "every": [N, steps, H, rows, cols].
        stored_states: "last": new states are those after a request's last token; "every": after
            each of its tokens.
        round_each_token: the state is rounded to its dtype after each token, as by decode steps.
        state_indices: [N]; with accepted [N, S].
        state_out_indices: [N]; with stored_states "every" [N, steps].
        cu_seqlens: [N + 1], i32 or i64: request n is tokens cu_seqlens[n] to
            cu_seqlens[n + 1] - 1.
        draft_tokens: the most tokens of a request, 1 to 16; None: 16.
        accepted: [N], i32 or i64: request n starts from the state of step accepted[n] - 1.
        parents: [B, T], packed [total], i32 or i64: tokens are a tree, as Verify says; needs
            stored_states "every" or store_state False.
        out: None: allocated, v's shape with H heads.

    Returns:
        out.

    Raises: as gdn_decode().
    """
    check_states(state, state_out, store_state, (state_indices, state_out_indices))
    context = context_for(context, "q", q)
    varlen = cu_seqlens is not None
    out_dtype = output_dtype or (dtype_of("q", q) if out is None else dtype_of("out", out))
    key = _shared_key(
        VerifyProblem, (q, k, v), (3, 4) if varlen else (4,), -2, out_dtype, g, beta, A_log,
        dt_bias, gate_mode, beta_mode, use_qk_l2norm, state, state_out, store_state, state_layout,
        state_indices, padding, pad_index,
    ) + (
        dtype_or("cu_seqlens", cu_seqlens, "i32"), varlen,
        MOST_TOKENS if draft_tokens is None else draft_tokens, stored_states, accepted is not None,
        dtype_or("accepted", accepted, "i32"), parents is not None,
        dtype_or("parents", parents, "i32"), bool(round_each_token),
    )  # fmt: skip
    verify: Verify = context._kept_operator(_VERIFY_FIELDS, key)
    if out is None:
        *tokens, _, value_dim = v.shape
        out = _arrays.empty(q, (*tokens, verify.problem.heads, value_dim), out_dtype)
    return verify(
        q, k, v, g, beta, A_log=A_log, dt_bias=dt_bias, out=out, state=state, state_out=state_out,
        state_indices=state_indices, state_out_indices=state_out_indices, scratch_slot=scratch_slot,
        cu_seqlens=cu_seqlens, accepted=accepted, parents=parents, scale=scale, stream=stream,
    )  # fmt: skip
