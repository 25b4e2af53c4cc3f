"""What functions infer of a problem besides the dtypes of its arrays and which of them are there,
and what they allocate.

scripts/print_fields.py reads the rules, the first that fits a field: it hands each the arrays and
options that its parameters name, as far as the function has them, and the default of a field.
Parameters that neither has become the function's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, get_args

from cubinery import _arrays
from cubinery import ranks as _ranks
from cubinery._arrays import dtype_of, dtype_or, heads, ranked_shape, shape_of, strides_of
from cubinery._errors import InvalidArgumentError, refuse
from cubinery.problems import (
    BetaMode,
    Checkpoints,
    ConvBetaMode,
    ConvProblem,
    ConvStateLayout,
    Decay,
    Dtype,
    GateMode,
    OutputNorm,
)
from cubinery.ranks import Share

Rule = TypeVar("Rule", bound=Callable[..., Any])


def infers(*fields: str, op: str = "") -> Callable[[Rule], Rule]:
    """Marks a rule for these fields; op: of this operator's problems only."""
    return lambda rule: rule


MOST_TOKENS = 16  # that any verification takes of a request
_CHECKPOINT_MODES = get_args(Checkpoints)
_SPLIT_FIELDS = ("q_heads", "k_heads", "v_heads", "key_dim", "value_dim")
_UNSPLIT = tuple(getattr(ConvProblem, name) for name in _SPLIT_FIELDS)

# ---- Sizes --------------------------------------------------------------------------------------


def _sizes(q: Any, k: Any, v: Any, ranks: tuple[int, ...], axis: int) -> tuple[int, ...]:
    q_heads, key_dim = heads("q", q, ranks, axis)
    k_heads, _ = heads("k", k, ranks, axis)
    v_heads, value_dim = heads("v", v, ranks, axis)
    return q_heads, k_heads, v_heads, key_dim, value_dim


@infers("q_heads", "k_heads", "v_heads", "key_dim", "value_dim", op="gdn_decode")
def step_sizes(q: Any, k: Any, v: Any) -> tuple[int, ...]:
    return _sizes(q, k, v, (3, 4), -2)


@infers(
    "q_heads", "k_heads", "v_heads", "key_dim", "value_dim", "width", "split_qkv", op="gdn_conv"
)
def conv_sizes(
    x: Any,
    weight: Any,
    cu_seqlens: Any,
    q_heads: int | None = None,
    k_heads: int | None = None,
    v_heads: int | None = None,
    key_dim: int | None = None,
    value_dim: int | None = None,
) -> tuple[Any, ...]:
    """q_heads, k_heads, v_heads, key_dim, value_dim: the channels are q's heads behind each other,
    then k's, then v's, and become q, k and v. None, all of them: y is written."""
    ranked_shape("x", x, (3,) if cu_seqlens is None else (2, 3))
    _, width = ranked_shape("weight", weight, (2,))
    sizes = (q_heads, k_heads, v_heads, key_dim, value_dim)
    if all(size is None for size in sizes):
        return (*_UNSPLIT, width, False)
    for name, size in zip(_SPLIT_FIELDS, sizes):
        if size is None:
            refuse(name, size, f"an int, as {', '.join(_SPLIT_FIELDS)} are, or None for all")
    return (*sizes, width, True)


@infers("q_heads", "k_heads", "v_heads", "key_dim", "value_dim")
def sizes(q: Any, k: Any, v: Any, cu_seqlens: Any, token_layout: str = "bthd") -> tuple[int, ...]:
    ranks = (4,) if cu_seqlens is None else (3, 4)
    return _sizes(q, k, v, ranks, -3 if token_layout == "bhtd" else -2)


# ---- Modes --------------------------------------------------------------------------------------


@infers("output_dtype")
def output_dtype(q: Any, out: Any, output_dtype: Dtype | None = None) -> str:
    """output_dtype: None: out's, else q's."""
    return output_dtype or (dtype_of("q", q) if out is None else dtype_of("out", out))


@infers("gate_mode", op="gdn_conv")
def conv_gate_mode(a: Any, lower_bound: float | None) -> str:
    if a is None:
        return "none"
    return "computed" if lower_bound is None else "lower_bound"


@infers("gate_mode")
def gate_mode(
    g: Any, A_log: Any, lower_bound: float | None, gate_mode: GateMode | None = None
) -> str:
    """gate_mode: "none"; "log": g; "alpha": exp(g); "computed": a, with
    g = -exp(A_log) softplus(a + dt_bias); "lower_bound": a, with
    g = lower_bound sigmoid(exp(A_log) (a + dt_bias)). None: "none" without g, "lower_bound" with
    lower_bound, "computed" with A_log, else "log"."""
    if gate_mode is not None:
        return gate_mode
    if g is None:
        return "none"
    if lower_bound is not None:
        return "lower_bound"
    return "log" if A_log is None else "computed"


