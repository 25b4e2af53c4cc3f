"""vLLM's plugin on layers of Kimi Delta Attention: as test_plugin_vllm.py, which has what they share
with those of Gated DeltaNet.
"""

from __future__ import annotations

import importlib
import types

import fake_torch
import numpy as np
import pytest
from cubinery import UnsupportedError
from cubinery.plugins import _common
from cubinery.plugins import _vllm_places as places
from fake_vllm import DIM, FIELDS, KDA_CHANNELS, SLOTS, V_HEADS, WIDTH, at, engine, same

__all__ = ["engine"]  # a fixture
KIMI, K3 = "KimiGatedDeltaNetAttention", "KimiK3DeltaAttention"
GLM = "Glm5NextLinearAttention"
CLASSES = (KIMI, K3, GLM)


def layer_of(engine, cls=KIMI, **more):
    given = {"lower_bound": None if cls == KIMI else -5.0, **more}
    return engine.layer(cls=cls, **given)


# ---- Batches


@pytest.mark.parametrize("bound", [None, -4.5])
def test_a_decode_is_one_launch_with_convolution_and_norm(engine, bound):
    layer = layer_of(engine, lower_bound=bound)
    ran = engine.run_kda(layer, 4, non_spec_state_indices_tensor=[5, 9, 0, 0, 0])
    (launch,) = engine.launches
    assert launch.form == "decode"
    for name, view in {"x": ran.x, "g": ran.a, "beta": ran.b, "z": ran.z, "out": ran.out}.items():
        assert same(at(launch, name), view[:4]), name
    assert at(launch, "state_indices").array.tolist() == [5, 9, 0, 0]
    assert at(launch, "pad_slot_id") == 0 and at(launch, "zero_padding")
    assert same(at(launch, "state"), layer.kv_cache[1])
    assert same(at(launch, "conv_state"), layer.kv_cache[0].transpose(1, 2))
    assert at(launch, "conv_weight").shape == (KDA_CHANNELS, WIDTH)
    assert at(launch, "norm_eps") == 1e-5
    assert launch.arrays.get("lower_bound") == bound
    problem = layer._cubinery_kernels.problems["decode"]
    assert problem.gate_mode == ("computed" if bound is None else "lower_bound")
    assert (problem.decay, problem.output_norm) == ("channel", "sigmoid_gated_rms")
    assert layer.ran == [] and engine.breaks == ["_forward"]


MIXED = {
    "num_prefills": 2, "num_decodes": 2, "num_decode_tokens": 2, "num_prefill_tokens": 9,
    "non_spec_state_indices_tensor": [5, 9, 3, 4, 0],
}  # fmt: skip
SPLIT = {
    "prefill_state_indices": [3, 4, 0], "prefill_query_start_loc": [0, 5, 9, 9],
    "prefill_has_initial_state": np.array([1, 0, 0], bool),
}  # fmt: skip
WHOLE = {
    "non_spec_query_start_loc": [0, 1, 2, 7, 11, 11],
    "has_initial_state": np.array([1, 1, 1, 0, 0], bool),
}  # fmt: skip


@pytest.mark.parametrize("cls", CLASSES)
def test_a_prefill_reads_raw_gates(engine, cls):
    layer = layer_of(engine, cls)
    # Kimi-K3's metadata has the decodes in front with the prefills.
    ran = engine.run_kda(layer, 11, **MIXED, **(WHOLE if cls == K3 else SPLIT))
    fallen = cls == GLM  # without gates of the norm
    assert engine.forms == ([] if fallen else ["decode", "conv", "prefill"])
    if fallen:
        return
    decode, conv, prefill = engine.launches
    assert at(decode, "state_indices").array.tolist() == [5, 9]
    assert same(at(conv, "x"), ran.x[2:11])
    assert not {"a", "b", "g", "beta", "A_log"} & set(conv.arrays)
    assert same(at(prefill, "g"), ran.a[2:11]) and same(at(prefill, "beta"), ran.b[2:11])
    assert at(prefill, "A_log").shape == (V_HEADS,)
    assert at(prefill, "dt_bias").shape == (V_HEADS * DIM,)
    for name in ("q", "k", "v"):
        assert same(at(conv, name), at(prefill, name))
    for launch in (conv, prefill):
        assert at(launch, "state_indices").array.tolist() == [3, 4]
        assert at(launch, "cu_seqlens").array.tolist() == [0, 5, 9]
        assert at(launch, "has_initial_state").array.tolist() == [1, 0]
    assert same(at(prefill, "out"), ran.out[2:11])
    assert layer.ran == [("norm", 9)]  # of what was prefilled


def test_a_norm_that_no_kernel_has_is_the_engines_behind_the_core(engine, monkeypatch):
    def no_norm(context, problems):
        return {n for n in problems if getattr(problems[n], "output_norm", "none") != "none"}

    monkeypatch.setattr(_common, "without_path", no_norm)
    layer = layer_of(engine)
    engine.run_kda(layer, 4, non_spec_state_indices_tensor=[5, 9, 0, 0])
    assert engine.forms == ["decode"] and "z" not in engine.launches[0].arrays
    assert layer.ran == [("norm", 4)]


