"""What engines launch is what problems_for_engine() lists: the calls of their functions, with the
problems that are asked for written down instead of prepared, and what their plugins prepare."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
from typing import Any

import cubinery
import engine_calls
import pytest
from cubinery import functional
from cubinery.compat import _arguments, transformers
from cubinery.plugins import _common
from fake_gpu import ROOT

MODELS = ROOT / "tests" / "data" / "models"
NEXT, DENSE = "Qwen3-Next-80B-A3B-Instruct", "Qwen3.5-27B"
SOFTPLUS, BOUNDED = "Kimi-Linear-48B-A3B-Instruct", "GLM-5.3-Flash"
KDA = (SOFTPLUS, BOUNDED, "Kimi-K3")
PLUGINS = ("vllm", "sglang")
ENGINES = (*PLUGINS, "transformers", "fla", "flashinfer", "tensorrt_llm", "tokenspeed")
UP_TO_ANY = ("flashinfer", "tensorrt_llm", "tokenspeed")  # drafts, whatever their number


class Asked(cubinery.Context):
    """A context that keeps the problems it is asked for, and runs nothing."""

    def __init__(self) -> None:
        self.problems: list[cubinery.DecodeProblem] = []

    def _kept_operator(self, fields: tuple[str, ...], key: tuple[Any, ...]) -> Any:
        problem, *values = key
        asked = problem(**dict(zip(fields, values)))
        self.problems.append(asked)

        def operator(*arrays: Any, **named: Any) -> None: ...

        operator.problem = asked
        return operator


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    context = Asked()
    for name in ("gdn_conv", "gdn_decode", "gdn_prefill", "gdn_verify"):
        run = functools.partial(getattr(functional, name), context=context)
        monkeypatch.setattr(functional, name, run)
    # Of these numpy's arrays are none.
    monkeypatch.setattr(_arguments, "require_gpu", lambda *of: None)
    monkeypatch.setattr(transformers, "_require_plain", lambda *of: None)
    return context


@pytest.fixture(scope="session")
def kernels(compiler: cubinery.Context) -> Any:
    """The keys of a problem's kernels."""

    @functools.cache
    def keys(problem: Any) -> frozenset[str]:
        return frozenset(report["canonical"] for report in compiler.explain(problem))

    return keys


def forms_of(
    engine: str, model: str, functions: bool, tp: int = 2, **switches: Any
) -> dict[str, Any]:
    switches = {"dtype": "f16", **switches}
    forms = cubinery.problems_for_engine(
        MODELS / model, engine, tp=tp, functions=functions, **switches
    )
    if functions and engine in PLUGINS:
        return {name: one for name, one in forms.items() if name.startswith("functions.")}
    return forms


