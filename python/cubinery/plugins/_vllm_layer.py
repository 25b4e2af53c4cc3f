"""What of vLLM its plugin works on: the places that it takes, a layer with its problems, a batch, the
pools.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from cubinery._context import Context
from cubinery._problem import Problem
from cubinery.plugins import _common
from cubinery.plugins._common import Kind, Layer
from cubinery.problems import ConvProblem, DecodeProblem, PrefillProblem, VerifyProblem

GDN = "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn"
METADATA = "vllm.v1.attention.backends.gdn_attn"
CLASS = f"{GDN}:QwenGatedDeltaNetAttention"

# What the plugin needs of vLLM: objects, and the parameters that they take.
SEAMS: dict[str, tuple[str, ...]] = {
    CLASS: ("config", "vllm_config", "prefix"),
    f"{CLASS}.register_oot": ("name",),
    f"{CLASS}.bind_kv_cache": ("kv_cache",),
    f"{CLASS}.get_attn_backend": (),
    f"{CLASS}.get_state_dtype": (),
    f"{CLASS}.split_ba": ("ba",),
    f"{CLASS}._forward_core": ("mixed_qkv", "b", "a", "core_attn_out"),
    f"{CLASS}._forward_core_fused_norm_packed": ("mixed_qkvz", "ba", "core_attn_out"),
    f"{CLASS}._rms_norm_gated_cuda": ("x", "output_gate", "out"),
    f"{GDN}:is_conv_state_dim_first": (),
    f"{GDN}:_encode_layer_name": (),
    f"{GDN}:qwen_gdn_attention_core_fused_norm_packed": (
        "mixed_qkvz", "ba", "core_attn_out", "layer_name",
    ),
    "vllm.forward_context:get_forward_context": (),
    "vllm.model_executor.custom_op:op_registry_oot": (),
    "vllm.model_executor.layers.mamba.checkpoint:MambaPrefillCheckpointMetadata": (
        "checkpoint_offsets", "state_indices",
    ),
    f"{METADATA}:GDNAttentionBackend.supports_batch_invariance": (),
    f"{METADATA}:GDNAttentionMetadata": (
        "num_prefills", "num_decode_tokens", "num_spec_decodes", "num_actual_tokens", "checkpoint",
        "spec_query_start_loc", "spec_state_indices_tensor", "non_spec_state_indices_tensor", "spec_sequence_masks",
        "spec_token_indx", "non_spec_token_indx", "num_accepted_tokens", "prefill_query_start_loc",
        "prefill_state_indices", "prefill_has_initial_state", "nums_dict", "num_prefill_tokens",
    ),
    "vllm.envs:VLLM_BATCH_INVARIANT": (),
    "vllm.platforms:current_platform": (),
}  # fmt: skip
# What it reads of a layer, set by the class's __init__.
ATTRIBUTES = (
    "A_log", "_checkpoint_alignment", "_forward_method", "activation", "conv1d",
    "conv_kernel_size", "dt_bias", "enable_fused_gdn_spec_decode",
    "gqa_interleaved_layout", "head_k_dim", "head_v_dim", "in_proj_ba", "in_proj_qkvz", "key_dim",
    "kv_cache", "layer_norm_epsilon", "model_config", "norm", "num_k_heads", "num_spec",
    "num_v_heads", "out_proj", "prefix", "tp_size", "value_dim", "vllm_config",
)  # fmt: skip

NULL_BLOCK = 0  # the slot of rows of padding
CHUNK = 64  # what the tokens in front of a state inside a prefill are a multiple of
NORMS = {"silu": "gated_rms", "swish": "gated_rms", "sigmoid": "sigmoid_gated_rms"}


# ---- A layer -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VllmLayer(Layer):
    """A layer as vLLM has it."""

    output_norm: str = "none"  # what is behind the recurrence, in its launch
    norm_weight_dtype: str = "f32"
    keeps_states: bool = False  # inside a prefill, for prefix caching

    @property
    def norm(self) -> dict[str, Any]:
        if self.output_norm == "none":
            return {}
        return {"output_norm": self.output_norm, "norm_weight_dtype": self.norm_weight_dtype}

    @property
    def decodes_in_one_launch(self) -> bool:
        """That takes windows without gaps, which those of columns have beside drafts'."""
        has_gaps = self.drafts > 0 and self.conv_state_layout == "columns"
        return self.joins_conv and not has_gaps


