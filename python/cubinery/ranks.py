"""Prefills, and the convolutions in front of them, whose sequences are spread over several GPUs
(context parallelism).

Each rank (a process with one GPU) has neighbouring tokens of a packed batch.  What it cannot know,
the state in front of its first token, comes from the rank in front while most of the work is done:

    share = cubinery.ranks.shares(lengths, world_size, problem.segment_tokens)[rank]
    prefill = cubinery.ranks.RankPrefill(context.prepare(problem))   # torch.distributed's ranks
    out = prefill(q, k, v, g, beta, share=share, state=state, state_out=state_out, ...)

The result is exact, whatever the gates, and has the same bits on any number of ranks.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from cubinery import _arrays
from cubinery._errors import InvalidArgumentError, refuse, refuse_type
from cubinery.problems import PrefillProblem

if TYPE_CHECKING:
    from cubinery._operator import Operator
    from cubinery.conv import Conv
    from cubinery.gdn import Prefill

__all__ = [
    "RankConv",
    "RankPrefill",
    "Ranks",
    "Share",
    "TorchRanks",
    "segment_tokens",
    "shares",
    "shares_from",
]

OperatorT = TypeVar("OperatorT", bound="Operator[Any]")

_SEGMENT_UNIT = 64  # tokens that every segment has a multiple of
_MULTIPROCESSORS = 132  # of an H100
# Blocks on each of them, and how long segments have to be for that: each forgets by itself, which
# shorter ones pay for more often.  Measured on an H200 (docs/performance.md).
_SHORTEST_SEGMENTS = {1: 8192, 2: 16384}
_BLOCK_COLUMNS = 64  # of a state, that one block carries


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


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 0).bit_length()


def segment_tokens(tokens: int, v_heads: int, value_dim: int) -> int:
    """The segment length to take where each rank has about so many tokens.

    A power of two.  As many segments on a rank as give each multiprocessor of an H100 a block, if
    they have 8192 tokens, or two, if they have 16384 (a segment has v_heads * value_dim / 64 blocks);
    never longer than the power of two, 64 or more, that holds the rank's tokens.  All ranks need the
    same number: where they have other numbers of tokens, take the largest.

    Args:
        tokens: of one rank.
        v_heads: value heads of one GPU.
        value_dim: size of v of a head.

    Raises:
        InvalidArgumentError: no tokens, heads or columns at all, or a negative number of them.
    """
    for name, number in (("tokens", tokens), ("v_heads", v_heads), ("value_dim", value_dim)):
        least = 0 if name == "tokens" else 1
        if number < least:
            refuse(name, number, f"{least} or more")
    blocks = v_heads * -(-value_dim // _BLOCK_COLUMNS)

    def filling(each: int, shortest: int) -> int:
        segments = max(each * _MULTIPROCESSORS // blocks, 1)
        return max(_power_of_two(-(-tokens // segments)), shortest)

    longest = max(_power_of_two(tokens), _SEGMENT_UNIT)
    return min(longest, *(filling(*each) for each in _SHORTEST_SEGMENTS.items()))


def segment_tokens_of(share: Share | None, v_heads: int, value_dim: int) -> int:
    """segment_tokens() of a share; without one a problem's default."""
    if share is None:
        return PrefillProblem.segment_tokens
    return segment_tokens(checked_share(share).tokens, v_heads, value_dim)


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


class Ranks(Protocol):
    """What ranks exchange things by: TorchRanks, or an object of your own.

    RankPrefill and RankConv call it from the thread that calls them.  Functions keep what ranks have
    agreed on by this object: it is hashable, and equal to none of other ranks.
    """

    def gather(self, value: object) -> list[object]:
        """What each rank has given, by rank.  Waits for all."""

    def receive(self, array: Any, source: int) -> None:
        """Into `array`, which has no gaps, behind what is on the stream."""

    def send(self, array: Any, target: int) -> None:
        """`array`, which has no gaps, as it is behind what is on the stream."""


