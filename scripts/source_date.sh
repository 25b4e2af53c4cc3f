#!/usr/bin/env bash
# Prints the time of the sources, for SOURCE_DATE_EPOCH: that of the commit; in a tarball of one, which has no git, that
# of its files, which is the same.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ -n ${SOURCE_DATE_EPOCH:-} ]]; then
  echo "$SOURCE_DATE_EPOCH"
elif [[ -e .git ]]; then
  git log -1 --format=%ct
else
  stat --format=%Y CHANGELOG.md
fi
