"""Times of a Transformers model with and without cubinery.compat.transformers, as one JSON line.

    transformers_speed.py [--layers 8] [--tokens 4096] [--new 64] [--repeats 5]

The model is of Qwen3-Next's shapes in bf16, with random weights, few layers and few experts: one
prompt goes through it (median of the repeats), and is continued greedily by `--new` tokens.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

VOCABULARY = 4096


def build(torch: Any, layers: int) -> Any:
    """A model on the GPU: hidden size, heads and dims of Qwen3-Next-80B-A3B, 16 experts."""
    from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextForCausalLM

    config = Qwen3NextConfig(
        vocab_size=VOCABULARY,
        num_hidden_layers=layers,
        num_experts=16,
        num_experts_per_tok=4,
        pad_token_id=0,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return Qwen3NextForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)


def seconds(torch: Any, call: Callable[[], Any], repeats: int) -> float:
    """Median of some calls, behind one that warms up."""
    call()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measured(torch: Any, model: Any, ids: Any, new: int, repeats: int) -> dict[str, float]:
    """Milliseconds of the prompt, and of a token behind it."""
    options = {"do_sample": False, "pad_token_id": 0}

    def generate(count: int) -> Any:
        return model.generate(ids, max_new_tokens=count, min_new_tokens=count, **options)

    prefill = seconds(torch, lambda: model(ids, logits_to_keep=1, use_cache=True), repeats)
    first = seconds(torch, lambda: generate(1), repeats)
    every = seconds(torch, lambda: generate(1 + new), repeats)
    return {
        "prefill_ms": round(prefill * 1e3, 2),
        "generate_ms": round(every * 1e3, 2),
        "token_ms": round((every - first) / new * 1e3, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()

    import torch
    import transformers

    from cubinery.compat import transformers as compat

    with torch.inference_mode():
        model = build(torch, args.layers)
        ids = torch.randint(1, VOCABULARY, (1, args.tokens), device="cuda")
        theirs = measured(torch, model, ids, args.new, args.repeats)
        compat.enable(model)
        ours = measured(torch, model, ids, args.new, args.repeats)
        compat.disable()
    line = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        **vars(args),
        "without": theirs,
        "with": ours,
        "ratio": {name: round(theirs[name] / ours[name], 2) for name in ours},
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
