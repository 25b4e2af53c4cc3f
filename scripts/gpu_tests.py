#!/usr/bin/env python3
"""Runs the gpu tests of a build side by side, each process taking the next case, with one cache.

    scripts/gpu_tests.py BUILD                           all that are not hidden
    scripts/gpu_tests.py BUILD --filter '[prefill]~[slow]'
    scripts/gpu_tests.py BUILD --sanitizer racecheck     under compute-sanitizer; by default those tagged [sanitize]
    scripts/gpu_tests.py BUILD --full                    sweeps in full, not a cover of pairs of their options
    scripts/gpu_tests.py BUILD --pack gpu.pack           kernels made beforehand (below)
    scripts/gpu_tests.py BUILD --json tests.json --logs FOLDER
    scripts/gpu_tests.py BUILD --seconds seconds.json    longest first, by what an earlier run wrote there
    scripts/gpu_tests.py BUILD --limit 200               short ones first, and what has not ended then is not counted

A pack is made on a machine without a GPU, from the list of kernels that a run on a GPU wrote:

    scripts/gpu_tests.py BUILD --write-kernels kernels.txt
    scripts/gpu_tests.py BUILD --make-pack gpu.pack --kernels kernels.txt --arch sm_90a

Exits 1 when a case failed or was left out, 77 when there is no usable GPU.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

SKIPPED = 77
# Pools that fill much of a GPU's memory: one at a time, by one process.
ALONE = re.compile(r"Beyond32BitOffsets")
# Cases that compare times of the GPU: after all others, with nothing beside them.
TIMED = re.compile(r"^Timer\.")
# A process creates a CUDA context: short cases share one.
SHORT_SECONDS = 4
# What a case takes that no earlier run has timed, by its tags: the first of these that it has.
UNKNOWN_SECONDS = {"[slow][big]": 60, "[slow]": 30, "": 2}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count(), help="processes [the machine's threads]")
    parser.add_argument("--filter", help="Catch2's test spec")
    parser.add_argument("--full", action="store_true", help="all that sweeps have, before results are tuned, say")
    parser.add_argument("--sanitizer", choices=["memcheck", "racecheck", "synccheck", "initcheck"])
    parser.add_argument("--cache", type=pathlib.Path, help="cache directory to use and keep [a temporary one]")
    parser.add_argument("--pack", type=pathlib.Path, help="read-only layer below it")
    parser.add_argument("--json", type=pathlib.Path, help="record to write")
    parser.add_argument("--commit", default="", help="what the record says was tested")
    parser.add_argument("--logs", type=pathlib.Path, help="folder for each process's output")
    parser.add_argument("--seconds", type=pathlib.Path, help="seconds of each case: read if there, written")
    parser.add_argument("--limit", type=float, help="seconds, after which cases are stopped and listed as left out")
    parser.add_argument("--list", action="store_true", help="print the batches, run nothing")
    parser.add_argument("--write-kernels", type=pathlib.Path, help="list of the kernels that the run asked for")
    parser.add_argument("--make-pack", type=pathlib.Path, help="compile --kernels for --arch into it, run nothing")
    parser.add_argument("--kernels", type=pathlib.Path)
    parser.add_argument("--arch", default="sm_90a")
    return parser.parse_args()


def names(binary, spec):
    """Test cases; Catch2 2 and 3 list them by different options."""
    for options in (["--list-test-names-only"], ["--list-tests", "--verbosity", "quiet"]):
        run = subprocess.run([binary, *options, *([spec] if spec else [])], capture_output=True, text=True)
        found = [line.strip() for line in run.stdout.splitlines() if line.strip()]
        if found and not any("nrecognised" in line or ":" in line for line in found):
            return found
    return []


def batches(binary, cases, seconds):
    """Longest first, by what is known of them; those that run alone before all others.  Short ones are run several by a
    process."""
    tagged = {tags: set(names(binary, tags) if tags else cases) for tags in UNKNOWN_SECONDS}

    def weight(name):
        return seconds.get(name, next(UNKNOWN_SECONDS[tags] for tags, some in tagged.items() if name in some))
    alone = [name for name in cases if ALONE.search(name)]
    queue, short, sum_of_short = [alone] if alone else [], [], 0.0
    for name in sorted(set(cases) - set(alone), key=lambda name: (-weight(name), name)):
        if weight(name) >= SHORT_SECONDS:
            queue.append([name])
            continue
        short.append(name)
        sum_of_short += weight(name)
        if sum_of_short >= SHORT_SECONDS:
            queue.append(short)
            short, sum_of_short = [], 0.0
    return queue + ([short] if short else [])


class Runner:
    """Runs batches and adds up what they say."""

    def __init__(self, args, binary, cache, logs):
        self.args, self.binary, self.logs = args, binary, logs
        self.environment = dict(os.environ, CUBINERY_TEST_CACHE=str(cache))
        if args.full:
            self.environment["CUBINERY_TEST_FULL"] = "1"
        if args.pack:
            self.environment["CUBINERY_TEST_PACK"] = str(args.pack.resolve())
        self.lock = threading.Lock()
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}
        self.seconds, self.failures, self.left, self.device, self.no_gpu = {}, [], [], "", ""
        self.end = time.monotonic() + args.limit if args.limit else None

    def run(self, number, batch):
        if self.no_gpu:
            return
        totals = self.logs / f"{number:03}.json"
        command = [self.binary, ",".join(batch), "--durations", "yes"]
        if self.args.sanitizer:
            command = ["compute-sanitizer", "--tool", self.args.sanitizer, "--error-exitcode", "9", *command]
        left = None if self.end is None else self.end - time.monotonic()
        if left is not None and left <= 0:
            self.left += batch
            return
        start = time.monotonic()
        try:
            run = subprocess.run(command, env=dict(self.environment, CUBINERY_TEST_JSON=str(totals)), timeout=left,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        except subprocess.TimeoutExpired:
            self.left += batch
            return
        took = time.monotonic() - start
        with (self.logs / f"{number:03}.log").open("a") as log:
            log.write(f"{' '.join(batch)}\n{run.stdout}\n")
        if len(batch) > 1 and not totals.exists() and run.returncode != SKIPPED:
            for name in batch:  # a crash: of which
                self.run(number, [name])
            return
        with self.lock:
            self.count(batch, run, totals, took)

    def count(self, batch, run, totals, took):
        if run.returncode == SKIPPED:
            self.no_gpu = run.stdout.strip()
            return
        found = re.search(r"^device (.*), (sm_\w+);", run.stdout, re.M)
        self.device = self.device or (found.group(1) if found else "")
        for name in batch:
            said = re.search(rf"^([0-9.]+) s: {re.escape(name)}$", run.stdout, re.M)
            self.seconds[name] = float(said.group(1)) if said and len(batch) > 1 else took / len(batch)
        counted = json.loads(totals.read_text()) if totals.exists() else {}
        totals.unlink(missing_ok=True)
        if not counted:  # a crash
            counted = {"passed": 0, "failed": len(batch)}
        if run.returncode != 0 and not counted["failed"]:  # a finding of the sanitizer
            counted["passed"], counted["failed"] = counted["passed"] - 1, 1
        for key, value in counted.items():
            self.counts[key] += value
        if counted["failed"]:
            self.failures.append(batch)
            print(f"FAILED {' '.join(batch)}\n{run.stdout[-6000:]}", flush=True)


def load(path):
    return json.loads(path.read_text()) if path and path.exists() else {}


def cached_kernels(build, cache, kernels):
    """Writes the canonical texts of what is in the cache, without fields that have their default."""
    defaults = {}
    for line in subprocess.check_output([build / "tests/gpu_kernels", "defaults"], text=True).splitlines():
        name, *fields = line.split(";")
        defaults[name] = set(fields)
    listed = subprocess.check_output([build / "cli/cubinery", "cache", "ls", "--cache-dir", cache, "--json", "-"])
    lines = set()
    for entry in json.loads(listed):
        name, *fields = entry.get("canonical", "").split(";")
        if name in defaults:  # others are templates of the tests themselves
            lines.add(";".join([name, *(field for field in fields if field not in defaults[name])]))
    kernels.write_text("".join(line + "\n" for line in sorted(lines)))
    print(f"{len(lines)} kernels in {kernels}")


def make_pack(args):
    with tempfile.TemporaryDirectory() as cache, args.kernels.open() as kernels:
        made = subprocess.run([args.build / "tests/gpu_kernels", args.arch, cache], stdin=kernels)
        export = [args.build / "cli/cubinery", "cache", "export", "--cache-dir", cache, "--arch", args.arch, "-o"]
        subprocess.run([*export, args.make_pack], check=True)
    return made.returncode


def record(args, runner, took, jobs):
    slowest = sorted(runner.seconds.items(), key=lambda item: -item[1])[:15]
    print("\n".join(f"{seconds:7.1f} s  {name}" for name, seconds in slowest))
    counts = runner.counts
    what = f"under {args.sanitizer}, " if args.sanitizer else ""
    print(f"{what}{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped "
          f"in {took:.0f} s by {jobs} processes on {runner.device}")
    for batch in runner.failures:
        print(f"failed: {' '.join(batch)}")
    if runner.left:
        print(f"{len(runner.left)} left out after {args.limit:.0f} s: {' '.join(sorted(runner.left))}")
    if args.json:
        args.json.write_text(json.dumps({
            **({"commit": args.commit} if args.commit else {}), "date": datetime.date.today().isoformat(), **counts,
            **({"left_out": len(runner.left)} if runner.left else {}), "seconds": round(took),
            "processes": jobs, "gpu": runner.device}) + "\n")
    if args.seconds and not args.sanitizer:
        known = {**load(args.seconds), **{name: round(seconds, 1) for name, seconds in runner.seconds.items()}}
        args.seconds.write_text(json.dumps(dict(sorted(known.items())), indent=0) + "\n")


def main():
    args = arguments()
    if args.make_pack:
        return make_pack(args)
    binary = args.build / "tests/gpu_tests"
    spec = args.filter or ("[sanitize]" if args.sanitizer else None)
    cases = names(binary, spec)
    timed = [name for name in cases if TIMED.search(name)]
    cases = [name for name in cases if name not in timed]
    queue = batches(binary, cases, load(args.seconds))
    if args.limit:
        queue.reverse()
    if args.list:
        print("\n".join(" ".join(batch) for batch in [*queue, timed] if batch))
        return 0
    if not queue and not timed:
        print(f"gpu_tests.py: no case is {spec}")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        logs = args.logs or pathlib.Path(folder) / "logs"
        cache = args.cache or pathlib.Path(folder) / "cache"
        logs.mkdir(parents=True, exist_ok=True)
        runner = Runner(args, binary, cache, logs)
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for done in [pool.submit(runner.run, number, batch) for number, batch in enumerate(queue)]:
                done.result()
        if timed:
            runner.run(len(queue), timed)
        if runner.no_gpu:
            print(runner.no_gpu)
            return SKIPPED
        record(args, runner, time.monotonic() - start, args.jobs)
        if args.write_kernels:
            cached_kernels(args.build, cache, args.write_kernels)
    return 1 if runner.counts["failed"] or runner.left else 0


sys.exit(main())
