"""Shares of a packed batch, and what a prefill on ranks refuses."""

from __future__ import annotations

from typing import Any

import pytest

import cubinery
from cubinery import ranks
from cubinery.ranks import Share, shares, shares_from


def tokens_of(share: Share, lengths: list[int]) -> list[tuple[int, int, int]]:
    """(sequence, first token, end) of what the rank has, of the batch's sequences."""
    starts = [sum(lengths[:n]) for n in range(len(lengths))]
    found = []
    for i in range(share.sequences):
        n = share.first_sequence + i
        begin, end = (share.first + bound - starts[n] for bound in share.cu_seqlens[i : i + 2])
        found.append((n, begin, end))
    return found


@pytest.mark.parametrize(
    "lengths", [[1000], [1000, 0, 300], [0, 64], [10, 20, 30], [640, 1, 640, 0]]
)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
def test_shares_have_every_token_once(lengths: list[int], count: int) -> None:
    dealt = shares(lengths, count, 64)
    assert [share.first for share in dealt[1:]] == [share.end for share in dealt[:-1]]
    assert (dealt[0].first, dealt[-1].end) == (0, sum(lengths))
    pieces: dict[int, list[tuple[int, int]]] = {n: [] for n in range(len(lengths))}
    for rank, share in enumerate(dealt):
        found = tokens_of(share, lengths)
        for n, begin, end in found:
            pieces[n].append((begin, end))
            assert begin % 64 == 0
        if not found:
            assert share.source is share.target is None and share.tokens == 0
            continue
        assert (share.source is not None) == (found[0][1] > 0)
        if share.source is not None:
            assert dealt[share.source].target == rank
        n, _, end = found[-1]
        assert (share.target is not None) == (end < lengths[n])
    for n, length in enumerate(lengths):
        assert pieces[n][0][0] == 0 and pieces[n][-1][1] == length
        assert all(before[1] == after[0] for before, after in zip(pieces[n], pieces[n][1:]))


def test_shares_are_even() -> None:
    assert [share.tokens for share in shares([131072], 4, 8192)] == [32768] * 4
    sizes = [share.tokens for share in shares([100_000, 31_072], 4, 1024)]
    assert max(sizes) - min(sizes) <= 2048


def test_fewer_segments_than_ranks() -> None:
    dealt = shares([100], 4, 64)
    having = [rank for rank, share in enumerate(dealt) if share.tokens]
    assert len(having) == 2
    assert dealt[having[1]].source == having[0] and dealt[having[0]].target == having[1]


def test_ranks_may_begin_anywhere() -> None:
    first, second = shares_from([100], [0, 33])
    assert second.cu_seqlens == (0, 67) and second.continues and first.target == 1
    for begins in ([1, 50], [0, 101], [0, 60, 50]):
        with pytest.raises(cubinery.InvalidArgumentError, match="begins = "):
            shares_from([100], begins)


@pytest.mark.parametrize(
    "arguments, name",
    [(([-1], 2, 64), "lengths"), (([10], 0, 64), "ranks"), (([10], 1, 0), "segment_tokens")],
)
def test_what_cannot_be_dealt(arguments: tuple[Any, ...], name: str) -> None:
    with pytest.raises(cubinery.InvalidArgumentError, match=f"{name} = "):
        shares(*arguments)


class FakeRanks:
    """Of two: the other one has `other`."""

    def __init__(self, other: Any = None) -> None:
        self.other = other

    def gather(self, value: object) -> list[object]:
        return [value, value if self.other is None else self.other]


class FakePrefill:
    def __init__(self, **fields: Any) -> None:
        self.problem = cubinery.PrefillProblem(
            **{"q_heads": 1, "k_heads": 1, "v_heads": 1, "context_parallel": True, **fields}
        )


def test_ranks_agree_on_the_problem() -> None:
    ranks.RankPrefill(FakePrefill(), FakeRanks())  # type: ignore[arg-type]
    with pytest.raises(cubinery.InvalidArgumentError, match="rank 1 has another; accepted: {"):
        ranks.RankPrefill(FakePrefill(), FakeRanks("another"))  # type: ignore[arg-type]
    with pytest.raises(cubinery.InvalidArgumentError, match="context_parallel = False"):
        ranks.RankPrefill(FakePrefill(context_parallel=False), FakeRanks())  # type: ignore[arg-type]
    with pytest.raises(cubinery.InvalidArgumentError, match="state_location = 'pool'"):
        ranks.RankPrefill(FakePrefill(state_location="pool"), FakeRanks())  # type: ignore[arg-type]
