"""Engines' prefills of Kimi Delta Attention and FlashKDA's without a GPU: what their adapters hand on,
run by the recurrence, is what the functions compute.  Each convention in which these differ is here
once as it is and once as another has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import recurrence
from engine_rows import A_LOG, HV, H, K, V, close, normal, pairs
from test_compat_kda import DT_BIAS, LOWER, NONE, beta_of, log_decays, steps

from cubinery import InvalidArgumentError, UnsupportedError
from cubinery.compat import flash_kda, sglang, vllm

LENGTHS = (70, 0, 1, 64)
SPANS = np.cumsum((0, *LENGTHS)).astype(np.int32)
TOTAL, N = int(SPANS[-1]), len(LENGTHS)


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    return recurrence.install(monkeypatch)


def inputs(heads: int = H, value_dim: int = V, total: int = TOTAL) -> dict[str, np.ndarray]:
    """Raw gates, of packed sequences."""
    return {
        "q": normal(1, 1, total, heads, K),
        "k": normal(2, 1, total, heads, K),
        "v": normal(3, 1, total, HV, value_dim),
        "a": 2 * normal(4, 1, total, HV, K),
        "b": normal(5, 1, total, HV),
    }


def states(count: int = N, value_dim: int = V) -> np.ndarray:
    return normal(6, count, HV, value_dim, K)


def tokens_of(x: dict[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
    return {name: array[0, SPANS[n] : SPANS[n + 1]] for name, array in x.items()}


def given(x: dict[str, np.ndarray], lower_bound: float | None) -> dict[str, Any]:
    """With the decays' logarithms and beta."""
    g, beta = np.float32(log_decays(x["a"], lower_bound)), np.float32(beta_of(x["b"]))
    return {"q": x["q"], "k": x["k"], "v": x["v"], "g": g, "beta": beta}


def check_states(x, o, final, start, lower_bound, **options):
    """o of all tokens and the last states [N, HV, V, K], of sequences from `start`."""
    for n, (first, last) in enumerate(pairs(SPANS)):
        expected, after = steps(tokens_of(x, n), start[n], lower_bound, **options)
        close(o[0, first:last], expected)
        if final is not None:
            close(final[n], after[-1] if last > first else start[n])


# --- vLLM


@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("final", [False, True])
def test_vllm_with_given_decays(calls, initial, final):
    """As Bailing's layer, which passes what made g, too."""
    x, h0 = inputs(), states() if initial else None
    before = None if h0 is None else h0.copy()
    o, last = vllm.chunk_kda(
        **given(x, LOWER), initial_state=h0, output_final_state=final, safe_gate=True,
        use_qk_l2norm_in_kernel=True, lower_bound=LOWER, cu_seqlens=SPANS,
    )  # fmt: skip
    assert (last is not None) == final
    check_states(x, o, last, np.zeros_like(states()) if before is None else before, LOWER)
    assert h0 is None or (h0 == before).all()
    assert calls == {**NONE, "gdn_prefill": 1}


def test_vllm_batches():
    x = {name: array[:, :64].reshape(2, 32, *array.shape[2:]) for name, array in inputs().items()}
    o, last = vllm.chunk_kda(**given(x, None), scale=0.25, output_final_state=True)
    for n in range(2):
        part = {name: array[n] for name, array in x.items()}
        expected, after = steps(part, np.zeros((HV, V, K)), None, scale=0.25, l2norm=False)
        close(o[n], expected)
        close(last[n], after[-1])


@pytest.mark.parametrize("lower_bound", [None, LOWER])
@pytest.mark.parametrize("bias", ["flat", "rows", "none"])
@pytest.mark.parametrize("allocated", [False, True])
def test_vllm_with_raw_gates(lower_bound, bias, allocated):
    """raw_beta may be a column of a wider projection."""
    x, h0 = inputs(), states()
    g_bias = {"flat": DT_BIAS.reshape(-1), "rows": DT_BIAS, "none": None}[bias]
    out = None if allocated else np.full(x["v"].shape, np.nan, np.float32)
    wide = np.concatenate([x["b"], x["b"]], 2)[..., :HV]
    o, last = vllm.chunk_kda_with_fused_gate(
        q=x["q"], k=x["k"], v=x["v"], raw_g=x["a"], raw_beta=wide, g_bias=g_bias,
        A_log=A_LOG.reshape(1, 1, HV, 1), lower_bound=lower_bound, initial_state=h0,
        output_final_state=True, use_qk_l2norm_in_kernel=True, cu_seqlens=SPANS, out=out,
    )  # fmt: skip
    assert allocated or o is out
    check_states(x, o, last, h0, lower_bound, dt_bias=0 if g_bias is None else DT_BIAS)


