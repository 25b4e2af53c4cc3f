"""Draws docs/plots/latency.svg, cubinery and its peers side by side, a bar for each, docs/plots/tokens.svg, the time of
one sequence against its length, docs/plots/ratios.svg, a point for every prefill, docs/plots/kda_prefill.svg, those of
Kimi Delta Attention, and docs/plots/engines.svg, one layer in engines alone and with cubinery.
"""
import math

DECODE_BATCHES = (1, 8, 32, 128)
PREFILL_TOKENS = 32768
PREFILL_HEADS = ((2, 8), (4, 16), (16, 16), (16, 32), (16, 64))
COLOURS = ("#1f6feb", "#d9730d", "#8250df", "#1a7f37", "#bf3989")
FLOOR = "#57606a"

BAR, GAP = 14, 14  # height of a bar, space between groups
LABELS, BARS, VALUES = 112, 230, 58  # widths in a panel
LEFT, BETWEEN, TOP = 16, 16, 92


def _decode_groups(rows):
    return [(f"{r['batch']} request{'s' if r['batch'] > 1 else ''}", r) for r in rows
            if r["op"] == "gdn_decode" and r["state_dtype"] == "f32" and r["batch"] in DECODE_BATCHES]


def _prefill_groups(rows, tokens):
    return [(f"{r['qk_heads']}, {r['v_heads']}: {tokens(r)}", r) for r in rows
            if r["op"] == "gdn_prefill" and sum(r["seqlens"]) == PREFILL_TOKENS and r["protocol"] == "qwen-bf16"
            and (r["qk_heads"], r["v_heads"]) in PREFILL_HEADS and len(r["seqlens"]) in (1, 4)]


def _times(row):
    return {"cubinery": row["ms"], **row["peers_ms"]}


def _text(x, y, words, size=12, anchor="start", more=""):
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{more}>{words}</text>'


def _panel(left, title, groups, contenders, value_text):
    """Lines of SVG, and the lowest y."""
    longest = max(max(row["ms"], *row["peers_ms"].values()) for _, row in groups)
    lines = [_text(left, TOP - 16, title, 12, more=' font-weight="600"')]
    bars = left + LABELS
    y = TOP
    for name, row in groups:
        times = _times(row)
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


def draw_latency(rows, gpu, peer_name, tokens):
    """The text of the picture, from side-by-side rows."""
    decode, prefill = _decode_groups(rows), _prefill_groups(rows, tokens)
    peers = sorted({peer for _, row in decode + prefill for peer in row["peers_ms"]})
    contenders = ["cubinery", *peers]
    panel = LABELS + BARS + VALUES
    first, first_end = _panel(LEFT, "Decode, 16 key and 32 value heads, f32 states, us", decode, contenders,
                              lambda ms: f"{ms * 1e3:.1f}")
    second, second_end = _panel(LEFT + panel + BETWEEN, f"Prefill of {PREFILL_TOKENS} tokens, heads: sequences, bf16, ms",
                                prefill, contenders, lambda ms: f"{ms:.2f}")
    width, height = LEFT + 2 * panel + BETWEEN, max(first_end, second_end) + 6
    head = _head(width, height, f"Gated DeltaNet on {gpu}: shorter is faster", contenders, peer_name)
    return "\n".join([*head, *first, *second, "</svg>"]) + "\n"


def _opening(width, height, title):
    """The first lines of a picture."""
    return [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif" fill="#24292f">',
            f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
            _text(LEFT, 28, title, 15, more=' font-weight="600"')]


def _head(width, height, title, contenders, peer_name):
    """The lines in front of the panels: the title and who has which colour."""
    lines = _opening(width, height, title)
    x = LEFT
    for contender, colour in zip(contenders, COLOURS):
        lines.append(f'<rect x="{x}" y="42" width="12" height="12" fill="{colour}"/>')
        name = contender if contender == "cubinery" else peer_name(contender)
        lines.append(_text(x + 18, 52, name))
        x += 44 + 7 * len(name)
    lines.append(f'<line x1="{x + 6}" x2="{x + 6}" y1="40" y2="56" stroke="{FLOOR}" stroke-width="2" '
                 'stroke-dasharray="3 2"/>')
    lines.append(_text(x + 18, 52, "byte floor"))
    return lines


# --- In engines

ENGINE_LABELS = 268


