#!/usr/bin/env bash
# What bash is offered after some command lines.
#   completion.sh CUBINERY
set -euo pipefail
source <("$1" completion)
cd "$(mktemp -d)"
trap 'rm -rf "$PWD"' EXIT
touch config.json
mkdir tuned

# expect WORDS... -- OFFERED...: the last of the words is the one that is typed.
expect() {
  COMP_WORDS=()
  while [[ $1 != -- ]]; do COMP_WORDS+=("$1") && shift; done
  shift
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
  _cubinery
  [[ ${COMPREPLY[*]} == "$*" ]] && return
  echo "after ${COMP_WORDS[*]}: ${COMPREPLY[*]}; expected: $*"
  exit 1
}
expect cubinery prew -- prewarm
expect cubinery cache l -- ls
expect cubinery prewarm --hf-c -- --hf-config
expect cubinery prewarm --hf-config c -- config.json
expect cubinery prewarm --cache-dir t -- tuned
expect cubinery prewarm --tp "" --
expect cubinery cache ls --js -- --json
expect cubinery tune --dry -- --dry-run
