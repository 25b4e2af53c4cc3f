#!/usr/bin/env python3
"""Writes the pages that are printed from something else: C++'s from the headers' names, commands' from their help,
documents' from what commands print, examples' from the files.

    write_pages.py CUBINERY OUT     CUBINERY: the built command
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ROOT / "include" / "cubinery"
GROUPS = (  # of C++'s headers, each in the first one that fits
    ("Operators", r"gdn"),
    ("Kernels of your own", r"fields|kernel|operator|tensor_map"),
    ("Tuning", r"tuning|rung"),
    ("Contexts, options, errors, tensors", r""),
)
NOT_SHOWN = r"c_\w+|\w+_names|gdn_fields"  # C's, and tables without a name to call


def plain(text):
    """As reStructuredText, nothing of it is markup."""
    return re.sub(r"([\\*`|_<>])", r"\\\1", text)


def heading(text, line="="):
    return f"{text}\n{line * len(text)}\n"


def table_of_contents(pages, caption=None):
    lines = [".. toctree::", "   :maxdepth: 1"] + [f"   :caption: {caption}"] * bool(caption)
    return "\n".join([*lines, "", *(f"   {page}" for page in pages), ""])


def top_comment(text):
    """The comment or docstring at the top of a file, unwrapped."""
    if match := re.match(r'(?:#!.*\n)?"""(.*?)"""', text, re.DOTALL):
        return match[1].strip()
    lines = []
    for line in text.splitlines():
        if not (match := re.match(r"(?://|/\*| \*|#(?!include|pragma|ifndef|if)) ?(.*?)(?: ?\*/)?$", line)):
            break
        lines.append(match[1])
    return "\n".join(lines).strip()


def first_paragraph(text):
    return " ".join(top_comment(text).split("\n\n")[0].split())


# ---- C++


def write_cpp(folder):
    folder.mkdir(parents=True)
    headers = [path for path in sorted(HEADERS.glob("*.h")) if not re.fullmatch(NOT_SHOWN, path.stem)]
    groups = {caption: [] for caption, _ in GROUPS}
    for path in headers:
        groups[next(caption for caption, pattern in GROUPS if re.match(pattern, path.stem))].append(path)
        page = heading(f"{path.stem}.h") + f"\n``#include <cubinery/{path.name}>``\n\n.. doxygenfile:: {path.name}\n"
        (folder / f"{path.stem}.rst").write_text(page)
    text = (
        heading("C++")
        + "\nThe headers of ``include/cubinery``, as they are installed.  ``cubinery/gdn.h`` has the operators.\n\n"
    )
    for caption, paths in groups.items():
        text += heading(caption, "-") + "\n.. list-table::\n   :widths: 25 75\n\n"
        for path in paths:
            text += f"   * - :doc:`{path.name} <{path.stem}>`\n     - {plain(first_paragraph(path.read_text()))}\n"
        text += "\n" + table_of_contents([path.stem for path in paths]).replace("   :maxdepth: 1", "   :hidden:")
        text += "\n"
    (folder / "index.rst").write_text(text)


# ---- The command line


def help_of(cubinery, *command):
    """The help of a command; of one without subcommands with all that it says of options."""

    def printed(flag):
        return subprocess.run([cubinery, *command, flag], check=True, capture_output=True, text=True).stdout.rstrip()

    text = printed("--help")
    return text if subcommands(text) else printed("--help-all")


def subcommands(text):
    block = re.search(r"^Subcommands:\n((?:  .*\n?)+)", text, re.MULTILINE)
    return re.findall(r"^  (\S+)", block[1], re.MULTILINE) if block else []


def command_page(name, text, footer):
    """A page of a command's help: its options as Sphinx's, and of the rest what is indented as it is."""
    if footer and text.endswith(footer):
        text = text[: -len(footer)].rstrip()
    lines = text.split("\n")
    usage = next(i for i, line in enumerate(lines) if line.startswith("Usage: "))
    out = [heading(f"cubinery {name}".strip()), plain(" ".join(lines[:usage])), ""]
    out += [
        ".. code-block:: none",
        "",
        f"   {lines[usage].removeprefix('Usage: ')}",
        "",
        f".. program:: cubinery {name}",
        "",
    ]
    i, section = usage + 1, None
    while i < len(lines):
        line = lines[i]
        i += 1
        if re.fullmatch(r"\S.*:", line) and lines[i : i + 1] and lines[i].startswith("  "):
            section = line[:-1]
            out += [heading(section, "-")]
        elif line.startswith("  ") and (section is None or section.startswith("Examples")):
            out += ["", ".. code-block:: console" if section else "::", "", f" {line}"]
            while i < len(lines) and lines[i].startswith("  "):
                out.append(f" {lines[i]}")
                i += 1
            out.append("")
        elif match := re.fullmatch(r"  (\S.*?)(?:  +(\S.*))?", line):
            term, what = match[1], match[2] or ""
            while i < len(lines) and re.match(r" {20,}\S", lines[i]):
                what += f" {lines[i].strip()}"
                i += 1
            if section == "Subcommands":
                command = f"{name} {term}".strip()
                out.append(f":doc:`cubinery {command} <{command.replace(' ', '_')}>`")
            else:
                out += [f".. option:: {re.sub(r',(?=-)', ', ', term)}", ""]
            out += [f"   {plain(what.strip())}", ""]
        else:
            section = section if not line else None
            out += [plain(line), ""] if line.endswith((".", ":")) else [plain(line)]
    return "\n".join(out) + "\n"


def write_commands(cubinery, folder):
    folder.mkdir(parents=True)
    top = help_of(cubinery)
    footer = top[top.index("\nExamples:") :].strip()
    commands = []
    for command in subcommands(top):
        text = help_of(cubinery, command)
        commands.append(((command,), text))
        commands += [((command, inner), help_of(cubinery, command, inner)) for inner in subcommands(text)]
    for names, text in commands:
        (folder / f"{'_'.join(names)}.rst").write_text(command_page(" ".join(names), text, footer))
    pages = [f"{'_'.join(names)}" for names, _ in commands]
    page = command_page("", top, None) + "\n" + table_of_contents(pages).replace("   :maxdepth: 1", "   :hidden:")
    (folder / "index.rst").write_text(page.replace("cubinery\n========", "Command line\n============", 1))


# ---- JSON

MODEL = "tests/data/models/Qwen3.5-27B/config.json"
DOCUMENTS = (  # what prints one, without a GPU and with an empty cache
    ("A problem", ("problems", "--hf-config", MODEL, "--tp", "2", "--form", "decode")),
    ("What an engine launches", ("problems", "--hf-config", MODEL, "--tp", "2", "--engine", "vllm")),
    ("Operators, their fields and arguments", ("operators", "--json", "-")),
    (
        "Kernels in the cache, or missing",
        ("prewarm", "--hf-config", MODEL, "--arch", "sm_90a", "--op", "gdn_commit", "--dry-run", "--json", "-"),
    ),
)


def shortened(value):
    """Of an array of objects the first one."""
    if isinstance(value, dict):
        return {name: shortened(member) for name, member in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [shortened(value[0])]
    return value


def write_documents(cubinery, page):
    text = (
        page.read_text()
        + "\nBelow are documents as the program prints them; of an array of objects the first one is shown.\n"
    )
    for title, command in DOCUMENTS:
        with tempfile.TemporaryDirectory() as cache:
            environment = os.environ | {"CUBINERY_CACHE_DIR": cache}
            printed = subprocess.run(
                [cubinery, *command], check=True, capture_output=True, text=True, cwd=ROOT, env=environment
            ).stdout.replace(cache, "/home/me/.cache/cubinery")
        document = json.dumps(shortened(json.loads(printed)), indent=2)
        text += f"\n## {title}\n\n```sh\ncubinery {' '.join(command)}\n```\n\n```json\n{document}\n```\n"
    page.write_text(text)


# ---- Examples


def write_examples(page):
    languages = {".cc": "cpp", ".h": "cpp", ".cu": "cpp", ".c": "c", ".py": "python"}
    text = (
        heading("Examples")
        + "\nWhole programs.  Those that launch check what they computed, and all are built and run by tests.\n\n"
    )
    folder = ROOT / "examples"
    for path in sorted(path for path in folder.rglob("*") if path.suffix in languages):
        name = path.relative_to(folder)
        lines = len(path.read_text().splitlines())
        text += heading(str(name), "-") + f"\n{plain(first_paragraph(path.read_text()))}\n\n"
        text += f".. dropdown:: {lines} lines\n\n   .. literalinclude:: /examples/{name}\n"
        text += f"      :language: {languages[path.suffix]}\n\n"
    page.write_text(text)


def main():
    cubinery, out = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2])
    write_cpp(out / "cpp")
    write_commands(cubinery, out / "command")
    write_documents(cubinery, out / "json.md")
    write_examples(out / "examples.rst")


if __name__ == "__main__":
    main()
