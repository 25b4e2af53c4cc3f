#!/usr/bin/env python3
"""Looks at the site in headless Chromium, each page 400 and 1280 px wide: nothing of a page sticks out of the window or
is loaded from elsewhere, its navigation can be reached; the search finds words; charts are drawn.  Exits 77 without
Chromium.

    look.py SITE
"""

import functools
import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import browser as chromium  # noqa: E402

LIMIT = 300  # seconds, of a machine that hangs


class Server(http.server.SimpleHTTPRequestHandler):
    """The site, the page that looks at it, and where that page reports to."""

    def __init__(self, *args, site, job, answer, **more):
        self.job, self.answer = job, answer
        super().__init__(*args, directory=str(site), **more)

    def do_GET(self):
        if self.path not in ("/look.html", "/job.json"):
            return super().do_GET()
        body = (HERE / "look.html").read_bytes() if self.path == "/look.html" else json.dumps(self.job).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if self.path == "/look.html" else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.answer.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()
        self.answer.done.set()

    def log_message(self, *_):
        pass


class QuietServer(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """A frame that is removed drops what it was loading."""


class Answer(list):
    def __init__(self):
        super().__init__()
        self.done = threading.Event()


def main():
    browser = chromium.find()
    if browser is None:
        print("skipped: no Chromium; install Debian's package chromium-headless-shell, or set CUBINERY_CHROMIUM")
        sys.exit(77)
    site = pathlib.Path(sys.argv[1]).resolve()
    if not site.is_dir():
        print(f"skipped: {site} was not built; the test `site` says why")
        sys.exit(77)
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))
    answer = Answer()
    server = QuietServer(("127.0.0.1", 0), functools.partial(Server, site=site, job={"pages": pages}, answer=answer))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/look.html"
    with tempfile.TemporaryDirectory() as profile:
        process = subprocess.Popen(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu", "--disable-dev-shm-usage",
                "--no-first-run",
                "--remote-debugging-port=0",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                f"--user-data-dir={profile}",
                "--window-size=1400,1000",
                url,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            if not answer.done.wait(LIMIT):
                sys.exit(f"{browser} has not looked at the site in {LIMIT} s; exit code {process.poll()}")
        finally:
            process.terminate()
            process.wait()
    report = answer[0]
    looked, charts, found = report["looked"], report["charts"], report["found"]
    print(f"{looked} pages looked at, {charts} charts drawn, {found} pages found by the search")
    if report["looked"] != 2 * len(pages):
        report["wrong"].append(f"{report['looked']} pages were looked at, not each of {len(pages)} twice")
    if charts == 0:
        report["wrong"].append("no chart was drawn")
    sys.exit("\n".join(report["wrong"]) or 0)


if __name__ == "__main__":
    main()