@pytest.mark.parametrize("safe_gate", [False, True])
def test_vllm_of_glm(safe_gate):
    """beta is given; lower_bound counts with safe_gate alone."""
    x, h0 = inputs(), states()
    o, last = vllm.glm5next_chunk_kda_with_fused_gate(
        x["q"], x["k"], x["v"], x["a"], np.float32(beta_of(x["b"])), A_LOG, DT_BIAS.reshape(-1),
        initial_state=h0, output_final_state=True, use_qk_l2norm_in_kernel=True,
        cu_seqlens=SPANS, safe_gate=safe_gate, lower_bound=LOWER,
    )  # fmt: skip
    check_states(x, o, last, h0, LOWER if safe_gate else None)


X = inputs()


@pytest.mark.parametrize(
    "change, error, message",
    [
        (
            {"raw_g": X["b"]},
            InvalidArgumentError,
            r"raw_g has shape \[1, 135, 4\]; expected \[1, 135",
        ),
        ({"raw_beta": X["v"]}, InvalidArgumentError, "raw_beta has shape"),
        ({"A_log": None}, InvalidArgumentError, "A_log is required without lower_bound"),
        ({"g_bias": A_LOG}, InvalidArgumentError, r"g_bias has shape \[4\]; expected \[4, 8\] or"),
        ({"lower_bound": -5.5}, UnsupportedError, "lower_bound is -5.5; supported"),
        ({"initial_state": states(2)}, InvalidArgumentError, "initial_state has shape"),
        ({"initial_state": states().astype(float)}, UnsupportedError, "initial_state is float64"),
        ({"out": X["q"]}, InvalidArgumentError, "out has shape"),
        ({"safe_gate": True}, InvalidArgumentError, "unknown argument safe_gate"),
    ],
)
def test_vllm_refuses(calls, change, error, message):
    named = {
        **{"q": X["q"], "k": X["k"], "v": X["v"], "raw_g": X["a"], "raw_beta": X["b"]},
        **{"A_log": A_LOG, "g_bias": DT_BIAS, "cu_seqlens": SPANS},
    }
    with pytest.raises(error, match=f"^vllm.chunk_kda_with_fused_gate: {message}"):
        vllm.chunk_kda_with_fused_gate(**{**named, **change})
    assert calls == NONE


def test_vllm_of_glm_needs_a_bound():
    with pytest.raises(InvalidArgumentError, match="safe_gate needs lower_bound"):
        vllm.glm5next_chunk_kda_with_fused_gate(
            *X.values(), A_LOG, DT_BIAS, safe_gate=True, lower_bound=None
        )


# --- FlashKDA: H = HV, K = V


def flash(**changes: Any) -> dict[str, Any]:
    x = inputs(HV, K)
    return {
        **{"q": x["q"], "k": x["k"], "v": x["v"], "g": x["a"], "beta": x["b"], "scale": K**-0.5},
        **{"out": np.full(x["v"].shape, np.nan, np.float32), "A_log": A_LOG, "dt_bias": DT_BIAS},
        **{"lower_bound": LOWER, "initial_state": states(N, K), "final_state": states(N, K) + 1},
        "cu_seqlens": SPANS,
        **changes,
    }


def run_public(**named: Any) -> None:
    assert flash_kda.fwd(*named.values()) is None


def run_fork(**named: Any) -> None:
    """Its workspace is behind `out`."""
    values = list(named.values())
    assert vllm.flashkda_fwd(*values[:7], np.zeros(64, np.uint8), *values[7:]) is None


