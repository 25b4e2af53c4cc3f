"""What the adapters share of prefills: whole sequences, and states besides the last."""

from __future__ import annotations

from typing import Any

from cubinery import _arrays, functional
from cubinery.compat import _arguments as arguments

_CHUNK = 64  # tokens of a chunk of SGLang's prefill


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
    q: Any, matrices: tuple[int, ...], cu_seqlens: Any, state: Any, every: int = _CHUNK
) -> tuple[Any, dict[str, Any]]:
    """An array for the states before each `every` tokens of each sequence, as SGLang and FLA have
    them, and the options of functional.gdn_prefill that fill it.  `matrices`: a state's dimensions,
    heads and their matrix.

    [1, rows, *matrices], the rows of one sequence behind those of the other; the host sees how many
    there are at most, not where each begins.  Without `cu_seqlens` [B, rows, *matrices].  The dtype
    is `state`'s, or q's.
    """
    batch, tokens = q.shape[:2]
    dtype = _arrays.dtype_of("q", q) if state is None else _arrays.dtype_name(state)
    options: dict[str, Any] = {"checkpoint_mode": "before", "checkpoint_every": every}
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
