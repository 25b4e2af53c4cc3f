"""compat.vllm and compat.sglang without a GPU: what they hand on, run by the recurrence, is what
the engines' functions compute."""

from __future__ import annotations

import numpy as np
import pytest
import recurrence
from engine_rows import (
    A_LOG, BOUNDS, COUNT, DT_BIAS, FORMS, H, HV, K, N, SPANS, STEPS, TOTAL, V, buffer_of, check,
    check_prefill, close, gates_of, in_form, long_prefill_inputs, normal, outputs_of, pool,
    prefill_inputs, rows, several, states_before, step, steps, wide_pool,
)  # fmt: skip

from cubinery import InvalidArgumentError, UnsupportedError
from cubinery.compat import sglang, vllm


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    return recurrence.install(monkeypatch)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pad_slot_id, slots", [(0, [3, 0, 1, 5]), (-1, [3, -1, 0, 5])])
def test_vllm_recurrent_decode(calls, form, pad_slot_id, slots):
    x, states = rows(), pool()
    before = states.copy()
    g, beta = gates_of(x)
    shaped, cu_seqlens = in_form(
        {**x, "g": g.astype(np.float32), "beta": beta.astype(np.float32)}, form
    )
    option = {} if pad_slot_id == 0 else {"pad_slot_id": -1}  # 0 is the default
    o, final = vllm.fused_recurrent_gated_delta_rule(
        *(shaped[name] for name in ("q", "k", "v", "g", "beta")), initial_state=states,
        cu_seqlens=cu_seqlens, ssm_state_indices=np.array(slots), use_qk_l2norm_in_kernel=True,
        **option,
    )  # fmt: skip
    assert final is states and o.shape == shaped["v"].shape
    g, beta = np.float32(g), np.float32(beta)
    check(x, g, beta, o.reshape(N, HV, V), states, before, slots, pad_slot_id, l2norm=True)
    assert calls == {"gdn_prefill": 0, "gdn_decode": 1, "gdn_verify": 0}


@pytest.mark.parametrize("form", FORMS)
def test_vllm_sigmoid_gating_decode(form):
    x, states, slots = rows(), pool(), [3, 0, 1, 5]
    before = states.copy()
    shaped, cu_seqlens = in_form(x, form)
    flat = {"a": x["a"], "b": x["b"]} if form == "packed" else {}  # vLLM's models pass [N, HV]
    o, final = vllm.fused_sigmoid_gating_delta_rule_update(
        A_log=A_LOG, dt_bias=DT_BIAS, **{**shaped, **flat}, scale=0.5, initial_state=states,
        cu_seqlens=cu_seqlens, ssm_state_indices=np.array(slots), use_qk_l2norm_in_kernel=False,
    )  # fmt: skip
    assert final is states
    check(x, *gates_of(x), o.reshape(N, HV, V), states, before, slots, 0, scale=0.5)


def test_vllm_more_indices_than_requests_are_cut():
    """Graph capture pads the index tensor."""
    x, states = rows(), pool()
    before = states.copy()
    slots = [3, 2, 1, 5, 4, 4]
    shaped, cu_seqlens = in_form(x, "packed")
    o, _ = vllm.fused_sigmoid_gating_delta_rule_update(
        A_log=A_LOG, dt_bias=DT_BIAS, **shaped, initial_state=states, cu_seqlens=cu_seqlens,
        ssm_state_indices=np.array(slots),
    )  # fmt: skip
    check(x, *gates_of(x), o[0], states, before, slots[:N], 0)


