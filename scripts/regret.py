#!/usr/bin/env python3
"""How much slower a GPU is with the configurations that were fastest on another one, or that the cost model chose, than
with its own fastest: from what `cubinery tune` wrote on both.

    scripts/regret.py --gpu DIR[,DIR...] --gpu DIR[,DIR...] [--times FILE]

Prints a Markdown table.  FILE: for each bucket that both have, the times that the table is made of.
"""
import argparse
import json
import pathlib
import statistics


def lines(folder, pattern):
    for path in sorted(pathlib.Path(folder).glob(pattern)):
        for line in path.read_text().splitlines():
            yield json.loads(line)


def text_of(configuration):
    return ";".join(f"{name}={value}" for name, value in configuration.items())


class Tuned:
    """Results of one GPU, and the first time of every configuration, by (op, problem, bucket)."""

    def __init__(self, folders):
        self.results, self.ms = {}, {}
        settings = {}
        for folder in folders:
            for result in lines(folder, "*.results.jsonl"):
                self.results[result["op"], result["problem"], result["bucket"]] = result
            for line in lines(folder, "*.measurements.jsonl"):
                if "setting" in line:
                    settings[line["id"]] = (line["op"], line["problem"], line["bucket"])
                elif line["verdict"] == "correct":
                    times = self.ms.setdefault(settings[line["of"]], {})
                    times.setdefault(text_of(line["configuration"]), line["ms"]["median"])
        self.name = next(iter(self.results.values()))["gpu"]["name"]


def compared(here, there):
    """One row for each bucket that both have: times here, of three configurations."""
    for key, result in here.results.items():
        if key not in there.results:
            continue
        times = here.ms[key]
        best, theirs, model = (text_of(c) for c in (result["configuration"], there.results[key]["configuration"],
                                                    result["otherwise"]))
        yield dict(zip(("op", "problem", "bucket"), key)) | {
            "gpu": here.name, "best": best, "best_ms": times[best], "of": there.name, "theirs": theirs,
            "theirs_ms": times[theirs], "model_ms": times[model]}


def cells(regrets):
    percent = [100 * max(0, regret) for regret in regrets]
    return f"{statistics.mean(percent):.1f} | {max(percent):.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="append", required=True, metavar="DIR[,DIR...]")
    parser.add_argument("--times", metavar="FILE")
    arguments = parser.parse_args()
    if len(arguments.gpu) != 2:
        parser.error("--gpu is given twice, once for each GPU")
    one, other = (Tuned(folders.split(",")) for folders in arguments.gpu)
    rows = [*compared(one, other), *compared(other, one)]
    print("| on | operator | buckets | same choice | the other GPU's: mean % | most % | the model's: mean % | most % |")
    print("|---|---|---|---|---|---|---|---|")
    for gpu in (one.name, other.name):
        for op in sorted({row["op"] for row in rows}):
            some = [row for row in rows if row["gpu"] == gpu and row["op"] == op]
            same = sum(row["best"] == row["theirs"] for row in some)
            theirs = cells([row["theirs_ms"] / row["best_ms"] - 1 for row in some])
            model = cells([row["model_ms"] / row["best_ms"] - 1 for row in some])
            print(f"| {gpu} | `{op}` | {len(some)} | {same} | {theirs} | {model} |")
    if arguments.times:
        pathlib.Path(arguments.times).write_text("".join(json.dumps(row) + "\n" for row in rows))


main()
