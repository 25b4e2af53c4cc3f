"""README's Python blocks run, and of the tutorials every block, in the order of the page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import cubinery
import pytest
from fake_gpu import FakeArray
from test_compat_transformers import fake  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "tests" / "data" / "models" / "Qwen3.5-27B" / "config.json"
TUTORIALS = (
    "in_sglang",
    "in_transformers",
    "in_vllm",
    "many_machines",
    "serving_loop",
    "ship_a_cache",
    "start",
    "tune_a_gpu",
)
# What is shown and cannot run here: what needs a GPU or another program, files of other languages.
# tests/package/check.sh compiles C++.
NOT_RUN = {"text", "dockerfile", "yaml", "cpp"}
# What stands in for launchers: takes the number of processes as each writes it, and sets what it
# sets for them.
LAUNCHERS = {
    "srun": ("n=${1#--ntasks=}; shift", "SLURM_PROCID=$i SLURM_STEP_NUM_TASKS=$n"),
    "mpirun": ("n=$2; shift 2", "OMPI_COMM_WORLD_RANK=$i OMPI_COMM_WORLD_SIZE=$n"),
    "torchrun": ("n=$2; shift 3", "RANK=$i WORLD_SIZE=$n LOCAL_RANK=$i"),
}


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """Language and text of a page's blocks; one may be indented, in a list."""
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [
        (language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE))
        for indent, language, text in found
    ]


def run_python(text: str, page: Path, names: dict[str, Any]) -> None:
    exec(compile(text, str(page), "exec"), names)


def run_readme() -> dict[str, Any]:
    """What README's blocks define."""
    names: dict[str, Any] = {}
    for language, text in blocks_of(ROOT / "README.md"):
        if language == "python":
            run_python(text, ROOT / "README.md", names)
    return names


def test_readme_runs():
    assert callable(run_readme()["prepare"])


def test_a_kernel_of_ones_own_is_launched(monkeypatch, context, gpu):
    monkeypatch.chdir(ROOT / "examples" / "own_kernel")
    monkeypatch.setattr(cubinery.kernels, "context_of", lambda device: context)
    run_readme()["activate"](FakeArray(256))
    assert (gpu.launches, gpu.last_kernel) == (1, "_Z8activatePf")


def empty(*shape: int, dtype: str = "bf16") -> FakeArray:
    """What docs/serving_loop.md has of a framework."""
    return FakeArray(*shape, dtype=dtype)


def ints(values: list[int]) -> FakeArray:
    return FakeArray(len(values), dtype="i32")


def write_launchers(folder: Path) -> None:
    folder.mkdir()
    for name, (options, variables) in LAUNCHERS.items():
        (folder / name).write_text(f"""#!/bin/bash
{options}
pids=()
for ((i = 0; i < n; ++i)); do env {variables} "$@" & pids+=($!); done
for pid in "${{pids[@]}}"; do wait $pid || exit; done
""")
        (folder / name).chmod(0o755)


def write_results_of_parts(folder: Path) -> None:
    """tuned-0 to tuned-3, of a kernel that is none of the library's: those may be stale."""
    recorded = ROOT / "tests" / "data" / "tuning" / "gdn_decode.results.jsonl"
    line = json.loads(recorded.read_text().splitlines()[0])
    for part in range(4):
        (folder / f"tuned-{part}").mkdir()
        path = folder / f"tuned-{part}" / "my_kernel.results.jsonl"
        path.write_text(json.dumps({**line, "op": "my_kernel", "problem": f"part={part}"}) + "\n")


def run_shell(text: str, **environment: str) -> str:
    shell = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        capture_output=True, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    assert shell.returncode == 0, f"{text}\n{shell.stdout[-2000:]}\n{shell.stderr[-2000:]}"
    return shell.stdout


@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorial_runs(name, request, monkeypatch, tmp_path, command, context, gpu, empty_kernels):
    """On the GPU that is not there, in a folder with a model's config.json and two tunings' files."""
    if name == "in_transformers":
        request.getfixturevalue("fake")  # of Transformers
    monkeypatch.chdir(tmp_path)
    shutil.copy(CONFIG, tmp_path)
    for folder in ("tuned", "tuned_again"):
        (tmp_path / folder).mkdir()
        for path in (ROOT / "tests" / "data" / "tuning").glob("gdn_*.jsonl"):
            shutil.copy(path, tmp_path / folder)
    write_results_of_parts(tmp_path)
    write_launchers(tmp_path / "bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in (
        "CUBINERY_CACHE_DIR",
        "CUBINERY_CACHE_LAYERS",
        "CUBINERY_OFFLINE",
        "XDG_CACHE_HOME",
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CUBINERY_NVRTC", empty_kernels["nvrtc_path"])
    for folder in (tmp_path / "bin", Path(command).parent):
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    page = ROOT / "docs" / f"{name}.md"
    names: dict[str, Any] = {"context": context, "empty": empty, "ints": ints}
    ran = 0
    for language, text in blocks_of(page):
        if language == "sh":
            run_shell(text)
        elif language == "python":
            run_python(text, page, names)
        else:
            assert language in NOT_RUN, f"{page.name}: a block of language {language!r}"
            continue
        ran += 1
    assert ran > 0
    # Of prompts convolution and two kernels, one of decode, of drafts convolution, verify, commit.
    assert gpu.launches == (7 if name == "serving_loop" else 0)


def test_indexed_job_of_kubernetes_runs(monkeypatch, tmp_path, command, empty_kernels):
    """The command of docs/many_machines.md, as each of its pods has it."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(CONFIG, tmp_path)
    monkeypatch.setenv("CUBINERY_NVRTC", empty_kernels["nvrtc_path"])
    monkeypatch.setenv("CUBINERY_CACHE_DIR", str(tmp_path / "cache"))
    (job,) = (text for language, text in blocks_of(ROOT / "docs" / "many_machines.md")
              if language == "yaml")  # fmt: skip
    pods = int(re.search(r"completions: (\d+)", job)[1])  # type: ignore[index]
    line = json.loads(re.search(r"command: (\[.*\])", job)[1])  # type: ignore[index]
    assert line[0] == "cubinery"
    text = " ".join([command, *line[1:]])
    parts = [run_shell(text, JOB_COMPLETION_INDEX=str(pod)) for pod in range(pods)]
    assert [part.splitlines()[0].startswith(f"Part {n + 1} of {pods}, says Kubernetes")
            for n, part in enumerate(parts)] == [True] * pods  # fmt: skip
    run_shell(" ".join([command, *line[1:-2]]), CUBINERY_OFFLINE="1")
