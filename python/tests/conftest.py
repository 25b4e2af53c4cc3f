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


@pytest.fixture
def context(gpu: fake_gpu.FakeGpu, compiler: cubinery.Context, cache_dir: Path) -> cubinery.Context:
    """A context on it, of sm_90a."""
    return cubinery.Context(0, driver_path=str(gpu.path), cache_dir=str(cache_dir))
