"""One vLLM on one model, in a process of its own: tokens, log probabilities, speed, as JSON.

benchmarks/engines.py starts it.  What the plugin does is in the environment (CUBINERY_PLUGIN,
CUBINERY_OFFLINE, CUBINERY_CACHE_DIR).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path
from typing import Any

from models import VOCABULARY

SCENARIOS = ("plain", "drafts", "prefix", "chunked", "compiled", "invariant")
DRAFTS = 3
NEW_TOKENS = 48
STEPS = 128  # of a timed decode
LONG = 4096  # tokens of a timed prompt; four of them


def prompts() -> list[list[int]]:
    """Lengths around chunks; two with a prefix in common; one that repeats, for n-gram drafts."""
    drawn = random.Random(1)

    def row(length: int) -> list[int]:
        return [drawn.randrange(3, VOCABULARY) for _ in range(length)]

    shared = row(1500)
    rows = [row(length) for length in (5, 64, 65, 128, 300, 1000, 1, 17)]
    return [*rows, [*shared, 7, 8, 9], [*shared, 10, 11], [20, 21, 22, 23] * 40]


def options(args: argparse.Namespace) -> dict[str, Any]:
    """vLLM's, for a scenario.  Decode is one CUDA graph; torch.compile, which takes minutes, only in
    the scenario compiled."""
    found: dict[str, Any] = {
        "model": str(args.model), "skip_tokenizer_init": True, "dtype": "bfloat16",
        "max_model_len": LONG + 512, "max_num_seqs": 64, "seed": 0,
        "tensor_parallel_size": args.tp,
        "max_num_batched_tokens": 512 if args.scenario == "chunked" else 4 * LONG,
        # Of a size that is given, so that several runs may share a GPU.
        "kv_cache_memory_bytes": 8 << 30, "gpu_memory_utilization": 0.1, "disable_log_stats": True,
        "enable_prefix_caching": args.scenario == "prefix",
        "gdn_prefill_backend": args.prefill_backend,
        "compilation_config": {
            "mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY",
            "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 64],
        },
    }  # fmt: skip
    if args.scenario == "compiled":
        found["compilation_config"] |= {"mode": 3, "cudagraph_mode": "FULL_AND_PIECEWISE"}
    if args.attention_backend:
        found["attention_backend"] = args.attention_backend
    if args.scenario == "drafts":
        found["speculative_config"] = {
            "method": "ngram", "num_speculative_tokens": DRAFTS, "prompt_lookup_max": 3,
            "prompt_lookup_min": 1,
        }  # fmt: skip
    return found | args.engine_options


def generate(llm: Any, rows: list[list[int]], count: int, **sampling: Any) -> list[Any]:
    from vllm import SamplingParams

    asked = SamplingParams(
        temperature=0.0, max_tokens=count, min_tokens=count, ignore_eos=True, detokenize=False,
        **sampling,
    )  # fmt: skip
    done: list[Any] = llm.generate(
        [{"prompt_token_ids": row} for row in rows], asked, use_tqdm=False
    )
    return done


def seconds_of(llm: Any, rows: list[list[int]], count: int, runs: int = 5) -> list[float]:
    """Of each run, after one that is not timed."""
    generate(llm, rows, count)
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        generate(llm, rows, count)
        found.append(time.perf_counter() - start)
    return found


def tokens_of(outputs: list[Any]) -> list[list[int]]:
    return [[int(token) for token in output.outputs[0].token_ids] for output in outputs]


def logprobs_of(outputs: list[Any]) -> list[list[float]]:
    """Of the tokens that were chosen."""
    return [
        [float(step[token].logprob) for step, token in zip(one.logprobs, one.token_ids)]
        for one in (output.outputs[0] for output in outputs)
    ]


def margins_of(outputs: list[Any]) -> list[list[float]]:
    """How far the second best token was, at each step."""
    found = []
    for output in outputs:
        best = [sorted((x.logprob for x in step.values()), reverse=True)[:2]
                for step in output.outputs[0].logprobs]  # fmt: skip
        found.append([float(first - second) for first, second in best])
    return found


def loads(rows: list[list[int]], scenario: str) -> dict[str, tuple[list[list[int]], int]]:
    """What is timed: the prompts, and how many tokens each is asked for."""
    if scenario == "plain":
        batches = {count: [[5 + i, 6, 7, 8] for i in range(count)] for count in (1, 16, 64)}
        long = [[5 + (7 * i + n) % 4000 for i in range(LONG)] for n in range(4)]
        decode = {f"decode_{count}": (batch, STEPS) for count, batch in batches.items()}
        return {**decode, "prefill_16k": (long, 1)}
    if scenario == "drafts":
        return {f"decode_{count}": ([rows[-1]] * count, STEPS) for count in (1, 16, 64)}
    return {}


def runner_of(llm: Any) -> Any:
    """vLLM's object that runs the model's steps, in this process."""
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner


def kernels_of(llm: Any, batch: list[list[int]], count: int) -> dict[str, Any]:
    """What runs on the GPU in one run, CUDA graphs included: of each kernel, copy and fill by its
    name how many there were and their microseconds; and how often the model ran."""
    from torch.profiler import ProfilerActivity, profile

    runner, steps = runner_of(llm), 0
    execute = runner.execute_model

    def counted(scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal steps
        steps += scheduled.total_num_scheduled_tokens > 0
        return execute(scheduled, *args, **kwargs)

    runner.execute_model = counted
    try:
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            generate(llm, batch, count)
    finally:
        runner.execute_model = execute
    kernels = {
        row.key: (row.count, row.self_device_time_total)
        for row in found.key_averages()
        if row.self_device_time_total > 0
    }
    return {"steps": steps, "kernels": kernels}


def linear_layers(worker: Any) -> list[str]:
    """In a worker: the classes of the linear layers."""
    modules = worker.model_runner.model.modules()
    return sorted({type(layer).__name__ for layer in modules if "GatedDelta" in type(layer).__name__})


def calls_on(worker: Any) -> dict[str, int]:
    """In a worker: what the layers launched, on cubinery and on vLLM's kernels."""
    from cubinery.plugins.vllm import calls

    return {f"{what} on {where}": count for (what, where), count in calls.items()}


