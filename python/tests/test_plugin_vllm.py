"""vLLM's plugin in a vLLM that is not there, on a GPU that only writes down launches.  Which
launches there are, on which views, and that all of their kernels were made before.
"""

from __future__ import annotations

import dataclasses
import importlib
import types

import fake_torch
import numpy as np
import pytest
from cubinery import Context, UnsupportedError
from cubinery.plugins import _common, _vllm_layer
from fake_vllm import CHANNELS, DIM, SLOTS, V_HEADS, WIDTH, at, engine, same

__all__ = ["engine"]  # a fixture


# ---- Batches


def test_a_decode_is_one_launch_with_convolution_and_norm(engine):
    layer = engine.layer()
    assert layer.enable_fused_gdn_spec_decode
    ran = engine.run(layer, 4, packed=True, non_spec_state_indices_tensor=[5, 9, 0, 0, 0])
    (launch,) = engine.launches
    assert launch.form == "decode"
    assert same(at(launch, "x"), ran.x[:4, :CHANNELS])
    assert same(at(launch, "z"), ran.x[:4, CHANNELS:].unflatten(-1, (-1, DIM)))
    assert same(at(launch, "out"), ran.out[:4])
    assert same(at(launch, "beta"), ran.ba[:4, :V_HEADS])
    assert same(at(launch, "g"), ran.ba[:4, V_HEADS:])
    assert at(launch, "state_indices").array.tolist() == [5, 9, 0, 0]
    assert at(launch, "pad_slot_id") == 0
    assert same(at(launch, "state"), layer.kv_cache[1])
    assert same(at(launch, "conv_state"), layer.kv_cache[0].transpose(1, 2))
    assert at(launch, "norm_eps") == 1e-5
    assert layer.ran == []


def test_without_a_gate_the_norm_stays_with_the_engine(engine):
    layer = engine.layer(gqa_interleaved_layout=True)
    assert not layer.enable_fused_gdn_spec_decode
    engine.run(layer, 2, non_spec_state_indices_tensor=[5, 9])
    assert engine.forms == ["decode"]
    assert "z" not in engine.launches[0].arrays


MIXED = {
    "num_prefills": 2, "num_decodes": 2, "num_decode_tokens": 2, "num_prefill_tokens": 9,
    "non_spec_state_indices_tensor": [5, 9, 3, 4], "prefill_state_indices": [3, 4, 0],
    "prefill_query_start_loc": [0, 5, 9, 9],
    "prefill_has_initial_state": np.array([1, 0, 0], bool),
}  # fmt: skip


def test_a_norm_that_no_kernel_has_is_the_engines_behind_the_core(engine, monkeypatch):
    def no_norm(context, problems):
        return {n for n in problems if getattr(problems[n], "output_norm", "none") != "none"}

    monkeypatch.setattr(_common, "without_path", no_norm)
    layer = engine.layer()
    assert layer.enable_fused_gdn_spec_decode  # in every release: graphs of it are kept
    engine.run(layer, 4, packed=True, non_spec_state_indices_tensor=[5, 9, 0, 0])
    assert engine.forms == ["decode"] and "z" not in engine.launches[0].arrays
    assert layer.ran == [("norm", 4)]


def test_a_mixed_batch_decodes_in_front_and_prefills_behind(engine):
    layer = engine.layer()
    blocks = {8: {"nums": fake_torch.tensor([1, 1, 1, 1])}}
    ran = engine.run(layer, 11, packed=True, nums_dict=blocks, **MIXED)
    assert engine.forms == ["decode", "conv", "prefill"]
    decode, conv, prefill = engine.launches
    assert same(at(decode, "out"), ran.out[:2])
    assert at(decode, "state_indices").array.tolist() == [5, 9]
    assert same(at(conv, "x"), ran.x[2:11, :CHANNELS])
    assert same(at(prefill, "out"), ran.out[2:11])
    for launch in (conv, prefill):
        assert at(launch, "state_indices").array.tolist() == [3, 4]
        assert at(launch, "cu_seqlens").array.tolist() == [0, 5, 9]
        assert at(launch, "has_initial_state").array.tolist() == [1, 0]
        assert at(launch, "max_seqlen") == 8
        assert at(launch, "pad_slot_id") == 0
    for name in ("q", "k", "v", "g", "beta"):
        assert same(at(conv, name), at(prefill, name))
    assert "enable_pdl" not in conv.arrays and at(prefill, "enable_pdl")
    assert layer.ran == [("norm", 9)]  # of what was prefilled


