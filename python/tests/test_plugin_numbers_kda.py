"""As test_plugin_numbers.py, of vLLM's layers of Kimi Delta Attention."""

from __future__ import annotations

import types

import convolution
import numpy as np
import pytest
import recurrence
from fake_vllm import DIM, KDA_CHANNELS, V_HEADS, WIDTH
from test_plugin_numbers import MIXED, PROMPTS, TABLE, Requests, drafts, engine, flags, normed

__all__ = ["engine"]  # a fixture
KIMI, K3 = "KimiGatedDeltaNetAttention", "KimiK3DeltaAttention"
BOUND = -4.0

# As Kimi-K3's metadata has them: prefills with the decodes in front.
_WHOLE = {
    "prefill_query_start_loc": "non_spec_query_start_loc",
    "prefill_has_initial_state": "has_initial_state",
}
PROMPTS_OF_K3 = {_WHOLE.get(name, name): value for name, value in PROMPTS.items()}
MIXED_OF_K3 = MIXED | {
    "non_spec_query_start_loc": [0, 1, 6, 10], "has_initial_state": flags(1, 1, 0),
}  # fmt: skip
for _of_k3 in (PROMPTS_OF_K3, MIXED_OF_K3):
    for _name in (*_WHOLE, "prefill_state_indices"):
        _of_k3.pop(_name, None)
OF_PROMPTS = {KIMI: (PROMPTS, MIXED), K3: (PROMPTS_OF_K3, MIXED_OF_K3)}


class KdaRequests(Requests):
    def __init__(self, engine, cls, drafts=0):
        self.bound = None if cls == KIMI else BOUND
        layer = engine.layer(cls=cls, lower_bound=self.bound, drafts=drafts)
        super().__init__(engine, layer, packed=True)
        self.prompts, self.mixed = OF_PROMPTS[cls]

    def norm_of_layer(self):
        weight = self.layer.o_norm.weight

        def norm(x, g):
            x.array[0] = normed(x.array[0], g.array, weight.array, "sigmoid_gated_rms")
            return x

        self.layer.o_norm = _Norm(weight, norm)
        return weight

    def data(self, tokens):
        shapes = (tokens, KDA_CHANNELS + V_HEADS), *[(tokens, V_HEADS, DIM)] * 2
        return [self.random.standard_normal(shape).astype(np.float32) for shape in shapes]

    def ask(self, count, given, fields):
        return self.engine.run_kda(self.layer, count, given=given, **fields)

    def truth(self, name):
        rows, a, z = (each[: self.done[name]].astype(np.float64) for each in self.inputs[name])
        layer = self.layer
        x = np.concatenate([np.zeros((WIDTH - 1, KDA_CHANNELS)), rows[:, :KDA_CHANNELS]])
        y = convolution.sums(x, layer.conv1d.weight.array[:, 0].astype(np.float64), 0.0)
        q, k, v = np.split(convolution.activated("silu", y).reshape(len(y), -1, DIM), 3, 1)
        operands = recurrence.sequence_operands(
            np.float64, q, k, v, a, rows[:, KDA_CHANNELS:], A_log=layer.A_log.array,
            dt_bias=layer.dt_bias.array, gate_mode="computed" if self.bound is None else "lower_bound",
            lower_bound=self.bound, beta_mode="logit", use_qk_l2norm=True, scale=None,
            decay="channel",
        )  # fmt: skip
        out, _ = recurrence.tokens(*operands, np.zeros((V_HEADS, DIM, DIM)))
        return normed(out, z, layer.o_norm.weight.array, "sigmoid_gated_rms")


class _Norm(types.SimpleNamespace):
    activation, eps = "sigmoid", 1e-5

    def __init__(self, weight, norm):
        super().__init__(weight=weight, norm=norm)

    def __call__(self, x, g):
        return self.norm(x, g)


@pytest.mark.parametrize("cls", [KIMI, K3])
def test_prompts_in_pieces_between_decodes(engine, cls):
    requests = KdaRequests(engine, cls)
    requests.run(("A", 7), ("B", 3), **requests.prompts)
    requests.run(("A", 1), ("B", 1), non_spec_state_indices_tensor=[5, 9])
    requests.run(("A", 1), ("B", 5), ("C", 4), **requests.mixed)
    for _ in range(3):
        requests.run(("C", 1), ("A", 1), non_spec_state_indices_tensor=[11, 5])
    requests.check()


@pytest.mark.parametrize("dims_first", [False, True])
@pytest.mark.parametrize("cls", [KIMI, K3])
def test_drafts_of_which_some_are_wrong(engine, cls, dims_first):
    engine.dims_first = dims_first
    requests = KdaRequests(engine, cls, drafts=3)
    requests.run(("A", 7), ("B", 3), **requests.prompts)
    requests.run(("A", 1), ("B", 5), ("C", 4), **requests.mixed)
    # Of A's four tokens three are right, and both of C's.
    requests.run(("A", 3), ("C", 2), put=3, **drafts([0, 4, 6], [1, 1]))
    # The next go on behind those, around a piece of B's prompt.
    others = {"non_spec_query_start_loc": [0, 6], "has_initial_state": flags(1)}
    if cls == KIMI:
        others = {
            "prefill_query_start_loc": [0, 6], "prefill_state_indices": [9],
            "prefill_has_initial_state": flags(1),
        }  # fmt: skip
    requests.run(
        ("A", 2), ("B", 6), ("C", 3), **drafts([0, 2, 5], [3, 2]), **others, num_prefills=1,
        num_prefill_tokens=6, spec_token_indx=[0, 1, 8, 9, 10], non_spec_token_indx=np.arange(2, 8),
        non_spec_state_indices_tensor=[9],
    )  # fmt: skip
    requests.run(("A", 4), ("C", 1), **drafts([0, 4, 5], [2, 3]))
    requests.check()


def test_drafts_beside_a_decode_that_lies_in_front(engine):
    requests = KdaRequests(engine, K3, drafts=3)
    requests.run(("A", 7), ("B", 3), **requests.prompts)
    for count, accepted in ((3, 1), (2, 3)):
        one = drafts([0, count], [accepted])
        one |= {"num_spec_decodes": 1, "spec_state_indices_tensor": TABLE[:1]}
        requests.run(
            ("B", 1), ("A", count), **one, num_spec_decode_tokens=count, num_decodes=1,
            num_decode_tokens=1, spec_token_start=1, non_spec_token_start=0,
            non_spec_state_indices_tensor=[9],
        )  # fmt: skip
    requests.check()
