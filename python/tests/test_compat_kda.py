"""The adapters of Kimi Delta Attention without a GPU: what they hand on, run by the recurrence, is
what FLA's, vLLM's and SGLang's functions compute.  Each convention in which these differ is here
once as it is and once as another has it.
"""

from __future__ import annotations

import convolution
import numpy as np
import pytest
import recurrence
from engine_rows import (
    A_LOG, BOUNDS, CU_SEQLENS, FORMS, H, HV, K, N, SPANS, STEPS, V, check, close, in_form, normal,
    outputs_of, pairs, pool, rows, several, step, wide_pool,
)  # fmt: skip

from cubinery import InvalidArgumentError, UnsupportedError
from cubinery.compat import _vllm_kda, fla, sglang, vllm

DT_BIAS = normal(17, HV, K)
LOWER = -5.0
TWO_IDS = np.zeros((2, 2), int)
NONE = {"gdn_prefill": 0, "gdn_decode": 0, "gdn_verify": 0}


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    return recurrence.install(monkeypatch)


def kda_rows() -> dict[str, np.ndarray]:
    """rows() with a decay for each channel."""
    return {**rows(), "a": 2 * normal(14, N, HV, K)}


def kda_several(form: str) -> tuple[dict[str, np.ndarray], np.ndarray | None, list[dict]]:
    """several() with a decay for each channel."""
    x, cu_seqlens, _ = several(form)
    x["a"] = 2 * normal(15, *x["a"].shape, K)
    if form == "packed":
        parts = [{name: array[0, i:j] for name, array in x.items()} for i, j in pairs(SPANS)]
    else:
        parts = [{name: array[n] for name, array in x.items()} for n in range(N)]
    return x, cu_seqlens, parts


def log_decays(a, lower_bound, dt_bias=DT_BIAS):
    """g in float64, as FLA's naive_kda_gate and naive_kda_lowerbound_gate have it."""
    raw, rate = np.float64(a) + dt_bias, np.exp(np.float64(A_LOG))[:, None]
    if lower_bound is None:
        return -rate * np.logaddexp(0, raw)
    return lower_bound / (1 + np.exp(-rate * raw))


def beta_of(b):
    return 1 / (1 + np.exp(-np.float64(b)))


def steps(part, state, lower_bound, dt_bias=DT_BIAS, scale=K**-0.5, l2norm=True):
    """The tokens of one request in float64: o [T, HV, V] and the state [HV, V, K] after each."""
    g, beta = log_decays(part["a"], lower_bound, dt_bias), beta_of(part["b"])
    o, after = [], []
    for t in range(len(part["q"])):
        token = (part["q"][t], part["k"][t], part["v"][t], g[t], beta[t], state)
        out, state = step(*token, scale=scale, l2norm=l2norm)
        o.append(out)
        after.append(state)
    return np.array(o).reshape(-1, HV, V), np.array(after).reshape(-1, HV, V, K)


# --- vLLM


@pytest.mark.parametrize("lower_bound", [None, LOWER])
@pytest.mark.parametrize("bias", ["flat", "rows", "none"])
@pytest.mark.parametrize("rank", [1, 4])
def test_vllm_decode(calls, lower_bound, bias, rank):
    x, states, slots = kda_rows(), pool(), [3, 0, 1, 5]
    before = states.copy()
    dt_bias = {"flat": DT_BIAS.reshape(-1), "rows": DT_BIAS, "none": None}[bias]
    A_log = A_LOG if rank == 1 else A_LOG.reshape(1, 1, HV, 1)
    shaped, _ = in_form(x, "packed")
    out = np.full((1, N, HV, V), np.nan, np.float32)
    o, final = vllm.fused_recurrent_kda(
        q=shaped["q"], k=shaped["k"], v=shaped["v"], raw_g=shaped["a"], raw_beta=shaped["b"],
        A_log=A_log, dt_bias=dt_bias, lower_bound=lower_bound, initial_state=states,
        cu_seqlens=CU_SEQLENS, ssm_state_indices=np.array(slots), out=out,
    )  # fmt: skip
    assert o is out and final is states
    g = log_decays(x["a"], lower_bound, 0 if dt_bias is None else DT_BIAS)
    check(x, g, beta_of(x["b"]), o[0], states, before, slots, 0, l2norm=True)
    assert calls == {**NONE, "gdn_decode": 1}


@pytest.mark.parametrize(
    "accepted, starts", [(None, (0, 0, 0, 0)), ((2, 1, 1, 3), (1, 0, 0, 2))], ids=["first", "some"]
)
@pytest.mark.parametrize("lower_bound", [None, LOWER])
def test_vllm_draft_tokens(calls, accepted, starts, lower_bound):
    (x, cu_seqlens, parts), states = kda_several("packed"), wide_pool()
    before = states.copy()
    table = np.array([[3, 7, 2], [4, 5, 6], [0, 0, 0], [9, 0, 11]], np.int32)
    o, final = vllm.fused_recurrent_kda(
        x["q"], x["k"], x["v"], x["a"], x["b"], A_LOG, DT_BIAS.reshape(-1), lower_bound, states,
        cu_seqlens, table, None if accepted is None else np.array(accepted, np.int32),
    )  # fmt: skip
    assert final is states and o.shape == x["v"].shape
    after = before.copy()
    for n, (part, actual) in enumerate(zip(parts, outputs_of(o, "packed"), strict=True)):
        start = table[n, starts[n]]
        if start == 0:
            assert not actual.any()
            continue
        expected, kept = steps(part, before[start], lower_bound)
        close(actual, expected)
        for slot, state in zip(table[n], kept):
            if slot != 0:
                after[slot] = state
    close(states, after)
    assert calls == {**NONE, "gdn_verify": 1}


def packed_rows(x):
    """Rows of a wider projection."""
    wide = np.zeros((N, 2 * H * K + HV * V + 16), np.float32)
    mixed = wide[:, : 2 * H * K + HV * V]
    mixed[:] = np.concatenate([x[name].reshape(N, -1) for name in ("q", "k", "v")], axis=1)
    return mixed


