#!/usr/bin/env python3
"""Checks the documents: every relative link leads to a file and, with an anchor, to a heading; every path in backticks
is one of the tree; docs/device_headers.md has every device header; docs/own_kernel.md shows its programs as they are, and
these and README stay short; the site's navigation has every page."""
import fnmatch
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
README_LINES = 200  # at most
STEP_LINES = 25  # of each program of docs/own_kernel.md, at most

# A path in backticks: of a file, or below one of the tree's folders.  `*`, `<gpu>` and `{h,cc}` stand for others.
PATH = re.compile(r"[\w.*<>{},/-]+\.(?:cc|cuh|cu|h|py|sh|md|json|jsonl|cmake|txt|html)")
# Files of other projects and of users; where installed headers lie.
NOT_OURS = {"cuda.h", "nvrtc.h", "dlpack/dlpack.h", "config.json", "include/cubinery/templates"}


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


def paths_of_tree():
    """Files and folders, each as /path/from/root."""
    paths = []
    for folder, folders, files in os.walk(ROOT):
        passed_over = (".", "build", "dist", "shared") if folder == str(ROOT) else (".", "__pycache__")
        folders[:] = [name for name in folders if not name.startswith(passed_over)]
        paths += ["/" + str((pathlib.Path(folder) / name).relative_to(ROOT)) for name in folders + files]
    return paths


def missing_paths(page, tree):
    """Paths in backticks, whole or their ends, that nothing in the tree has."""
    top = {path[1:].split("/")[0] for path in tree}
    for code in re.findall(r"`([^`\n]+)`", without_code(page.read_text())):
        path = code.split()[0].rstrip("/")
        is_path = PATH.fullmatch(path) or "/" in path and path.split("/")[0] in top
        if not is_path or path in NOT_OURS or path.startswith("."):
            continue
        stem, braces, ends = re.sub(r"<[^>]*>", "*", path).partition("{")
        alternatives = [stem + end for end in ends.rstrip("}").split(",")] if braces else [stem]
        for alternative in alternatives:
            pattern = re.compile(fnmatch.translate("*/" + alternative))
            if not any(pattern.match(path) for path in tree):
                yield alternative


def missing_headers():
    page = (ROOT / "docs" / "device_headers.md").read_text()
    for header in sorted((ROOT / "templates" / "common").rglob("*.*h")):
        if f"(../{header.relative_to(ROOT)})" not in page:
            yield header.relative_to(ROOT)


def wrong_steps():
    """Blocks of docs/own_kernel.md that are no file of its folder, files that are no block, and long ones."""
    page, folder = ROOT / "docs" / "own_kernel.md", ROOT / "examples" / "own_kernel"
    blocks = re.findall(r"^```(?:cpp|python)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    files = {file: file.read_text() for pattern in ("*.cc", "*.py", "include/*") for file in folder.glob(pattern)}
    for file, text in files.items():
        if text not in blocks:
            yield f"{page.relative_to(ROOT)}: does not show {file.relative_to(ROOT)} as it is"
        if len(text.splitlines()) > STEP_LINES:
            yield f"{file.relative_to(ROOT)} has more than {STEP_LINES} lines"
    for block in blocks:
        if block not in files.values():
            yield f"{page.relative_to(ROOT)}: a block that is no file of {folder.relative_to(ROOT)}: {block[:60]!r}"


def pages_without_a_place():
    """Pages that the site's navigation does not lead to."""
    navigation = (ROOT / "docs" / "site" / "index.md").read_text()
    for page in sorted((ROOT / "docs").glob("*.md")):
        if not re.search(rf"\bdocs/{page.stem}(\n|>|\.md)", navigation):
            yield page.relative_to(ROOT)


def main():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    tree = paths_of_tree()
    wrong = [f"{page.relative_to(ROOT)}: no such target: {link}" for page in pages for link in broken_links(page)]
    wrong += [f"{page.relative_to(ROOT)}: no such path: {path}" for page in pages for path in missing_paths(page, tree)]
    wrong += [f"docs/device_headers.md: does not name {header}" for header in missing_headers()]
    wrong += wrong_steps()
    wrong += [f"docs/site/index.md: does not lead to {page}" for page in pages_without_a_place()]
    lines = len((ROOT / "README.md").read_text().splitlines())
    if lines > README_LINES:
        wrong.append(f"README.md has {lines} lines, at most {README_LINES} are wanted")
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
