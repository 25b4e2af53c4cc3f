#!/usr/bin/env bash
# Tries a wheel for another processor under qemu-user, in Debian 12's Python, with NVRTC of that processor from PyPI: the
# command compiles and packs a kernel, and the module finds it in the pack.
#   wheel_emulated.sh WHEEL MACHINE         aarch64
set -euo pipefail
wheel=$(realpath "$1") machine=$2
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PIP_CONSTRAINT=$PWD/scripts/python_tools.txt
scripts/fetch_root.sh "$work/root" arm64 bookworm libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libffi8 libssl3 \
  libpython3.11-minimal libpython3.11-stdlib python3.11-minimal
python3 -m zipfile --extract "$wheel" "$work/site"
pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --platform "manylinux2014_$machine" \
  --dest "$work/nvrtc" nvidia-cuda-nvrtc
python3 -m zipfile --extract "$work"/nvrtc/*.whl "$work/site"
command=$(echo "$work"/site/cubinery-*.data/scripts/cubinery)
chmod +x "$command"  # which zipfile does not keep
nvrtc=$(find "$work/site/nvidia" -name 'libnvrtc.so.*' | head -n 1)
emulated() {
  CUBINERY_NVRTC=$nvrtc CUBINERY_CACHE_DIR=$work/cache PYTHONHOME=$work/root/usr PYTHONPATH=$work/site \
    "qemu-$machine-static" -L "$work/root" "$@"
}

config=$PWD/tests/data/models/Qwen3.5-27B/config.json
cd "$work"
emulated "$command" --version
emulated "$command" operators >operators
emulated "$command" problems --hf-config "$config" --tp 2 >problems
emulated "$command" prewarm --op gdn_commit --key-dim 128 --arch sm_90a
emulated "$command" cache verify
emulated "$command" cache export --arch sm_90a -o my.pack
emulated root/usr/bin/python3.11 - "$config" "$work" <<'END'
import platform, sys, cubinery
print(cubinery.__version__, platform.machine(), *platform.libc_ver())
problems = cubinery.problems_for_model(sys.argv[1], tp=2)
problems.decode.check()
context = cubinery.Context(-1, arch="sm_90a", offline=True, cache_dir=sys.argv[2] + "/empty",
                           cache_layers=[sys.argv[2] + "/my.pack"])
print({kernel["kernel"]: kernel["source"] for kernel in context.compile(cubinery.CommitProblem())})
END
