"""Small random models with the linear layers of the real ones, saved as Transformers saves them.

Three of four layers are linear; heads, dims and taps are those of Qwen3-Next, Qwen3.5 and
Kimi-Linear (Kimi Delta Attention) at tensor-parallel size 1.  There are enough layers for a step to
take longer on the GPU than on the host.  Weights are drawn so that logits are far from ties.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

KINDS = ("qwen3_5", "qwen3_next", "kimi_linear")
VOCABULARY = 4096
LAYERS = 24
LINEAR_LAYERS = LAYERS * 3 // 4
POSITIONS = 32768
LAYER_TYPES = (["linear_attention"] * 3 + ["full_attention"]) * (LAYERS // 4)
_ARCHITECTURES = {
    "qwen3_5": "Qwen3_5ForCausalLM", "qwen3_next": "Qwen3NextForCausalLM",
    "kimi_linear": "KimiLinearForCausalLM",
}  # fmt: skip


def _config(kind: str) -> Any:
    import transformers

    common = {
        "vocab_size": VOCABULARY,
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "num_hidden_layers": LAYERS,
        "layer_types": LAYER_TYPES,
        "num_attention_heads": 8,
        "linear_conv_kernel_dim": 4,
        "max_position_embeddings": POSITIONS,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if kind == "kimi_linear":
        return transformers.KimiLinearConfig(
            **common, num_key_value_heads=8, mlp_layer_types=["dense"] * LAYERS, pad_token_id=0,
            linear_num_heads=32, linear_head_dim=128,
        )  # fmt: skip
    common |= {
        "full_attention_interval": 4,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
    }
    if kind == "qwen3_5":
        return transformers.Qwen3_5TextConfig(**common, mamba_ssm_dtype="float32")
    # vLLM's class wants one layer with experts.
    return transformers.Qwen3NextConfig(
        **common, num_experts=8, num_experts_per_tok=2, mlp_only_layers=list(range(LAYERS - 1)),
        moe_intermediate_size=512, shared_expert_intermediate_size=512,
    )  # fmt: skip


def _as_checkpoints(config: dict[str, Any]) -> dict[str, Any]:
    """Kimi-Linear's as Moonshot writes it, which vLLM reads; of experts there are none."""
    layers: dict[str, list[int]] = {}
    for number, name in enumerate(LAYER_TYPES, 1):
        layers.setdefault(name, []).append(number)
    del config["num_experts"]
    return config | {
        "mla_use_nope": True, "max_position_embeddings": POSITIONS,
        "linear_attn_config": {
            "kda_layers": layers["linear_attention"], "full_attn_layers": layers["full_attention"],
            "head_dim": config["linear_head_dim"], "num_heads": config["linear_num_heads"],
            "short_conv_kernel_size": config["linear_conv_kernel_dim"],
        },
    }  # fmt: skip


def _rename_weights(path: Path, old: str, new: str) -> None:
    from safetensors.torch import load_file, save_file

    found = {name.replace(old, new): weight for name, weight in load_file(path).items()}
    renamed = path.with_suffix(".renamed")
    save_file(found, renamed, metadata={"format": "pt"})
    renamed.replace(path)


def make(folder: Path, kind: str) -> None:
    """Writes config.json and weights in bf16; nothing where they are there."""
    if (folder / "config.json").exists():
        return
    import torch
    import transformers

    torch.manual_seed(0)
    model = getattr(transformers, _ARCHITECTURES[kind])(_config(kind))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("A_log"):
                weight.copy_(torch.empty_like(weight).uniform_(1, 16).log())
            elif name.endswith("dt_bias"):
                weight.uniform_(-6, 0)
            elif name.endswith("conv1d.weight"):
                weight.normal_(0, 0.4)
            elif weight.dim() >= 2:
                weight.normal_(0, 1 if "embed" in name else weight.shape[-1] ** -0.5)
    model.to(torch.bfloat16).save_pretrained(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["architectures"] = [_ARCHITECTURES[kind]]
    if kind == "kimi_linear":
        config = _as_checkpoints(config)
        # Transformers names MLPs without experts as those with some.
        _rename_weights(folder / "model.safetensors", ".block_sparse_moe.", ".mlp.")
    path.write_text(json.dumps(config, indent=1))
