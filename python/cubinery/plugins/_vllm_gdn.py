"""vLLM's layers of Gated DeltaNet on cubinery: Qwen3-Next's and Qwen3.5's."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from cubinery._errors import UnsupportedError
from cubinery.plugins import _common
from cubinery.plugins._vllm_core import Core
from cubinery.plugins._vllm_layer import VllmLayer
from cubinery.plugins._vllm_places import GDN, QWEN

_FEW = 512  # tokens whose columns are gathered, instead of copied part by part


class QwenCore(Core):
    _cubinery_place = QWEN
    _cubinery_orders: Mapping[tuple[int, ...], Any] = {}

    @classmethod
    def _cubinery_find(cls) -> SimpleNamespace:
        found = super()._cubinery_find()
        found.core = _common.seam(f"{GDN}:qwen_gdn_attention_core_fused_norm_packed")
        found.layer_name = _common.seam(f"{GDN}:_encode_layer_name")
        return found

    def _cubinery_describe(self) -> VllmLayer:
        if self.activation not in ("silu", "swish"):
            raise UnsupportedError(f"hidden_act = {self.activation!r}; supported: 'silu'")
        layer = self._cubinery_layer_of(
            self.conv1d.weight,
            k_heads=self.num_k_heads // self.tp_size,
            v_heads=self.num_v_heads // self.tp_size,
            key_dim=self.head_k_dim,
            value_dim=self.head_v_dim,
            conv_width=self.conv_kernel_size,
            keeps_states=self._checkpoint_alignment is not None,
        )
        return self._cubinery_with_norm(layer) if self._cubinery_takes_gate() else layer

    def _cubinery_takes_gate(self) -> bool:
        """Whether the core is handed z too: by a form of vLLM's forward(), or by ours, where nothing
        compiles the pieces of theirs into one."""
        is_eager = self._cubinery_config.compilation_config.mode == 0
        return (
            (not self.gqa_interleaved_layout or is_eager)
            and self._cubinery_norm_kind() is not None
            and self.norm.group_size is None
            and bool(self.norm.norm_before_gate)
        )

    def _cubinery_norm(self) -> tuple[Any, float]:
        return self.norm, self.layer_norm_epsilon

    def _cubinery_norm_behind(self, out: Any, z: Any) -> None:
        self._rms_norm_gated_cuda(out, z, out)

    # ---- While the engine starts ----

    def _cubinery_begin(self) -> None:
        if self._cubinery_takes_gate():
            # vLLM's forward() then leaves the gated norm to the core, in every batch.
            self.enable_fused_gdn_spec_decode = True
            if self.gqa_interleaved_layout:
                self._forward_method = self._cubinery_forward

    def _cubinery_finish(self) -> None:
        if self.gqa_interleaved_layout:
            groups = self.num_k_heads // self.tp_size
            self._cubinery_orders = {
                widths: _order(groups, widths, self.A_log.device)
                for widths in self._cubinery_widths()
            }

    # ---- While it serves ----

    def _forward_core(self, mixed_qkv: Any, b: Any, a: Any, core_attn_out: Any) -> Any:
        if not self._cubinery_run(mixed_qkv, b, a, None, core_attn_out):
            return super()._forward_core(mixed_qkv, b, a, core_attn_out)

    def _forward_core_fused_norm_packed(self, mixed_qkvz: Any, ba: Any, core_attn_out: Any) -> Any:
        b, a = self.split_ba(ba)
        channels = mixed_qkvz.shape[1] - self.value_dim // self.tp_size
        x, z = mixed_qkvz[:, :channels], self._cubinery_z(mixed_qkvz)
        if not self._cubinery_run(x, b, a, z, core_attn_out):
            return super()._forward_core_fused_norm_packed(mixed_qkvz, ba, core_attn_out)

    def _cubinery_forward(self, hidden_states: Any) -> Any:
        """forward() of projections whose heads are groups of q, k, v and z (Qwen3-Next): puts them
        in order in one launch each, or few, where vLLM's takes eight."""
        qkvz, ba = self.in_proj_qkvz(hidden_states)[0], self.in_proj_ba(hidden_states)[0]
        qkvz, ba = map(self._cubinery_ordered, (qkvz, ba), self._cubinery_widths())
        tokens = hidden_states.size(0)
        heads = self.num_v_heads // self.tp_size
        out = hidden_states.new_zeros((tokens, heads, self.head_v_dim))
        self._cubinery_vllm.core(qkvz, ba, out, self._cubinery_vllm.layer_name(self.prefix))
        return self.out_proj(out.flatten(-2))[0]

    def _cubinery_widths(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of the parts of a group: q, k, v and z; b and a."""
        per_key = self.num_v_heads // self.num_k_heads
        values = per_key * self.head_v_dim
        return (self.head_k_dim, self.head_k_dim, values, values), (per_key, per_key)

    def _cubinery_ordered(self, x: Any, widths: tuple[int, ...]) -> Any:
        """The parts of all groups behind each other: [.., (group, part)] as [.., (part, group)]."""
        groups = self.num_k_heads // self.tp_size
        if x.shape[0] <= _FEW and widths in self._cubinery_orders:
            return x.index_select(1, self._cubinery_orders[widths])
        ordered, at, first = x.new_empty(x.shape), 0, 0
        grouped = x.unflatten(-1, (groups, -1))
        for width in widths:
            part = ordered[:, at : at + groups * width].unflatten(-1, (groups, width))
            part.copy_(grouped[:, :, first : first + width])
            at, first = at + groups * width, first + width
        return ordered

    def _cubinery_z(self, mixed_qkvz: Any) -> Any:
        width = self.value_dim // self.tp_size
        return mixed_qkvz[:, mixed_qkvz.shape[1] - width :].unflatten(-1, (-1, self.head_v_dim))


def _order(groups: int, widths: tuple[int, ...], device: Any) -> Any:
    """The columns of parts in order, of those that lie in groups."""
    import torch

    columns: list[int] = []
    first, total = 0, sum(widths)
    for width in widths:
        for group in range(groups):
            columns += range(group * total + first, group * total + first + width)
        first += width
    return torch.tensor(columns, device=device)
