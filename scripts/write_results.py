#!/usr/bin/env python3
"""Writes what was measured into the documents: README's rows, docs/results.md and docs/plots, from the
records in benchmarks/results and results/measured.

    scripts/write_results.py          writes them
    scripts/write_results.py --check  exits 1 when one of them is not what the records say
"""
import itertools
import json
import pathlib
import sys
import textwrap

import engine_results
from draw_latency import draw_engines, draw_kda_prefill, draw_latency, draw_ratios, draw_tokens

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from compare.record import YARDSTICK, geometric_means  # noqa: E402
BEGIN = "<!-- measured: begin (written by scripts/write_results.py) -->\n"
END = "<!-- measured: end -->\n"

PEERS = {"fla": "FLA", "flash-qla": "FlashQLA", "flashinfer": "FlashInfer", "vllm": "vLLM", "cudnn": "cuDNN",
         "cudnn-log": "cuDNN, g given,"}
README_ROWS = [  # labels of side-by-side rows
    "decode 16,32 B=1 f32",
    "decode 16,32 B=128 f32",
    "prefill 16,32 8192 qwen-bf16",
    "prefill 16,64 8192x4 qwen-bf16",
    "prefill 2,8 32768 qwen-bf16",
]
README_KDA_ROWS = ["decode 32,32 B=128 f32 kda", "verify 32,32 B=32 T=4 f32 none kda", "layer 12,12 B=32 f32 kda",
                   "prefill 32,32 8192 fast-bf16 kda"]
TUNING_ROWS = 20  # of a GPU, at most
WORTH = 0.01  # a gain, as a share; a prefill that gains less has no row

HOST_NAMES = {
    "launch_over_bare": "`Decode::launch` over a bare `cuLaunchKernel` of the same kernel, host time",
    "text_launch_over_bare": "the same of a kernel from a text, `Kernel::launch`",
    "verify_launch_over_bare": "the same of `Verify::launch`",
    "commit_launch_over_bare": "the same of `Commit::launch`",
    "prefill_launch_us": "`Prefill::launch`, host time",
    "kda_prefill_launch_us": "the same of Kimi Delta Attention",
    "prepare_cold_ms": "`prepare` of decode, empty cache: compiles its kernels",
    "prepare_disk_ms": "`prepare` of decode, filled cache",
    "prepare_prefill_cold_ms": "`prepare` of prefill, empty cache",
    "prepare_prefill_disk_ms": "`prepare` of prefill, filled cache",
    "context_create_ms": "`Context::create`, with the driver already started",
    "first_result_cold_s": "process start to first checked decode, empty cache",
    "first_result_prewarmed_s": "process start to first checked decode, filled cache",
    "python_decode_us": "decode step from Python, operator object and PyTorch tensors, host time",
    "python_gdn_decode_us": "the same through `gdn_decode`, which infers the problem and allocates `o`",
    "fla_decode_us": "the same through FLA's `fused_recurrent_gated_delta_rule`",
    "python_prefill_us": "prefill from Python, operator object, host time",
    "python_gdn_prefill_us": "the same through `gdn_prefill`, which infers the problem and allocates",
    "fla_prefill_us": "the same through FLA's `chunk_gated_delta_rule`",
    "kda_python_decode_us": "decode step of Kimi Delta Attention from Python, operator object, host time",
    "kda_python_gdn_decode_us": "the same through `gdn_decode`",
    "kda_fla_decode_us": "the same through FLA's `fused_recurrent_kda`",
    "kda_python_prefill_us": "prefill of Kimi Delta Attention from Python, operator object, host time",
    "kda_python_gdn_prefill_us": "the same through `gdn_prefill`",
    "kda_fla_prefill_us": "the same through FLA's `chunk_kda`",
    "import_cubinery_s": "`import cubinery`",
}


def paragraph(text):
    return [*textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False), ""]


def table(head, rows):
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows), ""]


def duration(seconds):
    """Three digits, in the unit that suits."""
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        value = seconds * scale
        if value >= 1:
            break
    return f"{value:.{max(0, 3 - len(str(int(value))))}f} {unit}"


def peer_name(contender):
    name, _, version = contender.rpartition("-")
    return f"{PEERS[name]} {version}"


def listed(values):
    return ", ".join(sorted(set(values)))


def origin(rows):
    return f"commit {listed(r['commit'] for r in rows)}, {listed(r['date'] for r in rows)}"


def heads(row):
    return f"{row['qk_heads']}, {row['v_heads']}"


def tokens(row):
    """One sequence: its length; several equal ones behind each other: count x length."""
    runs = [(length, len(list(equal))) for length, equal in itertools.groupby(row["seqlens"])]
    return " + ".join(f"{count} x {length}" if count > 1 else f"{length}" for length, count in runs)


