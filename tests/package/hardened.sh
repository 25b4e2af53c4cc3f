#!/usr/bin/env bash
# Checks that what is shipped was built as scripts/hardening.cmake has it:
#   hardened.sh [--unoptimised] FILE...     programs and shared libraries; archives, of which the objects are looked at
# What stands in the way of a program's landing pads is named: the property is the linked file's only if every object has
# it, those of the C library and of the compiler too, and Debian's crt files have not.
set -euo pipefail
fortified=1
if [[ ${1:-} == --unoptimised ]]; then fortified=0; shift; fi
status=0

# complain FILE WHAT
complain() {
  echo "$1: $2"
  status=1
}

# has_landing_pads FILE: every object in it.
has_landing_pads() {
  local objects marked
  objects=$(readelf -Wh "$1" | grep -c 'ELF Header:')
  marked=$(readelf -Wn "$1" 2>/dev/null | grep -c 'IBT, SHSTK')
  ((objects > 0 && objects == marked))
}

# for_x86_64 FILE: whether it was compiled for that; others have no such pads.
for_x86_64() { readelf -Wh "$1" 2>/dev/null | grep 'Machine: .*X86-64' >/dev/null; }

cxx=${CXX:-c++}
starts_with_pads=1  # whether the toolchain's own objects have them
for name in crti.o crtbeginS.o Scrt1.o; do
  has_landing_pads "$("$cxx" -print-file-name=$name)" || starts_with_pads=0
done

for file in "$@"; do
  symbols=$(nm --undefined-only "$file" 2>/dev/null; nm --dynamic --undefined-only "$file" 2>/dev/null || true)
  grep -q '__stack_chk_fail' <<<"$symbols" || complain "$file" "no stack protector"
  if ((fortified)); then
    grep -qE '__(mem|str|sn|vsn|f|read|pread|realpath|get|recv)\w*_chk' <<<"$symbols" || complain "$file" "no checked call of the C library"
  fi
  if [[ $file == *.a ]]; then
    if for_x86_64 "$file"; then has_landing_pads "$file" || complain "$file" "objects without landing pads"; fi
    continue
  fi
  dynamic=$(readelf -Wd "$file")
  segments=$(readelf -Wl "$file")
  grep -qE 'BIND_NOW|FLAGS_1.*NOW' <<<"$dynamic" || complain "$file" "bound lazily"
  grep -q 'GNU_RELRO' <<<"$segments" || complain "$file" "the linker's tables stay writable"
  grep 'GNU_STACK' <<<"$segments" | grep -q 'RW ' || complain "$file" "an executable stack"
  if grep -q 'LOAD .* RWE' <<<"$segments"; then complain "$file" "a segment that is writable and code"; fi
  if for_x86_64 "$file" && ((starts_with_pads)); then
    has_landing_pads "$file" || complain "$file" "no landing pads, which every object of the toolchain has"
  fi
done
exit $status
