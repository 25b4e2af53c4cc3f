"""Examples in Python: on a GPU as they are, and without one on numpy's functions."""

from __future__ import annotations

import inspect
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import convolution
import numpy as np
import pytest
import recurrence

import cubinery

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LAYER = EXAMPLES / "08_layer.py"
KDA = EXAMPLES / "10_kda.py"
each = pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.py")))


def run_example(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True)


@pytest.mark.gpu
@each
def test_example(example):
    done = run_example(example)
    assert done.returncode == 0, done.stdout + done.stderr


@each
def test_example_says_what_is_missing(example):
    done = run_example(example)
    if done.returncode != 0:
        assert done.stdout in ("no PyTorch\n", "no GPU\n"), done.stdout + done.stderr
        assert (done.returncode, done.stderr) == (77, "")


OPERATORS = {
    cubinery.ConvProblem: cubinery.Conv,
    cubinery.PrefillProblem: cubinery.Prefill,
    cubinery.DecodeProblem: cubinery.Decode,
    cubinery.VerifyProblem: cubinery.Verify,
    cubinery.CommitProblem: cubinery.Commit,
}


class _OnNumpy:
    """An operator whose launches run at once on arrays of the host."""

    def __init__(self, problem: Any) -> None:
        self.problem = problem

    def __call__(self, **given: Any) -> None:
        problem = self.problem
        inspect.signature(OPERATORS[type(problem)].__call__).bind(self, **given)
        arrays = {name: x.numpy() if hasattr(x, "numpy") else x for name, x in given.items()}
        modes = {"use_qk_l2norm": problem.use_qk_l2norm}
        if isinstance(problem, cubinery.ConvProblem):
            for name in ("q_heads", "k_heads", "v_heads", "key_dim", "value_dim"):
                modes[name] = getattr(problem, name)
            assert problem.from_accepted == ("accepted" in arrays)
            convolution.gdn_conv(**arrays, **modes)
            return
        modes |= {"gate_mode": problem.gate_mode, "beta_mode": problem.beta_mode}
        if isinstance(problem, cubinery.PrefillProblem):
            recurrence.gdn_prefill(**arrays, **modes)
            return
        modes["decay"] = problem.decay
        assert (problem.gate_mode == "lower_bound") == ("lower_bound" in arrays)
        if isinstance(problem, cubinery.DecodeProblem):
            z, norm_weight = arrays.pop("z"), arrays.pop("norm_weight")
            o = recurrence.gdn_decode(**arrays, **modes)
            o[...] = recurrence.normed(o, z, norm_weight, None, problem.output_norm)
        elif isinstance(problem, cubinery.CommitProblem):
            _commit(arrays, modes)
        else:
            modes |= {"stored_states": problem.stored_states, "draft_tokens": problem.draft_tokens}
            modes |= {"store_state": problem.store_state, "output_norm": problem.output_norm}
            recurrence.gdn_verify(**arrays, **modes)


def _commit(arrays: dict[str, Any], modes: dict[str, Any]) -> None:
    """Of packed tokens, those that are accepted as a verification by themselves."""
    tokens = {name: arrays.pop(name) for name in ("k", "v", "g", "beta")}
    bounds, accepted = arrays.pop("cu_seqlens"), arrays.pop("accepted")
    for n, slot in enumerate(arrays.pop("state_indices")):
        span = slice(int(bounds[n]), int(bounds[n] + accepted[n]))
        part = {name: x[None, span] for name, x in tokens.items()}
        recurrence.gdn_verify(part["k"], **part, **arrays, **modes, state_indices=np.array([slot]))


class _Context:
    def prepare(self, problem: Any) -> _OnNumpy:
        return _OnNumpy(problem)


def test_layer_on_numpy(capsys):
    """What the example asks of the operators gives what its reference expects."""
    pytest.importorskip("torch")
    example = runpy.run_path(str(LAYER))
    config = {**example["SMALL_MODEL"], "dtype": "float32"}
    assert example["run"](_Context(), config, device="cpu"), capsys.readouterr().out
    assert len(capsys.readouterr().out.splitlines()) == len(example["STEPS"]) + 1


@pytest.mark.parametrize("lower_bound", [None, -5.0])
def test_kda_on_numpy(capsys, lower_bound):
    pytest.importorskip("torch")
    example = runpy.run_path(str(KDA))
    config = {**example["SMALL_MODEL"], "dtype": "float32"}
    config["linear_attn_config"]["gate_lower_bound"] = lower_bound
    assert example["run"](_Context(), config, device="cpu"), capsys.readouterr().out
    assert len(capsys.readouterr().out.splitlines()) == 3
