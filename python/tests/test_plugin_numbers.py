"""Whole sequences through vLLM's plugin: in pieces, between others, with drafts of which some are
wrong, on pools where other requests have left something.  Operators are played by numpy
(recurrence.py, convolution.py); what comes out is that of one pass over each sequence.
"""

from __future__ import annotations

import convolution
import fake_torch
import numpy as np
import pytest
import recurrence
from cubinery import Conv, Decode, Prefill, Verify
from cubinery.plugins import _common, _vllm_gdn
from fake_vllm import CHANNELS, DIM, K_HEADS, SLOTS, V_HEADS, WIDTH, Engine

KEYS = K_HEADS * DIM
EPS = 1e-5


def arrays_of(given):
    """Tensors as numpy's arrays, on the same memory."""
    made = {}
    for name, value in given.items():
        made[name] = value.array if isinstance(value, fake_torch.Tensor) else value
    return made


def normed(o, z, weight, kind="gated_rms"):
    scaled = o / np.sqrt((o * o).mean(-1, keepdims=True) + EPS)
    gate = recurrence.sigmoid(z)
    return scaled * weight * (z * gate if kind == "gated_rms" else gate)


def sizes(problem):
    names = ("q_heads", "k_heads", "v_heads", "key_dim", "value_dim")
    return {name: getattr(problem, name) for name in names}


def play_conv(problem, given):
    if problem.gate_mode != "none":
        given["beta_mode"] = problem.beta_mode
    convolution.gdn_conv(use_qk_l2norm=problem.use_qk_l2norm, **sizes(problem), **given)


def modes(problem):
    names = ("decay", "gate_mode", "beta_mode", "use_qk_l2norm", "state_layout")
    return {name: getattr(problem, name) for name in names}


def play_decode(problem, given):
    if problem.conv_width > 0:
        made = {"x": given.pop("x")[:, None], "state": given.pop("conv_state")}
        made |= {name: given.pop(f"conv_{name}") for name in ("weight", "bias")}
        for name in ("state_indices", "pad_slot_id"):
            made[name] = given[name]
        made = convolution.gdn_conv(**made, **sizes(problem))
        given.update(q=made.q[:, 0], k=made.k[:, 0], v=made.v[:, 0])
    play_step(recurrence.gdn_decode, problem, given)


def play_step(step, problem, given, **more):
    z, weight, _ = (given.pop(name, None) for name in ("z", "norm_weight", "norm_eps"))
    before = given["out"].copy()
    step(**given, **modes(problem), **more)
    if z is not None:
        wrote = (given["out"] != before).any((-1, -2))
        given["out"][wrote] = normed(given["out"], z, weight, problem.output_norm)[wrote]


def play_prefill(problem, given):
    has_state = given.pop("has_initial_state")
    slots = given["state_indices"]
    given["state"][slots[~has_state]] = 0
    recurrence.gdn_prefill(**given, **modes(problem))


def play_verify(problem, given):
    more = {"stored_states": problem.stored_states, "draft_tokens": problem.draft_tokens}
    play_step(recurrence.gdn_verify, problem, given, **more)


PLAYED = {Conv: play_conv, Decode: play_decode, Prefill: play_prefill, Verify: play_verify}
PLACES = {Conv: ("x", "weight", "bias")}


def played(cls, play):
    names = PLACES.get(cls, ("q", "k", "v", "g", "beta"))

    def call(operator, *places, enable_pdl=False, **named):
        play(operator.problem, arrays_of(dict(zip(names, places)) | named))

    return call


@pytest.fixture
def engine(monkeypatch, context, caplog):
    monkeypatch.delenv(_common.SWITCH, raising=False)
    monkeypatch.setitem(fake_torch._STORED, "bfloat16", np.float32)
    engine = Engine(monkeypatch, fake_torch.install(monkeypatch), context, caplog)
    for cls, play in PLAYED.items():
        monkeypatch.setattr(cls, "__call__", played(cls, play))
    return engine