def innermost_tokens(array: np.ndarray) -> np.ndarray:
    """The same [B, T, heads, dim], with the tokens innermost in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def test_strided_rows_are_taken():
    shaped, _ = in_form(rows(), "packed")
    turned = {name: innermost_tokens(shaped[name]) for name in ("q", "k", "v")}
    np.testing.assert_array_equal(vllm_call(**turned)[0], vllm_call()[0])
    np.testing.assert_array_equal(sglang_call(**turned), sglang_call())
    x = {**prefill_inputs(), "cu_seqlens": BOUNDS}
    turned = {name: innermost_tokens(x[name]) for name in ("q", "k", "v")}
    for module in (vllm, sglang):
        plain = module.chunk_gated_delta_rule(**x)[0]
        np.testing.assert_array_equal(module.chunk_gated_delta_rule(**{**x, **turned})[0], plain)


def test_vllm_new_states_beside_dense_ones():
    x, states = rows(), normal(8, N, HV, V, K)
    before = states.copy()
    shaped, cu_seqlens = in_form(x, "packed")
    o, final = vllm.fused_sigmoid_gating_delta_rule_update(
        A_log=A_LOG, dt_bias=DT_BIAS, **shaped, initial_state=states, inplace_final_state=False,
        cu_seqlens=cu_seqlens,
    )  # fmt: skip
    np.testing.assert_array_equal(states, before)
    g, beta = gates_of(x)
    for n in range(N):
        expected, new = step(x["q"][n], x["k"][n], x["v"][n], g[n], beta[n], before[n])
        np.testing.assert_allclose(o[0, n], expected, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(final[n], new, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "function, slots, padding",
    [
        (vllm.fused_recurrent_gated_delta_rule_packed_decode, [3, 0, 1, 5], 0),
        (sglang.fused_recurrent_gated_delta_rule_packed_decode, [3, -1, 0, 5], -1),
    ],
)
def test_packed_decode(function, slots, padding):
    x, states = rows(), pool()
    before = states.copy()
    wide = np.zeros((N, 2 * H * K + HV * V + 16), np.float32)  # rows of a wider buffer
    mixed = wide[:, : 2 * H * K + HV * V]
    mixed[:] = np.concatenate([x[name].reshape(N, -1) for name in ("q", "k", "v")], axis=1)
    out = np.full((N, 1, HV, V), np.nan, np.float32)
    o, final = function(
        mixed, x["a"], x["b"], A_LOG, DT_BIAS, K**-0.5, states, out, np.array(slots), True
    )
    assert o is out and final is states
    check(x, *gates_of(x), out[:, 0], states, before, slots, padding, l2norm=True)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"mixed_qkv": np.zeros((N, 2 * H * K + HV * V + 8), np.float32)}, "mixed_qkv has 64"),
        ({"mixed_qkv": np.zeros((N, HV * V), np.float32)}, "mixed_qkv has 24 channels"),
        ({"mixed_qkv": np.zeros((1, N, 56), np.float32)}, "expected .B, channels"),
        ({"out": np.zeros((N, HV, V), np.float32)}, "out has shape"),
        ({"ssm_state_indices": np.zeros((N, 2), int)}, "ssm_state_indices has shape"),
        ({"initial_state": np.zeros((HV, V, K), np.float32)}, "initial_state has shape"),
    ],
)
def test_packed_decode_refuses(calls, change, message):
    arguments = {
        "mixed_qkv": np.zeros((N, 2 * H * K + HV * V), np.float32),
        "a": rows()["a"],
        "b": rows()["b"],
        "A_log": A_LOG,
        "dt_bias": DT_BIAS,
        "scale": None,
        "initial_state": pool(),
        "out": np.zeros((N, 1, HV, V), np.float32),
        "ssm_state_indices": np.arange(N),
        **change,
    }
    with pytest.raises(InvalidArgumentError, match=message):
        vllm.fused_recurrent_gated_delta_rule_packed_decode(**arguments)
    assert calls["gdn_decode"] == 0


def vllm_call(**change):
    shaped, cu_seqlens = in_form(rows(), "packed")
    arguments = {
        "A_log": A_LOG,
        "dt_bias": DT_BIAS,
        **shaped,
        "initial_state": pool(),
        "cu_seqlens": cu_seqlens,
        "ssm_state_indices": np.arange(N),
    }
    return vllm.fused_sigmoid_gating_delta_rule_update(**{**arguments, **change})


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"num_accepted_tokens": np.ones(N, int)}, InvalidArgumentError, "num_accepted_tokens"),
        ({"ssm_state_indices": np.zeros(2, int)}, InvalidArgumentError, "state indices have shape"),
        ({"ssm_state_indices": None}, UnsupportedError, "inplace_final_state is True"),
        ({"inplace_final_state": False}, UnsupportedError, "inplace_final_state is False"),
        ({"initial_state": None}, InvalidArgumentError, "initial_state is required"),
        ({"initial_state": pool().astype(float)}, UnsupportedError, "initial_state is float64"),
        ({"cu_seqlens": np.array([0, 2, 4])}, UnsupportedError, "for 2 requests"),
        ({"cu_seqlens": None}, UnsupportedError, "1 x 4 tokens for 1 requests"),
        ({"a": rows()["a"][:2]}, InvalidArgumentError, "a has shape"),
        ({"beta": 2.0}, UnsupportedError, "beta is 2.0"),
        ({"threshold": 10.0}, UnsupportedError, "threshold is 10.0"),
        ({"is_kda": True}, InvalidArgumentError, "dt_bias has shape"),
        ({"pad_slot_id": 3}, InvalidArgumentError, "pad_slot_id is 3"),
        (
            {"ssm_state_indices_output": np.zeros(3, int)},
            InvalidArgumentError,
            r"ssm_state_indices_output has shape \[3\]; expected \[N\], N = 4",
        ),
        (
            {"ssm_state_indices_output": np.zeros((N, 1), int)},
            InvalidArgumentError,
            "ssm_state_indices_output has shape .4, 1.; expected the dimensions of ssm_state_ind",
        ),
        (
            {"ssm_state_indices": None, "ssm_state_indices_output": np.zeros(N, int)},
            InvalidArgumentError,
            "ssm_state_indices_output has shape .4.; expected the dimensions",
        ),
    ],
)
def test_vllm_decode_refuses(calls, change, error, message):
    with pytest.raises(error, match=message):
        vllm_call(**change)
    assert calls == {"gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 0}


# --- several tokens per request


def step_table(padding: int) -> np.ndarray:
    """[N + 1, S]: a captured graph has more rows than requests.  The third request is padding, the
    last one drops its second state."""
    table = np.array([[3, 7, 2], [4, 5, 6], [0, 0, 0], [9, 0, 11], [0, 0, 0]], np.int32)
    return np.where(table == 0, padding, table)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pad_slot_id", [0, -1])
@pytest.mark.parametrize(
    "accepted, starts",
    [(None, (0, 0, 0, 0)), ((2, 1, 1, 3), (1, 0, 0, 2)), ((0, 3, 0, 1), (0, 2, 0, 0))],
    ids=["first", "accepted", "none accepted"],
)
def test_vllm_draft_tokens(calls, form, pad_slot_id, accepted, starts):
    (x, cu_seqlens, parts), states = several(form), wide_pool()
    before, table = states.copy(), step_table(pad_slot_id)
    o, final = vllm.fused_sigmoid_gating_delta_rule_update(
        A_log=A_LOG, dt_bias=DT_BIAS, **x, initial_state=states, cu_seqlens=cu_seqlens,
        ssm_state_indices=table, use_qk_l2norm_in_kernel=True, pad_slot_id=pad_slot_id,
        num_accepted_tokens=None if accepted is None else np.array((*accepted, 1), np.int32),
    )  # fmt: skip
    assert final is states and o.shape == x["v"].shape
    after = before.copy()
    for n, (part, actual) in enumerate(zip(parts, outputs_of(o, form), strict=True)):
        start = table[n, starts[n]]
        if start == pad_slot_id:
            assert not actual.any()
            continue
        expected, kept = steps(part, before[start], l2norm=True)
        close(actual, expected)
        for slot, state in zip(table[n], kept):
            if slot != pad_slot_id:
                after[slot] = state
    close(states, after)
    assert calls == {"gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 1}


def mtp_inputs(form="packed"):
    """Arguments of vLLM's fused op for several(): views of one projection's rows, and each
    request's tokens."""
    x, cu_seqlens, parts = several(form)
    total = len(x["q"][0])
    z = normal(41, total, HV, V)
    wide = np.zeros((total, 2 * H * K + 2 * HV * V), np.float32)  # q, k, v, z
    mixed, gate = wide[:, : -HV * V], wide[:, -HV * V :].reshape(total, HV, V)
    mixed[:] = np.concatenate([x[name][0].reshape(total, -1) for name in ("q", "k", "v")], axis=1)
    gate[:] = z
    return {
        "mixed_qkv": mixed,
        "a": x["a"].reshape(total, HV),
        "b": x["b"].reshape(total, HV),
        "A_log": A_LOG,
        "dt_bias": DT_BIAS,
        "state_indices": step_table(0)[: len(cu_seqlens) - 1],
        "cu_seqlens": cu_seqlens,
        "num_accepted_tokens": np.ones(len(cu_seqlens) - 1, np.int32),
        "state": wide_pool(),
        "output_gate": gate,
        "norm_weight": normal(42, V),
        "out": np.full((total, HV, V), np.nan, np.float32),
        "scale": K**-0.5,
    }, parts


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_vllm_draft_tokens_and_the_norm_behind_them(calls, activation):
    arguments, parts = mtp_inputs()
    states, z, out = (arguments[name] for name in ("state", "output_gate", "out"))
    before, table, start = states.copy(), arguments["state_indices"], 0
    result = vllm.fused_gdn_decode_post_conv_mtp(
        **arguments, norm_eps=0.1, output_gate_activation=activation
    )
    assert result is None
    after = before.copy()
    for n, part in enumerate(parts):
        tokens = len(part["q"])
        span, start = slice(start, start + tokens), start + tokens
        if table[n, 0] == 0:
            assert not out[span].any()
            continue
        expected, kept = steps(part, before[table[n, 0]], l2norm=True)
        expected = np.array(expected) / np.sqrt(
            (np.array(expected) ** 2).mean(-1, keepdims=True) + 0.1
        )
        gate = 1 / (1 + np.exp(-np.float64(z[span])))
        gate = gate if activation == "sigmoid" else gate * z[span]
        close(out[span], expected * arguments["norm_weight"] * gate)
        for slot, state in zip(table[n], kept):
            if slot != 0:
                after[slot] = state
    close(states, after)
    assert calls == {"gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 1}


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"output_gate_activation": "tanh"}, InvalidArgumentError, "'tanh'; expected 'silu' or"),
        ({"state_indices": np.zeros((4, 17), int)}, UnsupportedError, "S = 17 tokens"),
        ({"state_indices": np.zeros(5, int)}, InvalidArgumentError, "state_indices has shape"),
        ({"cu_seqlens": np.zeros(3, int)}, InvalidArgumentError, "cu_seqlens has shape"),
        ({"num_accepted_tokens": np.ones(3, int)}, InvalidArgumentError, "num_accepted_tokens has"),
        (
            {"output_gate": np.zeros((2, HV, V), np.float32)},
            InvalidArgumentError,
            "output_gate has",
        ),
        ({"out": np.zeros((2, HV, V), np.float32)}, InvalidArgumentError, "out has shape"),
        (
            {"mixed_qkv": np.zeros((2, HV * V), np.float32)},
            InvalidArgumentError,
            "mixed_qkv has 24",
        ),
        ({"state": wide_pool().astype(float)}, UnsupportedError, "state is float64"),
        ({"lower_bound": -5.0}, InvalidArgumentError, "unknown argument lower_bound"),
    ],
)
def test_vllm_fused_draft_tokens_refuse(calls, change, error, message):
    arguments, _ = mtp_inputs()
    with pytest.raises(error, match=message):
        vllm.fused_gdn_decode_post_conv_mtp(**{**arguments, **change})
    assert calls["gdn_verify"] == 0


