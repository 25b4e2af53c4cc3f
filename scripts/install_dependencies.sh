#!/usr/bin/env bash
# Installs what the build needs and is missing, from Debian's or Ubuntu's packages; with --site also what builds the
# documentation's site and looks at it.  The CUDA toolkit is the one thing that must be there already: the build needs its
# headers, NVRTC compiles the kernels.
set -euo pipefail

packages=(cmake ninja-build g++ pkg-config libfmt-dev nlohmann-json3-dev libxxhash-dev libdlpack-dev libcli11-dev
          catch2 bindfs libjs-chart.js
          python3-dev python3-pip python3-venv python3-jsonschema)
if [[ ${1:-} == --site ]]; then packages+=(doxygen fonts-dejavu-core); fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if ((${#missing[@]} > 0)); then
  as_root=()
  if ((EUID != 0)); then as_root=(sudo); fi
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

# Not every release has a Chromium without windows; the test that asks for one says so.
if [[ ${1:-} == --site ]] && ! command -v chromium-headless-shell >/dev/null; then
  as_root=()
  if ((EUID != 0)); then as_root=(sudo); fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends chromium-headless-shell || true
fi

if ! command -v nvcc >/dev/null && [[ ! -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]]; then
  echo "install_dependencies.sh: no CUDA toolkit (nvcc) found; install one (12.8 or newer) and put it on" \
       "PATH, in /usr/local/cuda, or in CUDA_HOME" >&2
  exit 1
fi