def problems(layer: VllmLayer) -> dict[str, Problem[Any]]:
    """What a layer launches, by the names of its forms: all of it, and nothing else."""
    decode = DecodeProblem(**layer.heads, **layer.gates, **layer.states, **layer.norm)
    conv = ConvProblem(**layer.conv, **layer.gates_of_conv, varlen=True)
    prefill = PrefillProblem(**layer.heads, **layer.gates_of_prefill, **layer.states, varlen=True)
    found: dict[str, Problem[Any]]
    if layer.keeps_states:  # where a launch has none to keep, too
        prefill = replace(prefill, checkpoints="at", checkpoint_every=CHUNK)
        found = {"conv_kept": replace(conv, checkpoints="at"), "prefill_kept": prefill}
    else:
        found = {"conv": conv, "prefill": prefill}
    if layer.decodes_in_one_launch:
        found["decode"] = replace(decode, **layer.conv_of_decode)
    else:
        found["decode"] = decode
        found["conv_decode"] = ConvProblem(**layer.conv)
    if layer.drafts > 0:
        found["conv_verify"] = ConvProblem(**layer.conv, varlen=True, from_accepted=True)
        found["verify"] = VerifyProblem(
            **layer.heads, **layer.gates, **layer.states, **layer.norm, varlen=True,
            draft_tokens=layer.drafts + 1, stored_states="every", from_accepted=True,
        )  # fmt: skip
    return found


@cache
def supported(context: Context, layer: VllmLayer) -> VllmLayer:
    """With the convolution and the norm in launches of their own where no kernel has them inside.
    The norm is then vLLM's."""
    plain = replace(layer, output_norm="none")
    wished = (layer, replace(layer, joins_conv=False), plain, replace(plain, joins_conv=False))
    return min(wished, key=lambda each: len(_common.without_path(context, problems(each))))


KINDS = {
    "decode": Kind("decoding", ("conv_decode", "decode")),
    "prefill": Kind("prefill", ("conv", "prefill", "conv_kept", "prefill_kept")),
    "verify": Kind("the verification of drafts", ("conv_verify", "verify")),
}


# ---- A batch -------------------------------------------------------------------------------------


@dataclass
class Step:
    """What the layers of a batch share: its kinds of work, and views of vLLM's metadata."""

    tokens: int
    kinds: tuple[str, ...]
    decoded: int = 0  # so many tokens in front
    slots_decoded: Any = None
    slots: Any = None  # of what is prefilled
    bounds: Any = None
    has_state: Any = None
    longest: int | None = None
    verified: tuple[Any, ...] = ()  # slots of steps, first slots, accepted, bounds
    drafts: Any = None  # which tokens are drafts, and which are not, where a batch has both
    others: Any = None
    kept: tuple[Any, ...] = ()  # of each prefill a state inside: its offset, its slot

    @classmethod
    def of(cls, m: Any) -> Step:
        step = cls(tokens=m.num_actual_tokens, kinds=())
        if m.spec_sequence_masks is not None:
            step._verify(m)
        else:
            step.decoded = m.num_decode_tokens if m.num_prefills > 0 else step.tokens
            if step.decoded > 0:
                step.kinds += ("decode",)
                step.slots_decoded = m.non_spec_state_indices_tensor[: step.decoded]
        if m.num_prefills > 0:
            step._prefill(m)
        return step

    def _verify(self, m: Any) -> None:
        count = m.num_spec_decodes
        slots = m.spec_state_indices_tensor[:count]
        bounds = m.spec_query_start_loc[: count + 1]
        self.kinds += ("verify",)
        self.verified = (slots, slots[:, 0], m.num_accepted_tokens[:count], bounds)
        if m.num_prefills > 0:
            self.drafts, self.others = m.spec_token_indx, m.non_spec_token_indx

    def _prefill(self, m: Any) -> None:
        count = m.num_prefills
        self.bounds = m.prefill_query_start_loc[: count + 1]
        self.slots = m.prefill_state_indices[:count]
        self.has_state = m.prefill_has_initial_state[:count]
        if m.nums_dict is not None:  # of each sequence its blocks of 8 tokens, on the host
            blocks = int(m.nums_dict[8]["nums"].max())
            self.longest = max(1, min(8 * blocks, m.num_prefill_tokens))
        self.kinds += ("prefill",)
        if m.checkpoint is not None:  # decodes are in front there
            rows = (m.checkpoint.checkpoint_offsets, m.checkpoint.state_indices)
            self.kept = tuple(row[-count:, None] for row in rows)


def step_of(m: Any) -> Step:
    step = m.__dict__.get("_cubinery")
    if step is None:
        step = m._cubinery = Step.of(m)
    found: Step = step
    return found


# ---- Its pools -----------------------------------------------------------------------------------


class Pools(tuple[Any, ...]):
    """A layer's kv_cache, with the views of it that launches take.  They live as long as it."""

    conv: Any  # [slots, channels, columns]
    window: Any  # its first columns, in front of those of drafts
    state: Any

    @classmethod
    def of(cls, kv_cache: Any, layer: VllmLayer) -> Pools:
        pools = cls(kv_cache)
        conv, pools.state = kv_cache[:2]
        pools.conv = conv if layer.conv_state_layout == "columns" else conv.transpose(-1, -2)
        pools.window = pools.conv[:, :, : layer.conv_width - 1]
        return pools