def sizes_of(engine: str, model: str, tp: int = 2) -> engine_calls.Sizes:
    config = json.loads((MODELS / model / "config.json").read_text())
    config = config.get("text_config", config)
    if "linear_attn_config" in config:
        size = config["linear_attn_config"]
        heads, dim = size["num_heads"] // tp, size["head_dim"]
        return engine_calls.Sizes(heads, heads, dim, dim, "f32")
    heads, value_heads = (config[f"linear_num_{of}_heads"] // tp for of in ("key", "value"))
    halves = engine == "tensorrt_llm" or (engine == "vllm" and model == NEXT)
    dims = config["linear_key_head_dim"], config["linear_value_head_dim"]
    return engine_calls.Sizes(heads, value_heads, *dims, "f16" if halves else "f32")


def check(kernels: Any, forms: dict[str, Any], launched: list[Any]) -> None:
    """Every problem has the kernels of a form, and every form those of a problem."""
    listed = {kernels(problem): form for form, problem in forms.items()}
    asked = {kernels(problem): problem for problem in launched}
    assert [problem for key, problem in asked.items() if key not in listed] == []
    assert [form for key, form in listed.items() if key not in asked] == []


CALLED = [(engine, model) for engine in ENGINES for model in (NEXT, DENSE)]


@pytest.mark.parametrize("engine, model", [*CALLED, ("sglang", BOUNDED)])
def test_what_functions_launch_is_what_is_listed(asked, kernels, engine, model):
    forms = forms_of(engine, model, True)
    calls = f"{engine}_kda_functions" if model in KDA else f"{engine}_functions"
    getattr(engine_calls, calls)(sizes_of(engine, model))
    check(kernels, forms, asked.problems)


def layer_of(
    engine: str, model: str, tp: int, drafts: int, norm: str | None, context: cubinery.Context
) -> dict[str, Any]:
    """What the plugin launches on such a GPU for a layer of the model, as the engine hands it over.

    Args:
        norm: what vLLM has its plugin do behind the recurrence.
    """
    plugin = importlib.import_module(f"cubinery.plugins._{engine}_layer")
    size = sizes_of(engine, model, tp)
    common: dict[str, Any] = {
        "k_heads": size.heads, "v_heads": size.value_heads, "key_dim": size.key_dim,
        "value_dim": size.value_dim, "dtype": "bf16", "a_log_dtype": "f32",
        "dt_bias_dtype": "bf16", "state_dtype": size.state.replace("f16", "bf16"),
        "conv_width": 4, "conv_weight_dtype": "bf16", "conv_state_dtype": "bf16",
    }  # fmt: skip
    if model in KDA:
        common |= {
            "dt_bias_dtype": "f32", "conv_weight_dtype": "f32", "decay": "channel",
            "gate_mode": "computed" if model == SOFTPLUS else "lower_bound",
        }  # fmt: skip
    if engine == "sglang":
        # It counts the token in front of its drafts.
        tokens = drafts + 1 if drafts else 0
        layout = "channels" if model in KDA else "columns"
        layer = plugin.SglangLayer(**common, conv_state_layout=layout, drafts=tokens)
        decode = {"decode": plugin.problems(layer)["decode"]}
        joins = not _common.without_path(context, decode)
        return plugin.problems(dataclasses.replace(layer, joins_conv=joins))
    behind = {"output_norm": norm, "norm_weight_dtype": "bf16"} if norm else {}
    layer = plugin.VllmLayer(**common, conv_state_layout="channels", drafts=drafts, **behind)
    found = plugin.problems(plugin.supported(context, layer))
    if model != SOFTPLUS:  # whose states inside a prefill vLLM does not keep
        with_cache = dataclasses.replace(layer, keeps_states=True)  # of prefixes
        found |= plugin.problems(plugin.supported(context, with_cache))
    return found


@pytest.mark.parametrize("arch, tp", [("sm_80", 2), ("sm_90a", 1), ("sm_90a", 2)])
@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("model", [NEXT, DENSE, *KDA])
@pytest.mark.parametrize("engine", PLUGINS)
def test_what_plugins_launch_is_what_is_listed(kernels, cache_dir, engine, model, drafts, arch, tp):
    context = cubinery.Context(-1, arch=arch, cache_dir=str(cache_dir))
    norms = {NEXT: None, DENSE: "gated_rms"}
    norm = norms.get(model, "sigmoid_gated_rms") if engine == "vllm" else None
    problems = layer_of(engine, model, tp, drafts, norm, context)
    forms = forms_of(engine, model, False, tp, dtype="bf16", draft_tokens=drafts + 1, arch=arch)
    check_forms(kernels, forms, problems)
    # Several value heads of a key head share its convolution in a cluster.
    assert ("decode_with_conv" in forms) == (arch == "sm_90a" or model in KDA)


def test_layers_that_no_plugin_takes_are_refused():
    with pytest.raises(cubinery.InvalidArgumentError, match="with it: vllm, sglang, no engine"):
        cubinery.problems_for_engine(MODELS / "Kimi-K3", "fla", tp=8)
    with pytest.raises(cubinery.InvalidArgumentError, match="accepted with it: sglang, no engine"):
        cubinery.problems_for_engine(MODELS / "Ling-3.0-Flash", "vllm")


def check_forms(kernels: Any, forms: dict[str, Any], problems: dict[str, Any]) -> None:
    """Each form of a plugin has the kernels that the list has under its name, and all are there."""
    if "conv_decode" not in problems:
        problems["decode_with_conv"] = problems.pop("decode")
    assert forms.keys() == problems.keys()
    for form, problem in forms.items():
        assert kernels(problem) == kernels(problems[form]), form


@pytest.mark.parametrize(
    "model, norm, switches",
    [
        (DENSE, "sigmoid_gated_rms", {}),  # of a configuration with that gate
        (NEXT, "gated_rms", {"output_norm": "gated_rms"}),  # without compiled graphs
    ],
)
def test_norms_that_vllm_may_hand_on_are_listed(kernels, compiler, model, norm, switches):
    problems = layer_of("vllm", model, 1, 0, norm, compiler)
    config = json.loads((MODELS / model / "config.json").read_text())
    text = config.get("text_config", config)
    text["output_gate_type"] = "sigmoid" if norm == "sigmoid_gated_rms" else "silu"
    forms = cubinery.problems_for_engine(config, "vllm", draft_tokens=1, arch="sm_90a", **switches)
    check_forms(kernels, forms, problems)
    assert {one.output_norm for one in forms.values() if hasattr(one, "output_norm")} == {norm}


@pytest.mark.parametrize("engine", ENGINES)
def test_without_drafts_there_are_no_forms_of_theirs(engine):
    drafts = forms_of(engine, NEXT, True)
    plain = [forms_of(engine, NEXT, True, draft_tokens=count) for count in (0, 1)]
    assert plain[0] == plain[1]
    of_drafts = [form for form in drafts if "verify" in form or "drafts" in form]
    assert list(plain[0]) == [form for form in drafts if form not in of_drafts]
    if of_drafts:
        more = forms_of(engine, NEXT, True, draft_tokens=8)
        known = [more[form] for form in of_drafts if hasattr(more[form], "draft_tokens")]
        assert {one.draft_tokens for one in known} == {16 if engine in UP_TO_ANY else 8}


@pytest.mark.parametrize(
    "engine, model, dtype",
    [
        ("vllm", NEXT, "bf16"),
        ("vllm", DENSE, "f32"),  # its mamba_ssm_dtype
        ("sglang", NEXT, "f32"),
        ("transformers", DENSE, "f32"),
        ("tensorrt_llm", DENSE, "bf16"),
        ("tokenspeed", NEXT, "f32"),
    ],
)
def test_the_engine_decides_the_dtype_of_states(engine, model, dtype):
    forms = cubinery.problems_for_engine(MODELS / model, engine)
    assert {forms[form].state_dtype for form in ("decode", "prefill")} == {dtype}
    assert forms == cubinery.problems_for_engine(MODELS / model, engine, state_dtype="auto")
    given = cubinery.problems_for_engine(MODELS / model, engine, state_dtype="f16")
    assert given["decode"].state_dtype == given["prefill"].state_dtype == "f16"
    assert given["conv"].state_dtype == "bf16"


def test_vllm_without_mamba_ssm_dtype_has_states_in_the_models_dtype():
    config = {"model_type": "qwen3_5_text", "dtype": "float16"}
    forms = cubinery.problems_for_engine(config, "vllm")
    assert forms["decode"].state_dtype == "f16"
    config["mamba_ssm_dtype"] = "float32"
    assert cubinery.problems_for_engine(config, "vllm")["decode"].state_dtype == "f32"
    config["model_type"] = "qwen3_next"
    assert cubinery.problems_for_engine(config, "vllm")["decode"].state_dtype == "f16"


def test_a_switch_goes_before_what_the_engine_has():
    switches = {"conv_state_layout": "columns", "use_qk_l2norm": True}
    forms = cubinery.problems_for_engine({"model_type": "qwen3_next"}, "vllm", **switches)
    assert forms["conv"].state_layout == "columns" and forms["prefill"].use_qk_l2norm
    # What an engine makes in f32 is no part of the model's dtype.
    halves = cubinery.problems_for_engine({"model_type": "qwen3_next"}, "vllm", dtype="f16")
    assert halves["prefill"].gate_dtype == "f32" and halves["decode"].gate_dtype == "f16"
    assert halves["conv"].gate_dtype == "f16"


def test_beta_is_the_models():
    forms = cubinery.problems_for_engine({"model_type": "olmo_hybrid"}, "vllm")
    assert forms["conv"].beta_mode == forms["decode"].beta_mode == "doubled_logit"


def test_functions_have_forms_of_their_own():
    config = {"model_type": "qwen3_next"}
    plugin = cubinery.problems_for_engine(config, "sglang")
    both = cubinery.problems_for_engine(config, "sglang", functions=True)
    assert plugin.items() <= both.items()
    assert all(form.startswith("functions.") for form in both.keys() - plugin.keys())


def test_refuses_engines_that_are_not_known():
    known = "accepted: vllm, sglang, transformers, fla, flashinfer, tensorrt_llm, tokenspeed"
    with pytest.raises(cubinery.InvalidArgumentError, match=f"= vlm; {known}; did you mean vllm"):
        cubinery.problems_for_engine({"model_type": "qwen3_next"}, "vlm")
    with pytest.raises(cubinery.InvalidArgumentError, match="engine"):
        cubinery.problems_for_engine({"model_type": "qwen3_next"}, 3)
    with pytest.raises(cubinery.InvalidArgumentError, match="no switch of a model"):
        cubinery.problems_for_engine({"model_type": "qwen3_next"}, "vllm", dtypes="f16")


def test_what_a_model_cannot_have_is_left_out():
    config = {"model_type": "qwen3_next", "linear_conv_kernel_dim": 5}
    with pytest.warns(cubinery.LeftOutWarning, match="conv_verify .*width = 5"):
        forms = cubinery.problems_for_engine(config, "vllm")
    assert list(forms) == ["prefill", "prefill_kept", "decode", "verify"]
    with pytest.warns(cubinery.LeftOutWarning):
        forms = cubinery.problems_for_engine(config, "transformers")
    assert list(forms) == ["prefill", "prefill_more", "decode"]


@pytest.mark.parametrize(
    "config, norm",
    [
        ({"model_type": "qwen3_5_text"}, "gated_rms"),
        ({"model_type": "qwen3_5_text", "dtype": "float16"}, "none"),
        ({"model_type": "qwen3_5_text", "output_gate_type": "sigmoid"}, "sigmoid_gated_rms"),
        ({"model_type": "qwen3_5_text", "linear_use_gate": False}, "none"),
        ({"model_type": "qwen3_next"}, "none"),
    ],
)
def test_vllm_hands_the_norm_to_some_layers(config, norm):
    decode = cubinery.problems_for_engine(config, "vllm")["decode"]
    assert decode.output_norm == norm
    assert norm == "none" or decode.norm_weight_dtype == "bf16"
    plain = cubinery.problems_for_engine(config, "vllm", output_norm="none")
    assert plain["decode"].output_norm == "none"
    assert cubinery.problems_for_engine(config, "sglang")["decode"].output_norm == "none"
