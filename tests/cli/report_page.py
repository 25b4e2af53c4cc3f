#!/usr/bin/env python3
"""Reads the page of cubinery report: its elements, and the report inside.  Where Chromium is installed, the page is
also shown in it, at 400 and 1280 px.

    report_page.py CUBINERY TEST_DIR
"""

import html.parser
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import browser as chromium  # noqa: E402

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
    assert {"report", "cards", "heat", "roofline", "gpus", "settings", "filter", "detail"} <= names, names
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


# What a view of the page tells its frame: errors, what does not fit, and what is shown.
EYE = """
<script>
window.addEventListener('load', () => setTimeout(() => {
  const all = (selector) => [...document.querySelectorAll(selector)].filter((one) => one.getClientRects().length);
  const ids = (selector) => all(selector).map((one) => one.getAttribute('href').slice(1));
  const is_drawn = (canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean);
  const seen = {
    errors: window.errors, too_wide: document.documentElement.scrollWidth - innerWidth,
    cards: all('#cards > .card').map((one) => one.innerText), cells: ids('#heat td a'),
    rows: all('#settings tbody tr').length, stacked: all('#settings .stacked').length,
    canvases: all('canvas').length, blank: all('canvas').filter((one) => !is_drawn(one)).length,
    pairs: ids('#gpus a').length || document.querySelectorAll('#gpus circle').length,
    detail: document.getElementById('detail').innerText, current: all('#detail td[aria-current]').length};
  const link = document.querySelector('#heat td a');
  if (link && all('#heat').length) link.click();
  setTimeout(() => parent.postMessage({view: window.name, ...seen, clicked: link && location.hash.slice(1),
                                       opened: all('#detail').length}, '*'), 500);
}, 500));
</script>
"""
# Before the scripts of the page.
ERRORS = "<script>window.errors = []; window.onerror = (what) => { errors.push(what); };</script>"
FRAME = """<!DOCTYPE html><title>views</title><body><pre id="seen"></pre><script>
window.addEventListener('message', ({data}) => {
  document.getElementById('seen').append(encodeURIComponent(JSON.stringify(data)) + String.fromCharCode(10));
});
</script>"""


def look(browser, text, folder, views):
    """What each view sees; views: width and fragment, by name."""
    page = folder / "page.html"
    page.write_text(text.replace("<script id=", ERRORS + "<script id=", 1).replace("</body>", EYE + "</body>"))
    frames = "".join(f'<iframe name="{name}" src="page.html#{fragment}" style="width: {width}px; height: 900px">'
                     "</iframe>" for name, (width, fragment) in views.items())
    (folder / "views.html").write_text(FRAME + frames)
    dom = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
         "--window-size=1600,1000", "--virtual-time-budget=30000", "--dump-dom", f"file://{folder}/views.html"],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=240).stdout
    seen = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.S).group(1).split()
    return {one["view"]: one for one in (json.loads(urllib.parse.unquote(line)) for line in seen)}


def check_overview(seen, report, width):
    """The first screen and what follows it, of all settings."""
    ids = sorted(setting["id"] for setting in report["settings"])
    assert seen["rows"] == len(ids) and sorted(seen["cells"]) == ids, (seen["rows"], len(seen["cells"]), len(ids))
    assert seen["stacked"] == (1 if width < 500 else 0), width
    assert len(seen["cards"]) == len(report["summary"])
    for text, row in zip(seen["cards"], report["summary"]):
        for number in (row["gain_median"], row["gain_greatest"]):
            assert f"{number * 100:.1f}" in text, (number, text)
        assert f"{row['keep_default']} of {row['decided']} keep" in text, text
    gpus = {setting["gpu"]["name"] for setting in report["settings"]}
    assert seen["canvases"] == len(gpus) and (seen["pairs"] > 0) == (len(gpus) > 1), seen
    assert seen["clicked"] == seen["cells"][0] and seen["opened"] == 1, seen["clicked"]


def check_views(browser, text, report):
    """The page at two widths, and one setting: the one that was chosen though most others were faster."""
    places = {setting["id"]: sum(one["verdict"] == "correct" and setting["result"] is not None
                                 and one["ms"]["median"] < setting["result"]["ms"]["median"]
                                 for one in setting["measurements"]) for setting in report["settings"]}
    setting = max(report["settings"], key=lambda one: places[one["id"]])
    views = {"narrow": (400, ""), "wide": (1280, ""), "one": (1280, setting["id"]), "small": (400, setting["id"])}
    with tempfile.TemporaryDirectory() as folder:
        seen = look(browser, text, pathlib.Path(folder), views)
    assert seen.keys() == views.keys(), seen.keys()
    for name, (width, fragment) in views.items():
        one = seen[name]
        assert not one["errors"] and one["too_wide"] <= 0 and one["blank"] == 0, (name, one["errors"], one["too_wide"])
        if not fragment:
            check_overview(one, report, width)
            continue
        assert setting["result"]["chosen_because"] in one["detail"], one["detail"]
        assert one["rows"] == 0 and one["current"] == 1, one
        assert (one["canvases"] > 1) == bool(setting["measurements"]), one["canvases"]


def check_page(browser, cubinery, *options):
    """How many settings the page holds: those of the JSON, as it is written."""
    report = [cubinery, "report", *options]
    text = subprocess.check_output(report + ["--format", "html"], text=True)
    page = Page(text)
    check_alone(page)
    check_scripts(page)
    inside = json.loads(page.scripts[0][1])
    assert inside == json.loads(subprocess.check_output(report + ["--format", "json"]))
    check_settings(inside["settings"])
    if browser:
        check_views(browser, text, inside)
    return len(inside["settings"])


def main():
    cubinery, tests = sys.argv[1], pathlib.Path(sys.argv[2])
    browser = chromium.find()
    recorded = check_page(browser, cubinery, "--dir", str(tests / "data/tuning"), "--copy-rate", "4")
    inside = check_page(browser, cubinery, "--library")
    how = "shown in " + browser if browser else "read only: no Chromium"
    print(f"{recorded} recorded settings, {inside} inside the library; {how}")


main()
