"""What the plugins of both engines launch alike."""

from __future__ import annotations

from typing import Any

from cubinery.plugins._common import Layer


def decode(
    operators: dict[str, Any],
    layer: Layer,
    x: Any,
    weight: Any,
    bias: Any,
    window: Any,
    slots: Any,
    pad_slot_id: int,
    enable_pdl: bool,
    **given: Any,
) -> None:
    """One token of each request: x [N, channels] before the convolution, whose columns are in the
    pool `window`.  In one launch, or in two where the convolution has its own.  `given`: what else
    the decode takes."""
    pool = {"state_indices": slots, "pad_slot_id": pad_slot_id}
    conv = operators.get("conv_decode")
    if conv is None:
        inputs = {"x": x, "conv_weight": weight, "conv_bias": bias, "conv_state": window}
    else:
        q, k, v = layer.outputs(x)
        # [N, 1, ..].
        conv(
            x[:, None], weight, bias, q=q[:, None], k=k[:, None], v=v[:, None], state=window, **pool
        )
        inputs = {"q": q, "k": k, "v": v, "enable_pdl": enable_pdl}
    operators["decode"](**inputs, **pool, **given)


def prefill_gates(
    layer: Layer, a: Any, b: Any, given: dict[str, Any], f32: Any
) -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
    """g and beta of a prefill, and what its convolution and itself are given for them: the convolution
    makes them of a and b, in f32, or the prefill takes a and b as they are."""
    if not layer.gates_of_conv:
        return a, b, {}, given
    g, beta = a.new_empty(a.shape, dtype=f32), b.new_empty(b.shape, dtype=f32)
    return g, beta, {"a": a, "b": b, "g": g, "beta": beta, **given}, {}
