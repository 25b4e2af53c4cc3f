"""benchmarks/first_request.py without a GPU, on children that do as they are told."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import first_request  # noqa: E402: the path comes first


def _child(code):
    """A command that runs `code` with CACHE and STARTED, in place of a contender."""

    def command(cache, started):
        return [sys.executable, "-c", f"CACHE, STARTED = {cache!r}, {started}\n{code}"]

    return command


_COMPILES = """
import json, os, time
marker = os.path.join(os.environ["CUBINERY_CACHE_DIR"], "kernel")
compiled = int(not os.path.exists(marker))
os.makedirs(os.path.dirname(marker), exist_ok=True)
open(marker, "w").close()
assert os.environ["TRITON_CACHE_DIR"].startswith(CACHE) and 0 < STARTED < time.monotonic_ns()
seconds = 2.0 if compiled else 0.5
print("noise")
print(json.dumps({"seconds": seconds, "of_which": {"prepare": seconds / 2}, "compiled": compiled,
                  "error_o": 1e-3, "error_state": 2e-3, "gpu": "Test GPU"}))
"""


def test_first_requests_meet_an_empty_cache_and_then_a_filled_one(monkeypatch):
    monkeypatch.setenv("CUBINERY_OFFLINE", "1")
    empty, filled = first_request.measure("cubinery-cpp", _child(_COMPILES), 2)
    assert (empty["cache"], filled["cache"]) == ("empty", "filled")
    assert (empty["seconds"], filled["seconds"]) == (2.0, 0.5)
    assert empty["of_which"] == {"prepare": 1.0} and filled["runs"] == [0.5, 0.5]
    assert "2" in first_request.table([empty, filled]).splitlines()[1].split()


def test_a_first_request_that_fails_says_why():
    code = "import sys; print('warming up', file=sys.stderr); sys.exit('no GPU')"
    (line,) = first_request.measure("fla", _child(code), 1)
    assert line["failed"] == "RuntimeError: exit status 1: no GPU"
    assert "fla failed" in first_request.table([line])
    never = _COMPILES.replace("int(not os.path.exists(marker))", "1")
    (line,) = first_request.measure("cubinery-cpp", _child(never), 1)
    assert "compiled 1 kernels with a cache filled" in line["failed"]
    (line,) = first_request.measure("cubinery-cpp", lambda *_: ["/nonexistent"], 1)
    assert "FileNotFoundError" in line["failed"]


def test_first_requests_are_medians():
    runs = [
        {
            "seconds": float(n),
            "after_import_torch": n / 2,
            "of_which": {"import": n / 10},
            "error_o": 0.0,
            "error_state": 0.0,
            "gpu": "Test GPU",
        }
        for n in (1, 5, 2)
    ]
    line = first_request.summary(runs)
    assert (line["seconds"], line["after_import_torch"]) == (2.0, 1.0)
    assert line["of_which"] == {"import": 0.2} and line["runs"] == [1.0, 5.0, 2.0]
