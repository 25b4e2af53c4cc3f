"""FLA's functions of Gated DeltaNet, by cubinery: compat.fla has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cubinery import functional
from cubinery._errors import InvalidArgumentError
from cubinery.compat import _arguments as arguments
from cubinery.compat._fla_call import Call, refuse_unknown, runs, state_layout_flag

_CHUNK = "fla.chunk_gated_delta_rule"
_RECURRENT = "fla.fused_recurrent_gated_delta_rule"


@runs
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
) -> Call:
    """FLA's function of this name.

    q, k [B, T, H, K], v [B, T, HV, V], g and beta [B, T, HV]; with `cu_seqlens` [N + 1] B is 1 and
    T the tokens of all sequences.  `initial_state` [N, HV, K, V] in f32, bf16 or f16 is not
    written.  `kwargs`: use_gate_in_kernel and, for it alone, A_log [HV] and dt_bias [HV];
    chunk_size; transpose_state_layout.

    cu_seqlens_cpu, chunk_indices and chunk_size tell FLA how to lay out its work.  cubinery lays
    out its own: from cu_seqlens_cpu it takes the longest sequence, a hint (PrefillArgs.max_seqlen),
    the others are accepted and not read.

    `cp_context`, FLA's, with a group: the tokens are a rank's of a batch that the group shares, and
    all of it call.  B is 1, and the context has cu_seqlens.  `initial_state` and final states are of
    the rank's sequences: a first one that comes from another rank starts from that rank's state, and
    the final state of a last one that goes on elsewhere is what it is at the rank's end.  A group's
    first call with other dtypes or dims waits for all of it, as does one with so many more or fewer
    tokens that segments change (ranks.segment_tokens()).

    Raises InvalidArgumentError where FLA would raise, for keywords that FLA does not define and for
    contexts of others, UnsupportedError for inputs that require grad while grad is enabled.
    """
    arguments.require_value(_CHUNK, "chunk_size", kwargs.pop("chunk_size", 64), (16, 32, 64))
    computed, A_log, dt_bias = (
        kwargs.pop(name, None) for name in ("use_gate_in_kernel", "A_log", "dt_bias")
    )
    state_v_first = state_layout_flag(_CHUNK, state_v_first, kwargs)
    refuse_unknown(_CHUNK, kwargs)
    return _GdnCall(
        _CHUNK, q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel,
        use_beta_sigmoid_in_kernel, allow_neg_eigval, state_v_first, cu_seqlens, computed,
        A_log, dt_bias, cu_seqlens_cpu, cp_context,
    )  # fmt: skip


@runs
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
) -> Call:
    """FLA's function of this name.  Shapes as for chunk_gated_delta_rule().

    One token per sequence (T = 1 without `cu_seqlens`) runs the decode operator; everything else
    runs the prefill operator, which rounds the operands of its products to the inputs' dtype.

    Raises InvalidArgumentError where FLA would raise, for a `beta` per value ([B, T, HV, V]) and
    for unknown keywords; UnsupportedError for `gk`, `gv` and inputs that require grad while grad is
    enabled.
    """
    arguments.refuse_given(_RECURRENT, "the decay is g [B, T, HV], one per head", gk=gk, gv=gv)
    state_v_first = state_layout_flag(_RECURRENT, state_v_first, kwargs)
    refuse_unknown(_RECURRENT, kwargs)
    return _GdnCall(
        _RECURRENT, q, k, v, g, beta, scale, initial_state, output_final_state,
        use_qk_l2norm_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval, state_v_first,
        cu_seqlens, use_gate_in_kernel, A_log, dt_bias,
    )  # fmt: skip


@dataclass
class _GdnCall(Call):
    """A call of chunk_gated_delta_rule() or fused_recurrent_gated_delta_rule()."""

    def operator(self) -> Any:
        """One token of each in fused_recurrent_gated_delta_rule() is a decode."""
        if self.function == _RECURRENT and self.has_one_token_each():
            return functional.gdn_decode
        return functional.gdn_prefill

    def _decays(self) -> dict[str, Any]:
        if not self.computed_gate:
            return {"decay": "head", "gate_mode": "none" if self.g is None else "log"}
        bias = self.dt_bias
        bias = arguments.zeros(self.q, (self.v.shape[2],)) if bias is None else bias
        return {"decay": "head", "gate_mode": "computed", "A_log": self.A_log, "dt_bias": bias}

    def _check_modes(self) -> None:
        if self.computed_gate and (self.A_log is None or self.g is None):
            missing = "A_log" if self.A_log is None else "g"
            raise InvalidArgumentError(f"{self.function}: use_gate_in_kernel needs {missing}")
        super()._check_modes()
        if self.beta_sigmoid and self.beta is None:
            raise InvalidArgumentError(f"{self.function}: use_beta_sigmoid_in_kernel needs beta")


chunk_gdn = chunk_gated_delta_rule
fused_recurrent_gdn = fused_recurrent_gated_delta_rule