# --- Side by side with other libraries


def in_time(records):
    """The rows of all records, earlier ones first."""
    return sorted((row for record in records for row in record["rows"]), key=lambda r: (r["date"], r.get("time", "")))


def by_channel(row):
    """Whether it is of Kimi Delta Attention."""
    return row.get("decay") == "channel"


def compared_rows(records):
    """The rows of all side-by-side records, of one that was run again the latest, and of one commit's that with the
    most peers; earlier_ms: of peers that were not in that run.  Of Kimi Delta Attention those without a peer, too."""
    rows = {}
    for row in (r for r in in_time(records) if r.get("peers_ms") or by_channel(r) and "ms" in r):
        shown, other = row | {"earlier_ms": {}}, rows.get(row["label"], {"peers_ms": {}, "earlier_ms": {}})
        if other.get("commit") == row["commit"] and len(other["peers_ms"]) > len(row["peers_ms"]):
            shown, other = other, shown
        missing = {**shown["earlier_ms"], **other["earlier_ms"], **other["peers_ms"]}
        rows[row["label"]] = shown | {"earlier_ms": {p: ms for p, ms in missing.items() if p not in shown["peers_ms"]}}
    return sorted(rows.values(), key=lambda r: (r["op"], "conv_width" in r, r.get("state_dtype") == "bf16", r["v_heads"],
                                                r["qk_heads"], r.get("batch", 0), sum(r.get("seqlens", [])), r["label"]))


def request_count(count):
    return f"{count} request{'s' if count > 1 else ''}"


def size(row):
    if "seqlens" in row:
        return f"{tokens(row)} tokens"
    return f"{request_count(row['batch'])} of {row['tokens']}" if "tokens" in row else request_count(row["batch"])


def data(row):
    if "protocol" in row:
        return row["protocol"]
    stored = f", {row['stored_states']} stored" if "stored_states" in row else ""
    around = ", convolution and norm" if "conv_width" in row else ""
    return f"{row['state_dtype']} states{stored}{around}"


def dtype(row):
    """What README says of the data."""
    return data(row).split("-")[-1] if by_channel(row) else data(row).split("-")[-1].split(",")[0]


def compared_table(rows, data, yardstick=False):
    """cubinery and each peer in the same run, or with a star, which is explained below; `data` says what a row was
    measured on. `yardstick`: with a column of our Gated DeltaNet."""
    peers = sorted({peer for row in rows for ms in ("peers_ms", "earlier_ms") for peer in row.get(ms, ())})

    def cell(row, peer):
        if peer in row["peers_ms"]:
            return duration(row["peers_ms"][peer] / 1e3)
        return f"{duration(row['earlier_ms'][peer] / 1e3)}*" if peer in row.get("earlier_ms", ()) else ""

    lines = []
    for row in rows:
        times = [row["byte_floor_ms"], row["ms"], *([row.get("gdn_ms")] if yardstick else [])]
        faster = f"{ratio(row):.{2 if ratio(row) < 10 else 0}f}x" if row["peers_ms"] else ""
        lines.append([f"{'KDA ' * by_channel(row)}{row['op'].removeprefix('gdn_')}", heads(row), size(row), data(row),
                      *(duration(ms / 1e3) if ms else "" for ms in times), *(cell(row, peer) for peer in peers), faster])
    starred = any(text.endswith("*") for line in lines for text in line)
    return table(["", "heads", "size", "data", "byte floor", "cubinery", *["its GDN"] * yardstick,
                  *map(peer_name, peers), "fastest peer / cubinery"], lines) + (
        ["\\*: in an earlier run.", ""] if starred else [])


def ratio(row):
    """The fastest peer's time over cubinery's."""
    return min(row["peers_ms"].values()) / row["ms"]


def error_table(rows, heads):
    """Errors of prefills of 8192 tokens on the same data, each library's from the latest of the rows."""
    errors = {}
    for row in rows:
        if row["op"] != "gdn_prefill" or ((row["qk_heads"], row["v_heads"]), row["seqlens"]) != (heads, [8192]):
            continue
        errors.setdefault(row["protocol"], {}).update(
            {name: (entry["error_o"], entry["error_state"])
             for name, entry in row["contenders"].items() if "error_o" in entry and name != YARDSTICK})
    peers = sorted({name for found in errors.values() for name in found} - {"cubinery"})
    lines = []
    for protocol, found in sorted(errors.items()):
        ours = found["cubinery"]
        cells = [f"{100 * ours[0]:.3f}, {100 * ours[1]:.3f}"]
        for peer in peers:
            theirs = found.get(peer)
            cells.append(f"{100 * theirs[0]:.3f}, {100 * theirs[1]:.3f} "
                         f"({ours[0] / theirs[0]:.2f}, {ours[1] / theirs[1]:.2f})" if theirs else "")
        lines.append([protocol, *cells])
    return table(["", "cubinery", *(f"{peer_name(peer)} (cubinery / it)" for peer in peers)], lines)


