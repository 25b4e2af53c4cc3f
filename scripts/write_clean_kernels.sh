#!/usr/bin/env bash
# Writes the record of kernels that compile without warnings and without spills, tests/data/clean_kernels.txt, by which
# tests of BUILD (build unless given) compile only what has changed.  Compiles everything that those tests cover;
# build/tests/compiled keeps it, so that the next time only what has changed is compiled.  Writes nothing where a
# kernel is not clean.
#
#   scripts/write_clean_kernels.sh [BUILD]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build} record=tests/data/clean_kernels.txt

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CUBINERY_CLEAN_KERNELS_OUT=$work/found "$build/tests/compile_tests" "[sweep]"
versions=$(cut -d' ' -f1 "$work/found" | sort -u)
cut -d' ' -f2 "$work/found" | LC_ALL=C sort -u >"$work/digests"
touch "$record"
LC_ALL=C comm -3 <(grep -E '^[0-9a-f]{12}$' "$record") "$work/digests" >"$work/changed" || true
{
  echo "cubinery clean kernels 1"
  echo "nvrtc $versions"
  cat "$work/digests"
} >"$work/record"
cp "$work/record" "$record"
echo "$record: $(wc -l <"$work/digests") kernels, $(grep -c $'^\t' "$work/changed" || true) added," \
  "$(grep -vc $'^\t' "$work/changed" || true) dropped (NVRTC $versions)"
