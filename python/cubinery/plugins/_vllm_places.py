"""What of vLLM its plugin takes the place of, and what that has to be like."""

from __future__ import annotations

from cubinery.plugins._common import Place, Seams

GDN = "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn"
KIMI = "vllm.model_executor.layers.mamba.gdn.kimi_gdn_linear_attn"
KIMI_K3 = "vllm.models.kimi_k3.nvidia.kda"
GLM = "vllm.models.glm5next.common.kda"
BASE = "vllm.model_executor.custom_op:PluggableLayer"
UTILS = "vllm.model_executor.layers.mamba.mamba_utils"
METADATA = "vllm.v1.attention.backends.gdn_attn"
BREAK = "vllm.compilation.breakable_cudagraph:eager_break_during_capture"


# What layers need, whatever their class.
SHARED: Seams = {
    BASE: (),
    f"{UTILS}:is_conv_state_dim_first": (),
    "vllm.forward_context:get_forward_context": (),
    "vllm.model_executor.custom_op:op_registry_oot": (),
    "vllm.model_executor.layers.mamba.checkpoint:MambaPrefillCheckpointMetadata": (
        "checkpoint_offsets", "state_indices",
    ),
    f"{METADATA}:GDNAttentionBackend.supports_batch_invariance": (),
    f"{METADATA}:GDNAttentionMetadata": (
        "num_prefills", "num_decodes", "num_decode_tokens", "num_spec_decodes",
        "num_actual_tokens", "checkpoint", "spec_query_start_loc", "spec_state_indices_tensor",
        "non_spec_state_indices_tensor", "spec_token_indx", "non_spec_token_indx",
        "num_accepted_tokens", "prefill_query_start_loc", "prefill_state_indices",
        "prefill_has_initial_state", "nums_dict", "num_prefill_tokens",
    ),
    "vllm.envs:VLLM_BATCH_INVARIANT": (),
    "vllm.platforms:current_platform": (),
}  # fmt: skip


def _layer(path: str, methods: Seams) -> Seams:
    """A class of layers with what it has of the base, and methods of its own."""
    base: Seams = {
        "register_oot": ("name",), "bind_kv_cache": ("kv_cache",), "get_attn_backend": (),
        "get_state_dtype": (),
    }  # fmt: skip
    of_methods = {f"{path}.{name}": taken for name, taken in {**base, **methods}.items()}
    return {path: ("config", "vllm_config", "prefix"), **of_methods}


_QWEN = f"{GDN}:QwenGatedDeltaNetAttention"
QWEN = Place(
    _QWEN,
    {
        **_layer(_QWEN, {
            "split_ba": ("ba",),
            "_forward_core": ("mixed_qkv", "b", "a", "core_attn_out"),
            "_forward_core_fused_norm_packed": ("mixed_qkvz", "ba", "core_attn_out"),
            "_rms_norm_gated_cuda": ("x", "output_gate", "out"),
        }),
        f"{GDN}:_encode_layer_name": (),
        f"{GDN}:qwen_gdn_attention_core_fused_norm_packed": (
            "mixed_qkvz", "ba", "core_attn_out", "layer_name",
        ),
    },
    (
        "A_log", "_checkpoint_alignment", "_forward_method", "activation", "conv1d",
        "conv_kernel_size", "dt_bias", "enable_fused_gdn_spec_decode", "gqa_interleaved_layout",
        "head_k_dim", "head_v_dim", "in_proj_ba", "in_proj_qkvz", "key_dim", "kv_cache",
        "layer_norm_epsilon", "model_config", "norm", "num_k_heads", "num_spec", "num_v_heads",
        "out_proj", "prefix", "tp_size", "value_dim",
    ),
)  # fmt: skip

_KDA_ATTRIBUTES = (
    "A_log", "conv_size", "dt_bias", "head_dim", "kv_cache", "local_num_heads", "model_config",
    "num_spec", "o_norm", "prefix",
)  # fmt: skip
_KIMI_FORWARD = {"_forward": ("mixed_qkv", "g1", "g2", "beta", "core_attn_out")}

_LINEAR = f"{KIMI}:KimiGatedDeltaNetAttention"
KIMI_LINEAR = Place(
    _LINEAR,
    {**_layer(_LINEAR, _KIMI_FORWARD), BREAK: ("fn",)},
    (*_KDA_ATTRIBUTES, "conv1d", "gate_lower_bound"),
)
_K3 = f"{KIMI_K3}:KimiK3DeltaAttention"
K3 = Place(
    _K3,
    {
        **_layer(_K3, {**_KIMI_FORWARD, "get_kv_cache_spec": ("vllm_config",)}),
        BREAK: ("fn",),
        "vllm.models.kimi_k3.nvidia.kda_metadata:KimiK3KDAMetadata": (
            "has_initial_state", "non_spec_query_start_loc", "non_spec_token_start",
            "num_spec_decode_tokens", "spec_token_start",
        ),
        "vllm.v1.kv_cache_interface:MambaSpec": ("prefill_checkpoint_alignment",),
    },
    (
        *_KDA_ATTRIBUTES, "_checkpoint_exporter", "cache_config", "conv1d", "gate_lower_bound",
        "use_recoverssm",
    ),
)  # fmt: skip
_GLM = f"{GLM}:Glm5NextLinearAttention"
GLM5_NEXT = Place(
    _GLM,
    {
        **_layer(_GLM, {
            "_forward": ("qkv_proj_states", "g1", "beta", "core_attn_out"),
            "forward": ("hidden_states", "positions"),
            "get_kv_cache_spec": ("vllm_config",),
        }),
        BREAK: ("fn",),
        "vllm.v1.kv_cache_interface:MambaSpec": ("prefill_checkpoint_alignment",),
    },
    (
        *_KDA_ATTRIBUTES, "_checkpoint_exporter", "_merged_conv_weight", "cache_config",
        "f_b_proj", "g_b_proj", "in_proj_qkvbfg_a", "k_conv1d", "kda_lower_bound",
        "local_projection_size", "o_proj", "q_conv1d", "v_conv1d",
    ),
)  # fmt: skip

# Classes of linear layers that stay as they are, and what their models are called.
LEFT = {
    "vllm.model_executor.models.bailing_moe_v3:BailingMoeV3KimiDeltaAttention": "Ling-3.0",
    "vllm.model_executor.layers.mamba.gdn.olmo_gdn_linear_attn:OlmoHybridGatedDeltaNetAttention": (
        "OLMo-Hybrid"
    ),
}

PLACES = (QWEN, KIMI_LINEAR, K3, GLM5_NEXT)
SEAMS: dict[str, tuple[str, ...]] = {**SHARED}
for _place in PLACES:
    SEAMS.update(_place.seams)
ATTRIBUTES = {place.path: place.attributes for place in PLACES}
