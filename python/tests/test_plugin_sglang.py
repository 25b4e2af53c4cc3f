"""SGLang's plugin in an SGLang that is not there, layers of Gated DeltaNet and of Kimi Delta
Attention, on a GPU that only writes down launches.  As test_plugin_vllm.py.
"""

from __future__ import annotations

import importlib
import logging
import types

import fake_torch
import numpy as np
import pytest
from cubinery import UnsupportedError
from cubinery.plugins import _common
from fake_sglang import CHANNELS, DIM, K_HEADS, V_HEADS, Engine, GDNAttnBackend, KDAAttnBackend

GDN, KDA, SOFTPLUS = "gdn", "kda", "kda by softplus"
gdn = pytest.mark.parametrize("engine", [GDN], indirect=True)
kda = pytest.mark.parametrize("engine", [KDA], indirect=True)


@pytest.fixture(params=[GDN, KDA, SOFTPLUS])
def engine(request, monkeypatch, context, caplog):
    monkeypatch.delenv(_common.SWITCH, raising=False)
    caplog.set_level(logging.INFO)
    torch = fake_torch.install(monkeypatch)
    bound = -5.0 if request.param == KDA else None
    return Engine(monkeypatch, torch, context, caplog, request.param != GDN, bound)


def same(view, array):
    return (view.data_ptr(), view.shape, view.stride()) == (
        array.data_ptr(), array.shape, array.stride(),
    )  # fmt: skip


def test_a_decode_is_one_launch(engine):
    backend = engine.backend()
    engine.start(backend)
    x, out = engine.decode(backend, [5, 9, -1])
    assert engine.forms == ["decode"]
    given = engine.arrays(0)
    assert same(given["x"], x) and same(given["out"], out[0])
    assert same(given["conv_state"], engine.windows(backend.cache.conv[0]))
    assert same(given["state"], backend.cache.temporal)
    assert given["state_indices"].array.tolist() == [5, 9, -1]
    assert given["pad_slot_id"] == -1 and given["zero_padding"]
    assert backend.ran == ["track"]


def test_gates_have_a_row_of_each_head(engine):
    backend = engine.backend()
    engine.start(backend)
    engine.decode(backend, [5, 9])
    given, layer = engine.arrays(0), backend.layer
    channels = (DIM,) if engine.is_kda else ()
    assert given["g"].shape == (2, V_HEADS, *channels) and given["beta"].shape == (2, V_HEADS)
    assert given["A_log"].shape == (V_HEADS,)
    assert given["dt_bias"].shape == (V_HEADS, *channels)
    for name in ("A_log", "dt_bias"):
        assert given[name].data_ptr() == getattr(layer, name).data_ptr()
    assert given.get("lower_bound") == engine.bound
    problem = engine.launches[0][0].problem
    assert problem.gate_mode == ("computed" if engine.bound is None else "lower_bound")


def no_conv_in_decode(context, problems):
    return {name for name in problems if getattr(problems[name], "conv_width", 0) > 0}


def test_a_gpu_without_clusters_has_the_convolution_in_front(engine, monkeypatch):
    monkeypatch.setattr(_common, "without_path", no_conv_in_decode)
    backend = engine.backend()
    engine.start(backend)
    engine.decode(backend, [5, 9])
    assert engine.forms == ["conv_decode", "decode"]


@gdn
def test_a_decode_of_undivided_projections(engine):
    backend = engine.backend()
    engine.start(backend)
    bf16 = engine.torch.bfloat16
    qkvz = engine.torch.zeros((2, CHANNELS + V_HEADS * DIM), dtype=bf16)
    ba = engine.torch.zeros((2, 2 * V_HEADS), dtype=bf16)
    _, (out, z) = engine.decode(backend, [5, 9], given=((qkvz, ba), None, None))
    given = engine.arrays(0)
    assert engine.forms == ["decode"]
    assert same(given["x"], qkvz[:, :CHANNELS])
    assert same(z, qkvz[:, CHANNELS:].unflatten(-1, (-1, DIM)))
    assert same(given["beta"], ba[:, :V_HEADS]) and same(given["g"], ba[:, V_HEADS:])
    assert out.shape == (1, 2, V_HEADS, DIM)


