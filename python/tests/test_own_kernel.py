"""The Python programs of docs/own_kernel.md, on a GPU that is not there."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import types
from pathlib import Path

import cubinery
import pytest
from fake_gpu import FakeArray

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "own_kernel"
PROGRAMS = sorted(path.name for path in FOLDER.glob("*.py"))
each = pytest.mark.parametrize("program", PROGRAMS)


class Array(FakeArray):
    """As much of a tensor as the programs use."""

    def fill_(self, value):
        return self

    def __rmul__(self, factor):
        return self


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What the programs have around them: include/, and cutlass/ where its headers are named."""
    (tmp_path / "include").symlink_to(FOLDER / "include")
    (tmp_path / "cutlass").mkdir()
    (tmp_path / "cutlass" / "include").symlink_to(os.environ.get("CUBINERY_CUTLASS_INCLUDE", "/"))
    monkeypatch.chdir(tmp_path)
    torch = types.ModuleType("torch")
    torch.empty = torch.rand = lambda size, device: Array(size)
    torch.equal = lambda a, b: True
    torch.cuda = types.SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return tmp_path


def run(program, monkeypatch, context, *arguments):
    if "cute" in program and "CUBINERY_CUTLASS_INCLUDE" not in os.environ:
        pytest.skip("CUBINERY_CUTLASS_INCLUDE does not name the headers of CUTLASS")
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    for module in (cubinery.kernels, cubinery._tunable):
        monkeypatch.setattr(module, "context_of", lambda device: context)
    runpy.run_path(str(FOLDER / program))


@each
def test_a_step_launches(program, folder, monkeypatch, context, gpu):
    run(program, monkeypatch, context)
    assert gpu.launches == 1 or program == "4_tuned.py"
    assert gpu.last_config["block"] in [(128, 1, 1), (256, 1, 1), (512, 1, 1)]
    assert int.from_bytes(gpu.last_arguments[:8], "little") >= 1 << 32  # an array's address


@pytest.mark.gpu
@each
def test_a_step_on_a_gpu(program, tmp_path):
    if "cute" in program:
        cutlass = os.environ.get("CUBINERY_CUTLASS_INCLUDE") or pytest.skip("no CUTLASS")
        (tmp_path / "cutlass").mkdir()
        (tmp_path / "cutlass" / "include").symlink_to(cutlass)
    else:
        (tmp_path / "include").symlink_to(FOLDER / "include")
    python = [sys.executable, FOLDER / program]
    done = subprocess.run(python, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


class Asked(Exception):
    pass


def asked(program, monkeypatch):
    """What a program gives compile()."""

    def compile(*given, **named):
        raise Asked(given, named)

    with monkeypatch.context() as patch, pytest.raises(Asked) as error:
        patch.setattr(cubinery, "compile", compile)
        run(program, monkeypatch, None)
    return error.value.args


@pytest.mark.parametrize("program", [name for name in PROGRAMS if name != "4_tuned.py"])
def test_a_kernel_is_shipped(
    program, folder, monkeypatch, empty_kernels, gpu, command, compiler, tmp_path
):
    """Made for an architecture without a GPU, exported, and found where nothing can be compiled."""
    given, named = asked(program, monkeypatch)
    cache = tmp_path / "cache"
    report = cubinery.Context(-1, arch="sm_90a", cache_dir=cache).compile_source(*given, **named)
    assert report["source"] == "compiled"
    pack = tmp_path / "my.pack"
    export = [command, "cache", "export", "--arch", "sm_90a", "-o", pack]
    done = subprocess.run([*export, "--cache-dir", cache], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    options = {
        "driver_path": empty_kernels["driver_path"], "nvrtc_path": "/nowhere", "offline": True,
        "cache_dir": tmp_path / "none", "cache_layers": [pack],
    }  # fmt: skip
    serving = cubinery.Context(0, **options)
    run(program, monkeypatch, serving)
    assert (gpu.launches, serving.stats().disk_hits, serving.stats().compiles) == (1, 1, 0)
    again = cubinery.Context(-1, **{**options, "arch": "sm_90a"}).explain_source(*given, **named)
    assert again["cached"] and str(pack) in again["path"]


def test_the_last_step_needs_no_gpu(folder, monkeypatch, tmp_path, compiler, capsys):
    monkeypatch.setenv("CUBINERY_CACHE_DIR", str(tmp_path / "cache"))
    for found in ("compiled", "disk"):
        with pytest.raises(SystemExit) as end:
            run("5_ship.py", monkeypatch, None, "sm_90a")
        assert not end.value.code
        assert re.match(f"{found} {tmp_path}", capsys.readouterr().out)


def test_six_lines_of_python_and_ten_of_cpp():
    """From an empty folder to a launch with a header of CUTLASS."""
    for program, lines in (("2_cute.py", 6), ("2_cute.cc", 10)):
        with_words = [
            line for line in (FOLDER / program).read_text().splitlines() if re.search(r"\w", line)
        ]
        assert len(with_words) == lines, program
