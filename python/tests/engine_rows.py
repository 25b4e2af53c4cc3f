"""Requests of engines as numpy's arrays, and what one token after the other makes of them in f64."""

from __future__ import annotations

import numpy as np
import recurrence

N, H, HV, K, V = 4, 2, 4, 8, 6
SLOTS = 6
CU_SEQLENS = np.arange(N + 1, dtype=np.int32)


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


STEPS = 3
LENGTHS = (3, 0, 1, 2)
SPANS = np.cumsum((0, *LENGTHS)).astype(np.int32)


def several(form: str) -> tuple[dict[str, np.ndarray], np.ndarray | None, list[dict]]:
    """Inputs in an engine's form, their cu_seqlens, and the tokens of each request."""
    if form == "packed":
        x = {name: np.concatenate([array, array[1:3]])[None] for name, array in rows().items()}
        for seed, array in enumerate(x.values()):
            array += normal(20 + seed, *array.shape) / 4
        parts = [{name: array[0, i:j] for name, array in x.items()} for i, j in pairs(SPANS)]
        return x, SPANS, parts
    shapes = {"q": (H, K), "k": (H, K), "v": (HV, V), "a": (HV,), "b": (HV,)}
    x = {name: normal(i, N, STEPS, *shape) for i, (name, shape) in enumerate(shapes.items())}
    return x, None, [{name: array[n] for name, array in x.items()} for n in range(N)]


def pairs(bounds: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(bounds.tolist(), bounds[1:].tolist()))


def steps(x: dict[str, np.ndarray], state: np.ndarray, **options) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of one request, in float64: o [T, HV, V] and the state after each."""
    (g, beta), o, after = gates_of(x), [], []
    for t in range(len(x["q"])):
        out, state = step(x["q"][t], x["k"][t], x["v"][t], g[t], beta[t], state, **options)
        o.append(out)
        after.append(state)
    return np.array(o).reshape(-1, HV, V), np.array(after).reshape(-1, HV, V, K)


def outputs_of(o: np.ndarray, form: str) -> list[np.ndarray]:
    return [o[0, i:j] for i, j in pairs(SPANS)] if form == "packed" else list(o)


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=1e-6)


def wide_pool() -> np.ndarray:
    return normal(8, 16, HV, V, K)


def buffer_of(form: str, dtype: type = np.float32) -> np.ndarray:
    """[rows, STEPS or more, HV, V, K], full of NaN."""
    whole = np.full((6, STEPS + (form != "exact") * 2, HV, V, K), np.nan, dtype)
    return whole[:, :STEPS] if form == "apart" else whole  # rows of a wider buffer


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


def long_prefill_inputs(*lead):
    shapes = {"q": (H, K), "k": (H, K), "v": (HV, V), "g": (HV,), "beta": (HV,)}
    x = {name: normal(i, *lead, *shape) for i, (name, shape) in enumerate(shapes.items())}
    x["k"] /= np.float32(K)
    return {**x, "g": -np.abs(x["g"]), "beta": recurrence.sigmoid(x["beta"])}


def states_before(x, first, last, initial):
    """The states before tokens first, first + 64, .. of those up to `last`."""
    for t in range(first, last):
        if (t - first) % 64 == 0:
            yield initial
        token = (x[name][t] for name in ("q", "k", "v", "g", "beta"))
        _, initial = step(*token, initial)
