"""What SGLang's plugin launches for a layer: arrays as the engine has them, and its pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cubinery.plugins import _launches
from cubinery.plugins._common import Kernels
from cubinery.plugins._sglang_layer import CHUNK, PAD, SglangLayer


@dataclass
class Served:
    """What serves a layer."""

    layer: SglangLayer
    kernels: Kernels
    can: frozenset[str]  # kinds of work
    f32: Any  # torch's
    steps: Any = None  # [rows, steps]: the slots of steps in the pool that they are


def by_channel(decay: str, windows: Any) -> Any:
    """A convolution's windows [.., channels, columns]: of Kimi Delta Attention SGLang has them the
    other way round."""
    return windows.transpose(-1, -2) if decay == "channel" else windows


def gates(served: Served, layer: Any) -> dict[str, Any]:
    """What a layer computes its gates from, besides what the projections give."""
    given = {"A_log": layer.A_log, "dt_bias": layer.dt_bias}
    if served.layer.decay == "channel":
        given["A_log"] = layer.A_log.view(-1)
        given["dt_bias"] = layer.dt_bias.view(*served.layer.decay_shape)
    if layer.lower_bound is not None:
        given["lower_bound"] = layer.lower_bound
    return given


def rows_of(served: Served, a: Any, b: Any, tokens: int) -> tuple[Any, Any]:
    """a and b of each token, whatever dimensions are in front of them."""
    return a.view(tokens, *served.layer.decay_shape), b.view(tokens, served.layer.v_heads)


def starts_of(bounds: Any) -> Any:
    """Where the checkpoints of each sequence begin."""
    starts = bounds.new_zeros((bounds.shape[0],))
    starts[1:] = ((bounds[1:] - bounds[:-1] + (CHUNK - 1)) // CHUNK).cumsum(0)
    return starts


def decode(
    served: Served, layer: Any, cache: Any, x: Any, a: Any, b: Any, out: Any, slots: Any
) -> None:
    _launches.decode(
        served.kernels.operators, served.layer, x, layer.conv_weights, layer.bias,
        by_channel(served.layer.decay, cache.conv[0]), slots, PAD, served.kernels.has_pdl,
        g=a, beta=b, out=out, state=cache.temporal, zero_padding=True, **gates(served, layer),
    )  # fmt: skip


def prefill(
    served: Served, layer: Any, cache: Any, x: Any, a: Any, b: Any, out: Any, slots: Any,
    bounds: Any, has_state: Any, starts: Any,
) -> Any:  # fmt: skip
    """Returns the states in front of each 64 tokens of each sequence, [1, ..]; without `starts`,
    where those of each begin, it keeps none."""
    operators = served.kernels.operators
    tokens = x.shape[0]
    q, k, v = served.layer.outputs(x)
    g, beta, made, given = _launches.prefill_gates(
        served.layer, a, b, gates(served, layer), served.f32
    )
    operators["conv"](
        x, layer.conv_weights, layer.bias, q=q, k=k, v=v, cu_seqlens=bounds,
        has_initial_state=has_state, state=by_channel(served.layer.decay, cache.conv[0]),
        state_indices=slots, pad_slot_id=PAD, **made,
    )  # fmt: skip
    shared = {
        "out": out, "state": cache.temporal, "state_indices": slots, "cu_seqlens": bounds,
        "pad_slot_id": PAD, "zero_padding": True, "enable_pdl": served.kernels.has_pdl, **given,
    }  # fmt: skip
    if starts is None:
        operators["prefill"](q, k, v, g, beta, **shared)
        return None
    # As many rows as there may be: the host does not know how the tokens are shared out.
    rows = tokens // CHUNK + bounds.shape[0] - 1
    kept = cache.temporal.new_empty((rows, *cache.temporal.shape[1:]))
    operators["prefill_kept"](
        q, k, v, g, beta, checkpoints=kept, checkpoint_cu_starts=starts, **shared
    )
    return kept[None]


def verify(
    served: Served, layer: Any, cache: Any, x: Any, a: Any, b: Any, out: Any, slots: Any
) -> None:
    """Chains of drafts, convolved, [N, T, ..]: the states after each of them go to SGLang's buffer,
    which commits those that it accepts."""
    count, drafts = x.shape[:2]
    q, k = layer.q_dim, layer.q_dim + layer.k_dim
    served.kernels.operators["verify"](
        x[:, :, :q].unflatten(-1, (-1, layer.head_q_dim)),
        x[:, :, q:k].unflatten(-1, (-1, layer.head_k_dim)),
        x[:, :, k:].unflatten(-1, (-1, layer.head_v_dim)),
        a, b, out=out, state=cache.temporal, state_indices=slots,
        state_out=_pool(cache.intermediate_ssm, served.steps),
        state_out_indices=served.steps[:count, :drafts], pad_slot_id=PAD, zero_padding=True,
        **gates(served, layer),
    )  # fmt: skip


def _pool(buffer: Any, slots: Any) -> Any:
    """A buffer [rows, steps, ..] as slots [slots, ..]."""
    strides = buffer.stride()
    apart = strides[0] // strides[1]
    count = (buffer.shape[0] - 1) * apart + slots.shape[1]
    return buffer.as_strided((count, *buffer.shape[2:]), strides[1:])
