#!/usr/bin/env bash
# Checks who includes whom.  Arrows go one way, from the bottom to the top of this list:
#
#   codegen            nothing of ours
#   cache              codegen
#   results            what the runtime asks: records, results, the ladder, targets
#   tuner/report       reports about records
#   runtime/jit        from a kernel's specification to a loaded kernel
#   runtime/operator   what operators have in common; knows no operator
#   runtime/gdn        the Gated DeltaNet operators
#   runtime/registry   the operators by name
#   tuner/measure      what runs on a GPU to tune; knows no operator
#   harness            operands, references and tunables of the Gated DeltaNet operators
#   capi, cli          all of these
#
# templates include templates.  cuda.h and nvrtc.h belong to runtime/jit, runtime/operator, tuner/measure and harness.
# Public headers include the standard library and each other; those of include/cubinery/compat also what the headers
# include in whose place they are, and they read the environment as those do.
set -uo pipefail
cd "$(dirname "$0")/.."
status=0

# check FOLDER ALLOWED-REGEX: every quoted include of the folder matches, or is a public header.
check() {
  local bad
  bad=$(grep -rnE '^#include "' "$1" | grep -vE "#include \"($2|cubinery/)") || return 0
  echo "$bad" | sed "s|^|layers: $1 may not include: |"
  status=1
}
kernels='common/|gdn_commit/|gdn_conv/|gdn_decode/|gdn_prefill_chunks/|gdn_prefill_scan/|gdn_verify/|gdn_verify_wy/'
choose='results/|cache/|codegen/'
operator="runtime/operator/|runtime/jit/|$choose"
check include 'cubinery/'
check codegen 'codegen/'
check cache 'cache/|codegen/'
check results "$choose"
check tuner/report "tuner/report/|$choose"
check runtime/jit "runtime/jit/|$choose"
check runtime/operator "$operator"
check runtime/gdn "runtime/gdn/|$operator|$kernels"
check runtime/registry "runtime/registry/|runtime/gdn/|$operator|$kernels"
check tuner/measure "tuner/measure/|$operator"
check harness "harness/|tuner/measure/|runtime/registry/|runtime/gdn/|$operator|$kernels"
check templates "$kernels"
check capi 'capi/|runtime/|tuner/|results/|harness/|codegen/'
check cli "cli/|tuner/|results/|harness/|runtime/|cache/|codegen/|$kernels"
check python "array_views|module|handles\.h|kernel\.h|given_source\.h|source_tuning\.h|kernel_arguments\.h|parameter_kinds\.h|operator\.h|capi/dl_data|capi/for_python|runtime/gdn/operators|tests/data/|$kernels"

if grep -rnE '#include <(cuda|nvrtc)' include codegen cache capi cli templates results tuner/report runtime/gdn \
    runtime/registry | grep -v '^include/cubinery/compat/'; then
  echo "layers: CUDA headers belong to runtime/jit, runtime/operator, tuner/measure and harness"
  status=1
fi
if grep -rnE '#include <(fmt|nlohmann|xxhash|CLI)' include; then
  echo "layers: public headers take no third-party header"
  status=1
fi
if grep -rnE 'getenv *\(' include codegen cache templates results tuner harness runtime capi cli python/*.cc |
    grep -vE '^(runtime/jit/options\.cc|include/cubinery/compat/deep_jit/utils/env\.hpp):.*::secure_getenv\('; then
  echo "layers: the environment is read by environment_variable() only"
  status=1
fi
if grep -rnE '(json|Json)(::|\(\)\.)(sax_parse|parse|accept)\(|(json|Json)::from_|operator""_json' codegen cache runtime results tuner harness \
    capi cli python --include='*.cc' --include='*.h' | grep -v '^codegen/read_json\.cc:'; then
  echo "layers: JSON is read by read_json() of codegen/read_json.h, which has limits"
  status=1
fi
exit $status