@infers("decay", op="gdn_conv")
def conv_decay(x: Any, a: Any, decay: Decay | None = None) -> str:
    """decay: "head": a token and head has one (Gated DeltaNet); "channel": one for each of key_dim
    channels (Kimi Delta Attention). None: "channel" where a has one dimension more than x."""
    if decay is not None:
        return decay
    has_row = a is not None and len(shape_of("a", a)) > len(shape_of("x", x))
    return "channel" if has_row else "head"


@infers("decay", op="gdn_decode")
def step_decay(q: Any, k: Any, v: Any, g: Any, decay: Decay | None = None) -> str:
    """decay: "head": a token and head has one (Gated DeltaNet); "channel": one for each of key_dim
    channels (Kimi Delta Attention). None: "channel" where g ends in heads, key_dim."""
    if decay is not None:
        return decay
    of_q, of_k, of_v = shape_of("q", q), shape_of("k", k), shape_of("v", v)
    rows = (max(of_q[-2], of_k[-2], of_v[-2]), of_k[-1])
    of_g = () if g is None else shape_of("g", g)
    return "channel" if len(of_g) > 2 and of_g[-2:] == rows else "head"


@infers("decay")
def decay(k: Any, g: Any, decay: Decay | None = None) -> str:
    """decay: "head": a token and head has one (Gated DeltaNet); "channel": one for each of key_dim
    channels (Kimi Delta Attention). None: "channel" where g has as many dimensions as k."""
    if decay is not None:
        return decay
    has_row = g is not None and len(shape_of("g", g)) == len(shape_of("k", k))
    return "channel" if has_row else "head"


@infers("beta_mode", op="gdn_conv")
def conv_beta_mode(b: Any, beta_mode: ConvBetaMode | None = None) -> str:
    """beta_mode: "logit": beta is b's sigmoid; "doubled_logit": twice that. None: "logit" with
    b."""
    return ("one" if b is None else "logit") if beta_mode is None else beta_mode


@infers("beta_mode")
def beta_mode(beta: Any, beta_mode: BetaMode | None = None) -> str:
    """beta_mode: "one"; "given"; "logit": its sigmoid; "doubled_logit": twice that. None: "one"
    without beta, else "given"."""
    return ("one" if beta is None else "given") if beta_mode is None else beta_mode


@infers("output_norm")
def output_norm(z: Any, output_norm: OutputNorm | None = None) -> str:
    """output_norm: "none"; out is normalised over value_dim, weighted and gated, "gated_rms": by
    silu(z), "sigmoid_gated_rms": by sigmoid(z). None: "none" without z, else "gated_rms"."""
    if output_norm is not None:
        return output_norm
    return "none" if z is None else "gated_rms"


@infers("draft_tokens")
def draft_tokens(draft_tokens: int | None = None) -> int:
    """draft_tokens: the most tokens of a request, 1 to 16. None: 16."""
    return MOST_TOKENS if draft_tokens is None else draft_tokens


# ---- Ranks ----------------------------------------------------------------------------------------


@infers("context_parallel")
def context_parallel(context_parallel: bool = False, share: Share | None = None) -> bool:
    """context_parallel: sequences may be spread over several GPUs, which launch a prefill in three
    steps; so they are with share."""
    return bool(context_parallel) or share is not None


@infers("segment_tokens")
def segment_tokens(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens: Any,
    token_layout: str = "bthd",
    segment_tokens: int | None = None,
    share: Share | None = None,
) -> int:
    """segment_tokens: tokens of the segments that sequences are cut into, a multiple of 64
    (context_parallel). None: 8192; with share ranks.segment_tokens() of its tokens, so ranks with
    other numbers of tokens give it."""
    if segment_tokens is not None:
        return segment_tokens
    *of_heads, _, value_dim = sizes(q, k, v, cu_seqlens, token_layout)
    return _ranks.segment_tokens_of(share, max(of_heads), value_dim)


# ---- States -------------------------------------------------------------------------------------


@infers("checkpoints")
def checkpoint_mode(checkpoint_mode: Checkpoints = "none") -> str:
    """checkpoint_mode: "none"; "before": states before tokens 0, N, 2N... are kept; "after": those
    after tokens N, 2N...; "at": those after as many tokens as checkpoint_offsets says."""
    if checkpoint_mode not in _CHECKPOINT_MODES:  # the problem calls it otherwise
        refuse("checkpoint_mode", checkpoint_mode, ", ".join(map(repr, _CHECKPOINT_MODES)))
    return checkpoint_mode


_LONGEST_CHUNK, _SHORTEST_CHUNK = 64, 16  # tokens


@infers("checkpoint_every", op="gdn_conv")
def window_grain(checkpoints: Any, checkpoint_every: int = 64) -> int:
    """checkpoint_every: tokens from one checkpoint to the next; without meaning for "at"."""
    return ConvProblem.checkpoint_every if checkpoints is None else 1  # launches have multiples


