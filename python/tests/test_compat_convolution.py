"""The adapters' causal convolutions without a GPU: what they hand on, run by the convolution in
numpy, is what the other libraries' functions compute."""

from __future__ import annotations

import inspect

import convolution
import numpy as np
import pytest

from cubinery import InvalidArgumentError, UnsupportedError, functional
from cubinery.compat import causal_conv1d, fla, sglang, tensorrt_llm, tokenspeed, vllm

B, C, T, W = 3, 32, 7, 4
SLOTS = 6
BOUNDS = np.array([0, 1, 6, 6, 16], np.int32)  # of N packed sequences
N, TOTAL = len(BOUNDS) - 1, int(BOUNDS[-1])


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """The options of each call of functional.gdn_conv."""
    found = []

    def noted(*arrays, **options):
        found.append(options)
        return convolution.gdn_conv(*arrays, **options)

    monkeypatch.setattr(functional, "gdn_conv", noted)
    return found


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


WEIGHT, BIAS = normal(1, C, W), normal(2, C)


def turned(array: np.ndarray) -> np.ndarray:
    """The same values with the last but one dimension innermost in memory."""
    return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)


def as_laid(array: np.ndarray, layout: str) -> np.ndarray:
    return turned(array) if layout == "channels" else array.copy()


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def tap(x, history, weight=WEIGHT, bias=BIAS, activation=silu):
    """One sequence x [C, T] behind history [C, W - 1], token by token, in float64."""
    inputs = np.concatenate([history, x], axis=1).astype(np.float64)
    y = np.empty(x.shape)
    for t in range(x.shape[1]):
        y[:, t] = (inputs[:, t : t + weight.shape[1]] * weight).sum(1) + (
            0 if bias is None else bias
        )
    return activation(y)


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


def last(history: np.ndarray, x: np.ndarray) -> np.ndarray:
    """As many inputs as history has, the newest ones."""
    return np.concatenate([history, x], axis=1)[:, x.shape[1] :]


LAYOUTS = ("channels", "tokens")
ACTIVATIONS = [(None, lambda y: y), ("silu", silu), ("swish", silu)]

# causal-conv1d


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("activation, function", ACTIVATIONS)
@pytest.mark.parametrize("tokens", [1, 2, T])
def test_dao(layout, activation, function, tokens):
    x, start = as_laid(normal(3, B, C, tokens), layout), normal(4, B, C, W - 1)
    before = start.copy()
    y = causal_conv1d.causal_conv1d_fn(x, WEIGHT, BIAS, activation=activation)
    assert y.shape == x.shape and (tokens == 1 or y.strides == x.strides)
    z, final = causal_conv1d.causal_conv1d_fn(
        x, WEIGHT, initial_states=start, return_final_states=True, activation=activation
    )
    for n in range(B):
        zeros = np.zeros((C, W - 1))
        assert_close(y[n], tap(x[n], zeros, activation=function))
        assert_close(z[n], tap(x[n], start[n], bias=None, activation=function))
        np.testing.assert_array_equal(final[n], last(start[n], x[n]))
    np.testing.assert_array_equal(start, before)


def test_dao_final_states_out():
    x, out = normal(3, B, C, 2), np.full((B, C, W - 1), np.nan, np.float32)
    _, final = causal_conv1d.causal_conv1d_fn(
        x, WEIGHT, return_final_states=True, final_states_out=out
    )
    assert final is out
    np.testing.assert_array_equal(out, np.concatenate([np.zeros((B, C, 1)), x], axis=2))
    with pytest.raises(InvalidArgumentError, match="final_states_out needs return_final_states"):
        causal_conv1d.causal_conv1d_fn(x, WEIGHT, final_states_out=out)


@pytest.mark.parametrize("columns", [W - 1, W])
@pytest.mark.parametrize("tokens", [None, 1, 2, 9])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dao_update(columns, tokens, layout):
    x, states = normal(3, B, C, tokens or 1), as_laid(normal(4, B, C, columns), layout)
    before = states.copy()
    given = x[:, :, 0] if tokens is None else as_laid(x, layout)
    y = causal_conv1d.causal_conv1d_update(given, states, WEIGHT, BIAS, "silu")
    assert y.shape == given.shape
    for n in range(B):
        assert_close(y.reshape(x.shape)[n], tap(x[n], before[n, :, 1 - W :]))
        np.testing.assert_array_equal(states[n], last(before[n], x[n]))


@pytest.mark.parametrize("columns", [W - 1, W, 9])
@pytest.mark.parametrize("tokens", [None, 1, 2, 12])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dao_update_of_a_circular_state(columns, tokens, layout, calls):
    x, states = normal(3, B, C, tokens or 1), as_laid(normal(4, B, C, columns), layout)
    before, counts = states.copy(), np.array([0, columns - 1, 5 * columns + 2], np.int32)
    given = x[:, :, 0] if tokens is None else as_laid(x, layout)
    y = causal_conv1d.causal_conv1d_update(
        given, states, WEIGHT, BIAS, "silu", cache_seqlens=counts
    )
    assert y.shape == given.shape and "cache_seqlens" in calls[-1]
    for n, count in enumerate(counts):
        # What the library's own kernel does, step by step.
        place = count % columns - (W - 1)
        place += columns if place < 0 else 0
        ring, history = before[n], []
        for _ in range(W - 1):
            history.append(ring[:, place].copy())
            place = (place + 1) % columns
        for t in range(x.shape[2]):
            ring[:, place] = x[n, :, t]
            place = (place + 1) % columns
        assert_close(y.reshape(x.shape)[n], tap(x[n], np.stack(history, axis=1)))
        np.testing.assert_array_equal(states[n], ring)


