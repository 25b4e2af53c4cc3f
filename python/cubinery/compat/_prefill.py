"""What the adapters share of prefills: whole sequences, and states besides the last."""

from __future__ import annotations

from typing import Any

from cubinery import _arrays, functional
from cubinery._errors import InvalidArgumentError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _engines as engines

_CHUNK = 64  # tokens of a chunk of SGLang's prefill
_FLASH_KDA_CHUNK = 16  # of FlashKDA's


def check(
    function: str, q: Any, k: Any, v: Any, g: Any, beta: Any, initial_state: Any, cu_seqlens: Any
) -> tuple[int, ...]:
    """The shape of the states of a prefill's sequences, [N, HV, V, K].  Raises for arrays that do not
    fit."""
    arguments.require_rank(function, "q", q, "[B, T, H, K]")
    arguments.require_rank(function, "v", v, "[B, T, HV, V]")
    arguments.refuse_autograd(function, q=q, k=k, v=v, g=g, beta=beta, initial_state=initial_state)
    sequences = q.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    shape = (sequences, v.shape[2], v.shape[3], q.shape[3])
    arguments.require_initial_state(function, initial_state, shape)
    return shape


def run(q: Any, k: Any, v: Any, g: Any, beta: Any, use_qk_l2norm: bool, **options: Any) -> Any:
    """chunk_gated_delta_rule of engines: o in q's dtype, states [.., HV, V, K].  `options` go to
    functional.gdn_prefill."""
    q, k, v = (arguments.unit_rows(array) for array in (q, k, v))
    return functional.gdn_prefill(
        q, k, v, g, beta, use_qk_l2norm=use_qk_l2norm, state_layout="vk", **options
    )


