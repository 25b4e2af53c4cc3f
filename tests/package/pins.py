#!/usr/bin/env python3
"""Checks that what comes from PyPI is pinned: exact versions in scripts/python_tools.txt, which builds and tests the Python
package, and in scripts/site_tools.txt, which builds the site; the former's in pyproject.toml; and no script that calls pip
without them."""
import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PINS = ROOT / "scripts" / "python_tools.txt"
SITE_PINS = ROOT / "scripts" / "site_tools.txt"


def plain(name):
    return re.sub(r"[-_.]+", "_", name).lower()


def pins(file, problems):
    versions = {}
    for line in file.read_text().splitlines():
        if line.startswith("#"):
            continue
        match = re.fullmatch(r"([\w.-]+)==([\w.]+)", line)
        if match is None:
            problems.append(f"{file.name}: {line}; accepted: NAME==VERSION")
        else:
            versions[plain(match[1])] = match[2]
    return versions


def main():
    problems = []
    versions = pins(PINS, problems)
    pins(SITE_PINS, problems)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for requirement in project["build-system"]["requires"]:
        name, _, version = requirement.partition("==")
        if versions.get(plain(name)) != version:
            problems.append(f"pyproject.toml requires {requirement}; accepted: {name}=={versions.get(plain(name))}")
    for name in project["project"]["optional-dependencies"]["test"]:
        if plain(name) not in versions:
            problems.append(f"{PINS.name} lacks {name}, which the tests take")
    for folder in ("scripts", "tests/package", ".ci"):
        for script in (ROOT / folder).glob("*"):
            if not script.is_file() or script.suffix == ".py":
                continue
            text = script.read_text()
            pinned = any(f"PIP_CONSTRAINT=$PWD/scripts/{file.name}" in text for file in (PINS, SITE_PINS))
            if re.search(r"pip\"? (install|wheel)", text) and not pinned:
                if script.name != "check.sh":  # which names the command and passes it over
                    problems.append(f"{script.relative_to(ROOT)} calls pip without {PINS.name} or {SITE_PINS.name}")
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()