def test_dao_update_of_a_circular_pool():
    x, states, slots = normal(3, B, C), normal(4, SLOTS, C, 6), np.array([4, -1, 0], np.int32)
    before, counts = states.copy(), np.array([5, 6, 7], np.int32)
    y = causal_conv1d.causal_conv1d_update(
        x, states, WEIGHT, cache_seqlens=counts, conv_state_indices=slots
    )
    assert not y[1].any()
    for n, columns in {0: [2, 3, 4], 2: [4, 5, 0]}.items():
        expected = tap(
            x[n, :, None], before[slots[n]][:, columns], bias=None, activation=lambda y: y
        )
        assert_close(y[n], expected[:, 0])
        before[slots[n], :, (columns[-1] + 1) % 6] = x[n]
    np.testing.assert_array_equal(states, before)


def test_dao_update_of_a_pool():
    x, states, slots = normal(3, B, C), normal(4, SLOTS, C, W), np.array([4, -1, 0], np.int32)
    before = states.copy()
    y = causal_conv1d.causal_conv1d_update(x, states, WEIGHT, conv_state_indices=slots)
    assert not y[1].any()
    for n in (0, 2):
        history = before[slots[n]]
        expected = tap(x[n, :, None], history[:, 1:], bias=None, activation=lambda y: y)
        assert_close(y[n], expected[:, 0])
        before[slots[n]] = last(history, x[n, :, None])
    np.testing.assert_array_equal(states, before)


def test_dao_refusals():
    x, state = normal(3, B, C, T), normal(4, B, C, W - 1)
    fn, update = causal_conv1d.causal_conv1d_fn, causal_conv1d.causal_conv1d_update
    with pytest.raises(UnsupportedError, match="seq_idx is not supported; pack"):
        fn(x, WEIGHT, seq_idx=np.zeros((B, T), np.int32))
    with pytest.raises(InvalidArgumentError, match="activation is 'relu'; supported: None or"):
        fn(x, WEIGHT, activation="relu")
    with pytest.raises(InvalidArgumentError, match=r"initial_states has shape \[3, 32, 4\]"):
        fn(x, WEIGHT, initial_states=normal(4, B, C, W))
    with pytest.raises(InvalidArgumentError, match=r"x has shape .* expected \[B, D, L\]"):
        fn(x[0], WEIGHT)
    with pytest.raises(InvalidArgumentError, match=r"cache_seqlens has shape \[2\]"):
        update(x, state, WEIGHT, cache_seqlens=np.zeros(2, np.int32))
    with pytest.raises(InvalidArgumentError, match=r"conv_state has shape .* 3 or more\]"):
        update(x, state[:, :, 1:], WEIGHT, cache_seqlens=np.zeros(B, np.int32))
    with pytest.raises(UnsupportedError, match="conv_state has 5 columns; supported: 3 or 4 with"):
        update(x, normal(4, B, C, W + 1), WEIGHT)
    with pytest.raises(InvalidArgumentError, match=r"conv_state has shape .* 3 or more\]"):
        update(x, state[:, :, 1:], WEIGHT)
    with pytest.raises(InvalidArgumentError, match=r"conv_state_indices has shape \[2\]"):
        update(x, state, WEIGHT, conv_state_indices=np.zeros(2, np.int32))
    with pytest.raises(UnsupportedError, match="conv_state is float64; supported state dtypes"):
        update(x, state.astype(np.float64), WEIGHT)


# Engines: prefill


ENGINES = {
    "vllm": vllm, "sglang": sglang, "tensorrt_llm": tensorrt_llm, "tokenspeed": tokenspeed,
}  # fmt: skip
PADDING = dict.fromkeys(ENGINES, (-1, [3, -1, 1, 5])) | {"vllm": (0, [3, 0, 1, 5])}
ACCEPTED = dict.fromkeys(ENGINES, "num_accepted_tokens") | {"sglang": "num_accept_tokens"}
STARTS = np.array([True, True, False, True])


def check_prefill(y, x, states, before, slots, padding, starts, columns=W - 1):
    """y [C, TOTAL] and a pool, of which the first columns count."""
    for n, slot in enumerate(slots):
        part = x[:, BOUNDS[n] : BOUNDS[n + 1]]
        mine = y[:, BOUNDS[n] : BOUNDS[n + 1]]
        if slot == padding:
            assert not mine.any()
            continue
        history = before[slot, :, :columns] if starts[n] else np.zeros((C, columns))
        assert_close(mine, tap(part, history))
        before[slot, :, :columns] = last(history, part)
    np.testing.assert_array_equal(states, before)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("columns", [W - 1, W, W + 2])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_engines_prefill(engine, layout, columns, index):
    x, states = as_laid(normal(5, C, TOTAL), layout), as_laid(normal(6, SLOTS, C, columns), layout)
    padding, slots = PADDING[engine]
    before = states.copy()
    y = ENGINES[engine].causal_conv1d_fn(
        x, WEIGHT, BIAS, conv_states=states, query_start_loc=BOUNDS.astype(index),
        cache_indices=np.array([*slots, 2], index), has_initial_state=STARTS,  # a graph has more
    )  # fmt: skip
    assert y.shape == x.shape and y.strides == x.strides
    check_prefill(y, x, states, before, slots, padding, STARTS)