@pytest.mark.parametrize("lower_bound", [None, LOWER])
@pytest.mark.parametrize("allocated", [False, True])
def test_vllm_packed_decode(lower_bound, allocated):
    x, states, slots = kda_rows(), pool(), [3, 0, 1, 5]
    before = states.copy()
    out = None if allocated else np.full((1, N, HV, V), np.nan, np.float32)
    o, final = vllm.fused_recurrent_kda_packed_decode(
        mixed_qkv=packed_rows(x), raw_g=x["a"][None], raw_beta=x["b"][None], A_log=A_LOG,
        dt_bias=DT_BIAS.reshape(-1), lower_bound=lower_bound, initial_state=states,
        state_indices=np.array(slots), out=out,
    )  # fmt: skip
    assert (allocated or o is out) and o.shape == (1, N, HV, V) and final is states
    g = log_decays(x["a"], lower_bound)
    check(x, g, beta_of(x["b"]), o[0], states, before, slots, 0, l2norm=True)


@pytest.mark.parametrize("slots", [[3, 0, 1, 5], [0, -2, 6, 2], [5, 4, 3, 1]])
def test_vllm_packed_decode_of_a_pool_that_kernels_cannot_read(calls, slots):
    """Its slots are copied, and come back where they were."""
    x, aligned = kda_rows(), pool()
    memory = np.zeros((len(aligned), HV * V * K + 1), np.float32)
    strides = (memory.strides[0], *aligned.strides[1:])
    states = np.lib.stride_tricks.as_strided(memory, aligned.shape, strides)
    states[:] = aligned

    def run(states):
        return vllm.fused_recurrent_kda_packed_decode(
            packed_rows(x), x["a"][None], x["b"][None], A_LOG, DT_BIAS.reshape(-1), LOWER, states,
            np.array(slots),
        )  # fmt: skip

    (o, final), (expected, _) = run(states), run(aligned)
    assert final is states and calls == {**NONE, "gdn_decode": 2}
    np.testing.assert_array_equal(o, expected)
    np.testing.assert_array_equal(states, aligned)
    assert not memory[:, -1].any()


@pytest.mark.parametrize("computed", [False, True])
def test_vllm_glm_and_bailing(calls, computed):
    """GLM's layers pass raw gates and logits; Bailing's a logarithm, beta, and arguments of its
    prefill."""
    x, states, slots = kda_rows(), pool(), [3, 0, 1, 5]
    before, shaped = states.copy(), in_form(x, "packed")[0]
    g, beta = log_decays(x["a"], LOWER), beta_of(x["b"])
    common = {
        **{"initial_state": states, "cu_seqlens": CU_SEQLENS, "ssm_state_indices": np.array(slots)},
        "use_qk_l2norm_in_kernel": True,
    }
    q, k, v = shaped["q"], shaped["k"], shaped["v"]
    if computed:
        o, final = vllm.glm5next_fused_recurrent_kda(
            q=q, k=k, v=v, g=shaped["a"], beta=shaped["b"], sigmoid_beta=True, compute_gate=True,
            a_log=A_LOG.reshape(1, 1, HV, 1), g_bias=DT_BIAS.reshape(-1), lower_bound=LOWER,
            **common,
        )  # fmt: skip
    else:
        g, beta = np.float32(g), np.float32(beta)
        o, final = vllm.glm5next_fused_recurrent_kda(
            q=q, k=k, v=v, g=g[None], beta=beta[None], safe_gate=True, lower_bound=LOWER, **common
        )
    assert final is states
    check(x, g, beta, o[0], states, before, slots, 0, l2norm=True)
    assert calls == {**NONE, "gdn_decode": 1}


