"""What calls of FLA's functions share: checked when they are made, run afterwards."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec

from cubinery import functional
from cubinery._errors import InvalidArgumentError, UnsupportedError
from cubinery.compat import _arguments as arguments
from cubinery.compat import _fla_ranks as fla_ranks

_P = ParamSpec("_P")


def runs(check: Callable[_P, Call]) -> Callable[_P, tuple[Any, ...]]:
    """A function of FLA's, given what checks its arguments: the call is run."""

    @functools.wraps(check)
    def function(*args: _P.args, **kwargs: _P.kwargs) -> tuple[Any, ...]:
        return check(*args, **kwargs).run()

    function.__annotations__ = check.__annotations__ | {"return": "tuple[Any, ...]"}
    return function


def checked(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
    """The call of a function that runs() has made, before it runs.

    Raises as that does.
    """
    call: Call = inspect.unwrap(function)(*args, **kwargs)
    return call


def state_layout_flag(function: str, state_v_first: bool, kwargs: dict[str, Any]) -> bool:
    """Takes FLA's old name of state_v_first out of `kwargs`."""
    state_v_first = arguments.flag(function, "state_v_first", state_v_first)
    if "transpose_state_layout" not in kwargs:
        return state_v_first
    if state_v_first:
        raise InvalidArgumentError(
            f"{function}: transpose_state_layout is the old name of state_v_first; pass only one"
        )
    warnings.warn(
        "`transpose_state_layout` is deprecated and renamed to `state_v_first`.",
        DeprecationWarning,
        stacklevel=4,
    )
    renamed = kwargs.pop("transpose_state_layout")
    return arguments.flag(function, "transpose_state_layout", renamed)


def refuse_unknown(function: str, kwargs: dict[str, Any]) -> None:
    if kwargs.get("head_first") is not None:
        raise InvalidArgumentError(
            f"{function}: head_first has been removed; inputs are [B, T, H, ...]"
        )
    arguments.refuse_unknown(function, kwargs)


# The flags of a call, by their field, under FLA's names.
_FLAGS = {
    "output_final_state": "output_final_state",
    "use_qk_l2norm": "use_qk_l2norm_in_kernel",
    "beta_sigmoid": "use_beta_sigmoid_in_kernel",
    "beta_doubled": "allow_neg_eigval",
    "computed_gate": "use_gate_in_kernel",
}


@dataclass
class Call:
    """A call of a function.  Making one checks it; nothing is allocated before run()."""

    function: str
    q: Any
    k: Any
    v: Any
    g: Any
    beta: Any
    scale: float | None
    initial_state: Any
    output_final_state: bool
    use_qk_l2norm: bool
    beta_sigmoid: bool
    beta_doubled: bool
    state_v_first: bool
    cu_seqlens: Any
    computed_gate: bool
    A_log: Any
    dt_bias: Any
    cu_seqlens_cpu: Any = None
    cp_context: Any = None

    def __post_init__(self) -> None:
        self.on_rank = fla_ranks.rank_context(self.function, self.cp_context)
        if self.on_rank is not None:  # as FLA: the caller's are not read
            self.cu_seqlens = self.on_rank.cu_seqlens
            self.cu_seqlens_cpu = self.on_rank.cu_seqlens_cpu
        for field, name in _FLAGS.items():
            setattr(self, field, arguments.flag(self.function, name, getattr(self, field)))
        if not self.computed_gate:
            self.A_log = self.dt_bias = None  # FLA reads them for a computed gate alone
        self._check_shapes()
        self._check_modes()
        arguments.refuse_autograd(self.function, **self.floats(), initial_state=self.initial_state)
        arguments.require_initial_state(self.function, self.initial_state, self.state_shape())

    def floats(self) -> dict[str, Any]:
        """The arrays beside the states, by name."""
        names = ("q", "k", "v", "g", "beta", "A_log", "dt_bias")
        return {name: getattr(self, name) for name in names}

    def state_shape(self) -> tuple[int, ...]:
        sequences = self.q.shape[0] if self.cu_seqlens is None else self.cu_seqlens.shape[0] - 1
        matrix = (self.q.shape[-1], self.v.shape[-1])
        return (sequences, self.v.shape[2], *(matrix[::-1] if self.state_v_first else matrix))

    def has_one_token_each(self) -> bool:
        return self.cu_seqlens is None and bool(self.q.shape[1] == 1)

    def operator(self) -> Any:
        """That of cubinery.functional which runs the call."""
        raise NotImplementedError

    def require_kernels(self) -> None:
        """Raises InvalidArgumentError or UnsupportedError for arrays that no kernel takes."""
        arrays = {name: array for name, array in self.floats().items() if array is not None}
        for name, array in arrays.items():
            arguments.require_value_dtype(self.function, name, array)
        if not self.q.dtype == self.k.dtype == self.v.dtype:
            raise UnsupportedError(f"{self.function}: q, k and v have different dtypes")
        for name, dim in {"K": self.q.shape[-1], "V": self.v.shape[-1]}.items():
            if dim % 16 != 0 or not 16 <= dim <= 256:
                raise UnsupportedError(
                    f"{self.function}: {name} is {dim}; supported: multiples of 16 from 16 to 256"
                )
        arguments.require_gpu(self.function, "q", self.q)

    def run(self, in_place: bool = False) -> tuple[Any, ...]:
        """Allocates what FLA allocates, and calls the operator.

        `in_place`: final states may be written over initial ones.
        """
        final, states = self._states(in_place)
        return self._launch(states), final

    def _launch(self, states: dict[str, Any]) -> Any:
        """o, by the operator with these options of states."""
        return self.operator()(
            *(arguments.unit_rows(array) for array in (self.q, self.k, self.v)), self.g, self.beta,
            beta_mode=self._beta_mode(), use_qk_l2norm=self.use_qk_l2norm, scale=self.scale,
            state_layout="vk" if self.state_v_first else "kv", **states, **self._decays(),
            **self._tokens(),
        )  # fmt: skip

    def _states(self, in_place: bool) -> tuple[Any, dict[str, Any]]:
        """The final states, and the operator's options of states."""
        given = (self.q, self.initial_state, self.state_shape(), self.output_final_state)
        if self.on_rank is not None:
            return fla_ranks.new_states(*given)
        return arguments.final_states(*given, in_place)

    def _decays(self) -> dict[str, Any]:
        """The operator's options of decays."""
        raise NotImplementedError

    def _tokens(self) -> dict[str, Any]:
        """The operator's options of packed sequences."""
        if self.cu_seqlens is None:
            return {}
        if self.operator() is not functional.gdn_prefill:
            return {"cu_seqlens": self.cu_seqlens}
        tokens = self.q.shape[1]
        longest = arguments.longest_sequence(self.cu_seqlens_cpu, tokens)
        on_rank = {} if self.on_rank is None else self.on_rank.options(tokens)
        return {"cu_seqlens": self.cu_seqlens, "max_seqlen": longest, **on_rank}

    def _beta_mode(self) -> str:
        if self.beta is None:
            return "one"
        if not self.beta_sigmoid:
            return "given"
        return "doubled_logit" if self.beta_doubled else "logit"

    def _check_shapes(self) -> None:
        arguments.require_rank(self.function, "q", self.q, "[B, T, H, K]")
        arguments.require_shape(self.function, "k", self.k, tuple(self.q.shape))
        arguments.require_rank(self.function, "v", self.v, "[B, T, HV, V]")
        heads, batch = self.q.shape[2], self.q.shape[0]
        if self.v.shape[2] % heads != 0:
            raise InvalidArgumentError(
                f"{self.function}: v has {self.v.shape[2]} heads; expected a multiple of the "
                f"{heads} of q and k"
            )
        if self.beta is not None:
            arguments.require_rank(self.function, "beta", self.beta, "[B, T, HV]")
        if self.cu_seqlens is not None and batch != 1:
            raise InvalidArgumentError(
                f"{self.function}: q has a batch of {batch}; expected 1 with cu_seqlens, the "
                "sequences behind each other"
            )

    def _check_modes(self) -> None:
        if self.beta_doubled and not self.beta_sigmoid:
            raise InvalidArgumentError(
                f"{self.function}: allow_neg_eigval needs use_beta_sigmoid_in_kernel"
            )