DRAFTS = {
    "num_spec_decodes": 2, "num_spec_decode_tokens": 6,
    "spec_state_indices_tensor": np.array([[5, 20, 21, 22], [11, 23, 24, 25], [0] * 4]) % SLOTS,
    "spec_query_start_loc": [0, 4, 6, 6], "num_accepted_tokens": [3, 1, 1],
}  # fmt: skip


@pytest.mark.parametrize("cls", [KIMI, K3])
def test_drafts_are_two_launches(engine, cls):
    layer = layer_of(engine, cls, drafts=3)
    ran = engine.run_kda(layer, 6, **DRAFTS)
    assert engine.forms == ["conv_verify", "verify"]
    conv, verify = engine.launches
    assert same(at(conv, "state"), layer.kv_cache[0].transpose(1, 2))
    assert at(verify, "state_indices").shape == (2, 4)
    for launch in (conv, verify):
        assert at(launch, "accepted").array.tolist() == [3, 1]
    for name, view in {"g": ran.a, "beta": ran.b, "z": ran.z, "out": ran.out}.items():
        assert same(at(verify, name), view[:6]), name
    assert verify.arrays.get("lower_bound") == (None if cls == KIMI else -5.0)
    assert layer.ran == []


def test_drafts_beside_decodes_are_read_where_they_lie(engine):
    """Kimi-K3 has both in a batch, and says where they lie if each sort lies together."""
    layer = layer_of(engine, K3, drafts=3)
    ran = engine.run_kda(
        layer, 8, **DRAFTS, num_decodes=2, num_decode_tokens=2, spec_token_start=2,
        non_spec_token_start=0, non_spec_state_indices_tensor=[7, 8],
        spec_token_indx=np.arange(2, 8), non_spec_token_indx=np.arange(2),
    )  # fmt: skip
    assert engine.forms == ["conv_verify", "verify", "decode"]
    conv, verify, decode = engine.launches
    assert same(at(conv, "x"), ran.x[2:8]) and same(at(verify, "out"), ran.out[2:8])
    assert same(at(decode, "x"), ran.x[:2]) and same(at(decode, "out"), ran.out[:2])
    assert at(decode, "state_indices").array.tolist() == [7, 8]


def test_drafts_between_decodes_are_gathered(engine):
    layer = layer_of(engine, K3, drafts=3)
    engine.run_kda(
        layer, 8, **DRAFTS, num_decodes=2, num_decode_tokens=2, non_spec_state_indices_tensor=[7, 8],
        spec_token_indx=np.array([0, 1, 2, 3, 6, 7]), non_spec_token_indx=np.array([4, 5]),
    )  # fmt: skip
    assert engine.forms == ["conv_verify", "verify", "decode"]
    assert [at(launch, "out").shape[0] for launch in engine.launches[1:]] == [6, 2]


def test_records_of_drafts_stay_with_the_engine(engine):
    layer = layer_of(engine, K3, drafts=3, recover=True)
    assert "the verification of drafts stays with vLLM's own kernels: it keeps rec" in engine.text
    engine.run_kda(layer, 6, **DRAFTS)
    assert engine.forms == [] and layer.ran == ["core with norm"]
    engine.run_kda(layer, 2, non_spec_state_indices_tensor=[5, 9])
    (launch,) = engine.launches
    assert same(at(launch, "conv_state"), layer.kv_cache[0].transpose(1, 2)[:, :, : WIDTH - 1])


def test_an_engine_with_work_of_its_own_warms_up_its_prefill(engine):
    """vLLM's workspaces grow in its warm-up alone, and a batch of drafts and prefills is all its."""
    layer = layer_of(engine, K3, drafts=3, recover=True)
    norm = ("norm", 9)  # behind a prefill
    for ran, forms in ((["core with norm"], []), ([norm], ["decode", "conv", "prefill"])):
        layer.ran.clear()
        engine.run_kda(layer, 11, **MIXED, **WHOLE)
        assert layer.ran == ran and engine.forms == forms
    whole = layer_of(engine, K3, drafts=3)
    engine.run_kda(whole, 11, **MIXED, **WHOLE)
    assert whole.ran == [norm] and engine.forms == ["decode", "conv", "prefill"]


@pytest.mark.parametrize("cls", [K3, GLM])
def test_states_for_a_prefix_cache_are_at_whole_chunks(engine, cls):
    layer = layer_of(engine, cls, checkpoints=True)
    assert layer.get_kv_cache_spec(None).prefill_checkpoint_alignment == 64
    without = layer_of(engine, cls)
    assert without.get_kv_cache_spec(None).prefill_checkpoint_alignment == 16
    if cls == GLM:
        return
    checkpoint = types.SimpleNamespace(  # of the decodes in front, and of padding behind, too
        checkpoint_offsets=fake_torch.tensor([0, 0, 64, 0, 0]),
        state_indices=fake_torch.tensor([0, 0, 7, 0, 0]),
    )
    engine.run_kda(layer, 11, checkpoint=checkpoint, **MIXED, **WHOLE)
    assert engine.forms == ["decode", "conv_kept", "prefill_kept"]
    for launch in engine.launches[1:]:
        assert at(launch, "checkpoint_offsets").array.tolist() == [[64], [0]]
        assert at(launch, "checkpoint_slots").array.tolist() == [[7], [0]]


