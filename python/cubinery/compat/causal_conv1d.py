"""causal-conv1d's functions (Dao-AILab), and a convolution that splits q, k and v, by cubinery.

States are [.., dim, columns], the last inputs, the newest in the last column.  x and states may have
channels or tokens next to each other in memory: strides say.  Inference only: there is no backward
pass.  Importing this module imports neither torch nor causal-conv1d.
"""

from __future__ import annotations

from typing import Any

from cubinery import _arrays, functional
from cubinery._errors import InvalidArgumentError, UnsupportedError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _convolution as convolution

_LARGEST_HEAD = 256
_HEAD_STEP = 8


def causal_conv1d_fn(
    x: Any,
    weight: Any,
    bias: Any = None,
    seq_idx: Any = None,
    initial_states: Any = None,
    return_final_states: bool = False,
    final_states_out: Any = None,
    activation: str | None = None,
    **kwargs: Any,
) -> Any:
    """causal-conv1d's function of this name: whole sequences.

    x [B, D, L], `weight` [D, W], `bias` [D].  `initial_states` [B, D, W - 1] are not written.
    Returns y in x's shape; with `return_final_states` (y, the final states [B, D, W - 1]), which are
    `final_states_out` if given.  Unlike there, x may have any layout with final states too.

    Raises UnsupportedError for `seq_idx` and for inputs that require grad while grad is enabled;
    InvalidArgumentError for `final_states_out` without `return_final_states`.
    """
    name = "causal_conv1d.causal_conv1d_fn"
    arguments.refuse_unknown(name, kwargs)
    arguments.refuse_given(
        name, "pack the sequences and pass cu_seqlens to cubinery.gdn_conv", seq_idx=seq_idx
    )
    arguments.refuse_autograd(name, x=x, weight=weight, bias=bias, initial_states=initial_states)
    arguments.require_rank(name, "x", x, "[B, D, L]")
    arguments.require_rank(name, "weight", weight, "[D, W]")
    return_final_states = arguments.flag(name, "return_final_states", return_final_states)
    if final_states_out is not None and not return_final_states:
        raise InvalidArgumentError(f"{name}: final_states_out needs return_final_states")
    shape = (x.shape[0], x.shape[1], weight.shape[1] - 1)
    final = final_states_out
    if return_final_states and final is None:
        like = x if initial_states is None else initial_states
        dtype = _arrays.dtype_of("x", like)
        final = _arrays.empty(x, (shape[0], shape[2], shape[1]), dtype).swapaxes(1, 2)
    for what, states in {"initial_states": initial_states, "final_states_out": final}.items():
        if states is not None:
            arguments.require_shape(name, what, states, shape)
            arguments.require_state_dtype(name, what, states)
    y = convolution.run(
        x, weight, bias, activation=convolution.activation_of(name, activation),
        state=initial_states, state_out=final, store_state=return_final_states,
    )  # fmt: skip
    return (y, final) if return_final_states else y


def causal_conv1d_update(
    x: Any,
    conv_state: Any,
    weight: Any,
    bias: Any = None,
    activation: str | None = None,
    cache_seqlens: Any = None,
    conv_state_indices: Any = None,
    **kwargs: Any,
) -> Any:
    """causal-conv1d's function of this name: one token or a few, on states updated in place.

    x [B, D] or [B, D, L], `conv_state` [B, D, W - 1 or W], or [slots, D, ..] with
    `conv_state_indices` [B]; a negative index is padding: the output is zero and no state is
    touched.  With `cache_seqlens` [B], int32, `conv_state` has W - 1 or more columns and is a
    circular buffer: input i of a sequence is in column i mod columns, and x[n] are its inputs from
    cache_seqlens[n] on.  Returns y in x's shape.

    Raises UnsupportedError for states of more than W columns without `cache_seqlens`, which
    cubinery would not shift, and for inputs that require grad while grad is enabled.
    """
    name = "causal_conv1d.causal_conv1d_update"
    arguments.refuse_unknown(name, kwargs)
    options: dict[str, Any] = {}
    if cache_seqlens is None:
        convolution.require_shifted_window(name, "conv_state", conv_state, weight)
    else:
        convolution.require_window(name, "conv_state", conv_state, weight)
        arguments.require_shape(name, "cache_seqlens", cache_seqlens, (x.shape[0],))
        options["cache_seqlens"] = cache_seqlens
    arguments.refuse_autograd(name, x=x, weight=weight, bias=bias, conv_state=conv_state)
    if len(x.shape) != 2:
        arguments.require_rank(name, "x", x, "[B, D, L]")
    if conv_state_indices is not None:
        arguments.require_shape(name, "conv_state_indices", conv_state_indices, (x.shape[0],))
        options |= {
            "state_indices": conv_state_indices,
            "pad_slot_id": -1,
            "zero_padding": True,
        }
    return convolution.run(
        x, weight, bias, activation=convolution.activation_of(name, activation), state=conv_state,
        **options,
    )  # fmt: skip


