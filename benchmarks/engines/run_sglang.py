"""The core of one layer in SGLang, alone and with cubinery's plugin, as JSON.

    python3 benchmarks/engines/run_sglang.py --out sglang.json [--prefill-backend flashinfer]
    python3 benchmarks/engines/run_sglang.py --out kda.json --layer kda

SGLang's own kit of tests (sglang.test.kits.attention_unittest, in its wheel) makes what a layer
stands in: the real GDNAttnBackend or KDAAttnBackend and HybridLinearAttnBackend, request and state
pools, ForwardBatch.  Heads, dims, taps and dtypes are those of Qwen3-Next and Qwen3.5, or of Ling-3.0
(Kimi Delta Attention with a lower bound), at tensor-parallel size 1.
Timed is one call of the back end as a model's layer makes it: convolution, gates, norms and the
recurrence; the metadata of a step is made before.  Each mode runs in a process of its own.

Needs a GPU, SGLang and cubinery in this Python.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

LAYERS = ("gdn", "kda")
LOWER_BOUND = -5.0
DIM = 128  # of keys and values
TAPS = 4
LOADS = ("decode_1", "decode_16", "decode_64", "prefill_16k", "verify_1", "verify_16", "verify_64")
DRAFTS = 4  # tokens of a request that verify has
REPEATS = 30


def kit_of(layer: str) -> Any:
    """The kit's module of such layers."""
    methods = "sglang.test.kits.attention_unittest.attention_methods"
    return importlib.import_module(f"{methods}.{layer}_attention")


def case_of(load: str, layer: str, backend: str | None) -> Any:
    """The kit's description of a batch."""
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    what, size = load.split("_")
    count = 4 if what == "prefill" else int(size)
    modes = {
        "decode": (ForwardMode.DECODE, 8, ()),
        "prefill": (ForwardMode.EXTEND, 0, (4096,) * count),
        "verify": (ForwardMode.TARGET_VERIFY, 8, (DRAFTS,) * count),
    }
    mode, before, lengths = modes[what]
    batch = {
        "name": load, "backend": "triton", "forward_mode": mode, "page_size": 16, "num_v_heads": 32,
        "prefix_lens": (before,) * count, "extend_lens": lengths,
    }  # fmt: skip
    if layer == "kda":
        return kit_of(layer).KDAAttentionCase(num_k_heads=32, **batch)
    return kit_of(layer).GDNAttentionCase(
        num_k_heads=16, linear_attn_prefill_backend=backend, **batch
    )


def fixture_of(case: Any, layer: str) -> Any:
    """The kit's, with a convolution of four taps and SiLU, as models have; the kit's has two."""
    import torch
    from sglang.test.kits.attention_unittest.runner_modes import (
        speculative_target_verify_runner as verify,
    )

    kit, is_kda = kit_of(layer), layer == "kda"
    shape = kit.KimiLinearStateShape if is_kda else kit.Mamba2StateShape
    taps = {"conv_kernel_size" if is_kda else "conv_kernel": TAPS}
    create = shape.create
    shape.create = lambda **options: create(**(options | taps))
    try:
        made = getattr(kit, f"build_{layer}_attention_fixture")(
            unittest.TestCase(), case, head_k_dim=DIM, head_v_dim=DIM, max_context_len=4160,
            loc_layout="contiguous",
        )  # fmt: skip
    finally:
        shape.create = create
    attention = made.actual_module.attn
    dtype = torch.float32 if is_kda else torch.bfloat16
    attention.conv_weights = torch.randn(made.actual_module.mixed_qkv_dim, TAPS, dtype=dtype,
                                         device="cuda") * 0.4  # fmt: skip
    attention.activation = "silu"
    if is_kda:
        attention.dt_bias = torch.nn.Parameter(attention.dt_bias.float())
        attention.lower_bound = LOWER_BOUND
    if case.forward_mode.is_target_verify():
        prepare = getattr(verify, f"_prepare_{layer}_verify_batch")
        prepare(case, made.forward_batch, topk=1, device="cuda")
    return made


