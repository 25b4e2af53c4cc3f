"""Problems of models, and that the command line's prewarm compiles what they need."""

import dataclasses
import json
import re
import shutil
import subprocess
import warnings
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
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        problems = cubinery.problems_for_model(MODELS / folder)
    assert problems.left_out() == {} and not caught
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

    class Nested:
        def to_dict(self):
            return values["text_config"]

    assert cubinery.problems_for_model({**values, "text_config": Nested()}).decode.dtype == "f16"


NEXT = {"model_type": "qwen3_next"}
RECURRENCE = ["decode", "decode_with_conv", "prefill", "verify", "commit"]
CONVOLUTIONS = ["conv", "conv_decode", "conv_verify"]


def test_numbers_that_json_has_not_are_read_over():
    expected = cubinery.problems_for_model(NEXT)
    limits = {"time_step_limit": [0.0, float("inf")], "low": -float("inf"), "eps": float("nan")}

    class Configuration:
        def to_dict(self):
            return {**NEXT, **limits}

    for config in ({**NEXT, **limits}, json.dumps({**NEXT, **limits}), Configuration()):
        assert cubinery.problems_for_model(config) == expected
    with pytest.raises(cubinery.InvalidArgumentError, match="linear_key_head_dim = Infinity; acc"):
        cubinery.problems_for_model({**NEXT, "linear_key_head_dim": float("inf")})
    with pytest.raises(cubinery.InvalidArgumentError, match="layer_types = NaN; accepted: a list"):
        cubinery.problems_for_model({**NEXT, "layer_types": float("nan")})


def test_what_a_model_computes_decides():
    olmo = cubinery.problems_for_model({"model_type": "olmo_hybrid"})
    assert {getattr(olmo, form).beta_mode for form in RECURRENCE} == {"doubled_logit"}
    assert (olmo.decode.k_heads, olmo.decode.key_dim, olmo.decode.value_dim) == (30, 96, 192)
    once = cubinery.problems_for_model(
        {"model_type": "olmo_hybrid", "linear_allow_neg_eigval": False}
    )
    assert once.decode.beta_mode == "logit"
    for config, message in (
        ({"architectures": ["Olmo3MoeForCausalLM"], **NEXT}, "Kimi Delta Attention"),
        ({**NEXT, "layer_types": ["full_attention"]}, "the model has no linear layer"),
        ({**NEXT, "model_type": "llama"}, 'config: model_type = "llama"; accepted: models with'),
    ):
        with pytest.raises(cubinery.InvalidArgumentError, match=message):
            cubinery.problems_for_model(config)
    unknown = {"model_type": "mine", "linear_num_value_heads": 64}
    assert cubinery.problems_for_model(unknown, model_type="qwen3_next").decode.v_heads == 64
    with pytest.raises(cubinery.InvalidArgumentError, match="model_type = 3; accepted: a str"):
        cubinery.problems_for_model(unknown, model_type=3)


def test_models_with_kimi_delta_attention():
    folder = MODELS / "Kimi-K3"
    problems = cubinery.problems_for_model(folder, tp=8, output_norm="auto")
    decode = problems.decode_with_conv
    assert (decode.decay, decode.gate_mode, decode.v_heads) == ("channel", "lower_bound", 12)
    assert (decode.dt_bias_dtype, decode.conv_weight_dtype) == ("f32", "f32")
    assert (decode.conv_state_layout, decode.output_norm) == ("channels", "sigmoid_gated_rms")
    decays = {problems.prefill.decay, problems.verify.decay, problems.commit.decay}
    assert decays == {"channel"}


def test_a_switch_is_a_property_of_the_model():
    def values(problems, forms, field):
        return {getattr(getattr(problems, form), field) for form in forms}

    halves = cubinery.problems_for_model(NEXT, state_dtype="bf16")
    assert values(halves, RECURRENCE, "state_dtype") == {"bf16"}
    wide = cubinery.problems_for_model(NEXT, conv_state_dtype="f32", draft_tokens=8)
    assert values(wide, RECURRENCE, "state_dtype") == {"f32"}
    assert values(wide, CONVOLUTIONS, "state_dtype") == {"f32"}
    assert wide.decode_with_conv.conv_state_dtype == "f32"
    assert values(wide, ["verify", "commit"], "draft_tokens") == {8}
    f16 = cubinery.problems_for_model(NEXT, dtype="f16", state_dtype="auto", use_qk_l2norm=False)
    assert values(f16, RECURRENCE, "dt_bias_dtype") == {"f16"}
    assert values(f16, RECURRENCE, "state_dtype") == {"f16"}
    assert values(f16, RECURRENCE, "use_qk_l2norm") == {False}
    assert values(f16, CONVOLUTIONS, "weight_dtype") == {"f16"}
    norm = cubinery.problems_for_model(
        {"model_type": "qwen4_exp", "output_gate_type": "sigmoid"}, output_norm="auto"
    )
    assert norm.decode.output_norm == "sigmoid_gated_rms"
    for switches, message in (
        ({"state_dtpye": "bf16"}, "did you mean state_dtype"),
        ({"dtype": "bfloat16"}, "dtype = bfloat16; accepted: f32, bf16, f16"),
        ({"state_dtype": None}, "state_dtype = None; accepted: a str, an int"),
        ({"draft_tokens": 1.5}, "draft_tokens = 1.5; accepted: a str, an int"),
    ):
        with pytest.raises(cubinery.InvalidArgumentError, match=message):
            cubinery.problems_for_model(NEXT, **switches)


@pytest.mark.parametrize(
    ("config", "switches", "lost"),
    [
        ({"linear_key_head_dim": 24}, {}, RECURRENCE),
        ({"linear_conv_kernel_dim": 5}, {}, ["decode_with_conv", *CONVOLUTIONS]),
        ({"dtype": "float32"}, {}, ["commit"]),
        ({}, {"state_dtype": "f8e4m3"}, ["prefill", "verify", "commit"]),
    ],
)
def test_forms_that_a_model_cannot_have_are_named(config, switches, lost):
    with pytest.warns(cubinery.LeftOutWarning, match=r"config: left out: \w+ \(gdn_") as caught:
        problems = cubinery.problems_for_model({**NEXT, **config}, **switches)
    assert caught[0].filename == __file__
    assert list(problems.left_out()) == lost
    for form, why in problems.left_out().items():
        assert "; accepted: " in why
        with pytest.raises(cubinery.InvalidArgumentError):
            getattr(problems, form).check()
        assert f"{form} ({why})" in str(caught[0].message)
    assert cubinery.problems_for_model(NEXT).left_out() == {}


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
