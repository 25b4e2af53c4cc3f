"""Prefills whose sequences are spread over several GPUs (context parallelism).

Each rank (a process with one GPU) has neighbouring tokens of a packed batch.  What it cannot know,
the state in front of its first token, comes from the rank in front while most of the work is done:

    share = cubinery.ranks.shares(lengths, world_size, problem.segment_tokens)[rank]
    prefill = cubinery.ranks.RankPrefill(context.prepare(problem))   # torch.distributed's ranks
    out = prefill(q, k, v, g, beta, share=share, state=state, state_out=state_out, ...)

The result is exact, whatever the gates, and has the same bits on any number of ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from cubinery._errors import InvalidArgumentError, refuse
from cubinery.gdn import Prefill

__all__ = ["RankPrefill", "Share", "TorchRanks", "shares", "shares_from"]


@dataclass(frozen=True)
class Share:
    """What one rank has of a packed batch.

    Attributes:
        first: the batch's token that is the rank's first.
        end: the one behind its last; a rank may have no tokens.
        first_sequence: the batch's sequence that is the rank's first.
        cu_seqlens: bounds of the rank's sequences in its tokens, from 0 on.
        source: the rank from which the state comes that the first sequence goes on from; None: that
            sequence begins here.
        target: the rank on which the last sequence goes on; None: it ends here.
    """

    first: int
    end: int
    first_sequence: int
    cu_seqlens: tuple[int, ...]
    source: int | None
    target: int | None

    @property
    def tokens(self) -> int:
        return self.end - self.first

    @property
    def sequences(self) -> int:
        return len(self.cu_seqlens) - 1

    @property
    def continues(self) -> bool:
        return self.source is not None


def _grid(lengths: Iterable[int], segment_tokens: int) -> list[int]:
    """Tokens at which a rank may begin: where sequences do, and at multiples of segments in them."""
    places = [0]
    begin = 0
    for length in lengths:
        places += range(begin + segment_tokens, begin + length, segment_tokens)
        begin += length
        if places[-1] != begin:
            places.append(begin)
    return places


def shares(lengths: Iterable[int], ranks: int, segment_tokens: int) -> list[Share]:
    """Deals sequences of these lengths, packed behind each other, to ranks.

    Each rank has about as many tokens, and begins where a sequence does or at a multiple of
    segment_tokens of one, so that results have the bits of one rank.  With fewer segments than ranks
    some have no tokens.  A sequence of no tokens is of the rank that has what is in front of it.

    Raises:
        InvalidArgumentError: a negative length, no ranks, or segments of no tokens.
    """
    lengths = list(lengths)
    if any(length < 0 for length in lengths):
        refuse("lengths", lengths, "numbers of tokens")
    if ranks < 1:
        refuse("ranks", ranks, "1 or more")
    if segment_tokens < 1:
        refuse("segment_tokens", segment_tokens, "1 or more")
    total = sum(lengths)
    grid = _grid(lengths, segment_tokens)
    begins = [
        min(grid, key=lambda place: abs(place * ranks - total * rank)) for rank in range(ranks)
    ]
    return shares_from(lengths, begins)


def shares_from(lengths: list[int], begins: list[int]) -> list[Share]:
    """The same for ranks that begin at these tokens, the first one at 0.

    Where one is no multiple of segment_tokens of its sequence, the result is as exact, but has other
    bits.

    Raises:
        InvalidArgumentError: numbers that decrease, do not begin with 0, or pass all tokens.
    """
    total = sum(lengths)
    ends = [*begins[1:], total]
    if begins[0] != 0 or any(end < begin for begin, end in zip(begins, ends)):
        refuse("begins", begins, f"numbers from 0 to {total} that do not decrease, the first one 0")
    starts = [0, *itertools.accumulate(lengths)]
    found: list[Share] = []
    owner: int | None = None  # of the tokens in front
    for rank, (first, end) in enumerate(zip(begins, ends)):
        mine = [
            n
            for n, length in enumerate(lengths)
            if max(starts[n], first) < min(starts[n] + length, end)
            or (length == 0 and (first < starts[n] <= end or (starts[n] == first == 0 == rank)))
        ]
        if not mine:
            found.append(Share(first, end, 0, (0,), None, None))
            continue
        bounds = (starts[mine[0]], *(starts[n] + lengths[n] for n in mine))
        continues = starts[mine[0]] < first
        source = owner if continues else None
        if source is not None:
            before = found[source]
            found[source] = replace(before, target=rank)
        found.append(
            Share(
                first=first,
                end=end,
                first_sequence=mine[0],
                cu_seqlens=tuple(min(max(bound, first), end) - first for bound in bounds),
                source=source,
                target=None,
            )
        )
        owner = rank
    return found


class TorchRanks:
    """The ranks of a torch.distributed group, whose tensors go along the current stream.

    Args:
        group: None: all processes.
    """

    def __init__(self, group: Any = None) -> None:
        self._distributed: Any = import_module("torch.distributed")
        self._group = group

    def _rank(self, rank: int) -> int:
        """Of all processes."""
        if self._group is None:
            return rank
        return int(self._distributed.get_global_rank(self._group, rank))

    def gather(self, value: object) -> list[object]:
        """What each rank has given.  Waits for all."""
        found: list[object] = [None] * self._distributed.get_world_size(self._group)
        self._distributed.all_gather_object(found, value, group=self._group)
        return found

    def receive(self, array: Any, source: int) -> None:
        """Into `array`, behind what is on the stream."""
        self._distributed.recv(array, self._rank(source), group=self._group)

    def send(self, array: Any, target: int) -> None:
        """`array` as it is behind what is on the stream."""
        self._distributed.send(array, self._rank(target), group=self._group)


class RankPrefill:
    """A prefill on ranks.  Thread-safe as far as its ranks are.

    Args:
        prefill: of a problem with context_parallel and dense states (state_location "dense").
        ranks: what TorchRanks has: gather(value), receive(array, source), send(array, target); None:
            TorchRanks(), all processes of torch.distributed.

    Raises:
        InvalidArgumentError: another problem, or ranks whose problems or kernels differ in what
            changes results.  Every rank raises it, so that none waits for the others.
    """

    def __init__(self, prefill: Prefill, ranks: Any = None) -> None:
        problem = prefill.problem
        self._prefill = prefill
        self._ranks = TorchRanks() if ranks is None else ranks
        found = self._ranks.gather(problem.to_json())
        first = found[0]
        others = [rank for rank, value in enumerate(found) if value != first]
        if others:  # in front of what one rank alone may refuse: the others would wait
            raise InvalidArgumentError(
                f"ranks: rank {others[0]} has {found[others[0]]}; accepted: {first}, as rank 0 has"
            )
        if not problem.context_parallel:
            refuse("context_parallel", False, "True, for a prefill on ranks")
        if problem.state_location != "dense":
            refuse("state_location", problem.state_location, "'dense', for a prefill on ranks")

    @property
    def prefill(self) -> Prefill:
        return self._prefill

    def __call__(
        self, *arrays: Any, share: Share, state: Any, state_out: Any, **others: Any
    ) -> Any:
        """Prefills the rank's share.  Enqueues, on the current stream, and does not wait.

        Args:
            arrays: as of Prefill: q, k, v, g, beta of the rank's tokens.
            share: the rank's, of shares().
            state: [N, heads, rows, columns] of the rank's sequences; the first one's is written where
                it comes from another rank.
            state_out: likewise, new states, in other memory than `state`.
            others: as of Prefill, without step and continues.

        Returns: as Prefill.

        Raises: as Prefill, and what the ranks raise.
        """
        if share.tokens == 0:
            return others.get("out")
        if others.get("workspace") is None:
            others["workspace"] = self._prefill._new_workspace(
                arrays[0], others.get("cu_seqlens"), others.get("stream")
            )
        launch = {"state": state, "state_out": state_out, "continues": share.continues, **others}
        self._prefill(*arrays, step=1, **launch)
        if share.source is not None:
            self._ranks.receive(state[0], share.source)
        self._prefill(*arrays, step=2, **launch)
        if share.target is not None:
            self._ranks.send(state_out[share.sequences - 1], share.target)
        return self._prefill(*arrays, step=3, **launch)
