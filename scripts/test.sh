#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests; with --sanitizers those of the host also under AddressSanitizer
# with UndefinedBehaviorSanitizer, and those that have threads under ThreadSanitizer.  Tests that need a GPU are
# skipped without one.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh
if [[ ${1:-} == --sanitizers ]]; then
  for preset in asan tsan; do
    cmake --preset "$preset"
    cmake --build --preset "$preset"
    ctest --preset "$preset"
  done
fi
cmake --preset default
cmake --build --preset default
ctest --preset default
