#!/usr/bin/env python3
"""Reads the page of cubinery report as a browser would: its elements, and the report inside.

    report_page.py CUBINERY TEST_DIR
"""

import html.parser
import json
import pathlib
import re
import subprocess
import sys

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
# Attributes by which an element loads something.
LOADING = {"src", "href", "srcset", "data", "action", "poster"}


class Page(html.parser.HTMLParser):
    """Elements with their attributes, the texts of scripts, and what is not closed in its order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.open, self.errors = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.errors, self.errors
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.errors.append(f"</{tag}> at {self.getpos()} closes another element")

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)

    def with_id(self, name):
        return [tag for tag, attrs in self.elements if attrs.get("id") == name]


def check_alone(page):
    """The page loads nothing, and says that it may not."""
    policies = [attrs["content"] for tag, attrs in page.elements
                if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1 and policies[0].startswith("default-src 'none';"), policies
    assert "http" not in policies[0] and "*" not in policies[0], policies
    for tag, attrs in page.elements:
        for name in LOADING & attrs.keys():
            assert attrs[name].startswith(("data:", "#")), (tag, name, attrs[name])


def check_scripts(page):
    """Chart.js and the page's own, which names only elements that there are."""
    kinds = [attrs.get("type") for attrs, _ in page.scripts]
    assert kinds == ["application/json", None, None], kinds
    _, chart, own = (text for _, text in page.scripts)
    assert "Chart.js v3" in chart and "CHART_JS" not in chart
    names = set(re.findall(r"getElementById\('([^']+)'\)", own))
    assert {"report", "settings", "filter", "detail"} <= names, names
    for name in names:
        assert len(page.with_id(name)) == 1, name


def check_settings(settings):
    """What the page shows of a setting is there."""
    ids = [setting["id"] for setting in settings]
    assert ids and len(set(ids)) == len(ids), ids
    for setting in settings:
        assert setting["bucket"] and setting["problem"] and setting["gpu"]["name"] and setting["nvrtc"], setting["id"]
        for measurement in setting["measurements"]:
            correct = measurement["verdict"] == "correct"
            assert measurement["configuration"] if correct else measurement["reason"], measurement


def check_page(cubinery, *options):
    """How many settings the page holds: those of the JSON, as it is written."""
    report = [cubinery, "report", *options]
    page = Page(subprocess.check_output(report + ["--format", "html"], text=True))
    check_alone(page)
    check_scripts(page)
    inside = json.loads(page.scripts[0][1])
    assert inside == json.loads(subprocess.check_output(report + ["--format", "json"]))
    check_settings(inside["settings"])
    return len(inside["settings"])


def main():
    cubinery, tests = sys.argv[1], pathlib.Path(sys.argv[2])
    recorded = check_page(cubinery, "--dir", str(tests / "data/tuning"), "--copy-rate", "4")
    inside = check_page(cubinery, "--library")
    print(f"{recorded} recorded settings, {inside} inside the library")


main()
