"""What the adapters do for verification: draft tokens, and the states after each of them."""

from __future__ import annotations

from typing import Any

from cubinery import _arrays, functional
from cubinery._errors import InvalidArgumentError, UnsupportedError
from cubinery.compat import _arguments as arguments
from cubinery.gdn import MOST_TOKENS


def require_tokens(function: str, what: str, count: int) -> None:
    """Raises UnsupportedError unless a verification takes so many tokens of a request.

    `what`: where the count comes from, say "q has T".
    """
    if not 1 <= count <= MOST_TOKENS:
        raise UnsupportedError(
            f"{function}: {what} = {count} tokens per request; supported: 1 to {MOST_TOKENS}"
        )


def require_steps(
    function: str, name: str, buffer: Any, rows: int | None, steps: int, state: Any
) -> None:
    """Raises unless a buffer is [rows or more, steps or more, ..] of states as `state`
    [slots, ..] has them, and of its dtype.  `rows` None: any number.
    """
    inner = tuple(state.shape[1:])
    shape = tuple(buffer.shape)
    least = 0 if rows is None else rows
    if len(shape) != 2 + len(inner) or shape[2:] != inner or shape[0] < least or shape[1] < steps:
        form = f"[{'rows' if rows is None else f'{rows} or more'}, {steps} or more"
        raise InvalidArgumentError(
            f"{function}: {name} has shape {list(shape)}; expected "
            f"{form}, {', '.join(str(extent) for extent in inner)}]"
        )
    dtypes = [_arrays.dtype_name(array) for array in (buffer, state)]
    if dtypes[0] != dtypes[1]:
        raise UnsupportedError(
            f"{function}: {name} is {dtypes[0]} and the states are {dtypes[1]}; supported: the "
            "same dtype"
        )


def pool_of_steps(function: str, name: str, buffer: Any) -> tuple[Any, int]:
    """A buffer [rows, steps, ..] as a pool [slots, ..], and the number of slots from one row to the
    next.  It is the same memory: rows may lie further apart than their steps need.
    """
    rows, steps = buffer.shape[:2]
    if rows == 1:
        return buffer[0], steps
    if steps == 1:
        return buffer[:, 0], 1
    strides = arguments.strides(buffer)
    apart, gap = divmod(strides[0], max(strides[1], 1)) if rows > 0 else (steps, 0)
    if gap != 0 or apart < steps or strides[1] <= 0:
        raise InvalidArgumentError(
            f"{function}: {name} has strides {strides[0]}, {strides[1]} of rows and steps; "
            "expected rows that are whole steps apart, and do not overlap"
        )
    if apart == steps:
        return buffer.reshape(rows * steps, *buffer.shape[2:]), apart
    slots = (rows - 1) * apart + steps
    return arguments.as_strided(buffer, (slots, *buffer.shape[2:]), strides[1:]), apart


def slots_of_rows(rows: Any, apart: int, steps: int) -> Any:
    """[N, steps]: the slots in a pool_of_steps() of the steps of N rows; all negative where the row
    is."""
    return rows[:, None] * apart + _arrays.arange(rows, steps)


def slots_of_first_rows(like: Any, count: int, apart: int, steps: int) -> Any:
    """As slots_of_rows() of rows 0 to count - 1, in `like`'s dtype."""
    return _arrays.arange(like, count * apart).reshape(count, apart)[:, :steps]


def kept_in_first_rows(
    function: str, buffer: Any, requests: int, tokens: int, state: Any, read: Any
) -> dict[str, Any]:
    """run()'s steps and step_slots of an intermediate_states_buffer whose row n is request n's.
    `read`: the slots of `state`, None where that is dense."""
    name = "intermediate_states_buffer"
    require_steps(function, name, buffer, requests, tokens, state)
    if read is None:
        return {"steps": buffer[:requests], "step_slots": None}
    steps, apart = pool_of_steps(function, name, buffer[:requests])
    return {"steps": steps, "step_slots": slots_of_first_rows(read, requests, apart, tokens)}


def parents_of(rows: Any, packed: bool) -> Any:
    """What gdn_verify takes as parents: [N, T], packed [N T].  The first token of a request is a
    root, whatever its row says."""
    parents = rows.clone() if hasattr(rows, "clone") else rows.copy()
    parents[:, :1] = -1
    return parents.reshape(-1) if packed else parents


def run(
    rows: tuple[Any, ...],
    *,
    state: Any,
    read: Any = None,
    write: Any = None,
    update: bool,
    steps: Any = None,
    step_slots: Any = None,
    **options: Any,
) -> Any:
    """functional.gdn_verify of `rows`: q, k, v, and what it takes as g and beta.

    The states before the first tokens are those that `read` names of `state`.  With `update` those
    after the last ones go where `write` says (None: where they were read).  With `steps` those
    after each token go there, to `step_slots` in a pool.  An operator keeps either: two launches do
    both, the first of which leaves `state` as it is, which is then not `steps`.
    """
    if steps is not None:
        out = functional.gdn_verify(
            *rows, state=state, state_indices=read, state_out=steps, state_out_indices=step_slots,
            stored_states="every", **options,
        )  # fmt: skip
        if not update:
            return out
        options["out"] = out
    return functional.gdn_verify(
        *rows, state=state, state_indices=read, state_out_indices=write if update else None,
        store_state=update, **options,
    )  # fmt: skip
