#!/usr/bin/env python3
"""Writes docs/device_headers.md, the signatures of templates/common, from the headers and their comments.
  print_device_headers.py [--check]
"""
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "device_headers.md"

TOP = """# Device headers

What `#include "common/..."` gives a kernel: the headers of `templates/common`, inside the library for NVRTC and
installed in `include/cubinery/templates` for other compilers. Names are in `cubinery::dev` where nothing else is said.
[adding_a_kernel.md](adding_a_kernel.md) says how to use them. Written by `scripts/print_device_headers.py`.
"""


def comment_before(lines, at):
    """The comment lines that end just above `at`, and where they begin."""
    begin = at
    while begin > 0 and lines[begin - 1].strip().startswith("//"):
        begin -= 1
    return lines[begin:at]


def split_purpose(lines):
    """The comment that a header begins with: as prose, or as lines of code where it is long."""
    end = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    if end > 5:
        return "", lines[:end] + [""]
    prose = " ".join(" ".join(line[2:] for line in lines[:end]).split())
    return textwrap.fill(prose, 120) + "\n\n", []


def without_body(declaration, indent):
    """The lines of a function's declaration up to its body, without a constructor's initialisers."""
    head = re.split(r"\s*\{|\)\s*:\s*(?!:)", declaration, maxsplit=1)[0]
    if head.count("(") > head.count(")"):
        head += ")"
    head = re.sub(r"\s+", " ", head).strip().rstrip(";").strip() + ";"
    parts = re.match(r"(template <.*?>) (?=__device__|constexpr)(.*)", head)
    lines = list(parts.groups()) if parts else [head]
    wrapped = textwrap.wrap(lines.pop(), 120, initial_indent=indent, subsequent_indent=indent + "    ")
    return [indent + line for line in lines] + wrapped


def balanced(text):
    return text.count("{") == text.count("}") and text.count("(") == text.count(")")


def declarations(lines):
    """(comment, text) of each declaration of a scope, bodies included."""
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip() or line.startswith("#") or line.strip().startswith("//"):
            at += 1
            continue
        if re.match(r"\s*(namespace .*\{|\}\s*// namespace.*)$", line):
            at += 1
            continue
        comment = comment_before(lines, at)
        text = [line]
        while not (balanced("\n".join(text)) and re.search(r"[;}]\s*(//.*)?$", text[-1])):
            at += 1
            text.append(lines[at])
        at += 1
        yield comment, text


def members(body):
    """The public members of a class, printed as they are declared."""
    public = True
    printed = []
    for line in split_access(body):
        if line in ("public:", "private:"):
            public = line == "public:"
            continue
        if public:
            printed += printed_declaration(*line, indent="  ")
    return printed


def split_access(body):
    part = []
    for line in body:
        # Those of a class inside this one are its own.
        if line.strip() in ("public:", "private:") and balanced("\n".join(part)):
            yield from declarations(part)
            yield line.strip()
            part = []
        else:
            part.append(line)
    yield from declarations(part)


def printed_declaration(comment, text, indent=""):
    comment, text = ([line.rstrip() for line in part] for part in (comment, text))
    whole = "\n".join(text)
    kind = re.match(r"\s*(?:template <.*?>\s*)?(struct|class|enum)\b", whole, re.DOTALL)
    if kind and "{" in whole:
        first = next(i for i, line in enumerate(text) if "{" in line)
        if len(text) == first + 1 or kind[1] == "enum":
            return comment + text
        head = text[: first + 1]
        body = text[first + 1 : -1]
        lines = members(["private:"] + body if kind[1] == "class" else body)
        return comment + head + lines + [indent + "};"]
    if "(" in whole.split("=")[0]:
        return comment + without_body(whole, indent)
    return comment + text


def section(path):
    lines = path.read_text().splitlines()
    prose, code = split_purpose(lines)
    for comment, text in declarations(lines):
        code += printed_declaration(comment, text)
    return f"\n## {path.relative_to(ROOT / 'templates')}\n\n{prose}```\n" + "\n".join(code) + "\n```\n"


def main():
    headers = sorted([*(ROOT / "templates/common").rglob("*.cuh"), *(ROOT / "templates/common").rglob("*.h")])
    page = TOP + "".join(section(path) for path in headers)
    if "--check" not in sys.argv:
        PAGE.write_text(page)
    elif PAGE.read_text() != page:
        sys.exit("docs/device_headers.md is not what scripts/print_device_headers.py writes")


if __name__ == "__main__":
    main()
