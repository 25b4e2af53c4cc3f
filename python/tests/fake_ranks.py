"""torch.distributed on ranks that run one after the other in one process, and operators in numpy
that cubinery.ranks takes for Prefill and Conv.
"""

from __future__ import annotations

import sys
import types
from collections import deque
from typing import Any

import convolution
import numpy as np
import recurrence

from cubinery import ConvProblem, PrefillProblem, functional
from cubinery.ranks import RankConv, RankPrefill


class Group:
    """A process group, of these among all processes."""

    def __init__(self, *processes: int) -> None:
        self.processes = processes


class Distributed(types.ModuleType):
    """`rank`, among all processes, is which one runs now.  What it receives has to be sent already."""

    def __init__(self, count: int) -> None:
        super().__init__("torch.distributed")
        self.group = types.SimpleNamespace(WORLD=Group(*range(count)))
        self.rank = 0
        self.gathered: list[object] = []
        self.sent: list[tuple[int, int]] = []
        self.waits: list[int] = []
        self._mail: dict[tuple[int, int], deque[np.ndarray]] = {}

    def get_rank(self, group: Group) -> int:
        return group.processes.index(self.rank)

    def get_world_size(self, group: Group) -> int:
        return len(group.processes)

    def get_global_rank(self, group: Group, rank: int) -> int:
        return group.processes[rank]

    def all_gather_object(self, found: list[object], value: object, group: Group) -> None:
        self.gathered.append(value)
        found[:] = [value] * len(group.processes)

    P2POp = staticmethod(lambda operation, *operands: (operation, *operands))

    def batch_isend_irecv(self, operations: list[tuple[Any, ...]]) -> list[Any]:
        for operation, *operands in operations:
            operation(*operands)
        return [types.SimpleNamespace(wait=lambda: self.waits.append(self.rank))]

    def isend(self, array: np.ndarray, target: int, group: Group) -> None:
        assert array.flags.c_contiguous and target in group.processes
        self.sent.append((self.rank, target))
        self._mail.setdefault((self.rank, target), deque()).append(array.copy())

    def irecv(self, array: np.ndarray, source: int, group: Group) -> None:
        assert array.flags.c_contiguous and source in group.processes
        mail = self._mail[(source, self.rank)].popleft()
        assert (mail.shape, mail.dtype) == (array.shape, array.dtype)
        array[...] = mail

    def nothing_is_left(self) -> bool:
        return not any(self._mail.values())


def install(monkeypatch: Any, count: int) -> Distributed:
    module = Distributed(count)
    monkeypatch.setitem(sys.modules, "torch.distributed", module)
    return module


class Prefill:
    """Steps 1 and 3 do nothing."""

    def __init__(self, **options: Any) -> None:
        self.problem = PrefillProblem(context_parallel=True, varlen=True)
        self.options = options
        self.steps: list[int] = []

    def _new_workspace(self, q: Any, cu_seqlens: Any, stream: Any) -> str:
        return "workspace"

    def __call__(
        self, *arrays: Any, step: int, continues: bool, workspace: str, out: Any, **launch: Any
    ) -> Any:
        assert workspace == "workspace"
        self.steps.append(step)
        if step == 1 and continues:
            launch["state"][0] = np.nan  # step 2 reads it, and not before it has been received
        if step == 2:
            assert launch["state"] is not launch["state_out"]
            out[...] = recurrence.gdn_prefill(*arrays, **launch, **self.options)
        return out


class Conv:
    def __init__(self, problem: ConvProblem | None = None, **options: Any) -> None:
        self.problem = ConvProblem(varlen=True) if problem is None else problem
        self.options = options

    def __call__(self, *arrays: Any, **launch: Any) -> None:
        convolution.gdn_conv(*arrays, **launch, **self.options)


def run_functions_on_ranks(monkeypatch: Any) -> None:
    """functional's stand-ins do with share and ranks what its functions do."""
    whole = {"gdn_prefill": functional.gdn_prefill, "gdn_conv": functional.gdn_conv}
    of_launches = ("state", "state_out", "cu_seqlens")

    def gdn_prefill(q: Any, k: Any, v: Any, *gates: Any, share: Any = None, ranks: Any = None,
                    max_seqlen: Any = None, **given: Any) -> Any:  # fmt: skip
        if share is None:
            return whole["gdn_prefill"](q, k, v, *gates, max_seqlen=max_seqlen, **given)
        launch = {name: given.pop(name) for name in of_launches}
        kept = {name: given.pop(name) for name in list(given) if name.startswith("checkpoint")}
        out = np.empty(v.shape, q.dtype)
        prefill = RankPrefill(Prefill(**given), ranks)  # type: ignore[arg-type]
        return prefill(q, k, v, *gates, share=share, out=out, **launch, **kept)

    def gdn_conv(x: Any, weight: Any, bias: Any = None, *, share: Any = None, ranks: Any = None,
                 **given: Any) -> Any:  # fmt: skip
        if share is None:
            return whole["gdn_conv"](x, weight, bias, **given)
        launch = {name: given.pop(name) for name in of_launches}
        y = np.empty(x.shape, x.dtype)
        problem = ConvProblem(varlen=True, width=weight.shape[1])
        conv = RankConv(Conv(problem, **given), ranks)  # type: ignore[arg-type]
        conv(x, weight, bias, share=share, y=y, **launch)
        return y

    monkeypatch.setattr(functional, "gdn_prefill", gdn_prefill)
    monkeypatch.setattr(functional, "gdn_conv", gdn_conv)
