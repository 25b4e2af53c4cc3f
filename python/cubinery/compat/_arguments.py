"""What the adapters do with arguments before they hand them on."""

from __future__ import annotations

import math
from typing import Any

from cubinery import _arrays
from cubinery._errors import InvalidArgumentError, UnsupportedError
from cubinery.problems import Segments

VALUE_DTYPES = STATE_DTYPES = ("f32", "bf16", "f16")
_LEAST_BOUND = -5.0  # what gate_mode lower_bound tells kernels
_CPU = 1  # DLPack's number of the host
# By use_cp.
_SEGMENTS: dict[str | bool, Segments] = {"auto": "auto", True: "always", False: "never"}


def refuse_autograd(function: str, **arrays: Any) -> None:
    """Raises UnsupportedError when autograd would later ask for a gradient: there is none."""
    for name, array in arrays.items():
        if not getattr(array, "requires_grad", False):
            continue
        import torch

        if torch.is_grad_enabled():
            raise UnsupportedError(
                f"{function}: {name} requires grad, and cubinery has no backward pass; call it "
                "under torch.no_grad() or torch.inference_mode(), or detach the inputs"
            )


def refuse_unknown(function: str, keywords: dict[str, Any]) -> None:
    """Raises InvalidArgumentError for the first keyword, of those that an adapter does not know,
    whose value is not None: None asks for nothing."""
    for name in sorted(keywords):
        if keywords[name] is not None:
            raise InvalidArgumentError(f"{function}: unknown argument {name}")


def refuse_given(function: str, supported: str, **arguments: Any) -> None:
    """Raises UnsupportedError for the first of `arguments` that is neither None nor False."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise UnsupportedError(f"{function}: {name} is not supported; {supported}")


def flag(function: str, name: str, value: Any) -> bool:
    """The flag's truth, as Python has it.  Raises InvalidArgumentError for an array: its truth may
    lie on a device, and a captured graph would not see it change."""
    if value is True or value is False:
        return bool(value)
    _refuse_array(function, name, value, "True or False")
    return bool(value)


def refuse_set(function: str, supported: str, **flags: Any) -> None:
    """Raises UnsupportedError for the first of `flags` that is true."""
    refuse_given(
        function, supported, **{name: flag(function, name, value) for name, value in flags.items()}
    )


def _refuse_array(function: str, name: str, value: Any, supported: str) -> None:
    if hasattr(value, "__dlpack__"):
        raise InvalidArgumentError(
            f"{function}: {name} is an array ({type(value).__name__}); supported: {supported}"
        )


def require_value(function: str, name: str, value: Any, accepted: tuple[object, ...]) -> None:
    """Raises InvalidArgumentError unless `value` is one of `accepted`."""
    _refuse_array(function, name, value, " or ".join(repr(choice) for choice in accepted))
    if value not in accepted:
        choices = " or ".join(repr(choice) for choice in accepted)
        raise InvalidArgumentError(f"{function}: {name} is {value!r}; supported: {choices}")


def require_shape(function: str, name: str, array: Any, shape: tuple[int, ...]) -> None:
    """Raises InvalidArgumentError unless `array` has this shape."""
    if tuple(array.shape) != shape:
        raise InvalidArgumentError(
            f"{function}: {name} has shape {list(array.shape)}; expected {list(shape)}"
        )


def require_rank(function: str, name: str, array: Any, form: str) -> None:
    """Raises InvalidArgumentError unless `array` has the rank of `form`, say "[B, T, H, K]"."""
    if len(array.shape) != form.count(",") + 1:
        raise InvalidArgumentError(
            f"{function}: {name} has shape {list(array.shape)}; expected {form}"
        )


def require_state_dtype(function: str, name: str, array: Any) -> None:
    """Raises UnsupportedError unless a state has a dtype that cubinery stores states in."""
    dtype = _arrays.dtype_name(array)
    if dtype not in STATE_DTYPES:
        raise UnsupportedError(
            f"{function}: {name} is {dtype}; supported state dtypes: {', '.join(STATE_DTYPES)}"
        )


def require_value_dtype(function: str, name: str, array: Any) -> None:
    """Raises UnsupportedError unless an array has a dtype that operators read values in."""
    dtype = _arrays.dtype_name(array)
    if dtype not in VALUE_DTYPES:
        raise UnsupportedError(
            f"{function}: {name} is {dtype}; supported: {', '.join(VALUE_DTYPES)}"
        )


def require_gpu(function: str, name: str, array: Any) -> None:
    """Raises InvalidArgumentError or UnsupportedError unless kernels can run where torch's `array`
    is."""
    device = _arrays.device_of(array, f"{function}: {name}")
    import torch

    if torch.version.cuda is None or torch.cuda.get_device_capability(device) < (8, 0):
        raise UnsupportedError(f"{function}: the device is no NVIDIA GPU of sm_80 or newer")


def strides(array: Any) -> tuple[int, ...]:
    """In elements."""
    if callable(getattr(array, "stride", None)):  # torch
        return tuple(array.stride())
    return tuple(stride // array.itemsize for stride in array.strides)


def _copied(array: Any) -> Any:
    return array.contiguous() if hasattr(array, "contiguous") else array.copy()


def as_strided(array: Any, shape: tuple[int, ...], by: tuple[int, ...]) -> Any:
    """A view of the array's memory from its first element on, with strides `by` in elements."""
    if hasattr(array, "as_strided"):  # torch
        return array.as_strided(shape, by)
    module: Any = _arrays.library(array)
    return module.lib.stride_tricks.as_strided(
        array, shape, tuple(stride * array.itemsize for stride in by)
    )