def test_a_prefill_is_two_launches(engine):
    backend = engine.backend()
    engine.start(backend)
    x, out = engine.extend(backend, [5, 9, 3], [0, 5, 9, 11])
    assert engine.forms == ["conv", "prefill"]
    conv, prefill = engine.arrays(0), engine.arrays(1)
    assert same(conv["x"], x) and same(prefill["out"], out[0])
    assert conv["has_initial_state"].array.tolist() == [True, False, True]
    for given in (conv, prefill):
        assert given["cu_seqlens"].array.tolist() == [0, 5, 9, 11]
        assert given["pad_slot_id"] == -1
    for name in ("q", "k", "v"):
        assert same(conv[name], prefill[name])
    assert same(conv["state"], engine.windows(backend.cache.conv[0]))
    assert backend.ran == []


def test_a_prefill_writes_where_the_engine_wants_it(engine):
    backend = engine.backend()
    engine.start(backend)
    wanted = engine.torch.zeros((1, 16, V_HEADS, DIM), dtype=engine.torch.bfloat16)[:, :11]
    _, out = engine.extend(backend, [5, 9, 3], [0, 5, 9, 11], out=wanted)
    assert out is wanted and same(engine.arrays(1)["out"], wanted[0])


def test_one_decay_is_made_by_the_convolution_and_a_row_by_the_prefill(engine):
    backend = engine.backend()
    engine.start(backend)
    engine.extend(backend, [5, 9, 3], [0, 5, 9, 11])
    conv, prefill = engine.arrays(0), engine.arrays(1)
    if engine.is_kda:
        assert conv.keys().isdisjoint({"a", "b", "g", "beta", "A_log", "dt_bias", "lower_bound"})
        assert prefill["g"].shape == (11, V_HEADS, DIM) and prefill["beta"].shape == (11, V_HEADS)
        assert prefill["A_log"].shape == (V_HEADS,) and prefill["dt_bias"].shape == (V_HEADS, DIM)
        assert prefill.get("lower_bound") == engine.bound
    else:
        assert {"A_log", "dt_bias"} <= conv.keys() - prefill.keys()
        assert same(conv["g"], prefill["g"]) and same(conv["beta"], prefill["beta"])


def test_rows_behind_the_sequences_are_zero(engine, monkeypatch):
    backend = engine.backend()
    engine.start(backend)
    new_empty = fake_torch.Tensor.new_empty

    def filled(like, shape, dtype=None):
        made = new_empty(like, shape, dtype)
        made.array[...] = 1
        return made

    monkeypatch.setattr(fake_torch.Tensor, "new_empty", filled)
    given = engine.inputs(16, "prefill")
    _, out = engine.extend(backend, [5, 9], [0, 5, 11], given=given, logical_num_tokens=11)
    prefill = engine.arrays(1)
    assert prefill["q"].shape[0] == prefill["g"].shape[0] == prefill["beta"].shape[0] == 11
    assert same(prefill["out"], out[0, :11]) and out.shape[1] == 16


