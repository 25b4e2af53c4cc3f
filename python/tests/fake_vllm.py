"""A vLLM that is not there, with the plugin: its modules as recorded, what the plugin sees of its
layers, its pools and its metadata, on the GPU of fake_torch.py.
"""

from __future__ import annotations

import importlib
import logging
import types
from collections import namedtuple
from dataclasses import dataclass

import fake_engine
import fake_torch
import numpy as np
import pytest
from cubinery import Conv, Decode, Prefill, Verify
from cubinery.plugins import _common
from cubinery.plugins import _vllm_places as places

K_HEADS, V_HEADS, DIM, WIDTH, SLOTS = 2, 4, 16, 4, 12
CHANNELS = 2 * K_HEADS * DIM + V_HEADS * DIM
QKVZ = CHANNELS + V_HEADS * DIM
KDA_CHANNELS = 3 * V_HEADS * DIM
RELEASE = "vllm-0.33.0"

Launch = namedtuple("Launch", "form arrays")


class PluggableLayer:
    """The base of all classes of layers, which makes layers of what has taken a class's place."""

    def __new__(cls, *args, **kwargs):
        return object.__new__(cls.taken.get(cls.__name__, cls))

    def __init__(self, config, vllm_config, prefix=""):
        self.prefix, self.num_spec = prefix, config["drafts"]
        self.model_config = types.SimpleNamespace(dtype=vllm_config.torch.bfloat16)
        self.cache_config = types.SimpleNamespace(
            mamba_cache_mode="align" if config["checkpoints"] else "none"
        )
        self.ran = []
        self.state_dtype = vllm_config.torch.float32

    def bind_kv_cache(self, kv_cache):
        self.kv_cache = kv_cache

    def get_state_dtype(self):
        return self.model_config.dtype, self.state_dtype

    def get_attn_backend(self):
        raise RuntimeError("VLLM batch_invariant mode is not supported for GDN_ATTN.")


class QwenGatedDeltaNetAttention(PluggableLayer):
    """What the plugin sees of vLLM's class."""

    def __init__(
        self, config, vllm_config, prefix="", gqa_interleaved_layout=False, reduce_results=True
    ):
        super().__init__(config, vllm_config, prefix)
        torch = vllm_config.torch
        self.vllm_config = vllm_config
        self.activation = config["activation"]
        self.tp_size, self.layer_norm_epsilon = 2, 1e-5
        self.num_k_heads, self.num_v_heads = 2 * K_HEADS, 2 * V_HEADS
        self.head_k_dim = self.head_v_dim = DIM
        self.key_dim, self.value_dim = DIM * self.num_k_heads, DIM * self.num_v_heads
        self.conv_kernel_size = WIDTH
        self.gqa_interleaved_layout = gqa_interleaved_layout
        self._forward_method = None
        self.enable_fused_gdn_spec_decode = False
        self.A_log = torch.zeros((V_HEADS,))
        self.dt_bias = torch.zeros((V_HEADS,), dtype=torch.bfloat16)
        self.conv1d = types.SimpleNamespace(
            weight=torch.zeros((CHANNELS, 1, WIDTH), dtype=torch.bfloat16)
        )
        self.norm = types.SimpleNamespace(
            weight=torch.zeros((DIM,), dtype=torch.bfloat16), activation=config["gate"],
            group_size=None, norm_before_gate=True,
        )  # fmt: skip
        self._checkpoint_alignment = 64 if config["checkpoints"] else None

    def split_ba(self, ba):
        return ba[:, :V_HEADS], ba[:, V_HEADS:]

    def _forward_core(self, mixed_qkv, b, a, core_attn_out):
        self.ran.append("core")

    def _forward_core_fused_norm_packed(self, mixed_qkvz, ba, core_attn_out):
        self.ran.append("core with norm")

    def _rms_norm_gated_cuda(self, x, output_gate, out):
        assert x.shape == output_gate.shape == out.shape
        self.ran.append(("norm", x.shape[0]))