@pytest.mark.parametrize("function", ["glm5next_fused_recurrent_kda", "fused_recurrent_kda_fwd"])
def test_vllm_draft_tokens_with_given_gates(calls, function):
    (x, cu_seqlens, parts), states = kda_several("packed"), wide_pool()
    before = states.copy()
    table = np.array([[3, 7, 2], [4, 5, 6], [0, 0, 0], [9, 8, 11]], np.int32)
    g = np.float32(log_decays(x["a"], LOWER))
    o, _ = getattr(vllm, function)(
        q=x["q"], k=x["k"], v=x["v"], g=g, beta=np.float32(beta_of(x["b"])), scale=0.25,
        initial_state=states, inplace_final_state=True, cu_seqlens=cu_seqlens,
        ssm_state_indices=table, num_accepted_tokens=np.array([1, 1, 1, 2]),
        use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    after = before.copy()
    for n, (part, actual) in enumerate(zip(parts, outputs_of(o, "packed"), strict=True)):
        start = table[n, 1 if n == 3 else 0]
        if start == 0:
            continue
        expected, kept = steps(part, before[start], LOWER, scale=0.25)
        close(actual, expected)
        for slot, state in zip(table[n], kept):
            after[slot] = state
    close(states, after)
    assert calls == {**NONE, "gdn_verify": 1}


@pytest.mark.parametrize("form", FORMS)
def test_vllm_sigmoid_gating_with_a_decay_for_each_channel(form):
    x, states, slots = kda_rows(), pool(), [3, 0, 1, 5]
    before = states.copy()
    shaped, cu_seqlens = in_form(x, form)
    o, _ = vllm.fused_sigmoid_gating_delta_rule_update(
        A_log=A_LOG, dt_bias=DT_BIAS, **shaped, initial_state=states, cu_seqlens=cu_seqlens,
        ssm_state_indices=np.array(slots), is_kda=True,
    )  # fmt: skip
    g = log_decays(x["a"], None)
    check(x, g, beta_of(x["b"]), o.reshape(N, HV, V), states, before, slots, 0)


# --- vLLM's decode with the convolution and the norm

WIDTH, CHANNELS = 4, 3 * HV * K
WEIGHT = normal(31, 3, WIDTH, HV * K)


@pytest.fixture
def fused(monkeypatch):
    context = convolution.DecodeContext()
    monkeypatch.setattr(_vllm_kda, "context_for", lambda given, name, array: context)
    return context


def fused_inputs(layout="channels"):
    wide = normal(30, N, CHANNELS + 8)
    slots = 6
    if layout == "channels":
        windows = normal(32, slots, WIDTH - 1, CHANNELS).swapaxes(1, 2)
    else:
        windows = normal(32, slots, CHANNELS, WIDTH - 1)
    return {
        "x": wide[:, :CHANNELS],
        "weight": WEIGHT,
        "bias": None,
        "conv_state": windows,
        "raw_g": 2 * normal(33, 1, N, HV, K),
        "raw_beta": normal(34, 1, N, HV),
        "A_log": A_LOG,
        "dt_bias": DT_BIAS.reshape(-1),
        "state_indices": np.array([3, 0, 1, 5], np.int32),
        "state": normal(35, slots, HV, K, K),
        "lower_bound": LOWER,
        "output_gate": normal(36, N, HV, K),
        "norm_weight": normal(37, K),
        "norm_eps": 0.1,
    }


def fused_step(x, n, window, state):
    """Of one request: out [H, K], its new window [channels, W - 1] and state, as vLLM's kernel."""
    taps = x["weight"].swapaxes(1, 2).reshape(CHANNELS, WIDTH)
    columns = np.concatenate([window, x["x"][n][:, None]], axis=1).astype(np.float64)
    y = (columns * taps).sum(1) + (0 if x["bias"] is None else x["bias"])
    q, k, v = (y / (1 + np.exp(-y))).reshape(3, HV, K)
    g = log_decays(x["raw_g"][0, n], x["lower_bound"])
    beta, o, new = beta_of(x["raw_beta"][0, n]), np.zeros((HV, K)), np.zeros((HV, K, K))
    for h in range(HV):
        query, key = (row[h] / np.sqrt((row[h] ** 2).sum() + 1e-6) for row in (q, k))
        s = np.float64(state[h]) * np.exp(g[h])
        new[h] = s + beta[h] * np.outer(v[h] - s @ key, key)
        o[h] = new[h] @ query * K**-0.5
    if x["output_gate"] is not None:
        o = o / np.sqrt((o * o).mean(-1, keepdims=True) + x["norm_eps"]) * x["norm_weight"]
        o = o / (1 + np.exp(-np.float64(x["output_gate"].reshape(N, HV, K)[n])))
    return o, columns[:, 1:], new


@pytest.mark.parametrize("layout", ["channels", "columns"])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("lower_bound", [None, LOWER])
@pytest.mark.parametrize("biased", [False, True])
def test_vllm_fused_decode(fused, layout, normed, lower_bound, biased):
    x = fused_inputs(layout) | {"lower_bound": lower_bound}
    if biased:
        x["bias"] = normal(38, CHANNELS)
    if normed:
        x["output_gate"] = x["output_gate"][None]  # [1, B, H, K] will do
    else:
        x |= {"output_gate": None, "norm_weight": None}
    windows, states = x["conv_state"].copy(), x["state"].copy()
    out = np.full((1, N, HV, K), np.nan, np.float32)
    assert vllm.fused_kda_decode(**x, out=out) is out
    for n, slot in enumerate(x["state_indices"]):
        if slot == 0:
            assert not out[0, n].any()
            continue
        expected, windows[slot], states[slot] = fused_step(x, n, windows[slot], states[slot])
        close(out[0, n], expected)
    close(x["conv_state"], windows)
    close(x["state"], states)
    (problem,) = fused.problems
    assert problem.conv_state_layout == layout and problem.conv_weight_dtype == "f32"
    assert problem.output_norm == ("sigmoid_gated_rms" if normed else "none")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"x": np.zeros((N, CHANNELS + 8), np.float32)}, "x has shape"),
        ({"weight": WEIGHT.swapaxes(1, 2)}, r"weight has shape \[3, 32, 4\]"),
        ({"weight": np.zeros((CHANNELS, WIDTH), np.float32)}, "weight has shape"),
        ({"bias": np.zeros(3, np.float32)}, "bias has shape"),
        ({"conv_state": np.zeros((6, WIDTH - 1, CHANNELS), np.float32)}, "conv_state has shape"),
        ({"conv_state": np.zeros((6, CHANNELS, WIDTH), np.float32)}, "conv_state has shape"),
        ({"state": normal(1, 6, HV, 2 * K, K)}, "state has shape"),
        ({"state": normal(1, 6, HV, K)}, "state has shape"),
        ({"raw_g": normal(1, 1, N, HV)}, r"raw_g has shape \[1, 4, 4\]; expected \[4, 4, 8\]"),
        ({"raw_beta": normal(1, 1, N, HV, K)}, "raw_beta has shape"),
        ({"A_log": np.zeros(HV + 2, np.float32)}, r"A_log has shape \[6\]; expected \[4\] or"),
        ({"dt_bias": np.zeros(HV, np.float32)}, r"dt_bias has shape \[4\]; expected \[4, 8\] or"),
        ({"lower_bound": 5.0}, "lower_bound is 5.0; expected a number below 0"),
        ({"state_indices": np.zeros((N, 2), int)}, "state_indices has shape"),
        ({"norm_weight": None}, "output_gate and norm_weight belong together"),
        ({"output_gate": normal(1, N, HV * K)}, "output_gate has shape"),
        ({"out": np.zeros((N, 1, HV, K), np.float32)}, "out has shape"),
        ({"pad_slot_id": 3}, "pad_slot_id is 3"),
        ({"use_pdl": True}, "unknown argument use_pdl"),
    ],
)
def test_vllm_fused_decode_refuses(fused, change, message):
    x = fused_inputs() | change
    before = x["state"].copy()
    with pytest.raises(InvalidArgumentError, match=f"vllm.fused_kda_decode: {message}"):
        vllm.fused_kda_decode(**x)
    np.testing.assert_array_equal(x["state"], before)


# --- SGLang


