#!/usr/bin/env python3
"""Writes README's tables of measurements from benchmarks/results/*.json, results/compare/*.json and
tuner/measured/*.results.jsonl.

    scripts/readme_tables.py          rewrites README.md
    scripts/readme_tables.py --check  exits 1 when README.md is not what the results say
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN = "<!-- measured: begin (scripts/readme_tables.py writes this from benchmarks/results and tuner/measured) -->\n"
END = "<!-- measured: end -->\n"

TUNING_ROWS = 25  # at most
WORTH = 0.01  # a gain, as a share; a prefill that gains less has no row

HOST_NAMES = {
    "launch_over_bare": "`Decode::launch` over bare `cuLaunchKernel` of the same kernel, host time",
    "prepare_cold_ms": "`prepare`, empty cache: compiles both decode kernels",
    "prepare_disk_ms": "`prepare`, filled cache",
    "context_create_ms": "`Context::create`, the driver already started",
    "first_result_cold_s": "process start to first checked result, empty cache",
    "first_result_prewarmed_s": "process start to first checked result, filled cache",
    "python_decode_us": "a decode step from Python, operator object and PyTorch tensors, host time",
    "python_gdn_decode_us": "the same by `gdn_decode`, which infers the problem and allocates o",
    "fla_decode_us": "FLA's `fused_recurrent_gated_delta_rule`, likewise",
    "python_prefill_us": "a prefill from Python, operator object, host time",
    "fla_prefill_us": "FLA's `chunk_gated_delta_rule`, likewise",
    "import_cubinery_s": "`import cubinery`",
    "prewarm_model_s": "`prewarm`: Qwen3-Next decode, six architectures, 2 cores, no GPU",
}


def decode_table(rows):
    """One line for each batch size: time and share of the copy rate for each state dtype and layout."""
    cells = {(r["batch"], r["state_dtype"], r["state_layout"]): r for r in rows}
    kinds = [("f32", "vk"), ("f32", "kv"), ("bf16", "vk"), ("bf16", "kv")]
    lines = ["| B | " + " | ".join(f"{dtype} {layout.upper()}" for dtype, layout in kinds) + " |",
             "|---|" + "---|" * len(kinds)]
    for batch in sorted({key[0] for key in cells}):
        line = f"| {batch} |"
        for kind in kinds:
            row = cells.get((batch, *kind))
            line += f" {row['ms'] * 1e3:.1f} us, {row['copy_rate_share']:.0%} |" if row else " |"
        lines.append(line)
    return lines


def shape(row):
    """One sequence: its length; several equal ones: length x count."""
    lengths = row["seqlens"]
    if len(lengths) == 1:
        return f"{lengths[0]}"
    if len(set(lengths)) == 1:
        return f"{lengths[0]} x {len(lengths)}"
    return " + ".join(map(str, lengths))


def prefill_table(rows):
    """Rows that were measured with another library too: the floor, ours, theirs, the fastest published."""
    lines = ["| tokens | key, value heads | protocol | byte floor | cubinery | FLA 0.5.2 | FLA / ours | best published |",
             "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        fla = row.get("peers_ms", {}).get("fla-0.5.2")
        if fla is None:
            continue
        best = f"{row['best_published_ms']:.3f} ms {row['best_published']}" if "best_published" in row else ""
        lines.append(f"| {shape(row)} | {row['qk_heads']}, {row['v_heads']} | {row['protocol']} | "
                     f"{row['byte_floor_ms']:.3f} ms | {row['ms']:.3f} ms | {fla:.3f} ms | {fla / row['ms']:.2f}x | {best} |")
    return lines


def host_table(rows):
    lines = ["| host | |", "|---|---|"]
    for name, text in HOST_NAMES.items():
        for row in rows:
            if row["name"] == name:
                unit = "x" if row["unit"] == "ratio" else " " + row["unit"]
                lines.append(f"| {text} | {row['value']:.3g}{unit} |")
    return lines


def compared_rows(records):
    """The rows of all side-by-side records; of one that was run twice, the one with most contenders."""
    rows = {}
    for record in records:
        for row in record["rows"]:
            if "contenders" not in row:
                continue
            kept = rows.get(row["label"])
            if kept is None or len(row["peers_ms"]) > len(kept["peers_ms"]):
                rows[row["label"]] = row
    return sorted(rows.values(), key=lambda r: (r["op"], r.get("state_dtype") == "bf16", r["v_heads"], r["qk_heads"],
                                                r.get("batch", 0), sum(r.get("seqlens", [])), r["label"]))


def compared_table(rows):
    """Ours and each peer in the same run, microseconds."""
    peers = sorted({peer for row in rows for peer in row["peers_ms"]})
    lines = ["| | byte floor | cubinery | " + " | ".join(peers) + " | best peer / ours |",
             "|---|---|---|" + "---|" * (len(peers) + 1)]
    for row in rows:
        cells = [f"{row['peers_ms'][p] * 1e3:.1f} us" if p in row["peers_ms"] else "" for p in peers]
        best = min(row["peers_ms"].values()) / row["ms"]
        lines.append(f"| {row['label']} | {row['byte_floor_ms'] * 1e3:.1f} us | {row['ms'] * 1e3:.1f} us | "
                     f"{' | '.join(cells)} | {best:.2f}x |")
    return lines


def first_request_table(rows):
    lines = ["| process start to first checked prefill | empty cache | filled cache | of it after `import torch` |",
             "|---|---|---|---|"]
    for contender in dict.fromkeys(r["contender"] for r in rows):
        by_cache = {r["cache"]: r for r in rows if r["contender"] == contender}
        after = [by_cache[c].get("after_import_torch") for c in ("empty", "filled")]
        lines.append(f"| {contender} | " + " | ".join(f"{by_cache[c]['seconds']:.2f} s" for c in ("empty", "filled")) +
                     " | " + (f"{after[0]:.2f} s, {after[1]:.2f} s" if None not in after else "") + " |")
    return lines


def tuning_results():
    """Of two lines for one setting, the later one."""
    results = {}
    for path in sorted((ROOT / "tuner" / "measured").glob("*.results.jsonl")):
        for line in filter(None, path.read_text().splitlines()):
            result = json.loads(line)
            results[result["op"], result["fixed"], result["bucket"], result["gpu"]["name"]] = result
    return sorted(results.values(), key=lambda r: (r["op"], r["fixed"], r["gpu"]["name"], list(r["features"].values())))


def is_default(result):
    return result["configuration"] == result["otherwise"]


def gain(result):
    """How much less time the result takes than the default, as a share of the default's."""
    return 1 - result["ms"]["median"] / result["otherwise_ms"]["median"]


