#!/usr/bin/env bash
# Checks who includes whom: codegen -> nothing of ours; cache -> codegen; runtime -> codegen, cache; capi ->
# runtime; templates -> templates.  cuda.h and nvrtc.h belong to runtime/.  Public headers include the standard library and each other.
set -uo pipefail
cd "$(dirname "$0")/.."
status=0

# check FOLDER ALLOWED-REGEX: every quoted include of FOLDER matches, or is a public header.
check() {
  local bad
  bad=$(grep -rnE '^#include "' "$1" | grep -vE "#include \"($2|cubinery/)") || return 0
  echo "$bad" | sed "s|^|layers: $1 may not include: |"
  status=1
}
check include 'cubinery/'
kernels='common/|gdn_decode/|gdn_prefill_chunks/|gdn_prefill_scan/'
check codegen 'codegen/'
check cache 'cache/|codegen/'
check runtime "runtime/|cache/|codegen/|$kernels"
check templates "$kernels"
check capi 'capi/|runtime/'
check cli "cli/|runtime/|cache/|codegen/|$kernels"
check python "array_views|tests/data/|$kernels"

if grep -rnE '#include <(cuda|nvrtc)' include codegen cache capi cli templates; then
  echo "layers: CUDA headers belong to runtime/"
  status=1
fi
if grep -rnE '#include <(fmt|nlohmann|xxhash|CLI)' include; then
  echo "layers: public headers take no third-party header"
  status=1
fi
exit $status
