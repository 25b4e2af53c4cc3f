"""What of SGLang its plugin works on: the places that it takes, and a layer with its problems."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cubinery._problem import Problem
from cubinery.plugins._common import Kind, Layer, Place, Seams
from cubinery.problems import ConvProblem, DecodeProblem, PrefillProblem, VerifyProblem

_LINEAR = "sglang.srt.layers.attention.linear"
CONV_UPDATE = "sglang.kernels.ops.mamba.causal_conv1d_triton:causal_conv1d_update"
EXECUTION = "sglang.srt.runtime_context:get_exec"
HOOKS = "sglang.srt.plugins.hook_registry"
IS_CUDA = "sglang.srt.utils:is_cuda"
KDA_CONFIG = "sglang.srt.configs.hybrid_arch:hybrid_kda_config"
METADATA = "sglang.srt.layers.attention.mamba.mamba2_metadata:ForwardMetadata"
STABLE_ROWS = f"{_LINEAR}.utils:pp_spec_stable_rows_enabled"
_POOL = "sglang.srt.mem_cache.memory_pool"

# What layers need, whatever their class.
SHARED: Seams = {
    METADATA: (
        "query_start_loc", "mamba_cache_indices", "has_mamba_track_mask", "track_conv_indices",
        "track_ssm_h_src", "conv_states_mask_indices", "retrieve_next_token",
        "retrieve_parent_token", "logical_num_tokens",
    ),
    f"{_POOL}:HybridReqToTokenPool.mamba2_layer_cache": ("layer_id",),
    f"{_POOL}:MambaPool.State": ("conv", "temporal", "replayssm_d", "replayssm_rawv"),
    f"{_POOL}:MambaPool.SpeculativeState": ("intermediate_ssm", "intermediate_conv_window"),
    "sglang.srt.layers.radix_linear_attention:RadixLinearAttention": (
        "layer_id", "num_q_heads", "num_k_heads", "num_v_heads", "head_q_dim", "head_k_dim",
        "head_v_dim", "conv_weights", "bias", "activation", "A_log", "dt_bias", "lower_bound",
    ),
    CONV_UPDATE: (
        "x", "conv_state", "weight", "bias", "activation", "conv_state_indices",
        "intermediate_conv_window", "intermediate_state_indices",
    ),
    EXECUTION: (),
    IS_CUDA: (),
    STABLE_ROWS: (),
    f"{HOOKS}:HookRegistry.register": ("target", "hook", "hook_type"),
    f"{HOOKS}:HookType.REPLACE": (),
}  # fmt: skip


def _backend(path: str, seams: Seams, *attributes: str) -> Place:
    """A back end with seams and attributes of its own besides those that all have."""
    methods: Seams = {
        "forward_decode": ("layer", "forward_batch", "mixed_qkv", "a", "b"),
        "forward_extend": ("layer", "forward_batch", "mixed_qkv", "a", "b"),
        "_track_mamba_state_decode": (
            "forward_batch", "conv_states", "ssm_states", "cache_indices", "layer_id",
        ),
        "_track_mamba_state_extend": ("forward_batch", "h", "ssm_states", "forward_metadata"),
    }  # fmt: skip
    of_methods = {f"{path}.{name}": taken for name, taken in methods.items()}
    shared = ("forward_metadata", "req_to_token_pool", "verify_intermediate_state_indices")
    return Place(path, {path: ("model_runner",), **of_methods, **seams}, (*shared, *attributes))


GDN = _backend(f"{_LINEAR}.gdn_backend:GDNAttnBackend", {}, "mis_metadata")
_KDA = f"{_LINEAR}.kda_backend:KDAAttnBackend"
KDA = _backend(
    _KDA,
    {f"{_KDA}.supports_prefill_graph_extend": (), KDA_CONFIG: ("model_config",)},
    "accept_lens_pool", "prefill_graph_metadata",
)  # fmt: skip

PLACES = (GDN, KDA)
SEAMS: Seams = {**SHARED, **GDN.seams, **KDA.seams}
ATTRIBUTES = {place.path: place.attributes for place in PLACES}

PAD = -1  # any negative slot is one of rows of padding
CHUNK = 64  # tokens between the states of which SGLang's radix cache takes some


@dataclass(frozen=True)
class SglangLayer(Layer):
    """A layer as SGLang has it.  Its drafts are the tokens of a request, the first included."""

    activation: str = "silu"
    index_dtype: str = "i32"

    @property
    def indices(self) -> dict[str, Any]:
        return {"index_dtype": self.index_dtype}

    @property
    def conv_activation(self) -> dict[str, Any]:
        return {"conv_activation": self.activation}


def problems(layer: SglangLayer) -> dict[str, Problem[Any]]:
    """What a layer launches, by the names of its forms: all of it, and nothing else."""
    conv = {**layer.conv, **layer.indices, "activation": layer.activation}
    pool = {**layer.heads, **layer.states, **layer.indices}
    prefill = PrefillProblem(**pool, **layer.gates_of_prefill, varlen=True)
    found: dict[str, Problem[Any]] = {
        "conv": ConvProblem(**conv, **layer.gates_of_conv, varlen=True),
        "prefill": prefill,
        "prefill_kept": replace(prefill, checkpoints="before", checkpoint_every=CHUNK),
    }
    decode = DecodeProblem(**pool, **layer.gates)
    if layer.joins_conv:
        found["decode"] = replace(decode, **layer.conv_of_decode, **layer.conv_activation)
    else:
        found["decode"] = decode
        found["conv_decode"] = ConvProblem(**conv)
    if layer.drafts > 0:
        found["verify"] = VerifyProblem(
            **pool, **layer.gates, draft_tokens=layer.drafts, stored_states="every"
        )
    return found


KINDS = {
    "decode": Kind("decoding", ("conv_decode", "decode")),
    "prefill": Kind("prefill", ("conv", "prefill")),
    "prefill_kept": Kind("prefill for the radix cache", ("conv", "prefill_kept")),
    "verify": Kind("the verification of drafts", ("verify",)),
}
