#!/usr/bin/env bash
# Runs tests with an NVRTC of CUDA 12, of the PyPI wheel of that version, which is put below FOLDER and stays there.
# Exits with 77 where it cannot be had.
#
#   nvrtc_of_cuda12.sh VERSION FOLDER PROGRAM FILTER [PROGRAM FILTER ...]
set -euo pipefail
version=$1 folder=$2/$1
shift 2

library=$folder/nvidia/cuda_nvrtc/lib/libnvrtc.so.12
if [[ ! -e $library ]]; then
  mkdir -p "${folder%/*}"
  work=$(mktemp -d "$folder.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  if ! timeout 120 python3 -m pip download --quiet --no-deps --only-binary :all: --retries 1 --timeout 15 \
    --dest "$work" "nvidia-cuda-nvrtc-cu12==$version" 2>"$work/log"; then
    echo "skipped: nvidia-cuda-nvrtc-cu12 $version cannot be had: $(tail -n 1 "$work/log")"
    exit 77
  fi
  python3 -m zipfile -e "$work"/*.whl "$work/wheel"
  chmod -R go-w "$work/wheel"
  mv -T "$work/wheel" "$folder"
fi

export CUBINERY_NVRTC=$library
while (($# > 0)); do
  echo "$1 \"$2\" with NVRTC $version"
  "$1" "$2"
  shift 2
done
