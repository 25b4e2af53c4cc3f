"""The convolution in numpy is the one that it should be, so that it can be a yardstick."""

from __future__ import annotations

import inspect

import convolution
import numpy as np
import pytest

from cubinery import functional

C, W, T = 6, 4, 11
random = np.random.default_rng(1)
X = random.standard_normal((2, T, C)).astype(np.float32)
WEIGHT = random.standard_normal((C, W)).astype(np.float32)
BIAS = random.standard_normal(C).astype(np.float32)


def silu(x):
    return x / (1 + np.exp(-x))


def test_it_has_the_arguments_of_the_function():
    ours, theirs = (
        inspect.signature(function).parameters
        for function in (convolution.gdn_conv, functional.gdn_conv)
    )
    assert list(ours) == list(theirs)
    assert [p.default for p in ours.values()] == [p.default for p in theirs.values()]


def test_the_sums_are_numpys_convolution():
    y = convolution.gdn_conv(X, WEIGHT, BIAS)
    for n in range(2):
        for c in range(C):
            full = np.convolve(X[n, :, c].astype(np.float64), WEIGHT[c, ::-1].astype(np.float64))
            np.testing.assert_allclose(y[n, :, c], silu(full[:T] + BIAS[c]), atol=1e-6)


@pytest.mark.parametrize("columns", [W - 1, W])
def test_parts_with_a_state_are_the_whole(columns):
    whole = convolution.gdn_conv(X, WEIGHT, activation="none")
    state = np.full((2, C, columns), np.nan, np.float32)
    parts = []
    for first, last in ((0, 1), (1, 3), (3, 3), (3, T)):
        parts.append(
            convolution.gdn_conv(
                X[:, first:last], WEIGHT, activation="none", state=state,
                has_initial_state=np.array([first > 0] * 2),
            )  # fmt: skip
        )
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
    np.testing.assert_array_equal(state, X[:, T - columns :].swapaxes(1, 2))


@pytest.mark.parametrize("columns", [W - 1, W])
def test_a_window_is_the_state_behind_its_token(columns):
    start = random.standard_normal((2, C, columns)).astype(np.float32)
    windows = np.full((2, 4, C, columns), np.nan, np.float32)
    y = convolution.gdn_conv(
        X[:, :3], WEIGHT, state=start, state_out=windows, stored_states="every"
    )
    for t in range(3):
        state = start.copy()
        part = convolution.gdn_conv(X[:, : t + 1], WEIGHT, state=state)
        np.testing.assert_array_equal(part, y[:, : t + 1])
        np.testing.assert_array_equal(windows[:, t], state)
    assert np.isnan(windows[:, 3]).all()
    # And one goes on from it, in place.
    more = convolution.gdn_conv(
        X[:, 2:4], WEIGHT, state=windows, stored_states="every", accepted=np.array([2, 2])
    )
    whole = convolution.gdn_conv(X[:, :4], WEIGHT, state=start.copy())
    np.testing.assert_array_equal(more, whole[:, 2:])


@pytest.mark.parametrize("mode, behind", [("before", (0, 4, 8)), ("after", (4, 8))])
def test_a_checkpoint_is_the_state_behind_its_tokens(mode, behind):
    start = random.standard_normal((2, C, W)).astype(np.float32)
    kept = np.full((2 * len(behind), C, W), np.nan, np.float32)
    convolution.gdn_conv(
        X, WEIGHT, state=start, store_state=False, checkpoints=kept, checkpoint_mode=mode,
        checkpoint_every=4,
    )  # fmt: skip
    for i, count in enumerate(behind):
        state = start.copy()
        convolution.gdn_conv(X[:, :count], WEIGHT, state=state)
        np.testing.assert_array_equal(kept.reshape(2, len(behind), C, W)[:, i], state)


def test_a_checkpoint_at_an_offset_goes_to_its_slot():
    start = random.standard_normal((2, C, W)).astype(np.float32)
    pool = np.full((5, C, W), np.nan, np.float32)
    convolution.gdn_conv(
        X, WEIGHT, state=start, store_state=False, checkpoints=pool, checkpoint_mode="at",
        checkpoint_offsets=np.array([[2, 0], [9, 1]], np.int32), pad_slot_id=3,
        checkpoint_slots=np.array([[4, 1], [0, 3]], np.int32),
    )  # fmt: skip
    for n, count, slot in ((0, 2, 4), (1, 9, 0)):
        state = start.copy()
        convolution.gdn_conv(X[:, :count], WEIGHT, state=state)
        np.testing.assert_array_equal(pool[slot], state[n])
    assert np.isnan(pool[1:4]).all()


