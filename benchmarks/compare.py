"""Times cubinery and whichever of its peers are installed on the same tensors.  docs/benchmarks.md.

compare.py [--rows quick|all|published|serving|kda]
           [--gates qwen|strong|undecayed|init|extreme, or of kda fast|slow|softplus]
           [--only OPERATOR] [--contenders cubinery,fla,flash_qla,flashinfer]
           [--replays 40] [--budget SECONDS] [--out FILE.json] [--commit abc1234]
           OPERATOR: prefill, decode, verify or conv
           --rows kda: Kimi Delta Attention, by cubinery,cubinery_gdn,fla,vllm,cudnn,cudnn_log
compare.py table FILE.json
compare.py plot FILE.json --out FOLDER
"""

import argparse
import json
import sys
from pathlib import Path

from compare import record, rows

CONTENDERS = "cubinery,fla,flash_qla,flashinfer"
KDA_CONTENDERS = "cubinery,cubinery_gdn,fla,vllm,cudnn,cudnn_log"


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", choices=rows.WHICH, default="quick")
    parser.add_argument(
        "--gates",
        choices=rows.GATES + rows.KDA_GATES,
        help="on all prefills; default: all of them on one shape, of kda on three",
    )
    parser.add_argument("--only", choices=("prefill", "decode", "verify", "conv"))
    parser.add_argument("--contenders", help=f"{CONTENDERS}; of kda {KDA_CONTENDERS}")
    parser.add_argument("--replays", type=int, default=40)
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--out", help="where the record goes")
    parser.add_argument("--commit", default="unknown")
    parsed = parser.parse_args(arguments)
    accepted = rows.accepted_gates(parsed.rows)
    if parsed.gates not in (None, *accepted):
        parser.error(
            f"--gates {parsed.gates} with --rows {parsed.rows}: one of {', '.join(accepted)}"
        )
    if parsed.contenders is None:
        parsed.contenders = KDA_CONTENDERS if parsed.rows == "kda" else CONTENDERS
    return parsed


def compare(arguments: argparse.Namespace) -> int:
    """Runs the rows; 77 without a GPU, 1 when no contender is right on any row."""
    import torch

    from compare import contenders, run, timing

    if not torch.cuda.is_available():
        print("skipped: no usable GPU")
        return 77
    torch.set_grad_enabled(False)
    chosen = rows.chosen_rows(arguments.rows, arguments.gates)
    if arguments.only:
        chosen = [row for row in chosen if row.identity["op"] == f"gdn_{arguments.only}"]
    names = contenders.offering(arguments.only, arguments.contenders.split(","))
    present, missing = contenders.load(names)
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    head = {
        "gpu": device.name,
        "sm_count": device.multi_processor_count,
        "driver": record.driver_version(),
        "cuda": torch.version.cuda,
        "nvrtc": next((c.nvrtc for c in present if c.name == record.OURS), "none"),
        "packages": record.versions(),
        "ceilings": {"copy_tb_s": record.significant(timing.copy_rate_tb_s())},
        "missing": missing,
    }
    results = record.Record(arguments.out, arguments.commit, head)

    def run_one(row: rows.Row) -> dict[str, run.Entry]:
        print(f"{row.label} ...", file=sys.stderr, flush=True)
        return run.run_row(row, present, arguments.replays)

    run.run_rows(chosen, present, results, arguments.budget, run_one, run.cuda_lost)
    print(record.table(results.root))
    entries = [e for row in results.root["rows"] for e in row["contenders"].values()]
    return 0 if any(entry["status"] == "timed" for entry in entries) else 1


def show(arguments: list[str]) -> int:
    """The table of a record."""
    parser = argparse.ArgumentParser(prog="compare.py table")
    parser.add_argument("record")
    print(record.table(json.loads(Path(parser.parse_args(arguments).record).read_text())))
    return 0


def plot(arguments: list[str]) -> int:
    """The pictures of a record."""
    parser = argparse.ArgumentParser(prog="compare.py plot")
    parser.add_argument("record")
    parser.add_argument("--out", required=True, help="folder")
    parsed = parser.parse_args(arguments)
    from compare.plot import draw

    for path in draw(parsed.record, parsed.out):
        print(path)
    return 0


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["plot"]:
        return plot(arguments[1:])
    if arguments[:1] == ["table"]:
        return show(arguments[1:])
    return compare(_parsed(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
