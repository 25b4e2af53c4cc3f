"""What the plugins share: their switch, their lines in an engine's log, the places in an engine
that they need, and operators that are made while it starts.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from cubinery import _arrays
from cubinery._context import Context
from cubinery._core import version
from cubinery._errors import Error, UnsupportedError
from cubinery._problem import Problem

SWITCH = "CUBINERY_PLUGIN"
COUNT = "CUBINERY_PLUGIN_COUNT"
MODES = ("auto", "force", "off")

_INIT = "__init__"

Seams = Mapping[str, tuple[str, ...]]


class MissingSeam(Exception):
    """An engine lacks a place that a plugin needs: the message says which."""


class PlaceTaken(Exception):
    """What has the place of an engine's class already: the message says it."""


def seam(path: str, parameters: tuple[str, ...] = ()) -> Any:
    """What an engine has at "package.module:Class.method".

    Raises:
        MissingSeam: nothing, or what takes other parameters than these.
    """
    module, _, names = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise MissingSeam(f"{module} ({error})") from None
    for name in names.split(".") if names else ():
        found = getattr(found, name, None)
        if found is None:
            raise MissingSeam(path)
    if parameters:
        # Of a class what its objects are made from: __new__ may take anything.
        makes = getattr(found, _INIT) if isinstance(found, type) else found
        taken = inspect.signature(makes).parameters
        lacking = [name for name in parameters if name not in taken]
        if lacking:
            raise MissingSeam(f"{', '.join(lacking)} of {path}")
    return found


def missing(seams: Seams) -> list[str]:
    """What an engine lacks of these places, each with the parameters that it has to take."""
    lacking = []
    for path, parameters in seams.items():
        try:
            seam(path, parameters)
        except MissingSeam as error:
            lacking.append(str(error))
    return lacking


class Place(NamedTuple):
    """A class of an engine's, in front of which a plugin puts one of its own."""

    path: str
    seams: Seams  # what the plugin needs of it: objects, and the parameters that they take
    attributes: tuple[str, ...]  # what it reads of the class's objects

    @property
    def name(self) -> str:
        return self.path.partition(":")[2]


class Plugin:
    """An engine's plugin in one process.

    Args:
        engine: the engine's name and package.
        tried: the version of it that the plugin was tried with.
        logger: the name of a logger that the engine shows.
    """

    def __init__(self, engine: str, tried: str, logger: str) -> None:
        self.engine = engine
        self.tried = tried
        self.mode = "auto"
        self.log = logging.getLogger(logger)
        self.calls: Counter[tuple[str, str]] = Counter()  # (what, where), if CUBINERY_PLUGIN_COUNT
        self._counts = False
        self._said: set[str] = set()
        self._registered = False
        self._lock = threading.Lock()
        self.kernels: dict[tuple[int, Layer], Kernels] = {}
        self._contexts: dict[int, Context] = {}
        self._announced: list[Kernels] = []

    def register(self, seams: Seams, install: Callable[[], None]) -> None:
        """Installs the plugin at the first call, unless it is switched off.  Never raises: an
        engine that cannot take it stays as it is, and its log says why.
        """
        with self._lock:
            if self._registered:
                return
            self._registered = True
        self._counts = os.environ.get(COUNT, "") not in ("", "0")
        self.mode = os.environ.get(SWITCH, "").strip().lower() or "auto"
        if self.mode == "off":
            return
        if self.mode not in MODES:
            accepted = ", ".join(MODES)
            self.log.error("%s = %r; accepted: %s.  It is off", SWITCH, self.mode, accepted)
            self.mode = "off"
            return
        if not self._installed(seams, install):
            self.mode = "off"

    def take(self, place: Place, install: Callable[[], None]) -> None:
        """The same with one class of the engine's; without it the others are served."""
        self._installed(place.seams, install, place.name)

    def _installed(self, seams: Seams, install: Callable[[], None], part: str = "") -> bool:
        try:
            lacking = missing(seams)
            if not lacking:
                install()
                return True
            why = f"it lacks {'; '.join(lacking)}"
        except PlaceTaken as error:
            why = str(error)
        except Exception as error:
            self.log.debug("cubinery's plugin", exc_info=True)
            why = f"{type(error).__name__}: {error}"
        self.log.warning(
            "cubinery does not serve %sthis %s %s: %s.  It was tried with %s; %s goes on with its "
            "own kernels", part and f"{part} of ", self.engine, self._version(), why, self.tried,
            self.engine,
        )  # fmt: skip
        return False

    def _version(self) -> str:
        from importlib import metadata

        try:
            return metadata.version(self.engine.lower())
        except metadata.PackageNotFoundError:
            return "of unknown version"

    def ran(self, *what: str) -> None:
        """Counts what ran on cubinery, where that is asked for."""
        if self._counts:
            self.calls.update((each, "cubinery") for each in what)

    def left(self, what: str) -> None:
        """Counts what ran on the engine's own kernels."""
        if self._counts:
            self.calls[what, self.engine] += 1

    def say(self, text: str) -> None:
        """A line in the engine's log, once in this process."""
        if text not in self._said:
            self._said.add(text)
            self.log.info("%s", text)

    def fall_back(self, what: str, why: object, must: str = "") -> None:
        """Says once that the engine's own kernels do this, and why.

        Args:
            must: why that would be wrong.

        Raises:
            UnsupportedError: in mode "force", or where it must not be.
        """
        if self.mode == "force":
            must = f"{SWITCH}=force"
        if must:
            raise UnsupportedError(f"cubinery cannot do {what} here, and {must}: {why}")
        text = f"{what} stays with {self.engine}'s own kernels: {why}"
        if text not in self._said:
            self._said.add(text)
            self.log.warning("%s", text)

    def context_of(self, device: int) -> Context:
        """The context of a device, whose messages are in the engine's log."""
        with self._lock:
            context = self._contexts.get(device)
            if context is None:
                context = self._contexts[device] = logged_context(device, self.log)
            return context

    def kernels_of(self, device: int, layer: Layer, problems: Problems) -> Kernels:
        """The operators of layers like this one on a device: made once, from then on in the
        making."""
        context = self.context_of(device)
        with self._lock:
            kernels = self.kernels.get((device, layer))
            if kernels is None:
                kernels = self.kernels[device, layer] = Kernels(context, problems(layer))
            return kernels

    def announce(
        self, kernels: Kernels, layer: Layer, asked: Mapping[str, tuple[int, ...]]
    ) -> None:
        """One line of what there is, and one of what runs where, once for the same kernels.

        Args:
            asked: of which sizes the operators' choices are told.
        """
        with self._lock:
            if kernels in self._announced:
                return
            self._announced.append(kernels)
        sizes = (
            f"{layer.k_heads} and {layer.v_heads} heads of {layer.key_dim} and {layer.value_dim}"
        )
        self.say(
            f"cubinery {version()} serves layers of {sizes}, {layer.dtype}, states in "
            f"{layer.state_dtype}, on {kernels.context.arch}: {kernels.summary()}"
        )
        parts = []
        for name, size in asked.items():
            if name in kernels.operators:
                parts.append(f"{name} {choice_text(kernels.operators[name].choice(*size))}")
        self.say(f"cubinery runs {'; '.join(parts)}")


