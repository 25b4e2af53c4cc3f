#!/usr/bin/env python3
"""Checks that whatever CMake looks for, and is inside what is shipped, is in THIRD_PARTY_NOTICES with its license
and that license's text; with a wheel, that it carries the file:
    notices.py [WHEEL]
"""
import pathlib
import re
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTICES = ROOT / "THIRD_PARTY_NOTICES"
# Of CMake's names, what is only run, or read as declarations, and what tests take.
NOT_INSIDE = {"cudatoolkit", "threads", "python", "python3", "catch2"}


def sought():
    """The names in the find_ and FetchContent lines, as letters and digits: fmt, nlohmannjson, xxhash, chartjs."""
    call = re.compile(r"(?:find_package|find_path|find_file|find_library|FetchContent_Declare)\(\s*(\w+)")
    names = set()
    for folder in (ROOT, *(ROOT / name for name in ("capi", "cli", "python", "tests", "benchmarks", "examples"))):
        file = folder / "CMakeLists.txt"
        for name in call.findall(file.read_text()) if file.exists() else ():
            names.add(plain(re.sub(r"^CUBINERY_|_INCLUDE_DIRS?$|_LIBRARY$", "", name)))
    return names


def plain(name):
    return re.sub(r"[^a-z0-9]", "", name.lower())


def noticed(text):
    """The libraries of the list, with their licenses."""
    found = {}
    name = None
    for line in text.splitlines():
        if match := re.match(r"  (\S+) +Copyright ", line):
            name = plain(match[1])
        elif not line.startswith("      "):
            name = None
        if name and (match := re.search(r" (\w+( \d-clause)? license)(, with an exception)?$", line)):
            found[name] = match[1]
    return found


def wrong(text):
    found = noticed(text)
    for name in sorted(sought() - NOT_INSIDE - set(found)):
        yield f"{NOTICES.name} has no line for {name}, which CMake looks for"
    for name, license in found.items():
        if f"\n{license}\n{'-' * len(license)}\n" not in text:
            yield f"{NOTICES.name} has no text of the {license} of {name}"


def missing_in(wheel):
    files = {pathlib.PurePath(name).name: name for name in zipfile.ZipFile(wheel).namelist() if "/licenses/" in name}
    for file in (NOTICES, ROOT / "LICENSE"):
        inside = files.get(file.name)
        if inside is None or zipfile.ZipFile(wheel).read(inside) != file.read_bytes():
            yield f"{wheel}: the licenses lack {file.name}"


def main():
    problems = [*wrong(NOTICES.read_text())]
    for wheel in sys.argv[1:]:
        problems += missing_in(wheel)
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
