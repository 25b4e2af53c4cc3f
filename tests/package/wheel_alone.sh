#!/usr/bin/env bash
# On a machine that has Python and the wheel in brought/, and neither a compiler nor a CUDA toolkit: pip brings NVRTC, the
# command compiles and packs a model's kernels, and Python finds them in the pack.
set -euo pipefail
cd "$(dirname "$0")/../.."
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
python3 -m venv /tmp/venv
export PIP_CONSTRAINT=$PWD/scripts/python_tools.txt
/tmp/venv/bin/pip install --quiet brought/*.whl nvidia-cuda-nvrtc
config=tests/data/models/Qwen3.5-27B/config.json
/tmp/venv/bin/cubinery doctor
/tmp/venv/bin/cubinery prewarm --hf-config "$config" --tp 2 --arch sm_90a --cache-dir /tmp/made
/tmp/venv/bin/cubinery cache export --arch sm_90a -o /tmp/my.pack --cache-dir /tmp/made
/tmp/venv/bin/pip uninstall --quiet --yes nvidia-cuda-nvrtc
/tmp/venv/bin/python - "$config" <<'END'
import sys, cubinery
context = cubinery.Context(-1, arch="sm_90a", offline=True, cache_dir="/tmp/empty", cache_layers=["/tmp/my.pack"])
problems = cubinery.problems_for_model(sys.argv[1], tp=2)
for problem in (problems.decode, problems.prefill):
    print({kernel["kernel"]: kernel["source"] for kernel in context.compile(problem)})
END
