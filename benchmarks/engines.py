#!/usr/bin/env python3
"""vLLM on small models with the real linear layers, alone and with cubinery's plugin: tokens, log
probabilities, speed, and what was compiled.

    python3 benchmarks/engines.py --out engines.json
    python3 benchmarks/engines.py --kinds qwen3_5 --scenarios plain,drafts --modes off,cold,offline
    python3 benchmarks/engines.py --modes off,pack --cubinery build/cli/cubinery --tp 2
    python3 benchmarks/engines.py --kinds kimi_linear --scenarios plain   # Kimi Delta Attention

Modes, each run in a process of its own:

    off      vLLM alone, with the kernels that it chooses itself (--prefill-backend names others)
    cold     with cubinery, from an empty cache
    warm     the same once more
    offline  the same, and compiling is forbidden; engine kernels in place of ours are an error
    pack     offline, from an empty cache, above a pack that `cubinery prewarm --engine vllm` filled
             from the model's config.json

Scenarios: plain (decode of 1, 16 and 64 requests in CUDA graphs, prefill of 4 x 4096 tokens),
drafts (n-gram, three of them), prefix (prefix caching), chunked (steps of 512 tokens), compiled
(torch.compile, prefill in pieces of graphs), invariant (VLLM_BATCH_INVARIANT, cubinery only).

Needs a GPU, vLLM and cubinery in this Python.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "engines"))

import judge  # noqa: E402
import models  # noqa: E402
import run_vllm  # noqa: E402

MODES = ("off", "cold", "warm", "offline", "pack")


def environment(args: argparse.Namespace, kind: str, scenario: str, mode: str) -> dict[str, str]:
    found = dict(os.environ, CUBINERY_PLUGIN="off" if mode == "off" else "force")
    found |= {"CUBINERY_PLUGIN_COUNT": "1", "CUBINERY_CACHE_DIR": str(cache_of(args, kind, scenario, mode))}
    if mode in ("offline", "pack"):
        found["CUBINERY_OFFLINE"] = "1"
    if mode == "pack":
        found["CUBINERY_CACHE_LAYERS"] = str(fill_pack(args, kind, scenario))
    if scenario == "invariant":
        found["VLLM_BATCH_INVARIANT"] = "1"
    return found


def cache_of(args: argparse.Namespace, kind: str, scenario: str, mode: str) -> Path:
    """Of cold, warm and offline one and the same; one that nobody wrote to for a pack."""
    return args.work / f"cache_{kind}_{scenario}{'_pack' if mode == 'pack' else ''}"


def fill_pack(args: argparse.Namespace, kind: str, scenario: str) -> Path:
    """What an operator does where the image is made; asks no GPU for anything."""
    pack = args.work / f"{kind}_{scenario}.pack"
    filled = args.work / f"filled_{kind}_{scenario}"
    drafts = run_vllm.DRAFTS + 1 if scenario == "drafts" else 0
    invariant = ["--batch-invariant", "true"] if scenario == "invariant" else []
    for command in (
        ["prewarm", "--engine", "vllm", "--hf-config", str(args.work / kind / "config.json"), "--tp",
         str(args.tp), "--draft-tokens", str(drafts), "--arch", args.arch, *invariant],
        ["cache", "export", "--output", str(pack)],
    ):  # fmt: skip
        subprocess.run([args.cubinery, *command, "--cache-dir", str(filled)], check=True)
    return pack


def entries(cache: Path) -> int:
    return sum(1 for _ in cache.rglob("*.entry")) if cache.exists() else 0


def run(args: argparse.Namespace, kind: str, scenario: str, mode: str) -> dict[str, Any]:
    """The record of one run; {"failed": ..} with the end of its output."""
    cache = cache_of(args, kind, scenario, mode)
    out = args.work / f"{kind}_{scenario}_{mode}.json"
    log = out.with_suffix(".log")
    command = [sys.executable, str(Path(run_vllm.__file__)), str(args.work / kind), scenario, str(out),
               "--prefill-backend", args.prefill_backend if mode == "off" else "auto",
               "--attention-backend", args.attention_backend, "--tp", str(args.tp),
               "--engine-options", args.engine_options]  # fmt: skip
    surroundings = environment(args, kind, scenario, mode)
    before, start = entries(cache), time.perf_counter()
    with log.open("w") as file:
        done = subprocess.run(
            command, env=surroundings, stdout=file, stderr=subprocess.STDOUT
        )
    seconds = time.perf_counter() - start
    print(f"{kind} {scenario} {mode}: exit {done.returncode}, {seconds:.0f} s", flush=True)
    record = {"kind": kind, "mode": mode, "scenario": scenario, "process_s": seconds,
              "compiled": entries(cache) - before}  # fmt: skip
    if done.returncode != 0:
        return record | {"failed": log.read_text(errors="replace")[-3000:]}
    said = [line for line in log.read_text(errors="replace").splitlines() if "cubinery" in line]
    return record | json.loads(out.read_text()) | {"said": said[:20]}


def alone_of(record: dict[str, Any], done: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The run of the engine alone that one with cubinery is compared with."""
    same = (other for other in done if other["mode"] == "off" and other is not record
            and (other["kind"], other["scenario"]) == (record["kind"], record["scenario"]))  # fmt: skip
    return next(same, None)


