"""Draws docs/plots/latency.svg: cubinery and its peers side by side, a bar for each."""

DECODE_BATCHES = (1, 8, 32, 128)
PREFILL_TOKENS = 32768
COLOURS = ("#1f6feb", "#d9730d", "#8250df", "#1a7f37")
FLOOR = "#57606a"

BAR, GAP = 14, 14  # height of a bar, space between groups
LABELS, BARS, VALUES = 112, 230, 58  # widths in a panel
LEFT, BETWEEN, TOP = 16, 16, 92


def _decode_groups(rows):
    return [(f"{r['batch']} request{'s' if r['batch'] > 1 else ''}", r) for r in rows
            if r["op"] == "gdn_decode" and r["state_dtype"] == "f32" and r["batch"] in DECODE_BATCHES]


def _prefill_groups(rows):
    return [(f"{r['qk_heads']} key, {r['v_heads']} value", r) for r in rows
            if r["op"] == "gdn_prefill" and r["seqlens"] == [PREFILL_TOKENS] and r["protocol"] == "qwen-bf16"]


def _text(x, y, words, size=12, anchor="start", more=""):
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{more}>{words}</text>'


def _panel(left, title, groups, contenders, value_text):
    """Lines of SVG, and the lowest y."""
    longest = max(max(row["ms"], *row["peers_ms"].values()) for _, row in groups)
    lines = [_text(left, TOP - 16, title, 12, more=' font-weight="600"')]
    bars = left + LABELS
    y = TOP
    for name, row in groups:
        times = {"cubinery": row["ms"], **row["peers_ms"]}
        there = [c for c in contenders if c in times]
        height = BAR * len(there)
        lines.append(_text(bars - 8, y + height / 2 + 4, name, anchor="end"))
        for i, contender in enumerate(there):
            width = times[contender] / longest * BARS
            lines.append(f'<rect x="{bars:g}" y="{y + i * BAR:g}" width="{width:.1f}" height="{BAR - 2}" '
                         f'fill="{COLOURS[contenders.index(contender)]}"/>')
            value = value_text(times[contender])
            lines.append(_text(round(bars + width + 6, 1), y + i * BAR + 10, value, 11))
        floor = bars + row["byte_floor_ms"] / longest * BARS
        lines.append(f'<line x1="{floor:.1f}" x2="{floor:.1f}" y1="{y - 3:g}" y2="{y + height + 1:g}" '
                     f'stroke="{FLOOR}" stroke-width="2" stroke-dasharray="3 2"/>')
        y += height + GAP
    return lines, y


def draw_latency(rows, gpu, peer_name):
    """The text of the picture, from side-by-side rows."""
    decode, prefill = _decode_groups(rows), _prefill_groups(rows)
    peers = sorted({peer for _, row in decode + prefill for peer in row["peers_ms"]})
    contenders = ["cubinery", *peers]
    panel = LABELS + BARS + VALUES
    first, first_end = _panel(LEFT, "Decode, 16 key and 32 value heads, f32 states, us", decode, contenders,
                              lambda ms: f"{ms * 1e3:.1f}")
    second, second_end = _panel(LEFT + panel + BETWEEN, f"Prefill of {PREFILL_TOKENS} tokens, by heads, bf16, ms",
                                prefill, contenders, lambda ms: f"{ms:.2f}")
    width, height = LEFT + 2 * panel + BETWEEN, max(first_end, second_end) + 6
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif" fill="#24292f">',
             f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
             _text(LEFT, 28, f"Gated DeltaNet on {gpu}: shorter is faster", 15, more=' font-weight="600"')]
    x = LEFT
    for contender, colour in zip(contenders, COLOURS):
        lines.append(f'<rect x="{x}" y="42" width="12" height="12" fill="{colour}"/>')
        lines.append(_text(x + 18, 52, contender if contender == "cubinery" else peer_name(contender)))
        x += 120
    lines.append(f'<line x1="{x + 6}" x2="{x + 6}" y1="40" y2="56" stroke="{FLOOR}" stroke-width="2" '
                 'stroke-dasharray="3 2"/>')
    lines.append(_text(x + 18, 52, "byte floor: the time to move every operand once"))
    return "\n".join([*lines, *first, *second, "</svg>"]) + "\n"