def causal_conv1d_split_qkv(
    x: Any,
    weight: Any,
    bias: Any,
    conv_states: Any,
    query_start_loc: Any,
    k_dim: int,
    v_dim: int,
    cache_indices: Any = None,
    has_initial_state: Any = None,
    activation: bool | str | None = "silu",
    pad_slot_id: int = -1,
    **kwargs: Any,
) -> tuple[Any, Any, Any]:
    """The engines' causal_conv1d_fn whose outputs are q, k and v: [T, k_dim] twice and [T, v_dim].

    x [2 k_dim + v_dim, T], the tokens of N sequences, whose bounds are `query_start_loc` [N + 1];
    `conv_states` [slots, dim, W - 1 or more] are updated in place at `cache_indices` [N].  All else
    is as in vllm.causal_conv1d_fn().

    Raises UnsupportedError unless k_dim and v_dim are multiples of 8 that can be cut into heads of
    up to 256, the one count a multiple of the other; otherwise as there.
    """
    name = "causal_conv1d.causal_conv1d_split_qkv"
    arguments.refuse_unknown(name, kwargs)
    if query_start_loc is None:
        raise InvalidArgumentError(f"{name}: query_start_loc is required")
    options = convolution.prefill_options(
        name, x, weight, bias, conv_states, query_start_loc, cache_indices, has_initial_state,
        activation, pad_slot_id,
    )  # fmt: skip
    if x.shape[0] != 2 * k_dim + v_dim:
        raise InvalidArgumentError(
            f"{name}: x has {x.shape[0]} channels; expected 2 k_dim + v_dim = {2 * k_dim + v_dim}"
        )
    heads, v_heads = _heads(name, k_dim, v_dim)
    tokens, dtype = x.shape[1], _arrays.dtype_of("x", x)
    q, k, v = (_arrays.empty(x, (tokens, dim), dtype) for dim in (k_dim, k_dim, v_dim))
    functional.gdn_conv(
        x.swapaxes(0, 1), weight, bias, q_heads=heads, k_heads=heads, v_heads=v_heads,
        key_dim=k_dim // heads, value_dim=v_dim // v_heads,
        q=q.reshape(tokens, heads, k_dim // heads), k=k.reshape(tokens, heads, k_dim // heads),
        v=v.reshape(tokens, v_heads, v_dim // v_heads), **options,
    )  # fmt: skip
    return q, k, v


def _heads(function: str, k_dim: int, v_dim: int) -> tuple[int, int]:
    """The fewest heads of keys and of values that the operator takes: without norms and gates it
    does not matter which."""
    counts = []
    for name, dim in {"k_dim": k_dim, "v_dim": v_dim}.items():
        if dim < _HEAD_STEP or dim % _HEAD_STEP != 0:
            raise UnsupportedError(
                f"{function}: {name} is {dim}; supported: multiples of {_HEAD_STEP}"
            )
        dims = range(_HEAD_STEP, _LARGEST_HEAD + 1, _HEAD_STEP)
        counts.append([dim // head for head in dims if dim % head == 0])
    fitting = [
        (max(k, v), k, v) for k in counts[0] for v in counts[1] if max(k, v) % min(k, v) == 0
    ]
    if not fitting:
        raise UnsupportedError(
            f"{function}: k_dim is {k_dim} and v_dim {v_dim}; supported: widths of heads of up to "
            f"{_LARGEST_HEAD}, the one count a multiple of the other"
        )
    return min(fitting)[1:]
