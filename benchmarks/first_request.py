"""The time from the start of a process to its first prefill, with an empty and with a filled cache.

    first_request.py [--bench build-device/benchmarks/cubinery_bench]
                     [--contenders cubinery-cpp,cubinery-python,fla] [--repetitions 3]
                     [--out FILE.json] [--commit abc1234]

Every figure is of a fresh process.  docs/benchmarks.md says what counts.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compare import record

TOKENS, KEY_HEADS, HEADS, DIM = 256, 16, 32, 128  # those of first_prefill.cc
LARGEST_ERROR = 0.05  # as in cubinery_bench
CHILD_LIMIT_S = 400
IMPORTS = 9

# The command of a child: its cache, and when it is started in nanoseconds of CLOCK_MONOTONIC.
Command = Callable[[str, int], list[str]]


# --- in the child


class Steps:
    """Seconds of each step since `started`, in order."""

    def __init__(self, started_ns: int):
        self._started = self._last = started_ns
        self.seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        """The step that ends here."""
        now = time.monotonic_ns()
        self.seconds[name] = record.significant((now - self._last) * 1e-9)
        self._last = now

    def total(self) -> float:
        return record.significant((self._last - self._started) * 1e-9)


def _operands(torch) -> list:
    """q, k, v [1, T, heads, 128] bf16, g, beta [1, T, HV] f32, on the device."""

    def rows(heads: int):
        return torch.randn(1, TOKENS, heads, DIM, device="cuda").to(torch.bfloat16)

    gates = torch.rand(2, 1, TOKENS, HEADS, device="cuda")
    return [rows(KEY_HEADS), rows(KEY_HEADS), rows(HEADS), -0.1 * gates[0], gates[1]]


def _cubinery(torch, steps: Steps, operands: list) -> tuple:
    import cubinery

    steps.end("import")
    context = cubinery.Context(torch.cuda.current_device())
    steps.end("context")
    problem = cubinery.PrefillProblem(
        q_heads=KEY_HEADS,
        k_heads=KEY_HEADS,
        v_heads=HEADS,
        use_qk_l2norm=True,
        has_initial_state=False,
        state_layout="kv",
    )
    prefill = context.prepare(problem)
    steps.end("prepare")
    o = torch.empty_like(operands[2]).fill_(torch.nan)
    state = torch.empty(1, HEADS, DIM, DIM, device="cuda").fill_(torch.nan)
    prefill(*operands, out=o, state=state)
    return o, state, {"compiled": context.stats().compiles}


def _fla(torch, steps: Steps, operands: list) -> tuple:
    os.environ["FLA_FLASH_QLA"] = "0"  # its own kernels, as in compare.py
    import fla
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    steps.end("import")
    with torch.no_grad():
        o, state = chunk_gated_delta_rule(
            *operands, use_qk_l2norm_in_kernel=True, output_final_state=True
        )
    return o, state, {"version": fla.__version__}


def _errors(operands: list, o, state) -> dict[str, float]:
    import torch

    from compare import reference

    q, k = (x.double() for x in operands[:2])
    q, k = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    v, g, beta = operands[2:]
    zero = torch.zeros_like(state[0])
    expected = reference.chunked(q[0], k[0], v[0], g[0], beta[0], zero, DIM**-0.5)
    return {
        "error_o": reference.relative_rms(o[0], expected[0]),
        "error_state": reference.relative_rms(state[0], expected[1]),
    }


def child(contender: str, started_ns: int) -> int:
    """One first prefill; prints what first_prefill.cc prints.  1 when the result is wrong."""
    steps = Steps(started_ns)
    steps.end("process")
    import torch

    steps.end("import_torch")
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    steps.end("cuda")
    operands = _operands(torch)
    torch.cuda.synchronize()
    steps.end("operands")
    run = {"cubinery-python": _cubinery, "fla": _fla}[contender]
    o, state, more = run(torch, steps, operands)
    o.cpu()
    steps.end("first_call")
    before = steps.seconds["process"] + steps.seconds["import_torch"]
    errors = _errors(operands, o, state)
    line = {
        "gpu": torch.cuda.get_device_name(),
        "seconds": steps.total(),
        "after_import_torch": record.significant(steps.total() - before),
        "of_which": steps.seconds,
        **more,
        **{name: record.significant(error) for name, error in errors.items()},
    }
    print(json.dumps(line))
    return 0 if all(error < LARGEST_ERROR for error in errors.values()) else 1


# --- in the parent


def run_child(command: Command, cache: str) -> dict[str, Any]:
    """What a child printed.  Raises RuntimeError with its last line when it failed."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("CUBINERY_CACHE_LAYERS", "CUBINERY_OFFLINE")
    }
    environment |= {
        "CUBINERY_CACHE_DIR": f"{cache}/cubinery",
        "TRITON_CACHE_DIR": f"{cache}/triton",
        "CUDA_CACHE_PATH": f"{cache}/cuda",
    }
    done = subprocess.run(
        command(cache, time.monotonic_ns()),
        env=environment,
        capture_output=True,
        text=True,
        timeout=CHILD_LIMIT_S,
    )
    lines = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "no output")
    if done.returncode != 0:
        raise RuntimeError(f"exit status {done.returncode}: {last.strip()[:300]}")
    return json.loads(last)


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the runs, and the runs' totals."""

    def median(values: list[float]) -> float:
        return record.significant(statistics.median(values))

    line: dict[str, Any] = {"seconds": median([run["seconds"] for run in runs])}
    if "after_import_torch" in runs[0]:
        line["after_import_torch"] = median([run["after_import_torch"] for run in runs])
    steps = runs[0]["of_which"]
    line["of_which"] = {step: median([run["of_which"][step] for run in runs]) for step in steps}
    line["runs"] = [run["seconds"] for run in runs]
    return line | {name: runs[-1][name] for name in ("error_o", "error_state", "gpu")}


