"""The wheel in a fresh environment with each engine's own: the engine's loader finds the plugin, and
the plugin takes the engine's real class.  What an engine needs besides, torch for one, is hundreds
of megabytes and no use without a GPU: stand_ins.py has it.

CUBINERY_WHEEL names our wheel.  Engines' are kept in ~/.cache/engine-wheels.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_engine_signatures import OVERRIDDEN

HERE = Path(__file__).resolve().parent
CACHE = Path.home() / ".cache" / "engine-wheels"
VERSIONS = {"vllm": "0.33.0", "sglang": "0.5.23"}
NEEDED = ("packaging", "typing_extensions")  # small, and no stand-ins do
SEAMS = {
    "vllm": "vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadata",
    "sglang": "sglang.srt.layers.attention.mamba.mamba2_metadata:ForwardMetadata",
}


def run(*command: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=900, **options)


def pip(python: Path | str, *words: Any) -> subprocess.CompletedProcess[str]:
    return run(python, "-m", "pip", "--disable-pip-version-check", "--quiet", *words)


def done(result: subprocess.CompletedProcess[str]) -> None:
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="session")
def wheel() -> Path:
    path = os.environ.get("CUBINERY_WHEEL")
    return Path(path) if path else pytest.skip("no wheel of cubinery in CUBINERY_WHEEL")


@pytest.fixture(scope="session")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels of NEEDED; skips where the package registry cannot be reached."""
    folder = tmp_path_factory.mktemp("light")
    got = pip(sys.executable, "download", "--no-deps", "--dest", folder, *NEEDED)
    if got.returncode != 0:
        pytest.skip(f"the package registry cannot be reached: {got.stderr.strip()[-300:]}")
    return folder


def wheel_of(engine: str, light: Path) -> Path:
    """From the cache, or the registry: SGLang's is for one version of the interpreter."""
    name = f"{engine}-{VERSIONS[engine]}-*x86_64.whl"
    if not list(CACHE.glob(name)):
        CACHE.mkdir(parents=True, exist_ok=True)
        release = f"{engine}=={VERSIONS[engine]}"
        tags = ("--python-version", "3.12", "--only-binary", ":all:")
        done(pip(sys.executable, "download", "--no-deps", *tags, "--dest", CACHE, release))
    return next(CACHE.glob(name))


def install(python: Path, path: Path) -> None:
    """A wheel; of one for another interpreter what is Python."""
    got = pip(python, "install", "--no-deps", "--no-compile", path)
    if "not a supported wheel" not in got.stderr:
        return done(got)
    places = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    with zipfile.ZipFile(path) as file:
        names = [name for name in file.namelist() if not name.endswith(".so")]
        file.extractall(places.stdout.strip(), names)


@pytest.fixture(scope="session", params=VERSIONS)
def environment(
    request: pytest.FixtureRequest,
    wheel: Path,
    light: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, Path]]:
    """An engine, and the interpreter of an environment that has it and our wheel."""
    folder = tmp_path_factory.mktemp(request.param)
    done(run(sys.executable, "-m", "venv", folder))
    python = folder / "bin" / "python"
    done(pip(python, "install", "--no-deps", "--no-index", *light.glob("*.whl"), wheel))
    install(python, wheel_of(request.param, light))
    yield request.param, python
    shutil.rmtree(folder)  # a gigabyte


def bound(environment: tuple[str, Path], *more: str, **switches: str) -> tuple[Any, str]:
    """What bind_engine.py prints, and the engine's log."""
    engine, python = environment
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = run(
        python, HERE / "bind_engine.py", engine, *more, env={**kept, **switches}, cwd=python.parent
    )
    done(result)
    return json.loads(result.stdout.splitlines()[-1]), result.stderr


def test_the_plugin_takes_the_engines_classes(environment):
    engine, _ = environment
    report, log = bound(environment)
    assert report["engine"] == VERSIONS[engine]
    assert report["mode"] == "auto" and "cubinery does not serve" not in log
    assert report["lines"].keys() == OVERRIDDEN[engine].keys()
    for path, (ours, _) in OVERRIDDEN[engine].items():
        _, first, *line = report["lines"][path]
        assert first.startswith("cubinery.plugins.") and first.endswith(f":{ours}")
        assert path in line
    # The engine itself is real, and so is what we are.
    assert not {engine, "cubinery"} & set(report["stand_ins"]) and "torch" in report["stand_ins"]


def test_an_engine_without_a_seam_stays_as_it_is(environment):
    engine, _ = environment
    report, log = bound(environment, SEAMS[engine])
    assert report["lines"] == {} and report["mode"] == "off"
    assert f"it lacks {SEAMS[engine]}" in log


def test_the_switch_leaves_the_engine_alone(environment):
    report, _ = bound(environment, CUBINERY_PLUGIN="off")
    assert report["lines"] == {} and report["mode"] == "off"
