"""What the operators of all problems have, and which class is a problem's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cubinery import _core
from cubinery._problem import Problem

if TYPE_CHECKING:
    from cubinery._context import Context

ProblemT = TypeVar("ProblemT", bound=Problem[Any])

_classes: dict[str, type[Operator[Any]]] = {}


def operator_class(op: str) -> Any:
    """The class of the operators of problems with this `op`."""
    return _classes[op]


class Operator(Generic[ProblemT]):
    """An operator on one device.  Its class says of which problems: `op`."""

    def __init_subclass__(cls, *, op: str | None = None) -> None:
        super().__init_subclass__()
        if op is not None:
            _classes[op] = cls

    def __init__(self, context: Context, problem: ProblemT) -> None:
        self.context = context
        self.problem = problem
        self._handle = _core.operator_create(context._handle, problem.op, problem.to_json())

    def _choice(self, *sizes: int) -> dict[str, str]:
        choice: dict[str, str] = json.loads(_core.operator_choice(self._handle, *sizes))
        return choice
