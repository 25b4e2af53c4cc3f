#!/usr/bin/env python3
"""What our plugins and adapters need of an inference engine: its functions' parameters, its classes' attributes, its
calls, read from the .py files of a wheel.  Nothing of the engine is imported.

    scripts/engine_signatures.py vllm WHEEL            what has changed since the recorded release; exits 1 if anything has
    scripts/engine_signatures.py vllm WHEEL --write    records it: python/tests/data/engines/vllm-VERSION.json

WHEEL: a wheel, a folder of one unpacked, or nothing: the package that is installed.  Of a wheel that is not there yet:
`pip download --no-deps vllm==0.33.0`.  Python's tests hold the plugins and adapters to every recorded release.
Needs the package cubinery (PYTHONPATH=python beside a built module will do).
"""
import argparse
import ast
import importlib
import importlib.metadata
import importlib.util
import json
import pathlib
import re
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDS = ROOT / "python" / "tests" / "data" / "engines"

_VLLM_OPS = "vllm.third_party.flash_linear_attention.ops"
_VLLM_GDN = "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn"
_VLLM_KIMI = "vllm.models.kimi_k3.nvidia.ops.third_party.kda"
_VLLM_GLM = "vllm.models.glm5next.nvidia.ops.third_party.kda"
_SGLANG_OPS = "sglang.kernels.ops"
_SGLANG_GDN = "sglang.srt.layers.attention.linear.gdn_backend"
_TOKENSPEED = "tokenspeed.runtime.layers.attention"
_TOKENSPEED_OPS = "tokenspeed_kernel.ops.attention.gdn"  # a package of its own: WHEEL is a folder of both unpacked
_QWEN = "transformers.models.qwen3_next.modeling_qwen3_next"
_KIMI = "transformers.models.kimi_linear.modeling_kimi_linear"
# Of each engine: our plugin, whose SEAMS say what it takes and ATTRIBUTES what it reads of classes; the functions whose signatures adapters have, with the
# adapter; the modules whose calls of these reach our functions.
ENGINES = {
    "vllm": {
        "plugin": "cubinery.plugins.vllm",
        "adapters": {
            f"{_VLLM_OPS}:chunk_gated_delta_rule": "vllm.chunk_gated_delta_rule",
            f"{_VLLM_OPS}:fused_recurrent_gated_delta_rule": "vllm.fused_recurrent_gated_delta_rule",
            f"{_VLLM_OPS}:fused_recurrent_gated_delta_rule_packed_decode":
                "vllm.fused_recurrent_gated_delta_rule_packed_decode",
            f"{_VLLM_OPS}:fused_sigmoid_gating_delta_rule_update": "vllm.fused_sigmoid_gating_delta_rule_update",
            f"{_VLLM_GDN}:fi_chunk_gated_delta_rule": "vllm.fi_chunk_gated_delta_rule",
            "vllm._custom_ops:fused_gdn_decode_post_conv_mtp": "vllm.fused_gdn_decode_post_conv_mtp",
            "vllm._custom_ops:fused_kda_decode": "vllm.fused_kda_decode",
            f"{_VLLM_KIMI}:fused_recurrent_kda": "vllm.fused_recurrent_kda",
            f"{_VLLM_KIMI}:fused_recurrent_kda_packed_decode": "vllm.fused_recurrent_kda_packed_decode",
            f"{_VLLM_GLM}:fused_recurrent_kda": "vllm.glm5next_fused_recurrent_kda",
            f"{_VLLM_KIMI}:chunk_kda_with_fused_gate": "vllm.chunk_kda_with_fused_gate",
            f"{_VLLM_GLM}:chunk_kda_with_fused_gate": "vllm.glm5next_chunk_kda_with_fused_gate",
            f"{_VLLM_OPS}.kda:chunk_kda": "vllm.chunk_kda",
            f"{_VLLM_OPS}.kda:fused_recurrent_kda": "vllm.glm5next_fused_recurrent_kda",
            f"{_VLLM_OPS}.kda:fused_recurrent_kda_fwd": "vllm.fused_recurrent_kda_fwd",
            "vllm.model_executor.layers.mamba.ops.causal_conv1d:causal_conv1d_fn": "vllm.causal_conv1d_fn",
            "vllm.model_executor.layers.mamba.ops.causal_conv1d:causal_conv1d_update": "vllm.causal_conv1d_update",
        },
        "callers": [_VLLM_GDN, "vllm.models.kimi_k3.nvidia.kda", "vllm.models.glm5next.common.kda",
                    "vllm.model_executor.layers.mamba.gdn.kimi_gdn_linear_attn",
                    "vllm.model_executor.models.bailing_moe_v3"],
    },
    "sglang": {
        "plugin": "cubinery.plugins.sglang",
        "adapters": {
            f"{_SGLANG_OPS}.attention.fla.chunk:chunk_gated_delta_rule": "sglang.chunk_gated_delta_rule",
            f"{_SGLANG_OPS}.attention.fla.fused_recurrent:fused_recurrent_gated_delta_rule_packed_decode":
                "sglang.fused_recurrent_gated_delta_rule_packed_decode",
            f"{_SGLANG_OPS}.attention.fla.fused_recurrent:fused_recurrent_kda_packed_decode":
                "sglang.fused_recurrent_kda_packed_decode",
            f"{_SGLANG_OPS}.attention.fla.kda:chunk_kda": "sglang.chunk_kda",
            f"{_SGLANG_OPS}.attention.linear.fused_sigmoid_gating_recurrent:fused_sigmoid_gating_delta_rule_update":
                "sglang.fused_sigmoid_gating_delta_rule_update",
            "sglang.srt.layers.attention.mamba.causal_conv1d:causal_conv1d_fn": "sglang.causal_conv1d_fn",
            f"{_SGLANG_OPS}.mamba.causal_conv1d_triton:causal_conv1d_update": "sglang.causal_conv1d_update",
        },
        "callers": [_SGLANG_GDN, "sglang.srt.layers.attention.linear.kernels.gdn_triton",
                    "sglang.srt.layers.attention.linear.kernels.kda_triton"],
    },
    "tokenspeed": {
        "plugin": None,
        "adapters": {
            f"{_TOKENSPEED_OPS}:gdn_chunk_prefill": "tokenspeed.gdn_chunk_prefill",
            f"{_TOKENSPEED_OPS}:gdn_decode_step": "tokenspeed.gdn_decode_step",
            f"{_TOKENSPEED_OPS}:gdn_decode_mtp": "tokenspeed.gdn_decode_mtp",
            f"{_TOKENSPEED}.linear.causal_conv1d:causal_conv1d_fn": "tokenspeed.causal_conv1d_fn",
            f"{_TOKENSPEED}.linear.causal_conv1d:causal_conv1d_update": "tokenspeed.causal_conv1d_update",
        },
        "callers": [f"{_TOKENSPEED}.backends.state.mamba"],
    },
    "transformers": {
        "plugin": None,
        "adapters": {
            f"{_QWEN}:causal_conv1d_fn": "transformers._prepare_convolution",
            f"{_QWEN}:causal_conv1d_update": "transformers._prepare_update",
            f"{_QWEN}:torch_chunk_gated_delta_rule": "transformers._prepare_chunk",
            f"{_QWEN}:torch_recurrent_gated_delta_rule": "transformers._prepare_recurrent",
            f"{_KIMI}:chunk_kimi_delta_attention": "transformers._prepare_chunk_kda",
            f"{_KIMI}:recurrent_kimi_delta_attention": "transformers._prepare_recurrent_kda",
        },
        "callers": [_QWEN, "transformers.models.qwen3_5.modeling_qwen3_5",
                    "transformers.models.olmo_hybrid.modeling_olmo_hybrid", _KIMI,
                    "transformers.models.glm5_next.modeling_glm5_next",
                    "transformers.models.bailing_hybrid.modeling_bailing_hybrid"],
    },
}  # fmt: skip


