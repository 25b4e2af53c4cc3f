"""Whole sequences through SGLang's plugin, of Gated DeltaNet and of Kimi Delta Attention: in pieces,
between others, with drafts of which some are wrong, on pools where other requests have left
something.  As test_plugin_numbers.py.
"""

from __future__ import annotations

import convolution
import fake_torch
import numpy as np
import pytest
import recurrence
from cubinery import Conv, Decode, Prefill, Verify
from cubinery.plugins import _common
from fake_sglang import CHANNELS, DIM, K_HEADS, V_HEADS, WIDTH, Engine
from test_plugin_numbers import modes, play_conv, play_decode, play_verify, played

LENGTH, STEPS = 90, 4
SLOTS = {"A": 5, "B": 9, "C": 11}


def play_prefill(problem, given):
    recurrence.gdn_prefill(
        **given, **modes(problem), checkpoint_mode=problem.checkpoints,
        checkpoint_every=problem.checkpoint_every,
    )  # fmt: skip


PLAYED = {Conv: play_conv, Decode: play_decode, Prefill: play_prefill, Verify: play_verify}


class Played(Engine):
    """An SGLang whose convolution of drafts computes."""

    def _convolve(
        self, x, conv_state, weight, bias=None, activation=None, conv_state_indices=None,
        intermediate_conv_window=None, intermediate_state_indices=None,
    ):  # fmt: skip
        y = x.transpose(1, 2)
        y = y.new_empty(y.shape)
        rows = zip(conv_state_indices.array, intermediate_state_indices.array)
        for n, (slot, row) in enumerate(rows):
            inputs = np.concatenate([conv_state.array[slot], x.array[n]], 1)
            sums = convolution.sums(inputs.T, weight.array, 0.0)
            y.array[n] = convolution.activated(activation, sums)
            for t in range(x.shape[2]):
                intermediate_conv_window.array[row, t] = inputs[:, t + 1 : t + WIDTH]
        return y.transpose(1, 2)


@pytest.fixture(params=["gdn", "kda", "kda by softplus"])
def engine(request, monkeypatch, context, caplog):
    monkeypatch.delenv(_common.SWITCH, raising=False)
    monkeypatch.setitem(fake_torch._STORED, "bfloat16", np.float32)
    torch = fake_torch.install(monkeypatch)
    bound = -5.0 if request.param == "kda" else None
    engine = Played(monkeypatch, torch, context, caplog, request.param != "gdn", bound)
    for cls, play in PLAYED.items():
        monkeypatch.setattr(cls, "__call__", played(cls, play))
    return engine


