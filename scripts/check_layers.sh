#!/usr/bin/env bash
# Checks who includes whom: codegen -> nothing of ours; cache -> codegen; tuner -> codegen, cache; runtime -> tuner,
# codegen, cache; tuner/measure -> all of these; capi -> runtime, tuner; templates -> templates.  cuda.h and nvrtc.h
# belong to runtime/ and tuner/measure/.  Public headers include the standard library and each other.
set -uo pipefail
cd "$(dirname "$0")/.."
status=0

# check NAME ALLOWED-REGEX [FILE...]: every quoted include of the files (without any: of the folder NAME) matches, or
# is a public header.
check() {
  local bad
  bad=$(grep -rnE '^#include "' "${@:3}" $([[ $# -gt 2 ]] || echo "$1") | grep -vE "#include \"($2|cubinery/)") || return 0
  echo "$bad" | sed "s|^|layers: $1 may not include: |"
  status=1
}
check include 'cubinery/'
kernels='common/|gdn_decode/|gdn_prefill_chunks/|gdn_prefill_scan/'
check codegen 'codegen/'
check cache 'cache/|codegen/'
pure_tuner='tuner/[a-z_]+\.h'
check tuner "$pure_tuner|cache/|codegen/|$kernels" tuner/*.h tuner/*.cc
check runtime "runtime/|$pure_tuner|cache/|codegen/|$kernels"
check tuner/measure "tuner/|runtime/|cache/|codegen/|$kernels"
check templates "$kernels"
check capi 'capi/|runtime/|tuner/'
check cli "cli/|tuner/|runtime/|cache/|codegen/|$kernels"
check python "array_views|tests/data/|$kernels"

if grep -rnE '#include <(cuda|nvrtc)' include codegen cache capi cli templates tuner/*.h tuner/*.cc; then
  echo "layers: CUDA headers belong to runtime/ and tuner/measure/"
  status=1
fi
if grep -rnE '#include <(fmt|nlohmann|xxhash|CLI)' include; then
  echo "layers: public headers take no third-party header"
  status=1
fi
exit $status