def first_requests(record):
    return {(r["contender"], r["cache"]): r for r in record["rows"] if r["op"] == "first_request"}


def first_request_table(record):
    requests = first_requests(record)
    rows = []
    for contender in dict.fromkeys(contender for contender, _ in requests):
        both = [requests[contender, cache] for cache in ("empty", "filled")]
        after = [r.get("after_import_torch") for r in both]
        name = {"cubinery-cpp": "cubinery, C++", "cubinery-python": "cubinery, Python"}.get(contender)
        rows.append([name or peer_name(contender), *(duration(r["seconds"]) for r in both),
                     *(duration(t) if t else "" for t in after)])
    return table(["", "empty cache", "filled cache", "empty, after `import torch`", "filled, after `import torch`"],
                 rows)


# --- cubinery alone


def decode_table(rows):
    """One line for each batch size: time and share of the copy rate for each state dtype and layout.  A plus: of
    launches with PDL, where there are no others."""
    cells = {(r["batch"], r["state_dtype"], r["state_layout"]): r
             for r in sorted(rows, key=lambda r: not r["enable_pdl"])}
    kinds = [("f32", "vk"), ("f32", "kv"), ("bf16", "vk"), ("bf16", "kv")]
    lines = []
    for batch in sorted({key[0] for key in cells}):
        found = [cells[(batch, *kind)] for kind in kinds]
        lines.append([f"{batch}", *(f"{duration(r['ms'] / 1e3)}, {r['copy_rate_share']:.0%}{'+' * r['enable_pdl']}"
                                    for r in found)])
    return table(["requests", *(f"{dtype}, {layout.upper()}" for dtype, layout in kinds)], lines)


def decode_conv_table(rows):
    """One line for each batch size: in one launch, and in two."""
    lines = [[f"{r['batch']}", duration(r["ms"] / 1e3), duration(r["two_launches_us"] / 1e6)] for r in rows]
    return table(["requests", "one launch", "convolution, then decode"], lines)


def verify_table(rows):
    """One line for each number of requests and tokens: time and share of the copy rate by dtype and use of states."""
    cells = {(r["batch"], r["tokens"], r["state_dtype"], r["stored_states"]): r for r in rows}
    kinds = [(dtype, stored) for stored in ("none", "last", "every") for dtype in ("f32", "bf16")
             if any(key[2:] == (dtype, stored) for key in cells)]
    lines = []
    for size in sorted({key[:2] for key in cells}):
        found = [cells.get((*size, *kind)) for kind in kinds]
        lines.append([*map(str, size), *(f"{duration(r['ms'] / 1e3)}, {r['copy_rate_share']:.0%}" if r else ""
                                         for r in found)])
    return table(["requests", "tokens", *(f"{dtype}, {stored}" for dtype, stored in kinds)], lines)


def commit_table(rows):
    lines = [[str(r["layers"]), str(r["batch"]), f"{r['accepted']} of {r['tokens']}", r["state_dtype"],
              duration(r["byte_floor_ms"] / 1e3), f"{duration(r['ms'] / 1e3)}, {r['copy_rate_share']:.0%}"] for r in rows]
    return table(["layers", "requests", "accepted", "states", "byte floor", "cubinery"], lines)


def conv_place(row):
    """Packed sequences in front of steps."""
    return not row["varlen"], row["sequences"], row["tokens"], row["channels"]


def conv_size(row):
    return f"{row['tokens']} tokens" if row["varlen"] else request_count(row["sequences"])


def conv_rows(compared):
    return sorted((r for r in compared if r["op"] == "gdn_conv"), key=conv_place)


def conv_compared_table(rows):
    """cubinery beside the latest run of each peer."""
    peers = sorted({peer for row in rows for peer in row["peers_ms"]})
    lines = []
    for row in rows:
        times = [row["byte_floor_ms"], row["ms"], *map(row["peers_ms"].get, peers)]
        lines.append([conv_size(row), str(row["channels"]), *(duration(ms / 1e3) if ms else "" for ms in times),
                      f"{ratio(row):.2f}x"])
    return table(["size", "channels", "byte floor", "cubinery", *(f"{peer_name(peer)}, then a split" for peer in peers),
                  "it / cubinery"], lines)


