"""Who is compared: each turns a row's data into launches.  Its module is imported when it is asked for,
and so is its package.

A launch takes the number of a set and returns (o, state), of a layer (o, state, window): o as
data.expected() has it or without its dimensions of one (of a convolution q, k and v), state with the
layout that Prepared.state_layout names.  Everything that a user would do once (operators, workspaces,
other forms of the gates, index tensors) is done before.
"""

import importlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from compare.data import ConvData, DecodeData, PrefillData

Outputs = Tensor | tuple[Tensor, Tensor, Tensor]
Launch = Callable[[int], tuple[Outputs, *tuple[Tensor, ...]]]


@dataclass
class Prepared:
    """One contender on one row."""

    launch: Launch
    state_layout: str  # "kv" or "vk"; of a convolution "columns"
    note: str = ""  # what its user should know about the figure
    # [sets, B]: the state is a pool, and these are the sets' places in it.
    slots: Tensor | None = None
    # What is right, where it is not what the row's data say.
    expected: Callable[[], tuple[Tensor, ...]] | None = None

    def result(self) -> tuple[Tensor, ...]:
        """Launches once on set 0: o, and its states as [N, HV, K, V], of a layer the convolution's too;
        of a convolution [N, T, C] and [N, C, W]."""
        o, *states = self.launch(0)
        if isinstance(o, tuple):
            o = torch.cat([x.flatten(-2) for x in o], -1)
        if self.slots is not None:
            states = [state[self.slots[0].long()] for state in states]
        if self.state_layout == "vk":
            states[0] = states[0].transpose(-1, -2)
        return o, *states


class Contender(Protocol):
    """name: what the record calls it, with the version."""

    name: str

    def decode(self, data: DecodeData) -> Prepared: ...

    def verify(self, data: DecodeData) -> Prepared: ...

    def prefill(self, data: PrefillData) -> Prepared: ...

    def conv(self, data: ConvData) -> Prepared: ...


class NotOffered(Exception):
    """The library has no such operation: the message says which."""


def current_stream() -> int:
    return torch.cuda.current_stream().cuda_stream


def windows_of(data: ConvData) -> list[Tensor]:
    """The states of each set, to be updated in place, or where final ones go."""
    row = data.row
    shape = (row.sequences, row.channels, row.width)
    return [
        s.x.new_full(shape, torch.nan) if s.state is None else s.state.clone() for s in data.sets
    ]


def pool_note(data: DecodeData) -> str:
    return f"states in a pool, {'not updated' if data.row.stored == 'none' else 'updated in place'}"


def unwritten(like: Tensor) -> Tensor:
    """NaN: memory that held another contender's result would hide what is not written."""
    return torch.full_like(like, torch.nan)


def states_like(v: Tensor, count: int) -> Tensor:
    shape = (count, v.shape[-2], v.shape[-1], v.shape[-1])
    return torch.full(shape, torch.nan, dtype=torch.float32, device=v.device)


def package_version(distribution: str) -> str:
    """The version of an installed distribution, "unknown" for a folder without its metadata."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


# Where each is: a module beside this one, and the class in it.
LOADERS = {
    "cubinery": "ours.Cubinery",
    "cubinery_gdn": "ours.CubineryOfHeads",
    "fla": "peers_gdn.Fla",
    "flash_qla": "peers_gdn.FlashQla",
    "flashinfer": "peers_gdn.FlashInfer",
    "vllm": "peers_kda.Vllm",
    "cudnn": "peers_kda.Cudnn",
    "cudnn_log": "peers_kda.CudnnOfLogs",
}
WITHOUT_CONVOLUTION = ("cubinery_gdn", "flash_qla", "flashinfer", "vllm", "cudnn", "cudnn_log")


def class_of(name: str) -> type[Contender]:
    module, _, cls = LOADERS[name].partition(".")
    found: type[Contender] = getattr(importlib.import_module(f"compare.{module}"), cls)
    return found


def offering(only: str | None, names: list[str]) -> list[str]:
    """Those to load for the rows of `--only`: some peers take long to import."""
    return [name for name in names if only != "conv" or name not in WITHOUT_CONVOLUTION]


def load(names: list[str]) -> tuple[list[Contender], dict[str, str]]:
    """The contenders that import, in this order, and why the others do not.

    Raises ValueError for a name that is none.
    """
    present, missing = [], {}
    for name in names:
        if name not in LOADERS:
            raise ValueError(f"contender {name}; accepted: {', '.join(LOADERS)}")
        cls = class_of(name)
        try:
            present.append(cls())
        except Exception as error:  # a peer fails to import in ways of its own
            missing[name] = reason_of(error)
    return present, missing


def reason_of(error: BaseException) -> str:
    """Type and first line of an error, short enough for a table's footnote."""
    lines = str(error).strip().splitlines() or [""]
    text = f"{type(error).__name__}: {lines[0]}" if lines[0] else type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
