"""Small models of Hugging Face Transformers with Gated DeltaNet layers, or with Kimi Delta Attention,
with random weights."""

from __future__ import annotations

import importlib
from typing import Any

HIDDEN, VOCABULARY = 128, 512
_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 128,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}
_DENSE = {"intermediate_size": 256}
_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
}
_HEAD = {"head_dim": 32}
# Of each model: its configuration's and its class's name, and what it needs beside _COMMON.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "qwen3_next": ("Qwen3NextConfig", "Qwen3NextForCausalLM", {**_DENSE, **_EXPERTS, **_HEAD}),
    "qwen3_5": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM", {**_DENSE, **_HEAD}),
    "qwen3_5_moe": ("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM", {**_EXPERTS, **_HEAD}),
    "olmo_hybrid": ("OlmoHybridConfig", "OlmoHybridForCausalLM", _DENSE),
}

# Of those with Kimi Delta Attention; what they need beside _OF_KDA.
_OF_KDA = {
    **{name: _COMMON[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers")},
    **{name: _COMMON[name] for name in ("pad_token_id", "bos_token_id", "eos_token_id")},
    **{"num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 8192},
    **{"intermediate_size": 256, "moe_intermediate_size": 64, "num_local_experts": 4},
    **{"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "kv_lora_rank": 32},
    **{"qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32},
}
KDA_MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "kimi_linear": (
        "KimiLinearConfig",
        "KimiLinearForCausalLM",
        {**{"linear_head_dim": 64, "linear_num_heads": 4}, "layer_types": _COMMON["layer_types"]},
    ),
    "bailing_hybrid": (
        "BailingHybridConfig",
        "BailingHybridForCausalLM",
        {"head_dim": 64, "layer_group_size": 4, "first_k_dense_replace": 1},
    ),
}
# A model without a head.
GLM: dict[str, tuple[str, str, dict[str, Any]]] = {
    "glm5_next": (
        "Glm5NextTextConfig",
        "Glm5NextTextModel",
        {
            **{"q_lora_rank": 32, "n_routed_experts": 4, "linear_head_dim": 64},
            **{"linear_num_heads": 4, "index_head_dim": 32, "index_n_heads": 2},
            **{"index_topk": 64, "index_kpool": 4, "qk_rope_head_dim": 0},
        },
    )
}


def modeling(name: str) -> Any:
    """The module that defines a model's layers."""
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def build(name: str, seed: int = 0, **changes: Any) -> Any:
    """A causal language model on the CPU, in float32, for inference."""
    import torch

    common = _COMMON if name in MODELS else _OF_KDA
    configuration, model, options = (MODELS | KDA_MODELS | GLM)[name]
    configurations = importlib.import_module(f"transformers.models.{name}.configuration_{name}")
    config = getattr(configurations, configuration)(**{**common, **options, **changes})
    config._attn_implementation = config._experts_implementation = "eager"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built = getattr(modeling(name), model)(config).eval()
        _spread(built)
    return built


def _spread(model: Any) -> None:
    """Weights as after training: initial ones give logits that are nearly alike, and gates that
    forget at once."""
    import torch

    for name, parameter in model.named_parameters():
        with torch.no_grad():
            if name.endswith("A_log"):
                parameter.copy_(torch.empty_like(parameter).uniform_(0.05, 4).log())
            elif name.endswith("dt_bias"):
                parameter.uniform_(-4, 0)
            elif name.endswith("conv1d.weight"):
                parameter.uniform_(-1, 1)
            elif parameter.dim() >= 2:
                parameter.normal_(0, parameter.shape[-1] ** -0.5)


def prompt(batch: int, tokens: int, seed: int = 0) -> Any:
    """Token ids [batch, tokens], none of them padding."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, VOCABULARY, (batch, tokens), generator=generator)
