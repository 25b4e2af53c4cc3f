#!/usr/bin/env python3
"""The version and what CHANGELOG.md says of it:
    changelog.py version        the version, of CMakeLists.txt, the one place
    changelog.py check          whether CHANGELOG.md and CITATION.cff fit it, released or not
    changelog.py date [DATE]    makes Unreleased the version's section, of today (UTC), with a new Unreleased; and
                                CITATION.cff
    changelog.py notes          prints the version's section; fails where it is not dated, or something is unreleased
With --root FOLDER of another tree."""
import argparse
import datetime
import pathlib
import re
import sys

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def version_of(root):
    return re.search(r"^project\(cubinery VERSION (\d+\.\d+\.\d+)", (root / "CMakeLists.txt").read_text(), re.M)[1]


def sections(text):
    """(heading, body) of each, the newest first."""
    parts = HEADING.split(text)
    return list(zip(parts[1::2], (body.strip() for body in parts[2::2])))


def problems(root):
    """What is wrong, in words."""
    version, found = version_of(root), sections((root / "CHANGELOG.md").read_text())
    headings = [heading for heading, _ in found]
    if not headings or headings[0] != "Unreleased":
        yield "CHANGELOG.md: the first section is not Unreleased"
    released = [re.fullmatch(r"(\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d", heading) for heading in headings[1:]]
    for heading, match in zip(headings[1:], released):
        if match is None:
            yield f'CHANGELOG.md: "{heading}"; accepted: VERSION - YYYY-MM-DD'
    versions = [match[1] for match in released if match]
    if versions != sorted(set(versions), key=lambda text: [int(part) for part in text.split(".")], reverse=True):
        yield f"CHANGELOG.md: {', '.join(versions)}; accepted: each once, the newest first"
    cited = re.search(r"^version: (.+)$", (root / "CITATION.cff").read_text(), re.M)
    if cited is None or cited[1] != version:
        yield f"CITATION.cff: version {cited and cited[1]}; CMakeLists.txt has {version}"


def date(root, day):
    version, changelog, citation = version_of(root), root / "CHANGELOG.md", root / "CITATION.cff"
    text = changelog.read_text()
    if any(heading.split()[0] == version for heading, _ in sections(text)):
        sys.exit(f"changelog.py: CHANGELOG.md has {version} already")
    if not dict(sections(text)).get("Unreleased"):
        sys.exit("changelog.py: nothing is unreleased")
    changelog.write_text(text.replace("## Unreleased\n", f"## Unreleased\n\n## {version} - {day}\n", 1))
    cited = re.sub(r"^(version|date-released): .*\n", "", citation.read_text(), flags=re.M)
    citation.write_text(cited.replace("\nlicense:", f"\nversion: {version}\ndate-released: {day}\nlicense:", 1))


def notes(root):
    version, found = version_of(root), sections((root / "CHANGELOG.md").read_text())
    if dict(found).get("Unreleased"):
        sys.exit("changelog.py: something is unreleased: scripts/changelog.py date")
    for heading, body in found:
        if heading.startswith(version + " - "):
            return body
    sys.exit(f"changelog.py: CHANGELOG.md has no section of {version}: scripts/changelog.py date")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["version", "check", "date", "notes"])
    parser.add_argument("day", nargs="?", type=datetime.date.fromisoformat)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    asked = parser.parse_args()
    if asked.what == "version":
        print(version_of(asked.root))
    elif asked.what == "check":
        sys.exit("\n".join(problems(asked.root)) or 0)
    elif asked.what == "date":
        date(asked.root, asked.day or datetime.datetime.now(datetime.timezone.utc).date())
    else:
        print(notes(asked.root))


if __name__ == "__main__":
    main()