def written_table(padding: int) -> np.ndarray:
    """Slots that step_table() has not, and one of padding."""
    table = np.array([[12, 13, 14], [15, 15, 15], [1, 8, 10], [8, 10, 1], [0, 0, 0]], np.int64)
    table[0, 1] = padding
    return table


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pad_slot_id", [0, -1])
@pytest.mark.parametrize("accepted, starts", [(None, (0, 0, 0, 0)), ((2, 1, 1, 3), (1, 0, 0, 2))])
def test_vllm_draft_tokens_to_other_slots(calls, form, pad_slot_id, accepted, starts):
    (x, cu_seqlens, parts), states = several(form), wide_pool()
    before, table, written = states.copy(), step_table(pad_slot_id), written_table(pad_slot_id)
    o, final = vllm.fused_sigmoid_gating_delta_rule_update(
        A_log=A_LOG, dt_bias=DT_BIAS, **x, initial_state=states, cu_seqlens=cu_seqlens,
        ssm_state_indices=table, ssm_state_indices_output=written, pad_slot_id=pad_slot_id,
        num_accepted_tokens=None if accepted is None else np.array(accepted, np.int32),
    )  # fmt: skip
    assert final is states
    after = before.copy()
    for n, (part, actual) in enumerate(zip(parts, outputs_of(o, form), strict=True)):
        start = table[n, starts[n]]
        if start == pad_slot_id:
            assert not actual.any()
            continue
        expected, kept = steps(part, before[start])
        close(actual, expected)
        for slot, state in zip(written[n], kept):
            if slot != pad_slot_id:
                after[slot] = state
    close(states, after)
    read = np.unique(table[table > 0])
    np.testing.assert_array_equal(states[read], before[read])
    assert calls == {"gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 1}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pad_slot_id, slots", [(0, [3, 0, 1, 5]), (-1, [3, -1, 1, 5])])
