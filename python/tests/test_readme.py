"""README's Python blocks run."""

from __future__ import annotations

import re
from pathlib import Path

import cubinery
from fake_gpu import FakeArray

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


def run_blocks():
    """What README's blocks define."""
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    names = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    return names


def test_blocks_run():
    assert callable(run_blocks()["prepare"])


def test_a_kernel_of_ones_own_is_launched(monkeypatch, context, gpu):
    monkeypatch.chdir(ROOT / "examples" / "own_kernel")
    monkeypatch.setattr(cubinery.kernels, "context_of", lambda device: context)
    run_blocks()["activate"](FakeArray(256))
    assert (gpu.launches, gpu.last_kernel) == (1, "_Z8activatePf")
