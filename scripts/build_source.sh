#!/usr/bin/env bash
# Makes of the commit that is checked out, and prints their paths, in dist/ or DIRECTORY:
#   cubinery-VERSION-source.tar.gz   everything; builds without git, as README has it
#   cubinery-VERSION.tar.gz          what pip builds the wheel from (sdist)
#
#   scripts/build_source.sh [DIRECTORY]
set -euo pipefail
directory=$(realpath -m "${1:-$(dirname "$0")/../dist}")
cd "$(dirname "$0")/.."
if [[ ! -e .git ]]; then
  echo "build_source.sh: not in a git repository" >&2
  exit 77
fi
version=$(scripts/changelog.py version)
PIP_CONSTRAINT=$PWD/scripts/python_tools.txt
SOURCE_DATE_EPOCH=$(scripts/source_date.sh)
export PIP_CONSTRAINT SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$directory"

git -c tar.umask=0022 archive --format=tar --prefix="cubinery-$version/" HEAD | gzip -n -9 >"$work/source.tar.gz"
tar -xf "$work/source.tar.gz" -C "$work"
python3 -m venv "$work/build"
"$work/build/bin/pip" install --quiet --disable-pip-version-check scikit-build-core
(cd "$work/cubinery-$version" && "$work/build/bin/python" -c \
  'import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])' "$work/sdist" >&2)
mv "$work/source.tar.gz" "$directory/cubinery-$version-source.tar.gz"
mv "$work/sdist/cubinery-$version.tar.gz" "$directory"
echo "$directory/cubinery-$version-source.tar.gz"
echo "$directory/cubinery-$version.tar.gz"
