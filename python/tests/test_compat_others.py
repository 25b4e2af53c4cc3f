"""compat.tensorrt_llm and compat.tokenspeed without a GPU: what they hand on, run by the recurrence,
is what the engines' functions compute."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import recurrence
from engine_rows import (
    A_LOG, BOUNDS, COUNT, DT_BIAS, FORMS, HV, K, N, STEPS, V, buffer_of, check, check_prefill,
    close, gates_of, in_form, long_prefill_inputs, outputs_of, pool, prefill_inputs, rows, several,
    states_before, step, steps, wide_pool,
)  # fmt: skip

from cubinery import InvalidArgumentError, UnsupportedError
from cubinery.compat import tensorrt_llm, tokenspeed


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    return recurrence.install(monkeypatch)


# ---- TensorRT-LLM: prefill


def chunked(**options):
    return tensorrt_llm.chunk_gated_delta_rule(**prefill_inputs(), cu_seqlens=BOUNDS, **options)


@pytest.mark.parametrize("written", [None, [1, 3, 5]])
def test_tensorrt_llm_prefill_on_a_pool(calls, written):
    states, slots = pool(), np.array([4, 0, 2])
    before = states.copy()
    options = {} if written is None else {"output_state_indices": np.array(written, np.int64)}
    o, final = chunked(
        initial_state=states, initial_state_indices=slots.astype(np.int32),
        inplace_indexed_state_update=True, **options,
    )  # fmt: skip
    assert final is None and calls == {"gdn_prefill": 1, "gdn_decode": 0, "gdn_verify": 0}
    targets = slots if written is None else written
    check_prefill(prefill_inputs(), o, states[targets], before[slots])
    others = [slot for slot in range(len(states)) if slot not in targets]
    np.testing.assert_array_equal(states[others], before[others])


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("initial", ["none", "dense", "indexed"])
def test_tensorrt_llm_prefill_beside_its_states(initial, wanted):
    given = {"none": None, "dense": pool()[:COUNT], "indexed": pool()}[initial]
    options = {"initial_state_indices": np.array([4, 4, 2])} if initial == "indexed" else {}
    before = None if given is None else given.copy()
    o, final = chunked(initial_state=given, output_final_state=wanted, **options)
    first = before[[4, 4, 2]] if initial == "indexed" else before
    check_prefill(prefill_inputs(), o, final, first)
    assert (final is None) == (not wanted)
    if given is not None:
        np.testing.assert_array_equal(given, before)


def test_tensorrt_llm_final_states_have_the_dtype_of_the_first():
    half = pool()[:COUNT].astype(np.float16)
    _, final = chunked(initial_state=half, output_final_state=True)
    assert final.dtype == np.float16
    assert chunked(output_final_state=True)[1].dtype == np.float32


def test_tensorrt_llm_prefill_of_decays_into_an_output():
    x = prefill_inputs()
    out = np.full_like(x["v"], np.nan)
    given = {**x, "g": np.exp(x["g"])}
    o, _ = tensorrt_llm.chunk_gated_delta_rule(
        **given, cu_seqlens=BOUNDS, g_is_linear=True, output=out, state_workspace=(None, None)
    )
    assert o is out
    check_prefill(x, o, None, None)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"inplace_indexed_state_update": True}, "update needs initial_state_indices"),
        ({"initial_state": None}, "initial_state_indices needs initial_state"),
        ({"output_state_indices": np.arange(3)}, "needs inplace_indexed_state_update"),
        ({"head_first": True}, "head_first is not supported"),
        ({"initial_state_indices": None}, r"initial_state has shape \[6, 4, 6, 8\]; expected"),
        ({"use_cp": "maybe"}, "use_cp is 'maybe'"),
    ],
)
def test_tensorrt_llm_prefill_refuses(calls, change, message):
    given = {"initial_state": pool(), "initial_state_indices": np.arange(3)}
    if "inplace_indexed_state_update" in change:
        given["initial_state_indices"] = None
    with pytest.raises(InvalidArgumentError, match=message):
        chunked(**{**given, **change})
    assert calls["gdn_prefill"] == 0


# ---- TensorRT-LLM: decode and drafts


def sigmoid_update(x, cu_seqlens, **options):
    return tensorrt_llm.fused_sigmoid_gating_delta_rule_update(
        A_log=A_LOG, dt_bias=DT_BIAS, softplus_beta=1.0, softplus_threshold=20.0, **x,
        cu_seqlens=cu_seqlens, use_qk_l2norm_in_kernel=True, **options,
    )  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("given", [True, False])
def test_tensorrt_llm_decode(calls, form, given):
    x, states, slots = rows(), pool(), [3, -1, 0, 5]
    before = states.copy()
    shaped, cu_seqlens = in_form(x, form)
    out = np.full_like(shaped["v"], np.nan) if given else None
    o = sigmoid_update(
        shaped, cu_seqlens, initial_state_source=states, output=out,
        initial_state_indices=np.array(slots),
    )  # fmt: skip
    assert o.shape == shaped["v"].shape and (o is out) == given
    check(x, *gates_of(x), o.reshape(N, HV, V), states, before, slots, -1, l2norm=True)
    assert calls == {"gdn_prefill": 0, "gdn_decode": 1, "gdn_verify": 0}


@pytest.mark.parametrize("form", FORMS)
def test_tensorrt_llm_several_tokens(calls, form):
    (x, cu_seqlens, parts), states, slots = several(form), wide_pool(), [3, 1, -1, 5]
    before = states.copy()
    o = sigmoid_update(
        x, cu_seqlens, initial_state_source=states, initial_state_indices=np.array(slots)
    )
    for n, (part, actual) in enumerate(zip(parts, outputs_of(o, form), strict=True)):
        if slots[n] < 0:
            assert not actual.any()
            continue
        expected, kept = steps(part, before[slots[n]], l2norm=True)
        close(actual, expected)
        if len(kept) > 0:
            before[slots[n]] = kept[-1]
    close(states, before)
    assert calls["gdn_verify"] == 1


def test_tensorrt_llm_decode_refuses(calls):
    shaped, bounds = in_form(rows(), "packed")
    options = {"initial_state_source": pool(), "initial_state_indices": np.arange(N)}
    with pytest.raises(InvalidArgumentError, match=r"output has shape \[1\]; expected \[1, 4,"):
        sigmoid_update(shaped, bounds, **options, output=np.zeros(1))
    with pytest.raises(InvalidArgumentError, match="source needs initial_state_indices"):
        sigmoid_update(shaped, bounds, **{**options, "initial_state_indices": None})
    assert not any(calls.values())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [None, "exact", "larger", "apart"])
@pytest.mark.parametrize("update", [False, True])
def test_tensorrt_llm_drafts(calls, form, kind, update):
    """The states after the tokens of a request are in the row that its index names."""
    (x, cu_seqlens, parts), states = several(form), wide_pool()
    before, buffer = states.copy(), None if kind is None else buffer_of(kind)
    slots = [3, 1, -1, 5]
    g, beta = gates_of(x)
    out = np.full_like(x["v"], np.nan)
    o = tensorrt_llm.fused_recurrent_gated_delta_rule_update(
        x["q"], x["k"], x["v"], g.astype(np.float32), beta.astype(np.float32),
        initial_state_source=states, initial_state_indices=np.array(slots, np.int32),
        cu_seqlens=cu_seqlens, use_qk_l2norm_in_kernel=True, disable_state_update=not update,
        intermediate_states_buffer=buffer, cache_steps=STEPS, output=out,
    )  # fmt: skip
    assert o is out
    after, rows_after = before.copy(), None if buffer is None else np.full_like(buffer, np.nan)
    for n, (part, actual) in enumerate(zip(parts, outputs_of(o, form), strict=True)):
        if slots[n] < 0:
            assert not actual.any()
            continue
        expected, kept = steps(part, before[slots[n]], l2norm=True)
        close(actual, expected)
        if update and len(kept) > 0:
            after[slots[n]] = kept[-1]
        if buffer is not None:
            rows_after[slots[n], : len(kept)] = kept
    close(states, after)
    assert buffer is None or close(buffer, rows_after) is None
    assert calls["gdn_verify"] == (2 if update and kind else 1)


def test_tensorrt_llm_drafts_without_beta():
    x, _, parts = several("batched")
    g, _ = gates_of(x)
    o = tensorrt_llm.fused_recurrent_gated_delta_rule_update(
        x["q"], x["k"], x["v"], g.astype(np.float32), disable_state_update=True
    )
    for n in range(N):
        state = np.zeros((HV, V, K))
        for t in range(STEPS):
            token = (x[name][n, t] for name in ("q", "k", "v"))
            expected, state = step(*token, g[n, t], np.ones(HV), state)
            close(o[n, t], expected)


def test_tensorrt_llm_drafts_refuse(calls):
    x, _, _ = several("batched")
    g, beta = (array.astype(np.float32) for array in gates_of(x))
    for options, error, message in (
        ({"disable_output_calculation": True}, UnsupportedError, "disable_output_calculation"),
        ({"beta": x["v"]}, InvalidArgumentError, "beta has shape"),
        ({"intermediate_states_buffer": buffer_of("exact")}, UnsupportedError, "needs initial"),
    ):
        with pytest.raises(error, match=message):
            tensorrt_llm.fused_recurrent_gated_delta_rule_update(
                x["q"], x["k"], x["v"], g, **{"beta": beta, **options}
            )
    assert not any(calls.values())


# ---- tokenspeed


@pytest.mark.parametrize("wanted", [True, False])
def test_tokenspeed_prefill(wanted):
    states = pool()[:COUNT]
    before = states.copy()
    result = tokenspeed.gdn_chunk_prefill(
        **prefill_inputs(), scale=None, initial_state=states, cu_seqlens=BOUNDS,
        output_final_state=wanted,
    )  # fmt: skip
    check_prefill(prefill_inputs(), result.out, result.final_state, before)
    assert (result.final_state is None) == (not wanted)
    assert result.h is None and result.h_layout == "none"
    np.testing.assert_array_equal(states, before)


def test_tokenspeed_final_states_are_f32():
    half = pool()[:COUNT].astype(np.float16)
    result = tokenspeed.gdn_chunk_prefill(
        **prefill_inputs(), scale=None, initial_state=half, cu_seqlens=BOUNDS
    )
    assert result.final_state.dtype == np.float32
    check_prefill(prefill_inputs(), result.out, result.final_state, half)


def test_tokenspeed_prefill_keeps_states_of_chunks():
    bounds, x = np.array([0, 70, 134, 263], np.int32), long_prefill_inputs(1, 263)
    before = pool()[:COUNT]
    result = tokenspeed.gdn_chunk_prefill(
        **x, scale=None, initial_state=before.copy(), cu_seqlens=bounds, output_h=True
    )
    assert result.h_layout is tokenspeed.GdnCheckpointLayout.FLA and result.h_layout == "fla"
    whole = {name: array[0] for name, array in x.items()}
    expected = [
        kept
        for n in range(COUNT)
        for kept in states_before(whole, bounds[n], bounds[n + 1], before[n])
    ]
    np.testing.assert_allclose(result.h[0, : len(expected)], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("written", [None, [1, 2, 4, -1]])
def test_tokenspeed_decode(calls, written):
    x, states, slots = rows(), pool(), [3, -1, 0, 5]
    before = states.copy()
    shaped, _ = in_form(x, "batched")
    options = {} if written is None else {"output_state_indices": np.array(written, np.int64)}
    o = tokenspeed.gdn_decode_step(
        **shaped, A_log=A_LOG, dt_bias=DT_BIAS, initial_state=states, solution="triton",
        initial_state_indices=np.array(slots, np.int32), **options,
    )  # fmt: skip
    g, beta = gates_of(x)
    if written is None:
        return check(x, g, beta, o[:, 0], states, before, slots, -1, l2norm=True)
    for n, slot in enumerate(slots):
        if slot < 0:
            assert not o[n].any()
            continue
        token = (x[name][n] for name in ("q", "k", "v"))
        expected, new = step(*token, g[n], beta[n], before[slot], l2norm=True)
        close(o[n, 0], expected)
        if written[n] >= 0:
            before[written[n]] = new
    close(states, before)


def mtp(x, states, slots, **options):
    return tokenspeed.gdn_decode_mtp(
        **x, A_log=A_LOG, dt_bias=DT_BIAS, initial_state=states, solution="triton",
        initial_state_indices=np.array(slots, np.int32), **{"parent_indices": None, **options},
    )  # fmt: skip


@pytest.mark.parametrize("place", ["nowhere", "slots", "buffer", "wide buffer"])
@pytest.mark.parametrize("update", [False, True])
def test_tokenspeed_drafts(calls, place, update):
    x, _, parts = several("batched")
    states, slots = wide_pool(), [3, 1, -1, 5]
    before, table = states.copy(), np.arange(N * STEPS).reshape(N, STEPS) % 6 + 6
    buffer = buffer_of("exact" if place == "buffer" else "larger")
    options = {"disable_state_update": not update}
    if place == "slots":
        table[0], table[1], table[3] = [6, 7, 8], [9, -1, 10], [11, 12, 13]
        states = np.concatenate([states, wide_pool()])
        before = states.copy()
        options = {"disable_state_update": False, "output_state_indices": table.astype(np.int32)}
    elif place != "nowhere":
        options["intermediate_states_buffer"] = buffer
    o = mtp(x, states, slots, **options)
    after, rows_after = before.copy(), np.full_like(buffer, np.nan)
    for n, part in enumerate(parts):
        if slots[n] < 0:
            assert not o[n].any()
            continue
        expected, kept = steps(part, before[slots[n]], l2norm=True)
        close(o[n], expected)
        if place == "slots":
            for slot, state in zip(table[n], kept):
                if slot >= 0:
                    after[slot] = state
        elif update:
            after[slots[n]] = kept[-1]
        rows_after[n, :STEPS] = kept
    close(states, after)
    if "buffer" in place:
        close(buffer, rows_after)


@pytest.mark.parametrize("place", ["slots", "buffer"])
def test_tokenspeed_trees(place):
    x, _, parts = several("batched")
    states, slots = wide_pool(), [3, 1, -1, 5]
    parents = np.array([[-1, 0, 0], [-1, -1, 1], [-1, 0, 1], [-1, 0, -1]], np.int32)
    buffer, before = buffer_of("exact"), states.copy()
    if place == "slots":
        states = np.concatenate([states, wide_pool()])
        table = np.arange(N * STEPS, dtype=np.int32).reshape(N, STEPS) + len(before)
        options = {"disable_state_update": False, "output_state_indices": table}
    else:
        options = {"intermediate_states_buffer": buffer}
    o = mtp(x, states, slots, parent_indices=parents, **options)
    for n, part in enumerate(parts):
        if slots[n] < 0:
            assert not o[n].any()
            continue
        g, beta = gates_of(part)
        nodes = []
        for t, parent in enumerate(parents[n]):
            first = before[slots[n]] if parent < 0 else nodes[parent]
            token = (part[name][t] for name in ("q", "k", "v"))
            expected, new = step(*token, g[t], beta[t], first, l2norm=True)
            close(o[n, t], expected)
            nodes.append(new)
        close(states[table[n]] if place == "slots" else buffer[n], nodes)
    close(states[: len(before)], before)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"override": "k"}, UnsupportedError, "override is not supported"),
        (
            {"output_state_indices": np.zeros((N, STEPS), np.int32)},
            InvalidArgumentError, "output_state_indices needs disable_state_update=False",
        ),
        (
            {"output_state_indices": np.zeros((N, 1), np.int32), "disable_state_update": False},
            InvalidArgumentError, "output_state_indices has shape",
        ),
        (
            {"parent_indices": np.zeros((N, STEPS), np.int32)},
            InvalidArgumentError, "parent_indices needs output_state_indices or intermediate",
        ),
        (
            {"intermediate_states_buffer": buffer_of("exact")[:, :2]},
            InvalidArgumentError, "intermediate_states_buffer has shape",
        ),
        ({"tree_ancestors": np.zeros(1)}, InvalidArgumentError, "unknown argument tree_ancestors"),
    ],
)  # fmt: skip
def test_tokenspeed_drafts_refuse(calls, options, error, message):
    x, _, _ = several("batched")
    with pytest.raises(error, match=message):
        mtp(x, wide_pool(), [3, 1, 2, 5], **options)
    assert not any(calls.values())


def test_tensorrt_llm_signatures_are_its_own():
    """The order of what TensorRT-LLM's functions take."""
    theirs = {
        tensorrt_llm.chunk_gated_delta_rule: "q k v g beta scale initial_state "
        "initial_state_indices inplace_indexed_state_update output_final_state cu_seqlens "
        "head_first use_qk_l2norm_in_kernel output state_workspace output_state_indices use_cp "
        "g_is_linear",
        tensorrt_llm.fused_sigmoid_gating_delta_rule_update: "A_log a dt_bias softplus_beta "
        "softplus_threshold q k v b initial_state_source initial_state_indices scale "
        "use_qk_l2norm_in_kernel cu_seqlens output",
        tensorrt_llm.fused_recurrent_gated_delta_rule_update: "q k v g beta scale "
        "initial_state_source initial_state_indices cu_seqlens use_qk_l2norm_in_kernel "
        "disable_state_update disable_output_calculation intermediate_states_buffer cache_steps "
        "output",
    }
    for function, names in theirs.items():
        parameters = inspect.signature(function).parameters.values()
        ordered = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert ordered == names.split(), function