def test_sglang_prefill_does_not_need_a_table_of_blocks():
    x, states = normal(5, C, TOTAL), normal(6, SLOTS, C, W - 1)
    padding, slots = PADDING["sglang"]
    before = states.copy()
    y = sglang.causal_conv1d_fn(
        x, WEIGHT, BIAS, conv_states=states, query_start_loc=BOUNDS, seq_lens_cpu=[1, 5, 0, 10],
        cache_indices=np.array(slots), has_initial_state=STARTS,
        block_table=np.array([[0, 0], [1, 0], [3, 0]], np.int32),
    )  # fmt: skip
    check_prefill(y, x, states, before, slots, padding, STARTS)


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_prefill_from_zeros(engine, calls):
    x, states = normal(5, C, TOTAL), normal(6, SLOTS, C, W - 1)
    padding, slots = PADDING[engine]
    before = states.copy()
    y = ENGINES[engine].causal_conv1d_fn(
        x, WEIGHT, BIAS, conv_states=states, query_start_loc=BOUNDS, cache_indices=np.array(slots),
        activation=True,
    )  # fmt: skip
    check_prefill(y, x, states, before, slots, padding, [False] * N)
    assert calls[0].get("state") is None


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_prefill_of_dense_states(engine):
    x, states = normal(5, C, TOTAL), normal(6, SLOTS, C, W)
    before = states.copy()
    y = ENGINES[engine].causal_conv1d_fn(
        x, WEIGHT, BIAS, conv_states=states, query_start_loc=BOUNDS, has_initial_state=STARTS
    )
    check_prefill(y, x, states, before, range(N), None, STARTS)


def test_vllm_padding_slots():
    """null_block_id is the newer name; pad_slot_id beside it is vLLM's own."""
    for options, slots in (
        ({"pad_slot_id": -1}, [3, -1, 0, 5]),
        ({"null_block_id": -1}, [3, -1, 0, 5]),
        ({"pad_slot_id": -1, "null_block_id": 0}, [3, 0, 1, 5]),
    ):
        x, states = normal(5, C, TOTAL), normal(6, SLOTS, C, W - 1)
        before = states.copy()
        y = vllm.causal_conv1d_fn(
            x, WEIGHT, BIAS, states, BOUNDS, np.array(slots), STARTS, **options
        )
        check_prefill(y, x, states, before, slots, slots[1], STARTS)
    with pytest.raises(InvalidArgumentError, match="pad_slot_id is 7; supported: 0 or -1"):
        vllm.causal_conv1d_fn(x, WEIGHT, BIAS, states, BOUNDS, np.array(slots), pad_slot_id=7)


