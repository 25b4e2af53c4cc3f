#!/usr/bin/env bash
# On a machine with a GPU: the gpu tests with the sanitizers over the small ones, and the benchmarks, into one results
# file.
#   scripts/measure.sh BUILD RESULTS.json COMMIT [LOG_FOLDER [tests|benchmarks]]
# RESULTS.json is the record of this kind of GPU (benchmarks/results/); rows that are measured again are replaced.
set -uo pipefail
build=$1 results=$2 commit=$3 logs=${4:-$(mktemp -d)} part=${5:-both}
cache=$(mktemp -d)
export CUBINERY_CACHE_DIR=$cache CUBINERY_TEST_CACHE=$cache/tests

run_tests() {
  for example in 01_decode 02_own_kernel 03_prefill 04_c_decode; do
    "$build/examples/example_$example" || exit 1
  done
  CUBINERY_TEST_JSON=$logs/tests.json "$build/tests/gpu_tests" >"$logs/gpu_tests.log" 2>&1
  tail -n 3 "$logs/gpu_tests.log"

  local clean=true tool
  local -A running
  for tool in memcheck racecheck synccheck; do
    compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/tests/gpu_tests" "~[big]~[slow]" \
      >"$logs/$tool.log" 2>&1 &
    running[$tool]=$!
  done
  for tool in "${!running[@]}"; do
    wait "${running[$tool]}" || clean=false
    echo "$tool: $(grep -E 'SUMMARY|test cases|All tests' "$logs/$tool.log" | paste -sd ' ')"
  done

  python3 - "$results" "$logs/tests.json" "$commit" "$clean" <<'PYTHON'
import datetime, json, sys
results, tests, commit, clean = sys.argv[1:]
try:
    record = json.load(open(results))
except FileNotFoundError:
    record = {"format": 1, "rows": []}
record["tests"] = {"commit": commit, "date": datetime.date.today().isoformat(), **json.load(open(tests)),
                   "sanitizers_clean": clean == "true"}
json.dump(record, open(results, "w"))  # the benchmarks lay it out
PYTHON
}

run_benchmarks() {
  local out=(--out "$results" --commit "$commit")
  "$build/benchmarks/decode_bench" "${out[@]}" >"$logs/decode_bench.log" 2>&1 || exit 1
  for rows in all gates; do
    "$build/benchmarks/prefill_bench" --rows "$rows" "${out[@]}" >"$logs/prefill_bench_$rows.log" 2>&1 || exit 1
  done
  "$build/benchmarks/host_bench" "${out[@]}" >"$logs/host_bench.log" 2>&1 || exit 1
}

[[ $part == benchmarks ]] || run_tests
[[ $part == tests ]] || run_benchmarks
