"""What the operators of all problems have, and which class is a problem's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cubinery import _arrays, _core, _rules
from cubinery._errors import refuse
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
        self._on_ranks: dict[Any, Any] = {}  # by ranks, which have agreed on the problem

    def _choice(self, *sizes: int) -> dict[str, str]:
        choice: dict[str, str] = json.loads(_core.operator_choice(self._handle, *sizes))
        return choice


class WorkspaceOperator(Operator[ProblemT]):
    """An operator whose launches need a workspace."""

    def __init__(self, context: Context, problem: ProblemT) -> None:
        super().__init__(context, problem)
        self._token_axis = 1 if _rules.heads_axis(problem) == -2 else 2

    def workspace_bytes(self, tokens: int, sequences: int) -> int:
        """Bytes of workspace that every launch of at most this size needs.

        At sizes that launches refuse because no grid holds them this may be 2**64 - 1.

        Args:
            tokens: of all sequences: B T, or the packed total.
            sequences: B, or N.
        """
        return _core.operator_workspace_bytes(self._handle, tokens, sequences)

    def _new_workspace(
        self, q: Any, cu_seqlens: Any, stream: int | None, step: int | None = None
    ) -> Any:
        """A workspace for one launch, all of its steps."""
        if step:
            refuse("workspace", None, "an array, the same one for all steps")
        shape = _arrays.shape_of("q", q)
        if len(shape) == 4:
            sequences, tokens = shape[0], shape[0] * shape[self._token_axis]
        else:
            sequences, tokens = 1, shape[self._token_axis - 1] if len(shape) == 3 else 0
        if cu_seqlens is not None:
            sequences = max(_arrays.shape_of("cu_seqlens", cu_seqlens)[0] - 1, 0)
        size = self.workspace_bytes(tokens, sequences)
        return _arrays.workspace(q, size, stream, self.context.device) if size > 0 else None