def measure(name: str, command: Command, repetitions: int) -> list[dict[str, Any]]:
    """Two rows: in each repetition a process with an empty cache, then one with what that left.

    A failure gives one row that says what happened.
    """
    runs: dict[str, list] = {"empty": [], "filled": []}
    try:
        for _ in range(repetitions):
            with tempfile.TemporaryDirectory() as cache:
                for filled in runs:
                    runs[filled].append(run_child(command, cache))
                    compiled = runs[filled][-1].get("compiled")
                    if compiled is not None and (compiled > 0) != (filled == "empty"):
                        raise RuntimeError(f"compiled {compiled} kernels with a cache {filled}")
    except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
        reason = f"{type(error).__name__}: {error}"
        return [{"op": "first_request", "contender": name, "failed": reason}]
    version = runs["empty"][0].get("version")
    full_name = f"{name}-{version}" if version else name
    return [
        {"op": "first_request", "contender": full_name, "cache": cache, **summary(of)}
        for cache, of in runs.items()
    ]


def import_row() -> dict[str, Any]:
    """Median seconds of `import cubinery` in fresh interpreters."""
    line = {"op": "host", "name": "import_cubinery_s"}
    code = "import time; t = time.perf_counter(); import cubinery; print(time.perf_counter() - t)"
    seconds = []
    for _ in range(IMPORTS):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        if done.returncode != 0:
            return line | {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1]}
        seconds.append(float(done.stdout))
    return line | {"value": record.significant(statistics.median(seconds)), "unit": "s"}


def commands(bench: str) -> dict[str, Command]:
    """How each contender's child is started."""

    def python(contender: str) -> Command:
        script = str(Path(__file__).resolve())
        return lambda cache, started: [
            sys.executable,
            script,
            "--child",
            contender,
            "--started",
            str(started),
        ]

    return {
        "cubinery-cpp": lambda cache, started: [
            bench,
            "first_prefill",
            "--cache",
            f"{cache}/cubinery",
            "--started",
            str(started),
        ],
        "cubinery-python": python("cubinery-python"),
        "fla": python("fla"),
    }


def table(lines: list[dict[str, Any]]) -> str:
    """Seconds in all, since torch was imported, and of each step."""
    cells = [["", "cache", "s", "after import torch", "of which"]]
    notes = []
    for line in lines:
        if "failed" in line:
            notes.append(f"{line.get('contender', line.get('name'))} failed: {line['failed']}")
        elif line["op"] == "host":
            notes.append(f"import cubinery: {line['value']:g} s")
        else:
            steps = ", ".join(f"{step} {s:g}" for step, s in line["of_which"].items())
            after = f"{line['after_import_torch']:g}" if "after_import_torch" in line else ""
            cells.append([line["contender"], line["cache"], f"{line['seconds']:g}", after, steps])
    return "\n".join([record.aligned(cells), *notes])


def main(arguments: list[str]) -> int:
    """1 when every contender failed."""
    names = list(commands(""))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default="build-device/benchmarks/cubinery_bench")
    parser.add_argument("--contenders", default=",".join(names), help=", ".join(names))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", help="where the record goes")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--child", choices=names[1:], help=argparse.SUPPRESS)
    parser.add_argument("--started", type=int, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.child:
        return child(parsed.child, parsed.started)
    chosen = parsed.contenders.split(",")
    if unknown := set(chosen) - set(names):
        parser.error(f"contender {', '.join(unknown)}; accepted: {', '.join(names)}")
    head = {"driver": record.driver_version(), "packages": record.versions()}
    results = record.Record(parsed.out, parsed.commit, head)
    every = commands(os.path.abspath(parsed.bench))
    for name in chosen:
        print(f"{name} ...", file=sys.stderr, flush=True)
        for line in measure(name, every[name], parsed.repetitions):
            results.add(line)
        results.save()
    results.add(import_row())
    results.save()
    print(table(results.root["rows"]))
    return 0 if any("seconds" in line for line in results.root["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