class Sources:
    """The .py files of a package: in a wheel, in a folder, or installed."""

    def __init__(self, package, place):
        self.package = package
        self._zip = self._folder = None
        self._trees = {}
        if place is None:
            self._folder = pathlib.Path(importlib.util.find_spec(package).origin).parent.parent
            self.version = importlib.metadata.version(package)
            return
        place = pathlib.Path(place)
        if place.is_dir():
            self._folder = place
            names = [path.name for path in place.glob(f"{package}-*.dist-info")]
        else:
            self._zip = zipfile.ZipFile(place)
            names = {name.split("/")[0] for name in self._zip.namelist() if ".dist-info/" in name}
        found = [re.match(rf"{package}-(.+)\.dist-info", name) for name in names]
        self.version = next((match[1] for match in found if match), "unknown")

    def _read(self, path):
        if self._zip is not None:
            return self._zip.read(path) if path in self._zip.namelist() else None
        file = self._folder / path
        return file.read_bytes() if file.exists() else None

    def tree(self, module):
        """(its syntax tree, whether it is a package), or None."""
        if module not in self._trees:
            path = module.replace(".", "/")
            text, is_package = self._read(f"{path}.py"), False
            if text is None:
                text, is_package = self._read(f"{path}/__init__.py"), True
            self._trees[module] = None if text is None else (ast.parse(text), is_package)
        return self._trees[module]


