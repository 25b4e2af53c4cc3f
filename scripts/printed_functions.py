"""What scripts/print_fields.py prints from the operators' tables and the rules of python/cubinery/_rules.py: the
functions that infer a problem from their arrays."""
import ast
import pathlib
import re

from printed_arguments import (class_name, has_out, is_required, meaning, number_parameter, paragraph, python_name,
                               shape_of, tensor_parameter)

RULES = pathlib.Path(__file__).resolve().parent.parent / "python" / "cubinery" / "_rules.py"
NO_FUNCTION = ("gdn_commit",)
NOT_OFFERED = "conv_"  # a decode's convolution needs an operator

MODULE = '''"""The operators as functions."""

# Written by scripts/print_fields.py: change the tables of runtime/gdn/shared and the rules of
# _rules.py instead.

from __future__ import annotations

from typing import Any

from cubinery import _rules
from cubinery._arrays import dtype_of, dtype_or
from cubinery._context import Context, context_for
from cubinery.problems import (
{types}
)
from cubinery.ranks import Ranks, Share, on_ranks
{functions}'''

FUNCTION = '''
{constant} = (
{fields}
)  # fmt: skip


def {name}(
{parameters}
) -> Any:
    """{help}

    The problem is inferred: dtypes are those of the arrays, and so is what an array that is there
    asks for.  heads is the largest of the head counts.  {cls} says more of its arrays.

    Args:
{args}

    Returns:
        {returned}

    Raises:
        InvalidArgumentError: names the array or field, what it is and what is accepted.
        CompileError, NotCachedError, UnsupportedError, DriverError: as Context.prepare().
    """
    context = context_for(context, "{first}", {first})
    key = (
{key}
    )
    operator = context._kept_operator({constant}, key)
{on_ranks}{outputs}    {call}(
{given}
    )  # fmt: skip
{end}'''


class Rule:
    def __init__(self, function, marks):
        self.name = function.name
        self.fields = [ast.literal_eval(field) for field in marks.args]
        self.op = "".join(ast.literal_eval(keyword.value) for keyword in marks.keywords)
        arguments = function.args.args
        defaults = [None] * (len(arguments) - len(function.args.defaults)) + function.args.defaults
        self.parameters = [(argument.arg, ast.unparse(argument.annotation),
                            default and ast.unparse(default).replace("'", '"'))
                           for argument, default in zip(arguments, defaults)]
        self.doc = " ".join((ast.get_docstring(function) or "").split())


def rules():
    """Those of _rules.py, in their order."""
    for function in ast.parse(RULES.read_text()).body:
        for marks in getattr(function, "decorator_list", []):
            yield Rule(function, marks)


def without_convolution(tensor):
    return [words for words in tensor.get("absent_where", ()) if NOT_OFFERED not in words]


class Function:
    """A function: its options in their order, {name: (annotation, default, doc)}, and how each field is inferred."""

    def __init__(self, operator, types):
        self.operator, self.types = operator, types
        self.fields = {f["name"]: f for f in operator["fields"] if not f["name"].startswith(NOT_OFFERED)}
        self.tensors = {python_name(t): {**t, "absent_where": without_convolution(t)} for t in operator["tensors"]
                        if not any(words.startswith(NOT_OFFERED) for words in t.get("absent_where", ()))}
        self.numbers = [number["name"] for number in operator["numbers"]]
        self.options, self.order, self.key = {}, [], []
        every = [rule for rule in rules() if rule.op in ("", operator["op"])]
        for field in self.fields.values():
            if field["name"] not in self.order:
                rule = next((rule for rule in every if field["name"] in rule.fields), None)
                self.by_rule(rule) if rule else self.by_table(field)

    def default(self, field):
        return f'"{field["default"]}"' if "choices" in field else str(field["default"])

    def by_rule(self, rule):
        given, in_order = [], True
        for name, annotation, default in rule.parameters:
            is_field = name in self.fields and name not in rule.fields
            if name.endswith("_default"):
                name = self.default(self.fields[name.removesuffix("_default")])
            elif name not in self.tensors and (default or name not in self.numbers):
                if default is not None and annotation in ("Any", "str") and not is_field:
                    in_order = False  # the function has no such argument
                    continue
                if not is_field and name not in OF_RANKS:
                    self.options[name] = (annotation, default, rule.doc)
            given.append(name if in_order else f"{name}={name}")
        star = "*" if len(rule.fields) > 1 else ""
        self.order += rule.fields
        self.key.append(f"{star}_rules.{rule.name}({', '.join(given)})")

    def by_table(self, field):
        name = field["name"]
        of_dtype = next((t for t in self.tensors.values() if t["dtype"] == name), None)
        implied = next((array for array, t in self.tensors.items() if f"{name} is false" in t["absent_where"]), None)
        if of_dtype:
            array = python_name(of_dtype)
            value = f'dtype_or("{array}", {array}, {self.default(field)})'
            if is_required(of_dtype):
                value = f'dtype_of("{array}", {array})'
        elif implied:
            value = f"{implied} is not None"
        else:
            kind = {"integer": "int", "boolean": "bool"}.get(field["type"]) or self.types[tuple(field["choices"])]
            self.options[name] = (kind, self.default(field), f"{name}: {field['help']}")
            value = f"bool({name})" if kind == "bool" else name
        self.order.append(name)
        self.key.append(value)

    def outputs(self):
        """Those that are allocated where they are not given."""
        return [name for name, tensor in self.tensors.items()
                if tensor["access"] == "written" and not re.search("slots|checkpoints", tensor["shape"])]


