"""The command line that the wheel brings."""

import subprocess
import sys
from pathlib import Path

import cubinery
import pytest


def run(*arguments):
    return subprocess.run(arguments, capture_output=True, text=True)


def test_it_is_of_the_packages_version(command):
    assert run(command, "--version").stdout.strip().endswith(cubinery.__version__)


def test_python_runs_it_as_a_module(command):
    if Path(command).parent != Path(sys.executable).parent:
        pytest.skip("the package is not installed: CUBINERY_CLI names the command")
    by_module = run(sys.executable, "-m", "cubinery", "operators", "--json", "-")
    assert by_module.returncode == 0, by_module.stderr
    assert by_module.stdout == run(command, "operators", "--json", "-").stdout
    assert run(sys.executable, "-m", "cubinery", "--bogus").returncode == 2


def test_doctor_cache_and_prewarm(command, compiler, tmp_path):
    where = ["--cache-dir", str(tmp_path)]
    assert "nvrtc" in run(command, "doctor", *where).stdout
    problem = "--op gdn_decode --key-dim 16 --value-dim 16 --arch sm_90a".split()
    filled = run(command, "prewarm", *problem, *where)
    assert filled.returncode == 0, filled.stderr
    listed = run(command, "cache", "ls", *where)
    assert listed.returncode == 0 and "gdn_decode" in listed.stdout
    ours = cubinery.Context(-1, arch="sm_90a", offline=True, cache_dir=tmp_path)
    assert ours.compile(cubinery.DecodeProblem(key_dim=16, value_dim=16))