def fixed_fields(result):
    """Without the names of kernels: those that are launched together agree."""
    fields = (field.split("=") for field in result["fixed"].split(";"))
    return {name.split(".")[-1]: value for name, value in fields}


def tuning_label(result, results):
    """The operator, the fixed fields in which its problems differ, and the bucket."""
    fields = fixed_fields(result)
    others = [fixed_fields(other) for other in results if other["op"] == result["op"]]
    texts = [f"{name}={value}" for name, value in fields.items() if any(o.get(name) != value for o in others)]
    texts += [f"{name} {value}" for name, value in
              (part.split("=") for part in result["bucket"].split(";"))]
    return f"{result['op'].removeprefix('gdn_')}: {', '.join(texts)}"


def tuning_table(results):
    """Every decode bucket, the prefill buckets that gain, and how many are left out."""
    shown = [r for r in results if r["op"] == "gdn_decode" or gain(r) >= WORTH]
    shown = sorted(shown, key=gain, reverse=True)[:TUNING_ROWS]
    lines = ["| | default | chosen | gain | chosen instead of the default's |", "|---|---|---|---|---|"]
    for result in (r for r in results if r in shown):
        default_us, us = result["otherwise_ms"]["median"] * 1e3, result["ms"]["median"] * 1e3
        changes = [f"{name} {value} for {result['otherwise'][name]}" for name, value in result["configuration"].items()
                   if value != result["otherwise"][name]]
        lines.append(f"| {tuning_label(result, results)} | {default_us:.2f} us | {us:.2f} us | "
                     f"{gain(result):.1%} | {', '.join(changes) or 'the default won'} |")
    left_out = [r for r in results if r not in shown]
    defaults = sum(map(is_default, left_out))
    if defaults:
        lines += ["", f"The default won {defaults} others."]
    if len(left_out) > defaults:
        lines += ["", f"{len(left_out) - defaults} others gain less."]
    return lines


def tables():
    lines = []
    results_folder = ROOT / "benchmarks" / "results"
    compared = [json.loads(p.read_text()) for p in sorted((results_folder / "compare").glob("*.json"))]
    compared_lines = [row for record in compared for row in record["rows"]]
    for path in sorted(results_folder.glob("*.json")):
        results = json.loads(path.read_text())
        rows = results["rows"]
        decode = [r for r in rows if r["op"] == "gdn_decode"]
        commits = sorted({r["commit"] for r in rows})
        tests = results.get("tests", {})
        lines += [f"{results['gpu']}, driver {results['driver']}, NVRTC {results['nvrtc']}, commit "
                  f"{', '.join(commits)}. Medians of graph replays, cold L2, random data. {tests.get('passed', 0)} "
                  f"GPU tests passed, {tests.get('failed', 0)} failed.", "",
                  f"Decode, 16 key heads, 32 value heads of 128 x 128, pool, gates and norms in the kernel: time, and share "
                  f"of the measured copy rate ({results['ceilings']['copy_tb_s']:.2f} TB/s).", ""]
        lines += decode_table(decode) + [""]
        prefill = [r for r in rows if r["op"] == "gdn_prefill"]
        if prefill:
            lines += ["Prefill, 128 x 128, and the time to move every operand once at 4.25 TB/s. FLA was measured on the same kind "
                      "of GPU in the same way; published times are others' own, on the same kind of GPU.", ""]
            lines += prefill_table(prefill) + [""]
        lines += host_table([r for r in rows + compared_lines if r["op"] == "host"]) + [""]
    commits = sorted({r["commit"] for r in compared_lines})
    lines += [f"Side by side, from Python, in one run each (commit {', '.join(commits)}; docs/benchmarks.md has the protocol; "
              "decode: B requests, state dtype; prefill: key, value heads and tokens, or tokens x sequences):", ""]
    lines += compared_table(compared_rows(compared)) + [""]
    lines += first_request_table([r for r in compared_lines if r["op"] == "first_request"]) + [""]
    tuned = tuning_results()
    if tuned:
        gpus = ", ".join(sorted({r["gpu"]["name"] for r in tuned}))
        lines += [f"Tuning, results inside the library ({gpus}): the default is what the cost model chooses; both times are of one "
                  "interleaved run-off.", ""]
        lines += tuning_table(tuned) + [""]
    return "\n".join(lines)


def main():
    readme = ROOT / "README.md"
    text = readme.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    wanted = text[:start] + tables() + text[end:]
    if "--check" in sys.argv:
        if text != wanted:
            sys.exit("README.md is not up to date: run scripts/readme_tables.py")
    else:
        readme.write_text(wanted)


if __name__ == "__main__":
    main()
