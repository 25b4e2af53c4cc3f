"""An SGLang that is not there, with the plugin: its modules as recorded, what the plugin sees of its
back ends, of a layer, of its pools and its metadata, on the GPU of fake_torch.py.
"""

from __future__ import annotations

import importlib
import types

import fake_engine
import fake_torch
from cubinery import Conv, Decode, Prefill, Verify
from cubinery.plugins import _common

K_HEADS, V_HEADS, DIM, WIDTH, SLOTS = 2, 4, 16, 4, 12
CHANNELS = 2 * K_HEADS * DIM + V_HEADS * DIM
RELEASE = "sglang-0.5.23"
METADATA = fake_engine.record(RELEASE)["objects"][
    "sglang.srt.layers.attention.mamba.mamba2_metadata:ForwardMetadata"
]


class _Backend:
    """What the plugin sees of SGLang's classes."""

    def __init__(self, model_runner):
        self.req_to_token_pool = model_runner.req_to_token_pool
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


class GDNAttnBackend(_Backend):
    mis_metadata = None


class KDAAttnBackend(_Backend):
    accept_lens_pool = None
    prefill_graph_metadata = None

    def supports_prefill_graph_extend(self):
        return True


class Engine:
    """SGLang with the plugin, a back end and a layer of Gated DeltaNet or of Kimi Delta Attention.

    Args:
        bound: the lower bound of a layer's gates, and of its model's configuration.
    """

    def __init__(self, monkeypatch, torch, context, caplog, is_kda, bound=None):
        self.torch, self.context, self._caplog = torch, context, caplog
        self.is_kda, self.bound = is_kda, bound
        self.launches = []
        self.convolved = []
        self.deterministic = False
        self.taken = {}
        self.config = types.SimpleNamespace(linear_attn_config={"gate_lower_bound": bound})
        self.plugin = importlib.reload(importlib.import_module("cubinery.plugins.sglang"))
        monkeypatch.setattr(_common, "logged_context", lambda device, log: context)
        execution = lambda: types.SimpleNamespace(
            deterministic=types.SimpleNamespace(enable_deterministic_inference=self.deterministic)
        )
        fake_engine.install(
            RELEASE, monkeypatch, GDNAttnBackend=GDNAttnBackend, KDAAttnBackend=KDAAttnBackend,
            get_exec=execution, is_cuda=lambda: True, pp_spec_stable_rows_enabled=lambda: False,
            causal_conv1d_update=self._convolve, hybrid_kda_config=lambda model_config: self.config,
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

    def windows(self, array):
        """[.., channels, columns] as SGLang keeps them, and back."""
        return array.transpose(-1, -2) if self.is_kda else array

    def pools(self, drafts):
        torch = self.torch
        bf16 = torch.bfloat16
        found = {name: None for name in ("replayssm_d", "replayssm_rawv")}
        window = (WIDTH - 1, CHANNELS) if self.is_kda else (CHANNELS, WIDTH - 1)
        found["conv"] = [torch.empty((SLOTS, *window), dtype=bf16)]
        found["temporal"] = torch.empty((SLOTS, V_HEADS, DIM, DIM), dtype=torch.float32)
        if drafts:
            rows = SLOTS + 1
            found["intermediate_ssm"] = torch.empty((rows, drafts, V_HEADS, DIM, DIM))
            found["intermediate_conv_window"] = [self._windows_of_drafts(rows, drafts)]
        return types.SimpleNamespace(**found)

    def _windows_of_drafts(self, rows, drafts):
        bf16 = self.torch.bfloat16
        if self.is_kda:
            return self.torch.empty((rows, drafts, WIDTH - 1, CHANNELS), dtype=bf16)
        # They overlap in memory.
        whole = self.torch.empty((rows, CHANNELS, drafts + WIDTH - 2), dtype=bf16)
        row, channel, column = whole.stride()
        return whole.as_strided((rows, drafts, CHANNELS, WIDTH - 1), (row, column, channel, column))

    def backend(self, drafts=0):
        self.plugin.register()
        cache = self.pools(drafts)
        pool = types.SimpleNamespace(mamba_map={7: 0}, mamba2_layer_cache=lambda layer_id: cache)
        runner = types.SimpleNamespace(
            req_to_token_pool=pool, dtype=self.torch.bfloat16, model_config=None
        )
        gdn, kda = self.taken.values()
        backend = (kda if self.is_kda else gdn)(runner)
        backend.cache = cache
        backend.layer = self.layer()
        return backend

    def layer(self, activation="silu"):
        torch = self.torch
        dtype = torch.float32 if self.is_kda else torch.bfloat16
        decays = (V_HEADS * DIM,) if self.is_kda else (V_HEADS,)
        return types.SimpleNamespace(
            layer_id=7, num_q_heads=K_HEADS, num_k_heads=K_HEADS, num_v_heads=V_HEADS,
            head_q_dim=DIM, head_k_dim=DIM, head_v_dim=DIM, bias=None, activation=activation,
            q_dim=K_HEADS * DIM, k_dim=K_HEADS * DIM, lower_bound=self.bound,
            conv_weights=torch.zeros((CHANNELS, WIDTH), dtype=dtype),
            A_log=torch.zeros((1, 1, V_HEADS, 1) if self.is_kda else (V_HEADS,)),
            dt_bias=torch.zeros(decays, dtype=dtype),
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

    def inputs(self, tokens, kind="decode"):
        """x, a and b as models of both sorts have them."""
        torch = self.torch
        bf16 = torch.bfloat16
        x = torch.zeros((tokens, CHANNELS), dtype=bf16)
        if not self.is_kda:
            return x, *(torch.zeros((tokens, V_HEADS), dtype=bf16) for _ in "ab")
        shape = {
            "decode": (tokens, V_HEADS * DIM),
            "prefill": (1, tokens, V_HEADS, DIM),  # Kimi's
            "verify": (1, tokens, V_HEADS * DIM),  # GLM's
        }[kind]
        return x, torch.zeros(shape, dtype=bf16), torch.zeros((1, tokens, V_HEADS), dtype=bf16)

    def decode(self, backend, slots, given=None):
        backend.forward_metadata = self.metadata(slots, range(len(slots) + 1))
        x, a, b = given or self.inputs(len(slots))
        return x, backend.forward_decode(backend.layer, None, x, a, b)

    def extend(
        self, backend, slots, bounds, drafts=0, given=None, past=None, ragged_verify_layout=None,
        out=None, **fields,
    ):  # fmt: skip
        backend.forward_metadata = self.metadata(slots, bounds, **fields)
        x, a, b = given or self.inputs(bounds[-1], "verify" if drafts else "prefill")
        past = [5, 0, 70, 0][: len(slots)] if past is None else past
        batch = types.SimpleNamespace(
            forward_mode=types.SimpleNamespace(is_target_verify=lambda: drafts > 0),
            extend_prefix_lens=fake_torch.tensor(past),
            spec_info=types.SimpleNamespace(
                draft_token_num=drafts, ragged_verify_layout=ragged_verify_layout
            ),
        )  # fmt: skip
        more = {} if out is None else {"linear_attn_output": out}
        return x, backend.forward_extend(backend.layer, batch, x, a, b, **more)
