#!/bin/sh
# Every source in this folder must fail to compile with the error that its first line names.
#   check.sh COMPILER FLAG...
set -u
folder=$(dirname "$0")
failed=0
for file in "$folder"/*.cc; do
  wanted=$(sed -n '1s,^// error: ,,p' "$file")
  [ -n "$wanted" ] || continue  # a test of its own
  if output=$("$@" -fsyntax-only -Werror=unused-result "$file" 2>&1); then
    echo "$file compiles; expected: $wanted"
    failed=1
  elif ! printf '%s\n' "$output" | grep 'error: ' | grep -qF "$wanted"; then
    printf '%s: expected the error: %s\n%s\n' "$file" "$wanted" "$output"
    failed=1
  fi
done
exit $failed
