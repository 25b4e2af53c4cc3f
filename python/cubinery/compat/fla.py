"""flash-linear-attention's gated delta rule and causal convolution (FLA 0.5 and 0.6), and its Kimi
Delta Attention for one token or few (0.6), run by cubinery.

The functions take FLA's arguments and return what FLA returns: `o` in the dtype of the inputs and,
with `output_final_state`, the final states in f32, [N, HV, K, V] or [N, HV, V, K] with
`state_v_first`.  `register()` puts cubinery into FLA's own dispatch, so that code which imports
chunk_gated_delta_rule or fused_recurrent_kda from FLA runs it unchanged.

Inference only: there is no backward pass.  Importing this module imports neither torch nor FLA.
"""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec

from cubinery import _arrays, functional
from cubinery._errors import Error, InvalidArgumentError, UnsupportedError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _convolution as convolution
from cubinery.compat import _engines as engines
from cubinery.gdn import MOST_TOKENS

_CHUNK = "fla.chunk_gated_delta_rule"
_RECURRENT = "fla.fused_recurrent_gated_delta_rule"
_KDA = "fla.fused_recurrent_kda"
_KDA_FWD = "fla.fused_recurrent_kda_fwd"
_CONV = "fla.causal_conv1d"
_CONV_UPDATE = "fla.causal_conv1d_update"
# Below FlashQLA's 3 and FLA's default of 5: the lower one is asked first.
_PRIORITY = 1
_P = ParamSpec("_P")


def _runs(check: Callable[_P, _Call]) -> Callable[_P, tuple[Any, Any]]:
    """A function of FLA's, given what checks its arguments: the call is run."""

    @functools.wraps(check)
    def function(*args: _P.args, **kwargs: _P.kwargs) -> tuple[Any, Any]:
        return check(*args, **kwargs).run()

    function.__annotations__ = check.__annotations__ | {"return": "tuple[Any, Any]"}
    return function


def checked(function: Callable[..., Any], *args: Any, **kwargs: Any) -> _Call:
    """The call of a function of this module that _runs() has made, before it runs.

    Raises as that does.
    """
    call: _Call = inspect.unwrap(function)(*args, **kwargs)
    return call


@_runs
def chunk_gated_delta_rule(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    scale: float | None = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Any = None,
    cu_seqlens_cpu: Any = None,
    *,
    chunk_indices: Any = None,
    cp_context: Any = None,
    **kwargs: Any,
) -> _Call:
    """FLA's function of this name.

    q, k [B, T, H, K], v [B, T, HV, V], g and beta [B, T, HV]; with `cu_seqlens` [N + 1] B is 1 and
    T the tokens of all sequences.  `initial_state` [N, HV, K, V] in f32, bf16 or f16 is not
    written.  `kwargs`: use_gate_in_kernel and, for it alone, A_log [HV] and dt_bias [HV];
    chunk_size; transpose_state_layout.

    cu_seqlens_cpu, chunk_indices and chunk_size tell FLA how to lay out its work.  cubinery lays
    out its own: from cu_seqlens_cpu it takes the longest sequence, a hint (PrefillArgs.max_seqlen),
    the others are accepted and not read.

    Raises InvalidArgumentError where FLA would raise and for keywords that FLA does not define,
    UnsupportedError for `cp_context` and for inputs that require grad while grad is enabled.
    """
    arguments.refuse_given(
        _CHUNK, "one device computes all of a sequence: pass cu_seqlens", cp_context=cp_context
    )
    arguments.require_value(_CHUNK, "chunk_size", kwargs.pop("chunk_size", 64), (16, 32, 64))
    computed, A_log, dt_bias = (
        kwargs.pop(name, None) for name in ("use_gate_in_kernel", "A_log", "dt_bias")
    )
    state_v_first = _state_layout_flag(_CHUNK, state_v_first, kwargs)
    _refuse_unknown(_CHUNK, kwargs)
    return _Call(
        _CHUNK, q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel,
        use_beta_sigmoid_in_kernel, allow_neg_eigval, state_v_first, cu_seqlens, computed,
        A_log, dt_bias, cu_seqlens_cpu,
    )  # fmt: skip


