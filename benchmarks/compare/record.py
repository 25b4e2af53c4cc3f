"""What a run measured: as JSON, and as a table.  Imports nothing but Python."""

import datetime
import importlib.metadata
import json
import os
import platform
import re
import statistics
from pathlib import Path
from typing import Any

from compare.rows import KDA_GATES, Row, kda_ten

OURS = "cubinery"
YARDSTICK = "cubinery-gdn"  # ours too, with one decay for each head: beside decays of channels
# Whose versions a record names, where they are installed.
PACKAGES = (
    "cubinery",
    "apache-tvm-ffi",
    "torch",
    "transformers",
    "triton",
    "fla-core",
    "flash-linear-attention",
    "flash-qla",
    "tilelang",
    "flashinfer-python",
    "vllm",
    "nvidia-cudnn-frontend",
    "nvidia-cutlass-dsl",
    "numpy",
)


def significant(value: float) -> float:
    """Four significant digits: more is noise."""
    return float(f"{value:.4g}")


def versions() -> dict[str, str]:
    """Of Python and of those PACKAGES that are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def driver_version() -> str:
    """ "580.159.04", of the kernel module; "unknown" where there is none."""
    for path in ("/sys/module/nvidia/version", "/proc/driver/nvidia/version"):
        try:
            version = re.search(r"\d+(\.\d+)+", Path(path).read_text())
        except OSError:
            continue
        if version:
            return version.group()
    return "unknown"


class Record:
    """Rows of one run.  `head` goes in front: the GPU, versions, who is missing and why."""

    def __init__(self, path: str | None, commit: str, head: dict[str, Any]):
        self._path = path
        self._commit = commit
        self.root: dict[str, Any] = {"format": 1, **head, "rows": []}

    def put(self, row: Row, entries: dict[str, dict[str, Any]]) -> None:
        """Adds a row: our figures at its top level, the yardstick's median in gdn_ms, the peers' in
        peers_ms, everything in contenders."""
        line = dict(row.identity)
        ours = entries.get(OURS, {})
        for name in ("ms", "ms_p10", "ms_p90", "error_o", "error_state"):
            if name in ours:
                line[name] = ours[name]
        times = {name: entry["ms"] for name, entry in entries.items() if "ms" in entry}
        if YARDSTICK in times:
            line["gdn_ms"] = times[YARDSTICK]
        line["peers_ms"] = {n: ms for n, ms in times.items() if n not in (OURS, YARDSTICK)}
        copy_rate = self.root["ceilings"]["copy_tb_s"]
        line["byte_floor_ms"] = significant(row.least_bytes / (copy_rate * 1e9))
        line["label"] = row.label
        line["contenders"] = entries
        self.add(line)

    def add(self, line: dict[str, Any]) -> None:
        """Adds a row of any kind, with the commit, the day and the time, UTC."""
        now = datetime.datetime.now(datetime.timezone.utc)
        when = {"date": f"{now:%Y-%m-%d}", "time": f"{now:%H:%M}"}
        self.root["rows"].append({**line, "commit": self._commit, **when})

    def skip(self, rows: list[Row], reason: str) -> None:
        """Names rows that were not run."""
        if rows:
            self.root["skipped"] = {"rows": [row.label for row in rows], "reason": reason}

    def save(self) -> None:
        """Writes the file whole, one row per line: to a temporary file, then renamed."""
        if self._path is None:
            return
        members = [
            f"  {json.dumps(name)}: {json.dumps(value)}"
            for name, value in self.root.items()
            if name != "rows"
        ]
        rows = ",\n".join("    " + json.dumps(row) for row in self.root["rows"])
        text = "{\n" + ",\n".join([*members, f'  "rows": [\n{rows}\n  ]']) + "\n}\n"
        temporary = f"{self._path}.tmp"
        Path(temporary).write_text(text)
        os.replace(temporary, self._path)


def variant(line: dict[str, Any]) -> str:
    """What sets a row apart from the same operation of Gated DeltaNet alone; "" for these."""
    parts = ["decays of channels"] if line.get("decay") == "channel" else []
    return ", ".join(parts + (["convolution and norm"] if "conv_width" in line else []))


def in_order(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a record by operation, heads and size; they are measured in another order."""

    def place(line: dict[str, Any]) -> tuple:
        heads = (line["v_heads"], line["qk_heads"])
        if line["op"] == "gdn_conv":
            return ("gdn_conv", not line["varlen"], line["sequences"], line["tokens"], heads)
        if line["op"] == "gdn_decode":
            wide = line["state_dtype"] != "f32"
            return ("gdn_decode", variant(line), wide, heads, line["batch"])
        if line["op"] == "gdn_verify":
            stored, wide = line["stored_states"] != "none", line["state_dtype"] != "f32"
            return ("gdn_verify", variant(line), stored, wide, heads, line["tokens"], line["batch"])
        sequences, tokens = len(line["seqlens"]), sum(line["seqlens"])
        return ("gdn_prefill", variant(line), heads, line["protocol"], sequences, tokens)

    return sorted(lines, key=place)