class Requests:
    """Sequences of random inputs, and what a layer has made of them so far."""

    def __init__(self, engine, layer, packed):
        self.engine, self.layer, self.packed = engine, layer, packed
        self.random = np.random.default_rng(3)
        for tensor, size in (
            (layer.conv1d.weight, 0.5), (layer.A_log, 0.3), (layer.dt_bias, 1),
            (self.norm_of_layer(), 1), (layer.kv_cache[0], 1), (layer.kv_cache[1], 1),
        ):  # fmt: skip
            tensor.array[...] = size * self.random.standard_normal(tensor.shape)
        self.inputs = {name: self.data(40) for name in "ABC"}
        self.done = dict.fromkeys("ABC", 0)
        self.got = {name: [] for name in "ABC"}

    def norm_of_layer(self):
        """The weight of vLLM's norm, which is played, too."""
        self.layer._rms_norm_gated_cuda = self._norm
        return self.layer.norm.weight

    def data(self, tokens):
        """Inputs of a layer, rows for each token."""
        width = CHANNELS + V_HEADS * DIM
        rows = self.random.standard_normal((tokens, width + 2 * V_HEADS))
        return rows[:, :width].astype(np.float32), rows[:, width:].astype(np.float32)

    def _norm(self, x, output_gate, out):
        out.array[...] = normed(x.array, output_gate.array, self.layer.norm.weight.array)

    def run(self, *wanted, put=None, **fields):
        """The next tokens of some, in this order; `put`: where drafts that are wrong are besides."""
        parts, owners = [], []
        for name, count in wanted:
            first = self.done[name]
            parts.append([each[first : first + count] for each in self.inputs[name]])
            owners += [name] * count
            self.done[name] += count
        rows = [np.concatenate(each) for each in zip(*parts)]
        if put is not None:
            rows = [np.insert(each, put, new, 0) for each, new in zip(rows, self.data(1))]
            owners.insert(put, None)
        nothing = [np.full((3, *each.shape[1:]), np.nan, np.float32) for each in rows]
        bf16 = self.engine.torch.bfloat16
        given = [fake_torch.tensor(np.concatenate(each), bf16) for each in zip(rows, nothing)]
        ran = self.ask(len(owners), given, fields)
        assert not ran.out.array[len(owners) :].any()
        for owner, row in zip(owners, ran.out.array):
            if owner is not None:
                self.got[owner].append(row)

    def ask(self, count, given, fields):
        qkvz, ba = given
        return self.engine.run(self.layer, count, self.packed, qkvz=qkvz, ba=ba, **fields)

    def truth(self, name):
        qkvz, ba = (each[: self.done[name]].astype(np.float64) for each in self.inputs[name])
        layer = self.layer
        given = [
            each.array.astype(np.float64)
            for each in (layer.A_log, layer.dt_bias, layer.norm.weight)
        ]
        x = np.concatenate([np.zeros((WIDTH - 1, CHANNELS)), qkvz[:, :CHANNELS]])
        y = convolution.sums(x, layer.conv1d.weight.array[:, 0].astype(np.float64), 0.0)
        y = convolution.activated("silu", y).reshape(len(y), -1, DIM)
        q, k, v = np.split(y, [K_HEADS, 2 * K_HEADS], 1)
        b, a = ba[:, :V_HEADS], ba[:, V_HEADS:]
        operands = recurrence.sequence_operands(
            np.float64, q, k, v, a, b, A_log=given[0], dt_bias=given[1], gate_mode="computed",
            beta_mode="logit", use_qk_l2norm=True, scale=None,
        )  # fmt: skip
        out, _ = recurrence.tokens(*operands, np.zeros((V_HEADS, DIM, DIM)))
        if not self.packed:
            return out
        return normed(out, qkvz[:, CHANNELS:].reshape(out.shape), given[2])

    def check(self):
        for name, got in self.got.items():
            assert len(got) == self.done[name]
            if not got:
                continue
            np.testing.assert_allclose(got, self.truth(name), rtol=2e-3, atol=2e-3)


def flags(*values):
    return np.array(values, bool)


PROMPTS = {
    "num_prefills": 2, "num_prefill_tokens": 10, "prefill_query_start_loc": [0, 7, 10],
    "prefill_state_indices": [5, 9], "prefill_has_initial_state": flags(0, 0),
    "non_spec_state_indices_tensor": [5, 9],
}  # fmt: skip
MIXED = {
    "num_prefills": 2, "num_decodes": 1, "num_decode_tokens": 1, "num_prefill_tokens": 9,
    "prefill_query_start_loc": [0, 5, 9], "prefill_state_indices": [9, 11],
    "prefill_has_initial_state": flags(1, 0), "non_spec_state_indices_tensor": [5, 9, 11],
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "with the norm"])
def test_prompts_in_pieces_between_decodes(engine, packed):
    requests = Requests(engine, engine.layer(gqa_interleaved_layout=not packed), packed)
    requests.run(("A", 7), ("B", 3), **PROMPTS)
    requests.run(("A", 1), ("B", 1), non_spec_state_indices_tensor=[5, 9])
    requests.run(("A", 1), ("B", 5), ("C", 4), **MIXED)
    for _ in range(3):
        requests.run(("C", 1), ("A", 1), non_spec_state_indices_tensor=[11, 5])
    requests.check()


