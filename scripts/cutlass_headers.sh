#!/usr/bin/env bash
# Prints where the headers of CUTLASS are: what CUBINERY_CUTLASS_INCLUDE names, or those of a package that is downloaded
# once.  Exits 77 where it cannot be had.
set -euo pipefail
if [[ -n ${CUBINERY_CUTLASS_INCLUDE:-} ]]; then
  echo "$CUBINERY_CUTLASS_INCLUDE"
  exit
fi
wanted=$(grep '^nvidia-cutlass==' "$(dirname "$0")/python_tools.txt")
kept=${XDG_CACHE_HOME:-$HOME/.cache}/cubinery-tests/$wanted
if [[ ! -d $kept ]]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$wanted" >&2 || exit 77
  python3 -m zipfile --extract "$work"/nvidia_cutlass-*.whl "$work/all"
  mkdir -p "$(dirname "$kept")"
  mv "$work/all/cutlass_library/source/include" "$work/include"
  # Of two that download side by side one comes first.
  mv -T "$work/include" "$kept" 2>/dev/null || [[ -d $kept ]]
fi
echo "$kept"
