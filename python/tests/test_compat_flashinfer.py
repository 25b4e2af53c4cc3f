"""compat.flashinfer without a GPU: what it hands on, run by the recurrence, is what FlashInfer
documents."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import recurrence

from cubinery import InvalidArgumentError, UnsupportedError
from cubinery.compat import flashinfer

H, HV, K, V = 2, 4, 8, 6
SLOTS = 5


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    return recurrence.install(monkeypatch)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def prefill_inputs(
    total: int, q_heads: int = H, k_heads: int = H, v_heads: int = HV
) -> dict[str, np.ndarray]:
    heads = max(q_heads, v_heads)
    return {
        "q": normal(1, total, q_heads, K),
        "k": normal(2, total, k_heads, K) / np.float32(K**0.5),
        "v": normal(3, total, v_heads, V),
        "g": np.exp(-np.abs(normal(4, total, heads))),  # alpha
        "beta": recurrence.sigmoid(normal(5, total, heads)),
    }


def prefill_reference(q, k, v, g=None, beta=None, scale=K**-0.5, initial=None):
    """One sequence in float64 as FlashInfer has it: S [V, K] of max(Hq, Hv) heads, the factor alpha
    in place of exp(g); grouped heads share the q, or k and v, of one head."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    heads = max(q.shape[1], v.shape[1])
    o, after = np.zeros((len(q), heads, V)), np.zeros((len(q), heads, V, K))
    final = np.zeros((heads, V, K)) if initial is None else np.array(initial, np.float64)
    for h in range(heads):
        for t in range(len(q)):
            query, key, value = (x[t, h * x.shape[1] // heads] for x in (q, k, v))
            alpha, strength = (1.0 if x is None else float(x[t, h]) for x in (g, beta))
            s = alpha * final[h]
            final[h] = s + strength * np.outer(value - s @ key, key)
            o[t, h] = scale * final[h] @ query
            after[t, h] = final[h]
    return o, final, after


def assert_equal(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=2.0**-22, atol=1e-12)


BOUNDS = np.array([0, 3, 3, 8], np.int32)
COUNT = len(BOUNDS) - 1


def check_prefill(o, finals, x, initial=None, **options):
    for n, (first, last) in enumerate(zip(BOUNDS, BOUNDS[1:])):
        part = {name: array[first:last] for name, array in x.items()}
        start = None if initial is None else initial[n]
        expected, final, _ = prefill_reference(**part, initial=start, **options)
        assert_equal(o[first:last], expected)
        if finals is not None:
            assert_equal(finals[n], final)


@pytest.mark.parametrize(
    "heads", [(2, 2, 4), (4, 4, 4), (4, 2, 2), (4, 1, 1)], ids=["gva", "equal", "gqa", "mqa"]
)
@pytest.mark.parametrize("initial", [None, np.float32, np.float16])
def test_prefill(heads, initial):
    x = prefill_inputs(8, *heads)
    h0 = None if initial is None else normal(9, COUNT, max(heads), V, K).astype(initial)
    before = None if h0 is None else h0.copy()
    o, finals = flashinfer.chunk_gated_delta_rule(
        **x, initial_state=h0, output_final_state=True, cu_seqlens=BOUNDS
    )
    check_prefill(o, finals, x, h0)
    if h0 is not None:
        np.testing.assert_array_equal(h0, before)


@pytest.mark.parametrize("missing", [("g",), ("beta",), ("g", "beta")])
def test_prefill_without_gates(missing):
    x = {name: array for name, array in prefill_inputs(8).items() if name not in missing}
    o = flashinfer.chunk_gated_delta_rule(**x, cu_seqlens=BOUNDS)
    check_prefill(o, None, x)


@pytest.mark.parametrize("scale, meant", [(None, K**-0.5), (0.0, K**-0.5), (1.0, 1.0)])
def test_prefill_scale_of_zero_is_the_default(scale, meant):
    x = prefill_inputs(8)
    o = flashinfer.chunk_gated_delta_rule(**x, scale=scale, cu_seqlens=BOUNDS)
    check_prefill(o, None, x, scale=meant)


def test_prefill_normalises():
    x = prefill_inputs(8)
    o = flashinfer.chunk_gated_delta_rule(**x, cu_seqlens=BOUNDS, use_qk_l2norm_in_kernel=True)
    for name in ("q", "k"):
        wide = np.float64(x[name])
        x[name] = wide / np.sqrt((wide**2).sum(-1, keepdims=True) + 1e-6)
    check_prefill(o, None, x)


def test_prefill_writes_the_arrays_it_is_given():
    x, h0 = prefill_inputs(8), normal(9, COUNT, HV, V, K)
    output, output_state = np.full((8, HV, V), np.nan, np.float32), np.full_like(h0, np.nan)
    o, finals = flashinfer.chunk_gated_delta_rule(
        **x, initial_state=h0, output_final_state=True, cu_seqlens=BOUNDS, output=output,
        output_state=output_state,
    )  # fmt: skip
    assert o is output and finals is output_state
    check_prefill(output, output_state, x, h0)
    output_state[...] = np.nan  # written even when it is not returned
    flashinfer.chunk_gated_delta_rule(
        **x, initial_state=h0, cu_seqlens=BOUNDS, output_state=output_state
    )
    check_prefill(output, output_state, x, h0)


def test_prefill_widens_into_a_dense_f32_output_state():
    x, h0 = prefill_inputs(8), normal(9, COUNT, HV, V, K).astype(np.float16)
    output_state = np.full(h0.shape, np.nan, np.float32)
    o, finals = flashinfer.chunk_gated_delta_rule(
        **x, initial_state=h0, output_final_state=True, cu_seqlens=BOUNDS,
        output_state=output_state,
    )  # fmt: skip
    assert finals is output_state
    check_prefill(o, finals, x, h0)


@pytest.mark.parametrize("in_place", [True, False])
def test_prefill_on_a_pool(in_place):
    x, pool = prefill_inputs(8), normal(9, SLOTS, HV, V, K)
    before = pool.copy()
    target = pool if in_place else np.zeros_like(pool)
    slots = np.array([3, 0, 1], np.int64)
    o, finals = flashinfer.chunk_gated_delta_rule(
        **x, initial_state=pool, output_final_state=True, cu_seqlens=BOUNDS, output_state=target,
        state_indices=slots,
    )  # fmt: skip
    assert finals is target
    check_prefill(o, target[slots], x, before[slots])
    others = [slot for slot in range(SLOTS) if slot not in slots]
    expected = before if in_place else np.zeros_like(before)
    np.testing.assert_array_equal(target[others], expected[others])


def test_prefill_checkpoints_are_the_states_after_whole_spans():
    lengths = (130, 63, 64)
    bounds = np.cumsum((0, *lengths)).astype(np.int32)
    x = prefill_inputs(int(bounds[-1]))
    starts = np.array([0, 2, 2, 3], np.int64)
    kept = np.full((4, HV, V, K), np.nan, np.float32)  # one row more than is needed
    flashinfer.chunk_gated_delta_rule(
        **x, cu_seqlens=bounds, state_checkpoints=kept, checkpoint_cu_starts=starts,
        checkpoint_every_n_tokens=64,
    )  # fmt: skip
    first = {name: array[:130] for name, array in x.items()}
    last = {name: array[193:] for name, array in x.items()}
    states = prefill_reference(**first)[2]
    np.testing.assert_allclose(kept[:2], states[[63, 127]], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kept[2], prefill_reference(**last)[2][63], rtol=1e-5, atol=1e-6)
    assert np.isnan(kept[3]).all()


def test_prefill_hints_change_nothing():
    x = prefill_inputs(8)
    plain = flashinfer.chunk_gated_delta_rule(**x, cu_seqlens=BOUNDS)
    longest = ({"max_seqlen": 5}, {"max_seqlen": 0}, {"max_seqlen": -1}, {"max_seqlen": 1 << 40})
    for hints in ({"use_cp": False}, {"use_cp": True}, {"backend": "flashinfer"}, *longest):
        o = flashinfer.chunk_gated_delta_rule(**x, cu_seqlens=BOUNDS, **hints)
        np.testing.assert_array_equal(o, plain)


@pytest.mark.parametrize(
    "named, split",
    [({}, "auto"), ({"use_cp": "auto"}, "auto"), ({"use_cp": True}, "always")]
    + [({"use_cp": False}, "never")],
)
def test_use_cp_is_split(monkeypatch, named, split):
    asked = recurrence.noted_option(monkeypatch, "segments")
    flashinfer.chunk_gated_delta_rule(**prefill_inputs(8), cu_seqlens=BOUNDS, **named)
    assert asked == [split]


STATES = np.zeros((COUNT, HV, V, K), np.float32)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"cu_seqlens": None}, InvalidArgumentError, "cu_seqlens is required"),
        ({"cu_seqlens": np.array([0])}, InvalidArgumentError, "cu_seqlens"),
        ({"use_cp": "never"}, InvalidArgumentError, "use_cp is 'never'; supported: 'auto' or True"),
        ({"use_cp": None}, InvalidArgumentError, "use_cp is None"),
        ({"_cp_chunk_len": 64}, UnsupportedError, "_cp_chunk_len"),
        ({"backend": "cudnn"}, UnsupportedError, "backend 'cudnn'"),
        ({"backend": "mine"}, InvalidArgumentError, "backend is 'mine'"),
        ({"checkpoint_every_n_tokens": 32}, InvalidArgumentError, "multiple of 64"),
        ({"checkpoint_every_n_tokens": -64}, InvalidArgumentError, "checkpoint_every_n_tokens"),
        ({"checkpoint_every_n_tokens": 64}, InvalidArgumentError, "state_checkpoints is missing"),
        ({"state_checkpoints": STATES}, InvalidArgumentError, "state_checkpoints is given without"),
        ({"checkpoint_cu_starts": BOUNDS}, InvalidArgumentError, "checkpoint_cu_starts is given"),
        ({"initial_state": STATES.astype(np.int8)}, UnsupportedError, "initial_state is int8"),
        ({"output_state": STATES.astype(np.int8)}, UnsupportedError, "output_state is int8"),
        (
            {"initial_state": STATES, "output_state": STATES.astype(np.float16)},
            UnsupportedError,
            "initial_state is f32 and output_state f16",
        ),
        (
            {"state_indices": BOUNDS[:3], "output_final_state": True},
            InvalidArgumentError,
            "state_indices needs output_state",
        ),
        ({"q": np.zeros((1, 8, H, K), np.float32)}, InvalidArgumentError, "expected .total, Hq"),
    ],
)
def test_prefill_refuses(calls, change, error, message):
    with pytest.raises(error, match=message):
        flashinfer.chunk_gated_delta_rule(**{**prefill_inputs(8), "cu_seqlens": BOUNDS, **change})
    assert calls == {"gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 0}


# --- decode


def decode_inputs(batch: int = 3, tokens: int = 1) -> dict[str, np.ndarray]:
    return {
        "q": normal(1, batch, tokens, H, K),
        "k": normal(2, batch, tokens, H, K),
        "v": normal(3, batch, tokens, HV, V),
        "A_log": np.log(np.random.default_rng(4).uniform(1, 16, HV)).astype(np.float32),
        "a": normal(5, batch, tokens, HV),
        "dt_bias": normal(6, HV),
        "b": normal(7, batch, tokens, HV),
    }


def decode_reference(x, n, state, scale=K**-0.5, l2norm=True, t=0):
    """Token t of request n on `state` [HV, V, K], in float64: (o [HV, V], new state)."""
    x = {name: np.asarray(array, np.float64) for name, array in x.items()}
    o, new = np.zeros((HV, V)), np.zeros((HV, V, K))
    for h in range(HV):
        query, key = (x[name][n, t, h * H // HV] for name in ("q", "k"))
        if l2norm:
            query, key = (row / np.sqrt(row @ row + 1e-6) for row in (query, key))
        decay = np.exp(-np.exp(x["A_log"][h]) * np.log1p(np.exp(x["a"][n, t, h] + x["dt_bias"][h])))
        s = decay * np.float64(state[h])
        beta = 1 / (1 + np.exp(-x["b"][n, t, h]))
        new[h] = s + beta * np.outer(x["v"][n, t, h] - s @ key, key)
        o[h] = scale * new[h] @ query
    return o, new


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    """To the rounding of the dtype that the result is stored in."""
    rtol = {"float32": 1e-6, "float16": 1e-3}[actual.dtype.name]
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=1e-7 if rtol == 1e-6 else 1e-4)


@pytest.mark.parametrize("l2norm", [True, False])
@pytest.mark.parametrize("scale", [None, 0.5, 0.0])
def test_decode_on_dense_states(calls, scale, l2norm):
    x, state = decode_inputs(), normal(9, 3, HV, V, K)
    turned = np.ascontiguousarray(np.swapaxes(state, 2, 3))
    before = state.copy()
    options = {"scale": scale, "use_qk_l2norm": l2norm}
    o, returned = flashinfer.gated_delta_rule_decode_pretranspose(**x, state=state, **options)
    o_turned, returned_turned = flashinfer.gated_delta_rule_decode(**x, state=turned, **options)
    assert returned is state and returned_turned is turned
    meant = K**-0.5 if scale is None else scale
    for n in range(3):
        expected, new = decode_reference(x, n, before[n], meant, l2norm)
        assert_close(o[n, 0], expected)
        assert_close(state[n], new)
        assert_close(o_turned[n, 0], expected)
        assert_close(turned[n], np.swapaxes(new, 1, 2))
    assert calls == {"gdn_prefill": 0, "gdn_decode": 2, "gdn_verify": 0}


def test_decode_writes_the_output_it_is_given():
    x, state = decode_inputs(), normal(9, 3, HV, V, K)
    before = state.copy()
    output = np.full((3, 1, HV, V), np.nan, np.float16)
    o, _ = flashinfer.gated_delta_rule_decode_pretranspose(**x, state=state, output=output)
    assert o is output
    assert_close(output[2, 0], decode_reference(x, 2, before[2])[0])


def pool_of(dtype: type) -> np.ndarray:
    return normal(9, SLOTS, HV, V, K).astype(dtype)


def test_decode_f32_pool_skips_padding_and_zeroes_its_output():
    x, pool = decode_inputs(4), pool_of(np.float32)
    before = pool.copy()
    read, write = np.array([3, -1, 1, 4], np.int32), np.array([2, 0, 1, -1], np.int32)
    o, returned = flashinfer.gated_delta_rule_decode_pretranspose(
        **x, state=None, initial_state=pool, initial_state_indices=read,
        output_state_indices=write,
    )  # fmt: skip
    assert returned is pool
    assert not o[1].any()
    for n, written in ((0, 2), (2, 1), (3, None)):
        expected, new = decode_reference(x, n, before[read[n]])
        assert_close(o[n, 0], expected)
        if written is not None:
            assert_close(pool[written], new)
    np.testing.assert_array_equal(pool[[0, 3, 4]], before[[0, 3, 4]])


def test_decode_16_bit_pool_computes_padding_on_slot_0():
    x, pool = decode_inputs(), pool_of(np.float16)
    before = pool.copy()
    o, _ = flashinfer.gated_delta_rule_decode_pretranspose(
        **x, state=None, initial_state=pool, initial_state_indices=np.array([3, -1, 1])
    )
    for n, slot in ((0, 3), (1, 0), (2, 1)):
        expected, new = decode_reference(x, n, before[slot])
        assert_close(o[n, 0], expected)
        assert_close(pool[slot], new)
    np.testing.assert_array_equal(pool[[2, 4]], before[[2, 4]])


@pytest.mark.parametrize("update", [None, True, False])
def test_mtp_of_one_token(update):
    """None is FlashInfer's default: the pool is not updated."""
    x, pool = decode_inputs(), pool_of(np.float32)
    before = pool.copy()
    disable = None if update is None else not update
    o, returned = flashinfer.gated_delta_rule_mtp(
        **x, initial_state=pool, initial_state_indices=np.array([3, -2, 1]),
        disable_state_update=disable, output_state_indices=np.array([3, 0, -1]),
    )  # fmt: skip
    assert returned is pool
    assert not o[1].any()
    expected, new = decode_reference(x, 0, before[3])
    assert_close(o[0, 0], expected)
    assert_close(o[2, 0], decode_reference(x, 2, before[1])[0])
    assert_close(pool[3], new if update else before[3])
    np.testing.assert_array_equal(pool[[0, 1, 2, 4]], before[[0, 1, 2, 4]])


def test_mtp_leaves_the_given_output_of_padding():
    x, pool = decode_inputs(), pool_of(np.float32)
    output = np.full((3, 1, HV, V), 7, np.float32)
    flashinfer.gated_delta_rule_mtp(
        **x, initial_state=pool, initial_state_indices=np.array([3, -1, 1]), output=output,
        disable_state_update=True,
    )  # fmt: skip
    assert (output[1] == 7).all() and (output[0] != 7).all()


# --- several tokens


def verify_reference(x, n, state, **options):
    """The tokens of request n, in float64: (o [T, HV, V], the states after each)."""
    outputs, states = [], []
    for t in range(x["q"].shape[1]):
        o, state = decode_reference(x, n, state, t=t, **options)
        outputs.append(o)
        states.append(state)
    return np.array(outputs), np.array(states)


READ, WRITE = np.array([3, -1, 1, 4], np.int32), np.array([2, 0, 1, -1], np.int32)
MTP = flashinfer.gated_delta_rule_mtp
PRETRANSPOSE = flashinfer.gated_delta_rule_decode_pretranspose


def mtp(x, pool, **options):
    return MTP(**x, initial_state=pool, initial_state_indices=READ, **options)


def pretranspose(x, pool, **options):
    return PRETRANSPOSE(**x, state=None, initial_state=pool, initial_state_indices=READ, **options)


def buffer_of(form: str, batch: int, tokens: int, dtype: type = np.float32) -> np.ndarray:
    """[batch or more, tokens or more, HV, V, K], full of NaN."""
    if form == "one row":
        return np.full((1, tokens, HV, V, K), np.nan, dtype)
    rows, steps = {"exact": (batch, tokens), "larger": (batch + 2, tokens + 1)}.get(
        form, (batch, tokens + 3)
    )
    whole = np.full((rows, steps, HV, V, K), np.nan, dtype)
    return whole[:, :tokens] if form == "apart" else whole  # rows of a wider buffer


@pytest.mark.parametrize("run", [mtp, pretranspose])
@pytest.mark.parametrize("given", [False, True], ids=["", "output"])
@pytest.mark.parametrize("form", [None, "exact", "larger", "apart"])
@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize("written", [None, WRITE], ids=["in place", "elsewhere"])
def test_several_tokens_on_an_f32_pool(calls, run, given, form, update, written):
    x, pool = decode_inputs(4, 3), pool_of(np.float32)
    before = pool.copy()
    buffer = None if form is None else buffer_of(form, 4, 3)
    output = np.full((4, 3, HV, V), 7, np.float32) if given else None
    o, returned = run(
        x, pool, disable_state_update=not update, output_state_indices=written, output=output,
        intermediate_states_buffer=buffer,
    )  # fmt: skip
    assert returned is pool and (output is None or o is output)
    after = before.copy()
    for n, slot in enumerate(READ):
        if slot < 0:
            assert (o[n] == (7 if given else 0)).all()
            assert buffer is None or np.isnan(buffer[n]).all()
            continue
        expected, states = verify_reference(x, n, before[slot])
        assert_close(o[n], expected)
        if buffer is not None:
            assert_close(buffer[n, :3], states)
            assert np.isnan(buffer[n, 3:]).all()
        target = slot if written is None else written[n]
        if update and target >= 0:
            after[target] = states[-1]
    assert buffer is None or np.isnan(buffer[4:]).all()
    assert_close(pool, after)
    assert calls == {
        "gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 2 if update and form else 1
    }  # fmt: skip


@pytest.mark.parametrize("form", [None, "exact"])
@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize("written", [None, WRITE], ids=["in place", "elsewhere"])
def test_several_tokens_on_a_16_bit_pool(form, update, written):
    """A read or write index of -1 is slot 0."""
    x, pool = decode_inputs(4, 3), pool_of(np.float16)
    before = pool.copy()
    buffer = None if form is None else buffer_of(form, 4, 3, np.float16)
    o, _ = pretranspose(
        x, pool, disable_state_update=not update, intermediate_states_buffer=buffer,
        output_state_indices=written,
    )  # fmt: skip
    after = before.copy()
    for n, slot in enumerate(READ):
        expected, states = verify_reference(x, n, before[max(slot, 0)])
        assert_close(o[n], expected)
        assert buffer is None or assert_close(buffer[n], states) is None
        target = slot if written is None else written[n]
        if update:
            after[max(target, 0)] = states[-1]
    assert_close(pool, after)


@pytest.mark.parametrize("form", [None, "exact", "larger", "apart"])
@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_several_tokens_on_dense_states(form, update, dtype):
    x, state = decode_inputs(3, 4), normal(9, 3, HV, V, K).astype(dtype)
    before = state.copy()
    buffer = None if form is None else buffer_of(form, 3, 4, dtype)
    o, returned = PRETRANSPOSE(
        **x, state=state, scale=0.5, use_qk_l2norm=False, disable_state_update=not update,
        intermediate_states_buffer=buffer,
    )  # fmt: skip
    assert returned is state
    for n in range(3):
        expected, states = verify_reference(x, n, before[n], scale=0.5, l2norm=False)
        assert_close(o[n], expected)
        assert_close(state[n], states[-1] if update else before[n])
        assert buffer is None or assert_close(buffer[n, :4], states) is None


@pytest.mark.parametrize("rows, tokens", [(1, 3), (3, 1)])
def test_mtp_buffers_of_one_row_or_step(rows, tokens):
    x, pool = decode_inputs(rows, tokens), pool_of(np.float32)
    before, buffer = pool.copy(), buffer_of("exact", rows, tokens)
    MTP(
        **x, initial_state=pool, initial_state_indices=np.arange(rows),
        intermediate_states_buffer=buffer,
    )  # fmt: skip
    for n in range(rows):
        assert_close(buffer[n], verify_reference(x, n, before[n])[1])
    np.testing.assert_array_equal(pool, before)


@pytest.mark.parametrize("update", [True, False])
def test_mtp_of_no_requests(update):
    pool = pool_of(np.float32)
    before, none = pool.copy(), np.zeros(0, np.int32)
    o, _ = MTP(
        **decode_inputs(0, 2), initial_state=pool, initial_state_indices=none,
        intermediate_states_buffer=BUFFER, disable_state_update=not update,
    )  # fmt: skip
    assert o.shape == (0, 2, HV, V)
    np.testing.assert_array_equal(pool, before)


@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_mtp_scatters_the_states_after_each_token(calls, index_dtype):
    """FlashInfer takes int32 for ssm_state_indices, and either for the slots to read."""
    x, pool = decode_inputs(3, 2), normal(9, 9, HV, V, K)
    before = pool.copy()
    slots = np.array([[3, 2], [6, 5], [7, -1]], np.int32)
    o, _ = MTP(
        **x, initial_state=pool, initial_state_indices=np.array([3, -1, 0], index_dtype),
        ssm_state_indices=slots, disable_state_update=False,
    )  # fmt: skip
    after = before.copy()
    assert not o[1].any()
    for n, slot in ((0, 3), (2, 0)):
        expected, states = verify_reference(x, n, before[slot])
        assert_close(o[n], expected)
        for t, target in enumerate(slots[n]):
            if target >= 0:
                after[target] = states[t]
    assert_close(pool, after)
    assert calls["gdn_verify"] == 1


POOL = {"initial_state": pool_of(np.float32), "initial_state_indices": np.array([0, 1, 2])}
TWO_TOKENS = decode_inputs(3, 2)
MANY_TOKENS = decode_inputs(3, 17)
BUFFER = np.zeros((3, 2, HV, V, K), np.float32)


@pytest.mark.parametrize(
    "change, error, message",
    [
        (MANY_TOKENS, UnsupportedError, "q has T = 17 tokens per request; supported: 1 to 16"),
        (decode_inputs(3, 0), UnsupportedError, "q has T = 0 tokens"),
        ({"state": None}, InvalidArgumentError, "expected state or initial_state"),
        (POOL, InvalidArgumentError, "and not both"),
        ({"initial_state": POOL["initial_state"]}, InvalidArgumentError, "belong together"),
        ({"initial_state_indices": np.arange(3)}, InvalidArgumentError, "belong together"),
        (
            {"output_state_indices": np.arange(3)},
            InvalidArgumentError,
            "output_state_indices needs",
        ),
        ({"disable_state_update": True}, InvalidArgumentError, "disable_state_update is for T > 1"),
        (
            {"intermediate_states_buffer": STATES},
            InvalidArgumentError,
            "intermediate_states_buffer is for T > 1",
        ),
        ({"backend": "rubin"}, UnsupportedError, "backend 'rubin'"),
        ({"state": STATES.astype(np.int8)}, UnsupportedError, "state is int8"),
        (
            {**POOL, "state": None, "initial_state": np.zeros((5, HV, 2, V // 2, K), np.float32)},
            UnsupportedError,
            "initial_state has 5 dimensions",
        ),
    ],
)
def test_pretranspose_refuses(calls, change, error, message):
    with pytest.raises(error, match=message):
        flashinfer.gated_delta_rule_decode_pretranspose(
            **{**decode_inputs(), "state": STATES.copy(), **change}
        )
    assert calls["gdn_decode"] == 0


def test_decode_in_the_other_layout_takes_one_token(calls):
    with pytest.raises(UnsupportedError, match="q has T = 2 tokens per request; supported: 1"):
        flashinfer.gated_delta_rule_decode(**TWO_TOKENS, state=np.zeros((3, HV, K, V), np.float32))
    assert not any(calls.values())


@pytest.mark.parametrize(
    "buffer, error, message",
    [
        (BUFFER[:2], InvalidArgumentError, "buffer has shape .2, 2, 4, 6, 8.; expected .3 or more"),
        (BUFFER[:, :1], InvalidArgumentError, "2 or more, 4, 6, 8"),
        (BUFFER[..., :4], InvalidArgumentError, "intermediate_states_buffer has shape"),
        (BUFFER[0], InvalidArgumentError, "intermediate_states_buffer has shape"),
        (
            BUFFER.astype(np.float16),
            UnsupportedError,
            "buffer is f16 and the states are f32; supported: the same dtype",
        ),
        (
            np.zeros((2, 3, HV, V, K), np.float32).swapaxes(0, 1),
            InvalidArgumentError,
            "buffer has strides 192, 576 of rows and steps",
        ),
        (
            np.broadcast_to(BUFFER[:, :1], BUFFER.shape),
            InvalidArgumentError,
            "buffer has strides 384, 0 of rows and steps",
        ),
    ],
)
@pytest.mark.parametrize("run", [MTP, PRETRANSPOSE])
def test_several_tokens_refuse_buffers(calls, run, buffer, error, message):
    state = {} if run is MTP else {"state": None}
    with pytest.raises(error, match=message):
        run(**TWO_TOKENS, **POOL, **state, intermediate_states_buffer=buffer)
    assert not any(calls.values())


STEP_SLOTS = {"ssm_state_indices": np.zeros((3, 2), np.int32), "disable_state_update": False}


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"disable_state_update": None}, InvalidArgumentError, "disable_state_update=False"),
        ({"disable_state_update": True}, InvalidArgumentError, "disable_state_update=False"),
        ({"intermediate_states_buffer": BUFFER}, InvalidArgumentError, "and not both"),
        (
            {**decode_inputs(3, 1), "ssm_state_indices": np.zeros((3, 1), np.int32)},
            InvalidArgumentError,
            "ssm_state_indices is for T > 1",
        ),
        ({"ssm_state_indices": np.zeros((2, 2))}, InvalidArgumentError, "expected .3, 2."),
        ({"output_state_indices": np.arange(3)}, UnsupportedError, "output_state_indices is not"),
        (
            {**MANY_TOKENS, "ssm_state_indices": np.zeros((3, 17), np.int32)},
            UnsupportedError,
            "q has T = 17",
        ),
        ({"initial_state": STATES.astype(np.int8)}, UnsupportedError, "state is int8"),
    ],
)
def test_mtp_refuses_step_slots(calls, change, error, message):
    with pytest.raises(error, match=message):
        MTP(**{**TWO_TOKENS, **POOL, **STEP_SLOTS, **change})
    assert not any(calls.values())


@pytest.mark.parametrize(
    "change, message",
    [
        (MANY_TOKENS, "q has T = 17 tokens"),
        ({"cache_replayssm": True}, "cache_replayssm"),
        ({"replayssm_rawv": STATES}, "replayssm_rawv"),
        ({"replayssm_rawk": STATES}, "replayssm_rawk"),
        ({"replayssm_g": STATES}, "replayssm_g"),
        ({"replayssm_beta": STATES}, "replayssm_beta"),
    ],
)
def test_mtp_refuses(calls, change, message):
    with pytest.raises(UnsupportedError, match=message):
        flashinfer.gated_delta_rule_mtp(**{**decode_inputs(), **POOL, **change})
    assert calls["gdn_decode"] == 0


@pytest.mark.parametrize(
    "module, name",
    [
        ("gdn_prefill", "chunk_gated_delta_rule"),
        ("gdn_decode", "gated_delta_rule_decode_pretranspose"),
        ("gdn_decode", "gated_delta_rule_decode"),
        ("gdn_decode", "gated_delta_rule_mtp"),
    ],
)
def test_signatures_are_those_of_the_installed_flashinfer(module, name):
    theirs = pytest.importorskip(f"flashinfer.{module}")
    wanted = inspect.signature(inspect.unwrap(getattr(theirs, name))).parameters
    ours = inspect.signature(getattr(flashinfer, name)).parameters
    assert list(ours) == list(wanted)
    for argument, parameter in wanted.items():
        assert ours[argument].default == parameter.default