def test_states_for_the_radix_cache_are_those_in_front_of_chunks(engine):
    backend = engine.backend()
    engine.start(backend)
    fields = {
        "has_mamba_track_mask": True,
        "track_conv_indices": fake_torch.tensor([[0, 1, 2]]),
        "conv_states_mask_indices": fake_torch.tensor([11]),
        "track_ssm_h_src": fake_torch.tensor([3]),
    }
    given = engine.inputs(140, "prefill")
    given[0].array[...] = np.arange(140 * CHANNELS).reshape(140, CHANNELS) % 1000
    engine.extend(backend, [5, 9, 3], [0, 65, 129, 140], given=given, **fields)
    windows = engine.windows(backend.cache.conv[0]).array
    assert (windows[11] == given[0].array[:3].T).all() and not windows[:11].any()
    assert engine.forms == ["conv", "prefill_kept"]
    given = engine.arrays(1)
    assert given["checkpoint_cu_starts"].array.tolist() == [0, 2, 3, 4]
    assert given["checkpoints"].shape == (140 // 64 + 3, V_HEADS, DIM, DIM)
    (_, kept), *others = backend.ran
    assert kept.shape[0] == 1 and not others
    fields["track_ssm_h_src"] = fake_torch.tensor([])
    engine.launches.clear()
    engine.extend(backend, [5, 9, 3], [0, 64, 128, 192], **fields)
    assert engine.forms == ["conv", "prefill"] and backend.ran[-1] == ("track", None)


def test_drafts_are_one_launch_behind_the_engines_convolution(engine):
    backend = engine.backend(drafts=3)
    engine.start(backend)
    x, out = engine.extend(backend, [5, 9, -1], [0, 3, 6, 9], drafts=3)
    (convolved,) = engine.convolved
    assert same(convolved["x"], x.unflatten(0, (3, 3)).transpose(1, 2))
    assert same(convolved["conv_state"], engine.windows(backend.cache.conv[0]))
    windows = engine.windows(backend.cache.intermediate_conv_window[0])
    assert same(convolved["intermediate_conv_window"], windows)
    assert convolved["intermediate_state_indices"].array.tolist() == [0, 1, 2]
    assert engine.forms == ["verify"]
    verify = engine.arrays(0)
    assert same(verify["state"], backend.cache.temporal)
    assert verify["state_indices"].array.tolist() == [5, 9, -1]
    slots, kept = verify["state_out_indices"].array, verify["state_out"]
    assert slots.shape == (3, 3)
    for row in range(3):
        for step in range(3):
            buffer = backend.cache.intermediate_ssm[row, step]
            assert kept[slots[row, step]].data_ptr() == buffer.data_ptr()
    assert same(verify["out"], out[0].unflatten(0, (3, 3)))
    rows = engine.convolved[0]["y"].transpose(1, 2)
    key = K_HEADS * DIM
    for name, at in (("q", 0), ("k", key)):
        assert same(verify[name], rows[:, :, at : at + key].unflatten(-1, (-1, DIM)))
    assert same(verify["v"], rows[:, :, 2 * key :].unflatten(-1, (-1, DIM)))


def test_fewer_drafts_than_there_is_room_for(engine):
    backend = engine.backend(drafts=3)
    engine.start(backend)
    engine.extend(backend, [5, 9], [0, 2, 4], drafts=2)
    assert engine.arrays(0)["state_out_indices"].array.tolist() == [[0, 1], [3, 4]]


def test_nothing_compiles_after_the_start(engine):
    backend = engine.backend(drafts=3)
    made = dict(engine.plugin.plugin.kernels)
    engine.start(backend)
    compiles = engine.context.stats().compiles
    engine.decode(backend, [5, 9])
    engine.extend(backend, [5, 9, 3], [0, 5, 9, 11])
    engine.extend(backend, [5, 9], [0, 3, 6], drafts=3)
    assert engine.context.stats().compiles == compiles
    assert engine.plugin.plugin.kernels == made  # of what the pools say, before there was a layer
    assert engine.text.count("compiled") == 1


def test_what_is_launched_is_what_is_made(engine):
    backend = engine.backend(drafts=3)
    engine.decode(backend, [-1])
    (kernels,) = engine.plugin.plugin.kernels.values()
    assert set(engine.forms) == set(kernels.problems) == set(kernels.operators)
    assert all((given["state_indices"].array == -1).all() for _, given in engine.launches)


def test_a_graph_is_not_given_what_another_batch_made(engine):
    backend = engine.backend()
    engine.start(backend)
    engine.extend(backend, [5, 9], [0, 5, 9])
    made = backend.forward_metadata._cubinery[0]
    batch = types.SimpleNamespace(extend_prefix_lens=fake_torch.tensor([1, 1]))
    assert backend._cubinery_shared(backend.forward_metadata, batch)[0] is made
    backend._cubinery_sglang.is_captured = lambda: True
    fresh, _ = backend._cubinery_shared(backend.forward_metadata, batch)
    assert fresh.array.all() and backend.forward_metadata._cubinery[0] is made


def check_left(engine, change, why):
    backend = engine.backend(drafts=3)
    engine.start(backend)
    change(backend)
    engine.extend(backend, [5, 9], [0, 3, 6], drafts=3)
    engine.extend(backend, [5, 9], [0, 3, 6], drafts=3)
    assert engine.forms == [] and backend.ran == ["extend"] * 2
    assert engine.text.count(f"stays with SGLang's own kernels: {why}") == 1


def test_replayssm_stays_with_the_engine(engine):
    check_left(engine, lambda backend: setattr(backend.cache, "replayssm_d", object()), "ReplaySSM")


@gdn
def test_multi_item_scoring_stays_with_the_engine(engine):
    why = "multi-item scoring"
    check_left(engine, lambda backend: setattr(backend, "mis_metadata", object()), why)


@kda
def test_graphs_of_prefills_are_of_what_the_engine_does_itself(engine):
    backend = engine.backend()
    assert not backend.supports_prefill_graph_extend()
    engine.start(backend)
    backend.prefill_graph_metadata = object()
    engine.extend(backend, [5, 9], [0, 3, 6])
    assert engine.forms == [] and backend.ran == ["extend"]
    assert engine.text.count("prefill stays with SGLang's own kernels: they are in") == 1
    backend._cubinery_begun = None  # pools that the plugin does not know
    assert backend.supports_prefill_graph_extend()


@kda
def test_drafts_of_several_lengths_stay_with_the_engine(engine):
    backend = engine.backend(drafts=3)
    engine.start(backend)
    engine.extend(backend, [5, 9], [0, 2, 5], drafts=3, ragged_verify_layout=object())
    assert engine.forms == [] and backend.ran == ["extend"]
    assert "requests have different numbers of drafts" in engine.text


@kda
def test_states_that_another_verification_keeps_are_left_alone(engine, monkeypatch):
    monkeypatch.setattr(KDAAttnBackend, "accept_lens_pool", object())
    backend = engine.backend(drafts=3)
    engine.decode(backend, [5])
    engine.extend(backend, [5, 9], [0, 3, 6])
    assert engine.forms == [] and backend.ran == ["decode", "extend"]
    assert engine.text.count("a layer stays with SGLang's own kernels: states are where") == 1


def test_trees_of_drafts_stay_with_the_engine(engine):
    backend = engine.backend(drafts=3)
    engine.start(backend)
    tree = fake_torch.tensor([[0]])
    engine.extend(backend, [5, 9], [0, 3, 6], drafts=3, retrieve_next_token=tree)
    assert engine.forms == [] and backend.ran == ["extend"]


@gdn
def test_a_layer_of_another_activation_is_prepared_at_its_first_call(engine):
    backend = engine.backend()
    backend.layer = engine.layer(activation=None)
    engine.start(backend)
    engine.decode(backend, [5])
    assert engine.forms == ["decode"] and len(engine.plugin.plugin.kernels) == 2
    backend._cubinery_served.clear()
    backend.layer = engine.layer(activation="gelu")
    engine.decode(backend, [5])
    assert backend.ran[-1] == "decode" and "hidden_act = 'gelu'" in engine.text


@kda
@pytest.mark.parametrize("activation", [None, "gelu"])
def test_convolutions_of_kimi_delta_attention_have_silu(engine, activation):
    backend = engine.backend(drafts=3)
    backend.layer = engine.layer(activation=activation)
    engine.start(backend)
    assert len(engine.plugin.plugin.kernels) == 1
    engine.extend(backend, [5, 9], [0, 3, 6], drafts=3)
    assert engine.convolved[-1]["activation"] == "silu"


def test_force_raises_instead(engine, monkeypatch):
    monkeypatch.setenv(_common.SWITCH, "force")
    backend = engine.backend()
    backend.layer.num_q_heads = 1
    with pytest.raises(UnsupportedError, match="CUBINERY_PLUGIN=force"):
        engine.decode(backend, [5])


def test_deterministic_inference_is_batch_invariant(engine):
    engine.deterministic = True
    backend = engine.backend(drafts=3)
    engine.start(backend)
    (kernels,) = engine.plugin.plugin.kernels.values()
    assert all(problem.batch_invariant for problem in kernels.problems.values())


def test_off_and_a_release_without_a_seam(engine, monkeypatch):
    monkeypatch.setenv(_common.SWITCH, "off")
    engine.plugin.register()
    assert engine.taken == {} and engine.text == ""
    plugin = importlib.reload(engine.plugin)
    monkeypatch.delenv(_common.SWITCH)
    monkeypatch.delattr(GDNAttnBackend.__mro__[1], "forward_extend")
    plugin.register()
    plugin.register()
    assert engine.taken == {} and plugin.plugin.mode == "auto"
    for name in ("GDNAttnBackend", "KDAAttnBackend"):
        assert engine.text.count(f"cubinery does not serve {name} of this SGLang") == 1
        assert engine.text.count(f"{name}.forward_extend") == 1


@gdn
def test_a_class_without_a_seam_stays_and_the_other_is_taken(engine, monkeypatch):
    monkeypatch.delattr(KDAAttnBackend, "supports_prefill_graph_extend")
    engine.plugin.register()
    assert [path.rpartition(".")[2] for path in engine.taken] == ["GDNAttnBackend"]
    assert engine.text.count("it lacks sglang.srt") == 1
    memory = "sglang.srt.mem_cache.memory_pool"
    monkeypatch.delattr(importlib.import_module(memory).MambaPool, "State")
    engine.taken.clear()
    plugin = importlib.reload(engine.plugin)
    plugin.register()
    assert engine.taken == {} and plugin.plugin.mode == "off"


@kda
def test_a_configuration_that_is_not_known_is_no_error(engine, monkeypatch):
    def fail(self, model_runner):
        raise TypeError("no such configuration")

    monkeypatch.setattr(engine.plugin.KdaBackend, "_cubinery_bound", fail)
    backend = engine.backend()
    assert engine.plugin.plugin.kernels == {}
    engine.start(backend)
    engine.decode(backend, [5])
    assert engine.forms == ["decode"] and len(engine.plugin.plugin.kernels) == 1


@kda
def test_what_a_configuration_says_of_the_bound(engine):
    backend = engine.backend()
    for config, expected in (
        (types.SimpleNamespace(kda_safe_gate=True, kda_lower_bound=-4), -4.0),  # Ling's
        (types.SimpleNamespace(kda_safe_gate=False, kda_lower_bound=-4), None),
        (types.SimpleNamespace(linear_attn_config={"gate_lower_bound": -5.0}), -5.0),
        (types.SimpleNamespace(linear_attn_config={}), None),
    ):
        engine.config = config
        assert backend._cubinery_bound(types.SimpleNamespace(model_config=None)) == expected


def test_importing_the_plugins_imports_nothing_else():
    import subprocess
    import sys

    code = (
        "import sys, cubinery.plugins.vllm, cubinery.plugins.sglang\n"
        "print([name for name in ('torch', 'numpy', 'vllm', 'sglang') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@gdn
def test_the_registered_classes_are_found_under_their_own_names(engine):
    engine.plugin.register()
    linear = "sglang.srt.layers.attention.linear"
    assert list(engine.taken) == [
        f"{linear}.gdn_backend.GDNAttnBackend", f"{linear}.kda_backend.KDAAttnBackend",
    ]  # fmt: skip
    for taken, behind in zip(engine.taken.values(), (GDNAttnBackend, KDAAttnBackend)):
        assert issubclass(taken, engine.plugin.CubineryBackend) and issubclass(taken, behind)
