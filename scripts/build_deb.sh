#!/usr/bin/env bash
# Builds a Debian package of the libraries, headers, documents and the command, into build-deb/, and prints its path.
# It fits the release that it is built on, and newer ones.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v dpkg-shlibdeps >/dev/null ||
  { echo "build_deb.sh: dpkg-shlibdeps is missing: apt-get install dpkg-dev" >&2; exit 77; }
{
  cmake --preset default -B build-deb -DCMAKE_INSTALL_PREFIX=/usr -DCUBINERY_TESTS=OFF -DCUBINERY_BENCHMARKS=OFF
  cmake --build build-deb
  cpack --config build-deb/CPackConfig.cmake -B build-deb
} >&2
echo "$PWD"/build-deb/cubinery_*.deb
