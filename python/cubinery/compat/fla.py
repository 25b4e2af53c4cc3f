"""flash-linear-attention's gated delta rule and causal convolution (FLA 0.5 and 0.6), and its Kimi
Delta Attention (0.6), run by cubinery.

The functions take FLA's arguments and return what FLA returns: `o` in the dtype of the inputs and,
with `output_final_state`, the final states in f32, [N, HV, K, V] or [N, HV, V, K] with
`state_v_first`.  `register()` puts cubinery into FLA's own dispatch, so that code which imports
chunk_gated_delta_rule, chunk_kda or fused_recurrent_kda from FLA runs it unchanged.

Inference only: there is no backward pass.  Importing this module imports neither torch nor FLA.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from cubinery import _arrays, functional
from cubinery._errors import Error, InvalidArgumentError, UnsupportedError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _convolution as convolution
from cubinery.compat import _fla_ranks as fla_ranks
from cubinery.compat._fla_call import checked as checked
from cubinery.compat._fla_call import refuse_unknown
from cubinery.compat._fla_gdn import chunk_gated_delta_rule as chunk_gated_delta_rule
from cubinery.compat._fla_gdn import chunk_gdn as chunk_gdn
from cubinery.compat._fla_gdn import (
    fused_recurrent_gated_delta_rule as fused_recurrent_gated_delta_rule,
)
from cubinery.compat._fla_gdn import fused_recurrent_gdn as fused_recurrent_gdn
from cubinery.compat._fla_kda import chunk_kda as chunk_kda
from cubinery.compat._fla_kda import fused_recurrent_kda as fused_recurrent_kda
from cubinery.compat._fla_kda import fused_recurrent_kda_fwd as fused_recurrent_kda_fwd

_CONV = "fla.causal_conv1d"
_CONV_UPDATE = "fla.causal_conv1d_update"
# Below FlashQLA's 3 and FLA's default of 5: the lower one is asked first.
_PRIORITY = 1


def causal_conv1d(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    residual: Any = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    activation: str | None = None,
    backend: str | None = "triton",
    cu_seqlens: Any = None,
    cu_seqlens_cpu: Any = None,
    chunk_indices: Any = None,
    cp_context: Any = None,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """FLA's function of this name.

    x [B, T, D], or with D in several dimensions; `weight` [D, W], `bias` [D]; with `cu_seqlens`
    [N + 1] B is 1 and T the tokens of all sequences.  `initial_state` [N, D, W] in f32, bf16 or f16
    is not written.  `residual`, of x's shape, is added to y.  Returns (y, the final states [N, D, W]
    in x's dtype or None).

    `backend`, cu_seqlens_cpu and chunk_indices tell FLA how to do its work.  cubinery has its own
    way: they are accepted and not read.

    `cp_context`: as of chunk_gated_delta_rule(); the first W - 1 sums of a sequence that comes from
    another rank have that rank's last inputs.  One of several sequences without cu_seqlens_cpu
    costs a wait for the device.

    Raises InvalidArgumentError for shapes that do not fit, unknown keywords and contexts of others,
    UnsupportedError for `seq_idx` and inputs that require grad while grad is enabled.
    """
    arguments.refuse_given(_CONV, "pass cu_seqlens", seq_idx=kwargs.pop("seq_idx", None))
    refuse_unknown(_CONV, kwargs)
    arguments.require_value(_CONV, "backend", backend, ("triton", "cuda", "mix"))
    rows = _channel_rows(_CONV, x, weight, residual)
    arguments.refuse_autograd(
        _CONV, x=x, weight=weight, bias=bias, residual=residual, initial_state=initial_state
    )
    arguments.require_rank(_CONV, "x", rows, "[B, T, D]")
    on_rank = fla_ranks.rank_context(_CONV, cp_context)
    if on_rank is not None:
        cu_seqlens = on_rank.cu_seqlens
    if cu_seqlens is not None and rows.shape[0] != 1:
        raise InvalidArgumentError(
            f"{_CONV}: x has a batch of {rows.shape[0]}; expected 1 with cu_seqlens, the sequences "
            "behind each other"
        )
    sequences = rows.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    shape = (sequences, *weight.shape)
    arguments.require_initial_state(_CONV, initial_state, shape)
    wanted = arguments.flag(_CONV, "output_final_state", output_final_state)
    if on_rank is None:
        final, options = _final_windows(x, initial_state, shape, wanted)
    else:
        final, options = fla_ranks.new_states(x, initial_state, shape, wanted)
        options |= on_rank.options(rows.shape[1])
    y = functional.gdn_conv(
        rows, weight, bias, activation=convolution.activation_of(_CONV, activation),
        cu_seqlens=cu_seqlens, **options,
    ).reshape(x.shape)  # fmt: skip
    if residual is not None:
        y += residual
    return y, arguments.of_dtype(final, x)


def causal_conv1d_update(
    x: Any,
    cache: Any,
    residual: Any = None,
    weight: Any = None,
    bias: Any = None,
    activation: str | None = None,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """FLA's function of this name: one token of N sequences.

    x [N, D], [1, N, D] or [N, 1, D]; `cache` [N, D, W], updated in place; `residual`, of x's shape,
    is added to y.  Returns (y, cache).

    Raises InvalidArgumentError without `weight` or `cache` and for shapes that do not fit,
    UnsupportedError for inputs that require grad while grad is enabled.
    """
    refuse_unknown(_CONV_UPDATE, kwargs)
    rows = _channel_rows(_CONV_UPDATE, x, weight, residual)
    arguments.refuse_autograd(
        _CONV_UPDATE, x=x, weight=weight, bias=bias, residual=residual, cache=cache
    )
    if cache is None:
        raise InvalidArgumentError(f"{_CONV_UPDATE}: cache is required")
    if len(rows.shape) == 3 and rows.shape[0] == 1:
        rows = rows[0]
    elif len(rows.shape) == 3 and rows.shape[1] == 1:
        rows = rows[:, 0]
    if len(rows.shape) != 2:
        raise InvalidArgumentError(
            f"{_CONV_UPDATE}: x has shape {list(x.shape)}; expected [N, D], [1, N, D] or [N, 1, D]"
        )
    arguments.require_shape(_CONV_UPDATE, "cache", cache, (rows.shape[0], *weight.shape))
    arguments.require_state_dtype(_CONV_UPDATE, "cache", cache)
    y = convolution.run(
        rows, weight, bias, activation=convolution.activation_of(_CONV_UPDATE, activation),
        state=cache,
    ).reshape(x.shape)  # fmt: skip
    if residual is not None:
        y += residual
    return y, cache


def _channel_rows(function: str, x: Any, weight: Any, residual: Any) -> Any:
    """x with its channels in one dimension: FLA lets heads have their own."""
    if weight is None:
        raise InvalidArgumentError(f"{function}: weight is required")
    arguments.require_rank(function, "weight", weight, "[D, W]")
    if residual is not None:
        arguments.require_shape(function, "residual", residual, tuple(x.shape))
    if len(x.shape) > 3:
        return x.reshape(*x.shape[:2], -1)
    return x


def _final_windows(
    x: Any, initial_state: Any, shape: tuple[int, ...], wanted: bool
) -> tuple[Any, dict[str, Any]]:
    """Final states of a convolution (None unless `wanted`), in x's dtype or in f32, and the options
    of functional.gdn_conv that read `initial_state`, which is not written, and fill them."""
    if not wanted:
        return None, {"state": initial_state, "store_state": False}
    dtype = _arrays.dtype_of("x", x)
    if initial_state is None or _arrays.dtype_name(initial_state) == dtype:
        final = _arrays.empty(x, shape, dtype)
        return final, {"state": initial_state, "state_out": final}
    # f32 holds what either of the two does.
    final = _arrays.empty(x, shape, "f32")
    final[...] = initial_state
    return final, {"state": final}


# FLA's registry.  A backend, once in it, cannot be taken out; unregister() turns ours off.
_enabled = False
_backend: Any = None


def register() -> None:
    """Makes FLA's chunk_gated_delta_rule, and from 0.6 on its chunk_kda and fused_recurrent_kda, run
    cubinery wherever that can honour the call.

    Every other call (training, CPU tensors, ...) goes on to FLA's other backends; FLA logs the
    reason at level INFO.  FLA_CUBINERY=0 in the environment turns it off.  Its
    fused_recurrent_gated_delta_rule knows no backends: import this module's in its place.

    Raises ImportError without FLA, UnsupportedError when FLA's dispatch is off
    (FLA_DISABLE_BACKEND_DISPATCH=1).
    """
    global _backend, _enabled
    if _backend is None:
        _backend = _register_backend()
    _enabled = True


def unregister() -> None:
    """Undoes register().  Does nothing without it."""
    global _enabled
    _enabled = False


def _register_backend() -> Any:
    try:
        from fla import backends as dispatch  # 0.6
    except ImportError:
        from fla.ops import backends as dispatch  # 0.5
    if os.environ.get("FLA_DISABLE_BACKEND_DISPATCH") == "1":
        raise UnsupportedError(
            "fla.register: FLA_DISABLE_BACKEND_DISPATCH=1 turns FLA's backends off; unset it "
            "before FLA is imported"
        )
    backend_class = _backend_class(dispatch.BaseBackend)
    if hasattr(dispatch, "register"):
        from fla.ops.kda import chunk_kda as entry_point  # it has backends of its own

        for operation in ("gated_delta_rule", "kda", entry_point):
            dispatch.register(operation)(backend_class)
    else:
        from fla.ops.gated_delta_rule.backends import gdr_registry

        gdr_registry.register(backend_class())
    return backend_class


def _backend_class(base: type) -> type:
    """A backend as FLA's dispatch asks for: the function under its name, and its verifier."""

    class CubineryBackend(base):  # type: ignore[misc]  # known when FLA is imported
        """Gated DeltaNet's prefill, and Kimi Delta Attention, by cubinery."""

        backend_type = "cubinery"
        env_var = "FLA_CUBINERY"
        priority = _PRIORITY

        @classmethod
        def is_enabled(cls) -> bool:
            return _enabled and os.environ.get(cls.env_var, "1") != "0"

        # FLA passes on what its caller passed.
        def chunk_gated_delta_rule_verifier(
            self, *args: Any, **kwargs: Any
        ) -> tuple[bool, str | None]:
            return _verify(chunk_gated_delta_rule, *args, **kwargs)

        def chunk_gated_delta_rule(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
            return chunk_gated_delta_rule(*args, **kwargs)

        def chunk_kda_verifier(self, *args: Any, **kwargs: Any) -> tuple[bool, str | None]:
            return _verify(chunk_kda, *args, **kwargs)

        def chunk_kda(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
            return chunk_kda(*args, **kwargs)

        def fused_recurrent_kda_fwd_verifier(
            self, *args: Any, **kwargs: Any
        ) -> tuple[bool, str | None]:
            return _verify(fused_recurrent_kda_fwd, *args, **kwargs)

        def fused_recurrent_kda_fwd(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
            return fused_recurrent_kda_fwd(*args, **kwargs)

    return CubineryBackend


def _verify(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[bool, str | None]:
    """Whether the function can honour the call, and if not why."""
    try:
        checked(function, *args, **kwargs).require_kernels()
    except (Error, TypeError) as refusal:
        return False, str(refusal)
    return True, None
