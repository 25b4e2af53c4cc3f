"""Operands of one row: random tensors, copied for each set, and what a right result is."""

import copy
import math
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from compare import reference
from compare.rows import (
    DIM,
    LOWER_BOUND,
    ConvRow,
    DecodeRow,
    KdaPrefillRow,
    LayerRow,
    PrefillRow,
    Row,
)

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}

_SEED = 6
_KEY_CORRELATION = 0.9  # init
NORM_EPS = 1e-5  # of the norm behind a layer's o


def _random(device: str) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(_SEED)


def _uniform(random: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=random, device=random.device)


def _normal(random: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=random, device=random.device)


def _initial_gates(random: torch.Generator, heads: int, *channels: int) -> tuple[Tensor, Tensor]:
    """A_log [heads] and dt_bias [heads] or [heads, channels] of a freshly initialised model: A in
    [1, 16], steps in [1e-3, 0.1]."""
    a_log = _uniform(random, 1, 16, heads).log()
    steps = _uniform(random, math.log(1e-3), math.log(0.1), heads, *channels).exp()
    return a_log, steps.expm1().log()


def _bounded_gates(random: torch.Generator, heads: int) -> tuple[Tensor, Tensor]:
    """A_log [heads] and dt_bias [heads, 128]: channels that keep nearly all beside some near the bound."""
    return 0.3 * _normal(random, heads), 2 * _normal(random, heads, DIM) - 2


def _kda_prefill_gates(random: torch.Generator, row: KdaPrefillRow) -> tuple[Tensor, Tensor]:
    """A_log [heads] and dt_bias [heads, 128] of the row's distribution.  The mean of g is about -2.5
    (fast), -0.02 (slow) or -0.3 (softplus)."""
    if row.gates == "softplus":
        return _initial_gates(random, row.v_heads, DIM)
    bias = {"fast": 0.0, "slow": -7.5}[row.gates]
    return 0.3 * _normal(random, row.v_heads), _normal(random, row.v_heads, DIM) + bias


def computed_log_decay(a: Tensor, A_log: Tensor, dt_bias: Tensor, bounded: bool) -> Tensor:
    """float64 g of heads or of channels, as `dt_bias` is: above LOWER_BOUND, or by a softplus."""
    x = a.double() + dt_bias.double()
    rate = A_log.double().exp()
    if dt_bias.ndim > A_log.ndim:
        rate = rate[:, None]
    return LOWER_BOUND * (rate * x).sigmoid() if bounded else -rate * F.softplus(x)