Problems = Callable[[Any], Mapping[str, Problem[Any]]]


def dtype_short(dtype: Any) -> str:
    """A dtype of torch as problems call it; its own name if they have none."""
    name = str(dtype).removeprefix("torch.")
    return _arrays._SHORT_NAMES.get(name, name)


@dataclass(frozen=True)
class Layer:
    """What the problems of a layer of one GPU depend on."""

    k_heads: int
    v_heads: int
    key_dim: int
    value_dim: int
    dtype: str  # of activations
    a_log_dtype: str
    dt_bias_dtype: str
    state_dtype: str
    conv_width: int
    conv_weight_dtype: str
    conv_state_dtype: str
    conv_state_layout: str
    conv_has_bias: bool = False
    decay: str = "head"  # or "channel": Kimi Delta Attention
    gate_mode: str = "computed"  # or "lower_bound"
    drafts: int = 0  # the most of a request
    batch_invariant: bool = False
    joins_conv: bool = True  # a decode has the convolution in its launch, where a kernel does that

    @property
    def heads(self) -> dict[str, Any]:
        return {
            "q_heads": self.k_heads,
            "k_heads": self.k_heads,
            "v_heads": self.v_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dtype": self.dtype,
            "decay": self.decay,
            "batch_invariant": self.batch_invariant,
        }

    @property
    def gates(self) -> dict[str, Any]:
        """Gates that are computed from what the projections give."""
        return {
            "gate_mode": self.gate_mode,
            "beta_mode": "logit",
            "gate_dtype": self.dtype,
            "beta_dtype": self.dtype,
            "a_log_dtype": self.a_log_dtype,
            "dt_bias_dtype": self.dt_bias_dtype,
            "use_qk_l2norm": True,
        }

    @property
    def decay_shape(self) -> tuple[int, ...]:
        """Of the decays of a token."""
        return (self.v_heads,) if self.decay == "head" else (self.v_heads, self.key_dim)

    @property
    def gates_of_conv(self) -> dict[str, Any]:
        """Those that the convolution in front of a prefill makes, with the norms of q and k: all, or
        none where a token has a row of decays, which a prefill reads as they are."""
        return self.gates if self.decay == "head" else {}

    @property
    def gates_of_prefill(self) -> dict[str, Any]:
        return {} if self.decay == "head" else self.gates

    @property
    def states(self) -> dict[str, Any]:
        """Slots of a pool, [value_dim, key_dim] each."""
        return {
            "output_dtype": self.dtype,
            "state_dtype": self.state_dtype,
            "state_location": "pool",
            "state_layout": "vk",
        }

    def outputs(self, x: Any) -> tuple[Any, ...]:
        """Room for what a convolution makes of x [tokens, channels]: q, k and v."""
        return (
            x.new_empty((x.shape[0], self.k_heads, self.key_dim)),
            x.new_empty((x.shape[0], self.k_heads, self.key_dim)),
            x.new_empty((x.shape[0], self.v_heads, self.value_dim)),
        )

    @property
    def conv(self) -> dict[str, Any]:
        """A convolution on a pool that splits its outputs."""
        return {
            **self.heads,
            "weight_dtype": self.conv_weight_dtype,
            "width": self.conv_width,
            "has_bias": self.conv_has_bias,
            "split_qkv": True,
            "state_dtype": self.conv_state_dtype,
            "state_location": "pool",
            "state_layout": self.conv_state_layout,
        }

    @property
    def conv_of_decode(self) -> dict[str, Any]:
        """The same in front of a decode, in its launch."""
        return {
            "conv_width": self.conv_width,
            "conv_has_bias": self.conv_has_bias,
            "conv_weight_dtype": self.conv_weight_dtype,
            "conv_state_dtype": self.conv_state_dtype,
            "conv_state_layout": self.conv_state_layout,
        }


