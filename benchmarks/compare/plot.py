"""Pictures of a record: latency against tokens and against the batch, prefills of Kimi Delta Attention, and
shares of the byte floor."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402: the back end has to be chosen first
from matplotlib.ticker import FuncFormatter, LogLocator  # noqa: E402

from compare.record import in_order, variant  # noqa: E402

_COLOURS = ("#1f6feb", "#d9730d", "#8250df", "#1a7f37", "#6e7781", "#bf3989")
_FLOOR = "#8c959f"


def _timed(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: e for name, e in row["contenders"].items() if e["status"] == "timed"}


def _colours(rows: list[dict[str, Any]]) -> dict[str, str]:
    """One colour per contender, the same in every picture."""
    names = dict.fromkeys(name for row in rows for name in row["contenders"])
    return {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(names)}


def _panels(panels: dict[str, list], at: str, x_label: str, colours: dict, title: str):
    """A panel for each group of rows: log-log lines of every contender over row[at]."""
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4.2 * len(panels) + 0.6, 3.8), squeeze=False, layout="constrained"
    )
    for axis, (name, rows) in zip(axes[0], panels.items(), strict=True):
        rows = sorted(rows, key=lambda row: row[at])
        for contender, colour in colours.items():
            points = [(row[at], _timed(row)[contender]) for row in rows if contender in _timed(row)]
            if not points:
                continue
            xs, us = [x for x, _ in points], [1e3 * e["ms"] for _, e in points]
            axis.plot(xs, us, "o-", color=colour, markersize=4, label=contender)
            low, high = ([1e3 * e[end] for _, e in points] for end in ("ms_p10", "ms_p90"))
            axis.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
        xs = [row[at] for row in rows]
        floor = [1e3 * row["byte_floor_ms"] for row in rows]
        axis.plot(xs, floor, "--", color=_FLOOR, label="byte floor")
        axis.set_title(name, fontsize=9)
        axis.set(xlabel=x_label, xscale="log", yscale="log")
        axis.set_xticks(xs, [str(x) for x in xs], rotation=30)
        axis.minorticks_off()
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda us, _: f"{us:g}"))
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("us")
    axes[0][0].legend(fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure


def _of_one_distribution(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The prefills with the distribution of gates that most of these have."""
    protocols = [row["protocol"] for row in rows]
    return [row for row in rows if row["protocol"] == max(protocols, key=protocols.count)]


def _prefills(root: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in root["rows"] if row["op"] == "gdn_prefill"]


def prefill_latency(root: dict[str, Any]):
    """One sequence, by heads; None without such rows."""
    panels = defaultdict(list)
    single = [row for row in _prefills(root) if not variant(row) and len(row["seqlens"]) == 1]
    for row in _of_one_distribution(single):
        name = f"{row['qk_heads']} key, {row['v_heads']} value heads, {row['protocol']}"
        panels[name].append(row | {"tokens": sum(row["seqlens"])})
    if not panels:
        return None
    return _panels(panels, "tokens", "tokens", _colours(root["rows"]), f"Prefill, {root['gpu']}")


def kda_prefill(root: dict[str, Any]):
    """Kimi Delta Attention: a line for each shape, on it a point for each contender; None without a
    time."""
    rows = _of_one_distribution([r for r in _prefills(root) if variant(r) and _timed(r)])
    if not rows:
        return None
    rows.sort(key=lambda row: (sum(row["seqlens"]), row["v_heads"], len(row["seqlens"])))
    figure, axis = plt.subplots(figsize=(8, 1.4 + 0.28 * len(rows)), layout="constrained")
    names = []
    for y, row in enumerate(rows):
        times = [
            1e3 * ms for ms in (row["byte_floor_ms"], *(e["ms"] for e in _timed(row).values()))
        ]
        axis.hlines(y, min(times), max(times), color=_FLOOR, alpha=0.4, linewidth=1)
        sequences = f" in {count} sequences" if (count := len(row["seqlens"])) > 1 else ""
        names.append(f"{sum(row['seqlens'])} tokens{sequences}, {row['v_heads']} heads")
    floors = [1e3 * row["byte_floor_ms"] for row in rows]
    axis.plot(floors, range(len(rows)), "|", color=_FLOOR, markersize=10, label="byte floor")
    for contender, colour in _colours(rows).items():
        points = [
            (1e3 * _timed(r)[contender]["ms"], y)
            for y, r in enumerate(rows)
            if contender in _timed(r)
        ]
        if points:
            axis.plot(*zip(*points), "o", color=colour, markersize=5, label=contender)
    axis.set_yticks(range(len(rows)), names, fontsize=8)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set(xscale="log", xlabel="us")
    axis.minorticks_off()
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda us, _: f"{us:g}"))
    axis.grid(axis="x", alpha=0.3)
    axis.set_title(
        f"Prefill of Kimi Delta Attention, {rows[0]['protocol']}, {root['gpu']}", fontsize=10
    )
    figure.legend(fontsize=8, loc="outside lower center", ncols=4)
    return figure


def decode_latency(root: dict[str, Any]):
    """By state dtype, heads and kind of decays; None without decode rows."""
    panels = defaultdict(list)
    for row in root["rows"]:
        if row["op"] == "gdn_decode":
            parts = [f"{row['qk_heads']} key, {row['v_heads']} value heads"]
            parts += [f"{row['state_dtype']} state", variant(row)]
            panels[", ".join(filter(None, parts))].append(row)
    if not panels:
        return None
    return _panels(panels, "batch", "requests", _colours(root["rows"]), f"Decode, {root['gpu']}")


def floor_share(root: dict[str, Any]):
    """Every row and contender: byte floor / time; None without a time."""
    rows = [row for row in in_order(root["rows"]) if _timed(row)]
    if not rows:
        return None
    colours = _colours(root["rows"])
    figure, axis = plt.subplots(
        figsize=(8, 1 + 0.09 * len(rows) * (len(colours) + 1)), layout="constrained"
    )
    height = 0.85 / len(colours)
    for i, (name, colour) in enumerate(colours.items()):
        bars = [(y, row, _timed(row)[name]) for y, row in enumerate(rows) if name in _timed(row)]
        shares = [100 * row["byte_floor_ms"] / e["ms"] for _, row, e in bars]
        places = [y + (i - (len(colours) - 1) / 2) * height for y, _, _ in bars]
        axis.barh(places, shares, height, color=colour, label=name)
    axis.set_yticks(range(len(rows)), [row["label"] for row in rows], fontsize=7)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set(xlim=(0, 100), xlabel="byte floor / time, %")
    axis.set_title(f"{root['gpu']}, floor at {root['ceilings']['copy_tb_s']:g} TB/s", fontsize=10)
    axis.grid(axis="x", alpha=0.3)
    figure.legend(fontsize=8, loc="outside lower center", ncols=len(colours))
    return figure


def draw(record: str, folder: str) -> list[Path]:
    """Draws the pictures that the rows of the record allow, as PNG and SVG; returns their paths."""
    root = json.loads(Path(record).read_text())
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for picture in (prefill_latency, kda_prefill, decode_latency, floor_share):
        figure = picture(root)
        if figure is None:
            continue
        for suffix in ("png", "svg"):
            paths.append(out / f"{picture.__name__}.{suffix}")
            figure.savefig(paths[-1], dpi=150)
        plt.close(figure)
    return paths