@_runs
def fused_recurrent_gated_delta_rule(
    q: Any,
    k: Any,
    v: Any,
    g: Any = None,
    gk: Any = None,
    gv: Any = None,
    beta: Any = None,
    scale: float | None = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Any = None,
    dt_bias: Any = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Any = None,
    **kwargs: Any,
) -> _Call:
    """FLA's function of this name.  Shapes as for chunk_gated_delta_rule().

    One token per sequence (T = 1 without `cu_seqlens`) runs the decode operator; everything else
    runs the prefill operator, which rounds the operands of its products to the inputs' dtype.

    Raises InvalidArgumentError where FLA would raise, for a `beta` per value ([B, T, HV, V]) and
    for unknown keywords; UnsupportedError for `gk`, `gv` and inputs that require grad while grad is
    enabled.
    """
    arguments.refuse_given(_RECURRENT, "the decay is g [B, T, HV], one per head", gk=gk, gv=gv)
    state_v_first = _state_layout_flag(_RECURRENT, state_v_first, kwargs)
    _refuse_unknown(_RECURRENT, kwargs)
    return _Call(
        _RECURRENT, q, k, v, g, beta, scale, initial_state, output_final_state,
        use_qk_l2norm_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval, state_v_first,
        cu_seqlens, use_gate_in_kernel, A_log, dt_bias,
    )  # fmt: skip


@_runs
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
) -> _Call:
    """FLA's function of this name: Kimi Delta Attention, of sequences of up to 16 tokens.

    q, k [B, T, H, K], v [B, T, HV, V], g [B, T, HV, K], beta [B, T, HV]; with `cu_seqlens` [N + 1] B
    is 1 and T the tokens of all sequences.  g is the decay's logarithm; with use_gate_in_kernel it
    is made of g + dt_bias, `dt_bias` [HV, K], flat or None: above `lower_bound`, or without one by
    softplus, which needs `A_log` [HV].  `initial_state` [N, HV, K, V] in f32, bf16 or f16 is not
    written.

    One token per sequence (T = 1 without `cu_seqlens`) runs the decode operator; everything else
    runs the verification of draft tokens.  The host does not see how many tokens packed sequences
    have: 16 in all at most, or no more than there are sequences, of which one with more than 16
    gets NaN.

    Raises UnsupportedError for longer sequences (Kimi Delta Attention's prefill) and for inputs
    that require grad while grad is enabled; InvalidArgumentError where FLA would raise, for a
    `beta` per value ([B, T, HV, V]), a `dt_bias` of another size and unknown keywords.
    """
    state_v_first = _state_layout_flag(_KDA, state_v_first, kwargs)
    _refuse_unknown(_KDA, kwargs)
    return _KdaCall(
        _KDA, q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel,
        use_beta_sigmoid_in_kernel, allow_neg_eigval, state_v_first, cu_seqlens, use_gate_in_kernel,
        A_log, dt_bias, lower_bound=lower_bound,
    )  # fmt: skip


@_runs
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
) -> _Call:
    """FLA's function of this name, inside of fused_recurrent_kda(): the same, also on a pool.

    With `inplace_final_state` the final states are written over `initial_state`, which is required;
    without, they are a new array if `output_final_state`.  `out`, of v's shape, is written.

    With `ssm_state_indices` `initial_state` is a pool [slots, HV, K, V], updated in place, of which
    no slot is padding.  [N]: one token per request, [1, N, ..] with `cu_seqlens` or [N, 1, ..].
    [N, S]: up to S tokens per request, S <= 16; request n starts from the slot
    [n, num_accepted_tokens[n] - 1] (a count of 0 is taken as 1; without `num_accepted_tokens` [N]
    from [n, 0]), and the state after its token t goes to the slot [n, t].
    """
    _refuse_unknown(_KDA_FWD, kwargs)
    in_place = arguments.flag(_KDA_FWD, "inplace_final_state", inplace_final_state)
    state_v_first = arguments.flag(_KDA_FWD, "state_v_first", state_v_first)
    if in_place and initial_state is None:
        raise InvalidArgumentError(f"{_KDA_FWD}: inplace_final_state needs initial_state")
    return _KdaCall(
        _KDA_FWD, q, k, v, g, beta, scale, initial_state, in_place or output_final_state,
        use_qk_l2norm_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval, state_v_first,
        cu_seqlens, use_gate_in_kernel, A_log, dt_bias, lower_bound=lower_bound, out=out,
        over_initial=in_place, indices=ssm_state_indices, accepted=num_accepted_tokens,
    )  # fmt: skip