class TorchRanks:
    """The ranks of a torch.distributed group, whose tensors go along the current stream.  Equal to
    others of the same group.

    Args:
        group: None: all processes.
    """

    def __init__(self, group: Any = None) -> None:
        self._distributed: Any = import_module("torch.distributed")
        self._group = self._distributed.group.WORLD if group is None else group

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TorchRanks) and self._group is other._group

    def __hash__(self) -> int:
        return hash(id(self._group))

    @property
    def rank(self) -> int:
        """This process's, in the group."""
        return int(self._distributed.get_rank(self._group))

    def _of_all(self, rank: int) -> int:
        """A rank's number among all processes."""
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
        self._exchange(self._distributed.irecv, array, source)

    def send(self, array: Any, target: int) -> None:
        """`array` as it is behind what is on the stream."""
        self._exchange(self._distributed.isend, array, target)

    def _exchange(self, operation: Any, array: Any, rank: int) -> None:
        """As a batch of one: PyTorch has a communicator for each pair of ranks for what is none."""
        one = self._distributed.P2POp(operation, array, self._of_all(rank), self._group)
        for work in self._distributed.batch_isend_irecv([one]):
            work.wait()  # the stream does, where the group is of GPUs


class _OnRanks(Generic[OperatorT]):
    """An operator whose launches exchange arrays with those of other ranks."""

    _what: ClassVar[str]
    _needs: ClassVar[Mapping[str, object]]  # of the problem's fields

    def __init__(self, operator: OperatorT, ranks: Ranks | None) -> None:
        problem = operator.problem
        self._operator = operator
        self._ranks: Ranks = TorchRanks() if ranks is None else ranks
        found = self._ranks.gather(problem.to_json())
        first = found[0]
        others = [rank for rank, value in enumerate(found) if value != first]
        if others:  # in front of what one rank alone may refuse: the others would wait
            raise InvalidArgumentError(
                f"ranks: rank {others[0]} has {found[others[0]]}; accepted: {first}, as rank 0 has"
            )
        for name, needed in self._needs.items():
            if getattr(problem, name) != needed:
                refuse(name, getattr(problem, name), f"{needed!r}, for {self._what} on ranks")

    @staticmethod
    def _check_stream(launch: Mapping[str, Any]) -> None:
        """What ranks exchange goes along the current stream, so launches do, too."""
        if launch.get("stream") is not None:
            refuse("stream", launch["stream"], "None, the current stream, on ranks")


