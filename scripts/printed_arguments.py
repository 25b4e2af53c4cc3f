"""What scripts/print_fields.py prints from the tables of the operators' arguments: the structs of C, the launches of
Python and the tables of docs/problems.md."""
import re
import textwrap

C_HEADER = '''/* The arguments of launches, for cubinery/c_api.h, which includes it.  Behind a tensor's shape is
 * its dtype: a field of the problem, or the dtype itself.  The C++ headers (cubinery/gdn_decode.h
 * and others) say more of each; "absent" there is NULL here.
 *
 * Written by scripts/print_fields.py: change the tables, tables.h in the operators' folders under
 * runtime/gdn, instead. */
/* clang-format off */
#ifndef CUBINERY_C_ARGS_H_
#define CUBINERY_C_ARGS_H_

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif
{structs}
#ifdef __cplusplus
}}
#endif

#endif /* CUBINERY_C_ARGS_H_ */
'''

LAUNCHES = '''"""The launches of the operators: what gdn.py and conv.py derive from."""

# Written by scripts/print_fields.py: change the tables, tables.h in the operators' folders under
# runtime/gdn, instead.

from __future__ import annotations

from typing import Any

from cubinery import _core
from cubinery._operator import Operator, WorkspaceOperator
from cubinery.problems import (
{problems}
)
{classes}'''

LAUNCH = '''

class {name}Launch({base}[{name}Problem]):
    """{help}"""
{parts}
    def __call__(
        self,
{parameters}
    ) -> {result}:
        """Enqueues one launch on `stream`; {allocates}.

{about}

        Args:
{args}
{returns}
        Raises:
            InvalidArgumentError: names the array, what it is and what is accepted.
            UnsupportedError: enable_pdl before sm_90.
            DriverError: CUDA refused the launch.
        """
{before}        _core.operator_launch(
{given}
        )  # fmt: skip
{after}
    def choice(self, {sizes}) -> dict[str, str]:
        """What a launch of this size runs: "path", "configuration", "rung" (how good a choice it
        is, "exact" to "default") and "why".

        Args:
{size_args}
        """
        return self._choice({given_sizes})
'''

WORKSPACE = """one dimension without gaps, 256-byte aligned, of workspace_bytes() or more; nothing is kept in it between
launches, launches that may overlap need one each. None: torch or cupy allocates it, tied to the launch's stream"""
ABOUT = "Arrays are on the context's device, have the problem's dtypes, and are read as they lie."
NEW_WORKSPACE = """        if workspace is None:
            workspace = self._new_workspace(q, cu_seqlens, stream{step})
"""
STREAM = """a cudaStream_t as a number; None: the current stream of the library of {first} (torch and cupy; for others
the legacy default stream)"""


def new_workspace(operator):
    has_steps = any(number["name"] == "step" for number in operator["numbers"])
    return NEW_WORKSPACE.format(step=", step" if has_steps else "")


def class_name(operator):
    return operator["op"].removeprefix("gdn_").title()


def meaning(argument, none, words=()):
    """What there is to say of an argument behind its shape: `none` is what an absent one is called."""
    doc, _, otherwise = argument.get("doc", "").partition("; absent: ")
    zeros = argument.get("optional_where")
    reasons = [otherwise or argument.get("absent") or (zeros and f"zeros, where {zeros}"), *words]
    reasons = ", or ".join(reason for reason in reasons if reason)
    return "; ".join(text for text in (doc, reasons and f"{none}: {reasons}") if text)


def shape_of(tensor, quote=""):
    """All forms that it may have."""
    text = f"{quote}{tensor['shape']}{quote}"
    text += f", packed {quote}{tensor['packed']}{quote}" if "packed" in tensor else ""
    return text + f", with decay channel {quote}[..., key_dim]{quote}" * tensor.get("per_channel", False)


def described(tensor, none):
    """All that there is to say of a tensor."""
    access = {"read": "", "written": "written", "both": "read and written"}[tensor["access"]]
    words = (access, meaning(tensor, none, tensor.get("absent_where", ())))
    return "; ".join(text for text in (f"{shape_of(tensor)}, {tensor['dtype']}", *words) if text)