chunk_gdn = chunk_gated_delta_rule
fused_recurrent_gdn = fused_recurrent_gated_delta_rule


def causal_conv1d(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    residual: Any = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    activation: str | None = None,
    backend: str | None = "triton",
    cu_seqlens: Any = None,
    cu_seqlens_cpu: Any = None,
    chunk_indices: Any = None,
    cp_context: Any = None,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """FLA's function of this name.

    x [B, T, D], or with D in several dimensions; `weight` [D, W], `bias` [D]; with `cu_seqlens`
    [N + 1] B is 1 and T the tokens of all sequences.  `initial_state` [N, D, W] in f32, bf16 or f16
    is not written.  `residual`, of x's shape, is added to y.  Returns (y, the final states [N, D, W]
    in x's dtype or None).

    `backend`, cu_seqlens_cpu and chunk_indices tell FLA how to do its work.  cubinery has its own
    way: they are accepted and not read.

    Raises InvalidArgumentError for shapes that do not fit and for unknown keywords, UnsupportedError
    for `cp_context`, `seq_idx` and inputs that require grad while grad is enabled.
    """
    arguments.refuse_given(
        _CONV, "one device computes all of a sequence: pass cu_seqlens", cp_context=cp_context
    )
    arguments.refuse_given(_CONV, "pass cu_seqlens", seq_idx=kwargs.pop("seq_idx", None))
    _refuse_unknown(_CONV, kwargs)
    arguments.require_value(_CONV, "backend", backend, ("triton", "cuda", "mix"))
    rows = _channel_rows(_CONV, x, weight, residual)
    arguments.refuse_autograd(
        _CONV, x=x, weight=weight, bias=bias, residual=residual, initial_state=initial_state
    )
    arguments.require_rank(_CONV, "x", rows, "[B, T, D]")
    if cu_seqlens is not None and rows.shape[0] != 1:
        raise InvalidArgumentError(
            f"{_CONV}: x has a batch of {rows.shape[0]}; expected 1 with cu_seqlens, the sequences "
            "behind each other"
        )
    sequences = rows.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    shape = (sequences, *weight.shape)
    arguments.require_initial_state(_CONV, initial_state, shape)
    wanted = arguments.flag(_CONV, "output_final_state", output_final_state)
    final, states = _final_windows(x, initial_state, shape, wanted)
    y = functional.gdn_conv(
        rows, weight, bias, activation=convolution.activation_of(_CONV, activation),
        cu_seqlens=cu_seqlens, **states,
    ).reshape(x.shape)  # fmt: skip
    if residual is not None:
        y += residual
    return y, arguments.of_dtype(final, x)


def causal_conv1d_update(
    x: Any,
    cache: Any,
    residual: Any = None,
    weight: Any = None,
    bias: Any = None,
    activation: str | None = None,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """FLA's function of this name: one token of N sequences.

    x [N, D], [1, N, D] or [N, 1, D]; `cache` [N, D, W], updated in place; `residual`, of x's shape,
    is added to y.  Returns (y, cache).

    Raises InvalidArgumentError without `weight` or `cache` and for shapes that do not fit,
    UnsupportedError for inputs that require grad while grad is enabled.
    """
    _refuse_unknown(_CONV_UPDATE, kwargs)
    rows = _channel_rows(_CONV_UPDATE, x, weight, residual)
    arguments.refuse_autograd(
        _CONV_UPDATE, x=x, weight=weight, bias=bias, residual=residual, cache=cache
    )
    if cache is None:
        raise InvalidArgumentError(f"{_CONV_UPDATE}: cache is required")
    if len(rows.shape) == 3 and rows.shape[0] == 1:
        rows = rows[0]
    elif len(rows.shape) == 3 and rows.shape[1] == 1:
        rows = rows[:, 0]
    if len(rows.shape) != 2:
        raise InvalidArgumentError(
            f"{_CONV_UPDATE}: x has shape {list(x.shape)}; expected [N, D], [1, N, D] or [N, 1, D]"
        )
    arguments.require_shape(_CONV_UPDATE, "cache", cache, (rows.shape[0], *weight.shape))
    arguments.require_state_dtype(_CONV_UPDATE, "cache", cache)
    y = convolution.run(
        rows, weight, bias, activation=convolution.activation_of(_CONV_UPDATE, activation),
        state=cache,
    ).reshape(x.shape)  # fmt: skip
    if residual is not None:
        y += residual
    return y, cache


def _channel_rows(function: str, x: Any, weight: Any, residual: Any) -> Any:
    """x with its channels in one dimension: FLA lets heads have their own."""
    if weight is None:
        raise InvalidArgumentError(f"{function}: weight is required")
    arguments.require_rank(function, "weight", weight, "[D, W]")
    if residual is not None:
        arguments.require_shape(function, "residual", residual, tuple(x.shape))
    if len(x.shape) > 3:
        return x.reshape(*x.shape[:2], -1)
    return x


def _final_windows(
    x: Any, initial_state: Any, shape: tuple[int, ...], wanted: bool
) -> tuple[Any, dict[str, Any]]:
    """Final states of a convolution (None unless `wanted`), in x's dtype or in f32, and the options
    of functional.gdn_conv that read `initial_state`, which is not written, and fill them."""
    if not wanted:
        return None, {"state": initial_state, "store_state": False}
    dtype = _arrays.dtype_of("x", x)
    if initial_state is None or _arrays.dtype_name(initial_state) == dtype:
        final = _arrays.empty(x, shape, dtype)
        return final, {"state": initial_state, "state_out": final}
    # f32 holds what either of the two does.
    final = _arrays.empty(x, shape, "f32")
    final[...] = initial_state
    return final, {"state": final}


def _state_layout_flag(function: str, state_v_first: bool, kwargs: dict[str, Any]) -> bool:
    """Takes FLA's old name of state_v_first out of `kwargs`."""
    state_v_first = arguments.flag(function, "state_v_first", state_v_first)
    if "transpose_state_layout" not in kwargs:
        return state_v_first
    if state_v_first:
        raise InvalidArgumentError(
            f"{function}: transpose_state_layout is the old name of state_v_first; pass only one"
        )
    warnings.warn(
        "`transpose_state_layout` is deprecated and renamed to `state_v_first`.",
        DeprecationWarning,
        stacklevel=4,
    )
    renamed = kwargs.pop("transpose_state_layout")
    return arguments.flag(function, "transpose_state_layout", renamed)


def _refuse_unknown(function: str, kwargs: dict[str, Any]) -> None:
    if kwargs.get("head_first") is not None:
        raise InvalidArgumentError(
            f"{function}: head_first has been removed; inputs are [B, T, H, ...]"
        )
    arguments.refuse_unknown(function, kwargs)


# The flags of a call, by their field, under FLA's names.
_FLAGS = {
    "output_final_state": "output_final_state",
    "use_qk_l2norm": "use_qk_l2norm_in_kernel",
    "beta_sigmoid": "use_beta_sigmoid_in_kernel",
    "beta_doubled": "allow_neg_eigval",
    "computed_gate": "use_gate_in_kernel",
}


@dataclass
class _Call:
    """A call of either function.  Making one checks it; nothing is allocated before run()."""

    function: str
    q: Any
    k: Any
    v: Any
    g: Any
    beta: Any
    scale: float | None
    initial_state: Any
    output_final_state: bool
    use_qk_l2norm: bool
    beta_sigmoid: bool
    beta_doubled: bool
    state_v_first: bool
    cu_seqlens: Any
    computed_gate: bool
    A_log: Any
    dt_bias: Any
    cu_seqlens_cpu: Any = None

    def __post_init__(self) -> None:
        for field, name in _FLAGS.items():
            setattr(self, field, arguments.flag(self.function, name, getattr(self, field)))
        if not self.computed_gate:
            self.A_log = self.dt_bias = None  # FLA reads them for a computed gate alone
        self._check_shapes()
        self._check_modes()
        arguments.refuse_autograd(self.function, **self.floats(), initial_state=self.initial_state)
        arguments.require_initial_state(self.function, self.initial_state, self.state_shape())

    def floats(self) -> dict[str, Any]:
        """The arrays beside the states, by name."""
        names = ("q", "k", "v", "g", "beta", "A_log", "dt_bias")
        return {name: getattr(self, name) for name in names}

    def state_shape(self) -> tuple[int, ...]:
        sequences = self.q.shape[0] if self.cu_seqlens is None else self.cu_seqlens.shape[0] - 1
        matrix = (self.q.shape[-1], self.v.shape[-1])
        return (sequences, self.v.shape[2], *(matrix[::-1] if self.state_v_first else matrix))

    def operator(self) -> Any:
        """One token of each in fused_recurrent_gated_delta_rule() is a decode."""
        one_token_each = self.cu_seqlens is None and self.q.shape[1] == 1
        if one_token_each and self.function == _RECURRENT:
            return functional.gdn_decode
        return functional.gdn_prefill

    def require_kernels(self) -> None:
        """Raises InvalidArgumentError or UnsupportedError for arrays that no kernel takes."""
        arrays = {name: array for name, array in self.floats().items() if array is not None}
        for name, array in arrays.items():
            arguments.require_value_dtype(self.function, name, array)
        if not self.q.dtype == self.k.dtype == self.v.dtype:
            raise UnsupportedError(f"{self.function}: q, k and v have different dtypes")
        for name, dim in {"K": self.q.shape[-1], "V": self.v.shape[-1]}.items():
            if dim % 16 != 0 or not 16 <= dim <= 256:
                raise UnsupportedError(
                    f"{self.function}: {name} is {dim}; supported: multiples of 16 from 16 to 256"
                )
        arguments.require_gpu(self.function, "q", self.q)

    def run(self, in_place: bool = False) -> tuple[Any, Any]:
        """Allocates what FLA allocates, and calls the operator.

        `in_place`: final states may be written over initial ones.
        """
        final, states = self._states(in_place)
        out = self.operator()(
            *(arguments.unit_rows(array) for array in (self.q, self.k, self.v)), self.g, self.beta,
            beta_mode=self._beta_mode(), use_qk_l2norm=self.use_qk_l2norm, scale=self.scale,
            state_layout="vk" if self.state_v_first else "kv", **states, **self._decays(),
            **self._tokens(),
        )  # fmt: skip
        return out, final

    def _states(self, in_place: bool) -> tuple[Any, dict[str, Any]]:
        """The final states, and the operator's options of states."""
        return arguments.final_states(
            self.q, self.initial_state, self.state_shape(), self.output_final_state, in_place
        )

    def _decays(self) -> dict[str, Any]:
        """The operator's options of decays."""
        if not self.computed_gate:
            return {"decay": "head", "gate_mode": "none" if self.g is None else "log"}
        bias = self.dt_bias
        bias = arguments.zeros(self.q, (self.v.shape[2],)) if bias is None else bias
        return {"decay": "head", "gate_mode": "computed", "A_log": self.A_log, "dt_bias": bias}

    def _tokens(self) -> dict[str, Any]:
        """The operator's options of packed sequences."""
        if self.operator() is not functional.gdn_prefill or self.cu_seqlens is None:
            return {}
        longest = arguments.longest_sequence(self.cu_seqlens_cpu, self.q.shape[1])
        return {"cu_seqlens": self.cu_seqlens, "max_seqlen": longest}

    def _beta_mode(self) -> str:
        if self.beta is None:
            return "one"
        if not self.beta_sigmoid:
            return "given"
        return "doubled_logit" if self.beta_doubled else "logit"

    def _check_shapes(self) -> None:
        arguments.require_rank(self.function, "q", self.q, "[B, T, H, K]")
        arguments.require_shape(self.function, "k", self.k, tuple(self.q.shape))
        arguments.require_rank(self.function, "v", self.v, "[B, T, HV, V]")
        heads, batch = self.q.shape[2], self.q.shape[0]
        if self.v.shape[2] % heads != 0:
            raise InvalidArgumentError(
                f"{self.function}: v has {self.v.shape[2]} heads; expected a multiple of the "
                f"{heads} of q and k"
            )
        if self.beta is not None:
            arguments.require_rank(self.function, "beta", self.beta, "[B, T, HV]")
        if self.cu_seqlens is not None and batch != 1:
            raise InvalidArgumentError(
                f"{self.function}: q has a batch of {batch}; expected 1 with cu_seqlens, the "
                "sequences behind each other"
            )

    def _check_modes(self) -> None:
        needs = None
        if self.computed_gate and (self.A_log is None or self.g is None):
            needs = f"use_gate_in_kernel needs {'A_log' if self.A_log is None else 'g'}"
        elif self.beta_doubled and not self.beta_sigmoid:
            needs = "allow_neg_eigval needs use_beta_sigmoid_in_kernel"
        elif self.beta_sigmoid and self.beta is None:
            needs = "use_beta_sigmoid_in_kernel needs beta"
        if needs is not None:
            raise InvalidArgumentError(f"{self.function}: {needs}")


@dataclass
class _KdaCall(_Call):
    """A call of fused_recurrent_kda() or fused_recurrent_kda_fwd()."""

    lower_bound: float | None = None
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
        one_token_each = self.cu_seqlens is None and self.q.shape[1] == 1
        return functional.gdn_decode if one_token_each else functional.gdn_verify

    def require_kernels(self) -> None:
        if self.indices is not None:
            raise UnsupportedError(f"{self.function}: ssm_state_indices: call it directly")
        super().require_kernels()

    def run(self, in_place: bool = False) -> tuple[Any, Any]:
        if self.indices is None:
            return super().run(in_place)
        return engines.recurrent(
            self.function, self.q, self.k, self.v, {"g": self.g, "beta": self.beta}, self.scale,
            self.initial_state, self.over_initial, self.cu_seqlens, self.indices, self.accepted,
            None, out=self.out, beta_mode=self._beta_mode(), use_qk_l2norm=self.use_qk_l2norm,
            state_layout="vk" if self.state_v_first else "kv", **self._decays(),
        )  # fmt: skip

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
        options = {} if self.out is None else {"out": self.out}
        return options if self.cu_seqlens is None else options | {"cu_seqlens": self.cu_seqlens}

    def _check_shapes(self) -> None:
        super()._check_shapes()
        heads = (*self.v.shape[:2], self.v.shape[2])
        arguments.require_shape(self.function, "g", self.g, (*heads, self.q.shape[3]))
        arguments.require_shape(self.function, "beta", self.beta, heads)
        if self.out is not None:
            arguments.require_shape(self.function, "out", self.out, tuple(self.v.shape))
        self.g = arguments.unit_rows(self.g)
        if self.indices is None:
            self._require_few_tokens()

    def _require_few_tokens(self) -> None:
        tokens = self.q.shape[1]
        if tokens <= MOST_TOKENS:
            return
        if self.cu_seqlens is None:
            raise UnsupportedError(
                f"{self.function}: sequences of {tokens} tokens; supported: 1 to {MOST_TOKENS} "
                "(longer ones are a prefill, which cubinery.gdn_prefill is for)"
            )
        sequences = self.cu_seqlens.shape[0] - 1
        if tokens > sequences:
            raise UnsupportedError(
                f"{self.function}: {sequences} packed sequences of {tokens} tokens; supported: "
                f"{MOST_TOKENS} tokens in all, or one of each (longer ones are a prefill, which "
                "cubinery.gdn_prefill is for)"
            )

    def _check_modes(self) -> None:
        if self.beta_doubled and not self.beta_sigmoid:
            raise InvalidArgumentError(
                f"{self.function}: allow_neg_eigval needs use_beta_sigmoid_in_kernel"
            )
        self._decays()  # raises for parameters that do not fit


# FLA's registry.  A backend, once in it, cannot be taken out; unregister() turns ours off.
_enabled = False
_backend: Any = None


def register() -> None:
    """Makes FLA's chunk_gated_delta_rule, and from 0.6 on its fused_recurrent_kda, run cubinery
    wherever that can honour the call.

    Every other call (training, cp_context, CPU tensors, Kimi Delta Attention of more than 16 tokens,
    ...) goes on to FLA's other backends; FLA logs the reason at level INFO.  FLA_CUBINERY=0 in the
    environment turns it off.  Its fused_recurrent_gated_delta_rule knows no backends: import this
    module's in its place.

    Raises ImportError without FLA, UnsupportedError when FLA's dispatch is off
    (FLA_DISABLE_BACKEND_DISPATCH=1).
    """
    global _backend, _enabled
    if _backend is None:
        _backend = _register_backend()
    _enabled = True


def unregister() -> None:
    """Undoes register().  Does nothing without it."""
    global _enabled
    _enabled = False


def _register_backend() -> Any:
    try:
        from fla import backends as dispatch  # 0.6
    except ImportError:
        from fla.ops import backends as dispatch  # 0.5
    if os.environ.get("FLA_DISABLE_BACKEND_DISPATCH") == "1":
        raise UnsupportedError(
            "fla.register: FLA_DISABLE_BACKEND_DISPATCH=1 turns FLA's backends off; unset it "
            "before FLA is imported"
        )
    backend_class = _backend_class(dispatch.BaseBackend)
    if hasattr(dispatch, "register"):
        for operation in ("gated_delta_rule", "kda"):
            dispatch.register(operation)(backend_class)
    else:
        from fla.ops.gated_delta_rule.backends import gdr_registry

        gdr_registry.register(backend_class())
    return backend_class


def _backend_class(base: type) -> type:
    """A backend as FLA's dispatch asks for: the function under its name, and its verifier."""

    class CubineryBackend(base):  # type: ignore[misc]  # known when FLA is imported
        """Gated DeltaNet prefill, and few tokens of Kimi Delta Attention, by cubinery."""

        backend_type = "cubinery"
        env_var = "FLA_CUBINERY"
        priority = _PRIORITY

        @classmethod
        def is_enabled(cls) -> bool:
            return _enabled and os.environ.get(cls.env_var, "1") != "0"

        # FLA passes on what its caller passed.
        def chunk_gated_delta_rule_verifier(
            self, *args: Any, **kwargs: Any
        ) -> tuple[bool, str | None]:
            return _verify(chunk_gated_delta_rule, *args, **kwargs)

        def chunk_gated_delta_rule(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            return chunk_gated_delta_rule(*args, **kwargs)

        def fused_recurrent_kda_fwd_verifier(
            self, *args: Any, **kwargs: Any
        ) -> tuple[bool, str | None]:
            return _verify(fused_recurrent_kda_fwd, *args, **kwargs)

        def fused_recurrent_kda_fwd(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            return fused_recurrent_kda_fwd(*args, **kwargs)

    return CubineryBackend


def _verify(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[bool, str | None]:
    """Whether the function can honour the call, and if not why."""
    try:
        checked(function, *args, **kwargs).require_kernels()
    except (Error, TypeError) as refusal:
        return False, str(refusal)
    return True, None
