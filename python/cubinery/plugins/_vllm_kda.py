"""vLLM's layers of Kimi Delta Attention on cubinery: those that Kimi-Linear and AliceAI share, and
Kimi-K3's and GLM-5.3-Flash's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from cubinery.plugins._vllm_core import Core
from cubinery.plugins._vllm_layer import CHUNK, VllmLayer
from cubinery.plugins._vllm_places import GLM5_NEXT, K3, KIMI_LINEAR


class KdaCore(Core):
    """What the classes have in common."""

    # Outputs lie in memory that nobody has written.
    _cubinery_padding: ClassVar[dict[str, Any]] = {"zero_padding": True}

    def _cubinery_bound(self) -> float | None:
        bound: float | None = self.gate_lower_bound
        return bound

    def _cubinery_gates(self) -> dict[str, Any]:
        gates = {"A_log": self.A_log.view(-1), "dt_bias": self.dt_bias}
        bound = self._cubinery_bound()
        return gates if bound is None else {**gates, "lower_bound": bound}

    def _cubinery_describe(self) -> VllmLayer:
        heads, dim = self.local_num_heads, self.head_dim
        layer = self._cubinery_layer_of(
            self._cubinery_convolutions()[0].weight, k_heads=heads, v_heads=heads, key_dim=dim,
            value_dim=dim, conv_width=self.conv_size, decay="channel",
            gate_mode="computed" if self._cubinery_bound() is None else "lower_bound",
        )  # fmt: skip
        return self._cubinery_with_norm(layer)

    def _cubinery_convolutions(self) -> tuple[Any, ...]:
        return (self.conv1d,)

    def _cubinery_norm(self) -> tuple[Any, float]:
        return self.o_norm, self.o_norm.eps

    def _cubinery_norm_behind(self, out: Any, z: Any) -> None:
        out.copy_(self.o_norm(out[None], z)[0])


class KimiCore(KdaCore):
    _cubinery_place = KIMI_LINEAR
    _cubinery_breaks = ("_forward",)

    def _forward(self, mixed_qkv: Any, g1: Any, g2: Any, beta: Any, core_attn_out: Any) -> Any:
        if not self._cubinery_run(mixed_qkv, beta[0], g1[0], g2, core_attn_out[0]):
            return super()._forward(mixed_qkv, g1, g2, beta, core_attn_out)


class KeepsStates(KdaCore):
    """States inside a prefill, where vLLM's own prefill has them, too."""

    def _cubinery_describe(self) -> VllmLayer:
        is_cached = self.cache_config.mamba_cache_mode == "align"
        keeps = is_cached and self._checkpoint_exporter is not None
        return replace(super()._cubinery_describe(), keeps_states=keeps)

    def get_kv_cache_spec(self, vllm_config: Any) -> Any:
        # vLLM asks for states where this says it, of whoever serves a batch.
        spec = super().get_kv_cache_spec(vllm_config)
        if self._cubinery_kernels is None or not self._cubinery_layer.keeps_states:
            return spec
        return replace(spec, prefill_checkpoint_alignment=CHUNK)


class K3Core(KeepsStates, KimiCore):
    _cubinery_place = K3

    def _cubinery_describe(self) -> VllmLayer:
        layer = super()._cubinery_describe()
        if self.use_recoverssm and self.num_spec > 0:
            why = "it keeps records of drafts instead of their states (--use-replayssm)"
            self._cubinery_refuse("the verification of drafts", why)
            return replace(layer, verifies=False)
        return layer


class GlmCore(KeepsStates):
    _merged_conv_weight: Any
    _cubinery_place = GLM5_NEXT
    _cubinery_breaks = ("_forward", "_cubinery_gated")

    def _cubinery_bound(self) -> float | None:
        bound: float | None = self.kda_lower_bound
        return bound

    def _cubinery_convolutions(self) -> tuple[Any, ...]:
        return (self.q_conv1d, self.k_conv1d, self.v_conv1d)

    def _cubinery_weight(self) -> Any:
        if self._merged_conv_weight is None:  # as vLLM's own does, once weights are loaded
            import torch

            weights = [each.weight for each in self._cubinery_convolutions()]
            self._merged_conv_weight = torch.cat([each.view(-1, each.size(2)) for each in weights])
        return self._merged_conv_weight

    def forward(self, hidden_states: Any, positions: Any) -> Any:
        if not self._cubinery_norms():
            return super().forward(hidden_states, positions)
        # With the norm in the core.
        dim = self.head_dim
        widths = [3 * self.local_projection_size, self.local_num_heads, dim, dim]
        qkv, b, a, z = self.in_proj_qkvbfg_a(hidden_states)[0].split(widths, dim=-1)
        a = self.f_b_proj(a)[0].unflatten(-1, (-1, dim))
        z = self.g_b_proj(z)[0].unflatten(-1, (-1, dim))
        out = hidden_states.new_empty((hidden_states.size(0), self.local_num_heads, dim))
        self._cubinery_gated(qkv, a, z, b, out)
        return self.o_proj(out.flatten(-2))[0]

    def _cubinery_gated(self, qkv: Any, a: Any, z: Any, b: Any, out: Any) -> None:
        """_forward() with the norm behind it."""
        if not self._cubinery_run(qkv, b, a, z, out):
            super()._forward(qkv, a[None], b[None], out[None])
            self._cubinery_norm_behind(out, z)

    def _forward(self, qkv_proj_states: Any, g1: Any, beta: Any, core_attn_out: Any) -> Any:
        if not self._cubinery_run(qkv_proj_states, beta[0], g1[0], None, core_attn_out[0]):
            return super()._forward(qkv_proj_states, g1, beta, core_attn_out)
