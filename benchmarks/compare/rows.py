"""The shapes that are compared, and what each must move at least.  Imports nothing but Python."""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

DIM = 128  # of keys and values
WHICH = ("quick", "all", "published", "serving", "kda")
GATES = ("qwen", "strong", "undecayed", "init", "extreme")
KDA_GATES = ("fast", "slow", "softplus")  # of prefills of kda
BYTES = {"f32": 4, "bf16": 2, "f16": 2}
LOWER_BOUND = -5.0  # of the logarithm of a channel's decay

_L2_BYTES = 60_000_000  # of the largest device that is measured on


@dataclass(frozen=True)
class DecodeRow:
    """One token for each of `batch` requests: gates from logits, q and k normalised in the kernel.

    `decay`: of a head (Gated DeltaNet), or of each channel of its keys (Kimi Delta Attention), whose
    logarithms then lie above LOWER_BOUND.
    """

    batch: int
    state_dtype: str = "f32"  # or bf16
    qk_heads: int = 16
    v_heads: int = 32
    decay: str = "head"  # or channel
    tokens: ClassVar[int] = 1  # of each request
    stored: ClassVar[str] = "last"  # which new state

    @property
    def by_channel(self) -> bool:
        return self.decay == "channel"

    @property
    def gate_mode(self) -> str:
        return "lower_bound" if self.by_channel else "computed"

    @property
    def _sizes(self) -> str:
        """Of a label: heads and requests."""
        return f"{self.qk_heads},{self.v_heads} B={self.batch}"

    @property
    def _kind(self) -> str:
        """The end of a label."""
        return " kda" if self.by_channel else ""

    @property
    def label(self) -> str:
        return f"decode {self._sizes} {self.state_dtype}{self._kind}"

    @property
    def least_bytes(self) -> int:
        """Bytes of one launch when every operand is moved once, states that are stored twice."""
        passes = 1 if self.stored == "none" else 2
        states = passes * self.v_heads * DIM * DIM * BYTES[self.state_dtype]
        rows = 2 * (2 * self.qk_heads + 2 * self.v_heads) * DIM  # q, k, v, o
        gates = 2 * self.v_heads * ((DIM if self.by_channel else 1) + 1)  # a, b
        return self.batch * (states + self.tokens * (rows + gates) + 4)  # 4: the slot

    @property
    def sets(self) -> int:
        """In place, so that what is read is what is written."""
        return rotation(self.least_bytes // (1 if self.stored == "none" else 2))

    @property
    def identity(self) -> dict[str, Any]:
        """The members that name the row in a record of results."""
        gates = {"decay": self.decay, "gate_mode": self.gate_mode}
        return {
            "op": "gdn_decode",
            "batch": self.batch,
            "qk_heads": self.qk_heads,
            "v_heads": self.v_heads,
            "state_dtype": self.state_dtype,
            "state_layout": "vk",
        } | (gates if self.by_channel else {})


@dataclass(frozen=True)
class LayerRow(DecodeRow):
    """Decode with what a layer has around it, in one launch: a convolution of width 4 with SiLU in
    front, and the norm of o with a weight and a sigmoid gate behind.  States of the convolution have
    width - 1 columns and lie by channels."""

    width: ClassVar[int] = 4

    @property
    def heads(self) -> tuple[int, int, int]:
        """Of q, k and v."""
        return self.qk_heads, self.qk_heads, self.v_heads

    @property
    def channels(self) -> int:
        return sum(self.heads) * DIM

    @property
    def label(self) -> str:
        return f"layer {self._sizes} {self.state_dtype}{self._kind}"

    @property
    def least_bytes(self) -> int:
        """x is in place of q, k and v."""
        windows = 2 * self.channels * (self.width - 1) * BYTES["bf16"]
        gate = self.v_heads * DIM * BYTES["bf16"]
        weight = self.channels * self.width * BYTES["f32"]
        return super().least_bytes + self.batch * (windows + gate) + weight

    @property
    def identity(self) -> dict[str, Any]:
        more = {"conv_width": self.width, "output_norm": "sigmoid_gated_rms"}
        return super().identity | more


@dataclass(frozen=True)
class VerifyRow(DecodeRow):
    """Several tokens for each of `batch` requests against one state, otherwise as decode.  The state
    after the last token is stored in place ("last"), or none is ("none")."""

    tokens: int = 4  # type: ignore[misc]
    stored: str = "none"  # type: ignore[misc]

    @property
    def label(self) -> str:
        kind = f"{self.state_dtype} {self.stored}{self._kind}"
        return f"verify {self._sizes} T={self.tokens} {kind}"

    @property
    def identity(self) -> dict[str, Any]:
        more = {"tokens": self.tokens, "stored_states": self.stored}
        return super().identity | {"op": "gdn_verify"} | more


@dataclass(frozen=True)
class PrefillRow:
    """Whole sequences, their final states kept in f32.  `gates` is one of GATES."""

    qk_heads: int
    v_heads: int
    seqlens: tuple[int, ...]
    gates: str = "qwen"

    @property
    def by_channel(self) -> bool:
        return False

    @property
    def strong(self) -> bool:
        """Strong rows are as TileOPs runs them: fp16, gates too, scale 1, no initial state."""
        return self.gates == "strong"

    @property
    def dtype(self) -> str:
        return "f16" if self.strong else "bf16"

    @property
    def gate_dtype(self) -> str:
        return self.dtype if self.strong else "f32"

    @property
    def packed(self) -> bool:
        """Whether sequences lie behind each other with their bounds in cu_seqlens."""
        return not self.strong or len(self.seqlens) > 1

    @property
    def scale(self) -> float:
        return 1.0 if self.strong else DIM**-0.5

    @property
    def has_initial_state(self) -> bool:
        return not self.strong

    @property
    def state_layout(self) -> str:
        """Of the libraries that have both."""
        return "kv"

    @property
    def tokens(self) -> int:
        return sum(self.seqlens)

    @property
    def protocol(self) -> str:
        return f"{self.gates}-{'fp16' if self.strong else 'bf16'}"

    @property
    def shape(self) -> str:
        """One sequence: its length; several equal ones behind each other: length x count."""
        runs = [(length, len(list(equal))) for length, equal in itertools.groupby(self.seqlens)]
        return "+".join(f"{length}x{count}" if count > 1 else f"{length}" for length, count in runs)

    @property
    def label(self) -> str:
        return f"prefill {self.qk_heads},{self.v_heads} {self.shape} {self.protocol}"

    @property
    def least_bytes(self) -> int:
        """Bytes of one launch when every operand is moved once."""
        rows = (2 * self.qk_heads + 2 * self.v_heads) * DIM * BYTES[self.dtype]  # q, k, v, o
        gates = ((DIM if self.by_channel else 1) + 1) * self.v_heads * BYTES[self.gate_dtype]
        passes = 2 if self.has_initial_state else 1
        states = passes * len(self.seqlens) * self.v_heads * DIM * DIM * BYTES["f32"]
        return self.tokens * (rows + gates) + states

    @property
    def sets(self) -> int:
        return rotation(self.least_bytes)

    @property
    def identity(self) -> dict[str, Any]:
        """The members that name the row in a record of results."""
        return {
            "op": "gdn_prefill",
            "protocol": self.protocol,
            "qk_heads": self.qk_heads,
            "v_heads": self.v_heads,
            "seqlens": list(self.seqlens),
        }


@dataclass(frozen=True)
class KdaPrefillRow(PrefillRow):
    """Prefill of Kimi Delta Attention as engines run it: gates from logits, q and k normalised in the
    kernel, no initial states.  `gates` is one of KDA_GATES; the first two lie above LOWER_BOUND.
    `decay` as of a DecodeRow."""

    gates: str = "fast"
    decay: str = "channel"

    @property
    def by_channel(self) -> bool:
        return self.decay == "channel"

    @property
    def gate_mode(self) -> str:
        return "lower_bound" if self.by_channel and self.gates != "softplus" else "computed"

    @property
    def gate_dtype(self) -> str:
        return self.dtype

    @property
    def has_initial_state(self) -> bool:
        return False

    @property
    def state_layout(self) -> str:
        return "vk"

    @property
    def label(self) -> str:
        return f"{super().label} kda"

    @property
    def identity(self) -> dict[str, Any]:
        gates = {"decay": self.decay, "gate_mode": self.gate_mode}
        return super().identity | {"state_layout": self.state_layout} | gates


@dataclass(frozen=True)
class ConvRow:
    """The convolution in front of a layer, and its split into q, k and v: width 4, SiLU, no bias, bf16.

    One sequence from zeros, packed, whose final state is kept, or (`tokens` 1) a step of `sequences`
    requests, dense, their states in place.  States are whole windows, [sequences, channels, 4].
    """

    sequences: int
    tokens: int = 1  # of each sequence
    v_heads: int = 32
    qk_heads: int = 16
    width: ClassVar[int] = 4

    @property
    def is_step(self) -> bool:
        return self.tokens == 1

    @property
    def heads(self) -> tuple[int, int, int]:
        """Of q, k and v."""
        return self.qk_heads, self.qk_heads, self.v_heads

    @property
    def channels(self) -> int:
        return sum(self.heads) * DIM

    @property
    def label(self) -> str:
        size = f"B={self.sequences}" if self.is_step else str(self.tokens)
        return f"conv {self.qk_heads},{self.v_heads} {size} bf16"

    @property
    def state_bytes(self) -> int:
        return self.sequences * self.channels * self.width * BYTES["bf16"]

    @property
    def least_bytes(self) -> int:
        """Bytes of one launch when every operand is moved once, states that are read twice."""
        rows = 2 * self.sequences * self.tokens * self.channels * BYTES["bf16"]  # x; q, k, v
        weight = self.channels * self.width * BYTES["bf16"]
        return rows + weight + (2 if self.is_step else 1) * self.state_bytes

    @property
    def sets(self) -> int:
        """In place, so that what is read is what is written."""
        return rotation(self.least_bytes - (self.state_bytes if self.is_step else 0))

    @property
    def identity(self) -> dict[str, Any]:
        """The members that name the row in a record of results."""
        return {
            "op": "gdn_conv",
            "sequences": self.sequences,
            "tokens": self.sequences * self.tokens,
            "channels": self.channels,
            "varlen": not self.is_step,
            "gates": False,
            "state_layout": "columns",
            "qk_heads": self.qk_heads,
            "v_heads": self.v_heads,
        }


Row = DecodeRow | PrefillRow | ConvRow


def rotation(bytes_per_set: int) -> int:
    """Sets of operands that launches go round, so that each finds a cold L2: more than four times
    60 MB in all, and at least three."""
    return max(3, 4 * _L2_BYTES // max(1, bytes_per_set) + 1)


# Where long sequences leave most of a GPU idle unless they are cut: by length, then by heads.
_LONG = [
    *((*heads, (tokens,)) for heads in ((2, 8), (16, 16)) for tokens in (4096, 16384, 65536)),
    (4, 16, (32768,)),
    *((*heads, (28672, 4096)) for heads in ((2, 8), (16, 32))),
]


# What layers of 6144, 8192 and 12288 channels convolve.
_CONVS = [
    ConvRow(1, 8192),
    ConvRow(32),
    ConvRow(1, 512, v_heads=16),
    ConvRow(1, 2048, v_heads=16),
    ConvRow(1, 32768, v_heads=16),
    ConvRow(1, 32768, v_heads=64),
    ConvRow(1),
    ConvRow(256),
]


def _read(name: str) -> Any:
    """A file that cubinery_bench reads, too."""
    return json.loads((Path(__file__).parents[1] / name).read_text())


def _listed(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _read(name)["rows"]
    return rows


def _published(gates: str | None) -> list[Row]:
    rows = [
        PrefillRow(
            line["qk_heads"],
            line["v_heads"],
            tuple(line["seqlens"]),
            gates or line["protocol"].partition("-")[0],
        )
        for line in _listed("prefill_rows.json")
    ]
    return list(dict.fromkeys(rows))


def _serving(gates: str | None) -> list[Row]:
    _, heads_axis = _read("rows.json")["gdn_prefill"]["sets"]["serving"]["axes"]
    return [
        PrefillRow(heads["qk_heads"], heads["v_heads"], tuple(line["seqlens"]), gates or "qwen")
        for heads in heads_axis
        for line in _listed("serving_rows.json")
    ]


def _kda_prefills(gates: str, having: str = "seqlens") -> list[Row]:
    """Prefills of Kimi Delta Attention, of the shapes that have such a member.  The longest first: FLA's
    tuner keeps for all numbers of tokens what it chose for the first."""
    rows = [
        KdaPrefillRow(line["qk_heads"], line["v_heads"], tuple(line["seqlens"]), gates)
        for line in _listed("kda_prefill_rows.json")
        if having in line
    ]
    return sorted(rows, key=lambda row: (row.tokens, row.v_heads), reverse=True)


def kda_ten(gates: str) -> list[Row]:
    """The prefills of the geometric mean that has been published for others."""
    return _kda_prefills(gates, "of_ten")


def _kda(gates: str | None) -> list[Row]:
    """Kimi Delta Attention.  Decode and verify: heads of one GPU of Kimi-Linear or Ling (32), and of
    Kimi-K3 (12)."""
    heads = {"qk_heads": 32, "v_heads": 32, "decay": "channel"}
    few = {"qk_heads": 12, "v_heads": 12, "decay": "channel"}
    rows: list[Row] = [
        DecodeRow(batch, dtype, **heads)
        for dtype in ("f32", "bf16")
        for batch in (1, 8, 32, 128, 256)
    ]
    rows += [LayerRow(batch, **each) for each in (few, heads) for batch in (1, 8, 32, 128)]
    rows += [
        VerifyRow(batch, **heads, tokens=tokens, stored=stored)
        for stored in ("none", "last")
        for tokens in (4, 8)
        for batch in (8, 32, 128)
    ]
    rows += dict.fromkeys(kda_ten(gates or "fast") + _kda_prefills(gates or "fast"))
    if gates is None:
        for each in KDA_GATES[1:]:
            rows += _kda_prefills(each, "all_gates")
    return rows


def accepted_gates(which: str) -> tuple[str, ...]:
    """What `gates` may be with these rows."""
    return KDA_GATES if which == "kda" else GATES


def chosen_rows(which: str, gates: str | None = None) -> list[Row]:
    """The rows of `--rows`: quick; all, those of quick first; published, the prefills that others
    have published times of; serving, short prefills; or kda.

    `gates` None: every distribution on one short shape (of kda three), qwen (fast) on the others, and
    what was published; else that one on all prefills.  Raises ValueError for another name.
    """
    if which not in WHICH:
        raise ValueError(f"rows {which}; accepted: {', '.join(WHICH)}")
    if gates is not None and gates not in accepted_gates(which):
        raise ValueError(f"gates {gates}; accepted: {', '.join(accepted_gates(which))}")
    if which == "published":
        return _published(gates)
    if which == "serving":
        return _serving(gates)
    if which == "kda":
        return _kda(gates)
    prefill = [(16, 32, (8192,)), (2, 8, (32768,)), (16, 64, (8192,) * 4)]
    rows: list[Row] = [DecodeRow(1), DecodeRow(32), DecodeRow(128), DecodeRow(128, "bf16")]
    rows += [PrefillRow(*shape, gates=gates or "qwen") for shape in prefill]
    rows += _CONVS[:2]
    if which == "quick":
        return rows
    rows += [PrefillRow(*shape, gates=gates or "qwen") for shape in _LONG]
    if gates is None:
        rows += [PrefillRow(*heads, (32768,), gates="undecayed") for heads in ((2, 8), (16, 16))]
        rows += [PrefillRow(16, 16, (tokens,), gates="strong") for tokens in (32768, 131072)]
        rows.append(PrefillRow(32, 32, (131072,), gates="strong"))
    rows += [DecodeRow(batch, dtype) for dtype in ("f32", "bf16") for batch in (1, 8, 32, 128)]
    rows += [
        VerifyRow(batch, dtype, tokens=tokens, stored=stored)
        for stored in ("none", "last")
        for dtype in ("f32", "bf16")
        for tokens in (4, 8)
        for batch in (8, 32, 128)
    ]
    rows += _CONVS
    for seqlens in ((8192,), (32768,), (8192,) * 4, (1024,) * 8, (2048,)):
        for heads in ((2, 8), (16, 32), (16, 64), (16, 16)):
            rows.append(PrefillRow(*heads, seqlens, gates=gates or "qwen"))
    if gates is None:
        rows += [PrefillRow(16, 32, (8192,), gates=each) for each in GATES]
    return list(dict.fromkeys(rows))