class Kind(NamedTuple):
    """A kind of work that layers have."""

    words: str  # in an engine's log
    forms: tuple[str, ...]  # those that it launches, as far as a layer has them; the last is a must


class Kernels:
    """The operators of some problems on one device, made side by side while an engine starts.

    Attributes:
        operators: by the problems' names, once ready() has returned; those that could be made.
        refused: why the others could not, by name.
        has_pdl: whether launches may overlap the kernel in front of them.
    """

    def __init__(self, context: Context, problems: Mapping[str, Problem[Any]]) -> None:
        self.context = context
        self.problems = dict(problems)
        self.operators: dict[str, Any] = {}
        self.refused: dict[str, str] = {}
        self.has_pdl = int(re.sub(r"\D", "", context.arch)) >= 90
        self._started, self._before = time.perf_counter(), context.stats()
        self._ended, self._after = self._started, self._before
        self._lock = threading.Lock()
        # prepare() compiles on the thread that calls it and on one more for each further kernel that
        # is missing: these add up to the kernels, whatever the number of operators.
        workers = max(1, min(len(self.problems), os.cpu_count() or 1))
        pool = ThreadPoolExecutor(workers, thread_name_prefix="cubinery")
        self._futures = {
            name: pool.submit(self._make, problem) for name, problem in self.problems.items()
        }
        pool.shutdown(wait=False)

    def _make(self, problem: Problem[Any]) -> Any:
        try:
            return self.context.prepare(problem)
        finally:
            with self._lock:
                self._ended, self._after = time.perf_counter(), self.context.stats()

    def ready(self) -> Kernels:
        """Waits for all of them."""
        for name, future in self._futures.items():
            try:
                self.operators[name] = future.result()
            except Error as error:
                self.refused[name] = str(error)
        return self

    def able(self, kinds: Mapping[str, Kind], refuse: Callable[[str, str], None]) -> frozenset[str]:
        """Which kinds of work, of those that the problems are for, have their operators; tells
        refuse() which have not, and why."""
        can = set()
        for name, kind in kinds.items():
            if self.problems.keys().isdisjoint(kind.forms):
                continue
            refused = [self.refused[form] for form in kind.forms if form in self.refused]
            if refused:
                refuse(kind.words, refused[0])
            else:
                can.add(name)
        return frozenset(can)

    def summary(self) -> str:
        """Where the kernels came from, and how long that took."""
        compiled = self._after.compiles - self._before.compiles
        cached = self._after.disk_hits - self._before.disk_hits
        return (
            f"{compiled + cached} kernels for {len(self.operators)} operators in "
            f"{self._ended - self._started:.1f} s: {compiled} compiled, {cached} from the cache"
        )


def logged_context(device: int, log: logging.Logger) -> Context:
    """A context of the environment whose messages are in the engine's log."""
    levels = {"warning": logging.WARNING}

    def write(level: str, message: str) -> None:
        log.log(levels.get(level, logging.DEBUG), "%s", message)

    return Context(device, log=write)


def sizes_asked(drafts: int) -> dict[str, tuple[int, ...]]:
    """Of which sizes the choices of operators are told, whose requests have so many draft tokens."""
    return {"decode": (1,), "prefill": (8192, 4), "verify": (16, 16 * drafts)}


def choice_text(choice: Mapping[str, str]) -> str:
    """What an operator launches, and by which measurement it was chosen."""
    return f"{choice['path']} ({choice['rung']}: {choice['why']})"


def without_path(context: Context, problems: Mapping[str, Problem[Any]]) -> set[str]:
    """The forms that no kernel of this device is for, or none that is there where nothing can be
    compiled."""
    found = set()
    for name, problem in problems.items():
        try:
            reports = context.explain(problem)
            if not all(report["cached"] for report in reports):
                context.nvrtc_version  # says that it cannot, offline too
        except Error:
            found.add(name)
    return found