def flash_steps(x: dict[str, Any], n: int, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    part = {name: x[name][0, SPANS[n] : SPANS[n + 1]] for name in ("q", "k", "v", "g", "beta")}
    state, o, after = np.float64(start), [], []
    g, beta = log_decays(part["g"], x["lower_bound"]), beta_of(part["beta"])
    for t in range(len(part["q"])):
        new, out = np.zeros_like(state), np.zeros((HV, K))
        for h in range(HV):
            query, key = (
                np.float64(row[t, h]) / np.sqrt((np.float64(row[t, h]) ** 2).sum() + 1e-6)
                for row in (part["q"], part["k"])
            )
            s = state[h] * np.exp(g[t, h])
            new[h] = s + beta[t, h] * np.outer(part["v"][t, h] - s @ key, key)
            out[h] = new[h] @ query * x["scale"]
        state = new
        o.append(out)
        after.append(new)
    return np.array(o).reshape(-1, HV, K), np.array([start, *after])


@pytest.mark.parametrize("run", [run_public, run_fork])
@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("bounds", [np.int32, np.int64])
def test_flash_kda(calls, run, initial, final, bounds):
    x = flash(scale=0.3, lower_bound=-2.5, cu_seqlens=SPANS.astype(bounds))
    if not initial:
        x["initial_state"] = None
    if not final:
        x["final_state"] = None
    before = states(N, K) if initial else np.zeros((N, HV, K, K))
    run(**x)
    for n, (first, last) in enumerate(pairs(SPANS)):
        expected, after = flash_steps(x, n, before[n])
        close(x["out"][0, first:last], expected)
        if final:
            close(x["final_state"][n], after[-1])
    assert not initial or (x["initial_state"] == before).all()
    assert calls == {**NONE, "gdn_prefill": 1}


def test_flash_kda_in_place_and_in_batches():
    x = flash(cu_seqlens=None)
    for name in ("q", "k", "v", "g", "beta", "out"):
        x[name] = x[name][:, :64].reshape(2, 32, *x[name].shape[2:])
    x["initial_state"] = x["final_state"] = pool = states(2, K)
    before = pool.copy()
    flash_kda.fwd(**x)
    for n in range(2):
        one = {**x, **{name: x[name][n].reshape(1, 32, *x[name].shape[2:]) for name in "qkvg"}}
        one["beta"] = x["beta"][n][None]
        part, after = flash_steps(one, 0, before[n])
        close(x["out"][n], part[:32])
        close(pool[n], after[32])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("ends", [(True, True), (False, True), (True, False), (False, False)])
def test_flash_kda_checkpoints(dtype, ends):
    x = flash()
    before = states(N, K) if ends[0] else np.zeros((N, HV, K, K))
    for name, has in zip(("initial_state", "final_state"), ends):
        x[name] = x[name] if has else None
    kept = np.full((N, HV, K, K), np.nan, np.float32)
    offsets = np.array([48, -16, 17, 64], dtype)
    run_fork(**x, checkpoint_state=kept, checkpoint_offsets=offsets)
    for n, count in enumerate(offsets):
        if count <= 0 or count % 16 != 0:
            assert np.isnan(kept[n]).all()
        else:
            close(kept[n], flash_steps(x, n, before[n])[1][count])


SHORT = np.zeros((1, TOTAL, H, K), np.float32)
HALF = np.float16


@pytest.mark.parametrize(
    "change, error, message",
    [
        (
            {"k": SHORT},
            InvalidArgumentError,
            r"k has shape \[1, 135, 2, 8\]; expected \[1, 135, 4, 8",
        ),
        ({"v": X["v"]}, InvalidArgumentError, "v has shape|initial_state has shape"),
        ({"g": X["b"]}, InvalidArgumentError, "g has shape"),
        ({"beta": X["a"]}, InvalidArgumentError, "beta has shape"),
        ({"out": SHORT}, InvalidArgumentError, "out has shape"),
        (
            {"g": X["a"].astype(HALF)},
            InvalidArgumentError,
            "g is f16 and q is f32; expected one dtype: gates are raw",
        ),
        ({"A_log": None}, InvalidArgumentError, "A_log is required"),
        ({"A_log": A_LOG.reshape(1, 1, HV, 1)}, InvalidArgumentError, "A_log has shape"),
        ({"dt_bias": None}, InvalidArgumentError, "dt_bias is required"),
        (
            {"dt_bias": DT_BIAS.reshape(-1)},
            InvalidArgumentError,
            r"dt_bias has shape \[32\]; expected \[4, 8\]",
        ),
        ({"lower_bound": None}, InvalidArgumentError, "lower_bound is required"),
        (
            {"lower_bound": 0.0},
            InvalidArgumentError,
            "lower_bound is 0.0; expected a number below 0",
        ),
        (
            {"lower_bound": -6.0},
            UnsupportedError,
            "lower_bound is -6.0; supported: -5.0 to below 0",
        ),
        ({"initial_state": states(2, K)}, InvalidArgumentError, "initial_state has shape"),
        ({"final_state": states(2, K)}, InvalidArgumentError, "final_state has shape"),
        (
            {"final_state": states(N, K).astype(HALF)},
            InvalidArgumentError,
            "final_state is f16 and initial_state is f32; expected the same dtype",
        ),
        ({"final_state": states(N, K).astype(float)}, UnsupportedError, "final_state is float64"),
    ],
)
@pytest.mark.parametrize(
    "run, name", [(run_public, "flash_kda.fwd"), (run_fork, "vllm.flashkda_fwd")]
)
def test_flash_kda_refuses(calls, run, name, change, error, message):
    with pytest.raises(error, match=f"^{name}: ({message})"):
        run(**flash(**change))
    assert calls == NONE


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"checkpoint_offsets": np.zeros(N, int)},
            "checkpoint_state and checkpoint_offsets belong",
        ),
        ({"checkpoint_state": states(N, K)}, "checkpoint_state and checkpoint_offsets belong"),
        (
            {"checkpoint_state": states(2, K), "checkpoint_offsets": np.zeros(N, int)},
            "checkpoint_state has shape",
        ),
        (
            {"checkpoint_state": states(N, K), "checkpoint_offsets": np.zeros((N, 1), int)},
            "checkpoint_offsets has shape",
        ),
        (
            {"checkpoint_state": states(N, K).astype(HALF), "checkpoint_offsets": np.zeros(N, int)},
            "checkpoint_state is f16 and initial_state is f32; expected the same dtype",
        ),
    ],
)
def test_flash_kda_refuses_checkpoints(calls, change, message):
    with pytest.raises(InvalidArgumentError, match=f"^vllm.flashkda_fwd: {message}"):
        run_fork(**flash(), **change)
    with pytest.raises(InvalidArgumentError, match="^flash_kda.fwd: unknown argument checkpoint_"):
        flash_kda.fwd(**flash(), **change)
    assert calls == NONE