def of_dtype(array: Any, like: Any) -> Any:
    """`array`, or a copy in `like`'s dtype."""
    if array is None or array.dtype == like.dtype:
        return array
    return array.to(like.dtype) if hasattr(array, "to") else array.astype(like.dtype)


def unit_rows(array: Any) -> Any:
    """`array`, or a copy if its innermost stride is not 1: the replaced functions copy too."""
    if array is None or array.shape[-1] <= 1 or strides(array)[-1] == 1:
        return array
    return _copied(array)


def begins_in_vectors(array: Any, width: int) -> bool:
    """Whether the array's rows, or slots, begin at multiples of `width` elements, as far as is known."""
    by = _arrays.strides_of(array)
    return by is None or array.shape[0] <= 1 or by[0] % width == 0


def vector_rows(array: Any, width: int) -> Any:
    """`array` [rows, channels], or a copy if its rows do not begin at multiples of `width` elements."""
    array = unit_rows(array)
    return array if begins_in_vectors(array, width) else _copied(array)


def whole_matrices(state: Any) -> Any:
    """A state that is only read, or a copy where its matrices do not lie without gaps."""
    if state is None or strides(state)[-2:] == (state.shape[-1], 1):
        return state
    return _copied(state)


def require_initial_state(function: str, state: Any, shape: tuple[int, ...]) -> None:
    """Raises unless `state` is None, or has this shape and a dtype that states are stored in."""
    if state is not None:
        require_shape(function, "initial_state", state, shape)
        require_state_dtype(function, "initial_state", state)


def longest_sequence(cu_seqlens: Any, tokens: int) -> int | None:
    """Tokens of the longest of some sequences, whose bounds are in an array on the host.

    None: there is no such array, or it cannot be the bounds of `tokens` tokens.
    """
    if not hasattr(cu_seqlens, "__dlpack_device__") or cu_seqlens.__dlpack_device__()[0] != _CPU:
        return None  # another device's would have to be waited for
    lengths = cu_seqlens[1:] - cu_seqlens[:-1]
    longest = int(lengths.max()) if len(lengths) > 0 else 0
    return longest if 0 < longest <= tokens else None


def final_states(
    q: Any, initial_state: Any, shape: tuple[int, ...], wanted: bool, in_place: bool = False
) -> tuple[Any, dict[str, Any]]:
    """A new f32 array for final states (None unless `wanted`), and the options of functional's that
    read `initial_state`, which is not written, and fill it.

    `in_place`: `initial_state` itself, if that is f32, instead of a new array.
    """
    state = whole_matrices(initial_state)
    if not wanted:
        return None, {"state": state, "store_state": False}
    if in_place and state is initial_state is not None and _arrays.dtype_name(state) == "f32":
        return state, {"state": state}
    final = _arrays.empty(q, shape, "f32")
    if state is None or _arrays.dtype_name(state) == "f32":
        return final, {"state": state, "state_out": final}
    final[...] = state  # f32 holds every bf16 and f16 value; advanced in place
    return final, {"state": final}


