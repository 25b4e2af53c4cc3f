#!/usr/bin/env python3
"""Opens the page of cubinery report in a browser without network, and uses it.

    report_page.py CUBINERY TEST_DIR SCREENSHOT.png
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import zlib

import webdriver

# Text of the cells of one column, counted from 1, in the order of the shown rows.
COLUMN = """return [...document.querySelectorAll('#settings tbody tr:not([hidden]) td:nth-child(' + arguments[0] + ')')]
    .map((cell) => cell.textContent);"""
# For each canvas: its label, and whether something is drawn.  Looked at in a copy: the browser warns of charts that are
# read back often.
CANVASES = """return [...document.querySelectorAll('canvas')].map((canvas) => {
    const {width, height} = canvas;
    if (width * height === 0) return [canvas.getAttribute('aria-label'), false];
    const copy = Object.assign(document.createElement('canvas'), {width, height});
    const pixels = copy.getContext('2d', {willReadFrequently: true});
    pixels.drawImage(canvas, 0, 0);
    const drawn = pixels.getImageData(0, 0, width, height).data.some((byte) => byte !== 0);
    return [canvas.getAttribute('aria-label'), drawn];
});"""
HEADERS = "return [...document.querySelectorAll('#settings th')].map((th) => th.textContent);"
# What does not fit: the page itself, boxes and cells whose content is wider than they are, and elements that reach beyond
# their box or the page.
OVERFLOWS = """const wide = [];
    const page = document.scrollingElement;
    if (page.scrollWidth > innerWidth) wide.push(`the page: ${page.scrollWidth} > ${innerWidth}`);
    for (const one of document.querySelectorAll('body *')) {
        if (one.getClientRects().length === 0) continue;
        const {left, right} = one.getBoundingClientRect();
        const box = (one.parentElement.closest('.card') || page).getBoundingClientRect();
        const name = `${one.tagName} ${one.className} ${one.textContent.slice(0, 40)}`;
        if (one.clientWidth > 0 && one.scrollWidth > one.clientWidth + 1) {
            wide.push(`${name}: ${one.scrollWidth} > ${one.clientWidth}`);
        }
        if (left < box.left - 1 || right > box.right + 1) wide.push(`${name}: ${left} to ${right}`);
    }
    return [innerWidth, wide];"""
SORTED = "return document.querySelectorAll('#settings th')[arguments[0]].getAttribute('aria-sort');"


def check_sorting(browser):
    """A header sorts its column up and down, by mouse and by keyboard."""
    title = "µs"
    at = browser.run(HEADERS).index(title)
    values = [float(text) for text in browser.run(COLUMN, at + 1)]
    assert len(set(values)) > 1, "the test data has one time only"
    button = browser.find("#settings th button")[at]
    for click, order in ((lambda: browser.click(button), "ascending"),
                         (lambda: browser.type(button, "\ue007"), "descending")):  # the Enter key
        click()

        def check():
            shown = [float(text) for text in browser.run(COLUMN, at + 1)]
            assert shown == sorted(values, reverse=order == "descending"), (order, shown)
            assert browser.run(SORTED, at) == order

        webdriver.eventually(check)


def check_charts(browser, setting):
    """One chart for each tuned field and one of the rates, with something in each."""
    canvases = browser.run(CANVASES)
    labels = [label for label, _ in canvases]
    correct = [m for m in setting["measurements"] if m["verdict"] == "correct"]
    for field in correct[0]["configuration"] if correct else []:
        assert f"Latency by {field}" in labels, (field, labels)
    if setting["bytes"] and correct:
        assert any("for every bucket" in label for label in labels), labels
    assert labels or not correct, "no chart at all"
    assert all(drawn for _, drawn in canvases), canvases


def check_setting(browser, setting):
    """The link of a setting shows its facts, charts, candidates and what was rejected."""
    link, = browser.find(f"#settings a[href='#{setting['id']}']")
    browser.click(link)

    def check():
        shown = browser.run("return document.getElementById('detail').textContent;")
        for text in (setting["bucket"], setting["problem"], setting["gpu"]["name"], setting["nvrtc"]):
            assert text in shown, text
        for measurement in setting["measurements"]:
            if measurement["verdict"] != "correct":
                assert measurement["reason"] in shown, measurement["reason"]
        check_charts(browser, setting)

    webdriver.eventually(check)


def check_width(browser, screenshot):
    """Nothing overflows, is cut off or hides behind a scroll bar across, whatever the width and the colours."""
    for scheme in ("light", "dark"):
        for width in (320, 400, 768, 1280, 1500):
            browser.show_as(width, 2000, scheme)

            def check():
                shown, wide = browser.run(OVERFLOWS)
                assert (shown, wide) == (width, []), (shown, wide[:10])

            webdriver.eventually(check)
            if screenshot:
                browser.run("window.scrollTo(0, 0);")
                path = screenshot.with_stem(f"{screenshot.stem}_{scheme}_{width}")
                path.write_bytes(browser.screenshot())


def check_filter(browser, settings):
    """Rows without the words of the filter are hidden."""
    field, = browser.find("#filter")
    bucket = settings[0]["bucket"]
    browser.type(field, bucket)

    def check_some():
        shown = browser.run(COLUMN, 1)
        assert shown and all(bucket in text for text in shown), shown

    def check_all():
        assert len(browser.run(COLUMN, 1)) == len(settings)

    webdriver.eventually(check_some)
    browser.type(field, "\ue003" * len(bucket))  # Backspace
    webdriver.eventually(check_all)


def check_png(data):
    """A PNG of one colour would be a page that shows nothing."""
    assert data.startswith(b"\x89PNG")
    packed, at = b"", 8
    while at < len(data):
        length = int.from_bytes(data[at:at + 4], "big")
        if data[at + 4:at + 8] == b"IDAT":
            packed += data[at + 8:at + 8 + length]
        at += 12 + length
    assert len(set(zlib.decompress(packed))) > 16, "the screenshot is blank"


def main():
    cubinery, tests, screenshot = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    paths = webdriver.find_browser()
    if paths is None:
        print("skipped: no chromium with chromedriver (packages chromium and chromium-driver)")
        return 77
    report = [cubinery, "report", "--dir", str(tests / "data/tuning"), "--copy-rate", "4"]
    settings = json.loads(subprocess.check_output(report + ["--format", "json"]))["settings"]
    with tempfile.TemporaryDirectory() as folder, webdriver.Browser(*paths) as browser:
        page = pathlib.Path(folder) / "report.html"
        # More columns than the recorded results have: several problems and GPUs.
        subprocess.run([cubinery, "report", "--library", "--format", "html", "-o", str(page)], check=True)
        browser.open(page.as_uri())
        check_width(browser, None)
        subprocess.run(report + ["--format", "html", "-o", str(page)], check=True)
        browser.open(page.as_uri())
        assert len(browser.run(COLUMN, 1)) == len(settings)
        check_sorting(browser)
        check_filter(browser, settings)
        for setting in settings:
            check_setting(browser, setting)
        check_width(browser, screenshot)
        assert browser.run("return performance.getEntriesByType('resource').length;") == 0
        browser.run("window.scrollTo(0, 0);")
        image = browser.screenshot()
        screenshot.write_bytes(image)
        check_png(image)
        log = browser.log()
        assert not log, log
    print(f"{len(settings)} settings; {screenshot}")
    return 0


sys.exit(main())
