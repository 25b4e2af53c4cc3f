"""Shares of a packed batch, and prefills and convolutions on ranks that are not there."""

from __future__ import annotations

import json
from typing import Any

import convolution
import fake_ranks
import numpy as np
import pytest
import recurrence
from fake_gpu import FakeArray

import cubinery
from cubinery import functional, ranks
from cubinery.ranks import RankConv, RankPrefill, Share, TorchRanks, shares, shares_from


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


@pytest.mark.parametrize(
    "sizes, expected",
    [
        ((65536, 64, 128), 32768),
        ((16384, 64, 128), 16384),
        ((65536, 8, 128), 8192),
        ((524288, 8, 128), 32768),
        ((1 << 20, 256, 128), 1 << 20),  # one segment has all blocks already
        ((131072, 8, 128), 16384),
        ((5000, 64, 128), 8192),
        ((4096, 64, 128), 4096),
        ((65, 8, 128), 128),
        ((0, 8, 16), 64),
    ],
)
def test_segments_of_a_rank(sizes: tuple[int, int, int], expected: int) -> None:
    assert ranks.segment_tokens(*sizes) == expected


@pytest.mark.parametrize("heads, dim", [(1, 16), (4, 128), (32, 128), (48, 96), (64, 256)])
def test_segments_fill_the_device_once_or_twice(heads: int, dim: int) -> None:
    for tokens in (8192 * 3, 100_000, 1_000_000):
        found = ranks.segment_tokens(tokens, heads, dim)
        segments, blocks = -(-tokens // found), heads * -(-dim // 64)
        assert found >= 8192 and found & (found - 1) == 0
        assert segments == 1 or segments * blocks <= 264
        # Segments of half the length would be too short, or have too many blocks for that length.
        halves = -(-tokens // (found // 2)) * blocks
        assert found == 8192 or halves > (132 if found == 16384 else 264)


@pytest.mark.parametrize(
    "sizes, name", [((-1, 1, 64), "tokens"), ((1, 0, 64), "v_heads"), ((1, 1, 0), "value_dim")]
)
def test_what_has_no_segments(sizes: tuple[int, int, int], name: str) -> None:
    with pytest.raises(cubinery.InvalidArgumentError, match=f"{name} = "):
        ranks.segment_tokens(*sizes)


class FakeRanks:
    """Of two: the other one has `other`."""

    def __init__(self, other: Any = None) -> None:
        self.other = other
        self.gathered = 0

    def gather(self, value: object) -> list[object]:
        self.gathered += 1
        return [value, value if self.other is None else self.other]

    def receive(self, array: Any, source: int) -> None:
        raise AssertionError("nothing is sent")

    send = receive


class FakePrefill:
    def __init__(self, **fields: Any) -> None:
        self.problem = cubinery.PrefillProblem(
            **{"q_heads": 1, "k_heads": 1, "v_heads": 1, "context_parallel": True, **fields}
        )


def test_ranks_agree_on_the_problem() -> None:
    RankPrefill(FakePrefill(), FakeRanks())  # type: ignore[arg-type]
    with pytest.raises(cubinery.InvalidArgumentError, match="rank 1 has another; accepted: {"):
        RankPrefill(FakePrefill(), FakeRanks("another"))  # type: ignore[arg-type]
    with pytest.raises(cubinery.InvalidArgumentError, match="context_parallel = False"):
        RankPrefill(FakePrefill(context_parallel=False), FakeRanks())  # type: ignore[arg-type]
    with pytest.raises(cubinery.InvalidArgumentError, match="state_location = 'pool'"):
        RankPrefill(FakePrefill(state_location="pool"), FakeRanks())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"varlen": False},
        {"state_location": "pool"},
        {"has_initial_state": False},
        {"store_state": False},
        {"stored_states": "every"},
        {"from_accepted": True},
        {"circular_state": True},
    ],
)
def test_convolutions_that_ranks_do_not_take(fields: dict[str, Any]) -> None:
    ((name, value),) = fields.items()
    conv = fake_ranks.Conv(cubinery.ConvProblem(**{"varlen": True, **fields}))
    message = f"{name} = {value!r}; accepted: .*, for a convolution on ranks"
    with pytest.raises(cubinery.InvalidArgumentError, match=message):
        RankConv(conv, FakeRanks())  # type: ignore[arg-type]
    with pytest.raises(cubinery.InvalidArgumentError, match="rank 1 has another"):
        RankConv(conv, FakeRanks("another"))  # type: ignore[arg-type]