def statements(body):
    """Those of a module, also under its conditions."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from statements(node.body + node.orelse)
        elif isinstance(node, ast.Try):
            yield from statements(node.body + [each for one in node.handlers for each in one.body])


def origin_of(node, module, is_package):
    """The module that a module's `from ... import` names."""
    origin = node.module or ""
    if not node.level:
        return origin
    above = module.split(".")
    above = above[: len(above) - node.level + is_package]
    return ".".join([*above, origin] if origin else above)


def imported(sources, module, name):
    """Where a module has a name from: (module, name), or None."""
    tree, is_package = sources.tree(module)
    for node in statements(tree.body):
        if not isinstance(node, ast.ImportFrom):
            continue
        origin = origin_of(node, module, is_package)
        for alias in node.names:
            if (alias.asname or alias.name) == name:
                return origin, alias.name
            if alias.name == "*" and origin != module and find(sources, origin, name) is not None:
                return origin, name
    return None


def assigned(node):
    """The names that a statement gives values to."""
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def find(sources, module, name, depth=8):
    """The definition of a module's name: (its module, the node), or None."""
    if sources.tree(module) is None or depth == 0:
        return None
    for node in statements(sources.tree(module)[0].body):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return module, node
        if name in assigned(node):
            return module, node
    origin = imported(sources, module, name)
    if origin is not None:
        return find(sources, *origin, depth - 1)
    if sources.tree(f"{module}.{name}") is not None:
        return f"{module}.{name}", None
    return None


def bases(sources, module, node):
    """The classes that a class is of, with itself, as far as they are the engine's own."""
    yield module, node
    for base in node.bases:
        while isinstance(base, ast.Subscript):
            base = base.value
        found = find(sources, module, base.id) if isinstance(base, ast.Name) else None
        if found is not None and isinstance(found[1], ast.ClassDef):
            yield from bases(sources, *found)


def parameters(function):
    """A function's, as inspect has them, less self."""
    given = function.args
    places = [*given.posonlyargs, *given.args]
    without_default = len(places) - len(given.defaults)
    found = [
        {"name": each.arg, "kind": "positional", "required": n < without_default} for n, each in enumerate(places)
    ]
    if given.vararg:
        found.append({"name": given.vararg.arg, "kind": "rest", "required": False})
    for each, default in zip(given.kwonlyargs, given.kw_defaults):
        found.append({"name": each.arg, "kind": "keyword", "required": default is None})
    if given.kwarg:
        found.append({"name": given.kwarg.arg, "kind": "keywords", "required": False})
    is_static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
    return found[1:] if not is_static and found and found[0]["name"] in ("self", "cls") else found


def is_dataclass(node):
    names = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return any(isinstance(name, ast.Name) and name.id == "dataclass" for name in names)


def fields(node):
    return [
        {"name": each.target.id, "kind": "positional", "required": each.value is None}
        for each in node.body
        if isinstance(each, ast.AnnAssign) and "ClassVar" not in ast.dump(each.annotation)
    ]


def attributes(line):
    """Those that a class's methods, properties and annotations give its objects."""
    found = set()
    for _, node in line:
        for each in ast.walk(node):
            is_self = isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self"
            if is_self and isinstance(each.ctx, ast.Store):
                found.add(each.attr)
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                found.add(each.target.id)
            elif isinstance(each, ast.FunctionDef):
                found.add(each.name)
    return found