def conv_table(rows):
    """One line for each size: time and share of the copy rate, without and with gates, by layout of the states."""
    cells = {(conv_place(r), r["gates"], r["state_layout"]): r for r in rows}
    kinds = [(gates, layout) for gates in (False, True) for layout in ("columns", "channels")
             if any(key[1:] == (gates, layout) for key in cells)]
    lines = []
    for place, row in sorted({key[0]: row for key, row in cells.items()}.items()):
        found = [cells.get((place, *kind)) for kind in kinds]
        lines.append([conv_size(row), str(row["channels"]),
                      *(f"{duration(r['ms'] / 1e3)}, {r['copy_rate_share']:.0%}" if r else "" for r in found)])
    return table(["size", "channels", *(f"by {layout}{', gates and norms' * gates}" for gates, layout in kinds)], lines)


def prefill_table(rows, h100_rows):
    def labels(row):
        return tokens(row), heads(row), row["protocol"]

    h100 = {labels(row): row["ms"] for row in h100_rows}
    lines = []
    for row in rows:
        fla = row.get("peers_ms", {}).get("fla-0.5.2")
        published = row.get("best_published_ms")
        other = h100.get(labels(row))
        lines.append([*labels(row), duration(row["byte_floor_ms"] / 1e3), duration(row["ms"] / 1e3),
                      duration(other / 1e3) if other else "", duration(fla / 1e3) if fla else "",
                      f"{duration(published / 1e3)} {row['best_published']}" if published else "",
                      f"{published / row['ms']:.2f}x" if published else ""])
    return table(["tokens", "heads", "protocol", "byte floor", "cubinery", "on an H100", "FLA 0.5.2", "best published",
                  "published / cubinery"], lines)


def host_table(rows):
    by_name = {row["name"]: row for row in rows}
    lines = []
    for name, text in ((n, t) for n, t in HOST_NAMES.items() if n in by_name):
        row = by_name[name]
        scale = {"s": 1, "ms": 1e-3, "us": 1e-6}.get(row["unit"])
        lines.append([text, duration(row["value"] * scale) if scale else f"{row['value']:.2f}x"])
    return table(["", ""], lines)


# --- Tuning


def tuning_results():
    """Of two lines for one setting, the later one."""
    results = {}
    for path in sorted((ROOT / "results" / "measured").glob("*.results.jsonl")):
        for line in filter(None, path.read_text().splitlines()):
            result = json.loads(line)
            results[result["op"], result["problem"], result["bucket"], result["gpu"]["name"]] = result
    return sorted(results.values(), key=lambda r: (r["op"], r["problem"], r["gpu"]["name"], list(r["features"].values())))


def is_default(result):
    return result["configuration"] == result["otherwise"]


def gain(result):
    """How much less time the result takes than the default, as a share of the default's."""
    return 1 - result["ms"]["median"] / result["otherwise_ms"]["median"]


def problem_fields(result):
    return dict(field.split("=") for field in result["problem"].split(";"))


def tuning_label(result, results):
    """The operator, the fields in which its problems differ, and the bucket."""
    fields = problem_fields(result)
    others = [problem_fields(other) for other in results if other["op"] == result["op"]]
    texts = [f"{name}={value}" for name, value in fields.items() if any(o.get(name) != value for o in others)]
    texts += [f"{name} {value}" for name, value in
              (part.split("=") for part in result["bucket"].split(";"))]
    return f"{result['op'].removeprefix('gdn_')}: {', '.join(texts)}"


def tuning_table(results):
    """The results that gain most, and how many are left out."""
    shown = [r for r in results if r["op"] == "gdn_decode" or gain(r) >= WORTH]
    shown = sorted(shown, key=gain, reverse=True)[:TUNING_ROWS]
    rows = []
    for result in (r for r in results if r in shown):
        otherwise = result["otherwise"]
        changes = [f"{name} {value} for {otherwise[name]}" if name in otherwise else f"{name} {value}"
                   for name, value in result["configuration"].items() if value != otherwise.get(name)]
        rows.append([tuning_label(result, results), duration(result["otherwise_ms"]["median"] / 1e3),
                     duration(result["ms"]["median"] / 1e3), f"{gain(result):.1%}",
                     ", ".join(changes) or "the default won"])
    left_out = [r for r in results if r not in shown]
    defaults = sum(map(is_default, left_out))
    return [*table(["", "default", "chosen", "gain", "chosen in place of the default's"], rows),
            *paragraph(f"The default won {defaults} others; {len(left_out) - defaults} others gain less.")]


# --- The documents