# --- SGLang

SLOTS = (3, -1, 0, 5)
NO_PADDING = (3, 4, 0, 5)


def sglang_call(x: dict[str, np.ndarray], pool: np.ndarray, slots: Any, **options: Any) -> Any:
    named = {"q": x["q"], "k": x["k"], "v": x["v"], "g": x["a"], "beta": x["b"]}
    return sglang.chunk_kda(
        **{**named, "A_log": A_LOG.reshape(1, 1, HV, 1), "dt_bias": DT_BIAS.reshape(-1), **options},
        initial_state=pool, initial_state_indices=np.array(slots), use_qk_l2norm_in_kernel=True,
        cu_seqlens=SPANS,
    )  # fmt: skip


def check_pool(x, o, pool, before, slots, lower_bound):
    after = before.copy()
    for n, (first, last) in enumerate(pairs(SPANS)):
        if slots[n] < 0:
            assert not o[0, first:last].any()
            continue
        expected, kept = steps(tokens_of(x, n), before[slots[n]], lower_bound)
        close(o[0, first:last], expected)
        if last > first:
            after[slots[n]] = kept[-1]
    close(pool, after)


@pytest.mark.parametrize("lower_bound", [None, LOWER])
def test_sglang_with_raw_gates(calls, lower_bound):
    x, pool = inputs(), states(6)
    before = pool.copy()
    slots = (3, 4, -1, 5)
    o = sglang_call(x, pool, slots, lower_bound=lower_bound, beta_is_raw=True)
    check_pool(x, o, pool, before, slots, lower_bound)
    assert calls == {**NONE, "gdn_prefill": 1}


