"""benchmarks/transformers_speed.py without a GPU, and what scripts/write_results.py makes of it."""

import json
import logging
import subprocess
import sys
import types
from pathlib import Path

import pytest
from cubinery.compat import transformers

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "scripts")]

import transformers_speed as speed  # noqa: E402: the path comes first
import write_results  # noqa: E402


@pytest.mark.parametrize("package", speed.KERNELS)
def test_kernels_that_are_installed_are_hidden(tmp_path, package):
    (tmp_path / f"{package}.py").write_text("")

    def run(program):
        paths = f"import sys; sys.path[:0] = {[str(ROOT / 'benchmarks'), str(tmp_path)]}\n"
        program = f"{paths}import transformers_speed as speed\n{program}"
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert run(f"import {package}").returncode == 0
    hidden = run(f"speed.hide_kernels()\nimport {package}")
    assert f"ModuleNotFoundError: import of {package} halted" in hidden.stderr
    late = run(f"import {package}\nspeed.hide_kernels()")
    assert f"RuntimeError: {package}: imported before the torch code" in late.stderr


class Model:
    """A prompt takes 3 s, then 5 s, then 4 s; a token 2 s. Twice as fast with cubinery."""

    config = types.SimpleNamespace(
        model_type="qwen3_next", num_hidden_layers=4, layer_types=["linear_attention"] * 3 + ["x"],
        hidden_size=64, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
        linear_value_head_dim=32, num_experts=8,
    )  # fmt: skip

    def __init__(self):
        self.now, self.prompts, self.speed = 0.0, 0, 1

    def __call__(self, ids, **_):
        self.now += (4, 3, 5, 4)[self.prompts % 4] / self.speed
        self.prompts += 1

    def generate(self, ids, max_new_tokens, min_new_tokens, **_):
        assert max_new_tokens == min_new_tokens
        self.now += (3 + 2 * (max_new_tokens - 1)) / self.speed


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs the program on a Model, with a message of the adapter's; its exit code and record."""
    cuda = types.SimpleNamespace(
        is_available=lambda: True, synchronize=lambda: None, get_device_name=lambda: "a GPU"
    )
    torch = types.SimpleNamespace(
        cuda=cuda, inference_mode=lambda: monkeypatch.context(), randint=lambda *_, **__: None
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(speed, "hide_kernels", lambda: None)
    logger = logging.getLogger("cubinery.compat.transformers")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logger.level)

    def run(message=None):
        model, out = Model(), tmp_path / "record.json"

        def enable(one):
            one.speed = 2
            if message:
                logger.info(message)

        monkeypatch.setattr(speed, "build", lambda *_: model)
        monkeypatch.setattr(speed.time, "perf_counter", lambda: model.now)
        monkeypatch.setattr(transformers, "enable", enable)
        code = speed.main(["--repeats", "3", "--new", "8", "--commit", "abc", "--out", str(out)])
        return code, json.loads(out.read_text()) if out.exists() else None

    return run


def test_a_record_has_both_and_becomes_a_table(run):
    code, record = run()
    assert code == 0
    assert record["model"]["linear_layers"] == 3 and record["hidden"] == ["fla", "causal_conv1d"]
    prefill, token = record["rows"]
    assert prefill["contenders"] == {
        "torch": {"ms": 4000, "ms_min": 3000, "ms_max": 5000},
        "cubinery": {"ms": 2000, "ms_min": 1500, "ms_max": 2500},
    }
    assert [token["contenders"][one]["ms"] for one in ("torch", "cubinery")] == [2000, 1000]
    assert (prefill["ratio"], token["ratio"], token["commit"]) == (2, 2, "abc")

    record["packages"] |= {"torch": "2.11.0", "transformers": "5.24.0"}
    lines = write_results.transformers_section(record)
    assert (
        "| a prompt of 4096 tokens | 4.00 s (3.00 s to 5.00 s) | 2.00 s (1.50 s to 2.50 s) | 2.00x |"
        in lines
    )
    assert any("Transformers 5.24.0 with and without" in line for line in lines)
    assert write_results.transformers_section(None) == []


def test_a_call_that_is_left_to_transformers_is_no_measurement(run, capsys):
    assert run("x is on the CPU: Transformers' own function runs instead") == (1, None)
    assert "x is on the CPU" in capsys.readouterr().err
