"""What is fixed when a model is loaded: the fields and defaults of the C++ problems.

``include/cubinery/gdn_decode.h`` and ``gdn_prefill.h`` say what each field means.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import ClassVar, Self

from cubinery import _core


@dataclass(frozen=True)
class _Problem:
    """What both problems have."""

    op: ClassVar[str]

    q_heads: int = 16
    k_heads: int = 16
    v_heads: int = 32
    key_dim: int = 128  # 16 to 256, a multiple of 16
    value_dim: int = 128  # likewise
    dtype: str = "bf16"  # q, k, v: f32, bf16 or f16; likewise below
    output_dtype: str = "bf16"
    gate_dtype: str = "f32"
    beta_dtype: str = "f32"
    a_log_dtype: str = "f32"
    dt_bias_dtype: str = "f32"
    state_dtype: str = "f32"
    index_dtype: str = "i32"  # i32 or i64

    @property
    def heads(self) -> int:
        """States and outputs per sequence: the largest of the three head counts."""
        return max(self.q_heads, self.k_heads, self.v_heads)

    def to_json(self) -> str:
        """Flat JSON with every field, as manifests of ``cubinery prewarm`` hold it."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The problem that flat JSON describes; missing fields keep their default.

        Raises:
            InvalidArgumentError: malformed, an unknown field or value, or a combination that is
                not supported.
        """
        return cls(**json.loads(_core.check_problem(cls.op, text)))

    def check(self) -> None:
        """Raises InvalidArgumentError, which names the field, its value and what is accepted."""
        _core.check_problem(self.op, self.to_json())


@dataclass(frozen=True)
class DecodeProblem(_Problem):
    """One decode step: one token per request."""

    op: ClassVar[str] = "gdn_decode"

    state_layout: str = "vk"  # vk, kv
    state_location: str = "dense"  # dense, pool
    padding: str = "none"  # none, skip, zero, scratch
    pad_index: str = "negative"  # negative, zero
    gate_mode: str = "log"  # none, log, alpha, computed
    beta_mode: str = "given"  # one, given, logit, doubled_logit
    use_qk_l2norm: bool = False
    has_initial_state: bool = True
    store_state: bool = True


@dataclass(frozen=True)
class PrefillProblem(_Problem):
    """A prefill: whole sequences."""

    op: ClassVar[str] = "gdn_prefill"

    cu_seqlens_dtype: str = "i32"  # i32 or i64
    token_layout: str = "bthd"  # bthd, bhtd
    varlen: bool = False
    state_layout: str = "vk"  # vk, kv
    state_location: str = "dense"  # dense, pool
    padding: str = "none"  # none, skip, zero, scratch
    pad_index: str = "negative"  # negative, zero
    gate_mode: str = "log"  # none, log, alpha, computed
    beta_mode: str = "given"  # one, given, logit, doubled_logit
    use_qk_l2norm: bool = False
    has_initial_state: bool = True
    store_state: bool = True
    checkpoints: str = "none"  # none, before, after
    checkpoint_every: int = 64  # a multiple of 16
    batch_invariant: bool = False
