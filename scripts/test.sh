#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests: those of the host under AddressSanitizer with
# UndefinedBehaviorSanitizer, with --threads those that have threads under ThreadSanitizer, then all of them as they
# are.  Tests that need a GPU are skipped without one.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh
presets=(asan default)
if [[ ${1:-} == --threads ]]; then presets=(asan tsan default); fi
for preset in "${presets[@]}"; do
  cmake --preset "$preset"
  cmake --build --preset "$preset"
  ctest --preset "$preset"
done
