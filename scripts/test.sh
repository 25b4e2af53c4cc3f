#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests, those of the host also under AddressSanitizer with
# UndefinedBehaviorSanitizer, and with --threads those that have threads under ThreadSanitizer.  Tests that need a GPU
# are skipped without one.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh
sanitizers=(asan)
[[ ${1:-} != --threads ]] || sanitizers+=(tsan)
for preset in "${sanitizers[@]}"; do
  cmake --preset "$preset"
  cmake --build --preset "$preset"
  ctest --preset "$preset"
done
cmake --preset default
cmake --build --preset default
ctest --preset default
