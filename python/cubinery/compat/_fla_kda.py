"""FLA's functions of Kimi Delta Attention, by cubinery: compat.fla has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cubinery import _arrays, functional
from cubinery._errors import InvalidArgumentError, UnsupportedError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _engines as engines
from cubinery.compat import _prefill as prefill
from cubinery.compat._fla_call import Call, refuse_unknown, runs, state_layout_flag
from cubinery.gdn import MOST_TOKENS

_CHUNK = "fla.chunk_kda"
_RECURRENT = "fla.fused_recurrent_kda"
_RECURRENT_FWD = "fla.fused_recurrent_kda_fwd"


@runs
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
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    disable_recompute: bool = False,
    return_intermediate_states: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Any = None,
    cu_seqlens_cpu: Any = None,
    cp_context: Any = None,
    use_graph: bool = False,
    max_num_seqs: int | None = None,
    **kwargs: Any,
) -> Call:
    """FLA's function of this name: Kimi Delta Attention of whole sequences.

    q, k [B, T, H, K], v [B, T, HV, V], g [B, T, HV, K], beta [B, T, HV]; with `cu_seqlens` [N + 1] B
    is 1 and T the tokens of all sequences.  g is the decay's logarithm; with use_gate_in_kernel it
    is made of g + dt_bias: above `lower_bound`, or without one by softplus, which needs `A_log`.
    `kwargs`: A_log [HV] and dt_bias [HV, K], flat or None, for use_gate_in_kernel alone;
    chunk_size; transpose_state_layout.  `initial_state` [N, HV, K, V] in f32 is not written.

    With `return_intermediate_states` returns (o, final states, h): the states before each
    chunk_size tokens of each sequence, [B, NT, HV, K, V] in q's dtype, of packed sequences behind
    each other; these may have further rows at the end, which are not written.

    `safe_gate` says that gates are bounded: with use_gate_in_kernel by `lower_bound`, from -5 on, as
    FLA asks; else the caller's, about which cubinery need not know.  disable_recompute, use_graph
    and max_num_seqs tell FLA what to keep and how to lay out its work; they are not read, nor is
    cu_seqlens_cpu but for the longest sequence, a hint (PrefillArgs.max_seqlen).

    `cp_context`: as of chunk_gated_delta_rule(); intermediate states count from the rank's first
    token of each sequence.

    Raises InvalidArgumentError where FLA would raise, for a `dt_bias` of another size, for keywords
    that FLA does not define and for contexts of others; UnsupportedError for a `lower_bound` below
    -5 and inputs that require grad while grad is enabled.
    """
    chunk_size = kwargs.pop("chunk_size", 64)
    arguments.require_value(_CHUNK, "chunk_size", chunk_size, (32, 64))
    A_log, dt_bias = (kwargs.pop(name, None) for name in ("A_log", "dt_bias"))
    state_v_first = state_layout_flag(_CHUNK, state_v_first, kwargs)
    refuse_unknown(_CHUNK, kwargs)
    _check_safe_gate(safe_gate, use_gate_in_kernel, lower_bound)
    kept = arguments.flag(_CHUNK, "return_intermediate_states", return_intermediate_states)
    if initial_state is not None and _arrays.dtype_name(initial_state) != "f32":
        raise InvalidArgumentError(
            f"{_CHUNK}: initial_state is {_arrays.dtype_name(initial_state)}; expected f32"
        )
    return _KdaCall(
        _CHUNK, q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel,
        use_beta_sigmoid_in_kernel, allow_neg_eigval, state_v_first, cu_seqlens, use_gate_in_kernel,
        A_log, dt_bias, cu_seqlens_cpu, cp_context, lower_bound=lower_bound, kept_every=chunk_size * kept,
    )  # fmt: skip


def _check_safe_gate(safe_gate: Any, computed_gate: Any, lower_bound: float | None) -> None:
    """As FLA: a gate that the kernel makes is bounded by `lower_bound` alone."""
    is_safe = arguments.flag(_CHUNK, "safe_gate", safe_gate)
    if is_safe and arguments.flag(_CHUNK, "use_gate_in_kernel", computed_gate):
        if lower_bound is None:
            raise InvalidArgumentError(
                f"{_CHUNK}: safe_gate needs lower_bound with use_gate_in_kernel"
            )


@runs
def fused_recurrent_kda(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    A_log: Any = None,
    dt_bias: Any = None,
    scale: float | None = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: Any = None,
    **kwargs: Any,
) -> Call:
    """FLA's function of this name: Kimi Delta Attention, one token after the other.

    q, k [B, T, H, K], v [B, T, HV, V], g [B, T, HV, K], beta [B, T, HV]; with `cu_seqlens` [N + 1] B
    is 1 and T the tokens of all sequences.  g is the decay's logarithm; with use_gate_in_kernel it
    is made of g + dt_bias, `dt_bias` [HV, K], flat or None: above `lower_bound`, or without one by
    softplus, which needs `A_log` [HV].  `initial_state` [N, HV, K, V] in f32, bf16 or f16 is not
    written.

    One token per sequence (T = 1 without `cu_seqlens`) runs the decode operator; up to 16 tokens, of
    packed sequences in all, run the verification of draft tokens; everything else runs the prefill
    operator, which rounds the operands of its products to the inputs' dtype.

    Raises InvalidArgumentError where FLA would raise, for a `beta` per value ([B, T, HV, V]), a
    `dt_bias` of another size and unknown keywords; UnsupportedError for a `lower_bound` below -5 and
    inputs that require grad while grad is enabled.
    """
    state_v_first = state_layout_flag(_RECURRENT, state_v_first, kwargs)
    refuse_unknown(_RECURRENT, kwargs)
    return _KdaCall(
        _RECURRENT, q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel,
        use_beta_sigmoid_in_kernel, allow_neg_eigval, state_v_first, cu_seqlens, use_gate_in_kernel,
        A_log, dt_bias, lower_bound=lower_bound,
    )  # fmt: skip


@runs
def fused_recurrent_kda_fwd(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    A_log: Any = None,
    dt_bias: Any = None,
    initial_state: Any = None,
    scale: float | None = None,
    output_final_state: bool = False,
    inplace_final_state: bool = True,
    state_v_first: bool = False,
    cu_seqlens: Any = None,
    ssm_state_indices: Any = None,
    num_accepted_tokens: Any = None,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    out: Any = None,
    **kwargs: Any,
) -> Call:
    """FLA's function of this name, inside of fused_recurrent_kda(): the same, also on a pool.

    With `inplace_final_state` the final states are written over `initial_state`, which is required;
    without, they are a new array if `output_final_state`.  `out`, of v's shape, is written.

    With `ssm_state_indices` `initial_state` is a pool [slots, HV, K, V], updated in place, of which
    no slot is padding.  [N]: one token per request, [1, N, ..] with `cu_seqlens` or [N, 1, ..].
    [N, S]: up to S tokens per request, S <= 16; request n starts from the slot
    [n, num_accepted_tokens[n] - 1] (a count of 0 is taken as 1; without `num_accepted_tokens` [N]
    from [n, 0]), and the state after its token t goes to the slot [n, t].
    """
    refuse_unknown(_RECURRENT_FWD, kwargs)
    in_place = arguments.flag(_RECURRENT_FWD, "inplace_final_state", inplace_final_state)
    state_v_first = arguments.flag(_RECURRENT_FWD, "state_v_first", state_v_first)
    if in_place and initial_state is None:
        raise InvalidArgumentError(f"{_RECURRENT_FWD}: inplace_final_state needs initial_state")
    return _KdaCall(
        _RECURRENT_FWD, q, k, v, g, beta, scale, initial_state, in_place or output_final_state,
        use_qk_l2norm_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval, state_v_first,
        cu_seqlens, use_gate_in_kernel, A_log, dt_bias, lower_bound=lower_bound, out=out,
        over_initial=in_place, indices=ssm_state_indices, accepted=num_accepted_tokens,
    )  # fmt: skip


@dataclass
class _KdaCall(Call):
    """A call of one of these functions."""

    lower_bound: float | None = None
    kept_every: int = 0  # tokens from one intermediate state to the next; 0: there are none
    out: Any = None
    over_initial: bool = False  # final states are written over the initial ones
    indices: Any = None  # of a pool
    accepted: Any = None

    def __post_init__(self) -> None:
        for name in ("g", "beta"):
            if getattr(self, name) is None:
                raise InvalidArgumentError(f"{self.function}: {name} is required")
        if self.accepted is not None and self.indices is None:
            raise InvalidArgumentError(
                f"{self.function}: num_accepted_tokens needs ssm_state_indices"
            )
        super().__post_init__()

    def state_shape(self) -> tuple[int, ...]:
        shape = super().state_shape()
        if self.indices is None or self.initial_state is None:
            return shape
        return (self.initial_state.shape[0], *shape[1:])

    def operator(self) -> Any:
        """The host does not see how many tokens each of packed sequences has."""
        if self.function == _CHUNK or self.q.shape[1] > MOST_TOKENS:
            return functional.gdn_prefill
        return functional.gdn_decode if self.has_one_token_each() else functional.gdn_verify

    def require_kernels(self) -> None:
        if self.indices is not None:
            raise UnsupportedError(f"{self.function}: ssm_state_indices: call it directly")
        super().require_kernels()

    def run(self, in_place: bool = False) -> tuple[Any, ...]:
        if self.indices is not None:
            return engines.recurrent(
                self.function, self.q, self.k, self.v, {"g": self.g, "beta": self.beta}, self.scale,
                self.initial_state, self.over_initial, self.cu_seqlens, self.indices, self.accepted,
                None, out=self.out, beta_mode=self._beta_mode(), use_qk_l2norm=self.use_qk_l2norm,
                state_layout="vk" if self.state_v_first else "kv", **self._decays(),
            )  # fmt: skip
        if self.kept_every == 0:
            return super().run(in_place)
        final, states = self._states(in_place)
        h, states = prefill.chunk_states(
            self.q, self.state_shape()[1:], self.cu_seqlens, states, self.kept_every
        )
        return self._launch(states), final, arguments.of_dtype(h, self.q)

    def _states(self, in_place: bool) -> tuple[Any, dict[str, Any]]:
        if self.over_initial:
            return self.initial_state, {"state": self.initial_state}
        return super()._states(in_place)

    def _decays(self) -> dict[str, Any]:
        if not self.computed_gate:
            return {"decay": "channel", "gate_mode": "log"}
        heads, key_dim = self.g.shape[2:]
        return arguments.channel_decay(
            self.function, self.A_log, self.dt_bias, self.lower_bound, heads, key_dim
        )

    def _tokens(self) -> dict[str, Any]:
        return super()._tokens() | ({} if self.out is None else {"out": self.out})

    def _check_shapes(self) -> None:
        super()._check_shapes()
        heads = (*self.v.shape[:2], self.v.shape[2])
        arguments.require_shape(self.function, "g", self.g, (*heads, self.q.shape[3]))
        arguments.require_shape(self.function, "beta", self.beta, heads)
        if self.out is not None:
            arguments.require_shape(self.function, "out", self.out, tuple(self.v.shape))
        self.g = arguments.unit_rows(self.g)

    def _check_modes(self) -> None:
        super()._check_modes()
        self._decays()  # raises for parameters that do not fit
