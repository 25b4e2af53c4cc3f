"""Host time of one call from Python: operator objects, functions, and FLA's functions.

    python_host.py [--out FILE.json] [--commit abc1234]

One request of 16 key and 32 value heads (prefill: 64 tokens), of Gated DeltaNet and of Kimi Delta
Attention (kda_).  The calls follow each other without waiting for the GPU, which is faster than the
host here; a round is 200 of them, and the figure is the median of 20 rounds.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from compare import record

ROUNDS, CALLS = 20, 200
KEY_HEADS, HEADS, DIM, TOKENS = 16, 32, 128, 64


def host_us(torch: Any, call: Callable[[], Any]) -> float:
    """Median microseconds of a call."""
    call()
    rounds = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - start) / CALLS)
    return record.significant(statistics.median(rounds) * 1e6)


def arrays(torch: Any, decay: str, *lead: int) -> list[Any]:
    """q, k, v in bf16, g and beta in f32."""
    q, k, v = (
        torch.randn(*lead, heads, DIM, device="cuda").to(torch.bfloat16)
        for heads in (KEY_HEADS, KEY_HEADS, HEADS)
    )
    g = -torch.rand(*lead, HEADS, *([DIM] if decay == "channel" else []), device="cuda")
    return [q, k, v, g, torch.rand(*lead, HEADS, device="cuda")]


def ours(torch: Any, decay: str) -> dict[str, Callable[[], Any]]:
    """Our calls by the names of their rows, without what is in front of each."""
    import cubinery

    context = cubinery.Context(torch.cuda.current_device())
    heads = {"q_heads": KEY_HEADS, "k_heads": KEY_HEADS, "v_heads": HEADS, "decay": decay}
    decode = context.prepare(cubinery.DecodeProblem(**heads))
    prefill = context.prepare(cubinery.PrefillProblem(**heads))
    one, many = arrays(torch, decay, 1), arrays(torch, decay, 1, TOKENS)
    state = torch.zeros(1, HEADS, DIM, DIM, device="cuda")
    out, outs = torch.empty_like(one[2]), torch.empty_like(many[2])
    size = prefill.workspace_bytes(TOKENS, 1)
    workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
    return {
        "python_decode_us": lambda: decode(*one, out=out, state=state),
        "python_gdn_decode_us": lambda: cubinery.gdn_decode(*one, state=state, context=context),
        "python_prefill_us": lambda: prefill(*many, out=outs, state=state, workspace=workspace),
        "python_gdn_prefill_us": lambda: cubinery.gdn_prefill(*many, state=state, context=context),
    }


def fla(torch: Any, decay: str) -> dict[str, Callable[[], Any]]:
    """FLA's calls; none without it."""
    try:
        if decay == "channel":
            from fla.ops.kda import chunk_kda as chunk, fused_recurrent_kda as recurrent
        else:
            from fla.ops.gated_delta_rule import (
                chunk_gated_delta_rule as chunk,
                fused_recurrent_gated_delta_rule as recurrent,
            )
    except ImportError as error:
        print(f"fla is missing: {error}", file=sys.stderr)
        return {}
    one, many = arrays(torch, decay, 1, 1), arrays(torch, decay, 1, TOKENS)
    state = torch.zeros(1, HEADS, DIM, DIM, device="cuda")
    given = {"initial_state": state, "output_final_state": True}
    q, k, v, g, beta = one
    return {
        "fla_decode_us": lambda: recurrent(q, k, v, g, beta=beta, **given),
        "fla_prefill_us": lambda: chunk(*many, **given),
    }


def main(arguments: list[str]) -> int:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="where the record goes")
    parser.add_argument("--commit", default="unknown")
    parsed = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("skipped: no usable GPU")
        return 77
    head = {
        "gpu": torch.cuda.get_device_name(),
        "driver": record.driver_version(),
        "packages": record.versions(),
    }
    results = record.Record(parsed.out, parsed.commit, head)
    with torch.no_grad():
        for decay, prefix in (("head", ""), ("channel", "kda_")):
            for name, call in (ours(torch, decay) | fla(torch, decay)).items():
                value = host_us(torch, call)
                print(f"{prefix}{name}: {value:g}")
                results.add({"op": "host", "name": prefix + name, "value": value, "unit": "us"})
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
