#!/usr/bin/env bash
# Builds what is in DIRECTORY once more, from a clone in another folder with another umask, time zone and number of jobs,
# and fails where the bytes differ:
#   scripts/compare_builds.sh DIRECTORY     tarballs, and wheels of either machine; Debian packages of this one's release
set -euo pipefail
directory=$(realpath "$1")
cd "$(dirname "$0")/.."
source=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clone=$work/another/folder
git clone --quiet "file://$source" "$clone"
export TZ=Asia/Kathmandu LC_ALL=C CMAKE_BUILD_PARALLEL_LEVEL=1
umask 077
shopt -s nullglob
cd "$clone"
if ls "$directory"/*.tar.gz >/dev/null 2>&1; then scripts/build_source.sh "$work/new"; fi
for wheel in "$directory"/*.whl; do
  scripts/build_wheel.sh "$work/new" "$(sed -E 's/.*[0-9]_(x86_64|aarch64)\.whl$/\1/' <<<"$wheel")"
done
# shellcheck disable=SC1091
release=$(. /etc/os-release && echo "${ID/debian/deb}${VERSION_ID:-}")
if compgen -G "$directory/*+${release}_*.deb" >/dev/null; then scripts/build_deb.sh "$work/new"; fi
status=0
for file in "$work"/new/*; do
  if cmp "$file" "$directory/${file##*/}"; then
    echo "equal: ${file##*/}"
  else
    status=1
  fi
done
exit $status
