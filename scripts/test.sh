#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests; then the host tests again under AddressSanitizer with
# UndefinedBehaviorSanitizer, and under ThreadSanitizer.  Tests that need a GPU are skipped without one.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh
for preset in noexcept asan tsan; do
  cmake --preset "$preset"
  cmake --build --preset "$preset"
done
ctest --preset asan
ctest --preset tsan
cmake --preset default
cmake --build --preset default
ctest --preset default
