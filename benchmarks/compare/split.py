"""What a caller of a convolution without a split needs behind it: q, k and v of its output, in one pass."""

import math

import torch
import triton
import triton.language as tl

_CHANNELS = 1024  # of a program at most: 16 bytes for each thread of four warps
_ROWS = 8  # of a program where there are enough of them: as many loads on the way
_PROGRAMS = 1024  # enough of them


@triton.jit
def _copy(source, target, rows, tokens, first, stride, width, BLOCK: tl.constexpr):
    """Rows of `width` channels, from channel `first` of the source's on."""
    channels = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (rows < tokens)[:, None]
    values = tl.load(source + rows[:, None] * stride + channels[None, :], mask=mask)
    tl.store(target + rows[:, None] * width + (channels - first)[None, :], values, mask=mask)


@triton.jit
def _split(
    y, q, k, v, tokens,
    Q: tl.constexpr, K: tl.constexpr, V: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # A block is of one of the three, whose channels are multiples of it.
    channel = tl.program_id(0) * BLOCK
    rows = (tl.program_id(1) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    if channel < Q:
        _copy(y, q, rows, tokens, 0, Q + K + V, Q, BLOCK)
    elif channel < Q + K:
        _copy(y, k, rows, tokens, Q, Q + K + V, K, BLOCK)
    else:
        _copy(y, v, rows, tokens, Q + K, Q + K + V, V, BLOCK)


def split(y: torch.Tensor, outs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    """Copies the channels of y [..., C] into q, k and v [..., H, 128].  All lie contiguously."""
    tokens = y.numel() // y.shape[-1]
    sizes = [out.shape[-2] * out.shape[-1] for out in outs]
    block = math.gcd(_CHANNELS, *sizes)
    blocks = sum(sizes) // block
    rows = _ROWS if blocks * tokens >= _ROWS * _PROGRAMS else 1
    _split[blocks, triton.cdiv(tokens, rows)](
        y, *outs, tokens, *sizes, ROWS=rows, BLOCK=block, num_warps=4
    )
