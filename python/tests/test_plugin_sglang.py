"""SGLang's plugin in an SGLang that is not there: its modules as recorded, its metadata, its pools
in host memory, a GPU that only writes down launches.  As test_plugin_vllm.py.
"""

from __future__ import annotations

import importlib
import logging
import types

import fake_engine
import fake_torch
import numpy as np
import pytest
from cubinery import Conv, Decode, Prefill, UnsupportedError, Verify
from cubinery.plugins import _common

K_HEADS, V_HEADS, DIM, WIDTH, SLOTS = 2, 4, 16, 4, 12
CHANNELS = 2 * K_HEADS * DIM + V_HEADS * DIM
RELEASE = "sglang-0.5.23"
METADATA = fake_engine.record(RELEASE)["objects"][
    "sglang.srt.layers.attention.mamba.mamba2_metadata:ForwardMetadata"
]


class GDNAttnBackend:
    """What the plugin sees of SGLang's class."""

    def __init__(self, model_runner):
        self.req_to_token_pool = model_runner
        self.mis_metadata = None
        self.verify_intermediate_state_indices = fake_torch.tensor(range(SLOTS + 1))
        self.ran = []

    def forward_decode(self, layer, forward_batch, mixed_qkv, a, b, **kwargs):
        self.ran.append("decode")

    def forward_extend(self, layer, forward_batch, mixed_qkv, a, b, **kwargs):
        self.ran.append("extend")

    def _track_mamba_state_decode(
        self, forward_batch, conv_states, ssm_states, cache_indices, layer_id=None
    ):
        self.ran.append("track")

    def _track_mamba_state_extend(
        self, forward_batch, h, ssm_states, forward_metadata, track_states=None, *, h_track_buf=None
    ):
        self.ran.append(("track", h))


