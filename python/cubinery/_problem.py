"""What the problems of all operators have; cubinery/problems.py has their fields."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from cubinery import _core

if TYPE_CHECKING:
    from cubinery._operator import Operator

OperatorT = TypeVar("OperatorT", bound="Operator[Any]", covariant=True)


@dataclass(frozen=True)
class Problem(Generic[OperatorT]):
    """A problem of operators of class OperatorT: an operator's class of problems adds the fields."""

    op: ClassVar[str]

    q_heads: int
    k_heads: int
    v_heads: int

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
