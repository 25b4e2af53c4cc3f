"""Problems of models, and that the command line's prewarm compiles what they need."""

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import cubinery
import pytest

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "data" / "models"
CONFIG = MODELS / "Qwen3.5-27B" / "config.json"


@pytest.mark.parametrize(
    "folder", sorted(path.parent.name for path in MODELS.glob("*/config.json"))
)
def test_every_model_has_problems(folder):
    problems = cubinery.problems_for_model(MODELS / folder)
    for field in dataclasses.fields(problems):
        getattr(problems, field.name).check()
    assert problems.decode.use_qk_l2norm and problems.prefill.varlen
    assert (problems.verify.draft_tokens, problems.verify.from_accepted) == (4, True)
    assert (problems.commit.draft_tokens, problems.commit.varlen) == (4, True)
    assert (problems.conv.split_qkv, problems.conv.varlen) == (True, True)
    assert problems.conv_decode == dataclasses.replace(problems.conv, varlen=False)
    assert problems.conv_verify == dataclasses.replace(problems.conv, from_accepted=True)


def test_the_problems_are_the_command_lines(command):
    run = [command, "problems", "--hf-config", CONFIG, "--tp", "2"]
    problems = cubinery.problems_for_model(CONFIG, tp=2)
    for field in dataclasses.fields(problems):
        printed = subprocess.run(
            [*run, "--form", field.name], check=True, capture_output=True, text=True
        )
        problem = getattr(problems, field.name)
        assert type(problem)(**json.loads(printed.stdout)) == problem
    whole = json.loads(subprocess.run(run, check=True, capture_output=True).stdout)
    assert len(whole) == len(dataclasses.fields(problems))


def test_a_configuration_is_a_path_text_a_dict_or_an_object():
    values = json.loads(CONFIG.read_text())

    class Configuration:
        def to_dict(self):
            return values

    expected = cubinery.problems_for_model(CONFIG, tp=2)
    assert expected.decode.v_heads == 24
    others = [str(CONFIG), CONFIG.parent, CONFIG.read_text(), "\n" + CONFIG.read_text(), values]
    for config in [*others, Configuration()]:
        assert cubinery.problems_for_model(config, 2) == expected

    class Half:
        def __str__(self):
            return "torch.float16"

    values["text_config"]["dtype"] = Half()
    assert cubinery.problems_for_model(values).decode.dtype == "f16"


@pytest.mark.parametrize(
    ("config", "tp", "message"),
    [
        (3, 1, "config: is of type int; accepted: a path, JSON, a dict, or an object with to_dict"),
        ({}, 1, "config: no field linear_num_key_heads"),
        ("{", 1, "config: not JSON at column 2"),
        (CONFIG, 0, "tp = 0; accepted: an int from 1 up"),
        (CONFIG, "2", "tp = '2'; accepted: an int from 1 up"),
        (CONFIG, 5, f"{CONFIG}: .*divisible by tp = 5; accepted: 1, 2, 4, 8, 16"),
    ],
)
def test_refusals(config, tp, message):
    with pytest.raises(cubinery.InvalidArgumentError, match=message):
        cubinery.problems_for_model(config, tp)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(cubinery.CacheIOError, match="config: cannot read .*No such file"):
        cubinery.problems_for_model(tmp_path)
    with pytest.raises(cubinery.CacheIOError, match="config: /dev/zero is no file"):
        cubinery.problems_for_model("/dev/zero")
    (tmp_path / "config.json").write_bytes(b"{\xff")
    with pytest.raises(cubinery.InvalidArgumentError, match="config.json: not UTF-8 at byte 1"):
        cubinery.problems_for_model(tmp_path)


def test_readmes_program_runs_from_a_pack_of_the_command_line(
    gpu, empty_kernels, command, tmp_path, monkeypatch
):
    monkeypatch.setenv("CUBINERY_NVRTC", empty_kernels["nvrtc_path"])
    made, pack, empty = tmp_path / "made", tmp_path / "my.pack", tmp_path / "empty"
    for run in (
        ["prewarm", "--hf-config", CONFIG, "--tp", "2", "--arch", "sm_90a"],
        ["cache", "export", "--arch", "sm_90a", "-o", pack],
    ):
        subprocess.run([command, *run, "--cache-dir", made], check=True, capture_output=True)
    shutil.rmtree(made)
    offline = cubinery.Context(
        -1, arch="sm_90a", offline=True, cache_dir=empty, cache_layers=[pack]
    )
    problems = cubinery.problems_for_model(CONFIG, tp=2)
    for field in dataclasses.fields(problems):
        problem = getattr(problems, field.name)
        assert {kernel["source"] for kernel in offline.compile(problem)} == {"disk"}

    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.S | re.M)
    (program,) = (block for block in blocks if "problems_for_model" in block)
    names = {}
    exec(program, names)
    monkeypatch.setenv("CUBINERY_OFFLINE", "1")
    monkeypatch.setenv("CUBINERY_CACHE_DIR", str(empty))
    monkeypatch.setenv("CUBINERY_CACHE_LAYERS", str(pack))
    monkeypatch.setenv("CUBINERY_DRIVER", str(gpu.path))
    decode, prefill = names["prepare"](CONFIG, cubinery.Context(0))
    assert (decode.problem, prefill.problem) == (problems.decode, problems.prefill)
    assert decode.context.stats().compiles == 0
