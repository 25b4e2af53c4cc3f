"""What the adapters do for causal convolutions: layouts of x, and states of functional.gdn_conv."""

from __future__ import annotations

from typing import Any

from cubinery import _arrays, functional
from cubinery._errors import InvalidArgumentError, UnsupportedError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _engines as engines
from cubinery.compat import _verify as verification
from cubinery.problems import ConvActivation


def activation_of(function: str, activation: bool | str | None) -> ConvActivation:
    """functional's name of an activation."""
    arguments.require_value(
        function, "activation", activation, (None, "silu", "swish", True, False)
    )
    return "silu" if activation else "none"


def require_window(function: str, name: str, states: Any, weight: Any) -> int:
    """The inputs that a sum needs beside its own, W - 1.  Raises unless `states` are
    [slots, dim, W - 1 or more], of a dtype that states are stored in, and weight [dim, W].
    """
    arguments.require_rank(function, "weight", weight, "[dim, W]")
    arguments.require_rank(function, name, states, "[slots, dim, columns]")
    arguments.require_state_dtype(function, name, states)
    columns = int(weight.shape[1]) - 1
    if states.shape[2] < columns:
        raise InvalidArgumentError(
            f"{function}: {name} has shape {list(states.shape)}; expected [slots, dim, {columns} "
            "or more], one column less than weight"
        )
    return columns


def require_shifted_window(function: str, name: str, states: Any, weight: Any) -> int:
    """require_window() of states that move by as many columns as there are tokens, the newest input
    in the last.  Raises UnsupportedError for more than W columns, which cubinery would not move.
    """
    columns = require_window(function, name, states, weight)
    if states.shape[2] > columns + 1:
        raise UnsupportedError(
            f"{function}: {name} has {states.shape[2]} columns; supported: {columns} or "
            f"{columns + 1} with a weight of {columns + 1}, the newest input in the last"
        )
    return columns


def run(x: Any, weight: Any, bias: Any, y: Any = None, **options: Any) -> Any:
    """functional.gdn_conv of x [.., channels, tokens], or of [B, channels], one token each.  Returns
    `y`, or a new one in x's shape, whose channels lie next to each other if x's do.
    """
    if len(x.shape) == 2 and options.get("cu_seqlens") is None:
        rows = None if y is None else y[:, None]
        return functional.gdn_conv(x[:, None], weight, bias, y=rows, **options)[:, 0]
    y = _empty_as(x) if y is None else y
    functional.gdn_conv(x.swapaxes(-1, -2), weight, bias, y=y.swapaxes(-1, -2), **options)
    return y


def _empty_as(x: Any) -> Any:
    *lead, channels, tokens = x.shape
    dtype, strides = _arrays.dtype_of("x", x), _arrays.strides_of(x)
    if strides is None or strides[-2] != 1:
        return _arrays.empty(x, (*lead, channels, tokens), dtype)
    return _arrays.empty(x, (*lead, tokens, channels), dtype).swapaxes(-1, -2)


def _pool(
    function: str,
    states: tuple[str, Any],
    indices: tuple[str, Any],
    requests: int,
    pad_slot_id: int,
) -> dict[str, Any]:
    """functional.gdn_conv's options of a pool and its indices, both with their names; without
    indices request n has row n."""
    (name, pool), (indices_name, slots) = states, indices
    if slots is None:
        return {"state": engines.rows_of(function, name, pool, requests, "[N, dim, columns]")}
    return {
        "state": pool,
        "state_indices": engines.rows_of(function, indices_name, slots, requests, "[N]"),
        **engines.zeroed_padding(function, pad_slot_id),
    }


def prefill_options(
    function: str,
    x: Any,
    weight: Any,
    bias: Any,
    conv_states: Any,
    query_start_loc: Any,
    cache_indices: Any,
    has_initial_state: Any,
    activation: bool | str | None,
    pad_slot_id: int,
) -> dict[str, Any]:
    """functional.gdn_conv's options of the engines' causal_conv1d_fn, checked; x is [dim, T] with
    query_start_loc, [B, dim, T] without.

    Without has_initial_state all sequences start from zeros.  Of the states' columns the first
    W - 1 count.
    """
    arguments.refuse_autograd(function, x=x, weight=weight, bias=bias, conv_states=conv_states)
    form = "[B, dim, T]" if query_start_loc is None else "[dim, T]"
    arguments.require_rank(function, "x", x, form)
    options: dict[str, Any] = {
        "activation": activation_of(function, activation),
        "cu_seqlens": query_start_loc,
    }
    if conv_states is None:
        for name, array in {
            "cache_indices": cache_indices,
            "has_initial_state": has_initial_state,
        }.items():
            if array is not None:
                raise InvalidArgumentError(f"{function}: {name} needs conv_states")
        return options
    requests = engines.count_requests(x, query_start_loc)
    columns = require_window(function, "conv_states", conv_states, weight)
    states, indices = conv_states[:, :, :columns], ("cache_indices", cache_indices)
    options |= _pool(function, ("conv_states", states), indices, requests, pad_slot_id)
    if has_initial_state is None:
        options["state_out"] = options.pop("state")
    else:
        options["has_initial_state"] = engines.rows_of(
            function, "has_initial_state", has_initial_state, requests, "[N]"
        )
    return options