class Requests:
    """Sequences of random inputs, and what a layer has made of them so far."""

    def __init__(self, engine):
        self.engine = engine
        self.backend = engine.backend(drafts=STEPS)
        self.random = np.random.default_rng(3)
        layer, cache = self.backend.layer, self.backend.cache
        for tensor, size in (
            (layer.conv_weights, 0.5), (layer.A_log, 0.3), (layer.dt_bias, 1),
            (cache.conv[0], 1), (cache.temporal, 1), (cache.intermediate_ssm, 1),
        ):  # fmt: skip
            tensor.array[...] = size * self.random.standard_normal(tensor.shape)
        engine.start(self.backend)
        self.decays = DIM if engine.is_kda else 1
        self.inputs = {name: self.data(LENGTH) for name in SLOTS}
        self.done = dict.fromkeys(SLOTS, 0)
        self.got = {name: [] for name in SLOTS}
        for slot in SLOTS.values():  # as SGLang clears those of new requests
            cache.temporal.array[slot] = 0

    def data(self, tokens):
        widths = (CHANNELS, V_HEADS * self.decays, V_HEADS)
        rows = self.random.standard_normal((tokens, sum(widths))).astype(np.float32)
        return np.split(rows, np.cumsum(widths)[:-1], 1)

    def given(self, wanted, kind):
        """x, a and b of some tokens of some, on which drafts that are wrong may follow."""
        parts = [
            [np.concatenate([each[self.done[name] :][:count], wrong]) for each, wrong in
             zip(self.inputs[name], self.data(more))]
            for name, count, more in wanted
        ]  # fmt: skip
        x, a, b = (np.concatenate(each) for each in zip(*parts))
        made = self.engine.inputs(len(x), kind)
        for tensor, rows in zip(made, (x, a, b)):
            tensor.array[...] = rows.reshape(tensor.shape)
        return made

    def take(self, wanted, out):
        first = 0
        for name, count, more in wanted:
            self.got[name] += list(out.array[0, first : first + count])
            self.done[name] += count
            first += count + more

    def extend(self, *wanted, **fields):
        wanted = [(name, count, 0) for name, count in wanted]
        bounds = np.cumsum([0, *(count for _, count, _ in wanted)]).tolist()
        slots = [SLOTS[name] for name, _, _ in wanted]
        past = [self.done[name] for name, _, _ in wanted]
        given = self.given(wanted, "prefill")
        _, out = self.engine.extend(
            self.backend, slots, bounds, given=given, past=past, logical_num_tokens=bounds[-1],
            **fields,
        )  # fmt: skip
        self.take(wanted, out)

    def decode(self, *names):
        wanted = [(name, 1, 0) for name in names]
        slots = [SLOTS[name] for name in names]
        x, a, b = self.given([*wanted, (names[0], 0, 1)], "decode")  # and a row of padding
        _, out = self.engine.decode(self.backend, [*slots, -1], given=(x, a, b))
        assert not out.array[0, -1].any()
        self.take(wanted, out)

    def verify(self, *right):
        """STEPS drafts of each, of which so many are right, and SGLang's commit of these."""
        wanted = [(name, count, STEPS - count) for name, count in right]
        slots = [SLOTS[name] for name, _ in right]
        bounds = range(0, STEPS * len(right) + 1, STEPS)
        given = self.given(wanted, "verify")
        _, out = self.engine.extend(self.backend, slots, bounds, drafts=STEPS, given=given)
        self.take(wanted, out)
        cache = self.backend.cache
        for row, (slot, (_, count)) in enumerate(zip(slots, right)):
            cache.temporal.array[slot] = cache.intermediate_ssm.array[row, count - 1]
            cache.conv[0].array[slot] = cache.intermediate_conv_window[0].array[row, count - 1]

    def truth(self, name):
        """The outputs, and the states after each token."""
        x, a, b = (each[: self.done[name]].astype(np.float64) for each in self.inputs[name])
        layer = self.backend.layer
        given = [
            each.array.astype(np.float64)
            for each in (layer.conv_weights, layer.A_log, layer.dt_bias)
        ]
        x = np.concatenate([np.zeros((WIDTH - 1, CHANNELS)), x])
        y = convolution.activated("silu", convolution.sums(x, given[0], 0.0))
        q, k, v = np.split(y.reshape(len(y), -1, DIM), [K_HEADS, 2 * K_HEADS], 1)
        bounded = self.engine.bound is not None
        g = a.reshape(len(a), V_HEADS, -1) if self.engine.is_kda else a
        operands = recurrence.sequence_operands(
            np.float64, q, k, v, g, b, A_log=given[1].reshape(-1), dt_bias=given[2],
            gate_mode="lower_bound" if bounded else "computed", lower_bound=self.engine.bound,
            decay="channel" if self.engine.is_kda else "head", beta_mode="logit",
            use_qk_l2norm=True, scale=None,
        )  # fmt: skip
        return recurrence.tokens(*operands, np.zeros((V_HEADS, DIM, DIM)))

    def check(self):
        for name, got in self.got.items():
            assert len(got) == self.done[name] > 0
            np.testing.assert_allclose(got, self.truth(name)[0], rtol=2e-3, atol=2e-3)
        assert not [each for each in self.backend.ran if each in ("decode", "extend")]


def test_prompts_in_pieces_between_decodes(engine):
    requests = Requests(engine)
    requests.extend(("A", 7), ("B", 3))
    requests.decode("B", "A")
    requests.extend(("B", 5), ("C", 4), ("A", 66))
    for _ in range(3):
        requests.decode("A", "C")
    requests.check()


def test_states_inside_a_prompt(engine):
    requests = Requests(engine)
    fields = {
        "has_mamba_track_mask": True,
        "track_conv_indices": fake_torch.tensor([[62, 63, 64]]),
        "conv_states_mask_indices": fake_torch.tensor([2]),
        "track_ssm_h_src": fake_torch.tensor([2]),
    }
    requests.extend(("B", 1), ("A", 70), ("C", 3), **fields)
    _, kept = requests.backend.ran[-1]
    _, states = requests.truth("A")
    # B has one, A's second is in front of its token 64; transposed, as in the pool.
    np.testing.assert_allclose(kept.array[0, 2], states[63].swapaxes(1, 2), rtol=2e-3, atol=2e-3)
    windows = engine.windows(requests.backend.cache.conv[0]).array
    np.testing.assert_array_equal(windows[2], requests.inputs["A"][0][61:64].T)
    requests.check()


def test_drafts_of_which_some_are_wrong(engine):
    requests = Requests(engine)
    requests.extend(("A", 7), ("C", 3))
    requests.verify(("C", 2), ("A", STEPS))
    requests.verify(("A", 1), ("C", 3))
    requests.extend(("B", 6), ("A", 2))
    requests.decode("A", "C")
    requests.verify(("B", 3))
    requests.check()
