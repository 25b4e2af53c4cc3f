"""A small client of the W3C WebDriver protocol, on the standard library alone."""

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name for a reference to an element


def find_browser():
    """Paths of a browser and of its driver; None where one of them is missing."""
    browsers = ("chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, browsers)), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def eventually(check):
    """What check() returns, as soon as it raises no AssertionError: pages act on input when they get to it.  A page that
    never does is given up after a minute or more."""
    tries = 600
    while True:
        try:
            return check()
        except AssertionError:
            tries -= 1
            if tries == 0:
                raise
        time.sleep(0.1)


class Browser:
    """A headless Chromium that reaches no network."""

    def __init__(self, browser, driver):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.driver = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True)
        self.session = None
        try:
            port = next(match[1] for match in map(re.compile(r"successfully on port (\d+)").search, self.driver.stdout) if match)
            self.url = f"http://127.0.0.1:{port}/session"
            self.session = self._start(browser)
        except BaseException:
            self.close()
            raise

    def _start(self, browser):
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--hide-scrollbars", "--window-size=1500,3200", f"--user-data-dir={self.profile.name}",
                     "--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9"]
        options = {"goog:chromeOptions": {"binary": browser, "args": arguments},
                   "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._call("POST", "", {"capabilities": {"alwaysMatch": options}})
        return made["sessionId"]

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        session = f"/{self.session}" if self.session else ""
        request = urllib.request.Request(self.url + session + path, data, {"Content-Type": "application/json"},
                                         method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=500) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.read().decode()[:500]}") from error

    def open(self, url):
        self._call("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """The value of a JavaScript function's body."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, selector):
        found = self._call("POST", "/elements", {"using": "css selector", "value": selector})
        return [element[ELEMENT] for element in found]

    def click(self, element):
        # A sticky header may lie on what is merely in view.
        self.run("arguments[0].scrollIntoView({block: 'center'});", {ELEMENT: element})
        self._call("POST", f"/element/{element}/click", {})

    def type(self, element, text):
        self._call("POST", f"/element/{element}/value", {"text": text})

    def show_as(self, width, height, scheme):
        """The size of the page's view in CSS pixels, and the colours that the user prefers: "light" or "dark"."""
        self._devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                       mobile=False)
        self._devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def _devtools(self, command, **parameters):
        self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def screenshot(self):
        """The visible part, a PNG's bytes."""
        return base64.b64decode(self._call("GET", "/screenshot"))

    def log(self):
        """What the page wrote to the console, errors of loading included."""
        return self._call("POST", "/se/log", {"type": "browser"})

    def close(self):
        if self.session:
            self._call("DELETE", "")
        self.driver.terminate()
        self.driver.wait()
        self.profile.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
