"""tokenspeed's Gated DeltaNet functions (tokenspeed_kernel.ops.attention.gdn) and causal
convolutions (tokenspeed/runtime/layers/attention/linear/causal_conv1d.py), by cubinery.

States are [.., HV, V, K].  A negative index is padding: the request's output is zero and no state is
touched.  Importing this module imports neither torch nor tokenspeed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from cubinery._errors import InvalidArgumentError, UnsupportedError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _convolution as convolution
from cubinery.compat import _engines as engines
from cubinery.compat import _prefill as prefill
from cubinery.compat import _verify as verification

_PAD_SLOT_ID = -1
_OWN = "cubinery chooses its kernels; see cubinery.Context's paths"


class GdnCheckpointLayout(str, Enum):
    """tokenspeed's names of where a prefill's inner states lie: equal to its own."""

    NONE = "none"
    FLA = "fla"
    FLASHINFER = "flashinfer"


@dataclass(frozen=True)
class GdnChunkPrefillResult:
    """What gdn_chunk_prefill() returns, as tokenspeed's class of this name."""

    out: Any
    final_state: Any
    h: Any = None
    h_cu_starts: Any = None
    h_layout: GdnCheckpointLayout = GdnCheckpointLayout.NONE


def gdn_chunk_prefill(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    *,
    scale: float | None,
    initial_state: Any,
    cu_seqlens: Any,
    qk_l2norm: bool = False,
    output_final_state: bool = True,
    output_h: bool = False,
    override: str | None = None,
    solution: str | None = None,
    **kwargs: Any,
) -> GdnChunkPrefillResult:
    """tokenspeed's function of this name: prefill.

    q, k [1, total, H, K], v [1, total, HV, V], g, a log decay, and beta [1, total, HV], `cu_seqlens`
    [N + 1].  `initial_state` [N, HV, V, K] is only read.  The final states are a new f32 array, None
    without `output_final_state`.  With `output_h` h holds the states before each 64 tokens of each
    sequence, [1, rows, HV, V, K] in the dtype of the states, in the layout FLA; there may be further
    rows at the end, which are not written.

    Raises UnsupportedError for `override` and `solution`, which name tokenspeed's own kernels.
    """
    name = "tokenspeed.gdn_chunk_prefill"
    arguments.refuse_unknown(name, kwargs)
    arguments.refuse_given(name, _OWN, override=override, solution=solution)
    arguments.refuse_autograd(name, q=q, k=k, v=v, g=g, beta=beta, initial_state=initial_state)
    arguments.require_rank(name, "q", q, "[B, T, H, K]")
    arguments.require_rank(name, "v", v, "[B, T, HV, V]")
    shape = (engines.count_requests(q, cu_seqlens), v.shape[2], v.shape[3], q.shape[3])
    arguments.require_initial_state(name, initial_state, shape)
    wanted = arguments.flag(name, "output_final_state", output_final_state)
    final, options = arguments.final_states(q, initial_state, shape, wanted)
    h = None
    if arguments.flag(name, "output_h", output_h):
        h, options = prefill.chunk_states(q, shape[1:], cu_seqlens, options)
    out = prefill.run(
        q, k, v, g, beta, arguments.flag(name, "qk_l2norm", qk_l2norm), scale=scale,
        cu_seqlens=cu_seqlens, **options,
    )  # fmt: skip
    layout = GdnCheckpointLayout.NONE if h is None else GdnCheckpointLayout.FLA
    return GdnChunkPrefillResult(out=out, final_state=final, h=h, h_layout=layout)


