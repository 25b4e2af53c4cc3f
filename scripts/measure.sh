#!/usr/bin/env bash
# On a machine with a GPU: the gpu tests, the small ones under the sanitizers, and the benchmarks, into one results
# file.
#   scripts/measure.sh BUILD RESULTS.json COMMIT [LOG_FOLDER [tests|sanitizers|benchmarks]]
# RESULTS.json is the record of this kind of GPU (benchmarks/results/); what is measured again is replaced.
set -uo pipefail
build=$1 results=$2 commit=$3 logs=${4:-$(mktemp -d)} part=${5:-all}
cache=$(mktemp -d)
export CUBINERY_CACHE_DIR=$cache

# Adds members, of JSON objects, to the record's "tests"; the rest of the file, which the benchmarks lay out, stays.
record_tests() {
  python3 - "$results" "$@" <<'PYTHON'
import json, os, re, sys
path, *objects = sys.argv[1:]
text = open(path).read() if os.path.exists(path) else '{\n  "format": 1,\n  "tests": {},\n  "rows": []\n}\n'
tests = json.loads(text).get("tests", {})
for members in objects:
    tests.update(json.loads(members))
line = f'  "tests": {json.dumps(tests, separators=(",", ":"))},\n'
found = re.search(r'^  "tests": \{.*\},\n', text, re.M)
at = found.span() if found else 2 * (text.index("\n") + 1,)
open(path, "w").write(text[:at[0]] + line + text[at[1]:])
PYTHON
}

run_tests() {
  for example in 01_decode 02_own_kernel 03_prefill 04_c_decode 06_speculate 07_layer 12_ranks; do
    "$build/examples/example_$example" || exit 1
  done
  "$(dirname "$0")/gpu_tests.py" "$build" --cache "$cache/tests" --commit "$commit" --json "$logs/tests.json" \
    --logs "$logs/gpu_tests" --seconds "$logs/seconds.json" >"$logs/gpu_tests.log" 2>&1
  cat "$logs/gpu_tests.log"
  record_tests "$(cat "$logs/tests.json")"
}

# One tool after the other, each on all processors.
run_sanitizers() {
  local clean=true tool
  for tool in memcheck racecheck synccheck; do
    "$(dirname "$0")/gpu_tests.py" "$build" --sanitizer "$tool" --cache "$cache/tests" --logs "$logs/$tool" \
      >"$logs/$tool.log" 2>&1 || clean=false
    tail -n 3 "$logs/$tool.log"
  done
  record_tests "{\"sanitizers_clean\": $clean, \"sanitizers_commit\": \"$commit\"}"
}

run_benchmarks() {
  local what
  for what in decode prefill verify commit conv host; do
    "$build/benchmarks/cubinery_bench" "$what" --out "$results" --commit "$commit" >"$logs/bench_$what.log" 2>&1 || exit 1
  done
}

for step in tests sanitizers benchmarks; do
  if [[ $part == all || $part == "$step" ]]; then "run_$step"; fi
done
