"""A prefill on several GPUs beside the same prefill on one of them.

    torchrun --nproc-per-node 2 benchmarks/ranks.py [--out FILE.json]

One layer, one sequence, random q, k and v in bf16.  Gates: `decaying`, g = -A softplus(N(0, 1) - 3)
with A from 0.001 to 8 over the heads; `undecayed`, g = 0; `never`, g = 0 and beta below 0.002, so
that nothing is forgotten.  Every launch begins behind a collective of all ranks, with the host ahead of
the GPUs; a time is that of the slowest rank, exchange included, and the figure is the median.  One GPU: what the library
chooses without context_parallel, on rank 0.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional
from torch import distributed

import cubinery

DIM = 128
# Heads of keys and values, tokens, tokens of a segment, decay.
ROWS = [
    (16, 64, 32768, 16384, "head"),
    (16, 64, 131072, 32768, "head"),
    (16, 64, 1048576, 131072, "head"),
    (2, 8, 131072, 8192, "head"),
    (2, 8, 1048576, 32768, "head"),
    (32, 32, 131072, 16384, "channel"),
    (8, 8, 131072, 8192, "channel"),
]
HEAD_START = 2_000_000  # cycles that the host is ahead of the GPU, as in a running engine
GATES = ["decaying", "undecayed", "never"]


def problem_of(row: tuple[int, int, int, int, str], on_ranks: bool) -> cubinery.PrefillProblem:
    heads, v_heads, _, segment, decay = row
    return cubinery.PrefillProblem(
        q_heads=heads, k_heads=heads, v_heads=v_heads, gate_dtype="f32", beta_dtype="f32",
        varlen=True, use_qk_l2norm=True, context_parallel=on_ranks, segment_tokens=segment,
        decay=decay,
    )  # fmt: skip


def operands(
    row: tuple[int, int, int, int, str], gates: str, tokens: int, device: torch.device
) -> tuple[list[Any], dict[str, Any]]:
    """q, k, v, g and beta of one sequence, and what else a launch takes."""
    heads, v_heads, _, _, decay = row

    def random_rows(count: int) -> torch.Tensor:
        rows = torch.empty(tokens, count, DIM, device=device, dtype=torch.bfloat16)
        return rows.normal_()

    q, k, v = random_rows(heads), random_rows(heads), random_rows(v_heads)
    beta = torch.rand(tokens, v_heads, device=device) * (0.002 if gates == "never" else 1)
    g = torch.zeros(tokens, v_heads, device=device)
    if gates == "decaying":
        slopes = torch.linspace(0.001, 8, v_heads, device=device)
        g = -slopes * functional.softplus(torch.randn(tokens, v_heads, device=device) - 3)
    if decay == "channel":
        g = g[..., None].expand(tokens, v_heads, DIM).contiguous()
    state = torch.zeros(1, v_heads, DIM, DIM, device=device)
    rest = {
        "out": torch.empty_like(v), "state": state, "state_out": torch.empty_like(state),
        "cu_seqlens": torch.tensor([0, tokens], dtype=torch.int32, device=device),
    }  # fmt: skip
    return [q, k, v, g, beta], rest


def milliseconds(
    name: str, call: Callable[[], Any], launches: int, device: torch.device, alone: bool
) -> dict[str, float]:
    """Median, least and most of the launches, each as long as on the slowest rank."""
    times = []
    token = torch.zeros(1, device=device)
    for launch in range(launches + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if not alone:
            distributed.all_reduce(token)
        torch.cuda._sleep(HEAD_START)  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        end.synchronize()
        if launch >= 2:  # behind compilation and first connections
            times.append(begin.elapsed_time(end))
    slowest = torch.tensor(times, device=device)
    if not alone:
        distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
    times = slowest.tolist()
    return {
        f"{name}_ms": round(statistics.median(times), 4),
        f"{name}_least_ms": round(min(times), 4), f"{name}_most_ms": round(max(times), 4),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON to write, as benchmarks/results/ranks")
    parser.add_argument("--commit", default="", help="what is measured")
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--most-tokens", type=int, default=1048576, help="leaves out longer rows")
    arguments = parser.parse_args()
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
    torch.cuda.set_device(device)
    distributed.init_process_group("nccl", device_id=device)
    count = distributed.get_world_size()
    context = cubinery.Context(device.index)
    found = []
    rows = [row for row in ROWS if row[2] <= arguments.most_tokens]
    for row in rows:
        for gates in GATES:
            tokens, segment = row[2], row[3]
            times: dict[str, float] = {}
            if rank == 0:
                arrays, rest = operands(row, gates, tokens, device)
                one = context.prepare(problem_of(row, on_ranks=False))
                rest["workspace"] = torch.empty(
                    one.workspace_bytes(tokens, 1), dtype=torch.uint8, device=device
                )
                times |= milliseconds(
                    "one", lambda: one(*arrays, **rest), arguments.launches, device, alone=True
                )
                del arrays, rest
                torch.cuda.empty_cache()
            share = cubinery.ranks.shares([tokens], count, segment)[rank]
            arrays, rest = operands(row, gates, share.tokens, device)
            prefill = cubinery.ranks.RankPrefill(context.prepare(problem_of(row, on_ranks=True)))
            rest["workspace"] = torch.empty(
                prefill.prefill.workspace_bytes(share.tokens, 1), dtype=torch.uint8, device=device
            )
            times |= milliseconds(
                "ranks", lambda: prefill(*arrays, share=share, **rest),
                arguments.launches, device, alone=False,
            )  # fmt: skip
            del arrays, rest
            torch.cuda.empty_cache()
            if rank != 0:
                continue
            names = ("qk_heads", "v_heads", "tokens", "segment_tokens", "decay")
            origin = {"commit": arguments.commit, "date": datetime.date.today().isoformat()}
            found.append(
                {**dict(zip(names, row)), "gates": gates, "ranks": count, **times, **origin}
            )
            print(json.dumps(found[-1]), flush=True)
    if arguments.out and rank == 0:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({"gpu": torch.cuda.get_device_name(device), "rows": found}, file, indent=1)
            file.write("\n")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
