#!/usr/bin/env python3
"""Prints a public header with its comments as Doxygen reads them: `//` and `/* */` in front of a declaration become
`///`, those behind one `///<`, and the one at the top is the file's.  Doxygen's INPUT_FILTER.

    header_comments.py HEADER
"""

import html
import pathlib
import re
import sys

DESIGNATED = re.compile(r"^( *[\w:<>]+ \w+)(\{\..*\});(?: +// (.*))?$")  # Sphinx reads no such initialiser
BEHIND = re.compile(r"^(?P<code>.*[,;{)\]\w>] *?) +// (?P<text>.*)$")
SECTION = re.compile(r"^-{4,} *(.*?)(?: -{4,}|-{4,})?$")


def escaped(text):
    return re.sub(r"([\\@<>#&%])", r"\\\1", text)


def prose(line):
    """Text with `code` as Doxygen reads it."""
    parts = line.split("`")
    if len(parts) % 2 == 0:
        return escaped(line)
    return "".join(f"<code>{html.escape(part)}</code>" if i % 2 else escaped(part) for i, part in enumerate(parts))


def doc_lines(texts):
    """The lines of a comment, each one without its mark and one blank.  Runs that are indented stay as they are: code,
    where the last one ends with a semicolon or a brace, or a table."""
    lines = []
    i = 0
    while i < len(texts):
        if not texts[i].startswith("  "):
            lines.append(prose(texts[i]))
            i += 1
            continue
        end = i
        while end < len(texts) and (
            texts[end].startswith("  ") or not texts[end] and end + 1 < len(texts) and texts[end + 1].startswith("  ")
        ):
            end += 1
        is_code = re.search(r"[;}](?: *(?://|/\*).*)?$", texts[end - 1])
        while not texts[end - 1]:
            end -= 1
        lines += ["@code{.cpp}" if is_code else "@code{.text}", *texts[i:end], "@endcode"]
        i = end
    return lines


def file_comment(texts, name):
    return [f"/// @file {name}", "///", *(f"/// {line}" for line in doc_lines(texts)), ""]


def without_mark(line):
    return re.sub(r"^ *// ?", "", line)


def cpp(lines, name):
    """Of a header in C++."""
    top = 0
    while top < len(lines) and lines[top].startswith("//"):
        top += 1
    yield from file_comment([without_mark(line) for line in lines[:top]], name)
    i = top
    while i < len(lines):
        line = lines[i]
        if re.match(r" *//", line):
            end = i
            while end < len(lines) and re.match(r" *//", lines[end]):
                end += 1
            texts = [without_mark(text) for text in lines[i:end]]
            declares = end < len(lines) and re.match(r" *[A-Za-z_\[~]", lines[end]) and "NOLINT" not in texts[0]
            indent = re.match(" *", line)[0]
            yield from (f"{indent}/// {text}" for text in doc_lines(texts)) if declares else lines[i:end]
            i = end
            continue
        line = DESIGNATED.sub(lambda match: f"{match[1]}{{}};  // {match[3] or ''} ({match[2]})", line)
        behind = BEHIND.match(line)
        if not behind or re.match(r" *(}|#|public:|private:|return\b)", line):
            yield line
            i += 1
            continue
        column = line.index("// ", len(behind["code"]))
        yield f"{line[:column]}///< {prose(behind['text'])}"
        i += 1
        while i < len(lines) and lines[i].startswith(" " * column + "// "):
            yield f"{' ' * column}///< {prose(without_mark(lines[i]))}"
            i += 1


def c(text, name):
    """Of a header in C."""

    # A comment's lines without the stars in front.
    def texts(comment):
        inner = re.sub(r"^/\* ?|(?:^|\s)\*/$", "", comment, flags=re.DOTALL)
        return [re.sub(r"^ *\* ?", "", line) if i else line for i, line in enumerate(inner.split("\n"))]

    open_section = False

    def replaced(match):
        nonlocal open_section
        code, comment = match["code"], texts(match["comment"])
        if match.start() == 0:
            return "\n".join(file_comment(comment, name))
        section = SECTION.match(comment[0])
        if section:
            begin = ["/// @}"] * open_section + [f"/// @name {escaped(section[1])}"]
            open_section = True
            return "\n".join([*begin, *(f"/// {line}" for line in doc_lines(comment[1:])), "/// @{"])
        mark = "///<" if code.strip() else "///"
        return code + f"\n{' ' * len(code)}".join(f"{mark} {line}" for line in doc_lines(comment))

    text = re.sub(r"^(?P<code>[^\n]*?)(?P<comment>/\*(?s:.*?)\*/) *$", replaced, text, flags=re.MULTILINE)
    return text + "/// @}\n" * open_section


def main():
    header = pathlib.Path(sys.argv[1])
    text = header.read_text()
    if text.startswith("/*"):
        print(c(text, header.name))
    else:
        print("\n".join(cpp(text.split("\n"), header.name)))


if __name__ == "__main__":
    main()