def _us(ms: float) -> str:
    return f"{significant(1e3 * ms):g}"


def _cell(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "missing"
    if entry["status"] == "timed":
        mark = "" if entry["how"] == "graph" else " stream"
        return f"{_us(entry['ms'])} ({_us(entry['ms_p10'])} to {_us(entry['ms_p90'])}){mark}"
    if entry["status"] == "wrong":
        return "wrong: " + ", ".join(
            f"{entry[name]}" for name in entry if name.startswith("error_")
        )
    return entry["status"]


def _ratio(row: dict[str, Any]) -> str:
    if "ms" not in row or not row["peers_ms"]:
        return ""
    return f"{min(row['peers_ms'].values()) / row['ms']:.2f}x"


def aligned(lines: list[list[str]]) -> str:
    """Columns of equal width: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = []
    for first, *others in lines:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        texts.append("  ".join(cells).rstrip())
    return "\n".join(texts)


def geometric_means(root: dict[str, Any]) -> dict[str, dict[str, float]]:
    """By distribution of gates, of every contender that was timed on all of kda_ten(): milliseconds."""
    timed = {
        row["label"]: {name: e["ms"] for name, e in row["contenders"].items() if "ms" in e}
        for row in root["rows"]
    }
    means = {}
    for gates in KDA_GATES:
        ten = [timed.get(row.label, {}) for row in kda_ten(gates)]
        means[gates] = {
            name: statistics.geometric_mean(times[name] for times in ten)
            for name in ten[0]
            if all(name in times for times in ten)
        }
    return {gates: of for gates, of in means.items() if of}


def table(root: dict[str, Any]) -> str:
    """Rows by contenders: median (p10 to p90) in microseconds; below it geometric means, and who is
    missing, failed or was left out, and why."""
    missing = root.get("missing", {})
    names = list(dict.fromkeys(name for row in root["rows"] for name in row["contenders"]))
    columns = [*names, *missing]
    lines = [["us", "byte floor", *columns, "best peer / ours"]]
    notes = []
    for gates, means in geometric_means(root).items():
        times = ", ".join(f"{name} {_us(ms)}" for name, ms in means.items())
        notes.append(f"geometric mean of the ten prefills of kda, {gates}, us: {times}")
    notes += [f"{name} is missing: {reason}" for name, reason in missing.items()]
    for row in in_order(root["rows"]):
        entries = row["contenders"]
        cells = [_cell(entries.get(name)) for name in columns]
        lines.append([row["label"], _us(row["byte_floor_ms"]), *cells, _ratio(row)])
        for name, entry in entries.items():
            for member in ("reason", "why_not_graph", "note"):
                if member in entry:
                    notes.append(f"{name}, {row['op']}: {entry[member]}")
    if "skipped" in root:
        skipped = root["skipped"]
        notes.append(f"not run, {skipped['reason']}: {'; '.join(skipped['rows'])}")
    return "\n".join([aligned(lines), *dict.fromkeys(notes)])
