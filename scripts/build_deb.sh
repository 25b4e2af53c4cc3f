#!/usr/bin/env bash
# Builds Debian packages and prints their paths, in build-deb/ or DIRECTORY: the C library (libcubinery-c0.1), what C++
# and C programs are built with (libcubinery-dev), and the command (cubinery).  They fit the release that they are built
# on, which their version names, and newer ones.
#
#   scripts/build_deb.sh [DIRECTORY]
set -euo pipefail
directory=$(realpath -m "${1:-$(dirname "$0")/../build-deb}")
cd "$(dirname "$0")/.."
for tool in dpkg-shlibdeps file; do  # CPack's for dependencies
  command -v $tool >/dev/null ||
    { echo "build_deb.sh: $tool is missing: apt-get install dpkg-dev file" >&2; exit 77; }
done
# shellcheck disable=SC1091
release=$(. /etc/os-release && echo "1+${ID/debian/deb}${VERSION_ID:-}")
umask 022  # which folders in packages have
SOURCE_DATE_EPOCH=$(scripts/source_date.sh)
export SOURCE_DATE_EPOCH
rm -f build-deb/*.deb
{
  cmake --preset default -B build-deb -DCMAKE_INSTALL_PREFIX=/usr -DCUBINERY_TESTS=OFF -DCUBINERY_BENCHMARKS=OFF \
    -DCUBINERY_DEB_RELEASE="$release"
  cmake --build build-deb
  tests/capi/exports.sh include/cubinery/c_api.h build-deb/capi/libcubinery_c.so packaging/libcubinery_c.symbols.in
  cpack --config build-deb/CPackConfig.cmake -B build-deb
} >&2
mkdir -p "$directory"
for package in build-deb/*.deb; do
  if [[ ! $directory -ef build-deb ]]; then cp "$package" "$directory"; fi
  echo "$directory/${package##*/}"
done