class RankPrefill(_OnRanks["Prefill"]):
    """A prefill on ranks.  Thread-safe as far as its ranks are.

    Args:
        prefill: of a problem with context_parallel and dense states (state_location "dense").
        ranks: None: TorchRanks(), all processes of torch.distributed.

    Raises:
        InvalidArgumentError: another problem, or ranks whose problems or kernels differ in what
            changes results.  Every rank raises it, so that none waits for the others.
    """

    _what = "a prefill"
    _needs = {"context_parallel": True, "state_location": "dense"}

    def __init__(self, prefill: Prefill, ranks: Ranks | None = None) -> None:
        super().__init__(prefill, ranks)

    @property
    def prefill(self) -> Prefill:
        return self._operator

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
            others: as of Prefill, without step, continues and stream.

        Returns: as Prefill.

        Raises: as Prefill, and what the ranks raise.
        """
        self._check_stream(others)
        if share.tokens == 0:
            return others.get("out")
        prefill = self._operator
        if others.get("workspace") is None:
            others["workspace"] = prefill._new_workspace(
                arrays[0], others.get("cu_seqlens"), others.get("stream")
            )
        launch = {"state": state, "state_out": state_out, "continues": share.continues, **others}
        prefill(*arrays, step=1, **launch)
        if share.source is not None:
            self._ranks.receive(state[0], share.source)
        prefill(*arrays, step=2, **launch)
        if share.target is not None:
            self._ranks.send(state_out[share.sequences - 1], share.target)
        return prefill(*arrays, step=3, **launch)


class RankConv(_OnRanks["Conv"]):
    """A convolution in front of a layer on ranks.  Thread-safe as far as its ranks are.

    Args:
        conv: of packed sequences (varlen) with dense states that are given and stored, and none of
            what is for drafts: stored_states "every", from_accepted, circular_state.
        ranks: None: TorchRanks(), all processes of torch.distributed.

    Raises: as RankPrefill.
    """

    _what = "a convolution"
    _needs = {
        "varlen": True,
        "state_location": "dense",
        "has_initial_state": True,
        "store_state": True,
        "stored_states": "last",
        "from_accepted": False,
        "circular_state": False,
    }

    def __init__(self, conv: Conv, ranks: Ranks | None = None) -> None:
        super().__init__(conv, ranks)

    @property
    def conv(self) -> Conv:
        return self._operator

    def __call__(
        self, x: Any, *arrays: Any, share: Share, state: Any, state_out: Any = None, **others: Any
    ) -> None:
        """Convolves the rank's share.  Enqueues, on the current stream, and does not wait.

        Args:
            x: [total, channels] of the rank's tokens.
            arrays: as of Conv: weight, bias.
            share: the rank's, of shares().
            state: [N, channels, columns] of the rank's sequences, in torch's or cupy's memory; of the
                first one's the last width - 1 columns are written where it comes from another rank,
                whose inputs are rounded to the states' dtype on the way.
            state_out: likewise, new states; None: in place.
            others: as of Conv, without stream; has_initial_state is true for a sequence that comes from
                another rank.

        Raises: as Conv, and what the ranks raise.
        """
        self._check_stream(others)
        if share.tokens == 0:
            return
        columns = self._operator.problem.width - 1
        last_tokens = share.cu_seqlens[-1] - share.cu_seqlens[-2]
        # Inputs alone make the next rank's window, where there are enough of them: they go first, and
        # no rank waits for more than the one in front.
        is_of_inputs = last_tokens >= columns
        if share.target is not None and is_of_inputs:
            rows = x[0] if len(x.shape) == 3 else x
            self._send(rows[share.tokens - columns : share.tokens], state, share.target)
        if share.source is not None:
            window = _arrays.empty(
                state, (columns, state.shape[1]), _arrays.dtype_of("state", state)
            )
            self._ranks.receive(window, share.source)
            state[0, :, -columns:] = window.swapaxes(0, 1)
        self._operator(x, *arrays, state=state, state_out=state_out, **others)
        if share.target is not None and not is_of_inputs:
            windows = state if state_out is None else state_out
            last = windows[share.sequences - 1, :, -columns:]
            self._send(last.swapaxes(0, 1), state, share.target)

    def _send(self, inputs: Any, state: Any, target: int) -> None:
        """Inputs [width - 1, channels], in the states' dtype and without gaps."""
        message = _arrays.empty(state, tuple(inputs.shape), _arrays.dtype_of("state", state))
        message[...] = inputs
        self._ranks.send(message, target)


_CLASSES: dict[str, Any] = {"gdn_prefill": RankPrefill, "gdn_conv": RankConv}


def checked_share(share: object) -> Share:
    """The share.  Raises InvalidArgumentError for anything else."""
    if not isinstance(share, Share):
        refuse_type("share", share, "a cubinery.ranks.Share, or None")
    return share


def on_ranks(operator: Any, ranks: Ranks | None, share: Share | None) -> Callable[..., Any]:
    """The operator's launches of a share.  The first call of an operator and some ranks waits for
    all of them, which agree on its problem."""
    if share is None:
        raise InvalidArgumentError("ranks: given; accepted: None, without share")
    checked_share(share)
    ranks = TorchRanks() if ranks is None else ranks
    made = operator._on_ranks.get(ranks)
    if made is None:
        made = operator._on_ranks.setdefault(ranks, _CLASSES[operator.problem.op](operator, ranks))
    return functools.partial(made, share=share)
