#!/usr/bin/env python3
"""Prints what is made from the operators' tables, of fields of their problems, of a model's problems, of tensors and of
numbers: include/cubinery/c_args.h, problems.py, _launch.py and _functions.py of python/cubinery, and the tables of
docs/problems.md.

    scripts/print_fields.py CUBINERY          rewrites them from the tables inside this command line
    scripts/print_fields.py CUBINERY --check  exits 1 when they are not what it says
"""
import json
import pathlib
import subprocess
import sys
import textwrap

from printed_arguments import argument_tables, c_header, class_name, launches
from printed_functions import functions

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN = "<!-- fields: begin (scripts/print_fields.py writes this) -->\n"
END = "<!-- fields: end -->\n"

MODULE = '''"""What is fixed when a model is loaded: the fields and defaults of the C++ problems.

``include/cubinery/gdn_parts.h``, ``gdn_decode.h``, ``gdn_prefill.h``,
``gdn_verify.h``, ``gdn_commit.h`` and ``gdn_conv.h`` are their manual.
"""

# Written by scripts/print_fields.py: change the field tables, tables.h in the operators' folders under
# runtime/gdn, and the list of a model's problems, runtime/gdn/shared/model_forms.h, instead.

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from cubinery._problem import Problem, left_out, repr_of_forms

if TYPE_CHECKING:
    from cubinery import {names}

__all__ = [
    "ModelProblems",
{all}
]

{types}
{classes}
{model}'''

CLASS = '''

@dataclass(frozen=True, repr=False)
class {name}Problem(Problem["{name}"]):
    """{help}

    Args:
{args}
    """

    op: ClassVar[str] = "{op}"

{fields}
'''

MODEL = '''
@dataclass(frozen=True, repr=False)
class ModelProblems:
    """The problems of a model: one for each form in which it needs an operator.

    Args:
{args}
    """

{fields}

    def left_out(self) -> dict[str, str]:
        """The forms that the model cannot have, and why: their problems do not pass check()."""
        return left_out(self)

    def __repr__(self) -> str:
        """A line for each form."""
        return repr_of_forms(self)
'''


def literal_types(operators):
    """A type for each set of choices, named after the first field that has it, and after its operator where another set
    has that name: {choices: name}."""
    types = {}
    for operator in operators:
        for field in operator["fields"]:
            if "choices" not in field or tuple(field["choices"]) in types:
                continue
            name = field["name"].title().replace("_", "")
            types[tuple(field["choices"])] = class_name(operator) + name if name in types.values() else name
    return types


def quoted(texts):
    return ", ".join(f'"{text}"' for text in texts)


def described(field):
    return textwrap.fill(f"{field['name']}: {field['help']}.", 100, initial_indent=8 * " ",
                         subsequent_indent=12 * " ")


def model_class(operators):
    forms = [(form, operator) for operator in operators for form in operator["forms"]]
    return MODEL.format(
        args="\n".join(described(form) for form, _ in forms),
        fields="\n".join(f"    {form['name']}: {class_name(operator)}Problem" for form, operator in forms))


def python_class(operator, types):
    def declared(field):
        kind = {"integer": "int", "boolean": "bool"}.get(field["type"]) or types[tuple(field["choices"])]
        default = f'"{field["default"]}"' if "choices" in field else field["default"]
        return f"    {field['name']}: {kind} = {default}"

    return CLASS.format(
        name=class_name(operator), op=operator["op"], help=operator["help"],
        args="\n".join(map(described, operator["fields"])), fields="\n".join(map(declared, operator["fields"])))


def python_module(operators):
    types = literal_types(operators)
    return MODULE.format(
        names=", ".join(sorted(map(class_name, operators))),
        all="\n".join(f'    "{class_name(operator)}Problem",' for operator in operators),
        types="\n".join(f"{name} = Literal[{quoted(choices)}]" for choices, name in types.items()),
        classes="".join(python_class(operator, types) for operator in operators), model=model_class(operators))


def table(fields):
    """One line for each field."""
    lines = ["| field | values | default | |", "|---|---|---|---|"]
    for field in fields:
        values = {"integer": "an integer", "boolean": "true, false"}.get(field["type"])
        values = values or ", ".join(f"`{choice}`" for choice in field["choices"])
        default = field["default"] if "choices" in field else json.dumps(field["default"])
        lines.append(f"| `{field['name']}` | {values} | `{default}` | {field['help']} |")
    return lines


def shared_fields(operators):
    """The fields that all of these operators have, with the same values, default and help."""
    return [field for field in operators[0]["fields"] if all(field in o["fields"] for o in operators)]


def tables(operators):
    """The fields that all operators have, those that all but one have, then those of each alone."""
    shared = shared_fields(operators)
    lines = ["Every operator:", "", *table(shared), ""]
    for odd in operators:
        others = shared_fields([operator for operator in operators if operator is not odd])
        others = [field for field in others if field not in shared]
        if others:
            lines += [f"Every operator but `{odd['op']}`:", "", *table(others), ""]
            shared = shared + others
    for operator in operators:
        own = [field for field in operator["fields"] if field not in shared]
        if own:
            lines += [f"`{operator['op']}` too:", "", *table(own), ""]
    lines += ["## Forms", "", "In which a model needs them:", "", "| form | operator | |", "|---|---|---|"]
    lines += [f"| `{form['name']}` | `{operator['op']}` | {form['help']} |"
              for operator in operators for form in operator["forms"]]
    return "\n".join([*lines, "", *argument_tables(operators), ""])


def between_markers(text, lines):
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:start] + lines + text[end:]


def main():
    printed = subprocess.run([sys.argv[1], "operators", "--json", "-"], check=True, capture_output=True, text=True)
    operators = json.loads(printed.stdout)
    page = ROOT / "docs" / "problems.md"
    package = ROOT / "python" / "cubinery"
    wanted = {package / "problems.py": python_module(operators), package / "_launch.py": launches(operators),
              package / "_functions.py": functions(operators, literal_types(operators)),
              ROOT / "include" / "cubinery" / "c_args.h": c_header(operators),
              page: between_markers(page.read_text(), tables(operators))}
    for path, text in wanted.items():
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path.relative_to(ROOT)} is not up to date: run scripts/print_fields.py {sys.argv[1]}")


if __name__ == "__main__":
    main()
