"""Gated DeltaNet and Kimi Delta Attention layers of Hugging Face Transformers, run by cubinery.

`enable()` puts cubinery behind the functions that these layers call: the causal convolution and the
gated delta rule, of prefills and of decoding steps.  Weights, caches and generate() stay theirs.
`disable()` undoes it.  What cubinery does not do (training, torch.compile, CPU tensors) still runs
the function that was there; with logging at INFO that is said once, with the reason.

Importing this module imports neither torch nor Transformers.
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from cubinery import functional
from cubinery._errors import Error, InvalidArgumentError, UnsupportedError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _convolution as convolution
from cubinery.compat import fla

__all__ = ["disable", "enable"]

_logger = logging.getLogger(__name__)

# Of transformers.models; a release has those of its time.
_MODELS = (
    "qwen3_next", "qwen3_5", "qwen3_5_moe", "olmo_hybrid", "qwen4_exp", "lara_mini", "kimi_linear",
    "glm5_next", "bailing_hybrid",
)  # fmt: skip
_SUPPORTED = "supported: Transformers 5.15 and newer, and enable(model) for models of 5.0 to 5.14"
_WIDTHS = (2, 3, 4)

# What runs a call of ours, or an Error that says why the call is left to Transformers.
_Prepared = Callable[[], Any]


def enable(model: Any = None) -> None:
    """Makes Gated DeltaNet and Kimi Delta Attention layers of Transformers run cubinery wherever that
    can honour the call.

    It replaces functions of the modules that define these layers, so it holds for models built
    before and after, whatever their weights.  Calling it again changes nothing.

    Args:
        model: only the modules of this model's classes; None: all that the installed Transformers
            has, which imports them.  Before 5.15 layers hold functions of their own: `model` is
            needed, and built.

    Raises:
        ImportError: Transformers is not installed.
        InvalidArgumentError: `model` has no such layers, or is no torch.nn.Module.
        UnsupportedError: the installed Transformers has no such functions.
    """
    with _lock:
        _said.cache_clear()
        if model is None:
            places = [(module, _functions_of(module)) for module in _known_modules()]
        else:
            places = list(_places_of(model))
        for owner, functions in places:
            for name, prepare in functions.items():
                _replace(owner, name, prepare)


def disable() -> None:
    """Undoes every enable(): the functions that were there are there again."""
    with _lock:
        while _replaced:
            reference, name, original = _replaced.pop()
            owner = reference()
            if owner is not None:
                setattr(owner, name, original)


_lock = threading.Lock()
# What enable() has replaced: in which module (or layer, which may be gone), the name, what it was.
_replaced: list[tuple[weakref.ref[Any], str, Any]] = []


def _replace(owner: Any, name: str, prepare: Callable[..., _Prepared]) -> None:
    original = vars(owner)[name]
    if hasattr(original, "_cubinery_prepare"):
        return
    _replaced.append((weakref.ref(owner), name, original))
    setattr(owner, name, _offered(prepare, name, original))


def _offered(prepare: Callable[..., _Prepared], name: str, original: Any) -> Callable[..., Any]:
    """A function that offers each call to cubinery, and else calls `original`."""
    import torch

    def function(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            return original(*args, **kwargs)  # logging would break the graph
        try:
            run = prepare(*args, **kwargs)
        except Error as refusal:
            _said(str(refusal))
            return original(*args, **kwargs)
        return run()

    function.__name__ = function.__qualname__ = name
    function.__doc__ = getattr(original, "__doc__", None)
    function._cubinery_prepare = prepare  # type: ignore[attr-defined]
    return function


@functools.lru_cache(maxsize=256)
def _said(refusal: str) -> None:
    _logger.info("%s: Transformers' own function runs instead", refusal)


# --- where the functions are


def _known_modules() -> list[ModuleType]:
    """Modules of the installed Transformers that define such layers."""
    import transformers

    modules = []
    for model in _MODELS:
        name = f"transformers.models.{model}.modeling_{model}"
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:  # another release's
            continue
        if _functions_of(module):
            modules.append(module)
    if not modules:
        raise UnsupportedError(
            f"transformers.enable: Transformers {transformers.__version__} has no functions of "
            f"Gated DeltaNet layers to replace; {_SUPPORTED}"
        )
    return modules


def _functions_of(module: ModuleType) -> dict[str, Callable[..., _Prepared]]:
    """What a module that defines layers has of ours; empty: it defines none."""
    names = vars(module)
    # Before 5.15 a module has both: what FLA has, or None, and torch_chunk_gated_delta_rule.
    if "chunk_gated_delta_rule" in names:
        return {}
    found = (each for each in _FUNCTIONS if all(callable(names.get(name)) for name in each))
    return next(found, {})


def _places_of(model: Any) -> Iterator[tuple[Any, dict[str, Callable[..., _Prepared]]]]:
    """The modules of the model's classes with the functions they define, or its layers with those
    that they hold."""
    if not callable(getattr(model, "modules", None)):
        raise InvalidArgumentError(
            f"model: {type(model).__name__}; accepted: a torch.nn.Module, or None"
        )
    layers = list(model.modules())
    names = {cls.__module__ for layer in layers for cls in type(layer).__mro__}
    modules = [sys.modules[name] for name in sorted(names) if name in sys.modules]
    found = {module: _functions_of(module) for module in modules}
    found = {module: functions for module, functions in found.items() if functions}
    yield from found.items()
    holders = [layer for layer in layers if _RULES <= vars(layer).keys()]
    for layer in holders:
        held = vars(layer)
        yield layer, {name: _HELD[name] for name in _HELD if callable(held.get(name))}
    if not found and not holders:
        raise InvalidArgumentError(
            f"model: {type(model).__name__} has no layers of Gated DeltaNet or Kimi Delta Attention; "
            f"{_SUPPORTED}"
        )


# --- the functions; arguments are theirs

# Keywords of the whole model's call: its layers hand them on to every function, which are called
# without those that they do not name.
_OF_THE_MODEL = frozenset(
    (
        "attention_mask", "cache", "cache_params", "cache_position", "cu_seq_lens_k",
        "cu_seq_lens_q", "input_ids", "is_causal", "logits_to_keep", "max_length_k", "max_length_q",
        "num_items_in_batch", "output_attentions", "output_hidden_states", "output_router_logits",
        "past_key_values", "position_embeddings", "position_ids", "return_dict", "seq_idx",
        "use_cache",
    )
)  # fmt: skip


def _refuse_unknown(function: str, keywords: dict[str, Any]) -> None:
    arguments.refuse_unknown(
        function, {name: keywords[name] for name in keywords.keys() - _OF_THE_MODEL}
    )


def _require_plain(function: str, name: str, array: Any) -> None:
    """Raises UnsupportedError for tensors that stand for others: fake ones, distributed ones."""
    import torch

    if isinstance(array, torch.Tensor) and type(array) not in (torch.Tensor, torch.nn.Parameter):
        raise UnsupportedError(
            f"{function}: {name} is a {type(array).__name__}; supported: plain tensors"
        )


def _prepare_convolution(
    hidden_states: Any = None,
    weight: Any = None,
    bias: Any = None,
    activation: str | None = None,
    *,
    x: Any = None,
    seq_idx: Any = None,
    cu_seq_lens_q: Any = None,
    **kwargs: Any,
) -> _Prepared:
    """causal_conv1d_fn: hidden_states [B, D, T] from zeros; packed sequences have `seq_idx`."""
    function = "causal_conv1d_fn"
    _refuse_unknown(function, kwargs)
    x = hidden_states if x is None else x
    _check_convolution(function, x, weight, bias, activation)
    bounds = None
    if seq_idx is not None:
        bounds = _bounds(function, x, seq_idx, cu_seq_lens_q)
    return functools.partial(_convolve, x, weight, bias, activation, cu_seqlens=bounds)


def _bounds(function: str, x: Any, seq_idx: Any, cu_seqlens: Any) -> Any:
    """The bounds of packed sequences, which `seq_idx` tells apart."""
    if cu_seqlens is None or tuple(seq_idx.shape) != (1, x.shape[2]) or x.shape[0] != 1:
        raise UnsupportedError(
            f"{function}: seq_idx has shape {list(seq_idx.shape)} for {list(x.shape)}; supported: "
            "[1, T] for [1, D, T], with cu_seq_lens_q"
        )
    return cu_seqlens


def _prepare_update(
    hidden_states: Any,
    conv_state: Any,
    weight: Any,
    bias: Any = None,
    activation: str | None = None,
    **kwargs: Any,
) -> _Prepared:
    """causal_conv1d_update: hidden_states [B, D, T] behind conv_state [B, D, W], which goes on."""
    function = "causal_conv1d_update"
    _refuse_unknown(function, kwargs)
    _check_convolution(function, hidden_states, weight, bias, activation)
    arguments.refuse_autograd(function, conv_state=conv_state)
    channels = tuple(hidden_states.shape[:2])
    arguments.require_shape(function, "conv_state", conv_state, (*channels, weight.shape[1]))
    arguments.require_state_dtype(function, "conv_state", conv_state)
    return functools.partial(_convolve, hidden_states, weight, bias, activation, state=conv_state)


def _check_convolution(function: str, x: Any, weight: Any, bias: Any, activation: Any) -> None:
    _require_plain(function, "hidden_states", x)
    arguments.require_rank(function, "hidden_states", x, "[B, D, T]")
    arguments.require_value_dtype(function, "hidden_states", x)
    arguments.require_value_dtype(function, "weight", weight)
    arguments.require_value(function, "the width of weight", weight.shape[1], _WIDTHS)
    convolution.activation_of(function, activation)
    arguments.refuse_autograd(function, hidden_states=x, weight=weight, bias=bias)
    arguments.require_gpu(function, "hidden_states", x)


def _convolve(x: Any, weight: Any, bias: Any, activation: str | None, **options: Any) -> Any:
    """[B, D, T], whose memory is [B, T, D], as the layers go on with it."""
    options["activation"] = "silu" if activation else "none"
    y = functional.gdn_conv(x.swapaxes(1, 2), _detached(weight), _detached(bias), **options)
    return y.swapaxes(1, 2)


def _detached(array: Any) -> Any:
    """Without autograd, which is off: DLPack hands on no array that requires grad."""
    return array.detach() if getattr(array, "requires_grad", False) else array


def _prepare_chunk(
    query: Any,
    key: Any,
    value: Any,
    g: Any,
    beta: Any,
    chunk_size: int = 64,
    initial_state: Any = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Any = None,
    **kwargs: Any,
) -> _Prepared:
    """torch_chunk_gated_delta_rule: shapes as in FLA; chunk_size lays out theirs."""
    _refuse_unknown("chunk_gated_delta_rule", kwargs)
    _require_plain("chunk_gated_delta_rule", "query", query)
    call = fla.checked(
        fla.chunk_gated_delta_rule, query, key, value, g, beta, None, initial_state,
        output_final_state, use_qk_l2norm_in_kernel, cu_seqlens=cu_seqlens,
    )  # fmt: skip
    call.require_kernels()
    return call.run


def _advanced(call: Any) -> _Prepared:
    """The state of one token is that of the cache, which the layer overwrites with the new one: it is
    advanced in place."""
    call.require_kernels()
    return functools.partial(call.run, in_place=True)


def _prepare_recurrent(
    query: Any,
    key: Any,
    value: Any,
    g: Any,
    beta: Any,
    initial_state: Any = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Any = None,
    **kwargs: Any,
) -> _Prepared:
    """torch_recurrent_gated_delta_rule."""
    _refuse_unknown("fused_recurrent_gated_delta_rule", kwargs)
    _require_plain("fused_recurrent_gated_delta_rule", "query", query)
    call = fla.checked(
        fla.fused_recurrent_gated_delta_rule, query, key, value, g, beta=beta,
        initial_state=initial_state, output_final_state=output_final_state,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, cu_seqlens=cu_seqlens,
    )  # fmt: skip
    return _advanced(call)


def _prepare_chunk_kda(
    query: Any,
    key: Any,
    value: Any,
    g: Any,
    beta: Any,
    chunk_size: int = 64,
    initial_state: Any = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    *,
    cu_seq_lens_q: Any = None,
    **kwargs: Any,
) -> _Prepared:
    """chunk_kimi_delta_attention: g [B, T, H, K] is a logarithm; chunk_size lays out theirs.  Of packed
    sequences the layers hand on the bounds as the model got them."""
    _refuse_unknown("chunk_kimi_delta_attention", kwargs)
    _require_plain("chunk_kimi_delta_attention", "query", query)
    call = fla.checked(
        fla.chunk_kda, query, key, value, g, beta, None, initial_state, output_final_state,
        use_qk_l2norm_in_kernel, cu_seqlens=cu_seq_lens_q,
    )  # fmt: skip
    call.require_kernels()
    return call.run


def _prepare_recurrent_kda(
    query: Any,
    key: Any,
    value: Any,
    g: Any,
    beta: Any,
    initial_state: Any = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **kwargs: Any,
) -> _Prepared:
    """recurrent_kimi_delta_attention, as _prepare_recurrent(): g [B, T, H, K] is a logarithm."""
    _refuse_unknown("recurrent_kimi_delta_attention", kwargs)
    _require_plain("recurrent_kimi_delta_attention", "query", query)
    call = fla.checked(
        fla.fused_recurrent_kda, query, key, value, g, beta, initial_state=initial_state,
        output_final_state=output_final_state, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
    )  # fmt: skip
    return _advanced(call)


_CONVOLUTIONS: dict[str, Callable[..., _Prepared]] = {
    "causal_conv1d_fn": _prepare_convolution,
    "causal_conv1d_update": _prepare_update,
}
# Of a module that has all of one.
_FUNCTIONS: tuple[dict[str, Callable[..., _Prepared]], ...] = (
    _CONVOLUTIONS
    | {
        "torch_chunk_gated_delta_rule": _prepare_chunk,
        "torch_recurrent_gated_delta_rule": _prepare_recurrent,
    },
    _CONVOLUTIONS
    | {
        "chunk_kimi_delta_attention": _prepare_chunk_kda,
        "recurrent_kimi_delta_attention": _prepare_recurrent_kda,
    },
)
# Attributes of layers before Transformers 5.15.  Without the package causal_conv1d its function is
# None, and the layer runs torch's convolution.
_HELD: dict[str, Callable[..., _Prepared]] = _CONVOLUTIONS | {
    "chunk_gated_delta_rule": _prepare_chunk,
    "recurrent_gated_delta_rule": _prepare_recurrent,
}
_RULES = {"chunk_gated_delta_rule", "recurrent_gated_delta_rule"}
