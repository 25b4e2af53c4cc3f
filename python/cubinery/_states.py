"""What functions that infer a problem make of states and their indices."""

from __future__ import annotations

from typing import Any

from cubinery._arrays import dtype_or
from cubinery._errors import InvalidArgumentError


def check_states(state: Any, state_out: Any, store_state: bool, indices: tuple[Any, Any]) -> None:
    """Refuses what the inferred problem could not say."""
    if state_out is not None and not store_state:
        raise InvalidArgumentError("state_out: given; accepted: None, store_state is False")
    if state is None and state_out is None:
        for name, array in zip(("state_indices", "state_out_indices"), indices):
            if array is not None:
                raise InvalidArgumentError(
                    f"{name}: given; accepted: None, without state and state_out"
                )


STATE_FIELDS = (
    "state_dtype",
    "index_dtype",
    "state_location",
    "padding",
    "pad_index",
    "has_initial_state",
    "store_state",
)


def state_values(
    state: Any, state_out: Any, store_state: bool, state_indices: Any, padding: str, pad_index: str,
    default_dtype: str = "f32",
) -> tuple[Any, ...]:  # fmt: skip
    """Those of STATE_FIELDS."""
    return (
        dtype_or("state", state_out if state is None else state, default_dtype),
        dtype_or("state_indices", state_indices, "i32"),
        "dense" if state_indices is None else "pool",
        padding,
        pad_index,
        state is not None,
        bool(store_state) and (state is not None or state_out is not None),
    )