def test_vllm_decode_to_other_slots(calls, form, pad_slot_id, slots):
    x, states = rows(), pool()
    before = states.copy()
    shaped, cu_seqlens = in_form(x, form)
    written = np.array([4, 4, 2, pad_slot_id, 4, 4], np.int64)  # a captured graph's has more
    o, _ = vllm.fused_sigmoid_gating_delta_rule_update(
        A_log=A_LOG, dt_bias=DT_BIAS, **shaped, initial_state=states, cu_seqlens=cu_seqlens,
        ssm_state_indices=np.array(slots, np.int32), ssm_state_indices_output=written,
        pad_slot_id=pad_slot_id,
    )  # fmt: skip
    after, (g, beta) = before.copy(), gates_of(x)
    for n, slot in enumerate(slots):
        out = o.reshape(N, HV, V)[n]
        if slot == pad_slot_id:
            assert not out.any()
            continue
        expected, new = step(x["q"][n], x["k"][n], x["v"][n], g[n], beta[n], before[slot])
        np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-7)
        if written[n] != pad_slot_id:
            after[written[n]] = new
    np.testing.assert_allclose(states, after, rtol=1e-6, atol=1e-7)
    assert calls == {"gdn_prefill": 0, "gdn_decode": 1, "gdn_verify": 0}


@pytest.mark.parametrize("form", FORMS)
def test_vllm_draft_tokens_with_given_gates(form):
    (x, cu_seqlens, parts), states = several(form), wide_pool()
    before = states.copy()
    g, beta = gates_of(x)
    table = np.arange(1, 1 + N * STEPS).reshape(N, STEPS)
    o, final = vllm.fused_recurrent_gated_delta_rule(
        *(x[name] for name in ("q", "k", "v")), g.astype(np.float32), beta.astype(np.float32),
        scale=0.5, initial_state=states, cu_seqlens=cu_seqlens, ssm_state_indices=table,
        num_accepted_tokens=np.array([1, 2, 3, 2]),
    )  # fmt: skip
    for n, (part, actual) in enumerate(zip(parts, outputs_of(o, form))):
        expected, kept = steps(part, before[table[n, (0, 1, 2, 1)[n]]], scale=0.5)
        close(actual, expected)
        close(states[table[n, : len(kept)]], kept)
        np.testing.assert_array_equal(states[table[n, len(kept) :]], before[table[n, len(kept) :]])


@pytest.mark.parametrize("kept", [False, True])
def test_requests_of_no_tokens_at_all(kept):
    x, _, _ = several("packed")
    none, bounds = {name: array[:, :0] for name, array in x.items()}, np.zeros(N + 1, np.int32)
    for gates in ({}, {name: np.zeros((0, HV), np.float32) for name in ("a", "b")}):
        states, buffer = wide_pool(), buffer_of("exact") if kept else None
        assert vllm_verify({**none, **gates}, bounds, initial_state=states).shape[1] == 0
        o = sglang_verify(
            {**none, **gates}, bounds, buffer=buffer, initial_state_source=states,
            disable_state_update=False,
        )  # fmt: skip
        assert o.shape[1] == 0 and (buffer is None or np.isnan(buffer).all())
        np.testing.assert_array_equal(states, wide_pool())


def test_gates_of_tokens_alone_are_taken():
    """vLLM's and SGLang's models pass a and b as [total, HV]."""
    for form in FORMS:
        x, cu_seqlens, _ = several(form)
        flat = {name: x[name].reshape(-1, HV) for name in ("a", "b")}
        for call, options in ((vllm_verify, {}), (sglang_verify, {"buffer": buffer_of("exact")})):
            plain = call(x, cu_seqlens, **options)
            np.testing.assert_array_equal(call({**x, **flat}, cu_seqlens, **options), plain)
            turned = {name: innermost_tokens(x[name]) for name in ("q", "k", "v")}
            np.testing.assert_array_equal(call({**x, **turned}, cu_seqlens, **options), plain)


def vllm_verify(x, cu_seqlens, **change):
    table = np.arange(1, 1 + N * STEPS).reshape(N, STEPS)
    arguments = {
        "initial_state": wide_pool(),
        "cu_seqlens": cu_seqlens,
        "ssm_state_indices": table,
        "num_accepted_tokens": np.array([1, 2, 3, 2]),
        **change,
    }
    return vllm.fused_sigmoid_gating_delta_rule_update(
        A_log=A_LOG, dt_bias=DT_BIAS, **x, **arguments
    )[0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"ssm_state_indices": np.zeros((3, 3), int)}, InvalidArgumentError, "N, S., N = 4"),
        ({"ssm_state_indices": np.zeros((N, 17), int)}, UnsupportedError, "S = 17 tokens"),
        (
            {"ssm_state_indices_output": np.zeros((N, 17), int)},
            UnsupportedError,
            "ssm_state_indices_output has S = 17 tokens",
        ),
        (
            {"ssm_state_indices_output": np.zeros((N - 1, STEPS), int)},
            InvalidArgumentError,
            "ssm_state_indices_output has shape .3, 3.; expected .N, S.",
        ),
        ({"ssm_state_indices": np.zeros((N, 0), int)}, UnsupportedError, "S = 0 tokens"),
        (
            {"ssm_state_indices": np.arange(N)},
            InvalidArgumentError,
            "num_accepted_tokens needs ssm_state_indices .N, S.",
        ),
        ({"ssm_state_indices": None}, InvalidArgumentError, "num_accepted_tokens needs"),
        (
            {"ssm_state_indices": np.arange(N), "num_accepted_tokens": None},
            UnsupportedError,
            "supported: one token per request",
        ),
        ({"num_accepted_tokens": np.ones(3, int)}, InvalidArgumentError, "num_accepted_tokens has"),
        ({"num_accepted_tokens": np.ones((N, 1))}, InvalidArgumentError, "num_accepted_tokens has"),
        ({"inplace_final_state": False}, UnsupportedError, "inplace_final_state is False"),
        ({"initial_state": None}, InvalidArgumentError, "initial_state is required"),
        ({"initial_state": pool().astype(float)}, UnsupportedError, "initial_state is float64"),
        ({"pad_slot_id": 3}, InvalidArgumentError, "pad_slot_id is 3"),
        ({"is_kda": True}, InvalidArgumentError, "dt_bias has shape"),
    ],
)
def test_vllm_draft_tokens_refuse(calls, form, change, error, message):
    x, cu_seqlens, _ = several(form)
    with pytest.raises(error, match=message):
        vllm_verify(x, cu_seqlens, **change)
    assert not any(calls.values())


