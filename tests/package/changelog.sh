#!/usr/bin/env bash
# CHANGELOG.md and CITATION.cff fit the version; dating a release leaves an empty Unreleased, and gives its notes.
#   changelog.sh SOURCE
set -euo pipefail
cd "$1"
# refused ARGUMENT...
refused() { if scripts/changelog.py "$@" 2>/dev/null; then echo "changelog.py $*: not refused" && exit 1; fi; }
scripts/changelog.py check
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp CMakeLists.txt CITATION.cff "$work"
version=$(scripts/changelog.py version)
printf '# Changelog\n\n## Unreleased\n\n- One.\n\n## 0.0.9 - 2020-01-02\n\n- Older.\n' >"$work/CHANGELOG.md"
refused notes --root "$work"
scripts/changelog.py date 2021-02-03 --root "$work"
scripts/changelog.py check --root "$work"
diff - "$work/CHANGELOG.md" <<END
# Changelog

## Unreleased

## $version - 2021-02-03

- One.

## 0.0.9 - 2020-01-02

- Older.
END
[[ $(scripts/changelog.py notes --root "$work") == "- One." ]]
grep -qx "version: $version" "$work/CITATION.cff"
grep -qx "date-released: 2021-02-03" "$work/CITATION.cff"
refused date --root "$work"  # twice
sed -i 's/2021-02-03/soon/' "$work/CHANGELOG.md"
refused check --root "$work"