def segments_of(function: str, use_cp: str | bool) -> Segments:
    """functional.gdn_prefill's segments, by FlashInfer's use_cp."""
    require_value(function, "use_cp", use_cp, tuple(_SEGMENTS))
    return _SEGMENTS[use_cp]


def checkpoints_after(
    function: str, every: int, checkpoints: Any, cu_starts: Any, cu_seqlens: Any
) -> dict[str, Any]:
    """functional.gdn_prefill's options for FlashInfer's checkpoints; empty: there are none."""
    given = {"state_checkpoints": checkpoints, "checkpoint_cu_starts": cu_starts}
    if every < 0 or every % 64 != 0:
        raise InvalidArgumentError(
            f"{function}: checkpoint_every_n_tokens is {every}; expected 0 or a multiple of 64"
        )
    for which, array in given.items():
        if (array is None) != (every == 0):
            wanted = "missing" if array is None else "given without checkpoint_every_n_tokens"
            raise InvalidArgumentError(f"{function}: {which} is {wanted}")
    if every == 0:
        return {}
    require_state_dtype(function, "state_checkpoints", checkpoints)
    return {
        "checkpoints": checkpoints,
        "checkpoint_mode": "after",
        "checkpoint_every": every,
        "checkpoint_cu_starts": of_dtype(cu_starts, cu_seqlens),
    }


def channel_decay(
    function: str,
    A_log: Any,
    dt_bias: Any,
    lower_bound: float | None,
    heads: int,
    key_dim: int,
    names: tuple[str, str] = ("A_log", "dt_bias"),
) -> dict[str, Any]:
    """functional's options of a decay for each channel that the kernel makes of a, as Kimi Delta
    Attention has it: by softplus, or above `lower_bound`.

    `A_log` [heads], or with further dimensions of 1 ([1, 1, HV, 1]), is required without
    `lower_bound`; `dt_bias` [heads, key_dim] or flat, or None.  `names`: the caller's of the two.
    """
    if lower_bound is None:
        if A_log is None:
            raise InvalidArgumentError(f"{function}: {names[0]} is required without lower_bound")
    else:
        _refuse_array(function, "lower_bound", lower_bound, "a number below 0, or None")
        if not -math.inf < lower_bound < 0:
            raise InvalidArgumentError(
                f"{function}: lower_bound is {lower_bound}; expected a number below 0, or None"
            )
        if lower_bound < _LEAST_BOUND:
            raise UnsupportedError(
                f"{function}: lower_bound is {lower_bound}; supported: {_LEAST_BOUND} to below 0"
            )
    if dt_bias is not None and tuple(dt_bias.shape) not in ((heads, key_dim), (heads * key_dim,)):
        raise InvalidArgumentError(
            f"{function}: {names[1]} has shape {list(dt_bias.shape)}; expected "
            f"[{heads}, {key_dim}] or [{heads * key_dim}]"
        )
    return {
        "decay": "channel",
        "gate_mode": "computed" if lower_bound is None else "lower_bound",
        "A_log": _of_heads(function, names[0], A_log, heads),
        "dt_bias": dt_bias,
        "lower_bound": lower_bound,
    }


def _of_heads(function: str, name: str, array: Any, heads: int) -> Any:
    """A value per head as [heads]: its other dimensions are 1."""
    if array is None or tuple(array.shape) == (heads,):
        return array
    if math.prod(array.shape) != heads or max(array.shape) != heads:
        raise InvalidArgumentError(
            f"{function}: {name} has shape {list(array.shape)}; expected [{heads}] or "
            f"[1, 1, {heads}, 1]"
        )
    return array.reshape(heads)


def zeros(like: Any, shape: tuple[int, ...]) -> Any:
    """f32 zeros beside `like`."""
    array = _arrays.empty(like, shape, "f32")
    array[...] = 0
    return array