def test_packed_sequences_are_those_alone():
    x = X.reshape(-1, C)
    bounds = np.array([2, 9, 9, 20], np.int32)
    y = np.full_like(x, 7)
    state = np.zeros((5, C, W - 1), np.float32)
    indices = np.array([3, -1, 0], np.int32)
    convolution.gdn_conv(
        x, WEIGHT, cu_seqlens=bounds, y=y, state_out=state, state_indices=indices,
        pad_slot_id=-1, zero_padding=True,
    )  # fmt: skip
    for n in (0, 2):
        span = slice(bounds[n], bounds[n + 1])
        np.testing.assert_array_equal(y[span], convolution.gdn_conv(x[None, span], WEIGHT)[0])
        np.testing.assert_array_equal(state[indices[n]], x[span][1 - W :].T)
    assert (y[:2] == 7).all() and (y[20:] == 7).all()
    assert not state[[1, 2, 4]].any()
    assert np.isnan(convolution.gdn_conv(x, WEIGHT, cu_seqlens=bounds[::-1])).all()


def test_rounds_of_speculation_are_steps():
    drafts = 4
    state = np.zeros((2, C, W - 2 + drafts), np.float32)
    accepted = np.zeros(2, np.int32)
    at = np.zeros(2, int)
    whole = convolution.gdn_conv(X, WEIGHT)
    for counts in ((2, 4), (1, 1), (3, 2)):
        x = np.stack([X[n, at[n] : at[n] + drafts] for n in range(2)])
        y = convolution.gdn_conv(x, WEIGHT, state=state, accepted=accepted)
        for n in range(2):
            np.testing.assert_array_equal(y[n], whole[n, at[n] : at[n] + drafts])
        accepted[:] = counts
        at += counts
    before = state.copy()
    accepted[:] = (drafts + 1, -1)
    assert np.isnan(convolution.gdn_conv(X[:, :1], WEIGHT, state=state, accepted=accepted)).all()
    np.testing.assert_array_equal(state, before)


def test_a_split_has_heads_norms_and_gates():
    sizes = {"q_heads": 1, "k_heads": 1, "v_heads": 2, "key_dim": 2, "value_dim": 1}
    a, b = random.standard_normal((2, 2, T, 2)).astype(np.float32)
    A_log, dt_bias = random.standard_normal((2, 2)).astype(np.float32)
    y = convolution.gdn_conv(X, WEIGHT)
    made = convolution.gdn_conv(
        X, WEIGHT, **sizes, a=a, b=b, A_log=A_log, dt_bias=dt_bias, use_qk_l2norm=True, scale=0.5
    )
    unit = y[..., :2] / np.sqrt((y[..., :2] ** 2).sum(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(made.q[:, :, 0], unit / 2, atol=1e-6)
    np.testing.assert_array_equal(made.v, y[..., 4:, None])
    np.testing.assert_allclose(made.g, -np.exp(A_log) * np.log1p(np.exp(a + dt_bias)), rtol=1e-5)
    np.testing.assert_allclose(made.beta, 1 / (1 + np.exp(-b)), rtol=1e-6)
    assert convolution.gdn_conv(X, WEIGHT, **sizes)[3:] == (None, None)


@pytest.mark.parametrize("lower_bound", [None, -5.0])
def test_a_decay_may_be_of_each_channel_and_above_a_bound(lower_bound):
    sizes = {"q_heads": 1, "k_heads": 1, "v_heads": 2, "key_dim": 2, "value_dim": 1}
    a = random.standard_normal((2, T, 2, 2)).astype(np.float32)
    A_log, dt_bias = np.array([0.5, -1], np.float32), random.standard_normal((2, 2))
    options = {**sizes, "lower_bound": lower_bound, "A_log": A_log}

    def made(a, dt_bias, **options):
        return convolution.gdn_conv(X, WEIGHT, a=a, dt_bias=dt_bias, **options).g

    g = made(a, dt_bias, **options)
    for h in range(2):
        for d in range(2):
            x = np.float64(a[..., h, d]) + dt_bias[h, d]
            one = np.exp(A_log[h]) * np.log1p(np.exp(x))
            if lower_bound is not None:
                one = 5 / (1 + np.exp(-np.exp(A_log[h]) * x))
            np.testing.assert_allclose(g[..., h, d], -one, rtol=1e-5)
    np.testing.assert_array_equal(made(a, dt_bias.ravel(), **options), g)
    np.testing.assert_array_equal(made(a, None, **options), made(a, 0 * dt_bias, **options))
    # A decay of all channels alike is that of the head.
    alike = np.repeat(a[..., :1], 2, axis=-1)
    of_heads = made(a[..., 0], dt_bias[:, 0], **options)
    of_rows = made(alike, np.repeat(dt_bias[:, :1], 2, axis=1), **options)
    np.testing.assert_array_equal(of_rows, np.repeat(of_heads[..., None], 2, axis=-1))
    if lower_bound is None:
        assert (made(a + 1e3, dt_bias, **options) == -128).all()
    else:
        bare = made(a, None, **{**options, "A_log": None})
        np.testing.assert_allclose(bare, -5 / (1 + np.exp(-np.float64(a))), rtol=1e-5)