class Records:
    def __init__(self):
        folder = ROOT / "benchmarks" / "results"
        self.alone = json.loads((folder / "h200.json").read_text())
        self.h100 = json.loads((folder / "h100.json").read_text())
        self.first = json.loads((folder / "compare" / "h200_first_request.json").read_text())

        def side_by_side(gpu):
            return [json.loads(p.read_text()) for p in sorted((folder / "compare").glob(f"{gpu}_*.json"))]

        self.side_by_side = side_by_side("h200")
        compared = compared_rows(self.side_by_side)
        h100_compared = compared_rows(side_by_side("h100"))
        self.compared = [r for r in compared if r["op"] != "gdn_conv" and not by_channel(r)]
        self.kda, self.h100_kda = (list(filter(by_channel, rows)) for rows in (compared, h100_compared))
        self.convolved, self.h100_convolved = conv_rows(compared), conv_rows(h100_compared)
        self.transformers = next((r for r in self.side_by_side if "model" in r), None)
        self.host = [r for record in [self.alone, *self.side_by_side] for r in record["rows"] if r["op"] == "host"]
        self.ranks = [json.loads(p.read_text()) for p in sorted((folder / "ranks").glob("*.json"))]
        self.tuned = tuning_results()
        self.engines = engine_results.read(folder / "engines")

    def of(self, op, record=None):
        """Without the rows that name their decays, those of `channels` in benchmarks/rows.json: other heads."""
        return [r for r in (record or self.alone)["rows"] if r["op"] == op and "decay" not in r]

    def of_channels(self, record):
        """Those rows, prefills aside: pairs of one with a decay for each head and one with a decay for each channel."""
        pairs = {}
        for row in record["rows"]:
            if "decay" in row and row["op"] != "gdn_prefill":
                pairs.setdefault(channels_label(row), {})[row["decay"]] = row
        return {label: pair for label, pair in pairs.items() if len(pair) == 2}

    def machine(self):
        return listed(f"{record['gpu']}, driver {record['driver']}, NVRTC {record['nvrtc']}"
                      for record in [self.alone, *self.side_by_side] if "nvrtc" in record)


def readme_rows(records):
    rows = {row["label"]: row for row in [*records.compared, *records.kda]}
    kda = [rows[label] for label in README_KDA_ROWS if label in rows]
    requests = first_requests(records.first)
    empty_ms = {contender: row["after_import_torch"] * 1e3 for (contender, cache), row in requests.items()
                if cache == "empty" and "after_import_torch" in row}
    first = {"op": "first prefill", "qk_heads": 16, "v_heads": 32, "seqlens": [256], "protocol": "",
             "byte_floor_ms": None, "ms": empty_ms.pop("cubinery-python"), "peers_ms": empty_ms}
    shown = [*(rows[label] for label in README_ROWS), *kda]
    dates = sorted(r["date"] for r in [*shown, *requests.values()])
    return "\n".join(compared_table([*shown, first], dtype) + paragraph(
        f"{records.alone['gpu']}, {dates[0]} to {dates[-1]}. Heads: keys, values; 128 x 128"
        f"{'; KDA: Kimi Delta Attention' if kda else ''}. All but the last row: one run on the same tensors, "
        "medians of CUDA graph replays, cold L2; over 1x: cubinery is faster. Byte floor: every operand once at the copy "
        "rate. Last row: a new Python process, empty cache, after `import torch`.")
        + engine_results.readme(records.engines, paragraph, table))


def channels_label(row):
    """Operator, size, states; the same for both decays."""
    op = row["op"].removeprefix("gdn_")
    if op == "conv":
        return op, conv_size(row) + f", {row['channels']} channels", ""
    size = request_count(row["batch"])
    if op == "commit":
        size = f"{row['layers']} layers, {size}, {row['accepted']} of {row['tokens']} tokens"
    elif op == "verify":
        size += f", {row['tokens']} tokens, stored {row['stored_states']}"
    return op, size, row["state_dtype"]


def channels_table(by_gpu):
    """One line for each row of `channels`: of each GPU both times and their quotient."""
    labels = list(dict.fromkeys(label for pairs in by_gpu.values() for label in pairs))
    lines = []
    for label in labels:
        cells = []
        for pairs in by_gpu.values():
            pair = pairs.get(label)
            cells += ([duration(pair[d]["ms"] / 1e3) for d in ("head", "channel")] +
                      [f"{pair['channel']['ms'] / pair['head']['ms']:.2f}"]) if pair else [""] * 3
        lines.append([*label, *cells])
    heads = [text for gpu in by_gpu for text in (f"{gpu.split()[1]}: a decay for each head", "for each channel", "quotient")]
    return table(["", "", "states", *heads], lines)


