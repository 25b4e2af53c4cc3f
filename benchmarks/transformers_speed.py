"""Times of a Transformers model with and without cubinery.compat.transformers.

    transformers_speed.py [--layers 8] [--tokens 4096] [--new 64] [--repeats 5]
                          [--out FILE.json] [--commit abc1234]

The model is of Qwen3-Next's shapes in bf16, with random weights, few layers and few experts: one
prompt goes through it, and is continued greedily by `--new` tokens.  Without cubinery it runs
Transformers' own torch code: FLA and causal-conv1d, which Transformers takes where they are
installed, are hidden from it.
"""

import argparse
import logging
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from compare import record

VOCABULARY = 4096
# What Transformers imports in place of its own code.
KERNELS = ("fla", "causal_conv1d")


def hide_kernels() -> None:
    """Makes imports of KERNELS fail.  Requires: nobody has imported Transformers or them."""
    if loaded := [name for name in ("transformers", *KERNELS) if name in sys.modules]:
        raise RuntimeError(f"{', '.join(loaded)}: imported before the torch code could be chosen")
    sys.modules.update(dict.fromkeys(KERNELS))


class Refusals(logging.Handler):
    """What the adapter says of calls that it leaves to Transformers."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: list[str] = []

    def emit(self, line: logging.LogRecord) -> None:
        self.said.append(line.getMessage())


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


def shapes(config: Any) -> dict[str, Any]:
    """What a record says of the model."""
    return {
        "name": config.model_type,
        "dtype": "bf16",
        "layers": config.num_hidden_layers,
        "linear_layers": config.layer_types.count("linear_attention"),
        "hidden_size": config.hidden_size,
        "qk_heads": config.linear_num_key_heads,
        "v_heads": config.linear_num_value_heads,
        "key_dim": config.linear_key_head_dim,
        "value_dim": config.linear_value_head_dim,
        "experts": config.num_experts,
    }


def milliseconds(torch: Any, call: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def spread(times: list[float]) -> dict[str, float]:
    found = {"ms": statistics.median(times), "ms_min": min(times), "ms_max": max(times)}
    return {name: record.significant(ms) for name, ms in found.items()}


def measured(torch: Any, model: Any, ids: Any, new: int, repeats: int) -> dict[str, Any]:
    """Of the prompt, and of a token behind it, what generating `new` more than one takes longer:
    median, least and most of the repeats, behind one that warms up."""
    options = {"do_sample": False, "pad_token_id": 0}

    def prefill() -> Any:
        return model(ids, logits_to_keep=1, use_cache=True)

    def generate(count: int) -> Any:
        return model.generate(ids, max_new_tokens=count, min_new_tokens=count, **options)

    prefill()
    generate(2)
    prefills, tokens = [], []
    for _ in range(repeats):
        prefills.append(milliseconds(torch, prefill))
        first = milliseconds(torch, lambda: generate(1))
        every = milliseconds(torch, lambda: generate(1 + new))
        tokens.append((every - first) / new)
    return {"prefill": spread(prefills), "token": spread(tokens)}


def main(arguments: list[str]) -> int:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", help="where the record goes")
    parser.add_argument("--commit", default="unknown")
    parsed = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("skipped: no usable GPU")
        return 77
    hide_kernels()

    from cubinery.compat import transformers

    refusals = Refusals()
    logger = logging.getLogger("cubinery.compat.transformers")
    logger.addHandler(refusals)
    logger.setLevel(logging.INFO)
    with torch.inference_mode():
        model = build(torch, parsed.layers)
        ids = torch.randint(1, VOCABULARY, (1, parsed.tokens), device="cuda")
        torch_code = measured(torch, model, ids, parsed.new, parsed.repeats)
        transformers.enable(model)
        ours = measured(torch, model, ids, parsed.new, parsed.repeats)
        transformers.disable()
    if refusals.said:
        print("cubinery did not do all of it:", *refusals.said, sep="\n  ", file=sys.stderr)
        return 1

    head = {
        "gpu": torch.cuda.get_device_name(),
        "driver": record.driver_version(),
        "packages": record.versions(),
        "model": shapes(model.config),
        "hidden": list(KERNELS),
        "repeats": parsed.repeats,
    }
    results = record.Record(parsed.out, parsed.commit, head)
    sizes = {
        "prefill": {"tokens": parsed.tokens},
        "token": {"tokens": parsed.new, "behind": parsed.tokens},
    }
    for what, with_ours in ours.items():
        without = torch_code[what]
        ratio = record.significant(without["ms"] / with_ours["ms"])
        print(f"{what}: {without['ms']:g} ms without, {with_ours['ms']:g} ms with, {ratio:g}x")
        contenders = {"torch": without, record.OURS: with_ours}
        row = {"op": "transformers", "measured": what, **sizes[what]}
        results.add({**row, "contenders": contenders, "ratio": ratio})
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