def update(
    function: str,
    x: Any,
    conv_state: Any,
    weight: Any,
    bias: Any,
    activation: bool | str | None,
    conv_state_indices: Any,
    accepted: tuple[str, Any],
    query_start_loc: Any,
    max_query_len: int,
    pad_slot_id: int,
    *,
    newest_last: bool,
    out: Any = None,
) -> Any:
    """The engines' causal_conv1d_update; their docstrings state it.  `accepted`: a name and counts.

    x is [N, dim] or [N, dim, T]; with query_start_loc [T, dim], the tokens of all requests.
    `newest_last`: without counts, the newest input is in the last column that there is, instead of
    in column W - 2.
    """
    arguments.refuse_autograd(function, x=x, weight=weight, bias=bias, conv_state=conv_state)
    packed, (accepted_name, counts) = query_start_loc is not None, accepted
    if packed or len(x.shape) == 2:
        arguments.require_rank(function, "x", x, "[T, dim]" if packed else "[N, dim]")
    else:
        arguments.require_rank(function, "x", x, "[N, dim, T]")
    requests = x.shape[0]
    if packed:
        if conv_state_indices is None:
            raise InvalidArgumentError(f"{function}: query_start_loc needs conv_state_indices")
        requests = min(query_start_loc.shape[0] - 1, conv_state_indices.shape[0])
        query_start_loc = engines.rows_of(
            function, "query_start_loc", query_start_loc, requests + 1, "[N]"
        )
    columns = require_window(function, "conv_state", conv_state, weight)
    options: dict[str, Any] = {}
    if counts is None and newest_last:
        require_shifted_window(function, "conv_state", conv_state, weight)
    elif counts is None:
        conv_state = conv_state[:, :, :columns]
    else:
        counts = engines.rows_of(function, accepted_name, counts, requests, "[N]")
        options["accepted"] = counts
        _require_room(function, x, conv_state, columns, packed, max_query_len)
    indices = ("conv_state_indices", conv_state_indices)
    options |= _pool(function, ("conv_state", conv_state), indices, requests, pad_slot_id)
    options["activation"] = activation_of(function, activation)
    if out is not None:
        require_output(function, x, out)
    if packed:
        y = functional.gdn_conv(x, weight, bias, y=out, cu_seqlens=query_start_loc, **options)
    else:
        y = run(x, weight, bias, out, **options)
    return y if out is None else out


def update_with_windows(
    function: str,
    x: Any,
    conv_state: Any,
    weight: Any,
    bias: Any,
    activation: bool | str | None,
    conv_state_indices: Any,
    accepted: tuple[str, Any],
    windows: Any,
    rows: Any,
    pad_slot_id: int,
    *,
    cache_seqlens: Any,
    **tree: Any,
) -> Any:
    """causal_conv1d_update of SGLang and of TensorRT-LLM, whose adapters' docstrings state it."""
    arguments.refuse_given(
        function, "the newest input is in the last column", cache_seqlens=cache_seqlens
    )
    arguments.refuse_given(function, "drafts are chains of tokens", **tree)
    if windows is not None or rows is not None:
        arguments.refuse_given(function, "windows after each token, without it", **dict([accepted]))
        keep_windows(
            function, x, conv_state, weight, bias, activation, conv_state_indices,
            ("intermediate_conv_window", windows), ("intermediate_state_indices", rows),
            pad_slot_id,
        )  # fmt: skip
    return update(
        function, x, conv_state, weight, bias, activation, conv_state_indices, accepted, None, -1,
        pad_slot_id, newest_last=True,
    )  # fmt: skip


