"""What the problems of all operators have; cubinery/problems.py has their fields."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Self,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
)

from cubinery import _core
from cubinery._errors import InvalidArgumentError, refuse, refuse_type

if TYPE_CHECKING:
    from cubinery._operator import Operator

OperatorT = TypeVar("OperatorT", bound="Operator[Any]", covariant=True)


@cache
def _defaults(problem: Any) -> dict[str, Any]:
    """Of each field of a class of problems its default."""
    return {field.name: field.default for field in fields(problem)}


@cache
def _values(problem: Any) -> dict[str, tuple[type, tuple[str, ...]]]:
    """Of each field of a class of problems its type and, for a str, the values that it takes."""
    hints = get_type_hints(problem)
    return {
        field.name: (type(field.default), get_args(hints[field.name])) for field in fields(problem)
    }


@dataclass(frozen=True)
class Problem(Generic[OperatorT]):
    """A problem of operators of class OperatorT: an operator's class of problems adds the fields."""

    op: ClassVar[str]

    q_heads: int
    k_heads: int
    v_heads: int

    def __new__(cls, *_: Any, **given: Any) -> Self:
        for name in given.keys() - _defaults(cast(Any, cls)).keys():
            try:  # the message of every other door, and Python's class for it
                _core.check_problem(cls.op, json.dumps({name: 0}))
            except InvalidArgumentError as error:
                raise TypeError(str(error)) from None
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self._check_values()

    def __repr__(self) -> str:
        """The fields that differ from the defaults, as Python would make it again."""
        changed = (
            f"{name}={getattr(self, name)!r}"
            for name, default in _defaults(cast(Any, type(self))).items()
            if getattr(self, name) != default
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def heads(self) -> int:
        """States and outputs per sequence: the largest of the three head counts."""
        return max(self.q_heads, self.k_heads, self.v_heads)

    def _check_values(self) -> None:
        """Raises InvalidArgumentError for a field of another type, or a str it does not take."""
        for name, (kind, values) in _values(cast(Any, type(self))).items():
            value = getattr(self, name)
            if type(value) is not kind or (values and value not in values):
                words = {int: "an int", bool: "True, False"}
                refuse(f"{self.op}: {name}", value, words.get(kind) or ", ".join(map(repr, values)))

    def to_json(self) -> str:
        """Flat JSON with every field, as manifests of ``cubinery prewarm`` hold it."""
        given = {name: getattr(self, name) for name in _values(cast(Any, type(self)))}
        return json.dumps(given, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The problem that flat JSON describes; missing fields keep their default.

        Raises:
            InvalidArgumentError: malformed, an unknown field or value, or a combination that is
                not supported.
        """
        if not isinstance(text, str):
            refuse_type("text", text, "a str of JSON")
        return cls(**json.loads(_core.check_problem(cls.op, text)))

    @classmethod
    def _unchecked(cls, values: dict[str, Any]) -> Self:
        """Of all fields, also with values that this operator does not take: check() says so."""
        problem = cls.__new__(cls)
        for name, value in values.items():
            object.__setattr__(problem, name, value)
        return problem

    def check(self) -> None:
        """Raises InvalidArgumentError, which names the field, its value and what is accepted."""
        _core.check_problem(self.op, self.to_json())


def problem_class(op: str) -> type[Problem[Any]]:
    """The class of an operator's problems.  Requires: `op` is an operator's name."""
    classes: list[type[Problem[Any]]] = Problem.__subclasses__()
    return next(one for one in classes if one.op == op)


def left_out(problems: Any) -> dict[str, str]:
    """Of the problems of a model those that do not pass check(), and why."""
    reasons = {}
    for field in fields(problems):
        try:
            getattr(problems, field.name).check()
        except InvalidArgumentError as error:
            reasons[field.name] = str(error)
    return reasons


def repr_of_forms(problems: Any) -> str:
    """Of the problems of a model: a line for each form."""
    forms = (f"    {field.name}={getattr(problems, field.name)!r},\n" for field in fields(problems))
    return f"{type(problems).__name__}(\n{''.join(forms)})"


def checked(problem: Any) -> Problem[Any]:
    """The problem.  Raises InvalidArgumentError for anything else."""
    if not isinstance(problem, Problem):
        refuse_type("problem", problem, "problems, such as cubinery.DecodeProblem()")
    return problem
