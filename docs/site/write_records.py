#!/usr/bin/env python3
"""Writes what the charts of docs/site/measured.md draw, as a script: the records of benchmarks/results and
results/measured, read as scripts/write_results.py reads them for docs/results.md.

    write_records.py OUT
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import engine_results  # noqa: E402
import write_results  # noqa: E402


def peers(records):
    """Each row of the table beside other libraries: the times in microseconds, those of earlier runs too."""
    for row in records.compared:
        times = {"cubinery": row["ms"]} | {
            write_results.peer_name(peer): ms for peer, ms in (row["earlier_ms"] | row["peers_ms"]).items()
        }
        lengths = row.get("seqlens", [])
        yield {
            "op": row["op"].removeprefix("gdn_"),
            "heads": write_results.heads(row),
            "data": write_results.data(row),
            "size": write_results.size(row),
            "x": sum(lengths) if lengths else row["batch"],
            "tokens": row.get("tokens", 0),
            "sequences": len(lengths),
            "us": {name: 1e3 * ms for name, ms in times.items()},
            "floor": 1e3 * row["byte_floor_ms"] if row["byte_floor_ms"] else None,
            "ratio": write_results.ratio(row),
        }


def engines(records):
    for record in records.engines:
        for row in record["rows"]:
            yield {
                "where": f"{record['engine']}, {record['gpu']}, prefill by {record['prefill_backend']}",
                "model": engine_results.KINDS[row["kind"]] if "kind" in row else "",
                "label": engine_results.what(row["load"], row.get("scenario", "")),
                "alone": row["layer_us_alone"],
                "ours": row["layer_us"],
            }


def tuned():
    for result in write_results.tuning_results():
        yield {
            "op": result["op"].removeprefix("gdn_"),
            "gpu": result["gpu"]["name"],
            "features": result["features"],
            "us": 1e3 * result["ms"]["median"],
            "gain": write_results.gain(result),
            "chosen": " ".join(f"{name}={value}" for name, value in result["configuration"].items()),
        }


def main():
    records = write_results.Records()
    data = {
        "gpu": records.alone["gpu"],
        "peers": list(peers(records)),
        "engines": list(engines(records)),
        "tuned": list(tuned()),
    }
    pathlib.Path(sys.argv[1]).write_text(f"window.cubineryRecords = {json.dumps(data)};\n")


if __name__ == "__main__":
    main()
