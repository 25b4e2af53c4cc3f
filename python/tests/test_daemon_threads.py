"""The interpreter may end while daemon threads are inside the module: the process ends as it would
without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fake_gpu
import pytest

PROGRAM = """
import sys, threading, time
from pathlib import Path
import cubinery, fake_gpu

work, library, cache = sys.argv[1:]
gpu = fake_gpu.FakeGpu(Path(library))

def context():
    log = (lambda level, message: time.sleep(0)) if work == "log" else None
    return cubinery.Context(0, driver_path=library, cache_dir=cache, log=log)

mine = context()
problem = cubinery.DecodeProblem(q_heads=2, k_heads=2, v_heads=2, key_dim=16, value_dim=16)
layers = cubinery.CommitProblem(
    q_heads=2, k_heads=2, v_heads=2, key_dim=16, value_dim=16, state_location="pool"
)

def launch(kind):
    q, k, v, out = (kind(1, 2, 16, dtype="bf16") for _ in range(4))
    g, beta, state = kind(1, 2), kind(1, 2), kind(1, 2, 16, 16)
    decode = mine.prepare(problem)
    return lambda: decode(q, k, v, g, beta, out=out, state=state)

def table():
    tokens = {name: fake_gpu.FakeArray(1, 4, 2, 16, dtype="bf16") for name in ("k", "v")}
    gates = {name: fake_gpu.FakeArray(1, 4, 2) for name in ("g", "beta")}
    layer = {**tokens, **gates, "state": fake_gpu.FakeArray(3, 2, 16, 16)}
    commit = mine.prepare(layers)
    return lambda: commit.table([layer] * 8)

call = {
    "launch": lambda: launch(fake_gpu.FakeArray),
    "launch of exchanged arrays": lambda: launch(gpu.FastArray),
    "table": table,
    "compile": lambda: lambda: mine.compile(problem),
    "explain": lambda: lambda: mine.explain(problem),
    "prepare": lambda: lambda: mine.prepare(problem),
    "context": lambda: context,
    "log": lambda: lambda: context().compile(problem),
}[work]()

def repeat():
    while True:
        call()

for _ in range(3):
    threading.Thread(target=repeat, daemon=True).start()
time.sleep(0.05)
"""
FORK = """
import os
child = os.fork()
if child == 0:
    sys.exit()
start = time.monotonic()
assert os.waitpid(child, 0)[1] == 0
assert time.monotonic() - start < 5
"""
WORK = [
    "launch",
    "launch of exchanged arrays",
    "table",
    "compile",
    "explain",
    "prepare",
    "context",
    "log",
]


def run(work: str, gpu: fake_gpu.FakeGpu, cache_dir: Path, behind: str = "") -> None:
    """The program, with these lines behind it: it ends with 0 and says nothing."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    arguments = ["-W", "ignore", "-c", PROGRAM + behind, work, str(gpu.path), str(cache_dir)]
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("work", WORK)
def test_the_interpreter_ends(gpu, context, cache_dir, work):
    for _ in range(5):
        run(work, gpu, cache_dir)


def test_a_forked_child_does_not_wait(gpu, context, cache_dir):
    """Its parent's threads, which are in calls that compile, are not there."""
    run("context", gpu, cache_dir, FORK)