def test_verification_refuses_shapes(calls):
    x, _, _ = several("batched")
    with pytest.raises(InvalidArgumentError, match="T = 3 tokens per request and .* S = 2"):
        vllm_verify(x, None, ssm_state_indices=np.zeros((N, 2), int))
    with pytest.raises(InvalidArgumentError, match="q has B = 4; expected 1 with cu_seqlens"):
        vllm_verify(x, SPANS)
    with pytest.raises(InvalidArgumentError, match=r"a has shape \[4, 2, 4\]; expected \[4, 3, 4"):
        vllm_verify({**x, "a": x["a"][:, :2]}, None)
    assert not any(calls.values())


def sglang_verify(x, cu_seqlens, *, buffer=None, **change):
    arguments = {
        "initial_state_source": wide_pool(),
        "initial_state_indices": np.array([3, 1, 9, 5], np.int32),
        "cu_seqlens": cu_seqlens,
        "disable_state_update": True,
        "intermediate_states_buffer": buffer,
        "intermediate_state_indices": None if buffer is None else np.arange(N),
        **change,
    }
    return sglang.fused_sigmoid_gating_delta_rule_update(
        A_log=A_LOG, dt_bias=DT_BIAS, softplus_beta=1.0, softplus_threshold=20.0, **x, **arguments
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [None, "exact", "larger", "apart"])
@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize("cache_steps", [None, STEPS])
def test_sglang_target_verify(calls, form, kind, update, cache_steps):
    """The third request is padding; the last one has no row for its states.  Both tables are
    longer than there are requests."""
    (x, cu_seqlens, parts), states = several(form), wide_pool()
    before, buffer = states.copy(), None if kind is None else buffer_of(kind)
    slots, kept_in = [3, 1, -1, 5, -1], [2, 0, 1, -1, 3]
    o = sglang_verify(
        x, cu_seqlens, buffer=buffer, initial_state_source=states,
        initial_state_indices=np.array(slots, np.int32), disable_state_update=not update,
        cache_steps=cache_steps, use_qk_l2norm_in_kernel=True,
        intermediate_state_indices=None if buffer is None else np.array(kept_in, np.int64),
    )  # fmt: skip
    assert o.shape == x["v"].shape
    after, rows_after = before.copy(), None if buffer is None else np.full_like(buffer, np.nan)
    for n, (part, actual) in enumerate(zip(parts, outputs_of(o, form), strict=True)):
        if slots[n] < 0:
            assert not actual.any()
            continue
        expected, kept = steps(part, before[slots[n]], l2norm=True)
        close(actual, expected)
        if update and len(kept) > 0:
            after[slots[n]] = kept[-1]
        if buffer is not None and kept_in[n] >= 0:
            rows_after[kept_in[n], : len(kept)] = kept
    close(states, after)
    assert buffer is None or close(buffer, rows_after) is None
    assert calls == {
        "gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 2 if update and kind else 1
    }  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sglang_tree(calls, form, dtype):
    """The second request is padding; of the packed ones the last has no tokens.  The table is longer
    than there are requests, and says nothing of a request's first token."""
    x, _, parts = several("batched")
    table = np.array([[7, 0, 0], [9, 9, 9], [-5, 0, 1], [0, -1, 0], [9, 9, 9]], dtype)
    given, states, cu_seqlens = table.copy(), wide_pool(), None
    if form == "packed":
        x = {name: array.reshape(1, N * STEPS, *array.shape[2:]) for name, array in x.items()}
        cu_seqlens = np.array([0, 3, 6, 9, 9], np.int32)
        parts[3] = {name: array[:0] for name, array in parts[3].items()}
    before, buffer, slots = states.copy(), buffer_of("larger"), [3, -1, 9, 5]
    o = sglang_verify(
        x, cu_seqlens, buffer=buffer, initial_state_source=states,
        initial_state_indices=np.array(slots, np.int32), retrieve_parent_token=given,
    )  # fmt: skip
    np.testing.assert_array_equal(given, table)
    rows_after = np.full_like(buffer, np.nan)
    for n, (part, actual) in enumerate(zip(parts, o.reshape(N, STEPS, HV, V), strict=True)):
        if slots[n] < 0:
            assert not actual.any()
            continue
        after = []
        for t in range(len(part["q"])):
            parent = -1 if t == 0 else table[n, t]
            token = {name: array[t : t + 1] for name, array in part.items()}
            expected, kept = steps(token, before[slots[n]] if parent < 0 else after[parent])
            close(actual[t], expected[0])
            after.append(kept[0])
        if after:
            rows_after[n, :STEPS] = after
    close(buffer, rows_after)
    np.testing.assert_array_equal(states, before)
    assert calls == {"gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 1}


def test_sglang_tree_of_other_tokens(calls):
    x, _, _ = several("batched")
    with pytest.raises(InvalidArgumentError, match=r"has shape \[4, 2\]; expected \[4, 3\]"):
        sglang_verify(
            x, None, buffer=buffer_of("exact"), retrieve_parent_token=np.zeros((N, 2), int)
        )
    assert not any(calls.values())


def test_sglang_several_tokens_from_zero():
    x, cu_seqlens, parts = several("packed")
    o = sglang_verify(x, cu_seqlens, initial_state_source=None, initial_state_indices=None)
    for part, actual in zip(parts, outputs_of(o, "packed")):
        close(actual, steps(part, np.zeros((HV, V, K)))[0])


def test_sglang_as_many_tokens_as_requests_but_not_one_of_each():
    """cache_steps says so: without it one token per request is taken for granted."""
    (x, _, _), states = several("packed"), wide_pool()
    before = states.copy()
    x = {name: array[:, :3] for name, array in x.items()}
    bounds = np.array([0, 2, 2, 3], np.int32)
    o = sglang_verify(
        x, bounds, initial_state_source=states, initial_state_indices=np.array([3, 1, 5]),
        cache_steps=2, disable_state_update=False,
    )  # fmt: skip
    for n, slot in ((0, 3), (2, 5)):
        span = slice(bounds[n], bounds[n + 1])
        part = {name: array[0, span] for name, array in x.items()}
        expected, kept = steps(part, before[slot])
        close(o[0, span], expected)
        close(states[slot], kept[-1])
    np.testing.assert_array_equal(states[1], before[1])


MANY = {
    "q": np.zeros((1, 17, H, K), np.float32),
    "k": np.zeros((1, 17, H, K), np.float32),
    "v": np.zeros((1, 17, HV, V), np.float32),
    "a": np.zeros((17, HV), np.float32),
    "b": np.zeros((17, HV), np.float32),
}


@pytest.mark.parametrize(
    "change, error, message",
    [
        (
            {"retrieve_parent_token": np.zeros((N, 2), int)},
            UnsupportedError,
            "retrieve_parent_token needs intermediate_states_buffer",
        ),
        (
            {
                "buffer": buffer_of("exact"),
                "retrieve_parent_token": np.zeros((N, 2), int),
                "disable_state_update": False,
            },
            UnsupportedError,
            "retrieve_parent_token needs disable_state_update",
        ),
        (
            {"buffer": buffer_of("exact"), "retrieve_parent_token": SPANS},
            InvalidArgumentError,
            "retrieve_parent_token has shape .5.; expected .N, T., N = 4",
        ),
        (
            {"buffer": buffer_of("exact"), "retrieve_parent_token": np.zeros((N, STEPS), int)},
            UnsupportedError,
            "N = 4, T = 3 and q has total = 6; supported: total = N T",
        ),
        ({"intermediate_state_indices": SPANS}, InvalidArgumentError, "belong together"),
        (
            {"buffer": buffer_of("exact"), "intermediate_state_indices": None},
            InvalidArgumentError,
            "belong together",
        ),
        (
            {"buffer": buffer_of("exact"), "intermediate_state_indices": np.arange(3)},
            InvalidArgumentError,
            "intermediate_state_indices has shape .3.; expected .N., N = 4",
        ),
        (
            {"initial_state_indices": np.arange(3)},
            InvalidArgumentError,
            "initial_state_indices has",
        ),
        (
            {
                "buffer": buffer_of("exact"),
                "initial_state_source": None,
                "initial_state_indices": None,
            },
            UnsupportedError,
            "needs initial_state_source",
        ),
        ({"buffer": buffer_of("exact")[0]}, InvalidArgumentError, "buffer has shape"),
        (
            {"buffer": buffer_of("exact")[..., :4]},
            InvalidArgumentError,
            "expected .rows, 1 or more",
        ),
        ({"buffer": buffer_of("exact", np.float16)}, UnsupportedError, "buffer is f16"),
        (
            {"buffer": buffer_of("exact"), "cache_steps": 4},
            InvalidArgumentError,
            "cache_steps is 4",
        ),
        ({"cache_steps": 17}, UnsupportedError, "cache_steps = 17 tokens per request"),
        (
            {"buffer": np.zeros((4, 17, HV, V, K), np.float32)},
            UnsupportedError,
            "intermediate_states_buffer has steps = 17 tokens",
        ),
        (
            {"q": MANY["q"], "k": MANY["k"], "v": MANY["v"], "a": MANY["a"], "b": MANY["b"]},
            UnsupportedError,
            "without cache_steps, q has total = 17",
        ),
        ({"cache_ring": True}, UnsupportedError, "cache_ring"),
        ({"is_kda": True}, InvalidArgumentError, "dt_bias has shape"),
    ],
)
def test_sglang_verify_refuses(calls, change, error, message):
    x, cu_seqlens, _ = several("packed")
    change = dict(change)
    x = {name: change.pop(name, array) for name, array in x.items()}
    with pytest.raises(error, match=message):
        sglang_verify(x, cu_seqlens, **change)
    assert not any(calls.values())


@pytest.mark.parametrize("change", [{"cache_steps": 2}, {"buffer": buffer_of("exact")[:, :2]}])
def test_sglang_verify_refuses_more_tokens_than_steps(calls, change):
    x, _, _ = several("batched")
    with pytest.raises(InvalidArgumentError, match="T = 3 tokens per request; expected 2 at most"):
        sglang_verify(x, None, **change)
    many = {name: np.repeat(array, 6, axis=1) for name, array in x.items()}
    with pytest.raises(UnsupportedError, match="q has T = 18 tokens"):
        sglang_verify(many, None)
    assert not any(calls.values())


# --- prefill


@pytest.mark.parametrize("initial", [None, np.float32, np.float16])
def test_vllm_prefill(initial):
    x = prefill_inputs()
    h0 = None if initial is None else normal(8, COUNT, HV, V, K).astype(initial)
    o, final = vllm.chunk_gated_delta_rule(
        **x, initial_state=h0, output_final_state=True, cu_seqlens=BOUNDS,
        chunk_indices=np.zeros((2, 2)), chunk_offsets=np.zeros(4),
    )  # fmt: skip
    assert final.dtype == np.float32
    check_prefill(x, o, final, h0)


def test_vllm_prefill_into_the_engines_buffer():
    x = prefill_inputs()
    buffer = np.full((TOTAL + 2, HV, V), np.nan, np.float32)
    o, final = vllm.chunk_gated_delta_rule(**x, cu_seqlens=BOUNDS, core_attn_out=buffer)
    assert final is None and np.shares_memory(o, buffer)
    check_prefill(x, buffer[None, :TOTAL], None, None)
    assert np.isnan(buffer[TOTAL:]).all()


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"head_first": True}, InvalidArgumentError, "head_first"),
        ({"initial_state": pool()}, InvalidArgumentError, "initial_state has shape"),
        (
            {"core_attn_out": np.zeros((TOTAL - 1, HV, V), np.float32)},
            InvalidArgumentError,
            "core_attn_out is .7, 4, 6.; expected .8 or more",
        ),
        ({"core_attn_out": np.zeros((8, HV, V))}, InvalidArgumentError, "in q's dtype"),
    ],
)
def test_vllm_prefill_refuses(calls, change, error, message):
    with pytest.raises(error, match=message):
        vllm.chunk_gated_delta_rule(**{**prefill_inputs(), "cu_seqlens": BOUNDS, **change})
    assert calls["gdn_prefill"] == 0


