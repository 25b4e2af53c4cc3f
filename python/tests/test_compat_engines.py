"""compat.vllm and compat.sglang without a GPU: what they hand on, run by the recurrence, is what
the engines' functions compute."""

from __future__ import annotations

import numpy as np
import pytest
import recurrence

from cubinery import InvalidArgumentError, UnsupportedError
from cubinery.compat import sglang, vllm

N, H, HV, K, V = 4, 2, 4, 8, 6
SLOTS = 6
CU_SEQLENS = np.arange(N + 1, dtype=np.int32)


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    return recurrence.install(monkeypatch)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rows() -> dict[str, np.ndarray]:
    """One token of N requests: q, k [N, H, K], v [N, HV, V], a and b [N, HV]."""
    return {
        "q": normal(1, N, H, K),
        "k": normal(2, N, H, K) / np.float32(K**0.5),
        "v": normal(3, N, HV, V),
        "a": normal(4, N, HV),
        "b": normal(5, N, HV),
    }


A_LOG = np.log(np.random.default_rng(6).uniform(1, 16, HV)).astype(np.float32)
DT_BIAS = normal(7, HV)


def gates_of(x: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """g and beta in float64."""
    g = -np.exp(np.float64(A_LOG)) * np.logaddexp(0, np.float64(x["a"]) + DT_BIAS)
    return g, 1 / (1 + np.exp(-np.float64(x["b"])))


def pool() -> np.ndarray:
    return normal(8, SLOTS, HV, V, K)


def step(q, k, v, g, beta, state, scale=K**-0.5, l2norm=False):
    """One token of one request in the engines' layout, state [HV, V, K], in float64."""
    o, new = np.zeros((HV, V)), np.zeros((HV, V, K))
    for h in range(HV):
        query, key = (np.float64(x[h // (HV // H)]) for x in (q, k))
        if l2norm:
            query, key = (x / np.sqrt((x * x).sum() + 1e-6) for x in (query, key))
        s = np.exp(g[h]) * np.float64(state[h])
        new[h] = s + beta[h] * np.outer(v[h] - s @ key, key)
        o[h] = new[h] @ (query * scale)
    return o, new


def check(x, g, beta, o, after, before, slots, padding, **options):
    """o [N, HV, V] and the pool, for requests on `slots`, with one slot's value for padding."""
    touched = []
    for n, slot in enumerate(slots):
        if slot == padding:
            assert not o[n].any()
            continue
        expected, new = step(
            x["q"][n], x["k"][n], x["v"][n], g[n], beta[n], before[slot], **options
        )
        np.testing.assert_allclose(o[n], expected, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(after[slot], new, rtol=1e-6, atol=1e-7)
        touched.append(slot)
    others = [slot for slot in range(SLOTS) if slot not in touched]
    np.testing.assert_array_equal(after[others], before[others])


FORMS = ("packed", "batched")


def in_form(x: dict[str, np.ndarray], form: str) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """Rows with the engines' leading dimensions, and their cu_seqlens."""
    if form == "packed":
        return {name: array[None] for name, array in x.items()}, CU_SEQLENS
    return {name: array[:, None] for name, array in x.items()}, None


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
        ({"num_accepted_tokens": np.ones(N, int)}, UnsupportedError, "num_accepted_tokens"),
        ({"ssm_state_indices": np.zeros((N, 2), int)}, UnsupportedError, "ssm_state_indices has"),
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
        ({"is_kda": True}, UnsupportedError, "is_kda"),
        ({"pad_slot_id": 3}, InvalidArgumentError, "pad_slot_id is 3"),
    ],
)
def test_vllm_decode_refuses(calls, change, error, message):
    with pytest.raises(error, match=message):
        vllm_call(**change)
    assert calls == {"gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 0}


# --- prefill


BOUNDS = np.array([0, 3, 3, 8], np.int32)
TOTAL, COUNT = 8, 3


def prefill_inputs() -> dict[str, np.ndarray]:
    return {
        "q": normal(1, 1, TOTAL, H, K),
        "k": normal(2, 1, TOTAL, H, K) / np.float32(K**0.5),
        "v": normal(3, 1, TOTAL, HV, V),
        "g": -np.abs(normal(4, 1, TOTAL, HV)),
        "beta": recurrence.sigmoid(normal(5, 1, TOTAL, HV)),
    }


def check_prefill(x, o, finals, initial):
    for n, (first, last) in enumerate(zip(BOUNDS, BOUNDS[1:])):
        state = np.zeros((HV, V, K)) if initial is None else np.float64(initial[n])
        for t in range(first, last):
            token = (x[name][0, t] for name in ("q", "k", "v", "g", "beta"))
            expected, state = step(*token, state)
            np.testing.assert_allclose(o[0, t], expected, rtol=1e-6, atol=1e-7)
        if finals is not None:
            np.testing.assert_allclose(finals[n], state, rtol=1e-6, atol=1e-7)


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
        ({"is_kda": True}, UnsupportedError, "is_kda"),
        ({"lower_bound": -5.0}, UnsupportedError, "lower_bound"),
        ({"intermediate_states_buffer": pool()}, UnsupportedError, "intermediate_states_buffer"),
        ({"intermediate_state_indices": CU_SEQLENS}, UnsupportedError, "intermediate_state_ind"),
        ({"cache_steps": 4}, UnsupportedError, "cache_steps"),
        ({"retrieve_parent_token": CU_SEQLENS}, UnsupportedError, "retrieve_parent_token"),
        ({"cache_ring": True}, UnsupportedError, "cache_ring"),
        ({"replayssm_g": pool()}, UnsupportedError, "replayssm_g"),
        ({"cu_seqlens": np.array([0, 4])}, UnsupportedError, "for 1 requests"),
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
