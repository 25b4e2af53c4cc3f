#!/bin/sh
# The examples in comments of the public headers must compile.  An example is a run of comment lines indented by three
# blanks or more, the last of which ends with a semicolon; the names that it uses are declared in examples.h.  Each header
# of compat/ compiles by itself: found as cubinery's, and as that of the library in whose place it is.
#   check.sh HEADERS COMPILER FLAG...
set -u
folder=$(dirname "$0")
headers=$1
shift
source=$(mktemp --suffix=.cc) || exit 1
trap 'rm -f "$source"' EXIT

# Prints the examples of a header: templates as they are, the rest each in a function of its own.
examples() {
  awk -v header="$(basename "$1")" '
    function flush() {
      if (is_code && text ~ /(^|\n) *template </) print "#line " first " \"" header "\"\n" text
      else if (is_code) {
        print "int example_" id "_" ++count "(Surroundings& s) {\n  SURROUNDINGS(s)\n  {"
        print "#line " first " \"" header "\"\n" text "  }\n  return 0;\n}"
      }
      text = ""; is_code = 0
    }
    BEGIN { id = header; gsub(/[^a-z]/, "_", id) }
    /^ *\/\/   / {
      if (text == "") first = NR
      sub(/^ *\/\//, ""); text = text $0 "\n"
      is_code = $0 ~ /; *(\/\/.*)?$/
      next
    }
    { flush() }
    END { flush() }' "$1"
}

{
  printf '#include "%s/examples.h"\n' "$folder"
  # Tables of keys first: other headers use the keys.
  examples "$headers/fields.h"
  for header in "$headers"/*.h; do
    [ "$(basename "$header")" = fields.h ] || examples "$header"
  done
} >"$source"
found=$(grep -c '^int example_' "$source")
if [ "$found" -lt 4 ]; then
  echo "$found examples found in $headers; expected 4 or more"
  exit 1
fi
"$@" -fsyntax-only "$source" || exit 1

tested=0
by_path=$source.by_path.cc
trap 'rm -f "$source" "$by_path"' EXIT
for header in $(cd "$headers/compat" && find . -name '*.hpp' | sort); do
  header=${header#./}
  if grep -q '^#include <pybind11/' "$headers/compat/$header" &&
     ! echo '#include <pybind11/pybind11.h>' | "$@" -fsyntax-only -x c++ - 2>/dev/null; then
    continue
  fi
  echo "#include <cubinery/compat/$header>" >"$source"
  "$@" -fsyntax-only "$source" || exit 1
  echo "#include <$header>" >>"$by_path"
  tested=$((tested + 1))
done
if [ "$tested" -lt 13 ]; then
  echo "$tested headers found in $headers/compat; expected 13 or more"
  exit 1
fi
"$@" -I"$headers/compat" -fsyntax-only "$by_path"