@pytest.mark.parametrize("initial", [None, np.float32, np.float16])
@pytest.mark.parametrize("wanted", [True, False])
def test_vllm_prefill_of_flashinfer(monkeypatch, initial, wanted):
    segments = recurrence.noted_option(monkeypatch, "segments")
    x = prefill_inputs()
    h0 = None if initial is None else normal(8, COUNT, HV, V, K).astype(initial)
    before = None if h0 is None else h0.copy()
    for use_cp, name in (("auto", "auto"), (True, "always"), (False, "never")):
        o, final = vllm.fi_chunk_gated_delta_rule(
            **x, initial_state=h0, output_final_state=wanted, cu_seqlens=BOUNDS,
            use_qk_l2norm_in_kernel=False, use_cp=use_cp,
        )  # fmt: skip
        assert segments.pop() == name
        assert final.dtype == np.float32 if wanted else final is None
        check_prefill(x, o, final, h0)
    assert before is None or (h0 == before).all()


def test_vllm_prefill_of_flashinfer_normalises():
    x = {**prefill_inputs(), "cu_seqlens": BOUNDS}
    o, _ = vllm.fi_chunk_gated_delta_rule(**x, initial_state=None, output_final_state=False)
    expected, _ = vllm.chunk_gated_delta_rule(**x, use_qk_l2norm_in_kernel=True)
    np.testing.assert_array_equal(o, expected)