TABLE = [[5, 20, 21, 22], [11, 23, 24, 25]]


def drafts(**more):
    return {
        "spec_sequence_masks": np.array([1, 1], bool), "num_spec_decodes": 2,
        "spec_state_indices_tensor": np.array([*TABLE, [0] * 4]) % SLOTS,
        "spec_query_start_loc": [0, 4, 6, 6], "num_accepted_tokens": [3, 1, 1], **more,
    }  # fmt: skip


def test_drafts_are_two_launches(engine):
    layer = engine.layer(drafts=3)
    ran = engine.run(layer, 6, packed=True, **drafts())
    assert engine.forms == ["conv_verify", "verify"]
    conv, verify = engine.launches
    assert same(at(conv, "state"), layer.kv_cache[0].transpose(1, 2))
    assert at(conv, "state_indices").stride() == (4,)
    for launch in (conv, verify):
        assert at(launch, "accepted").array.tolist() == [3, 1]
        assert at(launch, "cu_seqlens").array.tolist() == [0, 4, 6]
    assert at(verify, "state_indices").shape == (2, 4)
    assert same(at(verify, "out"), ran.out[:6])
    assert same(at(verify, "z"), ran.x[:6, CHANNELS:].unflatten(-1, (-1, DIM)))
    assert layer.ran == []


def test_drafts_between_others_are_gathered(engine):
    layer = engine.layer(drafts=3)
    ran = engine.run(
        layer, 11, packed=True, **drafts(spec_query_start_loc=[0, 2, 5]), num_prefills=1,
        num_prefill_tokens=6, spec_token_indx=np.array([0, 1, 8, 9, 10]),
        non_spec_token_indx=np.arange(2, 8), prefill_query_start_loc=[0, 6],
        prefill_state_indices=[9], prefill_has_initial_state=np.array([1], bool),
    )  # fmt: skip
    assert engine.forms == ["conv_verify", "verify", "conv", "prefill"]
    assert [at(launch, "x").shape[0] for launch in engine.launches[::2]] == [5, 6]
    assert layer.ran == [("norm", 6)]
    assert ran.out.shape[0] == 14


def test_a_decode_beside_drafts_takes_the_first_columns(engine):
    layer = engine.layer(drafts=3)
    engine.run(layer, 2, packed=True, non_spec_state_indices_tensor=[5, 9])
    (launch,) = engine.launches
    assert same(at(launch, "conv_state"), layer.kv_cache[0].transpose(1, 2)[:, :, : WIDTH - 1])


def test_windows_with_gaps_have_a_convolution_of_their_own(engine):
    engine.dims_first = True
    layer = engine.layer(drafts=3)
    engine.run(layer, 2, packed=True, non_spec_state_indices_tensor=[5, 9])
    assert engine.forms == ["conv_decode", "decode"]
    conv, decode = engine.launches
    assert same(at(conv, "state"), layer.kv_cache[0][:, :, : WIDTH - 1])
    assert at(decode, "enable_pdl")


def no_conv_in_decode(context, problems):
    return {name for name in problems if getattr(problems[name], "conv_width", 0) > 0}


def test_a_gpu_without_clusters_has_the_convolution_in_front(engine, monkeypatch):
    monkeypatch.setattr(_common, "without_path", no_conv_in_decode)
    layer = engine.layer()
    engine.run(layer, 2, packed=True, non_spec_state_indices_tensor=[5, 9])
    assert engine.forms == ["conv_decode", "decode"]


def test_states_for_a_prefix_cache_are_those_that_vllm_asks_for(engine):
    layer = engine.layer(checkpoints=True)
    batch = {
        "num_prefills": 3, "num_decodes": 1, "num_decode_tokens": 1, "num_prefill_tokens": 890,
        "non_spec_state_indices_tensor": [5, 3, 4, 6], "prefill_state_indices": [3, 4, 6],
        "prefill_query_start_loc": [0, 300, 390, 890],
        "prefill_has_initial_state": np.zeros(3, bool),
    }  # fmt: skip
    checkpoint = types.SimpleNamespace(  # of the decode in front, too
        checkpoint_offsets=fake_torch.tensor([0, 256, 0, 384]),
        state_indices=fake_torch.tensor([0, 7, 0, 8]),
    )
    engine.run(layer, 891, packed=True, checkpoint=checkpoint, **batch)
    assert engine.forms == ["decode", "conv_kept", "prefill_kept"]
    pools = (layer.kv_cache[0].transpose(1, 2), layer.kv_cache[1])
    for launch, pool in zip(engine.launches[1:], pools):
        assert at(launch, "checkpoint_offsets").array.tolist() == [[256], [0], [384]]
        assert at(launch, "checkpoint_slots").array.tolist() == [[7], [0], [8]]
        assert same(at(launch, "checkpoints"), pool)
        assert at(launch, "pad_slot_id") == 0
    engine.launches.clear()
    engine.run(layer, 891, packed=True, checkpoint=None, **batch)
    assert engine.forms == ["decode", "conv_kept", "prefill_kept"]
    assert all("checkpoint_slots" not in launch.arrays for launch in engine.launches)