def layer_us(fixture: Any) -> list[float]:
    """Microseconds of the GPU in one call, of each of REPEATS calls: all that it launches there.
    Between calls the L2 cache is overwritten."""
    import torch
    from sglang.srt.model_executor.forward_context import ForwardContext, forward_context
    from torch.profiler import ProfilerActivity, profile

    flush = torch.empty(1 << 28, dtype=torch.int8, device="cuda")

    def call() -> None:
        fixture.actual_module(fixture.forward_batch, fixture.mixed_qkv, fixture.a, fixture.b)

    times = []
    with torch.no_grad(), forward_context(ForwardContext(attn_backend=fixture.backend)):
        fixture.backend.init_forward_metadata(fixture.forward_batch)
        for _ in range(3):
            call()
        for _ in range(REPEATS):
            flush.fill_(0)
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CUDA]) as found:
                call()
                torch.cuda.synchronize()
            times.append(sum(row.self_device_time_total for row in found.key_averages()))
    return times


def one(out: Path, layer: str, backend: str | None) -> None:
    import sglang
    import torch
    from sglang.srt.plugins import load_plugins

    if os.environ["CUBINERY_PLUGIN"] != "off":
        load_plugins()
    record: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(), "sglang": sglang.__version__, "torch": torch.__version__, "us": {}, "failed": {},
    }  # fmt: skip
    for load in LOADS:
        try:
            record["us"][load] = layer_us(fixture_of(case_of(load, layer, backend), layer))
        except Exception as error:  # the others still count
            record["failed"][load] = f"{type(error).__name__}: {error}"[:500]
    if os.environ["CUBINERY_PLUGIN"] != "off":
        from cubinery.plugins.sglang import calls

        record["calls"] = {f"{what} on {where}": count for (what, where), count in calls.items()}
    out.write_text(json.dumps(record))


def run(mode: str, args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out, log = Path(folder) / "record.json", Path(folder) / "log"
        command = [sys.executable, __file__, "--one", "--out", str(out), "--layer", args.layer]
        if mode == "off" and args.prefill_backend:
            command += ["--prefill-backend", args.prefill_backend]
        settings = dict(os.environ, CUBINERY_PLUGIN=mode, CUBINERY_PLUGIN_COUNT="1")
        with log.open("w") as file:
            done = subprocess.run(command, env=settings, stdout=file, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            return {"mode": mode, "us": {}, "failed": {"process": log.read_text(errors="replace")[-3000:]}}
        return {"mode": mode, **json.loads(out.read_text())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layer", choices=LAYERS, default="gdn")
    parser.add_argument("--prefill-backend", help="SGLang's, of the run without cubinery; of gdn")
    parser.add_argument("--commit", default="", help="of cubinery, for the record")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.prefill_backend and args.layer != "gdn":
        parser.error(f"--prefill-backend is of gdn, not of {args.layer}")
    if args.one:
        one(args.out, args.layer, args.prefill_backend)
        return 0
    records = [run(mode, args) for mode in ("off", "force")]
    alone, ours = ({load: statistics.median(us) for load, us in r["us"].items()} for r in records)
    for load in LOADS:
        if load in alone and load in ours:
            print(f"{load}: SGLang {alone[load]:.1f} us, with cubinery {ours[load]:.1f} us: "
                  f"{alone[load] / ours[load]:.2f}x")  # fmt: skip
    failed = {record["mode"]: record["failed"] for record in records if record["failed"]}
    print(json.dumps({"calls": records[1].get("calls"), "failed": failed}, indent=1))
    if alone and ours:
        rows = [{"load": load, "layer_us": ours[load], "layer_us_alone": alone[load]}
                for load in LOADS if load in alone and load in ours]  # fmt: skip
        args.out.write_text(json.dumps({
            "gpu": records[0]["gpu"], "engine": f"SGLang {records[0]['sglang']}", "torch": records[0]["torch"],
            "layer": args.layer, "commit": args.commit, "date": time.strftime("%Y-%m-%d"),
            "prefill_backend": args.prefill_backend or "triton", "rows": rows,
        }, indent=1) + "\n")  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