def test_groups_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_ranks.install(monkeypatch, 4)
    torch.rank, group = 3, fake_ranks.Group(1, 3)
    of_group = TorchRanks(group)
    assert of_group == TorchRanks(group) and hash(of_group) == hash(TorchRanks(group))
    assert of_group != TorchRanks() == TorchRanks(torch.group.WORLD)
    assert (of_group.rank, TorchRanks().rank) == (1, 3)
    of_group.send(np.zeros(1), 0)
    TorchRanks().send(np.zeros(1), 0)
    assert torch.sent == [(3, 1), (3, 0)]
    assert of_group.gather("mine") == ["mine"] * 2


# What ranks compute, one after the other


C, D = 6, 8
LENGTHS = [9, 1, 0, 2, 14]


def batch(heads: int = 2) -> list[np.ndarray]:
    """q, k, v, g, beta."""
    random, total = np.random.default_rng(3), sum(LENGTHS)
    q, k, v = (random.standard_normal((total, heads, D)).astype(np.float32) for _ in range(3))
    g = -random.random((total, heads)).astype(np.float32)
    return [q, recurrence.normalised(k).astype(np.float32), v, g, np.exp(g)]


SPLITS = [[0, 12], [0, 1, 2], [0, 3, 8, 9, 13], [0, 10, 10, 20], [0, *range(13, 26)]]


def prefill_on_ranks(begins: list[int], torch: fake_ranks.Distributed) -> list[Any]:
    arrays = batch()
    state = np.random.default_rng(4).standard_normal((len(LENGTHS), 2, D, D)).astype(np.float32)
    out, final = np.full_like(arrays[2], np.nan), np.full_like(state, np.nan)
    for torch.rank, share in enumerate(shares_from(LENGTHS, begins)):
        mine, rows = slice(share.first, share.end), slice(share.first_sequence, None)
        prefill = fake_ranks.Prefill()
        RankPrefill(prefill)(  # type: ignore[arg-type]
            *(array[mine] for array in arrays), share=share, out=out[mine],
            state=state[rows][: share.sequences].copy(),
            state_out=final[rows][: share.sequences], cu_seqlens=np.array(share.cu_seqlens),
        )  # fmt: skip
        assert prefill.steps == ([1, 2, 3] if share.tokens else [])
    assert torch.nothing_is_left()
    return [out, final]


