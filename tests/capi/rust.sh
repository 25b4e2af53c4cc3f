#!/usr/bin/env bash
# Builds and runs the Rust of a document against the library, with the document's own commands.
#   rust.sh DOCUMENT FOLDER
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo 'fn main() { println!("{:?}", c""); }' >"$work/new.rs"
if ! rustc --edition 2021 -o "$work/new" "$work/new.rs"; then
  echo "no rustc of 1.77 or newer"
  exit 77
fi
blocks() { awk -v fence="\`\`\`$1" '$0 == fence {on = 1; next} /^```/ {on = 0} on' "$2"; }
blocks rust "$1" >"$work/check.rs"
commands=$(blocks sh "$1")
[[ $commands == *rustc*check.rs*./check* ]]

# The commands find the library where README installs it.
export RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup} CARGO_HOME=${CARGO_HOME:-$HOME/.cargo}
export HOME=$work
mkdir "$HOME/.local"
ln -s "$2" "$HOME/.local/lib"
cd "$work"
mapfile -t lines < <(bash -euo pipefail -c "$commands")
printf '%s\n' "${lines[@]}"
[[ ${lines[0]} == *'"v_heads":64,'* && ${lines[1]} == 'gdn_decode: key_dim = 100; accepted: '* ]]