def chunk_states(
    q: Any, matrices: tuple[int, ...], cu_seqlens: Any, options: dict[str, Any], every: int = _CHUNK
) -> tuple[Any, dict[str, Any]]:
    """An array for the states before each `every` tokens of each sequence, as SGLang and FLA have
    them, and `options`, functional.gdn_prefill's with its states, with what fills it.  `matrices`: a
    state's dimensions, heads and their matrix.

    [1, rows, *matrices], the rows of one sequence behind those of the other; the host sees how many
    there are at most, not where each begins.  Without `cu_seqlens` [B, rows, *matrices].  The dtype
    is that of the states that are written, without any q's.
    """
    batch, tokens = q.shape[:2]
    state = options.get("state_out", options["state"])
    dtype = _arrays.dtype_of("q", q) if state is None else _arrays.dtype_name(state)
    options = {**options, "checkpoint_mode": "before", "checkpoint_every": every}
    if cu_seqlens is None:
        h = _arrays.empty(q, (batch, -(-tokens // every), *matrices), dtype)
    else:
        # Of N sequences each may end in a chunk that is not full.
        most = (tokens + (cu_seqlens.shape[0] - 1) * (every - 1)) // every
        h = _arrays.empty(q, (1, most, *matrices), dtype)
        starts = _arrays.empty(
            cu_seqlens, tuple(cu_seqlens.shape), _arrays.dtype_of("cu_seqlens", cu_seqlens)
        )
        starts[:1] = 0
        starts[1:] = ((cu_seqlens[1:] - cu_seqlens[:-1] + (every - 1)) // every).cumsum(0)
        options["checkpoint_cu_starts"] = starts
    options["checkpoints"] = h.reshape(h.shape[0] * h.shape[1], *matrices)
    return h, options


def run_channels(
    function: str,
    q: Any,
    k: Any,
    v: Any,
    gates: dict[str, Any],
    use_qk_l2norm: bool,
    *,
    cu_seqlens: Any,
    out: Any = None,
    **options: Any,
) -> Any:
    """run() of Kimi Delta Attention, whose decays have K channels: o, `out` if given.

    `gates`: what functional.gdn_prefill takes as g and beta, under the caller's names.
    """
    q, k, v, g, beta = engines.verify_rows(function, q, k, v, gates, cu_seqlens, q.shape[-1])
    if out is not None:
        arguments.require_shape(function, "out", out, tuple(v.shape))
    return run(q, k, v, g, beta, use_qk_l2norm, cu_seqlens=cu_seqlens, out=out, **options)


def flash_kda(
    function: str,
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    scale: float,
    out: Any,
    A_log: Any,
    dt_bias: Any,
    lower_bound: float,
    initial_state: Any,
    final_state: Any,
    cu_seqlens: Any,
    checkpoint_state: Any = None,
    checkpoint_offsets: Any = None,
) -> None:
    """FlashKDA's fwd, whose adapters' docstrings state it."""
    given = {"q": q, "k": k, "v": v, "g": g, "beta": beta, "out": out}
    arguments.refuse_autograd(function, **given, A_log=A_log, dt_bias=dt_bias)
    shape = check(function, q, k, v, g, beta, initial_state, cu_seqlens)
    for name, array in given.items():
        wanted = tuple(q.shape[:3]) if name == "beta" else tuple(q.shape)
        arguments.require_shape(function, name, array, wanted)
        if array.dtype != q.dtype:
            raise InvalidArgumentError(
                f"{function}: {name} is {_arrays.dtype_name(array)} and q is "
                f"{_arrays.dtype_name(q)}; expected one dtype: gates are raw"
            )
    heads, key_dim = shape[1], shape[3]
    for name, array, wanted in (("A_log", A_log, (heads,)), ("dt_bias", dt_bias, (heads, key_dim))):
        if array is None or lower_bound is None:
            missing = "lower_bound" if lower_bound is None else name
            raise InvalidArgumentError(f"{function}: {missing} is required")
        arguments.require_shape(function, name, array, wanted)
    run_channels(
        function, q, k, v, {"g": g, "beta": beta}, True, cu_seqlens=cu_seqlens, out=out,
        scale=scale, beta_mode="logit",
        **arguments.channel_decay(function, A_log, dt_bias, lower_bound, heads, key_dim),
        **_both_ends(function, initial_state, final_state, shape),
        **_checkpoints_at(
            function, checkpoint_state, checkpoint_offsets, shape, (initial_state, final_state)
        ),
    )  # fmt: skip


def _both_ends(
    function: str, initial_state: Any, final_state: Any, shape: tuple[int, ...]
) -> dict[str, Any]:
    """functional.gdn_prefill's options of a state that is read and one that is written."""
    if final_state is None:
        state = arguments.whole_matrices(initial_state)
        return {"state": state, "store_state": False}
    arguments.require_shape(function, "final_state", final_state, shape)
    arguments.require_state_dtype(function, "final_state", final_state)
    _require_same_dtype(function, "final_state", final_state, "initial_state", initial_state)
    if initial_state is final_state:
        return {"state": final_state}
    return {"state": arguments.whole_matrices(initial_state), "state_out": final_state}


def _checkpoints_at(
    function: str, states: Any, offsets: Any, shape: tuple[int, ...], ends: tuple[Any, Any]
) -> dict[str, Any]:
    """functional.gdn_prefill's options of a state of each sequence that is kept after `offsets` [N]
    of its tokens, where a chunk ends there."""
    if (states is None) != (offsets is None):
        raise InvalidArgumentError(
            f"{function}: checkpoint_state and checkpoint_offsets belong together"
        )
    if states is None:
        return {}
    arguments.require_shape(function, "checkpoint_state", states, shape)
    arguments.require_state_dtype(function, "checkpoint_state", states)
    for name, end in zip(("initial_state", "final_state"), ends):
        _require_same_dtype(function, "checkpoint_state", states, name, end)
    arguments.require_shape(function, "checkpoint_offsets", offsets, shape[:1])
    tokens = _arrays.empty(offsets, (shape[0], 1), "i32")
    tokens[:, 0] = offsets * (offsets % _FLASH_KDA_CHUNK == 0)
    return {
        "checkpoints": states,
        "checkpoint_mode": "at",
        "checkpoint_every": _FLASH_KDA_CHUNK,
        "checkpoint_offsets": tokens,
        "checkpoint_slots": _arrays.arange(tokens, shape[0])[:, None],
    }


def _require_same_dtype(function: str, name: str, array: Any, other: str, state: Any) -> None:
    if state is not None and array.dtype != state.dtype:
        raise InvalidArgumentError(
            f"{function}: {name} is {_arrays.dtype_name(array)} and {other} is "
            f"{_arrays.dtype_name(state)}; expected the same dtype"
        )