@pytest.mark.parametrize("begins", SPLITS)
def test_prefill_on_ranks(monkeypatch: pytest.MonkeyPatch, begins: list[int]) -> None:
    torch = fake_ranks.install(monkeypatch, len(begins))
    for found, expected in zip(prefill_on_ranks(begins, torch), prefill_on_ranks([0], torch)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def convolve_on_ranks(
    begins: list[int], torch: fake_ranks.Distributed, width: int, columns: int, turned: bool,
    in_place: bool, lead: tuple[int, ...] = (),
) -> list[Any]:  # fmt: skip
    random, total = np.random.default_rng(5), sum(LENGTHS)
    x, weight, bias = (
        random.standard_normal(shape).astype(np.float32) for shape in ((total, C), (C, width), C)
    )
    state = random.standard_normal((len(LENGTHS), C, columns)).astype(np.float32)
    started = np.array([True, True, True, False, True])
    y, final = np.full_like(x, np.nan), np.full_like(state, np.nan)
    problem = cubinery.ConvProblem(varlen=True, width=width, whole_window=columns == width)
    for torch.rank, share in enumerate(shares_from(LENGTHS, begins)):
        rows = slice(share.first_sequence, share.first_sequence + share.sequences)
        given, flags = state[rows].copy(), started[rows].copy()
        if share.continues:
            given[0, :, -(width - 1) :], flags[0] = np.nan, True
        if turned:
            given = np.ascontiguousarray(given.swapaxes(1, 2)).swapaxes(1, 2)
        new = given if in_place else np.full_like(given, np.nan)
        mine = slice(share.first, share.end)
        RankConv(fake_ranks.Conv(problem))(  # type: ignore[arg-type]
            x[mine].reshape(*lead, share.tokens, C), weight, bias, share=share,
            y=y[mine].reshape(*lead, share.tokens, C), state=given,
            state_out=None if in_place else new, has_initial_state=flags,
            cu_seqlens=np.array(share.cu_seqlens),
        )  # fmt: skip
        final[rows] = new
    assert torch.nothing_is_left()
    return [y, final]


@pytest.mark.parametrize("begins", SPLITS)
@pytest.mark.parametrize("width, columns", [(4, 3), (4, 4), (2, 1), (3, 3)])
def test_convolution_on_ranks(
    monkeypatch: pytest.MonkeyPatch, begins: list[int], width: int, columns: int
) -> None:
    torch = fake_ranks.install(monkeypatch, len(begins))
    expected = convolve_on_ranks([0], torch, width, columns, False, False)
    for turned, in_place, lead in ((False, False, ()), (True, True, ()), (True, False, (1,))):
        found = convolve_on_ranks(begins, torch, width, columns, turned, in_place, lead)
        for one, other in zip(found, expected):
            np.testing.assert_array_equal(one, other)


def test_ranks_exchange_on_the_current_stream() -> None:
    share = Share(0, 1, 0, (0, 1), None, None)
    prefill = RankPrefill(fake_ranks.Prefill(), FakeRanks())  # type: ignore[arg-type]
    conv = RankConv(fake_ranks.Conv(), FakeRanks())  # type: ignore[arg-type]
    with pytest.raises(cubinery.InvalidArgumentError, match="stream = 7; accepted: None"):
        prefill(None, share=share, state=None, state_out=None, stream=7)
    with pytest.raises(cubinery.InvalidArgumentError, match="stream = 7; accepted: None"):
        conv(None, share=share, state=None, stream=7)


def test_inputs_go_first_where_they_make_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that has enough of them does not let the next one wait for what it waits for itself."""
    events: list[str] = []

    class Noted(FakeRanks):
        def receive(self, array: Any, source: int) -> None:
            events.append("receive")
            array[...] = 0

        def send(self, array: Any, target: int) -> None:
            events.append("send")

    monkeypatch.setattr(convolution, "gdn_conv", lambda *x, **options: events.append("launch"))
    conv = RankConv(fake_ranks.Conv(cubinery.ConvProblem(varlen=True)), Noted())  # type: ignore[arg-type]
    for tokens, expected in ((3, "send receive launch"), (2, "receive launch send")):
        share = Share(7, 7 + tokens, 0, (0, tokens), 0, 2)
        x, state = np.zeros((tokens, C), np.float32), np.zeros((1, C, 3), np.float32)
        conv(x, share=share, state=state)
        assert " ".join(events) == expected
        events.clear()


# cubinery.functional


ALONE = Share(0, 64, 0, (0, 32, 64), None, None)


def prefill(context: Any, **given: Any) -> Any:
    q, k, v, out = (FakeArray(64, 4, 16, dtype="bf16") for _ in range(4))
    state, new = FakeArray(2, 4, 16, 16), FakeArray(2, 4, 16, 16)
    options = {
        "out": out, "state": state, "state_out": new, "cu_seqlens": FakeArray(3, dtype="i32"),
        "workspace": FakeArray(1 << 20), "share": ALONE, **given,
    }  # fmt: skip
    return functional.gdn_prefill(q, k, v, context=context, **options)


def conv(context: Any, **given: Any) -> Any:
    x, y, weight = (FakeArray(*shape, dtype="bf16") for shape in ((64, 32), (64, 32), (32, 4)))
    options = {
        "y": y, "state": FakeArray(2, 32, 3, dtype="bf16"), "share": ALONE,
        "cu_seqlens": FakeArray(3, dtype="i32"), **given,
    }  # fmt: skip
    return functional.gdn_conv(x, weight, context=context, **options)


@pytest.mark.parametrize("function, launches", [(prefill, 3), (conv, 1)])
def test_functions_agree_once(context: Any, gpu: Any, function: Any, launches: int) -> None:
    some, others = FakeRanks(), FakeRanks()
    given = FakeArray(64, 4, 16, dtype="bf16") if function is prefill else None
    options = {} if given is None else {"out": given}
    first = function(context, ranks=some, **options)
    assert some.gathered == 1 and (given is None or first is given)
    launched = gpu.launches
    function(context, ranks=some)
    assert (some.gathered, others.gathered) == (1, 0) and gpu.launches - launched >= launches
    function(context, ranks=others)
    assert (some.gathered, others.gathered) == (1, 1)
    with pytest.raises(cubinery.InvalidArgumentError, match="rank 1 has another"):
        function(context, ranks=FakeRanks("another"))
    with pytest.raises(cubinery.InvalidArgumentError, match="share: is of type tuple; accepted:"):
        function(context, ranks=some, share=(0, 64))
    with pytest.raises(cubinery.InvalidArgumentError, match="ranks: given; .*, without share"):
        function(context, ranks=some, share=None)


def test_functions_take_the_ranks_of_all_processes(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = fake_ranks.install(monkeypatch, 2)
    for _ in range(2):
        prefill(context)
        conv(context)
    assert len(torch.gathered) == 2


@pytest.mark.parametrize(
    "given, tokens",
    [({}, 64), ({"segment_tokens": 128}, 128), ({"share": Share(0, 70, 0, (0, 70), 0, 1)}, 128)],
)
def test_segments_are_of_the_share(context: Any, given: dict[str, Any], tokens: int) -> None:
    found: list[Any] = []

    class Noted(FakeRanks):
        def gather(self, value: object) -> list[object]:
            found.append(value)
            raise cubinery.InvalidArgumentError("noted")

    with pytest.raises(cubinery.InvalidArgumentError, match="noted"):
        prefill(context, ranks=Noted(), **given)
    (problem,) = map(json.loads, found)
    assert problem["context_parallel"] and problem["segment_tokens"] == tokens


@pytest.mark.parametrize("function", [prefill, conv])
def test_functions_refuse_states_that_ranks_cannot_exchange(context: Any, function: Any) -> None:
    for given, message in (
        ({"state": None, "state_out": FakeArray(2, 4, 16, 16)}, "has_initial_state = "),
        ({"store_state": False, "state_out": None}, "store_state = "),
        (
            {"state_indices": FakeArray(2, dtype="i32"), "state_out": None},
            "state_location = 'pool'; accepted: 'dense'",
        ),
    ):
        if function is conv and given["state_out"] is not None:
            given["state_out"] = FakeArray(2, 32, 3, dtype="bf16")
        with pytest.raises(cubinery.InvalidArgumentError, match=message):
            function(context, ranks=FakeRanks(), **given)
    if function is prefill:
        with pytest.raises(cubinery.InvalidArgumentError, match="state_dtype = bf16"):
            halves = [FakeArray(2, 4, 16, 16, dtype="bf16") for _ in range(2)]
            prefill(context, ranks=FakeRanks(), state=halves[0], state_out=halves[1])
