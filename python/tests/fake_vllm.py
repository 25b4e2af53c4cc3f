"""A vLLM that is not there, with the plugin: its modules as recorded, what the plugin sees of its
layers, its pools and its metadata, on the GPU of fake_torch.py.
"""

from __future__ import annotations

import importlib
import types
from collections import namedtuple

import fake_engine
import fake_torch
import numpy as np
from cubinery import Conv, Decode, Prefill, Verify
from cubinery.plugins import _common

K_HEADS, V_HEADS, DIM, WIDTH, SLOTS = 2, 4, 16, 4, 12
CHANNELS = 2 * K_HEADS * DIM + V_HEADS * DIM
QKVZ = CHANNELS + V_HEADS * DIM
RELEASE = "vllm-0.33.0"

Launch = namedtuple("Launch", "form arrays")


class QwenGatedDeltaNetAttention:
    """What the plugin sees of vLLM's class."""

    def __new__(cls, *args, **kwargs):
        return super().__new__(cls)

    def __init__(
        self, config, vllm_config, prefix="", gqa_interleaved_layout=False, reduce_results=True
    ):
        torch = vllm_config.torch
        self.vllm_config, self.prefix = vllm_config, prefix
        self.model_config = types.SimpleNamespace(dtype=torch.bfloat16)
        self.activation, self.num_spec = config["activation"], config["drafts"]
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
        self.ran = []
        self.state_dtype = torch.float32

    def bind_kv_cache(self, kv_cache):
        self.kv_cache = kv_cache

    def get_state_dtype(self):
        return self.conv1d.weight.dtype, self.state_dtype

    def get_attn_backend(self):
        raise RuntimeError("VLLM batch_invariant mode is not supported for GDN_ATTN.")

    def split_ba(self, ba):
        return ba[:, :V_HEADS], ba[:, V_HEADS:]

    def _forward_core(self, mixed_qkv, b, a, core_attn_out):
        self.ran.append("core")

    def _forward_core_fused_norm_packed(self, mixed_qkvz, ba, core_attn_out):
        self.ran.append("core with norm")

    def _rms_norm_gated_cuda(self, x, output_gate, out):
        assert x.shape == output_gate.shape == out.shape
        self.ran.append(("norm", x.shape[0]))


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
        layer = type(QwenGatedDeltaNetAttention.__name__, (QwenGatedDeltaNetAttention,), {})
        layer.register_oot = classmethod(lambda cls, name: self._register(name))
        fake_engine.install(
            RELEASE, monkeypatch, QwenGatedDeltaNetAttention=layer, op_registry_oot=self.taken,
            get_forward_context=lambda: types.SimpleNamespace(attn_metadata=self.metadata),
            is_conv_state_dim_first=lambda: self.dims_first, VLLM_BATCH_INVARIANT=False,
            _encode_layer_name=lambda layer_name: layer_name,
            current_platform=types.SimpleNamespace(is_cuda=lambda: True),
        )  # fmt: skip
        for cls in (Decode, Prefill, Verify, Conv):
            monkeypatch.setattr(cls, "__call__", self._noted(cls.__call__))

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
        self, drafts=0, gate="silu", activation="silu", checkpoints=False, bound=True, mode=3, **more
    ):  # fmt: skip
        self.plugin.register()
        config = {"drafts": drafts, "gate": gate, "activation": activation, "checkpoints": checkpoints}
        vllm_config = types.SimpleNamespace(
            torch=self.torch, additional_config={"gdn_prefill_backend": "triton"},
            scheduler_config=types.SimpleNamespace(max_num_seqs=8),
            compilation_config=types.SimpleNamespace(mode=mode),
        )  # fmt: skip
        layer = self.taken["QwenGatedDeltaNetAttention"](config, vllm_config, "l", **more)
        if bound:
            layer.bind_kv_cache(self.pools(WIDTH - 1 + drafts))
            self.launches.clear()
            layer.ran.clear()
        return layer

    def pools(self, columns):
        """Slots of both states in one page, as vLLM has them."""
        item = fake_torch.stored("bfloat16").itemsize
        conv, state = item * columns * CHANNELS, 4 * V_HEADS * DIM * DIM
        pages = self.torch.empty((SLOTS, conv + state + 512), dtype=self.torch.uint8).array
        shape = (columns, CHANNELS)
        if self.dims_first:
            shape = (CHANNELS, columns)
        one = pages[:, :conv].view(fake_torch.stored("bfloat16")).reshape(SLOTS, *shape)
        other = pages[:, conv : conv + state].view(np.float32)
        assert np.shares_memory(one, pages)
        return (
            fake_torch.Tensor(one, self.torch.bfloat16),
            fake_torch.Tensor(other.reshape(SLOTS, V_HEADS, DIM, DIM), self.torch.float32),
        )

    def run(self, layer, tokens, packed=False, more=3, qkvz=None, ba=None, **fields):
        """One batch of so many tokens, and `more` rows behind them that are none."""
        given = {name: None for name in FIELDS} | {"num_actual_tokens": tokens}
        for name in ("num_prefills", "num_decode_tokens", "num_spec_decodes", "num_prefill_tokens"):
            given[name] = 0
        for name, value in fields.items():
            if isinstance(value, (list, np.ndarray)):
                is_bool = getattr(value, "dtype", None) == np.bool_
                value = fake_torch.tensor(value, self.torch.bool if is_bool else self.torch.int32)
            given[name] = value
        m = types.SimpleNamespace(**given)
        self.metadata = {"l": m}
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

    @property
    def forms(self):
        return [launch.form for launch in self.launches]


FIELDS = [
    each["name"]
    for each in fake_engine.record(RELEASE)["objects"][
        "vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadata"
    ]["parameters"]
]