def compare(records: list[dict[str, Any]], args: argparse.Namespace) -> None:
    """Adds to each record what it has in common with the engine alone."""
    done = [record for record in records if "failed" not in record]
    for record in done:
        record["error"] = judge.errors(record, args.work / record["kind"], run_vllm.prompts())
    for record in done:
        other = alone_of(record, done)
        if other is not None:
            record["tokens_as_alone"] = judge.tokens(record, other)
            record["speedup"] = judge.speedups(record, other)
            record["layers_us"] = judge.layer_times(record, other)


def summary(records: list[dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    """What scripts/write_results.py reads: a row for each load, engine alone and with cubinery."""
    done = [record for record in records if "failed" not in record]
    rows, starts = [], []
    for record in done:
        alone = alone_of(record, done)
        starts.append({name: record[name] for name in
                       ("kind", "scenario", "mode", "start_s", "first_token_s", "compiled")})  # fmt: skip
        if alone is None:
            continue
        for load, times in record["layers_us"].items():
            rows.append({
                "kind": record["kind"], "scenario": record["scenario"], "mode": record["mode"], "load": load,
                "layer_us": times["ours"] / models.LINEAR_LAYERS,
                "layer_us_alone": times["alone"] / models.LINEAR_LAYERS,
                "gpu_us": judge.gpu_us(record, load), "gpu_us_alone": judge.gpu_us(alone, load),
                "tokens": record["timed_tokens"][load],
                "s": record[f"{load}_s"], "s_alone": alone[f"{load}_s"],
            })  # fmt: skip
    return {"gpu": done[0]["gpu"], "engine": f"vLLM {done[0]['vllm']}", "torch": done[0]["torch"],
            "commit": args.commit, "date": time.strftime("%Y-%m-%d"), "layers": models.LINEAR_LAYERS,
            "prefill_backend": args.prefill_backend, "rows": rows, "starts": starts}  # fmt: skip


def show(record: dict[str, Any]) -> None:
    kept = ("tokens", "logprobs", "margins", "profiles")
    print(json.dumps({name: value for name, value in record.items() if name not in kept}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--kinds", default="qwen3_5,qwen3_next", help=f"of {', '.join(models.KINDS)}"
    )
    parser.add_argument("--scenarios", default=",".join(run_vllm.SCENARIOS))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--prefill-backend", default="auto", help="vLLM's, of the mode off")
    parser.add_argument("--attention-backend", default="", help="vLLM's, of all modes")
    parser.add_argument("--tp", type=int, default=1, help="vLLM's tensor-parallel size")
    parser.add_argument("--engine-options", default="{}", help="more of vLLM's, a JSON object")
    parser.add_argument("--cubinery", default="cubinery", help="the command line, of the mode pack")
    parser.add_argument("--arch", default="sm_90a", help="of the pack")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "engines")
    parser.add_argument("--budget", type=float, default=3600, help="seconds; no run starts later")
    parser.add_argument("--out", type=Path, help="everything, tokens and profiles too")
    parser.add_argument("--summary", type=Path, help="a record for benchmarks/results/engines")
    parser.add_argument("--commit", default="", help="of cubinery, for the record")
    args = parser.parse_args()
    start = time.perf_counter()
    records = []
    for kind in args.kinds.split(","):
        models.make(args.work / kind, kind)
        for scenario in args.scenarios.split(","):
            for mode in args.modes.split(","):
                if scenario == "invariant" and mode == "off":
                    continue  # vLLM refuses
                if time.perf_counter() - start > args.budget:
                    print(f"no time for {kind} {scenario} {mode}")
                    continue
                records.append(run(args, kind, scenario, mode))
                if "failed" in records[-1]:
                    print(records[-1]["failed"])
    compare(records, args)
    for record in records:
        show(record)
    if args.out:
        args.out.write_text(json.dumps(records))
    if args.summary:
        args.summary.write_text(json.dumps(summary(records, args), indent=1) + "\n")
    return 1 if any("failed" in record for record in records) else 0


if __name__ == "__main__":
    sys.exit(main())