# Of launches alone: functions allocate, and do all steps of a launch.
OF_LAUNCHES = ("enable_pdl", "step", "continues")


# Of launches on several GPUs: {name: (annotation, meaning)}, and the operators that have them.
OF_RANKS = {
    "share": ("Share | None", "what this GPU has of sequences that are spread over several (cubinery.ranks), all of which "
                              "call; needs dense {states} that are given and stored; None: it has all of them."),
    "ranks": ("Ranks | None", "with share: what they exchange things by; None: TorchRanks(). They agree on the problem, "
                              "which waits for all, once for each kept operator."),
}
ON_RANKS = {"gdn_prefill": "f32 states", "gdn_conv": "states of packed sequences"}
ON_RANKS_LAUNCH = "    launch = operator if share is None and ranks is None else on_ranks(operator, ranks, share)\n"


def own_numbers(function):
    """Those that no rule has as an option."""
    return [n for n in function.operator["numbers"] if n["name"] not in (*OF_LAUNCHES, *function.options)]


def of_ranks(function):
    return OF_RANKS if function.operator["op"] in ON_RANKS else {}


def parameters(function):
    tensors = [tensor_parameter(t) for t in function.tensors.values()]
    tensors = [text + " = None" if text == "out: Any" else text for text in tensors]
    at = function.operator["positional"]
    numbers = own_numbers(function)
    named = list(map(number_parameter, numbers))
    options = [f"{name}: {kind} = {default}" for name, (kind, default, _) in function.options.items()]
    more = [f"{name}: {kind} = None" for name, (kind, _) in of_ranks(function).items()]
    more += ["workspace: Any = None"] if function.operator["workspace"] else []
    return [*tensors[:at], "*", *tensors[at:], *named, *options, *more, "stream: int | None = None",
            "context: Context | None = None"]


def documented(function):
    rows = []
    for name, tensor in function.tensors.items():
        words = meaning(tensor, "None")
        rows.append(f"{name}: {shape_of(tensor)}" + (f"; {words}" if words else "") +
                    ("; None: allocated" if name in function.outputs() else "") + ".")
    rows += [f"{n['name']}: {meaning(n, 'None')}." for n in own_numbers(function)]
    seen = set()
    for _, _, doc in function.options.values():
        if doc not in seen:
            rows.append(doc if doc.endswith(".") else doc + ".")
        seen.add(doc)
    rows += [f"{name}: {text.format(states=ON_RANKS[function.operator['op']])}"
             for name, (_, text) in of_ranks(function).items()]
    rows += ["workspace: as for the operator; None: allocated with torch and cupy."] * function.operator["workspace"]
    rows += ["stream: a cudaStream_t as a number; None: the library's current one.",
             "context: None: one per device, made at first use from the environment."]
    return "\n".join(paragraph(row, 8 * " ", 4 * " ") for row in rows)


def key_line(value):
    if len(value) <= 91:
        return f"        {value},"
    call, _, arguments = value[:-1].partition("(")
    return f"        {call}(\n{paragraph(arguments, 12 * ' ')}\n        ),"


def printed(operator, types):
    function = Function(operator, types)
    first, name = list(function.tensors)[0], class_name(operator)
    outputs = function.outputs()
    numbers = [n["name"] for n in operator["numbers"] if n["name"] not in OF_LAUNCHES]
    positional = list(function.tensors)[:operator["positional"]]
    named = [*list(function.tensors)[operator["positional"]:], *numbers,
             *(["workspace"] if operator["workspace"] else []), "stream"]
    if has_out(operator):
        made = "    if out is None:\n        out = _rules.new_out(operator.problem, q, v)\n"
    else:
        given = ", ".join([first, *outputs])
        made = f"    {', '.join(outputs)} = _rules.new_{name.lower()}_outputs(operator.problem, {given})\n"
    end = "" if has_out(operator) else f"    return {name_of_result(operator, outputs)}\n"
    return FUNCTION.format(
        constant=f"_{name.upper()}_FIELDS", fields=paragraph("".join(f'"{field}", ' for field in function.order), 4 * " "),
        name=operator["op"], cls=name, parameters="\n".join(f"    {text}," for text in parameters(function)),
        help=operator["help"], args=documented(function), first=first,
        returned="out." if has_out(operator) else "y; with head counts ConvOutputs.",
        key="\n".join(map(key_line, [f"{name}Problem", *function.key])), outputs=made,
        on_ranks=ON_RANKS_LAUNCH if of_ranks(function) else "",
        call=("return " if has_out(operator) else "") + ("launch" if of_ranks(function) else "operator"),
        given=paragraph(", ".join([*positional, *(f"{n}={n}" for n in named)]) + ",", 8 * " "), end=end)


def name_of_result(operator, outputs):
    name = class_name(operator)
    return f"_rules.{name}Outputs({', '.join(outputs[1:])}) if operator.problem.split_qkv else {outputs[0]}"


def functions(operators, types):
    offered = [operator for operator in operators if operator["op"] not in NO_FUNCTION]
    text = "\n".join(printed(operator, types) for operator in offered)
    used = set(re.findall(r"(?<=: )[A-Z]\w+|(?<=\| )[A-Z]\w+", "\n".join(re.findall(r"^    \w+: .*[,]$", text, re.M))))
    used = used - {"Any", "None", "Context", "Ranks", "Share"} | {f"{class_name(operator)}Problem" for operator in offered}
    return MODULE.format(types="\n".join(f"    {word}," for word in sorted(used, key=str.lower)), functions=text)