def log_decay(row: PrefillRow, random: torch.Generator) -> Tensor:
    """g [1, T, heads] in f32 of the row's distribution."""
    shape = (1, row.tokens, row.v_heads)
    if row.gates == "strong":
        return -_uniform(random, 0, 1, *shape)
    if row.gates == "undecayed":
        return torch.zeros(shape, device=random.device)
    if row.gates == "extreme":
        return -_uniform(random, 31, 69, *shape)
    if row.gates == "init":
        a_log, dt_bias = _initial_gates(random, row.v_heads)
        return -a_log.exp() * F.softplus(_normal(random, *shape) + dt_bias)
    g = F.logsigmoid(_normal(random, *shape)) / 16
    still = torch.randperm(row.v_heads, generator=random, device=random.device)
    g[..., still[: row.v_heads // 4]] = 0  # these heads never decay
    return g


@dataclass
class PrefillSet:
    """q, k [1, T, H, 128], v [1, T, HV, 128], g, beta [1, T, HV], state [N, HV, K, V] f32 or None.

    Of a KdaPrefillRow g and beta are what they are computed from: a, [1, T, HV, 128], and b.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor
    state: Tensor | None

    @property
    def tokens(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """q, k, v, g, beta, as every library takes them."""
        return self.q, self.k, self.v, self.g, self.beta


@dataclass
class DecodeSet:
    """q, k [B, T, H, 128], v [B, T, HV, 128], b [B, T, HV], a the same or, of channels,
    [B, T, HV, 128], all bf16; state [B, HV, K, V]."""

    q: Tensor
    k: Tensor
    v: Tensor
    a: Tensor
    b: Tensor
    state: Tensor


@dataclass
class LayerSet:
    """x [B, 1, C], a, b and state as of a DecodeSet, z [B, 1, HV, 128], window [B, C, W - 1]; all but
    state bf16."""

    x: Tensor
    a: Tensor
    b: Tensor
    z: Tensor
    state: Tensor
    window: Tensor


@dataclass
class ConvSet:
    """x [N, T, C]; state [N, C, W] or None, both bf16."""

    x: Tensor
    state: Tensor | None


def _copies(first: PrefillSet | DecodeSet | LayerSet | ConvSet, count: int) -> list:
    """`first` and count - 1 copies of it in memory of their own."""
    copy = lambda x: None if x is None else x.clone()
    fields = vars(first)
    return [first] + [
        type(first)(**{name: copy(x) for name, x in fields.items()}) for _ in range(count - 1)
    ]


def _normalised(x: Tensor) -> Tensor:
    """As kernels normalise q and k."""
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


class PrefillData:
    """The sets of a prefill row.  All hold the same values, so that one result is right for all.

    cu_seqlens: [N + 1] int32, and the same as int64.
    """

    def __init__(self, row: PrefillRow, device: str = "cuda", sets: int | None = None):
        self.row, self.device = row, device
        self.sets: list[PrefillSet] = _copies(self._first(_random(device)), sets or row.sets)
        ends = torch.tensor((0, *row.seqlens)).cumsum(0)
        self.cu_seqlens = ends.to(device, torch.int32)
        self.cu_seqlens_i64 = ends.to(device, torch.int64)

    def _first(self, random: torch.Generator) -> PrefillSet:
        """The first set."""
        row = self.row
        dtype = DTYPES[row.dtype]
        keys = (1, row.tokens, row.qk_heads, DIM)
        q, k = _normal(random, *keys), _normal(random, *keys)
        if row.gates == "init":
            common = _normal(random, row.qk_heads, DIM)
            k = _KEY_CORRELATION * common + math.sqrt(1 - _KEY_CORRELATION**2) * k
        q, k = (0.1 * x if row.strong else F.normalize(x, dim=-1) for x in (q, k))
        v = _normal(random, 1, row.tokens, row.v_heads, DIM)
        beta = _normal(random, 1, row.tokens, row.v_heads).sigmoid()
        if row.strong:
            beta = _uniform(random, 0, 0.5, *beta.shape)
        state = None
        if not row.strong:
            state = _normal(random, len(row.seqlens), row.v_heads, DIM, DIM)
        gates = DTYPES[row.gate_dtype]
        return PrefillSet(
            q.to(dtype),
            k.to(dtype),
            v.to(dtype),
            log_decay(row, random).to(gates),
            beta.to(gates),
            state,
        )

    @property
    def gates(self) -> dict[str, Any]:
        """What the gates are computed from, besides the sets."""
        return {}

    def given(self) -> tuple[Tensor, ...]:
        """q, k, v, g and beta [T, ...] behind the norms and the gates."""
        return tuple(x[0] for x in self.sets[0].tokens)

    def expected(self) -> tuple[Tensor, Tensor]:
        """float64 o [1, T, HV, V] and final states [N, HV, K, V]."""
        s = self.sets[0]
        given = self.given()
        o = torch.empty(s.v.shape, dtype=torch.float64, device=self.device)
        states = []
        zero = torch.zeros(self.row.v_heads, DIM, DIM, device=self.device)
        first = 0
        for n, length in enumerate(self.row.seqlens):
            span = slice(first, first + length)
            tokens = (x[span] for x in given)
            start = zero if s.state is None else s.state[n]
            o[0, span], state = reference.chunked(*tokens, start, self.row.scale)
            states.append(state)
            first += length
        return o, torch.stack(states)


class KdaPrefillData(PrefillData):
    """A_log: [HV] f32; dt_bias: the same, or of channels [HV, 128]."""

    row: KdaPrefillRow

    def _first(self, random: torch.Generator) -> PrefillSet:
        row = self.row
        tokens = lambda *shape: _normal(random, 1, row.tokens, *shape).to(DTYPES[row.dtype])
        self.A_log, self.dt_bias = _kda_prefill_gates(random, row)
        q, k = tokens(row.qk_heads, DIM), tokens(row.qk_heads, DIM)
        v, a = tokens(row.v_heads, DIM), tokens(row.v_heads, DIM)
        return PrefillSet(q, k, v, a, tokens(row.v_heads), None)

    @property
    def bounded(self) -> bool:
        return self.row.gate_mode == "lower_bound"

    @property
    def gates(self) -> dict[str, Any]:
        bound = {"lower_bound": LOWER_BOUND} if self.bounded else {}
        return {"A_log": self.A_log, "dt_bias": self.dt_bias} | bound

    def by_head(self) -> Self:
        """As of DecodeData."""
        other = copy.copy(self)
        other.row = replace(self.row, decay="head")
        other.sets = [replace(s, g=s.g[..., 0].contiguous()) for s in self.sets]
        other.dt_bias = self.dt_bias[:, 0].contiguous()
        return other

    def given(self) -> tuple[Tensor, ...]:
        q, k, v, a, b = super().given()
        g = computed_log_decay(a, self.A_log, self.dt_bias, self.bounded)
        return _normalised(q.double()), _normalised(k.double()), v, g, b.double().sigmoid()


class DecodeData:
    """The sets of a decode or verify row, all of the same values.  A_log: [HV] f32; dt_bias: the same,
    or of channels [HV, 128].

    slots: [sets, B] int32, the requests' places in a pool of sets * B + 1 states, scattered.  Slot 0,
    which is padding for vLLM, is nobody's.
    """

    def __init__(self, row: DecodeRow, device: str = "cuda", sets: int | None = None):
        self.row, self.device = row, device
        random = _random(device)
        first = self._first(random)
        gates = _bounded_gates if row.by_channel else _initial_gates
        self.A_log, self.dt_bias = gates(random, row.v_heads)
        self.sets: list = _copies(first, sets or row.sets)
        count = len(self.sets) * row.batch
        order = torch.randperm(count, generator=random, device=device) + 1
        self.slots = order.to(torch.int32).view(len(self.sets), row.batch)

    def _first(self, random: torch.Generator) -> Any:
        """The first set."""
        heads = self.row.v_heads
        q, k, v = (
            self._tokens(random, each, DIM)
            for each in (self.row.qk_heads, self.row.qk_heads, heads)
        )
        return DecodeSet(q, k, v, *self._gates(random), self._states(random))

    def _tokens(self, random: torch.Generator, *shape: int) -> Tensor:
        return _normal(random, self.row.batch, self.row.tokens, *shape).to(torch.bfloat16)

    def _gates(self, random: torch.Generator) -> tuple[Tensor, Tensor]:
        heads = (self.row.v_heads,)
        a = self._tokens(random, *heads, *((DIM,) if self.row.by_channel else ()))
        return a, self._tokens(random, *heads)

    def _states(self, random: torch.Generator) -> Tensor:
        states = _normal(random, self.row.batch, self.row.v_heads, DIM, DIM)
        return states.to(DTYPES[self.row.state_dtype])

    @property
    def gates(self) -> dict[str, Any]:
        """What the gates are computed from, besides a and b."""
        bound = {"lower_bound": LOWER_BOUND} if self.row.by_channel else {}
        return {"A_log": self.A_log, "dt_bias": self.dt_bias} | bound

    def by_head(self) -> Self:
        """The same, but that a head's decay is that which its first channel gives, by softplus."""
        other = copy.copy(self)
        other.row = replace(self.row, decay="head")
        other.sets = [replace(s, a=s.a[..., 0].contiguous()) for s in self.sets]
        other.dt_bias = self.dt_bias[:, 0].contiguous()
        return other

    def _pool(self, name: str) -> Tensor:
        """A pool of its own with every set's states of this name at its slots."""
        states = getattr(self.sets[0], name).transpose(-1, -2)
        pool = states.new_empty(self.slots.numel() + 1, *states.shape[1:])
        for slots, s in zip(self.slots, self.sets):
            pool[slots.long()] = getattr(s, name).transpose(-1, -2)
        return pool

    def vk_pool(self) -> Tensor:
        """[slots, HV, V, K]."""
        return self._pool("state")

    def expected(self) -> tuple[Tensor, ...]:
        """float64 o [B, T, HV, V] and the states that are there afterwards, [B, HV, K, V]."""
        s = self.sets[0]
        o, state = self._recurrence(s.q, s.k, s.v)
        return o, s.state.double() if self.row.stored == "none" else state

    def _recurrence(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """o and the states after all tokens."""
        s = self.sets[0]
        q, k = (reference.to_heads(x, self.row.v_heads) for x in (q, k))
        q, k = _normalised(q), _normalised(k)
        g, beta, v, state = self._log_decay(), s.b.double().sigmoid(), v.double(), s.state.double()
        o = torch.empty_like(v)
        for t in range(self.row.tokens):
            tokens = (x[:, t] for x in (q, k, v, g, beta))
            o[:, t], state = reference.step(*tokens, state, DIM**-0.5)
        return o, state

    def _log_decay(self) -> Tensor:
        a = self.sets[0].a
        return computed_log_decay(a, self.A_log, self.dt_bias, self.row.by_channel)


class LayerData(DecodeData):
    """The sets of a layer's row.  weight: of the convolution, [C, W] f32, the channels of q, k and v
    behind each other; norm_weight: [128] f32."""

    row: LayerRow

    def _first(self, random: torch.Generator) -> LayerSet:
        channels, width = self.row.channels, self.row.width
        self.weight = _uniform(random, -0.5, 0.5, channels, width)
        self.norm_weight = _uniform(random, 0.5, 1.5, DIM)
        window = _normal(random, self.row.batch, channels, width - 1).to(torch.bfloat16)
        return LayerSet(
            self._tokens(random, channels),
            *self._gates(random),
            self._tokens(random, self.row.v_heads, DIM),
            self._states(random),
            window,
        )

    def window_pool(self) -> Tensor:
        """[slots, C, W - 1], whose channels are neighbours in memory."""
        return self._pool("window").transpose(-1, -2)

    def expected(self) -> tuple[Tensor, ...]:
        """The convolution's new states, [B, C, W - 1], besides."""
        s = self.sets[0]
        y, window = reference.convolution(s.x, self.weight, s.window)
        parts = y.split([heads * DIM for heads in self.row.heads], -1)
        o, state = self._recurrence(*(part.unflatten(-1, (-1, DIM)) for part in parts))
        return reference.gated_norm(o, s.z, self.norm_weight, NORM_EPS), state, window.double()


class ConvData:
    """The sets of a conv row, all of the same values.  weight: [C, W] bf16.

    cu_seqlens: [N + 1] int32, and the same as int64.
    """

    def __init__(self, row: ConvRow, device: str = "cuda", sets: int | None = None):
        self.row, self.device = row, device
        random = _random(device)
        bf16 = torch.bfloat16
        self.weight = _uniform(random, -0.5, 0.5, row.channels, row.width).to(bf16)
        state = None
        if row.is_step:
            state = _normal(random, row.sequences, row.channels, row.width).to(bf16)
        x = _normal(random, row.sequences, row.tokens, row.channels).to(bf16)
        self.sets: list[ConvSet] = _copies(ConvSet(x, state), sets or row.sets)
        ends = torch.arange(row.sequences + 1, device=device) * row.tokens
        self.cu_seqlens = ends.to(torch.int32)
        self.cu_seqlens_i64 = ends.to(torch.int64)

    def outputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v [N, T, H, 128] of a set: NaN, which nobody leaves where it was written."""
        row, x = self.row, self.sets[0].x
        return tuple(
            x.new_full((row.sequences, row.tokens, heads, DIM), torch.nan) for heads in row.heads
        )

    def expected(self) -> tuple[Tensor, Tensor]:
        """float32 q, k and v behind each other, [N, T, C], and the new states [N, C, W]."""
        s = self.sets[0]
        return reference.convolution(s.x, self.weight, s.state)


Data = PrefillData | DecodeData | ConvData


def make(row: Row, device: str = "cuda", sets: int | None = None) -> Data:
    """The data of a row; `sets` in place of as many as keep L2 cold."""
    kinds = {
        PrefillRow: PrefillData,
        KdaPrefillRow: KdaPrefillData,
        ConvRow: ConvData,
        LayerRow: LayerData,
    }
    return kinds.get(type(row), DecodeData)(row, device, sets)