def speed(llm: Any, rows: list[list[int]], scenario: str) -> dict[str, Any]:
    asked = loads(rows, scenario)
    times = {f"{name}_s": seconds_of(llm, *load) for name, load in asked.items()}
    # Of a prefill those that are taken in, else those that come.
    tokens = {name: sum(map(len, batch)) if count == 1 else len(batch) * count
              for name, (batch, count) in asked.items()}  # fmt: skip
    # The profiler of this process sees nothing of workers that are others.
    alone = hasattr(llm.llm_engine.model_executor, "driver_worker")
    profiles = {name: kernels_of(llm, *load) for name, load in asked.items()} if alone else {}
    return {**times, "timed_tokens": tokens, "profiles": profiles}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--prefill-backend", default="auto")
    parser.add_argument("--attention-backend", default="")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--engine-options", type=json.loads, default={})
    args = parser.parse_args()
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    start = time.perf_counter()
    import torch
    import vllm

    llm = vllm.LLM(**options(args))
    ready = time.perf_counter()
    rows = prompts()
    generate(llm, rows[:1], 1)
    answered = time.perf_counter()
    first = generate(llm, rows, NEW_TOKENS, logprobs=5)
    again = generate(llm, rows, NEW_TOKENS, logprobs=5)
    fewer = generate(llm, rows[4:6], NEW_TOKENS, logprobs=5)
    record: dict[str, Any] = {
        "scenario": args.scenario, "gpu": torch.cuda.get_device_name(), "vllm": vllm.__version__,
        "torch": torch.__version__, "start_s": ready - start, "first_token_s": answered - ready,
        "tokens": tokens_of(first), "logprobs": logprobs_of(first), "margins": margins_of(first),
        "repeats": tokens_of(again) == tokens_of(first),
        "same_bits_in_another_batch": logprobs_of(fewer) == logprobs_of(first)[4:6],
        "layers": llm.collective_rpc(linear_layers)[0],
    }  # fmt: skip
    record |= speed(llm, rows, args.scenario)
    if os.environ.get("CUBINERY_PLUGIN") != "off":
        record["calls"] = llm.collective_rpc(calls_on)  # of each worker
    args.out.write_text(json.dumps(record))


if __name__ == "__main__":
    main()
