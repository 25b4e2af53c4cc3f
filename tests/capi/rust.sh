#!/usr/bin/env bash
# Builds and runs the Rust of a document against the library.
#   rust.sh DOCUMENT FOLDER
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo 'fn main() { println!("{:?}", c""); }' >"$work/new.rs"
if ! rustc --edition 2021 -o "$work/new" "$work/new.rs"; then
  echo "no rustc of 1.77 or newer"
  exit 77
fi
awk '$0 == "```rust" {on = 1; next} /^```/ {on = 0} on' "$1" >"$work/check.rs"
rustc --edition 2021 -o "$work/check" -L "$2" -C link-arg="-Wl,-rpath,$2" -D warnings "$work/check.rs"
mapfile -t lines < <("$work/check")
printf '%s\n' "${lines[@]}"
[[ ${lines[0]} == *'"v_heads":64,'* && ${lines[1]} == 'gdn_decode: key_dim = 100; accepted: '* ]]
