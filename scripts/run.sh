#!/usr/bin/env bash
# Installs what is missing, builds, and pre-warms the kernel cache for Qwen3-Next on four architectures, or those given.
# On a machine with a GPU it then runs the decode and prefill examples, which check the kernels.
#
#   scripts/run.sh [ARCH,...]
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh
cmake --preset default
cmake --build --preset default --target cubinery_cli example_01_decode example_03_prefill

export CUBINERY_CACHE_DIR="${CUBINERY_CACHE_DIR:-$PWD/build/kernel-cache}"
build/cli/cubinery prewarm --hf-config tests/data/models/Qwen3-Next-80B-A3B-Instruct/config.json \
  --tp 1,2,4,8 --arch "${1:-sm_80,sm_90a,sm_100a,sm_120a}"
build/cli/cubinery cache ls

for example in 01_decode 03_prefill; do
  status=0
  "build/examples/example_$example" || status=$?
  if ((status != 0 && status != 77)); then exit "$status"; fi  # 77: no GPU
done