# ---- Kernels


def test_nothing_compiles_after_the_start(engine):
    layer = engine.layer(drafts=3)
    compiles, made = engine.context.stats().compiles, dict(engine.plugin.plugin.kernels)
    other = engine.layer(drafts=3)  # the model's next layer
    for each in (layer, other):
        engine.run(each, 4, packed=True, non_spec_state_indices_tensor=[5, 9, 0, 0])
        engine.run(each, 11, packed=True, **MIXED)
        engine.run(each, 6, packed=True, **drafts())
    assert engine.context.stats().compiles == compiles
    assert engine.plugin.plugin.kernels == made


@pytest.mark.parametrize("checkpoints", [False, True])
def test_what_is_launched_is_what_is_made(engine, checkpoints):
    """Of the problems of a layer each is launched, some by a rehearsal alone."""
    layer = engine.layer(drafts=3, checkpoints=checkpoints, bound=False)
    layer.bind_kv_cache(engine.pools(WIDTH + 2))
    kernels = layer._cubinery_kernels
    assert set(engine.forms) == set(kernels.problems) == set(kernels.operators)


def test_the_start_makes_the_kernels_of_this_gpu_alone(engine, empty_kernels, tmp_path):
    folder = {**empty_kernels, "cache_dir": str(tmp_path)}
    context = Context(0, **folder)
    sizes = {"k_heads": 16, "v_heads": 32, "key_dim": 128, "value_dim": 128}  # measured ones
    layer = dataclasses.replace(engine.layer()._cubinery_layer, **sizes)
    problems = _vllm_layer.problems(layer)
    for made, source in ((context, "compiled"), (Context(0, **folder), "from the cache")):
        kernels = _common.Kernels(made, problems).ready()
        count = context.stats().compiles
        assert f"{count} kernels for {len(problems)} operators" in kernels.summary()
        assert f"{count} {source}" in kernels.summary()
    some_gpu = {
        report["canonical"] for problem in problems.values() for report in context.explain(problem)
    }
    assert 0 < count < len(some_gpu)


def test_the_start_is_told_in_two_lines(engine):
    engine.layer()
    engine.layer()
    assert engine.text.count("compiled") == 1
    assert engine.text.count("cubinery runs decode") == 1


def test_a_rehearsal_touches_no_state(engine):
    layer = engine.layer(bound=False)
    layer.bind_kv_cache(engine.pools(WIDTH - 1))
    for launch in engine.launches:
        assert at(launch, "pad_slot_id") == 0
        assert not at(launch, "state_indices").array.any()


def test_while_memory_is_measured_vllm_does_not_warm_its_kernels(engine):
    layer = engine.layer(bound=False)
    engine.metadata = None
    x = engine.torch.zeros((64, CHANNELS), dtype=engine.torch.bfloat16)
    layer._forward_core(x, None, None, None)
    assert layer.ran == []


def test_pools_are_let_go_with_the_cache(engine):
    layer = engine.layer()
    engine.run(layer, 2, packed=True, non_spec_state_indices_tensor=[5, 9])
    pools = layer.kv_cache
    layer.kv_cache = []
    assert pools not in vars(layer).values()
    assert not any(each is pools.state for each in vars(layer).values())


def test_offline_it_takes_the_forms_that_are_there(
    engine, gpu, empty_kernels, tmp_path, monkeypatch
):
    layer = engine.layer(bound=False)
    (described,) = {key[1] for key in engine.plugin.plugin.kernels}
    without = dataclasses.replace(described, output_norm="none", joins_conv=False)
    folder = {**empty_kernels, "cache_dir": str(tmp_path)}
    filled = Context(0, **folder)
    for problem in _vllm_layer.problems(without).values():
        filled.compile(problem)
    engine.context = Context(0, offline=True, **folder)
    monkeypatch.setattr(_common, "logged_context", lambda device, log: engine.context)
    importlib.reload(engine.plugin)
    engine.taken.clear()
    layer = engine.layer()
    engine.run(layer, 2, packed=True, non_spec_state_indices_tensor=[5, 9])
    assert engine.forms == ["conv_decode", "decode"] and layer.ran == [("norm", 2)]


