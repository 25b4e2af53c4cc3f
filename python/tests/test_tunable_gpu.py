"""Kernels with choices on a GPU, with PyTorch's arrays."""

from __future__ import annotations

import cubinery
import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

# The more a block waits, the slower; a wrong one is wrong.
SCALE = """
__global__ void __launch_bounds__(BLOCK) scale(float* y, const float* x, int n) {
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  __nanosleep(WAIT);
  if (i < n) y[i] = (WRONG ? 3 : 2) * x[i];
}
"""
CHOICES = {"WAIT": [100_000, 0, 50_000], "BLOCK": [256, 128], "WRONG": [False, True]}


def launch(kernel, c, y, x, n):
    kernel[-(-n // c.BLOCK), c.BLOCK](y, x, n)


def operands(n):
    return torch.empty(n, device="cuda"), torch.rand(n, device="cuda"), n


def right(run):
    y, x, n = operands(1001)
    run(y.fill_(float("nan")), x, n)
    return torch.equal(y, 2 * x)


def kernel(tmp_path, **changes):
    context = cubinery.Context(0, cache_dir=tmp_path)
    given = {"name": "scale", "choices": CHOICES, "launch": launch, **changes}
    return cubinery.TunableKernel(SCALE, **given, context=context)


def test_the_fastest_that_is_right_is_launched(tmp_path):
    summary = kernel(tmp_path).tune([{"n": 4096}], operands=operands, check=right, budget=120)
    assert summary["rejected"] == 6 and not summary["stopped"]
    assert summary["shapes"][0]["chosen"].startswith("WAIT=0;")
    best = kernel(tmp_path).kernel({"n": 5000})
    assert (best.rung, best.choices.WAIT, best.choices.WRONG) == ("exact", 0, False)
    y, x, n = operands(5000)
    best(y, x, n)
    assert torch.equal(y, 2 * x)


def test_launches_may_use_the_current_stream(tmp_path):
    """Operations of PyTorch are captured with the kernel."""

    def two(kernel, c, y, x, n):
        y.zero_()
        launch(kernel, c, y, x, n)

    summary = kernel(tmp_path, launch=two).tune([{"n": 4096}], operands=operands, check=right)
    assert summary["shapes"][0]["complete"], summary
    assert torch.cuda.current_stream().cuda_stream == 0


def test_a_launch_that_cuda_refuses_is_left_out(tmp_path):
    def large(kernel, c, y, x, n):
        kernel.launch(y, x, n, grid=-(-n // c.BLOCK), block=c.BLOCK, cooperative=c.BLOCK == 128)

    wide = lambda n: operands(1 << 24)  # more blocks than are resident at once
    choices = {"WAIT": [0], "BLOCK": [256, 128], "WRONG": [False]}
    summary = kernel(tmp_path, launch=large, choices=choices).tune(
        [{"n": 4096}], operands=wide, check=right
    )
    assert (summary["rejected"], summary["measured"]) == (1, 2)