@infers("checkpoint_every")
def checkpoint_grain(checkpoints: Any, checkpoint_every: int = 64) -> int:
    """checkpoint_every: tokens from one checkpoint to the next, or what offsets are multiples of; a
    multiple of 16."""
    if checkpoints is None:
        return _LONGEST_CHUNK  # the default
    # One problem, whose kernels suit them all, for the strides that a chunk of this size divides.
    return max(math.gcd(checkpoint_every, _LONGEST_CHUNK), _SHORTEST_CHUNK)


@infers("state_layout", "whole_window", op="gdn_conv")
def window_layout(
    weight: Any,
    state: Any,
    state_out: Any,
    checkpoints: Any,
    stored_states: str,
    accepted: Any,
    cache_seqlens: Any,
    state_layout: ConvStateLayout | None = None,
) -> tuple[str, bool]:
    """state_layout: "columns" lie next to each other in memory, or "channels". None: as state's
    strides say (torch, cupy), else "columns". It is what is fast; any strides are read."""
    named = (("state", state), ("state_out", state_out), ("checkpoints", checkpoints))
    name, kept = next((each for each in named if each[1] is not None), ("state", None))
    if kept is None:
        return state_layout or "columns", False
    has_steps = stored_states == "every"
    shape = ranked_shape(name, kept, (3, 4) if has_steps else (3,))
    if state_layout is None:
        strides = strides_of(kept)
        is_turned = strides is not None and strides[-2] == 1 and strides[-1] != 1
        state_layout = "channels" if is_turned else "columns"
    is_long = cache_seqlens is not None or (accepted is not None and not has_steps)
    return state_layout, not is_long and shape[-1] == weight.shape[1]


@infers("state_dtype", "index_dtype", "state_location", "has_initial_state", "store_state")
def states(
    state_dtype_default: str,
    state: Any,
    state_out: Any,
    state_indices: Any,
    state_out_indices: Any,
    store_state: bool = True,
    checkpoints: Any = None,
    checkpoint_slots: Any = None,
) -> tuple[Any, ...]:
    """store_state: False: new states are not kept."""
    if state_out is not None and not store_state:
        raise InvalidArgumentError("state_out: given; accepted: None, store_state is False")
    kept = state_out if state is None else state
    why_no_indices = {
        "state_indices": "without state and state_out" if kept is None else "",
        "state_out_indices": _why_no_out_indices(state, kept, state_indices),
    }
    indices = {"state_indices": state_indices, "state_out_indices": state_out_indices}
    for name, why in why_no_indices.items():
        if why and indices[name] is not None:
            raise InvalidArgumentError(f"{name}: given; accepted: None, {why}")
    named = ("checkpoint_slots", checkpoint_slots)
    if state_indices is not None:
        named = ("state_indices", state_indices)
    return (
        dtype_or("state", checkpoints if kept is None else kept, state_dtype_default),
        dtype_or(*named, "i32"),
        "dense" if state_indices is None else "pool",
        state is not None,
        bool(store_state) and kept is not None,
    )


def _why_no_out_indices(state: Any, kept: Any, state_indices: Any) -> str:
    """Why there are no state_out_indices; empty: there may be."""
    if kept is None:
        return "without state and state_out"
    if state_indices is not None:
        return ""
    if state is None:
        return "without state_indices, which say where new states go that start from zero"
    return "without state_indices: both states are pools, or neither is"


# ---- Outputs ------------------------------------------------------------------------------------


class ConvOutputs(NamedTuple):
    """What a convolution makes with a split: operands of a prefill, decode or verification."""

    q: Any
    k: Any
    v: Any
    g: Any = None  # the decay's logarithm; None without a
    beta: Any = None  # None without b


def heads_axis(problem: Any) -> int:
    """Of q, k, v and out; tokens are along the other of the two."""
    return -3 if getattr(problem, "token_layout", "bthd") == "bhtd" else -2


def new_out(problem: Any, q: Any, v: Any) -> Any:
    """Of v's shape with the problem's heads."""
    shape = list(v.shape)
    shape[heads_axis(problem)] = problem.heads
    return _arrays.empty(q, tuple(shape), problem.output_dtype)


def new_conv_outputs(
    problem: ConvProblem, x: Any, y: Any, q: Any, k: Any, v: Any, g: Any, beta: Any
) -> tuple[Any, ...]:
    """y and the others: those that are given, and what the problem writes besides."""
    *tokens, channels = x.shape
    if not problem.split_qkv:
        if y is None:
            y = _arrays.empty(x, (*tokens, channels), problem.dtype)
        return y, q, k, v, g, beta

    def made(array: Any, dtype: str, *shape: int) -> Any:
        return _arrays.empty(x, (*tokens, *shape), dtype) if array is None else array

    q = made(q, problem.dtype, problem.q_heads, problem.key_dim)
    k = made(k, problem.dtype, problem.k_heads, problem.key_dim)
    v = made(v, problem.dtype, problem.v_heads, problem.value_dim)
    if problem.gate_mode != "none":
        row = (problem.key_dim,) if problem.decay == "channel" else ()
        g = made(g, "f32", problem.heads, *row)
    if problem.beta_mode != "one":
        beta = made(beta, "f32", problem.heads)
    return y, q, k, v, g, beta
