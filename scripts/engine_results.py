"""Tables of what was measured in engines, for scripts/write_results.py, from benchmarks/results/engines."""
import json

KINDS = {"qwen3_5": "Qwen3.5", "qwen3_next": "Qwen3-Next", "kimi_linear": "Kimi-Linear"}
LAYERS = {"kda": "Kimi Delta Attention with 32 heads"}  # others are Gated DeltaNet's
KDA_KINDS = {"kimi_linear"}  # so are other models
README_LOADS = (("plain", "decode_1"), ("plain", "decode_16"), ("plain", "decode_64"), ("plain", "prefill_16k"),
                ("drafts", "decode_16"))


def read(folder):
    """The records, an engine's together, by the names of their files."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def of_gdn(record):
    """Its rows of Gated DeltaNet."""
    return [] if record.get("layer") in LAYERS else [row for row in record["rows"] if row.get("kind") not in KDA_KINDS]


def of_one_gpu(records):
    """Those with Gated DeltaNet of the GPU where it was measured last: README and the picture show one."""
    shown = [record for record in records if of_gdn(record)]
    gpu = max(shown, key=lambda record: (record["date"], record["gpu"]))["gpu"]
    return [record for record in shown if record["gpu"] == gpu]


def what(load, scenario):
    """A load as a reader knows it."""
    name, size = load.split("_")
    if name == "prefill":
        return "prefill of 4 x 4096 tokens"
    requests = f"{size} request{'s' if size != '1' else ''}"
    if name == "verify" or scenario == "drafts":
        return f"drafts, {requests} of up to 4 tokens"
    return f"decode, {requests}"


def us(value):
    return f"{value:.1f} us" if value < 1000 else f"{value / 1e3:.2f} ms"


def ratio(alone, ours):
    return f"{alone / ours:.2f}x"


def _step(row):
    """A step of the whole model on the GPU."""
    return [us(row["gpu_us_alone"]), us(row["gpu_us"]), ratio(row["gpu_us_alone"], row["gpu_us"])]


def _clock(row):
    """Tokens a second of all requests, of the fastest run."""
    alone, ours = (row["tokens"] / min(row[s]) for s in ("s_alone", "s"))
    return [f"{alone:,.0f}", f"{ours:,.0f}", ratio(ours, alone)]


def _layer(row):
    return [us(row["layer_us_alone"]), us(row["layer_us"]), ratio(row["layer_us_alone"], row["layer_us"])]


def _measured(record):
    backend = {"flashinfer": "FlashInfer", "triton": "Triton"}[record["prefill_backend"]]
    layer = f"{LAYERS[record['layer']]}, " if record.get("layer") in LAYERS else ""
    return (f"{layer}{record['engine']}, {record['gpu']}, PyTorch {record['torch']}, the engine's prefill by {backend}; "
            f"commit {record['commit']}, {record['date']}")


def section(records, paragraph, table):
    """Lines of docs/results.md."""
    with_kda = any(row.get("kind") in KDA_KINDS for record in records for row in record["rows"])
    both = " (Kimi-Linear: 32 of both)" if with_kda else ""
    lines = ["## In an engine", "", "![One layer in an engine](plots/engines.svg)", ""]
    lines += paragraph(
        "The core of one linear layer, all that an engine runs between its projections: the convolution, gates, norms, "
        f"the recurrence, and in vLLM's decode the gated norm. 16 key and 32 value heads of 128 x 128{both}, tensor parallel 1, "
        "decode in CUDA graphs. In vLLM it is the GPU's time in a step that one of two runs has and the other has not, "
        "over the model's linear layers: what both launch cancels out. Then the whole step of a small random model on the "
        "GPU, and tokens a second on the clock, the fastest run of each, where the host's time counts too and differs by up to a half from "
        "process to process. "
        "[benchmarks.md](benchmarks.md) says how to repeat it.")
    for record in records:
        rows = record["rows"]
        lines += paragraph(f"{_measured(record)}:")
        if "gpu_us" in rows[0]:
            lines += table(
                ["", "model", "layer, alone", "with cubinery", "", "GPU's step, alone", "with cubinery", "",
                 "tokens/s, alone", "with cubinery", ""],
                [[what(row["load"], row["scenario"]), KINDS[row["kind"]], *_layer(row), *_step(row), *_clock(row)]
                 for row in rows])
        else:
            lines += table(["", "layer, alone", "with cubinery", ""],
                           [[what(row["load"], ""), *_layer(row)] for row in rows])
    starts = [start for record in records for start in record.get("starts", ())]
    if starts:
        lines += paragraph("Starts: until the engine takes requests, and from there to a first token.")
        lines += table(["scenario", "cubinery", "start", "first token", "kernels compiled"],
                       [[f"{KINDS[s['kind']]}, {s['scenario']}", s["mode"], f"{s['start_s']:.1f} s",
                         f"{s['first_token_s'] * 1e3:.0f} ms", f"{s['compiled']}"] for s in starts])
    return lines


def readme(records, paragraph, table):
    """Lines of README: one engine's rows."""
    ours = [record for record in of_one_gpu(records) if record["engine"].startswith("vLLM")]
    record, rows = ours[0], {}
    for row in (row for each in ours for row in of_gdn(each)):
        rows.setdefault((row["scenario"], row["load"]), row)
    cells = [[what(load, scenario), *_layer(rows[scenario, load]), _step(rows[scenario, load])[2]]
             for scenario, load in README_LOADS if (scenario, load) in rows]
    return table([f"one layer in {record['engine']}", "vLLM alone", "with cubinery", "", "GPU's step"], cells) + paragraph(
        f"{record['gpu']}, Qwen3.5's heads; prefill beside FlashInfer; [docs/results.md](docs/results.md) has all measurements.")


def bars(records):
    """Of the picture: (title, [(label, alone, ours)]) in microseconds, decode and prefill of one layer of Gated
    DeltaNet."""
    shown = []
    for record in of_one_gpu(records):
        for row in of_gdn(record):
            label = f"{record['engine'].split()[0]}, {what(row['load'], row.get('scenario', ''))}"
            shown.append((row["load"].startswith("prefill"), label, row["layer_us_alone"], row["layer_us"]))
    return [[bar[1:] for bar in shown if bar[0] == prefill] for prefill in (False, True)]
