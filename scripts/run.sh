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
archs=${1:-sm_80,sm_90a,sm_100a,sm_120a}
build/cli/cubinery prewarm --hf-config tests/data/models/Qwen3-Next-80B-A3B-Instruct/config.json --tp 1,2,4,8 \
  --arch "$archs"

checked="decode and prefill gave right numbers on this GPU"
for example in 01_decode 03_prefill; do
  status=0
  "build/examples/example_$example" || status=$?
  if ((status == 77)); then
    checked="nothing was launched, for want of a GPU"
    break
  fi
  if ((status != 0)); then exit "$status"; fi
done

cat <<END

It worked: the kernels of Qwen3-Next, at tensor parallel sizes 1, 2, 4 and 8, for $archs, are compiled;
$checked.
Next: the kernels of your model    build/cli/cubinery prewarm --hf-config config.json --tp 1 --arch sm_90a
      what this machine can do     build/cli/cubinery doctor
      in Python, vLLM, SGLang      docs/python.md, docs/engines.md
END