def kda_measured(records, prefill):
    """Pairs of a GPU and its rows of Kimi Delta Attention, either prefills or all others, where there are some."""
    measured = [(records.alone["gpu"], records.kda), (records.h100["gpu"], records.h100_kda)]
    chosen = [(gpu, [r for r in rows if (r["op"] == "gdn_prefill") == prefill]) for gpu, rows in measured]
    return [(gpu, rows) for gpu, rows in chosen if rows]


def kda_prefill_picture(records):
    """The text of the picture, of one GPU and fast gates; nothing where nothing was measured."""
    for gpu, rows in kda_measured(records, prefill=True):
        if fast := [row for row in rows if row["protocol"] == "fast-bf16"]:
            return draw_kda_prefill(fast, gpu, peer_name, lambda row: f"{tokens(row)} tokens, {row['v_heads']} heads")
    return None


def kda_prefill_section(records):
    lines = []
    for gpu, rows in kda_measured(records, prefill=True):
        lines += [] if lines else paragraph(
            "Prefills start from zeros and keep their final states in f32. Gates, beta and norms are computed in the kernel; "
            "for *cuDNN, g given,* they were computed before, and of cuDNN the kernel alone is timed "
            "([benchmarks.md](benchmarks.md) has the distributions of gates).")
        lines += paragraph(f"On an {gpu}; {origin(rows)}:")
        lines += compared_table(rows, data, yardstick=True)
        for gates, means in geometric_means({"rows": rows}).items():
            names = {"cubinery": "cubinery", YARDSTICK: "its GDN"}
            times = ", ".join(f"{names.get(n) or peer_name(n)} {duration(ms / 1e3)}" for n, ms in means.items())
            lines += paragraph(f"Geometric means of the ten shapes that others have published, {gates} gates: {times}.")
    if kda_prefill_picture(records):
        lines += ["![Prefills of Kimi Delta Attention](plots/kda_prefill.svg)", ""]
    return lines


def kda_section(records):
    """Nothing where nothing was measured."""
    lines = []
    for gpu, rows in kda_measured(records, prefill=False):
        lines += [] if lines else ["## Kimi Delta Attention", "", *paragraph(
            "A decay for each channel of the keys, the logarithm at least -5, gates and norms computed in the kernel, "
            "states VK; all in turn on the same tensors, in one process. *Its GDN*: cubinery with one decay for each head, "
            "on the same heads and states, which are nearly all of the bytes. Decode: states in a pool, updated in place; "
            "with *convolution and norm*: a convolution of width 4 in front and the norm with a sigmoid gate behind, in the "
            "same launch. Verify: FLA's states are dense, for in a pool it stores one for every token.")]
        lines += paragraph(f"On an {gpu}; {origin(rows)}:")
        lines += compared_table(rows, data, yardstick=True)
    lines += kda_prefill_section(records)
    by_gpu = {r["gpu"]: records.of_channels(r) for r in (records.alone, records.h100)}
    if any(by_gpu.values()):
        rows = [row for pairs in by_gpu.values() for pair in pairs.values() for row in pair.values()]
        lines += paragraph(f"Alone, 32 heads, both kinds of decay in one run; {origin(rows)}:")
        lines += channels_table(by_gpu)
    return lines


def conv_section(records):
    alone, h100_alone = records.of("gdn_conv"), records.of("gdn_conv", records.h100)
    lines = ["## Convolution", ""]
    lines += paragraph(
        f"Beside FLA, from Python on the same tensors; {origin(records.convolved)}. Width 4, SiLU, no bias, bf16; one "
        "packed sequence from zeros whose final state is kept, or steps of requests whose states, whole windows, are "
        "updated in place. cubinery writes q, k and v in one kernel; FLA's output is split into them by a Triton kernel "
        "of one pass, and its final states are a kernel of their own. The byte floor: x and the states read, q, k, v and "
        "the states written.")
    lines += conv_compared_table(records.convolved)
    lines += paragraph(f"The same on an {records.h100['gpu']}; {origin(records.h100_convolved)}:")
    lines += conv_compared_table(records.h100_convolved)
    lines += paragraph(
        f"Alone, as engines run it, states in a pool; {origin(alone)}. For states that lie by columns or by channels, "
        "without and with the gates and the norms of q and k: the time, and the rate of moving the bytes as a share of "
        "the copy rate.")
    lines += conv_table(alone)
    lines += paragraph(f"The same on the H100; {origin(h100_alone)}:")
    return lines + conv_table(h100_alone)