# ---- C ---------------------------------------------------------------------------------------------------------------

def c_comment(text):
    if len(text) <= 92:
        return f"  /* {text} */"
    return textwrap.fill(text, 100, initial_indent="  /* ", subsequent_indent="   * ", break_long_words=False,
                         break_on_hyphens=False) + " */"


def c_tensor(tensor):
    return f"{c_comment(described(tensor, 'NULL'))}\n  const DLTensor* {tensor['name']};", "NULL"


def c_number(number):
    is_pointer = number["type"] == "float" or number.get("optional")
    text = meaning(number, "NULL" if is_pointer else "0") + ("; 0 or 1" if number["type"] == "boolean" else "")
    declared = ("const " if is_pointer else "") + ("float" if number["type"] == "float" else "int64_t")
    declared += "* " if is_pointer else " "
    return f"{c_comment(text)}\n  {declared}{number['name']};", "NULL" if is_pointer else "0"


def c_struct(name, of, members):
    """The struct, and its initialiser."""
    upper = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
    values = textwrap.wrap(", ".join(value for _, value in members), 92)
    lines = [f"#define {upper}_INIT", "  {", *(f"    {line}" for line in values), "  }"]
    macro = "\n".join([*(f"{line:98}\\" for line in lines[:-1]), lines[-1]])
    declared = "\n".join(text for text, _ in members)
    return f"\n/* {of} */\ntypedef struct {name} {{\n{declared}\n}} {name};\n{macro}\n"


def c_structs(operator):
    name = "Cubinery" + class_name(operator)
    parts = {}
    for tensor in operator["tensors"]:
        parts.setdefault(tensor.get("part"), []).append(c_tensor(tensor))
    members = [("  size_t struct_size;", f"sizeof({name}Args)")]
    printed = ""
    for part in filter(None, parts):
        printed += c_struct(f"{name}{part.title()}", f"gdn::{class_name(operator)}{part.title()}.", parts[part])
        upper = f"{name}_{part}".upper().replace("CUBINERY", "CUBINERY_")
        members.append((f"  {name}{part.title()} {part};", f"{upper}_INIT"))
    members += parts[None] + [c_number(number) for number in operator["numbers"]]
    return printed + c_struct(f"{name}Args", f"gdn::{class_name(operator)}Args.", members)


def c_header(operators):
    return C_HEADER.format(structs="".join(map(c_structs, operators)))


# ---- Python ----------------------------------------------------------------------------------------------------------

def python_name(argument):
    return {"o": "out"}.get(argument["name"], argument["name"])


def has_out(operator):
    return any(tensor["name"] == "o" for tensor in operator["tensors"])


def is_required(tensor):
    return not any(tensor.get(key) for key in ("absent_where", "optional", "part"))


def tensor_parameter(tensor):
    return f"{python_name(tensor)}: Any" + ("" if is_required(tensor) else " = None")


def number_parameter(number):
    kinds = {"float": "float | None = None", "boolean": "bool = False",
             "integer": "int | None = None" if "absent" in number else "int = 0"}
    return f"{number['name']}: {kinds[number['type']]}"


def size_parameter(size):
    return f"{size['name']}: int" + {None: "", "0": " = 0"}.get(size.get("absent"), " | None = None")


def given_size(size):
    return f"{size['name']} or 0" if size_parameter(size).endswith("None") else size["name"]


def given_number(number):
    is_hint = number["type"] == "integer" and "absent" in number and not number.get("optional")
    return f"{number['name']} or 0" if is_hint else number["name"]


def parameters(operator):
    tensors = list(map(tensor_parameter, operator["tensors"]))
    at = operator["positional"]
    more = ["workspace: Any = None"] if operator["workspace"] else []
    return [*tensors[:at], "*", *tensors[at:], *map(number_parameter, operator["numbers"]), *more,
            "stream: int | None = None"]