def update_to_slots(
    function: str,
    x: Any,
    conv_state: Any,
    weight: Any,
    bias: Any,
    activation: bool | str | None,
    conv_state_indices: Any,
    written: tuple[str, Any],
    pad_slot_id: int,
) -> Any:
    """The window of request n is read at conv_state_indices[n], from the first columns on; the one
    after its token t goes to the slot [n, t] of `written`, [N, T] with its name.  Returns y."""
    arguments.refuse_autograd(function, x=x, weight=weight, bias=bias, conv_state=conv_state)
    if conv_state_indices is None:
        raise InvalidArgumentError(f"{function}: {written[0]} needs conv_state_indices")
    tokens = x.shape[2] if len(x.shape) == 3 else 1
    verification.require_tokens(function, "x has T", tokens)
    columns = require_window(function, "conv_state", conv_state, weight)
    indices = ("conv_state_indices", conv_state_indices)
    options = _pool(
        function, ("conv_state", conv_state[:, :, :columns]), indices, x.shape[0], pad_slot_id
    )
    slots = engines.rows_of(function, *written, x.shape[0], "[N, T]")
    arguments.require_shape(function, written[0], slots, (x.shape[0], tokens))
    slots = arguments.of_dtype(slots, conv_state_indices)
    if tokens == 1:
        options["state_out_indices"] = slots[:, 0]
    else:
        options |= {"state_out_indices": slots, "stored_states": "every"}
    return run(x, weight, bias, activation=activation_of(function, activation), **options)


def require_output(function: str, x: Any, out: Any) -> None:
    """Raises InvalidArgumentError unless y may go to `out`."""
    arguments.require_shape(function, "out", out, tuple(x.shape))
    dtypes = [_arrays.dtype_name(array) for array in (out, x)]
    if dtypes[0] != dtypes[1]:
        raise InvalidArgumentError(f"{function}: out is {dtypes[0]}; expected {dtypes[1]}, as x")
    if out is x:
        raise InvalidArgumentError(f"{function}: out is x; expected other memory: x is only read")


def keep_windows(
    function: str,
    x: Any,
    conv_state: Any,
    weight: Any,
    bias: Any,
    activation: bool | str | None,
    conv_state_indices: Any,
    windows: tuple[str, Any],
    rows: tuple[str, Any],
    pad_slot_id: int,
) -> None:
    """Writes the windows after each token of x [N, dim, T] or [N, dim]: of request n to row
    rows[n] of `windows` [rows, steps, dim, W - 1], both with their names.  `conv_state`, whose
    newest input is in the last column, is only read.
    """
    (name, buffer), (rows_name, numbers) = windows, rows
    arguments.refuse_autograd(function, x=x, weight=weight, bias=bias, conv_state=conv_state)
    if (buffer is None) != (numbers is None):
        raise InvalidArgumentError(f"{function}: {name} and {rows_name} belong together")
    if conv_state_indices is None:
        raise InvalidArgumentError(f"{function}: {name} needs conv_state_indices")
    columns = require_shifted_window(function, "conv_state", conv_state, weight)
    tokens = x.shape[2] if len(x.shape) == 3 else 1
    verification.require_tokens(function, "x has T", tokens)
    states = conv_state[:, :, conv_state.shape[2] - columns :]
    verification.require_steps(function, name, buffer, None, tokens, states)
    numbers = engines.rows_of(function, rows_name, numbers, x.shape[0], "[N]")
    steps, apart = verification.pool_of_steps(function, name, buffer)
    slots = verification.slots_of_rows(
        arguments.of_dtype(numbers, conv_state_indices), apart, buffer.shape[1]
    )
    indices = ("conv_state_indices", conv_state_indices)
    options = _pool(function, ("conv_state", states), indices, x.shape[0], pad_slot_id)
    run(
        x, weight, bias, activation=activation_of(function, activation), state_out=steps,
        state_out_indices=slots, stored_states="every", **options,
    )  # fmt: skip


def _require_room(
    function: str, x: Any, conv_state: Any, columns: int, packed: bool, max_query_len: int
) -> None:
    """Raises where the host sees that a request has more tokens than its state has room for."""
    tokens = max_query_len if packed else x.shape[2] if len(x.shape) == 3 else 1
    least = columns + tokens - 1
    if conv_state.shape[2] < least:
        what = "max_query_len is" if packed else "x has T ="
        raise InvalidArgumentError(
            f"{function}: {what} {tokens} and conv_state has {conv_state.shape[2]} columns; "
            f"expected {least} or more, W - 2 + T"
        )