@pytest.mark.parametrize("initial", [None, np.float32, np.float16])
@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_vllm_prefill_of_flashinfer_keeps_checkpoints(initial, wanted, index):
    bounds = np.array([0, 70, 70, 134, 300], np.int32)
    x = long_prefill_inputs(1, 300)
    h0 = None if initial is None else normal(8, 4, HV, V, K).astype(initial)
    before = None if h0 is None else h0.copy()
    starts = np.array([1, 2, 2, 3, 5], index)  # vLLM's are int64 beside bounds of int32
    kept = np.full((6, HV, V, K), np.nan, np.float32)
    o, final = vllm.fi_chunk_gated_delta_rule(
        **x, initial_state=h0, output_final_state=wanted, cu_seqlens=bounds,
        use_qk_l2norm_in_kernel=False, state_checkpoints=kept, checkpoint_cu_starts=starts,
        checkpoint_every_n_tokens=64,
    )  # fmt: skip
    plain = vllm.fi_chunk_gated_delta_rule(
        **x, initial_state=h0, output_final_state=True, cu_seqlens=bounds,
        use_qk_l2norm_in_kernel=False,
    )  # fmt: skip
    np.testing.assert_array_equal(o, plain[0])
    if wanted:
        np.testing.assert_array_equal(final, plain[1])
    else:
        assert final is None
    assert before is None or (h0 == before).all()
    whole = {name: array[0] for name, array in x.items()}
    zero = np.zeros((HV, V, K))
    expected = [
        after
        for n, (first, last) in enumerate(zip(bounds, bounds[1:]))
        # Also the state behind the last token, in front of another one.
        for after in list(states_before(whole, first, last, zero if h0 is None else h0[n]))[1:]
    ]
    expected.insert(1, plain[1][2])  # 64 tokens, whose last is the sequence's
    assert np.isnan(kept[[0, 5]]).all()
    np.testing.assert_allclose(kept[1:5], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"cu_seqlens": None}, InvalidArgumentError, "checkpoint_every_n_tokens needs cu_seqlens"),
        ({"checkpoint_every_n_tokens": 48}, InvalidArgumentError, "is 48; .* multiple of 64"),
        ({"checkpoint_cu_starts": None}, InvalidArgumentError, "checkpoint_cu_starts is missing"),
        (
            {"state_checkpoints": np.zeros((2, HV, V, K), np.float16)},
            UnsupportedError,
            "state_checkpoints is f16; supported: f32",
        ),
        ({"use_cp": "sometimes"}, InvalidArgumentError, "use_cp is 'sometimes'"),
        ({"initial_state": pool()}, InvalidArgumentError, "initial_state has shape"),
        ({"g_is_exp": True}, InvalidArgumentError, "unknown argument g_is_exp"),
    ],
)
def test_vllm_prefill_of_flashinfer_refuses(calls, change, error, message):
    given = {
        **{"initial_state": None, "output_final_state": True, "cu_seqlens": BOUNDS},
        "state_checkpoints": np.zeros((2, HV, V, K), np.float32),
        "checkpoint_cu_starts": BOUNDS,
        "checkpoint_every_n_tokens": 64,
    }
    with pytest.raises(error, match=message):
        vllm.fi_chunk_gated_delta_rule(**prefill_inputs(), **{**given, **change})
    assert calls["gdn_prefill"] == 0


def test_sglang_prefill_on_a_pool():
    x, states = prefill_inputs(), pool()
    before = states.copy()
    slots = np.array([4, 0, 2])
    o, final, h = sglang.chunk_gated_delta_rule(
        **x, initial_state=states, initial_state_indices=slots, cu_seqlens=BOUNDS
    )
    assert final is None and h is None
    check_prefill(x, o, states[slots], before[slots])
    np.testing.assert_array_equal(states[[1, 3, 5]], before[[1, 3, 5]])


def test_sglang_prefill_skips_padding():
    x, states = prefill_inputs(), pool()
    before = states.copy()
    o, _, _ = sglang.chunk_gated_delta_rule(
        **x, initial_state=states, initial_state_indices=np.array([-1, 0, -1]), cu_seqlens=BOUNDS
    )
    assert not o.any()
    np.testing.assert_array_equal(states, before)