@pytest.mark.parametrize("beta_is_raw", [False, True])
def test_sglang_with_given_decays(beta_is_raw):
    x, pool = inputs(), states(6)
    before, ready = pool.copy(), given(x, LOWER)
    options = {} if beta_is_raw else {"beta": ready["beta"]}
    o = sglang_call(
        x, pool, SLOTS, g=ready["g"], A_log=None, dt_bias=None, beta_is_raw=beta_is_raw, **options
    )
    check_pool(x, o, pool, before, SLOTS, LOWER)


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("chunk", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_sglang_states_of_chunks(keeps, chunk, dtype):
    x, pool = inputs(), states(6).astype(dtype)
    before = pool.copy()
    tracked = np.full((N, HV, V, K), np.nan, np.float32)
    result = sglang_call(
        x, pool, NO_PADDING, beta_is_raw=True, lower_bound=LOWER, track_state=tracked,
        track_chunk_idx=np.array([chunk, -1, 0, 0], np.int32), output_intermediate_states=keeps,
    )  # fmt: skip
    tolerance = {"rtol": 2e-6, "atol": 1e-6} if dtype is np.float32 else {"rtol": 0, "atol": 2e-3}
    expected = steps(tokens_of(x, 0), before[3], LOWER)[1][63]
    np.testing.assert_allclose(tracked[0], before[3] if chunk == 0 else expected, **tolerance)
    np.testing.assert_array_equal(tracked[2:], before[[0, 5]])
    assert isinstance(result, tuple) == keeps
    if keeps:
        _, h = result
        assert h.dtype == dtype and h.shape[0] == 1
        np.testing.assert_array_equal(h[0, [0, 2, 3]], before[[3, 0, 5]])
        np.testing.assert_allclose(h[0, 1], expected, **tolerance)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"A_log": None}, "dt_bias needs A_log"),
        ({"A_log": None, "dt_bias": None, "lower_bound": LOWER}, "lower_bound needs A_log"),
        ({"g": X["b"]}, r"g has shape \[1, 135, 4\]; expected \[1, 135, 4, 8\]"),
        ({"track_state": states()}, "track_state and track_chunk_idx belong together"),
        (
            {"track_state": states(2), "track_chunk_idx": np.zeros(N, int)},
            "track_state has shape",
        ),
        (
            {"track_state": states(), "track_chunk_idx": np.zeros(2, int)},
            "track_chunk_idx has shape",
        ),
        ({"made_up": 1}, "unknown argument made_up"),
    ],
)
def test_sglang_refuses(calls, change, message):
    pool = states(6)
    with pytest.raises(InvalidArgumentError, match=f"^sglang.chunk_kda: {message}"):
        sglang_call(X, pool, SLOTS, **change)
    assert calls == NONE and (pool == states(6)).all()


def test_sglang_pool_needs_its_indices(calls):
    named = {"q": X["q"], "k": X["k"], "v": X["v"], "g": X["a"], "beta": X["b"]}
    for half in ({"initial_state": states(6)}, {"initial_state_indices": np.array(SLOTS)}):
        with pytest.raises(InvalidArgumentError, match="belong together"):
            sglang.chunk_kda(**named, cu_seqlens=SPANS, **half)
    with pytest.raises(InvalidArgumentError, match="track_state needs cu_seqlens"):
        sglang.chunk_kda(**named, track_state=states(1), track_chunk_idx=np.zeros(1, int))
    assert calls == NONE
    o = sglang.chunk_kda(**given(X, LOWER), cu_seqlens=SPANS, use_qk_l2norm_in_kernel=True)
    check_states(X, o, None, np.zeros((N, HV, V, K)), LOWER)
