#!/usr/bin/env python3
"""Checks the documents: every relative link leads to a file and, with an anchor, to a heading; README stays short."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
README_LINES = 200  # at most


def anchors(text):
    """The anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def broken_links(page):
    for target in re.findall(r"\]\(([^()\s]+)\)", without_code(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or anchor and anchor not in anchors(without_code(file.read_text())):
            yield target


def main():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    wrong = [f"{page.relative_to(ROOT)}: no such target: {link}" for page in pages for link in broken_links(page)]
    lines = len((ROOT / "README.md").read_text().splitlines())
    if lines > README_LINES:
        wrong.append(f"README.md has {lines} lines, at most {README_LINES} are wanted")
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
