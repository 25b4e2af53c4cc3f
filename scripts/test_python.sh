#!/usr/bin/env bash
# Builds the Python package's wheel once, and README's C program with it, then installs and tests it in a fresh environment of each interpreter:
# those given, or python3 and python3.11 to python3.13 as far as they are there.  Tests that need a GPU are skipped
# without one.  Exits 77 when there is no Python from 3.11 on.
#
#   scripts/test_python.sh python3.11 python3.13
set -euo pipefail
cd "$(dirname "$0")/.."

pythons=("$@")
if ((${#pythons[@]} == 0)); then
  seen=" "
  for python in python3 python3.11 python3.12 python3.13; do
    version=$("$python" -c 'import sys; assert sys.version_info >= (3, 11); print("%d.%d" % sys.version_info[:2])' \
      2>/dev/null) || continue
    [[ $seen == *" $version "* ]] && continue
    seen+="$version "
    pythons+=("$python")
  done
fi
if ((${#pythons[@]} == 0)); then
  echo "test_python.sh: no Python from 3.11 on" >&2
  exit 77
fi

export PIP_CONSTRAINT=$PWD/scripts/python_tools.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${pythons[0]}" -m venv "$work/build"
# The library without exceptions and RTTI, as engines may compile it, and unoptimised in few
# pieces, which is quicker; through a project
# that takes the source tree in, with a program of README's C block, as its user would.
tests/package/fetch_project.sh "$PWD" "$work/engine"
"$work/build/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work" \
  --config-settings=cmake.source-dir="$work/engine" \
  --config-settings=build.targets="cubinery_wheel;engine" \
  --config-settings=cmake.define.CUBINERY_C=ON \
  --config-settings=cmake.build-type=Debug \
  --config-settings=cmake.define.CMAKE_UNITY_BUILD_BATCH_SIZE=100 \
  --config-settings=cmake.define.CMAKE_CXX_FLAGS_DEBUG=-O0 \
  --config-settings="cmake.define.CMAKE_CXX_FLAGS=-fno-exceptions -fno-rtti" .
wheel=("$work"/cubinery-*.whl)
"${pythons[0]}" tests/package/notices.py "${wheel[0]}"
"${pythons[0]}" -m zipfile --extract "${wheel[0]}" "$work/inside"
tests/package/hardened.sh --unoptimised "$work"/inside/cubinery/_core.abi3.so "$work"/inside/cubinery-*.data/scripts/cubinery
# Tests of kernels with its headers are skipped where they cannot be had.
CUBINERY_CUTLASS_INCLUDE=$(scripts/cutlass_headers.sh) && export CUBINERY_CUTLASS_INCLUDE || unset CUBINERY_CUTLASS_INCLUDE
for python in "${pythons[@]}"; do
  rm -rf "$work/venv"
  "$python" -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet --disable-pip-version-check "${wheel[0]}[test]"
  "$work/venv/bin/python" --version
  "$work/venv/bin/cubinery" --version  # the wheel brings the command
  # Environments with engines (test_engine_wheels.py) once: they take a minute.
  engines=""
  if [[ $python == "${pythons[0]}" ]]; then engines=${wheel[0]}; fi
  CUBINERY_WHEEL=$engines "$work/venv/bin/python" -m pytest --quiet -p no:cacheprovider python/tests
done