# ---- The switch


def test_off_changes_nothing(engine, monkeypatch):
    monkeypatch.setenv(_common.SWITCH, "off")
    engine.plugin.register()
    assert engine.taken == {}


def test_a_switch_of_another_value_is_told_once(engine, monkeypatch):
    monkeypatch.setenv(_common.SWITCH, "always")
    engine.plugin.register()
    engine.plugin.register()
    assert engine.taken == {}
    assert engine.text.count("'always'; accepted: auto, force, off") == 1


def test_a_release_without_a_seam_stays_as_it_is(engine, monkeypatch):
    module = importlib.import_module("vllm.v1.attention.backends.gdn_attn")
    monkeypatch.delattr(module, "GDNAttentionMetadata")
    engine.plugin.register()
    engine.plugin.register()
    assert engine.taken == {}
    assert engine.text.count("GDNAttentionMetadata") == 1
    assert "vLLM 0.33" in engine.text


def test_a_release_with_another_signature_stays_as_it_is(engine, monkeypatch):
    layer = importlib.import_module(
        "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn"
    ).QwenGatedDeltaNetAttention
    monkeypatch.setattr(layer, "_forward_core", lambda self, qkv, beta: None)
    engine.plugin.register()
    assert "QwenGatedDeltaNetAttention" not in engine.taken
    assert "mixed_qkv, b, a, core_attn_out of" in engine.text


def test_a_layer_that_cubinery_cannot_have_stays_with_the_engine(engine):
    layers = [engine.layer(activation="gelu") for _ in range(2)]
    for layer in layers:
        engine.run(layer, 2, non_spec_state_indices_tensor=[5, 9])
        assert layer.ran == ["core"]
    assert engine.forms == []
    assert engine.text.count("hidden_act = 'gelu'") == 1


def test_work_that_cubinery_cannot_do_stays_with_the_engine(engine):
    layer = engine.layer(drafts=20)
    assert "the verification of drafts stays with vLLM's own kernels" in engine.text
    engine.run(layer, 2, packed=True, non_spec_state_indices_tensor=[5, 9])
    assert engine.forms == ["decode"]
    engine.run(layer, 6, packed=True, **drafts())
    assert engine.forms == [] and layer.ran == ["core with norm"]


def test_force_raises_instead(engine, monkeypatch):
    monkeypatch.setenv(_common.SWITCH, "force")
    with pytest.raises(UnsupportedError, match="hidden_act = 'gelu'"):
        engine.layer(activation="gelu")


def test_pools_that_cubinery_cannot_have_are_refused_at_the_start(engine):
    layer = engine.layer(bound=False)
    conv, state = engine.pools(WIDTH - 1)
    layer.bind_kv_cache((conv, state[:, :2]))
    assert "a layer stays with vLLM's own kernels" in engine.text
    engine.run(layer, 2, packed=True, non_spec_state_indices_tensor=[5, 9])
    assert layer.ran == ["core with norm"]


def test_batch_invariance_is_for_layers_that_are_all_ours(engine, monkeypatch):
    envs = importlib.import_module("vllm.envs")
    monkeypatch.setattr(envs, "VLLM_BATCH_INVARIANT", True)
    layer = engine.layer()
    assert layer.get_attn_backend().supports_batch_invariance()
    problems = layer._cubinery_kernels.problems.values()
    assert all(problem.batch_invariant for problem in problems)
    with pytest.raises(UnsupportedError, match="VLLM_BATCH_INVARIANT is set"):
        engine.layer(activation="gelu")


def test_graphs_of_another_kind_of_layer_are_not_taken(engine):
    layer = engine.layer()
    config = layer.vllm_config.additional_config
    assert config["gdn_prefill_backend"] == "triton" and "gated_rms" in config["cubinery"]


def test_calls_are_counted_on_demand(engine, monkeypatch):
    layer = engine.layer()
    engine.run(layer, 2, packed=True, non_spec_state_indices_tensor=[5, 9])
    assert not engine.plugin.calls
    monkeypatch.setattr(engine.plugin.plugin, "_counts", True)
    engine.run(layer, 2, packed=True, non_spec_state_indices_tensor=[5, 9])
    engine.run(layer, 11, packed=True, **MIXED)
    engine.layer()  # the rehearsal of the next one is no call
    assert dict(engine.plugin.calls) == {("decode", "cubinery"): 2, ("prefill", "cubinery"): 1}
