"""FLA's cp_context without a GPU: ranks that run one after the other have what one GPU has."""

from __future__ import annotations

import types
from typing import Any

import convolution
import fake_ranks
import numpy as np
import pytest
import recurrence
from test_compat_fla import fake_fla, wide_inputs

from cubinery import InvalidArgumentError, functional
from cubinery.compat import _fla_ranks, fla

H, HV, K, V = 2, 4, 8, 6
TOKENS = 12  # of two, three or four ranks
BOUNDS = (0, 2, 9, 12)
C, W = 8, 4


@pytest.fixture(autouse=True)
def functions(monkeypatch: pytest.MonkeyPatch) -> None:
    recurrence.install(monkeypatch)
    monkeypatch.setattr(functional, "gdn_conv", convolution.gdn_conv)
    fake_ranks.run_functions_on_ranks(monkeypatch)


def context(rank: int, count: int, bounds: tuple[int, ...], group: Any, **more: Any) -> Any:
    """What FLA makes of the bounds of a batch that it deals evenly, and what is global of it: the
    rank's tokens, its sequences."""
    each = bounds[-1] // count
    first, end = rank * each, (rank + 1) * each
    mine = [
        n for n, (begin, last) in enumerate(zip(bounds, bounds[1:])) if begin < end and last > first
    ]
    local = [min(max(bounds[n], first), end) - first for n in (*mine, mine[-1] + 1)]
    made = types.SimpleNamespace(
        group=group,
        cu_seqlens=np.array(local, np.int32),
        cu_seqlens_cpu=np.array(local, np.int32),
        is_first_rank=bounds[mine[0]] >= first,
        is_last_rank=bounds[mine[-1] + 1] <= end,
        pre_num_ranks=0,
        post_num_ranks=0,
        conv1d_kernel_size=W,
        pre_num_conv_tokens=0,
    )
    for name, value in more.items():
        setattr(made, name, value)
    return made, slice(first, end), slice(mine[0], mine[-1] + 1)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def gdn_inputs() -> dict[str, np.ndarray]:
    return {
        "q": normal(1, 1, TOKENS, H, K),
        "k": recurrence.normalised(normal(2, 1, TOKENS, H, K)).astype(np.float32),
        "v": normal(3, 1, TOKENS, HV, V),
        "g": -np.abs(normal(4, 1, TOKENS, HV)),
        "beta": recurrence.sigmoid(normal(5, 1, TOKENS, HV)),
    }


def kda_inputs() -> dict[str, np.ndarray]:
    return {**gdn_inputs(), "g": -np.abs(normal(6, 1, TOKENS, HV, K))}


def conv_inputs() -> dict[str, np.ndarray]:
    return {"x": normal(7, 1, TOKENS, C), "residual": normal(8, 1, TOKENS, C)}


