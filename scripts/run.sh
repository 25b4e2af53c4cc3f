#!/usr/bin/env bash
# Installs what is missing, builds, and pre-warms the kernel cache for Qwen3-Next on four architectures.  On a
# machine with a GPU it then runs the decode example, which checks the kernels against the reference.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh
cmake --preset default
cmake --build --preset default --target cubinery_cli example_01_decode

export CUBINERY_CACHE_DIR="${CUBINERY_CACHE_DIR:-$PWD/build/kernel-cache}"
build/cli/cubinery prewarm --hf-config tests/data/models/Qwen3-Next-80B-A3B-Instruct/config.json \
  --tp 1,2,4,8 --arch sm_80,sm_90a,sm_100a,sm_120a
build/cli/cubinery cache ls

status=0
build/examples/example_01_decode || status=$?
if ((status == 77)); then exit 0; fi  # no GPU
exit "$status"