class KimiGatedDeltaNetAttention(PluggableLayer):
    """Of Kimi Delta Attention, as many heads of q and k as of v."""

    def __init__(self, config, vllm_config, prefix=""):
        super().__init__(config, vllm_config, prefix)
        torch = vllm_config.torch
        self.local_num_heads, self.head_dim, self.conv_size = V_HEADS, DIM, WIDTH
        self.A_log = torch.zeros((V_HEADS,))
        self.dt_bias = torch.zeros((V_HEADS * DIM,))
        self.conv1d = types.SimpleNamespace(weight=torch.zeros((KDA_CHANNELS, 1, WIDTH)))
        self.gate_lower_bound = config["bound"]
        self.o_norm = Norm(torch, self.ran)

    def _forward(self, mixed_qkv, g1, g2, beta, core_attn_out):
        self.ran.append("core with norm")


class Norm:
    """FusedRMSNormGated: notes what it is given."""

    activation, eps = "sigmoid", 1e-5

    def __init__(self, torch, ran):
        self.weight, self._ran = torch.zeros((DIM,), dtype=torch.bfloat16), ran

    def __call__(self, x, g):
        assert x.shape == (1, *g.shape)
        self._ran.append(("norm", g.shape[0]))
        return x


@dataclass(frozen=True)
class MambaSpec:
    prefill_checkpoint_alignment: int | None = None


class KimiK3DeltaAttention(KimiGatedDeltaNetAttention):
    def __init__(
        self, config, vllm_config, prefix="", aux_stream=None, run_gemm_rs_ar=False
    ):  # fmt: skip
        super().__init__(config, vllm_config, prefix)
        self.use_recoverssm = config["recover"]
        self._checkpoint_exporter = object() if config["checkpoints"] else None

    def get_kv_cache_spec(self, vllm_config):
        return MambaSpec(prefill_checkpoint_alignment=16)


class Glm5NextLinearAttention(PluggableLayer):
    def __init__(self, config, vllm_config, prefix=""):
        super().__init__(config, vllm_config, prefix)
        torch = vllm_config.torch
        self.local_num_heads, self.head_dim, self.conv_size = V_HEADS, DIM, WIDTH
        self.local_projection_size = V_HEADS * DIM
        self.A_log = torch.zeros((1, 1, V_HEADS, 1))
        self.dt_bias = torch.zeros((V_HEADS * DIM,))
        for n, name in enumerate(("q_conv1d", "k_conv1d", "v_conv1d")):
            weight = torch.zeros((V_HEADS * DIM, 1, WIDTH))
            weight.array[...] = n
            setattr(self, name, types.SimpleNamespace(weight=weight))
        self._merged_conv_weight = None
        self.kda_lower_bound = config["bound"]
        self._checkpoint_exporter = object() if config["checkpoints"] else None
        self.o_norm = Norm(torch, self.ran)
        width = KDA_CHANNELS + V_HEADS + 2 * DIM
        self.in_proj_qkvbfg_a = lambda x: (x.new_empty((x.shape[0], width)), None)
        self.f_b_proj = self.g_b_proj = lambda x: (x.new_empty((x.shape[0], V_HEADS * DIM)), None)
        self.o_proj = lambda x: (x, None)

    def get_kv_cache_spec(self, vllm_config):
        return MambaSpec(prefill_checkpoint_alignment=16)

    def forward(self, hidden_states, positions):
        self.ran.append("forward")

    def _forward(self, qkv_proj_states, g1, beta, core_attn_out):
        self.ran.append("core")


CLASSES = {
    place.name: (place, cls)
    for place, cls in (
        (places.QWEN, QwenGatedDeltaNetAttention),
        (places.KIMI_LINEAR, KimiGatedDeltaNetAttention),
        (places.K3, KimiK3DeltaAttention),
        (places.GLM5_NEXT, Glm5NextLinearAttention),
    )
}