def sglang_call(x, states, slots, cu_seqlens, **options):
    named = {"A_log": A_LOG, "dt_bias": DT_BIAS.reshape(-1), **x, **options}
    return sglang.fused_sigmoid_gating_delta_rule_update(
        **{"use_qk_l2norm_in_kernel": True, "is_kda": True, **named}, softplus_beta=1.0,
        softplus_threshold=20.0, initial_state_source=states,
        initial_state_indices=np.array(slots), cu_seqlens=cu_seqlens,
    )  # fmt: skip


# How SGLang's layers hand a over: [T, HV K], [B, T, HV K], [B, T, HV, K].
A_FORMS = {
    "flat": lambda a: a.reshape(-1, HV * K),
    "tokens": lambda a: a.reshape(*a.shape[:2], HV * K),
    "heads": lambda a: a,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("a_form", A_FORMS)
@pytest.mark.parametrize("lower_bound", [None, LOWER])
def test_sglang_decode(calls, form, a_form, lower_bound):
    x, states, slots = kda_rows(), pool(), [3, -1, 0, 5]
    before = states.copy()
    shaped, cu_seqlens = in_form(x, form)
    shaped["a"] = A_FORMS[a_form](shaped["a"])
    if a_form == "flat":
        shaped["b"] = shaped["b"].reshape(N, HV)
    o = sglang_call(shaped, states, slots, cu_seqlens, lower_bound=lower_bound)
    g = log_decays(x["a"], lower_bound)
    o = o.reshape(N, HV, V)
    check(x, g, beta_of(x["b"]), o, states, before, slots, -1, l2norm=True)
    assert calls == {**NONE, "gdn_decode": 1}


@pytest.mark.parametrize("lower_bound", [None, LOWER])
@pytest.mark.parametrize("form", ["flat", "heads"])
def test_sglang_packed_decode(lower_bound, form):
    x, states, slots = kda_rows(), pool(), [3, -1, 0, 5]
    before = states.copy()
    out = np.full((N, 1, HV, V), np.nan, np.float32)
    a = x["a"].reshape(N, -1) if form == "flat" else x["a"]
    o, final = sglang.fused_recurrent_kda_packed_decode(
        packed_rows(x), a, x["b"], A_LOG, DT_BIAS.reshape(-1), K**-0.5, states, out,
        np.array(slots), use_qk_l2norm_in_kernel=True, lower_bound=lower_bound,
    )  # fmt: skip
    assert o is out and final is states
    g = log_decays(x["a"], lower_bound)
    check(x, g, beta_of(x["b"]), out[:, 0], states, before, slots, -1, l2norm=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lower_bound", [None, LOWER])
def test_sglang_target_verify(calls, form, lower_bound):
    (x, cu_seqlens, parts), states = kda_several(form), wide_pool()
    before, slots, kept = states.copy(), [9, 2, -1, 7], [4, 0, 3, -1]
    buffer = np.full((6, STEPS, HV, V, K), np.nan, np.float32)
    o = sglang_call(
        x, states, slots, cu_seqlens, lower_bound=lower_bound, disable_state_update=True,
        intermediate_states_buffer=buffer, intermediate_state_indices=np.array(kept),
        cache_steps=STEPS,
    )  # fmt: skip
    np.testing.assert_array_equal(states, before)
    expected_buffer = np.full_like(buffer, np.nan)
    for n, (part, actual) in enumerate(zip(parts, outputs_of(o, form), strict=True)):
        if slots[n] < 0:
            assert not actual.any()
            continue
        expected, after = steps(part, before[slots[n]], lower_bound)
        close(actual, expected)
        if kept[n] >= 0:
            expected_buffer[kept[n], : len(after)] = after
    close(buffer, expected_buffer)
    assert calls == {**NONE, "gdn_verify": 1}


def test_sglang_trees():
    (x, _, parts), states = kda_several("batched"), wide_pool()
    before, slots = states.copy(), [9, 2, 4, 7]
    buffer = np.zeros((N, STEPS, HV, V, K), np.float32)
    parents = np.array([[0, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 1]])
    o = sglang_call(
        x, states, slots, None, lower_bound=LOWER, disable_state_update=True,
        intermediate_states_buffer=buffer, intermediate_state_indices=np.arange(N),
        cache_steps=STEPS, retrieve_parent_token=parents,
    )  # fmt: skip
    for n, part in enumerate(parts):
        for t in range(STEPS):
            path, at = [], t
            while at >= 0:
                path.insert(0, at)
                at = -1 if at == 0 else int(parents[n, at])
            expected, after = steps(
                {name: array[path] for name, array in part.items()}, before[slots[n]], LOWER
            )
            close(o[n, t], expected[-1])
            close(buffer[n, t], after[-1])


# --- what vLLM's and SGLang's functions refuse


def vllm_arguments():
    shaped, _ = in_form(kda_rows(), "packed")
    return {
        **{"q": shaped["q"], "k": shaped["k"], "v": shaped["v"]},
        **{"raw_g": shaped["a"], "raw_beta": shaped["b"], "A_log": A_LOG, "dt_bias": DT_BIAS},
        **{"lower_bound": LOWER, "initial_state": pool(), "cu_seqlens": CU_SEQLENS},
        "ssm_state_indices": np.arange(N),
    }


GATES_REFUSED = [
    ({"A_log": None, "lower_bound": None}, "A_log is required without lower_bound"),
    (
        {"A_log": np.zeros(2 * HV, np.float32)},
        r"A_log has shape \[8\]; expected \[4\] or \[1, 1, 4",
    ),
    ({"A_log": np.zeros((HV, K), np.float32)}, r"A_log has shape \[4, 8\]"),
    (
        {"dt_bias": np.zeros(HV, np.float32)},
        r"dt_bias has shape \[4\]; expected \[4, 8\] or \[32\]",
    ),
    ({"dt_bias": np.zeros((K, HV), np.float32)}, r"dt_bias has shape \[8, 4\]"),
    ({"lower_bound": 0.0}, "lower_bound is 0.0; expected a number below 0"),
    ({"lower_bound": float("nan")}, "lower_bound is nan"),
    ({"lower_bound": -float("inf")}, "lower_bound is -inf"),
    ({"lower_bound": np.float32([-5])}, "lower_bound is an array"),
]


@pytest.mark.parametrize(
    "change, message",
    [
        *GATES_REFUSED,
        ({"raw_g": normal(1, 1, N, HV)}, r"raw_g has shape \[1, 4, 4\]; expected \[4, 4, 8\]"),
        ({"raw_beta": normal(1, 1, N, HV, V)}, r"raw_beta has shape \[1, 4, 4, 6\]"),
        ({"initial_state": normal(1, 6, HV, V)}, "initial_state has shape"),
        ({"num_accepted_tokens": np.ones(N, int)}, "num_accepted_tokens needs ssm_state_indices"),
        ({"out": np.zeros((N, 1, HV, V), np.float32)}, "output has shape"),
        ({"pad_slot_id": 3}, "pad_slot_id is 3"),
        ({"is_kda": True}, "unknown argument is_kda"),
    ],
)
def test_vllm_refuses(calls, change, message):
    with pytest.raises(InvalidArgumentError, match=f"vllm.fused_recurrent_kda: {message}"):
        vllm.fused_recurrent_kda(**{**vllm_arguments(), **change})
    assert calls == NONE


@pytest.mark.parametrize(
    "change, message",
    [
        ({"cu_seqlens": np.array([0, 2, 4])}, "one token per request"),
        ({"ssm_state_indices": np.zeros((N, 17), int)}, "S = 17 tokens per request"),
        ({"ssm_state_indices": None}, "inplace_final_state is True"),
        ({"initial_state": pool().astype(float)}, "initial_state is float64"),
        ({"lower_bound": -5.5}, "lower_bound is -5.5; supported: -5.0 to below 0"),
    ],
)
def test_vllm_has_no_kernels_for(calls, change, message):
    with pytest.raises(UnsupportedError, match=f"vllm.fused_recurrent_kda: .*{message}"):
        vllm.fused_recurrent_kda(**{**vllm_arguments(), **change})
    assert calls == NONE


@pytest.mark.parametrize("change", [{"a_log": None}, {"g_bias": None}, {"lower_bound": None}])
def test_vllm_glm_needs_all_of_a_gate(change):
    shaped, _ = in_form(kda_rows(), "packed")
    with pytest.raises(InvalidArgumentError, match="compute_gate needs a_log, g_bias and lower_"):
        vllm.glm5next_fused_recurrent_kda(
            shaped["q"], shaped["k"], shaped["v"], shaped["a"], shaped["b"], initial_state=pool(),
            cu_seqlens=CU_SEQLENS, ssm_state_indices=np.arange(N), compute_gate=True,
            **{"a_log": A_LOG, "g_bias": DT_BIAS, **change},
        )  # fmt: skip


def test_vllm_glm_names_its_own_parameters():
    shaped, _ = in_form(kda_rows(), "packed")
    common = {
        **{"initial_state": pool(), "cu_seqlens": CU_SEQLENS, "compute_gate": True},
        "ssm_state_indices": np.arange(N),
    }
    rows_of = (shaped[name] for name in ("q", "k", "v", "a", "b"))
    with pytest.raises(InvalidArgumentError, match=r"g_bias has shape \[4\]"):
        vllm.glm5next_fused_recurrent_kda(*rows_of, a_log=A_LOG, g_bias=A_LOG, **common)


@pytest.mark.parametrize(
    "change, message",
    [
        *GATES_REFUSED,
        ({"a": normal(1, N, HV)}, r"a has shape \[4, 4\]; expected \[4, 4, 8\]"),
        ({"is_kda": False}, "lower_bound is not supported; one decay per head"),
        ({"is_kda": False, "lower_bound": None}, r"a has shape \[1, 4, 4, 8\]; expected \[4, 4\]"),
        ({"match_cutedsl_decode": True}, "match_cutedsl_decode is not supported"),
        ({"replayssm_g": np.zeros(1)}, "replayssm_g is not supported"),
    ],
)
def test_sglang_refuses(calls, change, message):
    shaped, cu_seqlens = in_form(kda_rows(), "packed")
    arguments = {**shaped, "lower_bound": LOWER, **change}
    name = "sglang.fused_sigmoid_gating_delta_rule_update"
    with pytest.raises((InvalidArgumentError, UnsupportedError), match=f"{name}: {message}"):
        sglang_call(arguments, pool(), range(N), cu_seqlens)
    assert calls == NONE


# --- FLA


def fla_inputs(tokens=5, batch=2):
    q, k = normal(51, batch, tokens, H, K), normal(52, batch, tokens, H, K) / np.float32(K**0.5)
    return {
        **{"q": q, "k": k, "v": normal(53, batch, tokens, HV, V)},
        "g": -np.abs(normal(54, batch, tokens, HV, K)),
        "beta": recurrence.sigmoid(normal(55, batch, tokens, HV)),
    }


def fla_states(count=2, dtype=np.float32, v_first=False):
    states = normal(56, count, HV, V, K).astype(dtype)
    return states if v_first else np.ascontiguousarray(states.swapaxes(2, 3))


def fla_reference(q, k, v, g, beta, scale=K**-0.5, initial=None):
    """FLA's naive_recurrent_kda, in float64; states [N, HV, K, V]."""
    q, k, v, g, beta = (np.asarray(x, np.float64) for x in (q, k, v, g, beta))
    q, k = (np.repeat(x, HV // H, axis=2) for x in (q * scale, k))
    batch, tokens = q.shape[:2]
    S = np.zeros((batch, HV, K, V)) if initial is None else np.asarray(initial, np.float64)
    o = np.zeros(v.shape)
    for i in range(tokens):
        S = S * np.exp(g[:, i])[..., None]
        new = v[:, i] - (k[:, i][..., None] * S).sum(-2)
        S = S + np.einsum("bhk,bhv->bhkv", beta[:, i][..., None] * k[:, i], new)
        o[:, i] = np.einsum("bhk,bhkv->bhv", q[:, i], S)
    return o, S


def assert_equal(actual, expected):
    """To the rounding of the f32 that results are stored in."""
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=2.0**-22, atol=1e-12)


@pytest.mark.parametrize("tokens", [1, 5, 16, 17, 70])
@pytest.mark.parametrize("v_first", [False, True])
@pytest.mark.parametrize("initial", [None, np.float32, np.float16])
def test_fla(calls, tokens, initial, v_first):
    x = fla_inputs(tokens)
    h0 = None if initial is None else fla_states(dtype=initial, v_first=v_first)
    before = None if h0 is None else h0.copy()
    o, final = fla.fused_recurrent_kda(
        **x, initial_state=h0, output_final_state=True, state_v_first=v_first
    )
    start = h0.swapaxes(2, 3) if v_first and h0 is not None else h0
    expected, expected_final = fla_reference(**x, initial=start)
    assert_equal(o, expected)
    assert_equal(final.swapaxes(2, 3) if v_first else final, expected_final)
    if h0 is not None:
        np.testing.assert_array_equal(h0, before)  # never written
    assert calls == {**NONE, operator_of(tokens): 1}


def operator_of(tokens):
    if tokens == 1:
        return "gdn_decode"
    return "gdn_verify" if tokens <= 16 else "gdn_prefill"


def test_fla_no_final_state_unless_asked_for():
    x, h0 = fla_inputs(), fla_states()
    before = h0.copy()
    o, final = fla.fused_recurrent_kda(**x, initial_state=h0, scale=0.25)
    assert final is None
    assert_equal(o, fla_reference(**x, initial=h0, scale=0.25)[0])
    np.testing.assert_array_equal(h0, before)


def check_packed(function, lengths, final_of=lambda final: final, **options):
    """Each of some sequences alone is what the function makes of it among the others."""
    bounds = np.cumsum((0, *lengths))
    x, h0 = fla_inputs(int(bounds[-1]), 1), fla_states(len(lengths))
    o, final, *more = function(
        **x, initial_state=h0, output_final_state=True, cu_seqlens=bounds, **options
    )
    for n, (first, last) in enumerate(zip(bounds, bounds[1:])):
        part = {name: array[:, first:last] for name, array in x.items()}
        expected, expected_final = fla_reference(**part, initial=h0[n : n + 1])
        assert_equal(o[:, first:last], expected)
        assert_equal(final[n : n + 1], expected_final)
    return x, h0, bounds, more


@pytest.mark.parametrize("lengths", [(3, 0, 1, 4), (16,), (0, 1), (17,), (1,) * 20, (66, 0, 3)])
def test_fla_packed_sequences(calls, lengths):
    check_packed(fla.fused_recurrent_kda, lengths)
    assert calls == {**NONE, "gdn_verify" if sum(lengths) <= 16 else "gdn_prefill": 1}


@pytest.mark.parametrize("tokens", [1, 5, 18])
@pytest.mark.parametrize("bias", ["flat", "rows", "none"])
@pytest.mark.parametrize("lower_bound, has_rate", [(None, True), (LOWER, True), (LOWER, False)])
@pytest.mark.parametrize("doubled", [False, True])
def test_fla_gates_and_norms_in_the_kernel(tokens, bias, lower_bound, has_rate, doubled):
    x = fla_inputs(tokens)
    raw, logit = 10 * normal(57, *x["g"].shape), normal(58, *x["beta"].shape)
    dt_bias = {"flat": DT_BIAS.reshape(-1), "rows": DT_BIAS, "none": None}[bias]
    options = {
        "A_log": A_LOG if has_rate else None,
        "dt_bias": dt_bias,
        "lower_bound": lower_bound,
        "use_gate_in_kernel": True,
        "use_qk_l2norm_in_kernel": True,
        "use_beta_sigmoid_in_kernel": True,
        "allow_neg_eigval": doubled,
    }
    a, rate = np.float64(raw) + (0 if dt_bias is None else DT_BIAS), np.exp(np.float64(A_LOG))
    rate = rate[:, None] if has_rate else 1
    with np.errstate(over="ignore"):
        if lower_bound is None:
            g = -rate * np.logaddexp(0, a)
        else:
            g = lower_bound / (1 + np.exp(-rate * a))
    q, k = (
        x[name] / np.sqrt((np.float64(x[name]) ** 2).sum(-1, keepdims=True) + 1e-6)
        for name in ("q", "k")
    )
    beta = (2 if doubled else 1) * beta_of(logit)
    expected, _ = fla_reference(q, k, x["v"], np.maximum(g, -128), beta)
    fwd = fla.fused_recurrent_kda_fwd
    for function in (fla.fused_recurrent_kda, fwd, fla.chunk_kda):
        own = {"inplace_final_state": False} if function is fwd else {}
        o, _ = function(x["q"], x["k"], x["v"], raw, logit, **options, **own)
        np.testing.assert_allclose(o, expected, rtol=1e-6, atol=1e-9)


def test_fla_parameters_of_a_gate_that_is_not_computed_are_not_read():
    x = fla_inputs()
    for function in (fla.fused_recurrent_kda, fla.chunk_kda):
        o, _ = function(**x, A_log=A_LOG[:1], dt_bias=A_LOG, lower_bound=LOWER)
        assert_equal(o, fla_reference(**x)[0])


def test_fla_strided_decays_are_taken():
    """Part of a projection's output, and with the tokens innermost."""
    x = fla_inputs()
    expected = fla_reference(**x)[0]
    wide = np.zeros((2, 5, HV, K + 3), np.float32)
    wide[..., :K] = x["g"]
    turned = np.moveaxis(np.ascontiguousarray(np.moveaxis(x["g"], 1, -1)), -1, 1)
    for g in (wide[..., :K], turned):
        for function in (fla.fused_recurrent_kda, fla.chunk_kda):
            assert_equal(function(**{**x, "g": g})[0], expected)


@pytest.mark.parametrize("tokens", [1, 5, 70])
@pytest.mark.parametrize("v_first", [False, True])
@pytest.mark.parametrize("initial", [False, True])
def test_fla_chunks(calls, tokens, initial, v_first):
    x, h0 = fla_inputs(tokens), fla_states(v_first=v_first) if initial else None
    before = None if h0 is None else h0.copy()
    o, final = fla.chunk_kda(
        **x, scale=0.25, initial_state=h0, output_final_state=True, state_v_first=v_first
    )
    start = h0.swapaxes(2, 3) if v_first and initial else h0
    expected, expected_final = fla_reference(**x, scale=0.25, initial=start)
    assert_equal(o, expected)
    assert_equal(final.swapaxes(2, 3) if v_first else final, expected_final)
    if h0 is not None:
        np.testing.assert_array_equal(h0, before)  # never written
    o, none = fla.chunk_kda(**x, scale=0.25, initial_state=h0, state_v_first=v_first)
    assert none is None
    assert_equal(o, expected)
    assert calls == {**NONE, "gdn_prefill": 2}


@pytest.mark.parametrize("lengths", [(3, 0, 1, 4), (130, 64, 0, 1)])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_fla_packed_chunks(monkeypatch, lengths, dtype):
    """FLA's bounds on the host tell the longest sequence."""
    hints = recurrence.noted_option(monkeypatch, "max_seqlen")
    check_packed(fla.chunk_kda, lengths)
    check_packed(fla.chunk_kda, lengths, cu_seqlens_cpu=np.cumsum((0, *lengths)).astype(dtype))
    assert hints == [None, max(lengths)]


@pytest.mark.parametrize("chunk_size", [32, 64])
@pytest.mark.parametrize("v_first", [False, True])
@pytest.mark.parametrize("final, initial", [(True, True), (True, False), (False, False)])
def test_fla_intermediate_states(chunk_size, v_first, final, initial):
    x, h0 = fla_inputs(130), fla_states(v_first=v_first) if initial else None
    _, last, h = fla.chunk_kda(
        **x, initial_state=h0, output_final_state=final, state_v_first=v_first,
        return_intermediate_states=True, chunk_size=chunk_size,
    )  # fmt: skip
    assert (last is not None) == final
    assert h.shape[:3] == (2, -(-130 // chunk_size), HV)
    state = h0.swapaxes(2, 3) if initial and v_first else h0
    for i in range(h.shape[1]):
        part = {name: array[:, : i * chunk_size] for name, array in x.items()}
        kept = h[:, i].swapaxes(2, 3) if v_first else h[:, i]
        assert_equal(kept, fla_reference(**part, initial=state)[1])


def test_fla_intermediate_states_of_packed_sequences():
    x, h0, bounds, (h,) = check_packed(
        fla.chunk_kda, (70, 0, 1, 129), return_intermediate_states=True
    )
    row = 0
    for n, (first, last) in enumerate(zip(bounds, bounds[1:])):
        for at in range(first, last, 64):
            part = {name: array[:, first:at] for name, array in x.items()}
            assert_equal(h[:, row], fla_reference(**part, initial=h0[n : n + 1])[1])
            row += 1
    assert h.shape[1] >= row == 6


def test_fla_intermediate_states_have_the_dtype_of_q():
    x = {name: array.astype(np.float16) for name, array in fla_inputs(70).items()}
    _, last, h = fla.chunk_kda(**x, output_final_state=True, return_intermediate_states=True)
    assert (last.dtype, h.dtype) == (np.float32, np.float16)
    expected = fla_reference(**{name: array[:, :64] for name, array in x.items()})[1]
    np.testing.assert_allclose(h[:, 1], expected, rtol=2.0**-10, atol=1e-4)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"cp_context": object()}, InvalidArgumentError, "cp_context is of type object, without"),
        ({"chunk_size": 16}, InvalidArgumentError, "chunk_size is 16; supported: 32 or 64"),
        (
            {"safe_gate": True, "use_gate_in_kernel": True, "A_log": A_LOG},
            InvalidArgumentError,
            "safe_gate needs lower_bound with use_gate_in_kernel",
        ),
        (
            {"initial_state": fla_states(dtype=np.float16)},
            InvalidArgumentError,
            "initial_state is f16; expected f32",
        ),
        (
            {"state_v_first": True, "transpose_state_layout": True},
            InvalidArgumentError,
            "pass only one",
        ),
        ({"chunk_indices": TWO_IDS}, InvalidArgumentError, "unknown argument chunk_indices"),
    ],
)
def test_fla_chunks_refuse(calls, change, error, message):
    with pytest.raises(error, match=f"^fla.chunk_kda: .*{message}"):
        fla.chunk_kda(**{**fla_inputs(), **change})
    assert calls == NONE


def test_fla_chunks_take_what_lays_out_flas_work():
    x = fla_inputs()
    expected = fla_reference(**x)[0]
    assert_equal(
        fla.chunk_kda(
            **x, safe_gate=True, disable_recompute=True, use_graph=True, max_num_seqs=2,
            cu_seqlens_cpu=None, A_log=None, dt_bias=None,
        )[0],
        expected,
    )  # fmt: skip


@pytest.mark.parametrize("tokens", [1, 5, 17])
def test_fla_fwd_in_place(tokens):
    x, h0 = fla_inputs(tokens), fla_states()
    expected, final = fla_reference(**x, initial=h0)
    out = np.full(x["v"].shape, np.nan, np.float32)
    o, state = fla.fused_recurrent_kda_fwd(**x, initial_state=h0, out=out)
    assert o is out and state is h0
    assert_equal(o, expected)
    assert_equal(h0, final)


@pytest.mark.parametrize("v_first", [False, True])
def test_fla_fwd_on_a_pool(calls, v_first):
    x, states = fla_inputs(1, N), fla_states(6, v_first=v_first)
    before, slots = states.copy(), [3, 0, 5, 1]
    o, final = fla.fused_recurrent_kda_fwd(
        **x, initial_state=states, ssm_state_indices=np.array(slots), state_v_first=v_first
    )
    assert final is states
    turned = before.swapaxes(2, 3) if v_first else before
    expected, new = fla_reference(**x, initial=turned[slots])
    assert_equal(o, expected)
    assert_equal((states.swapaxes(2, 3) if v_first else states)[slots], new)
    np.testing.assert_array_equal(states[[2, 4]], before[[2, 4]])
    assert calls == {**NONE, "gdn_decode": 1}


@pytest.mark.parametrize("accepted", [None, (2, 1, 3)])
def test_fla_fwd_on_a_pool_of_steps(calls, accepted):
    tokens, lengths = 6, (3, 1, 2)
    bounds = np.cumsum((0, *lengths))
    x, states = fla_inputs(tokens, 1), fla_states(12)
    before = states.copy()
    table = np.array([[3, 7, 2], [4, 5, 6], [0, 8, 11]])
    o, final = fla.fused_recurrent_kda_fwd(
        **x, initial_state=states, cu_seqlens=bounds, ssm_state_indices=table,
        num_accepted_tokens=None if accepted is None else np.array(accepted),
    )  # fmt: skip
    assert final is states
    after = before.copy()
    for n, (first, last) in enumerate(zip(bounds, bounds[1:])):
        state = before[table[n, 0 if accepted is None else accepted[n] - 1]][None]
        for t in range(first, last):
            token = {name: array[:, t : t + 1] for name, array in x.items()}
            expected, state = fla_reference(**token, initial=state)
            np.testing.assert_allclose(o[:, t], expected[:, 0], rtol=1e-6, atol=1e-7)
            after[table[n, t - first]] = state[0]
    close(states, after)
    assert calls == {**NONE, "gdn_verify": 1}


TWO = fla_inputs()
FLA_REFUSED = [
    ({"g": None}, InvalidArgumentError, "g is required"),
    ({"beta": None}, InvalidArgumentError, "beta is required"),
    ({"g": TWO["beta"]}, InvalidArgumentError, r"g has shape \[2, 5, 4\]; expected \[2, 5, 4, 8\]"),
    ({"beta": TWO["v"]}, InvalidArgumentError, r"expected \[B, T, HV\]"),
    ({"beta": TWO["beta"][..., :1]}, InvalidArgumentError, r"beta has shape \[2, 5, 1\]"),
    ({"allow_neg_eigval": True}, InvalidArgumentError, "allow_neg_eigval needs use_beta_sigmoid"),
    ({"use_gate_in_kernel": True}, InvalidArgumentError, "A_log is required without lower_bound"),
    (
        {"use_gate_in_kernel": True, "A_log": A_LOG, "dt_bias": A_LOG},
        InvalidArgumentError,
        r"dt_bias has shape \[4\]; expected \[4, 8\] or \[32\]",
    ),
    (
        {"use_gate_in_kernel": True, "A_log": np.zeros(2 * HV, np.float32)},
        InvalidArgumentError,
        r"A_log has shape \[8\]; expected \[4\]",
    ),
    (
        {"use_gate_in_kernel": True, "lower_bound": 5.0},
        InvalidArgumentError,
        "lower_bound is 5.0; expected a number below 0",
    ),
    (
        {"initial_state": fla_states(v_first=True)},
        InvalidArgumentError,
        r"initial_state has shape \[2, 4, 6, 8\]; expected \[2, 4, 8, 6\]",
    ),
    ({"initial_state": fla_states(dtype=float)}, UnsupportedError, "initial_state is float64"),
    (
        {"use_gate_in_kernel": True, "lower_bound": -5.5},
        UnsupportedError,
        "lower_bound is -5.5; supported: -5.0 to below 0",
    ),
    ({"cu_seqlens": BOUNDS}, InvalidArgumentError, "q has a batch of 2"),
    ({"head_first": True}, InvalidArgumentError, "head_first"),
]


@pytest.mark.parametrize("change, error, message", FLA_REFUSED)
def test_fla_refuses(calls, change, error, message):
    with pytest.raises(error, match=f"^fla.fused_recurrent_kda: .*{message}"):
        fla.fused_recurrent_kda(**{**TWO, **change})
    with pytest.raises(error, match=f"^fla.fused_recurrent_kda_fwd: .*{message}"):
        fla.fused_recurrent_kda_fwd(**{**TWO, "inplace_final_state": False, **change})
    if "initial_state" not in change or change["initial_state"].dtype == np.float32:
        with pytest.raises(error, match=f"^fla.chunk_kda: .*{message}"):
            fla.chunk_kda(**{**TWO, **change})
    assert calls == NONE


def test_fla_safe_gate_is_of_chunks_alone(calls):
    with pytest.raises(InvalidArgumentError, match="unknown argument safe_gate"):
        fla.fused_recurrent_kda(**TWO, safe_gate=True)


@pytest.mark.parametrize(
    "change, message",
    [
        ({}, "inplace_final_state needs initial_state"),
        ({"initial_state": fla_states(), "out": TWO["q"]}, "out has shape"),
        (
            {"initial_state": fla_states(), "num_accepted_tokens": np.ones(2, int)},
            "num_accepted_tokens needs ssm_state_indices",
        ),
        (
            {"initial_state": fla_states(6), "ssm_state_indices": np.arange(2)},
            "q has 2 x 5 tokens for 2 requests",
        ),
        (
            {"initial_state": fla_states(6), "ssm_state_indices": np.zeros((2, 4), int)},
            "q has T = 5 tokens per request and ssm_state_indices S = 4",
        ),
    ],
)
def test_fla_fwd_refuses(calls, change, message):
    refused = (InvalidArgumentError, UnsupportedError)
    with pytest.raises(refused, match=f"^fla.fused_recurrent_kda_fwd: .*{message}"):
        fla.fused_recurrent_kda_fwd(**{**TWO, **change})
    assert calls == NONE
