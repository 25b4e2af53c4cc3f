#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests; with --sanitizers those of the host also under AddressSanitizer
# with UndefinedBehaviorSanitizer, those that have threads under ThreadSanitizer, and a minute of every fuzzer where there
# is clang.  Tests that need a GPU are skipped without one.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh --site
presets=(default)
if [[ ${1:-} == --sanitizers ]]; then presets=(asan tsan default); fi
for preset in "${presets[@]}"; do
  cmake --preset "$preset"
  cmake --build --preset "$preset"
  ctest --preset "$preset"
done
# What takes minutes.
if [[ ${1:-} == --sanitizers ]]; then
  build/tests/cache_tests "[slow]"
  build/tests/compile_tests "[full]"  # keeps what it compiled in build/tests/compiled
  scripts/fuzz.sh || [[ $? == 77 ]]  # no clang
fi