def gdn_decode_step(
    q: Any,
    k: Any,
    v: Any,
    *,
    A_log: Any,
    a: Any,
    dt_bias: Any,
    b: Any,
    initial_state: Any,
    initial_state_indices: Any,
    scale: float | None = None,
    output_state_indices: Any = None,
    use_qk_l2norm: bool = True,
    override: str | None = None,
    solution: str | None = None,
    **kwargs: Any,
) -> Any:
    """tokenspeed's function of this name: one token per request, on a pool.

    q, k [B, 1, H, K], v [B, 1, HV, V], a and b [B, 1, HV].  `initial_state` [slots, HV, V, K] is read
    at `initial_state_indices` [B] and written at `output_state_indices` [B], None: there too.
    Returns o in q's dtype and v's shape.

    `solution` is not read: its padding is what every solution of tokenspeed's gives or leaves open.
    Raises UnsupportedError for `override`.
    """
    name = "tokenspeed.gdn_decode_step"
    arguments.refuse_unknown(name, kwargs)
    arguments.refuse_given(name, _OWN, override=override)
    arguments.refuse_autograd(name, A_log=A_log, dt_bias=dt_bias)
    written = output_state_indices
    return engines.decode(
        name, q, k, v, {"a": a, "b": b}, cu_seqlens=None, states=initial_state,
        indices=initial_state_indices, pad_slot_id=_PAD_SLOT_ID, scale=scale,
        written=None if written is None else ("output_state_indices", written),
        **_gates(name, A_log, dt_bias, use_qk_l2norm),
    )  # fmt: skip


def _gates(name: str, A_log: Any, dt_bias: Any, use_qk_l2norm: Any) -> dict[str, Any]:
    return engines.computed_gates(
        name, A_log, dt_bias, arguments.flag(name, "use_qk_l2norm", use_qk_l2norm)
    )


def gdn_decode_mtp(
    q: Any,
    k: Any,
    v: Any,
    *,
    A_log: Any,
    a: Any,
    dt_bias: Any,
    b: Any,
    initial_state: Any,
    initial_state_indices: Any,
    scale: float | None = None,
    disable_state_update: bool = True,
    use_qk_l2norm: bool = True,
    intermediate_states_buffer: Any = None,
    output_state_indices: Any = None,
    parent_indices: Any = None,
    override: str | None = None,
    solution: str | None = None,
    **kwargs: Any,
) -> Any:
    """tokenspeed's function of this name: 1 to 16 draft tokens of each request, on a pool.

    q, k [B, T, H, K], v [B, T, HV, V], a and b [B, T, HV].  `initial_state` [slots, HV, V, K] is read
    at `initial_state_indices` [B] and, unless `disable_state_update`, has the states after the last
    tokens there.  The states after each token go to `intermediate_states_buffer` [B or more, T or
    more, HV, V, K], of the pool's dtype, at [n, t], in one launch more if the pool is updated too; or,
    with disable_state_update=False, to the slots `output_state_indices` [B, T] of the pool, and then
    nowhere else.  Returns o in q's dtype and v's shape.

    `parent_indices` [B, T] makes each request a tree: token t goes on from the state after token
    parent_indices[n, t], which is in front of it, or, where that is negative, from the initial state;
    the first one from that whatever it says.  It needs one of the two places for states; the buffer
    has them all, of which tokenspeed asks for some.

    `solution` is not read, as in gdn_decode_step().  Raises UnsupportedError for T > 16, a buffer of
    another dtype and `override`; InvalidArgumentError where tokenspeed would raise.
    """
    name = "tokenspeed.gdn_decode_mtp"
    arguments.refuse_unknown(name, kwargs)
    arguments.refuse_given(name, _OWN, override=override)
    arguments.refuse_autograd(name, A_log=A_log, dt_bias=dt_bias)
    arguments.require_rank(name, "q", q, "[B, T, H, K]")
    batch, tokens = q.shape[:2]
    verification.require_tokens(name, "q has T", tokens)
    update = not arguments.flag(name, "disable_state_update", disable_state_update)
    slots, buffer = output_state_indices, intermediate_states_buffer
    if slots is not None and (buffer is not None or not update):
        raise InvalidArgumentError(
            f"{name}: output_state_indices needs disable_state_update=False, and no "
            "intermediate_states_buffer"
        )
    kept: dict[str, Any] = {}
    read = engines.rows_of(name, "initial_state_indices", initial_state_indices, batch, "[B]")
    if slots is not None:
        arguments.require_shape(name, "output_state_indices", slots, (batch, tokens))
        kept = {"steps": initial_state, "step_slots": arguments.of_dtype(slots, read)}
    elif buffer is not None:
        kept = verification.kept_in_first_rows(name, buffer, batch, tokens, initial_state, read)
    if parent_indices is not None:
        kept["parents"] = _parents(name, parent_indices, (batch, tokens), kept)
    return engines.verify(
        name, q, k, v, {"a": a, "b": b}, cu_seqlens=None, states=initial_state, read=read,
        update=update and slots is None, pad_slot_id=_PAD_SLOT_ID, draft_tokens=None, scale=scale,
        **kept, **_gates(name, A_log, dt_bias, use_qk_l2norm),
    )  # fmt: skip