class Engine:
    """SGLang with the plugin, its back end and a layer."""

    def __init__(self, monkeypatch, torch, context, caplog):
        self.torch, self.context, self._caplog = torch, context, caplog
        self.launches = []
        self.convolved = []
        self.deterministic = False
        self.taken = {}
        self.plugin = importlib.reload(importlib.import_module("cubinery.plugins.sglang"))
        monkeypatch.setattr(_common, "logged_context", lambda device, log: context)
        execution = lambda: types.SimpleNamespace(
            deterministic=types.SimpleNamespace(enable_deterministic_inference=self.deterministic)
        )
        fake_engine.install(
            RELEASE, monkeypatch, GDNAttnBackend=GDNAttnBackend, get_exec=execution,
            is_cuda=lambda: True, pp_spec_stable_rows_enabled=lambda: False,
            causal_conv1d_update=self._convolve,
        )  # fmt: skip
        hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
        monkeypatch.setattr(hooks.HookRegistry, "register", staticmethod(self._hook))
        for cls in (Decode, Prefill, Verify, Conv):
            monkeypatch.setattr(cls, "__call__", self._noted(cls.__call__))

    def _hook(self, target, hook, hook_type):
        self.taken[target] = hook

    def _convolve(
        self, x, conv_state, weight, bias=None, activation=None, conv_state_indices=None,
        intermediate_conv_window=None, intermediate_state_indices=None,
    ):  # fmt: skip
        y = x.transpose(1, 2)
        y = y.new_empty(y.shape).transpose(1, 2)
        self.convolved.append(dict(locals()))
        return y

    def _noted(self, launch):
        def call(operator, *places, **named):
            names = ("x", "weight", "bias")
            if not isinstance(operator, Conv):
                names = ("q", "k", "v", "g", "beta")
            self.launches.append((operator, dict(zip(names, places)) | named))
            return launch(operator, *places, **named)

        return call

    @property
    def text(self):
        return self._caplog.text

    @property
    def forms(self):
        made = {
            id(operator): name
            for kernels in self.plugin.plugin.kernels.values()
            for name, operator in kernels.operators.items()
        }
        return [made[id(operator)] for operator, _ in self.launches]

    def arrays(self, at):
        return self.launches[at][1]

    def pools(self, drafts):
        torch = self.torch
        bf16 = torch.bfloat16
        found = {name: None for name in ("replayssm_d", "replayssm_rawv")}
        found["conv"] = [torch.empty((SLOTS, CHANNELS, WIDTH - 1), dtype=bf16)]
        found["temporal"] = torch.empty((SLOTS, V_HEADS, DIM, DIM), dtype=torch.float32)
        if drafts:
            rows = SLOTS + 1
            found["intermediate_ssm"] = torch.empty((rows, drafts, V_HEADS, DIM, DIM))
            # Windows of drafts overlap in memory.
            whole = torch.empty((rows, CHANNELS, drafts + WIDTH - 2), dtype=bf16)
            row, channel, column = whole.stride()
            found["intermediate_conv_window"] = [
                whole.as_strided(
                    (rows, drafts, CHANNELS, WIDTH - 1), (row, column, channel, column)
                )
            ]
        return types.SimpleNamespace(**found)

    def backend(self, drafts=0):
        self.plugin.register()
        cache = self.pools(drafts)
        pool = types.SimpleNamespace(mamba_map={7: 0}, mamba2_layer_cache=lambda layer_id: cache)
        (ours,) = self.taken.values()
        backend = ours(pool)
        backend.cache = cache
        backend.layer = self.layer()
        return backend

    def layer(self, activation="silu"):
        torch = self.torch
        return types.SimpleNamespace(
            layer_id=7, num_q_heads=K_HEADS, num_k_heads=K_HEADS, num_v_heads=V_HEADS,
            head_q_dim=DIM, head_k_dim=DIM, head_v_dim=DIM, bias=None, activation=activation,
            q_dim=K_HEADS * DIM, k_dim=K_HEADS * DIM,
            conv_weights=torch.zeros((CHANNELS, WIDTH), dtype=torch.bfloat16),
            A_log=torch.zeros((V_HEADS,)), dt_bias=torch.zeros((V_HEADS,), dtype=torch.bfloat16),
        )  # fmt: skip

    def start(self, backend):
        """The engine's warm-up: a first batch."""
        self.decode(backend, [-1])
        self.launches.clear()
        backend.ran.clear()

    def metadata(self, slots, bounds, **fields):
        given = {each["name"]: None for each in METADATA["parameters"]} | fields
        given["mamba_cache_indices"] = fake_torch.tensor(slots)
        given["query_start_loc"] = fake_torch.tensor(bounds)
        return types.SimpleNamespace(**given)

    def inputs(self, tokens):
        torch = self.torch
        x = torch.zeros((tokens, CHANNELS), dtype=torch.bfloat16)
        return x, *(torch.zeros((tokens, V_HEADS), dtype=torch.bfloat16) for _ in "ab")

    def decode(self, backend, slots, packed=False):
        backend.forward_metadata = self.metadata(slots, range(len(slots) + 1))
        x, a, b = self.inputs(len(slots))
        if packed:
            width = CHANNELS + V_HEADS * DIM
            qkvz = self.torch.zeros((len(slots), width), dtype=self.torch.bfloat16)
            x = (qkvz, self.torch.zeros((len(slots), 2 * V_HEADS), dtype=self.torch.bfloat16))
        return x, backend.forward_decode(backend.layer, None, x, a, b)

    def extend(self, backend, slots, bounds, drafts=0, **fields):
        backend.forward_metadata = self.metadata(slots, bounds, **fields)
        x, a, b = self.inputs(bounds[-1])
        batch = types.SimpleNamespace(
            forward_mode=types.SimpleNamespace(is_target_verify=lambda: drafts > 0),
            extend_prefix_lens=fake_torch.tensor([5, 0, 70, 0][: len(slots)]),
            spec_info=types.SimpleNamespace(draft_token_num=drafts),
        )  # fmt: skip
        return x, backend.forward_extend(backend.layer, batch, x, a, b)


