"""FlashKDA's prefill of Kimi Delta Attention (the package flash_kda), by cubinery.

FLA and SGLang look the function up in its module when they call it: `flash_kda.fwd = fwd` replaces
it.  vLLM's fork of it is compat.vllm's flashkda_fwd.  Importing this module imports neither torch
nor FlashKDA.
"""

from __future__ import annotations

from typing import Any

from cubinery.compat import _arguments as arguments
from cubinery.compat import _prefill as prefill


def fwd(
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
    initial_state: Any = None,
    final_state: Any = None,
    cu_seqlens: Any = None,
    **kwargs: Any,
) -> None:
    """FlashKDA's function of this name.

    q, k, v and g [B, T, H, K], beta [B, T, H] and `out` [B, T, H, K], which is written, all of one
    dtype; with `cu_seqlens` [N + 1], int32 or int64, B is 1 and T the tokens of all sequences.  g and
    beta are raw: the kernel makes the decay's logarithm lower_bound sigmoid(exp(A_log) (g + dt_bias))
    and sigmoid(beta).  `A_log` [H], `dt_bias` [H, K].  q and k are normalised, and q multiplied by
    `scale`.  `initial_state` [N, H, V, K] is not written (None: zeros); `final_state`, of its shape
    and dtype, is (None: nothing is kept).

    K may be any multiple of 16 up to 256 (FlashKDA: 128), the dtype f32 or f16 as well (FlashKDA:
    bf16), and arrays may have gaps.

    Raises InvalidArgumentError where FlashKDA would raise, UnsupportedError for a `lower_bound` below
    -5 and for inputs that require grad while grad is enabled.
    """
    name = "flash_kda.fwd"
    arguments.refuse_unknown(name, kwargs)
    prefill.flash_kda(
        name, q, k, v, g, beta, scale, out, A_log, dt_bias, lower_bound, initial_state,
        final_state, cu_seqlens,
    )  # fmt: skip