def _parents(name: str, parents: Any, shape: tuple[int, int], kept: dict[str, Any]) -> Any:
    arguments.require_shape(name, "parent_indices", parents, shape)
    if not kept:
        raise InvalidArgumentError(
            f"{name}: parent_indices needs output_state_indices or intermediate_states_buffer"
        )
    return verification.parents_of(parents, False)


def causal_conv1d_fn(
    x: Any,
    weight: Any,
    bias: Any,
    conv_states: Any,
    query_start_loc: Any,
    cache_indices: Any = None,
    has_initial_state: Any = None,
    activation: bool | str | None = "silu",
    pad_slot_id: int = _PAD_SLOT_ID,
    validate_data: bool = False,
    *,
    prefill_metadata: Any = None,
    **kwargs: Any,
) -> Any:
    """tokenspeed's function of this name: as sglang.causal_conv1d_fn().  `prefill_metadata` and
    `validate_data` are not read."""
    name = "tokenspeed.causal_conv1d_fn"
    arguments.refuse_unknown(name, kwargs)
    options = convolution.prefill_options(
        name, x, weight, bias, conv_states, query_start_loc, cache_indices, has_initial_state,
        activation, pad_slot_id,
    )  # fmt: skip
    return convolution.run(x, weight, bias, **options)


def causal_conv1d_update(
    x: Any,
    conv_state: Any,
    weight: Any,
    bias: Any = None,
    activation: bool | str | None = None,
    cache_seqlens: Any = None,
    conv_state_indices: Any = None,
    num_accepted_tokens: Any = None,
    intermediate_conv_window: Any = None,
    output_state_indices: Any = None,
    pad_slot_id: int = _PAD_SLOT_ID,
    validate_data: bool = False,
    *,
    parent_indices: Any = None,
    **kwargs: Any,
) -> Any:
    """tokenspeed's function of this name: the convolution of a decode, or of draft tokens.

    x [N, dim], one token of each request, or [N, dim, T]; `conv_state` [slots, dim, W - 1 or more],
    whose first W - 1 columns are read at `conv_state_indices` [N].  With `output_state_indices`
    [N, T] the window after token t of request n goes to the slot [n, t], and the slot that was read
    is left as it is; without it conv_state is updated in place, as by vllm.causal_conv1d_update(),
    which has `num_accepted_tokens` too.  Returns y in x's shape and dtype; x is only read.

    Raises UnsupportedError for trees (`parent_indices`), a circular buffer (`cache_seqlens`),
    `intermediate_conv_window`, and, of `num_accepted_tokens` and `output_state_indices`, for both
    or, with several tokens, for none.
    """
    name = "tokenspeed.causal_conv1d_update"
    arguments.refuse_unknown(name, kwargs)
    arguments.refuse_given(name, "the newest input is in column W - 2", cache_seqlens=cache_seqlens)
    arguments.refuse_given(name, "drafts are chains of tokens", parent_indices=parent_indices)
    arguments.refuse_given(
        name, "windows go to output_state_indices",
        intermediate_conv_window=intermediate_conv_window,
    )  # fmt: skip
    accepted = ("num_accepted_tokens", num_accepted_tokens)
    if output_state_indices is None:
        if num_accepted_tokens is None and len(x.shape) == 3 and x.shape[2] > 1:
            raise UnsupportedError(
                f"{name}: x has T = {x.shape[2]} tokens; several need output_state_indices or "
                "num_accepted_tokens"
            )
        return convolution.update(
            name, x, conv_state, weight, bias, activation, conv_state_indices, accepted, None, -1,
            pad_slot_id, newest_last=False,
        )  # fmt: skip
    arguments.refuse_given(name, "windows after each token, without it", **dict([accepted]))
    return convolution.update_to_slots(
        name, x, conv_state, weight, bias, activation, conv_state_indices,
        ("output_state_indices", output_state_indices), pad_slot_id,
    )  # fmt: skip
