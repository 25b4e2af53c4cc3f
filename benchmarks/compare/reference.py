"""The recurrence of include/cubinery/gdn.h in float64, and the convolution of gdn_conv.h in float32:
what every contender is checked against.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK = 64
CHANNEL_CHUNK = 16  # with decays of channels: one for each pair of tokens and channel is held


def to_heads(x: Tensor, heads: int) -> Tensor:
    """[..., H, D] -> float64 [..., heads, D]: head h reads row h // (heads / H)."""
    return x.double().repeat_interleave(heads // x.shape[-2], dim=-2)


def step(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """One token: q, k [..., H, K], v [..., H, V], beta [..., H], state [..., H, K, V], float64.  g: of
    heads, [..., H], or of channels, [..., H, K].

    Returns o [..., H, V] and the new state.
    """
    if g.ndim == beta.ndim:
        g = g[..., None]
    state = state * g.exp()[..., None]
    recalled = (k[..., None, :] @ state).squeeze(-2)
    new = beta[..., None] * (v - recalled)
    state = state + k[..., :, None] * new[..., None, :]
    return scale * (q[..., None, :] @ state).squeeze(-2), state


def recurrence(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """One sequence, token by token: q, k [T, Hq, K], v [T, H, V], beta [T, H], state [H, K, V]; g as
    step() has it.

    Returns float64 o [T, H, V] and the final state.
    """
    heads = v.shape[-2]
    q, k, v = to_heads(q, heads), to_heads(k, heads), v.double()
    g, beta, state = g.double(), beta.double(), state.double()
    o = torch.empty_like(v)
    for t in range(v.shape[0]):
        o[t], state = step(q[t], k[t], v[t], g[t], beta[t], state, scale)
    return o, state


def chunked(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """recurrence(), CHUNK or CHANNEL_CHUNK tokens at a time: the new values of a chunk solve a
    triangular system.

    With G the sum of g inside the chunk and S the state in front of it,
    u_i + beta_i sum_{j<i} (e^(G_i - G_j) k_i . k_j) u_j = beta_i (v_i - S^T (e^G_i k_i)),
    where e^G is a number, or a row that multiplies k channel by channel.
    """
    heads, by_channel = v.shape[-2], g.ndim > beta.ndim
    size = CHANNEL_CHUNK if by_channel else CHUNK
    state = state.double()
    o = torch.empty(v.shape, dtype=torch.float64, device=v.device)
    for first in range(0, v.shape[0], size):
        span = slice(first, first + size)
        qs, ks = (to_heads(x[span], heads).transpose(0, 1) for x in (q, k))  # [H, C, K]
        vs = v[span].double().transpose(0, 1)
        b = beta[span].double().T[..., None]  # [H, C, 1]
        total = (g if by_channel else g[..., None])[span].double().cumsum(0).transpose(0, 1)
        later = torch.ones(vs.shape[1], vs.shape[1], device=v.device).triu(1).bool()
        # [H, C, C, 1 or K], masked before the exponential, which overflows above the diagonal.
        decay = total[:, :, None] - total[:, None]
        decay = decay.masked_fill(later[..., None], -torch.inf).exp()
        wanted = b * (vs - (total.exp() * ks) @ state)
        system = b * _decayed_products(ks, ks, decay)
        new = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
        seen = _decayed_products(qs, ks, decay)
        o[span] = scale * ((total.exp() * qs) @ state + seen @ new).transpose(0, 1)
        end = total[:, -1:]  # [H, 1, 1 or K]
        state = end.exp().transpose(1, 2) * state
        state += (ks * (end - total).exp()).transpose(1, 2) @ new
    return o, state


def _decayed_products(x: Tensor, k: Tensor, decay: Tensor) -> Tensor:
    """x_i . k_j with each channel's decay from j to i: x, k [H, C, K], decay [H, C, C, 1 or K] ->
    [H, C, C]."""
    if decay.shape[-1] == 1:
        return (x @ k.transpose(1, 2)) * decay.squeeze(-1)
    return ((decay * k[:, None]) @ x[..., None]).squeeze(-1)


def convolution(x: Tensor, weight: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """With SiLU: x [N, T, C], weight [C, W], state [N, C, W or W - 1], its newest column last, None:
    zeros.

    Returns y [N, T, C] and the new state, both float32.
    """
    width = weight.shape[1]
    x, weight = x.float(), weight.float()
    if state is None:
        state = x.new_zeros(x.shape[0], x.shape[2], width)
    columns = state.shape[2]
    inputs = torch.cat([state.float().transpose(1, 2), x], 1)  # [N, columns + T, C]
    y = torch.zeros_like(x)
    for i in range(width):
        first = columns + 1 - width + i
        y += weight[:, i] * inputs[:, first : first + x.shape[1]]
    return F.silu(y), inputs[:, -columns:].transpose(1, 2)


def gated_norm(o: Tensor, z: Tensor, weight: Tensor, eps: float) -> Tensor:
    """o [..., V] over its root mean square, times weight [V] and sigmoid(z), in float64."""
    o = o.double()
    scale = (o.square().mean(-1, keepdim=True) + eps).rsqrt()
    return o * scale * weight.double() * z.double().sigmoid()


def largest_error(actual: Tensor, expected: Tensor) -> float:
    """Of an element, relative to it, or to 0.01 where it is smaller; NaN where either has one."""
    return ((actual.float() - expected).abs() / expected.abs().clamp_min(0.01)).max().item()


def relative_rms(actual: Tensor, expected: Tensor) -> float:
    """Root of the sum of squared errors, relative to that of `expected`; NaN where either has one.
    Raises ValueError for shapes that differ: broadcasting would hide it."""
    if actual.shape != expected.shape:
        raise ValueError(f"shape {tuple(actual.shape)} instead of {tuple(expected.shape)}")
    error = actual.double() - expected
    return (error.norm() / expected.norm()).item()