def describe(sources, path, wanted=()):
    """What is at "module:Class.method", or None."""
    module, _, names = path.partition(":")
    if not names:
        return {"kind": "module"} if sources.tree(module) is not None else None
    name, *inner = names.split(".")
    found = find(sources, module, name)
    if found is None:
        return None
    where, node = found
    for each in inner:
        if not isinstance(node, ast.ClassDef):
            return None
        line = list(bases(sources, where, node))
        methods = [(place, each_node) for place, cls in line for each_node in cls.body
                   if getattr(each_node, "name", None) == each or each in assigned(each_node)]  # fmt: skip
        if not methods:
            return None
        where, node = methods[0]
    if isinstance(node, ast.FunctionDef):
        return {"kind": "function", "in": where, "parameters": parameters(node)}
    if not isinstance(node, ast.ClassDef):
        return {"kind": "value", "in": where}
    line = list(bases(sources, where, node))
    inits = [each for _, cls in line for each in cls.body if getattr(each, "name", None) == "__init__"]
    given = parameters(inits[0]) if inits else []
    if is_dataclass(node):
        given = [field for _, cls in reversed(line) for field in fields(cls)]
    kept = sorted(attributes(line) & set(wanted))
    return {"kind": "class", "in": where, "parameters": given, "attributes": kept}


def calls(sources, module, callees):
    """A module's calls of functions of these names: the arguments by place, and the names of the others."""
    found = []

    def visit(node, where):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            where = [*where, node.name]
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func) if isinstance(node.func, (ast.Name, ast.Attribute)) else None
            if name in callees:
                found.append({
                    "callee": callees[name], "in": ".".join(where),
                    "positional": sum(not isinstance(each, ast.Starred) for each in node.args),
                    "keywords": [each.arg for each in node.keywords if each.arg is not None],
                })  # fmt: skip
        for child in ast.iter_child_nodes(node):
            visit(child, where)

    if sources.tree(module) is not None:
        visit(sources.tree(module)[0], [module])
    return found


def names_of(sources, module, adapters):
    """By which names a module calls the functions that adapters stand for, also by imports inside of functions."""
    found = {path.partition(":")[2]: path for path in adapters}
    if sources.tree(module) is None:
        return found
    tree, is_package = sources.tree(module)
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            origin, own = origin_of(node, module, is_package), alias.asname or alias.name
            theirs = find(sources, origin, alias.name)
            for path in adapters:
                place, _, name = path.partition(":")
                if place == f"{origin}.{alias.name}":  # a module of functions
                    found[f"{own}.{name}"] = path
                elif name == alias.name and theirs is not None and theirs == find(sources, place, name):
                    found[own] = path
    return found


def read(engine, place):
    """The record of a release."""
    rules = ENGINES[engine]
    sources = Sources(engine, place)
    wanted = {}
    attributes_of = {}
    if rules["plugin"] is not None:
        plugin = importlib.import_module(rules["plugin"])
        wanted.update(plugin.SEAMS)
        attributes_of = plugin.ATTRIBUTES
    paths = [*wanted, *rules["adapters"]]
    objects = {}
    for path in paths:
        about = describe(sources, path, attributes_of.get(path, ()))
        if about is not None:
            objects[path] = about
    found = [call for module in rules["callers"]
             for call in calls(sources, module, names_of(sources, module, rules["adapters"]))]  # fmt: skip
    return {
        "engine": engine,
        "version": sources.version,
        "adapters": rules["adapters"],
        "missing": [path for path in paths if path not in objects],
        "objects": objects,
        "calls": found,
    }


def flat(value, path=""):
    """Lines that differ where records do."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from flat(each, f"{path} {name}" if path else name)
    elif isinstance(value, list):
        for each in value:
            yield f"{path}: {json.dumps(each)}"
    else:
        yield f"{path}: {json.dumps(value)}"


def release_of(path):
    return [int(part) for part in re.findall(r"\d+", path.stem.split("-")[-1])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("wheel", nargs="?")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    record = read(args.engine, args.wheel)
    if args.write:
        RECORDS.mkdir(parents=True, exist_ok=True)
        path = RECORDS / f"{args.engine}-{record['version']}.json"
        path.write_text(json.dumps(record, indent=1) + "\n")
        print(path.relative_to(ROOT))
        return
    recorded = sorted(RECORDS.glob(f"{args.engine}-*.json"), key=release_of)
    if not recorded:
        sys.exit(f"no release of {args.engine} is recorded: --write")
    old = json.loads(recorded[-1].read_text())
    print(f"{args.engine} {record['version']}, against {old['version']}")
    before, now = ({line for line in flat({**each, "version": ""})} for each in (old, record))
    for mark, lines in (("-", before - now), ("+", now - before)):
        for line in sorted(lines):
            print(mark, line)
    sys.exit(1 if before != now else 0)


if __name__ == "__main__":
    main()