def paragraph(text, indent, hanging=""):
    return textwrap.fill(text, 100, initial_indent=indent, subsequent_indent=indent + hanging, break_long_words=False,
                         break_on_hyphens=False)


def documented(operator):
    first = [operator["tensors"][0]["name"], *filter(None, [operator["instead"]])]
    tensors = [(python_name(t), described(t, "None")) for t in operator["tensors"]]
    numbers = [(n["name"], meaning(n, "None")) for n in operator["numbers"]]
    more = [("workspace", WORKSPACE)] if operator["workspace"] else []
    rows = [*tensors, *numbers, *more, ("stream", STREAM.format(first=" or ".join(first)))]
    return "\n".join(paragraph(f"{name}: {text}.", 12 * " ", 4 * " ") for name, text in rows)


def sizes(operator):
    texts = " ".join(tensor["shape"] for tensor in operator["tensors"])
    words = ["heads is the largest of the head counts."] if " heads" in texts else []
    if "rows, columns" in texts:
        words.append("rows x columns of a state is value_dim x key_dim (vk) or key_dim x value_dim (kv).")
    if any("packed" in tensor for tensor in operator["tensors"]):
        words.append("Packed arrays are those of varlen, and may have a dimension of 1 in front.")
    else:
        words.append("[B, 1, ...] will do for [B, ...].")
    return " ".join(words)


def launch_class(operator):
    parts = {}
    for tensor in operator["tensors"]:
        parts.setdefault(tensor.get("part"), []).append(python_name(tensor))
    names = "".join(f"\n    _{part}_arrays = ({', '.join(map(repr, each))})\n" for part, each in parts.items() if part)
    given = ["self._handle", "stream", *(["workspace"] if operator["workspace"] else []),
             *map(python_name, operator["tensors"]), *map(given_number, operator["numbers"])]
    about = f"{ABOUT} {sizes(operator)}"
    return LAUNCH.format(
        name=class_name(operator), base="WorkspaceOperator" if operator["workspace"] else "Operator",
        help=operator["help"], parts=names.replace("'", '"'),
        parameters="\n".join(f"        {parameter}," for parameter in parameters(operator)),
        result="Any" if has_out(operator) else "None",
        allocates="allocates nothing but a missing workspace" if operator["workspace"] else "does not allocate or wait",
        about=paragraph(about, 8 * " "), args=documented(operator),
        returns="\n        Returns:\n            out.\n" if has_out(operator) else "",
        before=new_workspace(operator) if operator["workspace"] else "",
        sizes=", ".join(map(size_parameter, operator["sizes"])),
        size_args="\n".join(paragraph(f"{s['name']}: {meaning(s, 'None')}.", 12 * " ", 4 * " ")
                            for s in operator["sizes"]),
        given_sizes=", ".join(map(given_size, operator["sizes"])),
        given=paragraph(", ".join(given) + ",", 12 * " "), after="        return out\n" if has_out(operator) else "")


def launches(operators):
    return LAUNCHES.format(problems="\n".join(f"    {name}Problem," for name in sorted(map(class_name, operators))),
                           classes="".join(map(launch_class, operators)))


# ---- Documents -------------------------------------------------------------------------------------------------------

def argument_tables(operators):
    lines = ["## Arguments", "",
             "What a launch takes, in C++ (`gdn::DecodeArgs`), C (`CubineryDecodeArgs`) and Python (`Decode`, where",
             "`o` is `out`). A dtype is a field of the problem, or the dtype itself."]
    for operator in operators:
        lines += ["", f"`{operator['op']}`:", "", "| argument | shape | dtype | |", "|---|---|---|---|"]
        for t in operator["tensors"]:
            access = {"read": "", "written": "written", "both": "read and written"}[t["access"]]
            words = "; ".join(filter(None, (access, meaning(t, "absent", t.get("absent_where", ())))))
            lines.append(f"| `{t['name']}` | {shape_of(t, '`')} | `{t['dtype']}` | {words} |")
        lines += [f"| `{n['name']}` | | {n['type']} | {meaning(n, 'absent')} |" for n in operator["numbers"]]
    return lines