def draw_engines(panels, records):
    """The text of the picture: of each panel (label, microseconds of the engine alone, with cubinery)."""
    width = LEFT + ENGINE_LABELS + BARS + VALUES + BETWEEN
    lines, y = [], TOP
    for title, bars in zip(("one layer, decode, us", "one layer, prefill, us"), panels):
        longest = max(max(alone, ours) for _, alone, ours in bars)
        lines.append(_text(LEFT, y - 16, title, 12, more=' font-weight="600"'))
        for label, alone, ours in bars:
            lines.append(_text(LEFT + ENGINE_LABELS - 8, y + BAR + 4, label, anchor="end"))
            for i, (us, colour) in enumerate(((ours, COLOURS[0]), (alone, COLOURS[1]))):
                length, top = us / longest * BARS, y + i * BAR
                lines.append(f'<rect x="{LEFT + ENGINE_LABELS}" y="{top}" width="{length:.1f}" height="{BAR - 2}" '
                             f'fill="{colour}"/>')
                lines.append(_text(round(LEFT + ENGINE_LABELS + length + 6, 1), top + 10, f"{us:.1f}", 11))
            y += 2 * BAR + GAP
        y += TOP // 2
    names = [(COLOURS[0], "with cubinery"), (COLOURS[1], "the engine alone")]
    gpus = sorted({record["gpu"] for record in records})
    head = _opening(width, y - TOP // 2, f"Gated DeltaNet in engines, {', '.join(gpus)}: shorter is faster")
    for i, (colour, name) in enumerate(names):
        head.append(f'<rect x="{LEFT + 150 * i}" y="42" width="12" height="12" fill="{colour}"/>')
        head.append(_text(LEFT + 150 * i + 18, 52, name))
    return "\n".join([*head, *lines, "</svg>"]) + "\n"


# --- Time against tokens

TOKEN_HEADS = ((2, 8), (16, 16))
PLOT_WIDTH, PLOT_HEIGHT, PLOT_LEFT = 330, 260, 56
LEAST_US, MOST_US = 2, 5000


def _curves(left, heads, rows, contenders):
    """Lines of SVG of one panel, both axes logarithmic."""
    rows = sorted(rows, key=lambda row: row["seqlens"][0])
    lengths = [row["seqlens"][0] for row in rows]
    least, most = math.log(lengths[0]), math.log(lengths[-1])
    bottom = TOP + PLOT_HEIGHT

    def x_of(tokens):
        return left + PLOT_LEFT + 12 + (math.log(tokens) - least) / (most - least) * (PLOT_WIDTH - 24)

    def y_of(us):
        return bottom - math.log(us / LEAST_US) / math.log(MOST_US / LEAST_US) * PLOT_HEIGHT

    lines = [_text(left, TOP - 16, f"{heads[0]} key, {heads[1]} value heads: us against tokens of one sequence", 12,
                   more=' font-weight="600"')]
    for us in (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000):
        y = round(y_of(us), 1)
        lines.append(f'<line x1="{left + PLOT_LEFT}" x2="{left + PLOT_LEFT + PLOT_WIDTH}" y1="{y:g}" y2="{y:g}" '
                     'stroke="#d0d7de"/>')
        lines.append(_text(left + PLOT_LEFT - 6, y + 4, f"{us}", 11, "end"))
    lines += [_text(round(x_of(tokens), 1), bottom + 18, f"{tokens}", 11, "middle") for tokens in lengths]

    def curve(times, colour, more=""):
        points = [(round(x_of(tokens), 1), round(y_of(ms * 1e3), 1)) for tokens, ms in times]
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        return points, f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{more}/>'

    lines.append(curve([(n, row["byte_floor_ms"]) for n, row in zip(lengths, rows)], FLOOR,
                       ' stroke-dasharray="3 2"')[1])
    for contender, colour in zip(contenders, COLOURS):
        times = [(n, {**row["earlier_ms"], **_times(row)}.get(contender)) for n, row in zip(lengths, rows)]
        points, line = curve([(n, ms) for n, ms in times if ms], colour)
        lines += [line, *(f'<circle cx="{x:g}" cy="{y:g}" r="3" fill="{colour}"/>' for x, y in points)]
    return lines


def draw_tokens(rows, gpu, peer_name):
    """The text of the picture, from side-by-side rows."""
    panels = [[r for r in rows if r["op"] == "gdn_prefill" and r["protocol"] == "qwen-bf16" and len(r["seqlens"]) == 1
               and (r["qk_heads"], r["v_heads"]) == heads] for heads in TOKEN_HEADS]
    peers = sorted({peer for panel in panels for row in panel for peer in (*row["peers_ms"], *row["earlier_ms"])})
    contenders = ["cubinery", *peers]
    panel_width = PLOT_LEFT + PLOT_WIDTH + BETWEEN
    lines = _head(LEFT + len(panels) * panel_width, TOP + PLOT_HEIGHT + 32, f"Prefill on {gpu}: lower is faster",
                  contenders, peer_name)
    for i, (heads, panel) in enumerate(zip(TOKEN_HEADS, panels)):
        lines += _curves(LEFT + i * panel_width, heads, panel, contenders)
    return "\n".join([*lines, "</svg>"]) + "\n"


# --- Every prefill

RATIO_WIDTH, RATIO_HEIGHT, RATIO_TOP = 640, 260, 72
LEAST_RATIO, MOST_RATIO = 0.8, 3.5


def draw_ratios(rows, gpu, ratio):
    """The text of the picture: the fastest peer's time over ours against all tokens, both axes logarithmic."""
    rows = [r for r in rows if r["op"] == "gdn_prefill"]
    kinds = ("one sequence", "two", "four and more")
    tokens = sorted({sum(r["seqlens"]) for r in rows})
    least, most = math.log(tokens[0]), math.log(tokens[-1])
    bottom = RATIO_TOP + RATIO_HEIGHT
    left = LEFT + 40

    def y_of(value):
        value = min(max(value, LEAST_RATIO), MOST_RATIO)
        return round(bottom - math.log(value / LEAST_RATIO) / math.log(MOST_RATIO / LEAST_RATIO) * RATIO_HEIGHT, 1)

    def x_of(total):
        return left + 14 + (math.log(total) - least) / (most - least) * (RATIO_WIDTH - 60)

    lines = _opening(left + RATIO_WIDTH + LEFT, bottom + 32,
                     f"Prefill on {gpu}, {len(rows)} shapes: fastest peer / cubinery, against all tokens")
    for i, (kind, colour) in enumerate(zip(kinds, COLOURS)):
        lines.append(f'<circle cx="{LEFT + 6 + 130 * i}" cy="48" r="4" fill="{colour}"/>')
        lines.append(_text(LEFT + 16 + 130 * i, 52, kind))
    for value in (0.8, 1, 1.25, 1.5, 2, 2.5, 3, 3.5):
        colour = FLOOR if value == 1 else "#d0d7de"
        lines.append(f'<line x1="{left}" x2="{left + RATIO_WIDTH}" y1="{y_of(value):g}" y2="{y_of(value):g}" '
                     f'stroke="{colour}"/>')
        lines.append(_text(left - 6, y_of(value) + 4, f"{value:g}{'+' * (value == MOST_RATIO)}", 11, "end"))
    seen = {}
    for row in rows:
        total = sum(row["seqlens"])
        # Shapes of one length lie beside each other.
        beside = seen[total] = seen.get(total, -1) + 1
        x = x_of(total) + beside % 16 * 2
        colour = COLOURS[min(len(row["seqlens"]), 3) - 1]
        lines.append(f'<circle cx="{x:.1f}" cy="{y_of(ratio(row)):g}" r="3" fill="{colour}"/>')
    for total in tokens:
        if math.log2(total).is_integer():
            lines.append(_text(round(x_of(total) + 16, 1), bottom + 18, f"{total}", 11, "middle"))
    return "\n".join([*lines, "</svg>"]) + "\n"


# --- Prefills of Kimi Delta Attention

SHAPE_LABELS, SHAPE_WIDTH, SHAPE_STEP, SHAPES_TOP = 170, 580, 20, 72


def draw_kda_prefill(rows, gpu, peer_name, shape):
    """The text of the picture: a line for each row, on it a point for each contender, over logarithmic time."""
    rows = sorted(rows, key=lambda r: (sum(r["seqlens"]), r["v_heads"], len(r["seqlens"])))
    peers = sorted({peer for row in rows for peer in row["peers_ms"]})
    contenders = ["cubinery", *peers]
    ends = [[1e3 * end((row["byte_floor_ms"], *_times(row).values())) for row in rows] for end in (min, max)]
    least, most = 0.9 * min(ends[0]), 1.1 * max(ends[1])
    left, bottom = LEFT + SHAPE_LABELS, SHAPES_TOP + SHAPE_STEP * len(rows)

    def x_of(us):
        return round(left + math.log(us / least) / math.log(most / least) * SHAPE_WIDTH, 1)

    lines = _head(left + SHAPE_WIDTH + LEFT, bottom + 30, f"Prefill of Kimi Delta Attention on {gpu}, us: left is faster",
                  contenders, peer_name)
    for us in (digit * 10**power for power in range(-1, 6) for digit in (1, 2, 5)):
        if least <= us <= most:
            lines.append(f'<line x1="{x_of(us):g}" x2="{x_of(us):g}" y1="{SHAPES_TOP}" y2="{bottom}" stroke="#d0d7de"/>')
            lines.append(_text(x_of(us), bottom + 18, f"{us:g}", 11, "middle"))
    for i, (row, first, last) in enumerate(zip(rows, *ends)):
        y = SHAPES_TOP + SHAPE_STEP * i + SHAPE_STEP // 2
        lines.append(_text(left - 8, y + 4, shape(row), anchor="end"))
        lines.append(f'<line x1="{x_of(first):g}" x2="{x_of(last):g}" y1="{y}" y2="{y}" stroke="{FLOOR}" opacity="0.4"/>')
        floor = x_of(1e3 * row["byte_floor_ms"])
        lines.append(f'<line x1="{floor:g}" x2="{floor:g}" y1="{y - 6}" y2="{y + 6}" stroke="{FLOOR}" stroke-width="2" '
                     'stroke-dasharray="3 2"/>')
        times = _times(row)
        for contender, colour in reversed(list(zip(contenders, COLOURS))):  # ours above the others
            if contender in times:
                lines.append(f'<circle cx="{x_of(1e3 * times[contender]):g}" cy="{y}" r="4" fill="{colour}"/>')
    return "\n".join([*lines, "</svg>"]) + "\n"
