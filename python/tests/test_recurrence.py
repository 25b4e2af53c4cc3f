"""The two forms of the recurrence agree, so that one can be the other's yardstick."""

from __future__ import annotations

import numpy as np
import pytest
import recurrence


def operands(tokens: int, heads: int = 2, key_dim: int = 16, value_dim: int = 8):
    random = np.random.default_rng(tokens)
    q, k = (
        recurrence.normalised(random.standard_normal((tokens, heads, key_dim))) for _ in range(2)
    )
    v = random.standard_normal((tokens, heads, value_dim))
    g = -random.uniform(0, 1, (tokens, heads))
    beta = random.uniform(0, 1, (tokens, heads))
    return q, k, v, g, beta, random.standard_normal((heads, key_dim, value_dim))


@pytest.mark.parametrize("tokens", [1, 31, 32, 33, 100])
def test_chunks_are_tokens(tokens):
    x = operands(tokens)
    o, states = recurrence.tokens(*x)
    chunked, final = recurrence.chunks(*(array.astype(np.float32) for array in x), dtype="f32")
    np.testing.assert_allclose(chunked, o, atol=2e-5)
    np.testing.assert_allclose(final, states[-1], atol=2e-5)


def test_rounded_chunks_lose_what_their_dtype_loses():
    x = operands(100)
    o, _ = recurrence.tokens(*x)
    singles = [array.astype(np.float32) for array in x]
    errors = {
        dtype: np.abs(recurrence.chunks(*singles, dtype=dtype)[0] - o).max()
        for dtype in ("f32", "f16", "bf16")
    }
    assert errors["f32"] < errors["f16"] / 20 < errors["bf16"] / 60


def test_rounding_is_to_nearest_even():
    bf16 = recurrence.rounding("bf16")
    step = 2.0**-7
    at = np.array(
        [1 + step / 2, 1 + 3 * step / 2, 1 + 0.51 * step, -1 - step / 2, np.inf], np.float32
    )
    expected = [1, 1 + 2 * step, 1 + step, -1, np.inf]
    np.testing.assert_array_equal(bf16(at), expected)
    assert np.isnan(bf16(np.array([np.nan], np.float32)))[0]


def test_channels_that_share_a_decay_have_that_of_a_head():
    q, k, v, g, beta, state = operands(31)
    rows = np.repeat(g[:, :, None], q.shape[-1], axis=2)
    expected = recurrence.tokens(q, k, v, g, beta, state)
    for found, of_head in zip(recurrence.tokens(q, k, v, rows, beta, state), expected):
        np.testing.assert_array_equal(found, of_head)