def test_sglang_prefill_without_states():
    x = normal(5, B, C, T)
    y = sglang.causal_conv1d_fn(x, WEIGHT, BIAS, activation=None, seq_lens_cpu=[T] * B)
    for n in range(B):
        assert_close(y[n], tap(x[n], np.zeros((C, W - 1)), activation=lambda y: y))
    for name, array in {"cache_indices": np.zeros(B, int), "has_initial_state": STARTS[:B]}.items():
        with pytest.raises(InvalidArgumentError, match=f"{name} needs conv_states"):
            sglang.causal_conv1d_fn(x, WEIGHT, BIAS, **{name: array})


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_prefill_refusals(engine):
    fn = ENGINES[engine].causal_conv1d_fn
    x, states, slots = normal(5, C, TOTAL), normal(6, SLOTS, C, W - 1), np.arange(1, N + 1)
    given = {
        "x": x, "weight": WEIGHT, "bias": BIAS, "conv_states": states, "query_start_loc": BOUNDS,
        "cache_indices": slots, "has_initial_state": STARTS,
    }  # fmt: skip
    for changed, message in (
        ({"x": x[None]}, r"x has shape \[1, 32, 16\]; expected \[dim, T\]"),
        ({"conv_states": states[:, :, 1:]}, "conv_states has shape .* expected .*3 or more"),
        ({"conv_states": states[0]}, r"conv_states has shape \[32, 3\]"),
        ({"cache_indices": slots[1:]}, r"cache_indices has shape \[3\]; expected \[N\], N = 4"),
        ({"cache_indices": slots[:, None, None]}, r"cache_indices has shape \[4, 1, 1\]"),
        ({"has_initial_state": STARTS[1:]}, r"has_initial_state has shape \[3\]"),
        ({"activation": "gelu"}, "activation is 'gelu'"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            fn(**{**given, **changed})
    if engine != "vllm":  # vLLM's have a table of blocks
        with pytest.raises(InvalidArgumentError, match=r"cache_indices has shape \[4, 1\]"):
            fn(**{**given, "cache_indices": slots[:, None]})


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_vllm_takes_the_first_slots_of_a_table(index):
    table = np.full((N + 1, 3), 77, index)  # other blocks are not looked at
    table[:, 0] = [3, 0, 1, 5, 2]
    x, states = normal(5, C, TOTAL), normal(6, SLOTS, C, W - 1)
    before = states.copy()
    y = vllm.causal_conv1d_fn(x, WEIGHT, BIAS, states, BOUNDS, table, STARTS)
    check_prefill(y, x, states, before, table[:N, 0], 0, STARTS)
    x, slots = normal(7, N, C), table[:N, 0]
    flat, rows = states.copy(), states.copy()
    y = vllm.causal_conv1d_update(x, rows, WEIGHT, BIAS, "silu", table)
    z = vllm.causal_conv1d_update(x, flat, WEIGHT, BIAS, "silu", slots)
    np.testing.assert_array_equal(y, z)
    np.testing.assert_array_equal(rows, flat)
    assert (rows != states).any()


@pytest.mark.parametrize("form", ["one", "dense", "packed"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_vllm_update_into_an_output(form, layout):
    states, slots = normal(6, SLOTS, C, W + 1), np.array([3, 0, 1, 5])
    options = {"conv_state_indices": slots}
    shape = {"one": (N, C), "dense": (N, C, 2), "packed": (2 * N, C)}[form]
    if form == "packed":
        options |= {"query_start_loc": np.arange(0, 2 * N + 1, 2), "max_query_len": 2}
        options["num_accepted_tokens"] = np.array([1, 1, 2, 2])
    x, out = as_laid(normal(5, *shape), layout), as_laid(np.full(shape, np.nan, "f"), layout)
    kept = states.copy()
    y = vllm.causal_conv1d_update(x, states, WEIGHT, BIAS, "silu", out=out, **options)
    assert y is out
    expected = vllm.causal_conv1d_update(x, kept, WEIGHT, BIAS, "silu", **options)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(states, kept)
    for wrong, message in (
        (out[:1], r"out has shape .*; expected \["),
        (out.astype(np.float16), "out is f16; expected f32, as x"),
        (x, "out is x; expected other memory"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            vllm.causal_conv1d_update(x, states, WEIGHT, BIAS, out=wrong, **options)
    np.testing.assert_array_equal(states, kept)


def test_vllm_refuses_prefix_caching():
    x, states, blocks = normal(5, C, TOTAL), normal(6, SLOTS, C, W - 1), np.zeros(N, np.int32)
    for name in (
        "block_idx_first_scheduled_token",
        "block_idx_last_scheduled_token",
        "initial_state_idx",
        "num_computed_tokens",
    ):
        with pytest.raises(UnsupportedError, match=f"{name} is not supported; a sequence has one"):
            vllm.causal_conv1d_fn(x, WEIGHT, BIAS, states, BOUNDS, blocks, **{name: blocks})
    for name in ("block_idx_last_scheduled_token", "initial_state_idx", "retrieve_parent_token"):
        with pytest.raises(UnsupportedError, match=f"{name} is not supported"):
            vllm.causal_conv1d_update(normal(5, N, C), states, WEIGHT, **{name: blocks})
    with pytest.raises(InvalidArgumentError, match="query_start_loc is required"):
        vllm.causal_conv1d_fn(x, WEIGHT, BIAS, states, None)


# Engines: decode and drafts


# Of a wider pool vLLM's newest input is in column W - 2, SGLang's in the last one.
@pytest.mark.parametrize(
    "engine, columns, moved",
    [
        ("vllm", W - 1, W - 1),
        ("vllm", W, W - 1),
        ("vllm", W + 2, W - 1),
        ("sglang", W - 1, W - 1),
        ("sglang", W, W),
        ("tensorrt_llm", W - 1, W - 1),
        ("tensorrt_llm", W, W),
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("tokens", [None, 2, T])
def test_engines_update(engine, layout, columns, moved, tokens):
    x, states = normal(5, N, C, tokens or 1), as_laid(normal(6, SLOTS, C, columns), layout)
    padding, slots = PADDING[engine]
    before = states.copy()
    given = x[:, :, 0] if tokens is None else as_laid(x, layout)
    y = ENGINES[engine].causal_conv1d_update(
        given, states, WEIGHT, BIAS, "silu", conv_state_indices=np.array([*slots, 2])
    )
    assert y.shape == given.shape
    for n, slot in enumerate(slots):
        mine = y.reshape(x.shape)[n]
        if slot == padding:
            assert not mine.any()
            continue
        window = before[slot, :, :moved]
        assert_close(mine, tap(x[n], window[:, 1 - W :]))
        before[slot, :, :moved] = last(window, x[n])
    np.testing.assert_array_equal(states, before)


@pytest.mark.parametrize("windows", [False, True])
def test_sglang_does_not_move_wider_states(windows):
    x, states, slots = normal(5, N, C), normal(6, SLOTS, C, W + 1), np.arange(N)
    before, options = states.copy(), {}
    if windows:
        options["intermediate_conv_window"] = normal(7, N, 1, C, W - 1)
        options["intermediate_state_indices"] = slots
    with pytest.raises(
        UnsupportedError, match="conv_state has 5 columns; supported: 3 or 4 with a weight of 4"
    ):
        sglang.causal_conv1d_update(x, states, WEIGHT, conv_state_indices=slots, **options)
    np.testing.assert_array_equal(states, before)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("activation, function", [(True, silu), (False, lambda y: y)])
def test_engines_update_of_dense_states(engine, activation, function):
    x, states = normal(5, N, C), normal(6, SLOTS, C, W - 1)
    before = states.copy()
    y = ENGINES[engine].causal_conv1d_update(x, states, WEIGHT, BIAS, activation)
    for n in range(N):
        assert_close(y[n], tap(x[n, :, None], before[n], activation=function)[:, 0])
        before[n] = last(before[n], x[n, :, None])
    np.testing.assert_array_equal(states, before)


def rounds(step, histories, drafts):
    """Three launches of drafts and what was accepted of them, against one sequence per request.

    step(x, accepted) returns y of x, lists of [C, T] per request."""
    accepted = np.array([1, 0, 1], np.int32)  # 0 is taken as 1
    for seed, counts in ((10, (2, 3, 1)), (20, (3, 1, 2)), (30, (1, 2, 2))):
        x = [normal(seed + n, C, tokens) for n, tokens in enumerate(drafts)]
        y = step(x, accepted)
        for n, tokens in enumerate(drafts):
            assert_close(y[n], tap(x[n], histories[n]))
            kept = min(counts[n], max(tokens, 1))
            histories[n] = last(histories[n], x[n][:, :kept])
            accepted[n] = kept


SPEC_SLOTS = [4, 1, 2]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("columns", [W + 1, W + 3])
def test_engines_drafts(engine, layout, columns):
    drafts = 3
    states = as_laid(normal(6, SLOTS, C, columns), layout)
    before = states.copy()

    def step(x, accepted):
        return ENGINES[engine].causal_conv1d_update(
            as_laid(np.stack(x), layout), states, WEIGHT, BIAS, "silu",
            conv_state_indices=np.array(SPEC_SLOTS, np.int32), **{ACCEPTED[engine]: accepted},
        )  # fmt: skip

    rounds(step, [states[slot, :, : W - 1].copy() for slot in SPEC_SLOTS], [drafts] * 3)
    np.testing.assert_array_equal(states[[0, 3, 5]], before[[0, 3, 5]])
    np.testing.assert_array_equal(states[:, :, W + 1 :], before[:, :, W + 1 :])


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_vllm_packed_drafts(index):
    drafts, states = [3, 4, 2], normal(6, SLOTS, C, W + 2)
    bounds = np.cumsum([0, *drafts, 0]).astype(index)  # a graph's have a sequence of none behind

    def step(x, accepted):
        y = vllm.causal_conv1d_update(
            np.concatenate(x, axis=1).T, states, WEIGHT, BIAS, "silu", np.array(SPEC_SLOTS, index),
            accepted, bounds, max_query_len=4,
        )  # fmt: skip
        return np.split(y.T, bounds[1:3], axis=1)

    rounds(step, [states[slot, :, : W - 1].copy() for slot in SPEC_SLOTS], drafts)


def test_vllm_drafts_that_do_not_fit():
    states, slots = normal(6, SLOTS, C, W + 1), np.array(SPEC_SLOTS)
    counts, bounds = np.ones(3, np.int32), np.array([0, 4, 8, 12])
    before = states.copy()

    def update(x, **options):
        return vllm.causal_conv1d_update(
            x, states, WEIGHT, conv_state_indices=slots, num_accepted_tokens=counts, **options
        )

    with pytest.raises(
        InvalidArgumentError, match="x has T = 4 and conv_state has 5 columns; .* 6"
    ):
        update(normal(7, 3, C, 4))
    with pytest.raises(InvalidArgumentError, match="max_query_len is 4 and conv_state has 5"):
        update(normal(7, 12, C), query_start_loc=bounds, max_query_len=4)
    # The host does not see how many tokens there are.
    assert np.isnan(update(normal(7, 12, C), query_start_loc=bounds)).all()
    np.testing.assert_array_equal(states, before)


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_update_refusals(engine):
    update = ENGINES[engine].causal_conv1d_update
    x, states = normal(5, N, C), normal(6, SLOTS, C, W - 1)
    with pytest.raises(InvalidArgumentError, match=r"x has shape \[4\]; expected \[N, dim, T\]"):
        update(x[:, 0], states, WEIGHT)
    with pytest.raises(InvalidArgumentError, match=r"conv_state has shape \[3, 32, 3\]; expected"):
        update(x, states[:3], WEIGHT)
    with pytest.raises(InvalidArgumentError, match=r"conv_state_indices has shape \[3\]"):
        update(x, states, WEIGHT, conv_state_indices=np.zeros(3, np.int32))


def test_vllm_packed_update_needs_indices():
    with pytest.raises(InvalidArgumentError, match="query_start_loc needs conv_state_indices"):
        vllm.causal_conv1d_update(
            normal(5, N, C), normal(6, SLOTS, C, W - 1), WEIGHT, query_start_loc=np.arange(N + 1)
        )


@pytest.mark.parametrize("engine", ["sglang", "tensorrt_llm"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("gap", [0, 2])
@pytest.mark.parametrize("columns", [W - 1, W])
def test_windows_after_each_token(engine, layout, gap, columns):
    update = ENGINES[engine].causal_conv1d_update
    drafts, steps = 3, 4
    slots, rows = np.array([4, -1, 2], np.int32), np.array([5, 0, 2], np.int64)
    states = as_laid(normal(6, SLOTS, C, columns), layout)
    kept = states.copy()
    memory = np.full((SLOTS, steps + gap, C, W - 1), np.nan, np.float32)
    windows = as_laid(memory, layout)[:, :steps]
    x = normal(7, 3, C, drafts)
    y = update(
        as_laid(x, layout), states, WEIGHT, BIAS, "silu", conv_state_indices=slots,
        intermediate_conv_window=windows, intermediate_state_indices=rows,
    )  # fmt: skip
    without = kept.copy()
    np.testing.assert_array_equal(
        y, update(x, without, WEIGHT, BIAS, "silu", conv_state_indices=slots)
    )
    np.testing.assert_array_equal(states, without)
    for n in (0, 2):
        for t in range(drafts):
            expected = last(kept[slots[n], :, 1 - W :], x[n, :, : t + 1])
            np.testing.assert_array_equal(windows[rows[n], t], expected)
        assert np.isnan(windows[rows[n], drafts:]).all()
    assert np.isnan(windows[[0, 1, 3, 4]]).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("columns", [W - 1, W + 1])
@pytest.mark.parametrize("tokens", [None, 1, 3])
def test_tokenspeed_windows_go_to_slots(layout, columns, tokens):
    """The second request is padding, and one state of the first has no slot."""
    read = np.array([4, -1, 2], np.int32)
    written = np.array([[0, -1, 1], [6, 7, 8], [9, 10, 11]], np.int64)[:, : tokens or 1]
    states = as_laid(normal(6, 12, C, columns), layout)
    before, x = states.copy(), normal(7, 3, C, tokens or 1)
    given = x[:, :, 0] if tokens is None else as_laid(x, layout)
    y = tokenspeed.causal_conv1d_update(
        given, states, WEIGHT, BIAS, "silu", conv_state_indices=read, output_state_indices=written,
        parent_indices=None,
    )  # fmt: skip
    assert y.shape == given.shape
    for n in (0, 2):
        window = before[read[n], :, : W - 1].copy()
        assert_close(y.reshape(x.shape)[n], tap(x[n], window))
        for t, slot in enumerate(written[n]):
            if slot >= 0:
                before[slot, :, : W - 1] = last(window, x[n, :, : t + 1])
    assert not y[1].any()
    np.testing.assert_array_equal(states, before)


def test_tokenspeed_update_refusals():
    x, states, slots = normal(5, N, C, 2), normal(6, SLOTS, C, W), np.zeros(N, np.int32)
    table = np.zeros((N, 2), np.int32)
    for options, error, message in (
        ({"parent_indices": table}, UnsupportedError, "parent_indices is not supported; drafts"),
        ({"intermediate_conv_window": table}, UnsupportedError, "intermediate_conv_window is not"),
        ({"cache_seqlens": slots}, UnsupportedError, "cache_seqlens is not supported"),
        ({}, UnsupportedError, "x has T = 2 tokens; several need output_state_indices or"),
        ({"output_state_indices": table[:, :1]}, InvalidArgumentError, r"shape \[4, 1\]"),
        ({"output_state_indices": table[1:]}, InvalidArgumentError, r"shape \[3, 2\]; expected"),
        (
            {"output_state_indices": table, "num_accepted_tokens": slots},
            UnsupportedError, "num_accepted_tokens is not supported; windows after each token",
        ),
        (
            {"output_state_indices": table, "conv_state_indices": None},
            InvalidArgumentError, "output_state_indices needs conv_state_indices",
        ),
    ):  # fmt: skip
        given = {"conv_state_indices": slots, **options}
        with pytest.raises(error, match=message):
            tokenspeed.causal_conv1d_update(x, states, WEIGHT, **given)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensorrt_llm_prefill_into_an_output(layout):
    x, states = as_laid(normal(5, C, TOTAL), layout), normal(6, SLOTS, C, W - 1)
    padding, slots = PADDING["tensorrt_llm"]
    before, out = states.copy(), np.full_like(x, np.nan)
    given = (x.copy(), WEIGHT, BIAS, BOUNDS, np.array(slots), STARTS, states)
    assert tensorrt_llm.causal_conv1d_fn(*given, out=out) is out
    check_prefill(out, x, states, before, slots, padding, STARTS)
    np.testing.assert_array_equal(given[0], x)
    for wrong in (out[1:], out.astype(np.float16)):
        with pytest.raises(InvalidArgumentError, match="out (is f16|has shape)"):
            tensorrt_llm.causal_conv1d_fn(*given, out=wrong)


def test_sglang_windows_refusals():
    x, states, slots = normal(5, N, C, 2), normal(6, SLOTS, C, W - 1), np.zeros(N, np.int32)
    windows = normal(7, N, 2, C, W - 1)

    def update(x=x, **options):
        given = {
            "conv_state_indices": slots,
            "intermediate_conv_window": windows,
            "intermediate_state_indices": slots,
        }
        sglang.causal_conv1d_update(x, states, WEIGHT, **(given | options))

    with pytest.raises(InvalidArgumentError, match="intermediate_state_indices belong together"):
        update(intermediate_state_indices=None)
    with pytest.raises(InvalidArgumentError, match="intermediate_conv_window and"):
        update(intermediate_conv_window=None)
    with pytest.raises(InvalidArgumentError, match="window needs conv_state_indices"):
        update(conv_state_indices=None)
    with pytest.raises(UnsupportedError, match="num_accept_tokens is not supported"):
        update(num_accept_tokens=slots)
    with pytest.raises(UnsupportedError, match="x has T = 17 tokens per request; supported: 1 to"):
        update(normal(5, N, C, 17))
    with pytest.raises(InvalidArgumentError, match=r"expected \[rows, 3 or more, 32, 3\]"):
        update(normal(5, N, C, 3))
    with pytest.raises(UnsupportedError, match="is f16 and the states are f32"):
        update(intermediate_conv_window=windows.astype(np.float16))


def test_sglang_update_refusals():
    x, states, array = normal(5, N, C), normal(6, SLOTS, C, W - 1), np.zeros(N, np.int32)
    for name in (
        "cache_seqlens",
        "retrieve_next_token",
        "retrieve_next_sibling",
        "retrieve_parent_token",
    ):
        with pytest.raises(
            UnsupportedError, match=f"causal_conv1d_update: {name} is not supported"
        ):
            sglang.causal_conv1d_update(x, states, WEIGHT, **{name: array})


# Split


@pytest.mark.parametrize("k_dim, v_dim, heads", [(16, 48, (1, 1)), (24, 40, (1, 1)), (512, 1024, (2, 4)), (384, 1024, (2, 4)), (272, 272, (2, 2))])  # fmt: skip
def test_split(calls, k_dim, v_dim, heads):
    channels = 2 * k_dim + v_dim
    x, weight = turned(normal(5, channels, TOTAL)), normal(6, channels, W)
    states, slots = normal(7, SLOTS, channels, W - 1), np.array(PADDING["sglang"][1])
    kept = states.copy()
    given = {"cache_indices": slots, "has_initial_state": STARTS}
    q, k, v = causal_conv1d.causal_conv1d_split_qkv(
        x, weight, None, states, BOUNDS, k_dim, v_dim, **given
    )
    assert [part.shape for part in (q, k, v)] == [(TOTAL, dim) for dim in (k_dim, k_dim, v_dim)]
    assert (calls[0]["k_heads"], calls[0]["v_heads"]) == heads
    y = sglang.causal_conv1d_fn(x, weight, None, kept, BOUNDS, **given)
    np.testing.assert_array_equal(np.concatenate([q, k, v], axis=1), y.T)
    np.testing.assert_array_equal(states, kept)


def test_split_refusals():
    x, weight, states = normal(5, 96, TOTAL), normal(6, 96, W), normal(7, SLOTS, 96, W - 1)

    def split(k_dim, v_dim, x=x, bounds=BOUNDS):
        causal_conv1d.causal_conv1d_split_qkv(x, weight, None, states, bounds, k_dim, v_dim)

    with pytest.raises(UnsupportedError, match="k_dim is 20; supported: multiples of 8"):
        split(20, 56)
    with pytest.raises(UnsupportedError, match="v_dim is 36; supported: multiples of 8"):
        split(16, 36, np.zeros((68, TOTAL), np.float32))
    with pytest.raises(InvalidArgumentError, match=r"x has 96 channels; expected .* = 64"):
        split(16, 32)
    with pytest.raises(InvalidArgumentError, match="query_start_loc is required"):
        split(32, 32, bounds=None)
    with pytest.raises(UnsupportedError, match="k_dim is 296 and v_dim 328; supported: widths of"):
        split(296, 328, np.zeros((2 * 296 + 328, TOTAL), np.float32))


# FLA


def fla_expected(x, start, bounds):
    """y [T, C] and the last inputs [N, C, W] of packed rows x [T, C]."""
    y, final = np.empty(x.shape), np.empty((len(bounds) - 1, C, W))
    for n, (first, end) in enumerate(zip(bounds, bounds[1:])):
        history = np.zeros((C, W)) if start is None else start[n]
        y[first:end] = tap(x[first:end].T, history[:, 1:]).T
        final[n] = last(history, x[first:end].T)
    return y, final


@pytest.mark.parametrize("initial", [None, np.float32, np.float16])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_fla(initial, packed, residual):
    x = normal(8, 1, TOTAL, C) if packed else normal(8, B, T, C)
    bounds = BOUNDS if packed else np.arange(B + 1) * T
    start = None if initial is None else normal(9, len(bounds) - 1, C, W).astype(initial)
    before = None if start is None else start.copy()
    added = normal(10, *x.shape) if residual else None
    y, final = fla.causal_conv1d(
        x, WEIGHT, BIAS, added, start, True, "swish", cu_seqlens=BOUNDS if packed else None
    )
    expected, windows = fla_expected(x.reshape(-1, C), before, bounds)
    assert_close(y.reshape(-1, C), expected + (0 if added is None else added.reshape(-1, C)))
    assert final.dtype == x.dtype
    np.testing.assert_array_equal(final, windows)
    if start is not None:
        np.testing.assert_array_equal(start, before)


def test_fla_final_states_are_of_the_inputs_dtype():
    x, start = normal(8, B, 2, C).astype(np.float16), normal(9, B, C, W)
    y, final = fla.causal_conv1d(x, WEIGHT, initial_state=start, output_final_state=True)
    assert y.dtype == final.dtype == np.float16
    expected = np.stack([last(start[n], x[n].T) for n in range(B)])
    np.testing.assert_array_equal(final, expected.astype(np.float16))
    y, final = fla.causal_conv1d(x, WEIGHT, initial_state=start)
    assert final is None


def test_fla_heads_of_channels():
    x = normal(8, B, T, 4, C // 4)
    y, _ = fla.causal_conv1d(x, WEIGHT, BIAS, activation="silu")
    flat, _ = fla.causal_conv1d(x.reshape(B, T, C), WEIGHT, BIAS, activation="silu")
    np.testing.assert_array_equal(y, flat.reshape(x.shape))


@pytest.mark.parametrize("shape", [(N, C), (1, N, C), (N, 1, C), (N, 1, 4, C // 4)])
@pytest.mark.parametrize("residual", [False, True])
def test_fla_update(shape, residual):
    x, cache = normal(8, N, C), normal(9, N, C, W)
    before = cache.copy()
    added = normal(10, *shape) if residual else None
    y, returned = fla.causal_conv1d_update(
        x.reshape(shape), cache, added, WEIGHT, BIAS, activation="silu"
    )
    assert returned is cache and y.shape == shape
    for n in range(N):
        expected = tap(x[n, :, None], before[n, :, 1:])[:, 0]
        assert_close(y.reshape(N, C)[n], expected + (added.reshape(N, C)[n] if residual else 0))
        np.testing.assert_array_equal(cache[n], last(before[n], x[n, :, None]))


def test_fla_refusals():
    x, cache = normal(8, B, T, C), normal(9, B, C, W)
    for options, error, message in (
        ({"cp_context": object()}, InvalidArgumentError, "cp_context is of type object, without"),
        ({"seq_idx": np.zeros(T)}, UnsupportedError, "seq_idx is not supported"),
        ({"tiles": 3}, InvalidArgumentError, "unknown argument tiles"),
        ({"backend": "hip"}, InvalidArgumentError, "backend is 'hip'"),
        ({"cu_seqlens": BOUNDS}, InvalidArgumentError, "x has a batch of 3; expected 1"),
        ({"residual": x[0]}, InvalidArgumentError, "residual has shape"),
        ({"initial_state": cache[:, :, 1:]}, InvalidArgumentError, "initial_state has shape"),
        ({"weight": None}, InvalidArgumentError, "causal_conv1d: weight is required"),
    ):
        with pytest.raises(error, match=message):
            fla.causal_conv1d(**{"x": x, "weight": WEIGHT, **options})
    for x, options, message in (
        (x, {}, r"x has shape .* expected \[N, D\], \[1, N, D\] or \[N, 1, D\]"),
        (x[:, :1], {"weight": None}, "causal_conv1d_update: weight is required"),
        (x[:, :1], {"cache": None}, "cache is required"),
        (x[:1, :1], {}, r"cache has shape \[3, 32, 4\]; expected \[1, 32, 4\]"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            fla.causal_conv1d_update(**{"x": x, "cache": cache, "weight": WEIGHT, **options})


class Trained:
    """An array that autograd watches."""

    requires_grad = True


@pytest.mark.parametrize("name", ["x", "weight", "bias"])
def test_gradients_are_refused(monkeypatch, name):
    torch = type("torch", (), {"is_grad_enabled": staticmethod(lambda: True)})
    monkeypatch.setitem(__import__("sys").modules, "torch", torch)
    given = {"x": normal(5, N, C), "weight": WEIGHT, "bias": BIAS, name: Trained()}
    states = normal(6, N, C, W)
    for function, state in (
        (causal_conv1d.causal_conv1d_fn, {}),
        (vllm.causal_conv1d_fn, {"conv_states": states, "query_start_loc": BOUNDS}),
        (sglang.causal_conv1d_fn, {}),
        (vllm.causal_conv1d_update, {"conv_state": states}),
        (sglang.causal_conv1d_update, {"conv_state": states}),
    ):
        with pytest.raises(UnsupportedError, match=f"{name} requires grad"):
            function(**given, **state)


def test_signatures_are_theirs():
    """The order of what their callers pass by position."""
    theirs = {
        causal_conv1d.causal_conv1d_fn: "x weight bias seq_idx initial_states return_final_states "
        "final_states_out activation",
        causal_conv1d.causal_conv1d_update: "x conv_state weight bias activation cache_seqlens "
        "conv_state_indices",
        vllm.causal_conv1d_fn: "x weight bias conv_states query_start_loc cache_indices "
        "has_initial_state activation pad_slot_id",
        vllm.causal_conv1d_update: "x conv_state weight bias activation conv_state_indices "
        "num_accepted_tokens query_start_loc max_query_len pad_slot_id",
        sglang.causal_conv1d_fn: "x weight bias conv_states query_start_loc seq_lens_cpu "
        "cache_indices has_initial_state activation pad_slot_id validate_data block_table",
        sglang.causal_conv1d_update: "x conv_state weight bias activation cache_seqlens "
        "conv_state_indices num_accept_tokens intermediate_conv_window intermediate_state_indices "
        "retrieve_next_token retrieve_next_sibling retrieve_parent_token pad_slot_id metadata "
        "validate_data",
        tensorrt_llm.causal_conv1d_fn: "x weight bias query_start_loc cache_indices "
        "has_initial_state conv_states activation pad_slot_id out",
        tensorrt_llm.causal_conv1d_update: "x conv_state weight bias activation cache_seqlens "
        "conv_state_indices",
        tokenspeed.causal_conv1d_fn: "x weight bias conv_states query_start_loc cache_indices "
        "has_initial_state activation pad_slot_id validate_data",
        tokenspeed.causal_conv1d_update: "x conv_state weight bias activation cache_seqlens "
        "conv_state_indices num_accepted_tokens intermediate_conv_window output_state_indices "
        "pad_slot_id validate_data",
        fla.causal_conv1d: "x weight bias residual initial_state output_final_state activation "
        "backend cu_seqlens cu_seqlens_cpu chunk_indices cp_context",
        fla.causal_conv1d_update: "x cache residual weight bias activation",
    }
    for function, names in theirs.items():
        parameters = inspect.signature(function).parameters.values()
        ordered = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert ordered == names.split(), function
