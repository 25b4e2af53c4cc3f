#!/usr/bin/env bash
# Fuzzes everything that reads foreign bytes: scripts/fuzz.sh [SECONDS] [TARGET...], 60 seconds of each target of
# tests/fuzz by default.  Starts from tests/fuzz/corpus and from what earlier runs found worth keeping (build-fuzz/corpus).
# Fails on a finding, which lies in build-fuzz/findings then: mend it, and keep it in tests/fuzz/corpus/<target>.  Needs
# clang with libFuzzer; without it, exit code 77.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
if ! echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    clang++ -x c++ -fsanitize=fuzzer,address - -o /dev/null 2>/dev/null; then
  echo "fuzz: clang++ with libFuzzer is missing: install the packages clang and libclang-rt-dev (or llvm's compiler-rt)"
  exit 77
fi
cmake --preset fuzz
cmake --build --preset fuzz
targets=("$@")
if [[ ${#targets[@]} == 0 ]]; then
  for program in build-fuzz/tests/fuzz_*; do
    name=$(basename "$program")
    if [[ -x $program && $name != fuzz_corpus_tests ]]; then targets+=("${name#fuzz_}"); fi
  done
fi
failed=()
mkdir -p build-fuzz/findings
for target in "${targets[@]}"; do
  mkdir -p "build-fuzz/corpus/$target"
  echo "fuzz: $target, $seconds s"
  # A single input may take a second (of a slow machine, under two sanitizers) and 512 MiB.
  "build-fuzz/tests/fuzz_$target" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 -print_final_stats=1 \
      -artifact_prefix="build-fuzz/findings/$target-" "build-fuzz/corpus/$target" "tests/fuzz/corpus/$target" \
      >"build-fuzz/$target.log" 2>&1 || failed+=("$target")
  grep -E 'stat::number_of_executed_units|ERROR|SUMMARY|runtime error' "build-fuzz/$target.log" || true
done
if [[ ${#failed[@]} != 0 ]]; then
  echo "fuzz: findings in ${failed[*]}: see build-fuzz/<target>.log and build-fuzz/findings"
  exit 1
fi