# ---- GLM-5.3-Flash, whose norm is behind the core


def test_a_forward_of_ours_has_the_norm_in_the_core(engine):
    layer = layer_of(engine, GLM)
    engine._hand_over(2, FIELDS, {"non_spec_state_indices_tensor": [5, 9]})
    hidden = engine.torch.zeros((4, 8), dtype=engine.torch.bfloat16)
    assert layer.forward(hidden, None).shape == (4, V_HEADS * DIM)
    (launch,) = engine.launches
    assert launch.form == "decode" and at(launch, "z").shape == (2, V_HEADS, DIM)
    weight = at(launch, "conv_weight")
    assert weight.array[:: V_HEADS * DIM, 0].tolist() == [0, 1, 2]  # of q, k and v
    assert weight is layer._merged_conv_weight
    assert layer.ran == [] and engine.breaks == ["_cubinery_gated"]


def test_a_core_without_its_operators_is_followed_by_the_norm(engine):
    layer = layer_of(engine, GLM, drafts=20)
    engine._hand_over(6, FIELDS, DRAFTS)
    layer.forward(engine.torch.zeros((6, 8), dtype=engine.torch.bfloat16), None)
    assert engine.forms == [] and layer.ran == ["core", ("norm", 6)]


def test_without_a_norm_the_engines_forward_goes_on(engine, monkeypatch):
    def no_norm(context, problems):
        return {n for n in problems if getattr(problems[n], "output_norm", "none") != "none"}

    monkeypatch.setattr(_common, "without_path", no_norm)
    layer = layer_of(engine, GLM)
    layer.forward(engine.torch.zeros((6, 8), dtype=engine.torch.bfloat16), None)
    assert layer.ran == ["forward"]
    ran = engine.run_kda(layer, 2, non_spec_state_indices_tensor=[5, 9])
    (launch,) = engine.launches
    assert same(at(launch, "out"), ran.out[:2]) and layer.ran == ["forward"]


# ---- Kernels and places


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("cls", CLASSES)
def test_what_is_launched_is_what_is_made(engine, cls, checkpoints):
    layer = layer_of(engine, cls, drafts=3, checkpoints=checkpoints, bound=False)
    layer.bind_kv_cache(engine.pools(WIDTH + 2, KDA_CHANNELS))
    kernels = layer._cubinery_kernels
    assert set(engine.forms) == set(kernels.problems) == set(kernels.operators)


@pytest.mark.parametrize("cls", [K3, GLM])
def test_a_class_in_a_models_module_is_replaced_with_its_first_layer(engine, cls):
    engine.plugin.register()
    assert sorted(engine.taken) == [KIMI, "QwenGatedDeltaNetAttention"]
    layers = [layer_of(engine, cls) for _ in range(2)]
    assert {type(layer) for layer in layers} == {engine.taken[cls]}
    assert isinstance(layers[0], engine.classes[cls]) and "does not serve" not in engine.text


def test_a_class_that_lacks_a_seam_stays_as_it_is(engine, monkeypatch):
    monkeypatch.setattr(engine.classes[K3], "_forward", lambda self, qkv: None, raising=False)
    layers = [layer_of(engine, K3) for _ in range(2)]
    assert {type(layer) for layer in layers} == {engine.classes[K3]}
    assert engine.text.count("does not serve KimiK3DeltaAttention of this vLLM") == 1
    assert isinstance(layer_of(engine, KIMI), engine.taken[KIMI])


@pytest.mark.parametrize("path, of", places.LEFT.items())
def test_layers_without_a_place_are_named_once(engine, monkeypatch, path, of):
    module, _, name = path.partition(":")
    cls = type(name, (engine.base,), {"__module__": module, "__init__": lambda self: None})
    engine.plugin.register()
    layers = [cls() for _ in range(2)]
    assert {type(layer) for layer in layers} == {cls}
    assert engine.text.count(f"a layer of {of} stays with vLLM's own kernels") == 1
    monkeypatch.setattr(engine.plugin.plugin, "mode", "force")
    with pytest.raises(UnsupportedError, match=of):
        cls()


def test_a_place_that_is_taken_is_left_alone(engine):
    engine.taken[KIMI] = object
    engine.plugin.register()
    assert engine.taken[KIMI] is object
    assert "<class 'object'> has taken its place" in engine.text


def test_batch_invariance_is_for_layers_that_are_all_ours(engine, monkeypatch):
    monkeypatch.setattr(importlib.import_module("vllm.envs"), "VLLM_BATCH_INVARIANT", True)
    layer = layer_of(engine)
    assert layer.get_attn_backend().supports_batch_invariance()
    own = object()
    monkeypatch.setattr(engine.base, "get_attn_backend", lambda self: own)
    assert layer.get_attn_backend() is own  # where vLLM refuses nothing
    with pytest.raises(UnsupportedError, match="VLLM_BATCH_INVARIANT is set"):
        layer_of(engine, K3, drafts=3, recover=True)
