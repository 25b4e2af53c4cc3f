"""What an engine's runs with and without cubinery have in common, and where they differ."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any


def first_difference(mine: list[int], theirs: list[int]) -> int | None:
    for i, (one, other) in enumerate(zip(mine, theirs)):
        if one != other:
            return i
    return None


def tokens(mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """How many greedy tokens are those of the engine alone up to the first that is not, and how
    close to a tie the engine's own choice was there.  A tie is what lies within the errors of both
    runs: either order of the two tokens is a right one."""
    tie = mine["error"]["max"] + theirs["error"]["max"]
    same = total = 0
    margins = []
    for ours, other, margin in zip(mine["tokens"], theirs["tokens"], theirs["margins"]):
        at = first_difference(ours, other)
        total += len(ours)
        same += len(ours) if at is None else at
        if at is not None:
            margins.append(round(margin[at], 4))
    return {"same": same, "of": total, "margins": margins, "tie": tie,
            "only_ties": all(margin < tie for margin in margins)}  # fmt: skip


def errors(record: dict[str, Any], model: Path, prompts: list[list[int]]) -> dict[str, float]:
    """How far the log probabilities of the chosen tokens are from those of Transformers in f32."""
    import torch
    import transformers

    exact = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    exact = exact.cuda().eval()
    differences: list[float] = []
    with torch.no_grad():
        for prompt, chosen, given in zip(prompts, record["tokens"], record["logprobs"]):
            row = torch.tensor([prompt + chosen[:-1]], device="cuda")
            logits = exact(row).logits[0, len(prompt) - 1 :].float()
            wanted = torch.log_softmax(logits, -1)
            wanted = wanted.gather(1, torch.tensor(chosen, device="cuda")[:, None])[:, 0]
            differences += (wanted.cpu() - torch.tensor(given)).abs().tolist()
    return {"max": max(differences), "mean": statistics.fmean(differences)}


def speedups(mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, float]:
    """Medians of the engine alone over ours: above 1 ours is faster."""
    return {
        name.removesuffix("_s"): statistics.median(theirs[name]) / statistics.median(times)
        for name, times in mine.items()
        if name.endswith("_s") and isinstance(times, list) and name in theirs
    }


def layer_times(mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Microseconds of the GPU in a step that one of two runs has and the other has not: what both
    launch (projections, attention, MLP) cancels out, the core of the linear layers is left.  Of a
    kernel that both launch, the launches that one of them has more."""
    found = {}
    for name, ours in mine["profiles"].items():
        other = theirs["profiles"][name]
        found[name] = {"ours": _own(ours, other), "alone": _own(other, ours)}
        found[name]["speedup"] = found[name]["alone"] / found[name]["ours"]
    return found


def _own(run: dict[str, Any], other: dict[str, Any]) -> float:
    total = 0.0
    for kernel, (count, time) in run["kernels"].items():
        there = other["kernels"].get(kernel, (0, 0.0))[0] * run["steps"] / other["steps"]
        total += time * max(0.0, 1.0 - there / count)
    return total / run["steps"]


def gpu_us(run: dict[str, Any], load: str) -> float:
    """Microseconds of all that a step runs on the GPU."""
    profile = run["profiles"][load]
    return float(sum(time for _, time in profile["kernels"].values()) / profile["steps"])
