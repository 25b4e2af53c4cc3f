"""Plugins and adapters against what scripts/engine_signatures.py has recorded of engines, and of
those that are installed; and that script on a package of this file.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import subprocess
import sys
from pathlib import Path

import fake_engine
import pytest
from cubinery.plugins import _sglang_layer
from cubinery.plugins import _vllm_places as places

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "engine_signatures.py"
RELEASES = sorted(path.stem for path in fake_engine.RECORDS.glob("*.json"))

# Of an engine's functions what our adapters refuse by name.
REFUSED = {
    "fused_sigmoid_gating_delta_rule_update": {
        "cache_ring", "match_cutedsl_decode", "replayssm_beta", "replayssm_g",
        "replayssm_rawk", "replayssm_rawv",
    },
}  # fmt: skip
# What is in front of an engine's classes, and the methods that this has of theirs.
_VLLM = {
    places.QWEN.path: ("QwenCore", ("_forward_core", "_forward_core_fused_norm_packed")),
    places.KIMI_LINEAR.path: ("KimiCore", ("_forward",)),
    places.K3.path: ("K3Core", ("_forward", "get_kv_cache_spec")),
    places.GLM5_NEXT.path: ("GlmCore", ("_forward", "forward", "get_kv_cache_spec")),
}
OVERRIDDEN = {
    "vllm": {
        path: (ours, ("bind_kv_cache", "get_attn_backend", *methods))
        for path, (ours, methods) in _VLLM.items()
    },
    "sglang": {
        _sglang_layer.GDN.path: ("GdnBackend", ("forward_decode", "forward_extend")),
        _sglang_layer.KDA.path: (
            "KdaBackend", ("forward_decode", "forward_extend", "supports_prefill_graph_extend"),
        ),
    },
}  # fmt: skip


def script():
    spec = importlib.util.spec_from_file_location("engine_signatures", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def adapter_of(path):
    module, _, name = path.partition(".")
    return getattr(importlib.import_module(f"cubinery.compat.{module}"), name)


def names(parameters):
    return [each["name"] for each in parameters if each["kind"] in ("positional", "keyword")]


def explicit(function):
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = inspect.signature(function).parameters.values()
    return [each.name for each in found if each.kind not in kinds]


def plugin_of(engine):
    return importlib.import_module(f"cubinery.plugins.{engine}")


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_that_we_need_is_missing(release):
    assert fake_engine.record(release)["missing"] == []


def cases():
    for release in RELEASES:
        for path, ours in fake_engine.record(release)["adapters"].items():
            yield pytest.param(release, path, ours, id=f"{release} {ours}")


@pytest.mark.parametrize("release, path, ours", list(cases()))
def test_an_adapter_has_the_engines_parameters(release, path, ours):
    about = fake_engine.record(release)["objects"][path]
    theirs, taken = names(about["parameters"]), explicit(adapter_of(ours))
    refused = REFUSED.get(path.split(":")[1], set())
    assert set(theirs) - set(taken) <= refused


@pytest.mark.parametrize("release, path, ours", list(cases()))
def test_an_adapter_takes_the_engines_calls(release, path, ours):
    record = fake_engine.record(release)
    theirs = names(record["objects"][path]["parameters"])
    signature = inspect.signature(adapter_of(ours))
    refused = REFUSED.get(path.split(":")[1], set())
    for call in record["calls"]:
        if call["callee"] != path or refused & set(call["keywords"]):
            continue
        count = call["positional"]
        assert explicit(adapter_of(ours))[:count] == theirs[:count]
        signature.bind(*[0] * count, **dict.fromkeys(call["keywords"]))


def test_calls_are_recorded_of_each_release():
    for release in RELEASES:
        record = fake_engine.record(release)
        called = {call["callee"] for call in record["calls"]}
        assert called <= set(record["adapters"]) and len(called) >= 4


PLUGINS = [release for release in RELEASES if release.split("-")[0] in OVERRIDDEN]


@pytest.mark.parametrize("release", PLUGINS)
def test_a_plugins_seams_are_the_engines(release):
    record = fake_engine.record(release)
    plugin = plugin_of(record["engine"])
    for path, parameters in plugin.SEAMS.items():
        about = record["objects"][path]
        assert set(parameters) <= set(names(about.get("parameters", []))), path


@pytest.mark.parametrize("release", PLUGINS)
def test_a_plugin_reads_what_the_engines_class_sets(release):
    record = fake_engine.record(release)
    for path, names_read in plugin_of(record["engine"]).ATTRIBUTES.items():
        assert sorted(names_read) == record["objects"][path]["attributes"]


@pytest.mark.parametrize("release", PLUGINS)
def test_what_a_plugin_overrides_has_the_engines_parameters(release):
    record = fake_engine.record(release)
    for path, (ours, methods) in OVERRIDDEN[record["engine"]].items():
        for name in methods:
            theirs = fake_engine.signature(record["objects"][f"{path}.{name}"])
            method = getattr(getattr(plugin_of(record["engine"]), ours), name)
            assert list(inspect.signature(method).parameters)[1:] == list(theirs.parameters)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers"])
def test_an_installed_engine_has_what_we_need(engine):
    if importlib.util.find_spec(engine) is None:
        pytest.skip(f"no {engine}")
    record = script().read(engine, None)
    assert record["missing"] == []
    for path, parameters in getattr(plugin_of(engine), "SEAMS", {}).items():
        about = record["objects"][path]
        assert set(parameters) <= set(names(about.get("parameters", []))), path


# ---- The script


PACKAGE = {
    "__init__.py": "",
    "base.py": """
        class Base:
            shared = 1
            def bind(self, cache): self.cache = cache
    """,
    "layer.py": """
        from .base import Base as Behind
        from dataclasses import dataclass
        if True:
            from .ops import *
        class Layer(Behind):
            def __init__(self, config, *, prefix=""): self.heads = config
            def forward(self, x): return rule(x, 1, scale=2, **x)
        @dataclass
        class Metadata:
            count: int
            rows: list | None = None
    """,
    "late.py": """
        from . import ops as many, base as other
        def run(x):
            from .ops import rule as short
            return short(x), many.rule(x, 2), other.rule(x), x.rule(1)
    """,
    "ops/__init__.py": "from .rules import rule",
    "ops/rules.py": "def rule(q, k, /, scale=None, *rest, mask=None, **more): pass",
}


@pytest.fixture
def package(tmp_path):
    import textwrap

    (tmp_path / "engine-1.5.dist-info").mkdir()
    for name, text in PACKAGE.items():
        path = tmp_path / "engine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path


def test_definitions_are_found_where_they_are(package):
    module = script()
    sources = module.Sources("engine", package)
    assert sources.version == "1.5"
    rule = module.describe(sources, "engine.layer:rule")
    assert rule["in"] == "engine.ops.rules"
    kinds = [(each["name"], each["kind"], each["required"]) for each in rule["parameters"]]
    assert kinds == [
        ("q", "positional", True), ("k", "positional", True), ("scale", "positional", False),
        ("rest", "rest", False), ("mask", "keyword", False), ("more", "keywords", False),
    ]  # fmt: skip
    bind = module.describe(sources, "engine.layer:Layer.bind")
    assert bind["in"] == "engine.base" and names(bind["parameters"]) == ["cache"]
    layer = module.describe(sources, "engine.layer:Layer", ("heads", "cache", "shared", "none"))
    assert layer["attributes"] == ["cache", "heads"]
    assert names(layer["parameters"]) == ["config", "prefix"]
    assert module.describe(sources, "engine.layer:Layer.shared")["kind"] == "value"
    metadata = module.describe(sources, "engine.layer:Metadata")
    assert [each["required"] for each in metadata["parameters"]] == [True, False]
    assert module.describe(sources, "engine.layer:Gone") is None
    assert module.describe(sources, "engine.layer:Layer.gone") is None
    assert module.describe(sources, "engine.gone:Layer") is None


def test_calls_are_those_by_the_functions_name(package):
    module = script()
    sources = module.Sources("engine", package)
    found = module.calls(sources, "engine.layer", {"rule": "engine.ops:rule"})
    assert found == [
        {
            "callee": "engine.ops:rule", "in": "engine.layer.Layer.forward", "positional": 2,
            "keywords": ["scale"],
        }
    ]  # fmt: skip


def test_calls_by_other_names_are_found_by_what_is_imported(package):
    module = script()
    sources = module.Sources("engine", package)
    names_of = module.names_of(sources, "engine.late", ["engine.ops:rule", "engine.base:rule"])
    assert names_of == {
        "rule": "engine.base:rule", "short": "engine.ops:rule", "many.rule": "engine.ops:rule",
        "other.rule": "engine.base:rule",
    }  # fmt: skip
    found = module.calls(sources, "engine.late", names_of)
    assert [(call["callee"], call["positional"]) for call in found] == [
        ("engine.ops:rule", 1), ("engine.ops:rule", 2), ("engine.base:rule", 1),
    ]  # fmt: skip


def test_a_changed_release_is_told(tmp_path):
    record = fake_engine.record("vllm-0.33.0")
    module = script()
    changed = json.loads(json.dumps(record))
    changed["objects"].pop("vllm.forward_context:get_forward_context")
    before, now = ({*module.flat(each)} for each in (record, changed))
    assert {line.split()[1] for line in before - now} == {
        "vllm.forward_context:get_forward_context"
    }
    assert not now - before


def test_a_release_that_lacks_everything_is_told(tmp_path):
    (tmp_path / "vllm-9.0.dist-info").mkdir()
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), "vllm", str(tmp_path)], capture_output=True, text=True
    )
    assert ran.returncode == 1 and ran.stdout.startswith("vllm 9.0, against 0.33.0\n")
    assert '+ missing: "vllm.platforms:current_platform"' in ran.stdout


def test_the_package_tells_engines_of_its_plugins():
    from importlib import metadata

    try:
        metadata.distribution("cubinery")
    except metadata.PackageNotFoundError:
        pytest.skip("cubinery is not installed")
    for group, module in (("vllm.general_plugins", "vllm"), ("sglang.srt.plugins", "sglang")):
        (point,) = metadata.entry_points(group=group, name="cubinery")
        assert point.load() is plugin_of(module).register