class Engine:
    """vLLM with the plugin, and layers of it."""

    def __init__(self, monkeypatch, torch, context, caplog):
        self.torch, self.context, self._caplog = torch, context, caplog
        self.launches: list[Launch] = []
        self.taken = {}
        self.metadata = None
        self.dims_first = False
        self.plugin = importlib.reload(importlib.import_module("cubinery.plugins.vllm"))
        monkeypatch.setattr(_common, "logged_context", lambda device, log: context)
        self.breaks = []
        base = {"taken": self.taken, "__new__": PluggableLayer.__new__}
        base["register_oot"] = classmethod(lambda cls, name: self._register(name))
        self.base = type("PluggableLayer", (PluggableLayer,), base)
        self.classes = {
            name: type(name, (cls, self.base), {"__module__": place.path.partition(":")[0]})
            for name, (place, cls) in CLASSES.items()
        }
        fake_engine.install(
            RELEASE, monkeypatch, **self.classes, PluggableLayer=self.base,
            MambaSpec=MambaSpec, eager_break_during_capture=self._break,
            op_registry_oot=self.taken,
            get_forward_context=lambda: types.SimpleNamespace(attn_metadata=self.metadata),
            is_conv_state_dim_first=lambda: self.dims_first, VLLM_BATCH_INVARIANT=False,
            _encode_layer_name=lambda layer_name: layer_name,
            current_platform=types.SimpleNamespace(is_cuda=lambda: True),
        )  # fmt: skip
        for cls in (Decode, Prefill, Verify, Conv):
            monkeypatch.setattr(cls, "__call__", self._noted(cls.__call__))

    def _break(self, fn):
        def outside_of_graphs(*args, **kwargs):
            self.breaks.append(fn.__name__)
            return fn(*args, **kwargs)

        return outside_of_graphs

    def _register(self, name):
        return lambda cls: self.taken.setdefault(name, cls)

    def _noted(self, launch):
        def call(operator, *places, **named):
            names = ("x", "weight") if isinstance(operator, Conv) else ("q", "k", "v", "g", "beta")
            given = dict(zip(names, places)) | named
            self.launches.append(Launch(self._form(operator), given))
            return launch(operator, *places, **named)

        return call

    def _form(self, operator):
        for kernels in self.plugin.plugin.kernels.values():
            for name, made in kernels.operators.items():
                if made is operator:
                    return name
        raise AssertionError("an operator that was not made while the engine started")

    @property
    def text(self):
        return self._caplog.text

    def layer(
        self, drafts=0, gate="silu", activation="silu", checkpoints=False, bound=True, mode=3,
        cls="QwenGatedDeltaNetAttention", lower_bound=None, recover=False, **more,
    ):  # fmt: skip
        """One of the model's, as vLLM makes it.

        Args:
            bound: to its pools.
        """
        self.plugin.register()
        config = {
            "drafts": drafts, "gate": gate, "activation": activation, "checkpoints": checkpoints,
            "bound": lower_bound, "recover": recover,
        }  # fmt: skip
        vllm_config = types.SimpleNamespace(
            torch=self.torch, additional_config={"gdn_prefill_backend": "triton"},
            scheduler_config=types.SimpleNamespace(max_num_seqs=8),
            compilation_config=types.SimpleNamespace(mode=mode),
        )  # fmt: skip
        layer = self.classes[cls](config, vllm_config, "l", **more)
        if bound:
            channels = CHANNELS if cls == "QwenGatedDeltaNetAttention" else KDA_CHANNELS
            layer.bind_kv_cache(self.pools(WIDTH - 1 + drafts, channels))
            self.launches.clear()
            layer.ran.clear()
        return layer

    def pools(self, columns, channels=CHANNELS):
        """Slots of both states in one page, as vLLM has them."""
        item = fake_torch.stored("bfloat16").itemsize
        conv, state = item * columns * channels, 4 * V_HEADS * DIM * DIM
        pages = self.torch.empty((SLOTS, conv + state + 512), dtype=self.torch.uint8).array
        shape = (columns, channels)
        if self.dims_first:
            shape = (channels, columns)
        one = pages[:, :conv].view(fake_torch.stored("bfloat16")).reshape(SLOTS, *shape)
        other = pages[:, conv : conv + state].view(np.float32)
        assert np.shares_memory(one, pages)
        return (
            fake_torch.Tensor(one, self.torch.bfloat16),
            fake_torch.Tensor(other.reshape(SLOTS, V_HEADS, DIM, DIM), self.torch.float32),
        )

    def run(self, layer, tokens, packed=False, more=3, qkvz=None, ba=None, **fields):
        """One batch of so many tokens, and `more` rows behind them that are none."""
        m = self._hand_over(tokens, FIELDS, fields)
        self.launches.clear()
        rows, bf16 = tokens + more, self.torch.bfloat16
        if qkvz is None:
            qkvz = self.torch.zeros((rows, QKVZ), dtype=bf16)
            ba = self.torch.zeros((rows, 2 * V_HEADS), dtype=bf16)
        out = self.torch.zeros((rows, V_HEADS, DIM), dtype=bf16)
        if packed:
            layer._forward_core_fused_norm_packed(qkvz, ba, out)
        else:
            layer._forward_core(qkvz[:, :CHANNELS], ba[:, :V_HEADS], ba[:, V_HEADS:], out)
        return types.SimpleNamespace(x=qkvz, ba=ba, out=out, m=m)

    def _hand_over(self, tokens, names, fields):
        """Metadata of a batch, where layers look for it."""
        given = dict.fromkeys(names) | dict.fromkeys(COUNTS, 0) | {"num_actual_tokens": tokens}
        for name, value in fields.items():
            if isinstance(value, (list, np.ndarray)):
                is_bool = getattr(value, "dtype", None) == np.bool_
                value = fake_torch.tensor(value, self.torch.bool if is_bool else self.torch.int32)
            given[name] = value
        assert given.keys() <= set(names)
        m = types.SimpleNamespace(**given)
        self.metadata = {"l": m}
        return m

    def run_kda(self, layer, tokens, more=3, given=None, **fields):
        """The same of a layer of Kimi Delta Attention, whose inputs are parts of projections: x with
        beta behind it, decays and gates of the norm."""
        names = K3_FIELDS if "K3" in type(layer).__name__ else FIELDS
        m = self._hand_over(tokens, names, fields)
        self.launches.clear()
        rows, bf16 = tokens + more, self.torch.bfloat16
        if given is None:
            given = [self.torch.zeros((rows, KDA_CHANNELS + V_HEADS), dtype=bf16)]
            given += [self.torch.zeros((rows, V_HEADS, DIM), dtype=bf16) for _ in range(2)]
        projected, g1, g2 = given
        x, beta = projected[:, :KDA_CHANNELS], projected[:, KDA_CHANNELS:]
        out = self.torch.zeros((rows, V_HEADS, DIM), dtype=bf16)
        if hasattr(layer, "q_conv1d"):
            layer._forward(qkv_proj_states=x, g1=g1[None], beta=beta[None], core_attn_out=out[None])
        else:
            layer._forward(
                mixed_qkv=x, g1=g1[None], g2=g2, beta=beta[None], core_attn_out=out[None]
            )
        return types.SimpleNamespace(x=x, a=g1, b=beta, z=g2, out=out, m=m)

    @property
    def forms(self):
        return [launch.form for launch in self.launches]


@pytest.fixture
def engine(monkeypatch, context, caplog):
    monkeypatch.delenv(_common.SWITCH, raising=False)
    caplog.set_level(logging.INFO)
    return Engine(monkeypatch, fake_torch.install(monkeypatch), context, caplog)


def same(view, array):
    """The same elements in memory."""
    return (view.data_ptr(), view.shape, view.stride()) == (
        array.data_ptr(), array.shape, array.stride(),
    )  # fmt: skip


def at(launch, name):
    return launch.arrays[name]


def _fields(path):
    about = fake_engine.record(RELEASE)["objects"][path]
    return [each["name"] for each in about["parameters"]]


FIELDS = _fields("vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadata")
K3_FIELDS = _fields("vllm.models.kimi_k3.nvidia.kda_metadata:KimiK3KDAMetadata")
COUNTS = [name for name in FIELDS if name.startswith("num_") and name.endswith(
    ("prefills", "decodes", "tokens")) and name != "num_accepted_tokens"]  # fmt: skip