def transformers_section(record):
    """Nothing where nothing was measured."""
    if record is None:
        return []
    model, rows = record["model"], {r["measured"]: r for r in record["rows"]}

    def cell(times):
        return (f"{duration(times['ms'] / 1e3)} ({duration(times['ms_min'] / 1e3)} to "
                f"{duration(times['ms_max'] / 1e3)})")

    names = {"prefill": f"a prompt of {rows['prefill']['tokens']} tokens", "token": "one more token behind it"}
    lines = [[names[name], *(cell(row["contenders"][one]) for one in ("torch", "cubinery")), f"{row['ratio']:.2f}x"]
             for name, row in rows.items()]
    return ["## Transformers", "", *paragraph(
        f"A model of Hugging Face Transformers {record['packages']['transformers']} with and without "
        f"`cubinery.compat.transformers`, PyTorch {record['packages']['torch']}; {origin(rows.values())}. "
        f"{model['layers']} layers of Qwen3-Next's shapes, {model['linear_layers']} of them linear, with random weights "
        f"in {model['dtype']} and {model['experts']} experts; one request. Without cubinery it runs Transformers' own "
        f"torch code, neither FLA nor causal-conv1d. Medians of {record['repeats']} calls, host time included (least to "
        "most)."), *table(["", "Transformers' torch code", "with cubinery", "ratio"], lines)]


def ranks_section(records):
    """One prompt on several GPUs, from benchmarks/ranks.py."""
    gates = {"decaying": "decaying", "undecayed": "undecayed", "never": "never forgotten"}

    def cell(row, name):
        return (f"{duration(row[f'{name}_ms'] / 1e3)} ({duration(row[f'{name}_least_ms'] / 1e3)} to "
                f"{duration(row[f'{name}_most_ms'] / 1e3)})")

    lines = ["## On several GPUs", ""]
    for record in records.ranks:
        rows = record["rows"]
        lines += paragraph(
            f"One sequence of one layer on {listed(str(r['ranks']) for r in rows)} {record['gpu']} "
            "([context_parallel.md](context_parallel.md)) beside the same sequence on one of them, in one run; "
            f"{origin(rows)}. bf16; medians (least to most) of launches with the host ahead, exchange included; the "
            "slower rank counts. *Decaying*: g = -A softplus(N(0, 1) - 3), with A from 0.001 to 8 over the heads. "
            "*Undecayed*: every g is 0, keys are random. *Never forgotten*: besides, beta is below 0.002.")
        lines += table(["", "heads", "tokens", "segments of", "gates", "one GPU", "all", "ratio"],
                       [["KDA" if by_channel(r) else "", heads(r), str(r["tokens"]), str(r["segment_tokens"]),
                         gates[r["gates"]], cell(r, "one"), cell(r, "ranks"), f"{r['one_ms'] / r['ranks_ms']:.2f}x"]
                        for r in rows])
    return lines