TABLE = [[5, 1, 2, 3], [11, 6, 7, 8]]


def drafts(bounds, accepted):
    return {
        "spec_sequence_masks": flags(1, 1), "num_spec_decodes": 2,
        "spec_state_indices_tensor": TABLE, "spec_query_start_loc": bounds,
        "num_accepted_tokens": accepted,
    }  # fmt: skip


@pytest.mark.parametrize("dims_first", [False, True])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "with the norm"])
def test_drafts_of_which_some_are_wrong(engine, packed, dims_first):
    engine.dims_first = dims_first
    layer = engine.layer(drafts=3, gqa_interleaved_layout=not packed)
    requests = Requests(engine, layer, packed)
    requests.run(("A", 7), ("B", 3), **PROMPTS)
    requests.run(("A", 1), ("B", 1), non_spec_state_indices_tensor=[5, 9])
    requests.run(("A", 1), ("B", 5), ("C", 4), **MIXED)
    # Of A's four tokens three are right, and both of C's.
    requests.run(("A", 3), ("C", 2), put=3, **drafts([0, 4, 6], [1, 1]))
    # The next go on behind those, around the end of B's prompt.
    requests.run(
        ("A", 2), ("B", 6), ("C", 3), **drafts([0, 2, 5], [3, 2]), num_prefills=1,
        num_prefill_tokens=6, spec_token_indx=[0, 1, 8, 9, 10], non_spec_token_indx=np.arange(2, 8),
        prefill_query_start_loc=[0, 6], prefill_state_indices=[9],
        prefill_has_initial_state=flags(1), non_spec_state_indices_tensor=[9],
    )  # fmt: skip
    requests.run(("A", 4), ("C", 1), **drafts([0, 4, 5], [2, 3]))
    requests.check()
    assert max(max(row) for row in TABLE) < SLOTS


GROUP = V_HEADS // K_HEADS


def grouped(flat, widths):
    """What is in order, q's of all heads in front, as groups of what belongs to a key head."""
    parts = np.split(flat, np.cumsum([K_HEADS * width for width in widths])[:-1], -1)
    parts = [part.reshape(len(flat), K_HEADS, -1) for part in parts]
    return np.concatenate(parts, -1).reshape(len(flat), -1)


@pytest.mark.parametrize("few", [512, 0], ids=["gathered", "copied"])
def test_heads_in_groups_are_put_in_order(engine, monkeypatch, few):
    monkeypatch.setattr(_vllm_gdn, "_FEW", few)
    layer = engine.layer(mode=0, gqa_interleaved_layout=True)
    assert layer.enable_fused_gdn_spec_decode
    bf16, given = engine.torch.bfloat16, {}
    random = np.random.default_rng(5)
    qkvz = random.standard_normal((6, CHANNELS + V_HEADS * DIM)).astype(np.float32)
    ba = random.standard_normal((6, 2 * V_HEADS)).astype(np.float32)
    layer._cubinery_vllm.core = lambda *made: given.update(made=made)
    widths = (DIM, DIM, GROUP * DIM, GROUP * DIM)
    layer.in_proj_qkvz = lambda x: (fake_torch.tensor(grouped(qkvz, widths), bf16), None)
    layer.in_proj_ba = lambda x: (fake_torch.tensor(grouped(ba, (GROUP, GROUP)), bf16), None)
    layer.out_proj = lambda x: (x, None)
    hidden = engine.torch.zeros((6, 32), dtype=bf16)
    for _ in range(2):
        out = layer._forward_method(hidden)
        made_qkvz, made_ba, made_out, name = given["made"]
        np.testing.assert_array_equal(made_qkvz.array, qkvz)
        np.testing.assert_array_equal(made_ba.array, ba)
        assert made_out.shape == (6, V_HEADS, DIM) and name == "l"
        assert out.shape == (6, V_HEADS * DIM)
