#!/usr/bin/env bash
# On a machine with a GPU: the gpu tests, the small ones under the sanitizers, and the benchmarks, into one results
# file.
#   scripts/measure.sh BUILD RESULTS.json COMMIT [LOG_FOLDER [tests|sanitizers|benchmarks]]
# RESULTS.json is the record of this kind of GPU (benchmarks/results/); what is measured again is replaced.
set -uo pipefail
build=$1 results=$2 commit=$3 logs=${4:-$(mktemp -d)} part=${5:-all}
cache=$(mktemp -d)
export CUBINERY_CACHE_DIR=$cache CUBINERY_TEST_CACHE=$cache/tests

# Adds members, of JSON objects, to the record's "tests"; the benchmarks lay the file out.
record_tests() {
  python3 - "$results" "$@" <<'PYTHON'
import json, os, sys
path, *objects = sys.argv[1:]
record = json.load(open(path)) if os.path.exists(path) else {"format": 1, "rows": []}
for members in objects:
    record.setdefault("tests", {}).update(json.loads(members))
json.dump(record, open(path, "w"))
PYTHON
}

run_tests() {
  for example in 01_decode 02_own_kernel 03_prefill 04_c_decode 06_speculate 07_layer; do
    "$build/examples/example_$example" || exit 1
  done
  CUBINERY_TEST_JSON=$logs/tests.json "$build/tests/gpu_tests" --durations yes >"$logs/gpu_tests.log" 2>&1
  tail -n 3 "$logs/gpu_tests.log"
  record_tests "{\"commit\": \"$commit\", \"date\": \"$(date +%F)\"}" "$(cat "$logs/tests.json")"
}

# Side by side, each tool in two halves: racecheck takes longest, most of it for prefill.
run_sanitizers() {
  local clean=true tool half log
  local -A running
  for tool in memcheck racecheck synccheck; do
    for half in prefill rest; do
      log=$tool-$half.log
      local tests="~[big]~[slow]~[prefill]"
      [[ $half == prefill ]] && tests="[prefill]~[big]~[slow]"
      compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/tests/gpu_tests" "$tests" >"$logs/$log" 2>&1 &
      running[$log]=$!
    done
  done
  for log in "${!running[@]}"; do
    wait "${running[$log]}" || clean=false
    echo "$log: $(grep -E 'SUMMARY|test cases|All tests' "$logs/$log" | paste -sd ' ')"
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