def results_page(records):
    alone = records.alone
    tests = alone["tests"]
    copy_rate = f"{alone['ceilings']['copy_tb_s']:.2f} TB/s"
    operators = ("gdn_decode", "gdn_prefill", "gdn_verify", "gdn_commit")
    decode, prefill, verify, commit = map(records.of, operators)
    lines = ["# Results", "",
             "<!-- Written by scripts/write_results.py from benchmarks/results and results/measured. -->", ""]
    lines += paragraph(
        f"Measured on an {records.machine()}. Times of kernels are medians of CUDA graph replays with a cold L2 and "
        "random data. Heads are key heads, value heads, of 128 x 128. The *byte floor* is the time to move every "
        f"operand once at the rate of a device-to-device copy, measured in the same run (here {copy_rate}). "
        "[benchmarks.md](benchmarks.md) has the protocol, [performance.md](performance.md) what was predicted and "
        "tried.")
    lines += paragraph(
        f"GPU tests at commit {tests['commit']}, {tests['date']}"
        + (f", on an {tests['gpu']}" if "gpu" in tests else "") +
        f": {tests['passed']} passed, {tests['failed']} failed"
        + (f", {tests['skipped']} skipped" if tests.get("skipped") else "")
        + (f", in {tests['seconds']} s by {tests['processes']} processes" if "seconds" in tests else "")
        + (f" ({tests['note']}). " if "note" in tests else ". ") +
        f"Sanitizers {'clean' if tests['sanitizers_clean'] else 'not clean'} at commit {tests['sanitizers_commit']}"
        + (f" ({tests['sanitizers_note']})." if "sanitizers_note" in tests else "."))
    lines += ["![Decode and prefill times against other libraries](plots/latency.svg)", ""]

    lines += ["## Against other libraries", ""]
    lines += paragraph(
        f"From Python, all libraries in turn on the same tensors in one process; {origin(records.compared)}. Where "
        "a cell is empty the library has no such kernel, or the row was not run with it. "
        "FLA's decode writes f32 states even where the old ones are bf16. The data of prefill is a distribution of gates "
        "and a dtype ([benchmarks.md](benchmarks.md)). In the last column, more than 1 means that cubinery is faster.")
    lines += compared_table(records.compared, data)
    lines += ["![Prefill time against the length of a sequence](plots/tokens.svg)", ""]
    lines += ["![Every prefill beside its fastest peer](plots/ratios.svg)", ""]

    lines += kda_section(records)

    lines += ["## Errors", ""]
    lines += paragraph(
        "Of o and of the final states, against the recurrence in double precision: the root of the mean square over "
        "that of what is right, in percent. 16 key heads, 32 value heads, 8192 tokens; each library's latest run.")
    lines += error_table(in_time(records.side_by_side), (16, 32))
    if prefills := [row for row in records.kda if row["op"] == "gdn_prefill"]:
        lines += paragraph("Of Kimi Delta Attention, 16 heads, 8192 tokens:") + error_table(prefills, (16, 16))

    lines += ["## The first prefill of a process", ""]
    lines += paragraph(
        "From the start of a process until the result of a prefill of 256 tokens is on the host; "
        f"{origin(first_requests(records.first).values())}. Medians of fresh processes; every result was checked.")
    lines += first_request_table(records.first)

    lines += transformers_section(records.transformers)

    lines += ["## On the host", ""]
    lines += paragraph(f"{origin(records.host).capitalize()}.")
    lines += host_table(records.host)

    lines += ["## Decode", ""]
    lines += paragraph(
        f"16 key heads and 32 value heads, states in a pool, gates and norms computed in the kernel; {origin(decode)}. "
        "For each dtype and layout of the states: the time, and the rate of moving the bytes as a share of the copy "
        "rate; a plus: launches that may overlap the one in front (`enable_pdl`).")
    lines += decode_table([r for r in decode if "conv_width" not in r])
    convolved = [r for r in decode if "conv_width" in r]
    if convolved:
        lines += paragraph(
            f"With a convolution of width 4 in front, bf16; {origin(convolved)}. States f32, VK; in one launch "
            "(`DecodeProblem::conv`), and as two on the same stream.")
        lines += decode_conv_table(convolved)

    lines += ["## Verify", ""]
    lines += paragraph(
        f"As decode, states VK; {origin(verify)}. For each dtype of the states, and which of the new ones are stored: the "
        "time, and the rate of moving the bytes as a share of the copy rate.")
    lines += verify_table(verify)

    lines += ["## Commit", ""]
    lines += paragraph(
        f"The accepted tokens of all layers in one launch, as after a verification, states dense; {origin(commit)}. The "
        "byte floor: each state read and written once, k, v and gates of the accepted tokens read.")
    lines += commit_table(commit)

    lines += ["## Prefill", ""]
    lines += paragraph(
        f"{origin(prefill).capitalize()}; one column is from an {records.h100['gpu']}. FLA 0.5.2 was measured with the "
        "same protocol on the same kind of GPU, on another day. Published times are their authors' own, on the same kind "
        "of GPU.")
    lines += prefill_table(prefill, records.of("gdn_prefill", records.h100))

    lines += ranks_section(records)

    lines += conv_section(records)

    lines += engine_results.section(records.engines, paragraph, table)

    lines += ["## Tuning", ""]
    lines += paragraph(
        "The results inside the library that gain most. The default is what the cost model chooses; both times are from "
        "one run-off, their replays interleaved.")
    for gpu in sorted({r["gpu"]["name"] for r in records.tuned}):
        lines += [f"### {gpu}", ""]
        lines += tuning_table([r for r in records.tuned if r["gpu"]["name"] == gpu])
    return "\n".join(lines[:-1]) + "\n"


def documents():
    """The path of each document and the text that it should have."""
    records = Records()
    gpu = records.alone["gpu"]
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    plots = ROOT / "docs" / "plots"
    kda_prefill = kda_prefill_picture(records)
    return {
        readme: before + BEGIN + readme_rows(records) + END + after,
        ROOT / "docs" / "results.md": results_page(records),
        plots / "latency.svg": draw_latency(records.compared, gpu, peer_name, tokens),
        plots / "engines.svg": draw_engines(engine_results.bars(records.engines), engine_results.of_one_gpu(records.engines)),
        plots / "tokens.svg": draw_tokens(records.compared, gpu, peer_name),
        plots / "ratios.svg": draw_ratios(records.compared, gpu, ratio),
    } | ({plots / "kda_prefill.svg": kda_prefill} if kda_prefill else {})


def main():
    for path, text in documents().items():
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path.relative_to(ROOT)} is not what the records say: run scripts/write_results.py")


if __name__ == "__main__":
    main()
