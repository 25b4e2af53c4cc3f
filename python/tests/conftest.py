"""Fixtures: a context that only compiles, one on a GPU that is not there, and the marker `gpu`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import cubinery
import fake_gpu
import pytest


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked or _has_gpu():
        return
    for item in marked:
        item.add_marker(pytest.mark.skip(reason="no CUDA device with PyTorch"))


@pytest.fixture(scope="session")
def command() -> str:
    """The command line: the wheel's, or the one that CUBINERY_CLI names."""
    installed = shutil.which("cubinery", path=Path(sys.executable).parent)
    found = installed or os.environ.get("CUBINERY_CLI")
    return found or pytest.skip("no command cubinery beside Python or in CUBINERY_CLI")


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests that compile: each kernel once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def compiler(cache_dir: Path) -> cubinery.Context:
    """A context that compiles for sm_90a and needs no GPU; skips without NVRTC."""
    context = cubinery.Context(-1, arch="sm_90a", cache_dir=str(cache_dir))
    try:
        context.nvrtc_version
    except cubinery.UnsupportedError as error:
        pytest.skip(f"no NVRTC: {error}")
    return context


@pytest.fixture(scope="session")
def _fake_gpu(tmp_path_factory: pytest.TempPathFactory) -> fake_gpu.FakeGpu:
    path = fake_gpu.build(tmp_path_factory.mktemp("fake_gpu"))
    if path is None:
        pytest.skip("no g++, CUDA headers or dlpack.h to build the fake driver with")
    return fake_gpu.FakeGpu(path)


@pytest.fixture
def gpu(_fake_gpu: fake_gpu.FakeGpu) -> Iterator[fake_gpu.FakeGpu]:
    """The GPU that is not there, without launches so far."""
    _fake_gpu.forget_launches()
    yield _fake_gpu
    _fake_gpu.refuse_launches(0)
    _fake_gpu.set_current_stream(0)


def _path_of_nvrtc() -> str:
    """Where a context that knows its compiler's version has opened it."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if Path(path).name.startswith("libnvrtc.so"):
            return path
    raise AssertionError("no NVRTC is open")


@pytest.fixture(scope="session")
def empty_kernels(
    _fake_gpu: fake_gpu.FakeGpu,
    compiler: cubinery.Context,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    """Options of a context on the GPU that is not there, whose kernels nobody runs."""
    os.environ["CUBINERY_REAL_NVRTC"] = _path_of_nvrtc()
    library = str(_fake_gpu.path)
    folder = tmp_path_factory.mktemp("empty_kernels")
    return {"driver_path": library, "nvrtc_path": library, "cache_dir": str(folder)}


@pytest.fixture
def context(gpu: fake_gpu.FakeGpu, empty_kernels: dict[str, str]) -> cubinery.Context:
    """A context on it, of sm_90a."""
    return cubinery.Context(0, **empty_kernels)