def test_sglang_prefill_that_only_reads_its_pool(monkeypatch):
    """As multi-item scoring does: sequences share a slot."""
    stored = recurrence.noted_option(monkeypatch, "store_state")
    x, states = prefill_inputs(), pool()
    before = states.copy()
    slots = np.array([4, 4, 4])
    o, final, h = sglang.chunk_gated_delta_rule(
        **x, initial_state=states, initial_state_indices=slots, cu_seqlens=BOUNDS,
        inplace_update=False,
    )  # fmt: skip
    assert final is None and h is None and stored == [False]
    check_prefill(x, o, None, before[slots])
    np.testing.assert_array_equal(states, before)


@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_sglang_prefill_keeps_states_of_chunks(index, update):
    bounds = np.array([0, 70, 70, 134, 263, 300], index)
    x, states = long_prefill_inputs(1, 300), pool()
    before, slots = states.copy(), np.array([4, 0, 2, 5, -1])
    _, final, h = sglang.chunk_gated_delta_rule(
        **x, initial_state=states, initial_state_indices=slots, cu_seqlens=bounds,
        inplace_update=update, output_h=True,
    )  # fmt: skip
    # 2, 0, 1, 3 chunks and one of padding: the host, which sees no lengths, allows for two more.
    assert final is None and h.shape == (1, 9, HV, V, K) and h.dtype == np.float32
    whole = {name: array[0] for name, array in x.items()}
    expected = [
        kept
        for n in range(4)
        for kept in states_before(whole, bounds[n], bounds[n + 1], before[slots[n]])
    ]
    assert len(expected) == 6
    np.testing.assert_allclose(h[0, :6], expected, rtol=1e-5, atol=1e-6)
    assert (states == before).all() == (not update)


def test_sglang_prefill_keeps_states_of_chunks_from_zeros():
    x = long_prefill_inputs(2, 130)
    _, _, h = sglang.chunk_gated_delta_rule(**x, output_h=True)
    assert h.shape == (2, 3, HV, V, K)
    for n in range(2):
        row = {name: array[n] for name, array in x.items()}
        expected = list(states_before(row, 0, 130, np.zeros((HV, V, K))))
        np.testing.assert_allclose(h[n], expected, rtol=1e-5, atol=1e-6)
    half = {name: array.astype(np.float16) for name, array in x.items()}
    assert sglang.chunk_gated_delta_rule(**half, output_h=True)[2].dtype == np.float16


def sglang_call(**change):
    shaped, cu_seqlens = in_form(rows(), "packed")
    arguments = {
        "A_log": A_LOG,
        "dt_bias": DT_BIAS,
        **shaped,
        "softplus_beta": 1.0,
        "softplus_threshold": 20.0,
        "initial_state_source": pool(),
        "initial_state_indices": np.arange(N),
        "cu_seqlens": cu_seqlens,
        "use_qk_l2norm_in_kernel": True,
    }
    return sglang.fused_sigmoid_gating_delta_rule_update(**{**arguments, **change})


@pytest.mark.parametrize("update", [True, False])
def test_sglang_decode(update):
    x, states, slots = rows(), pool(), [3, -1, 0, 5]
    before = states.copy()
    o = sglang_call(
        initial_state_source=states,
        initial_state_indices=np.array(slots),
        disable_state_update=not update,
    )
    g, beta = gates_of(x)
    if update:
        check(x, g, beta, o[0], states, before, slots, -1, l2norm=True)
    else:
        np.testing.assert_array_equal(states, before)
        expected, _ = step(x["q"][0], x["k"][0], x["v"][0], g[0], beta[0], before[3], l2norm=True)
        np.testing.assert_allclose(o[0, 0], expected, rtol=1e-6, atol=1e-7)


def test_sglang_decode_without_states():
    x = rows()
    o = sglang_call(initial_state_source=None, initial_state_indices=None)
    g, beta = gates_of(x)
    for n in range(N):
        zero = np.zeros((HV, V, K))
        expected, _ = step(x["q"][n], x["k"][n], x["v"][n], g[n], beta[n], zero, l2norm=True)
        np.testing.assert_allclose(o[0, n], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"softplus_beta": 0.5}, UnsupportedError, "softplus_beta is 0.5"),
        ({"softplus_threshold": 8.0}, UnsupportedError, "softplus_threshold is 8.0"),
        ({"is_kda": True}, InvalidArgumentError, "dt_bias has shape"),
        ({"lower_bound": -5.0}, UnsupportedError, "lower_bound"),
        (
            {"retrieve_parent_token": np.zeros((N, 1), int)},
            UnsupportedError,
            "retrieve_parent_token needs intermediate_states_buffer",
        ),
        ({"cache_ring": True}, UnsupportedError, "cache_ring"),
        ({"replayssm_g": pool()}, UnsupportedError, "replayssm_g"),
        ({"replayssm_rawv": pool()}, UnsupportedError, "replayssm_rawv"),
        ({"replayssm_rawk": pool()}, UnsupportedError, "replayssm_rawk"),
        ({"replayssm_beta": pool()}, UnsupportedError, "replayssm_beta"),
        ({"match_cutedsl_decode": True}, UnsupportedError, "match_cutedsl_decode"),
        ({"initial_state_indices": None}, InvalidArgumentError, "needs initial_state_indices"),
    ],
)
def test_sglang_decode_refuses(calls, change, error, message):
    with pytest.raises(error, match=message):
        sglang_call(**change)
    assert calls == {"gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 0}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"head_first": True}, "head_first"),
        ({"initial_state": pool()}, "belong together"),
        ({"initial_state_indices": np.arange(COUNT)}, "belong together"),
    ],
)
def test_sglang_prefill_refuses(change, message):
    with pytest.raises(InvalidArgumentError, match=message):
        sglang.chunk_gated_delta_rule(**{**prefill_inputs(), "cu_seqlens": BOUNDS, **change})