WEIGHTS = {"weight": normal(9, C, W), "bias": normal(10, C), "activation": "silu"}
FUNCTIONS = {
    "gdn": (fla.chunk_gated_delta_rule, gdn_inputs, (HV, K, V), {}),
    "kda": (fla.chunk_kda, kda_inputs, (HV, K, V), {}),
    "conv": (fla.causal_conv1d, conv_inputs, (C, W), WEIGHTS),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("count", [1, 2, 4, 12])
@pytest.mark.parametrize("bounds", [(0, TOKENS), BOUNDS])
@pytest.mark.parametrize("initial", [False, True])
def test_ranks_have_what_one_gpu_has(monkeypatch, name, count, bounds, initial):
    function, inputs, shape, options = FUNCTIONS[name]
    x, h0 = inputs(), normal(11, len(bounds) - 1, *shape) if initial else None
    expected, final = function(
        **x, **options, initial_state=h0, output_final_state=True, cu_seqlens=np.array(bounds)
    )
    processes = [2 * rank + 1 for rank in range(count)]
    torch, group = fake_ranks.install(monkeypatch, 2 * count), fake_ranks.Group(*processes)
    for rank, torch.rank in enumerate(processes):
        of_rank, tokens, rows = context(rank, count, bounds, group)
        given = None if h0 is None else h0[rows].copy()
        o, states = function(
            **{name: array[:, tokens] for name, array in x.items()}, **options,
            initial_state=given, output_final_state=True, cp_context=of_rank,
            # FLA's callers pass those of all ranks, which it does not read.
            cu_seqlens=np.array(bounds), cu_seqlens_cpu=np.array(bounds),
        )  # fmt: skip
        np.testing.assert_allclose(o, expected[:, tokens], rtol=1e-5, atol=1e-6)
        if given is not None:
            np.testing.assert_array_equal(given, h0[rows])  # never written
        ended = len(states) - (not of_rank.is_last_rank)
        np.testing.assert_allclose(states[:ended], final[rows][:ended], rtol=1e-5, atol=1e-6)
    assert torch.nothing_is_left()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_contexts_without_bounds_on_the_host(monkeypatch, name):
    function, inputs, _, options = FUNCTIONS[name]
    x = inputs()
    expected, _ = function(**x, **options, cu_seqlens=np.array(BOUNDS))
    torch = fake_ranks.install(monkeypatch, 4)
    for torch.rank in range(4):
        of_rank, tokens, _ = context(torch.rank, 4, BOUNDS, torch.group.WORLD)
        del of_rank.cu_seqlens_cpu, of_rank.conv1d_kernel_size  # an older FLA's
        of_rank.kernel_size = W
        mine = {name: array[:, tokens] for name, array in x.items()}
        o, states = function(**mine, **options, cp_context=of_rank)
        np.testing.assert_allclose(o, expected[:, tokens], rtol=1e-5, atol=1e-6)
        assert states is None


def test_intermediate_states_count_from_the_ranks_first_token(monkeypatch):
    long = {name: np.repeat(array, 20, axis=1) for name, array in kda_inputs().items()}
    long["g"] = long["g"] / 20
    torch = fake_ranks.install(monkeypatch, 2)
    options = {"return_intermediate_states": True, "output_final_state": True, "chunk_size": 32}
    kept = []
    for torch.rank in range(2):
        of_rank, tokens, _ = context(torch.rank, 2, (0, 240), torch.group.WORLD)
        mine = {name: array[:, tokens] for name, array in long.items()}
        _, final, h = fla.chunk_kda(**mine, **options, cp_context=of_rank)
        kept.append((final, h))
    _, last, h = fla.chunk_kda(**long, **options, cu_seqlens=np.array([0, 240]))
    np.testing.assert_allclose(kept[0][1][:, :4], h[:, :4], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kept[1][1][0, 0], kept[0][0][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kept[1][0], last, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_context_without_a_group_is_not_read(name):
    function, inputs, _, options = FUNCTIONS[name]
    off = types.SimpleNamespace(group=None, cu_seqlens=3, is_first_rank=None, is_last_rank=None)
    for bounds in (None, np.array(BOUNDS)):
        found, _ = function(**inputs(), **options, cu_seqlens=bounds, cp_context=off)
        expected, _ = function(**inputs(), **options, cu_seqlens=bounds)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    "change, message",
    [
        ({"cu_seqlens": None}, r"cp_context.cu_seqlens is None; accepted: an FLACPContext of FLA"),
        ({"is_last_rank": None}, "cp_context.is_last_rank is None; accepted: an FLACPContext"),
        ({"is_first_rank": np.array(True)}, "cp_context.is_first_rank is an array"),
        (
            {"intra_cp_cu_seqlens": None},
            "cp_context is of type SimpleNamespace, with intra_cp_cu_seqlens; accepted: an "
            "FLACPContext of FLA, with group, cu_seqlens, is_first_rank and is_last_rank",
        ),
        ({"is_first_rank": False}, "cp_context.is_first_rank = False; accepted: True, on rank 0"),
    ],
)
def test_contexts_that_are_refused(monkeypatch, name, change, message):
    function, inputs, _, options = FUNCTIONS[name]
    torch = fake_ranks.install(monkeypatch, 2)
    of_rank, _, _ = context(0, 1, BOUNDS, torch.group.WORLD, **change)
    with pytest.raises(InvalidArgumentError, match=message):
        function(**inputs(), **options, cp_context=of_rank)
    assert not torch.gathered and not torch.sent


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ranks_have_no_batch(monkeypatch, name):
    function, inputs, _, options = FUNCTIONS[name]
    torch = fake_ranks.install(monkeypatch, 2)
    of_rank, _, _ = context(0, 1, BOUNDS, torch.group.WORLD)
    two = {name: np.concatenate([array, array]) for name, array in inputs().items()}
    with pytest.raises(InvalidArgumentError, match="has a batch of 2; expected 1"):
        function(**two, **options, cp_context=of_rank)


def test_registered_functions_take_contexts(monkeypatch):
    dispatched = fake_fla(monkeypatch, "0.6")
    fla.register()
    x = {name: array[:1] for name, array in wide_inputs().items()}
    torch = fake_ranks.install(monkeypatch, 2)
    of_rank, _, _ = context(0, 1, (0, x["q"].shape[1]), torch.group.WORLD)
    verified, _ = dispatched.backends[0].chunk_gated_delta_rule_verifier(**x, cp_context=of_rank)
    assert verified and not torch.gathered  # what verifies waits for nobody
    o, _ = dispatched(**x, cp_context=of_rank)
    np.testing.assert_array_equal(o, fla.chunk_gated_delta_rule(**x)[0])
    assert torch.gathered


def test_every_rank_has_states_of_the_same_kind():
    """With and without an initial state, so that ranks have the same problem."""
    x, shape = normal(1, 1, 4, C).astype(np.float16), (2, C, W)
    for initial in (None, normal(2, *shape), normal(2, *shape).astype(np.float16)):
        for wanted in (False, True):
            final, options = _fla_ranks.new_states(x, initial, shape, wanted)
            assert sorted(options) == ["state", "state_out"]
            assert {array.dtype.name for array in options.values()} == {"float32"}
            assert (final is None) != wanted