@pytest.fixture
def engine(monkeypatch, context, caplog):
    monkeypatch.delenv(_common.SWITCH, raising=False)
    caplog.set_level(logging.INFO)
    return Engine(monkeypatch, fake_torch.install(monkeypatch), context, caplog)


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
    assert same(given["conv_state"], backend.cache.conv[0])
    assert same(given["state"], backend.cache.temporal)
    assert given["state_indices"].array.tolist() == [5, 9, -1]
    assert given["pad_slot_id"] == -1 and given["zero_padding"]
    assert backend.ran == ["track"]


def no_conv_in_decode(context, problems):
    return {name for name in problems if getattr(problems[name], "conv_width", 0) > 0}


def test_a_gpu_without_clusters_has_the_convolution_in_front(engine, monkeypatch):
    monkeypatch.setattr(_common, "without_path", no_conv_in_decode)
    backend = engine.backend()
    engine.start(backend)
    engine.decode(backend, [5, 9])
    assert engine.forms == ["conv_decode", "decode"]


def test_a_decode_of_undivided_projections(engine):
    backend = engine.backend()
    engine.start(backend)
    (qkvz, ba), (out, z) = engine.decode(backend, [5, 9], packed=True)
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
    for name in ("q", "k", "v", "g", "beta"):
        assert same(conv[name], prefill[name])
    assert backend.ran == []


def test_states_for_the_radix_cache_are_those_in_front_of_chunks(engine):
    backend = engine.backend()
    engine.start(backend)
    fields = {
        "has_mamba_track_mask": True,
        "track_conv_indices": fake_torch.tensor([[0, 1, 2]]),
        "conv_states_mask_indices": fake_torch.tensor([11]),
        "track_ssm_h_src": fake_torch.tensor([3]),
    }
    engine.extend(backend, [5, 9, 3], [0, 65, 129, 140], **fields)
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
    assert convolved["conv_state"] is backend.cache.conv[0]
    assert convolved["intermediate_conv_window"] is backend.cache.intermediate_conv_window[0]
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


@pytest.mark.parametrize(
    "change, why",
    [
        (lambda backend: setattr(backend, "mis_metadata", object()), "multi-item scoring"),
        (lambda backend: setattr(backend.cache, "replayssm_d", object()), "ReplaySSM"),
    ],
)
def test_what_cubinery_does_not_do_stays_with_the_engine(engine, change, why):
    backend = engine.backend(drafts=3)
    engine.start(backend)
    change(backend)
    engine.extend(backend, [5, 9], [0, 3, 6], drafts=3)
    engine.extend(backend, [5, 9], [0, 3, 6], drafts=3)
    assert engine.forms == [] and backend.ran == ["extend"] * 2
    assert engine.text.count(f"stays with SGLang's own kernels: {why}") == 1


def test_trees_of_drafts_stay_with_the_engine(engine):
    backend = engine.backend(drafts=3)
    engine.start(backend)
    tree = fake_torch.tensor([[0]])
    engine.extend(backend, [5, 9], [0, 3, 6], drafts=3, retrieve_next_token=tree)
    assert engine.forms == [] and backend.ran == ["extend"]


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


def test_force_raises_instead(engine, monkeypatch):
    monkeypatch.setenv(_common.SWITCH, "force")
    backend = engine.backend()
    backend.layer = engine.layer(activation="gelu")
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
    monkeypatch.delattr(GDNAttnBackend, "forward_extend")
    plugin.register()
    plugin.register()
    assert engine.taken == {}
    assert engine.text.count("GDNAttnBackend.forward_extend") == 1


def test_importing_the_plugins_imports_nothing_else():
    import subprocess
    import sys

    code = (
        "import sys, cubinery.plugins.vllm, cubinery.plugins.sglang\n"
        "print([name for name in ('torch', 'numpy', 'vllm', 'sglang') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_the_registered_class_is_found_under_its_own_name(engine):
    engine.plugin.register()
    (path,) = engine.taken
    assert path == "sglang.srt.layers.attention.linear.gdn_backend.GDNAttnBackend"
    assert issubclass(engine.taken[path], GDNAttnBackend)
    assert np.all([issubclass(engine.taken[path], engine.plugin.CubineryBackend)])
