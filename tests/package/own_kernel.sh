#!/usr/bin/env bash
# The steps of docs/own_kernel.md.
#   own_kernel.sh run PROGRAM FAKE_DRIVER         runs one in its folder, with a cache of its own.  Without a GPU it
#                                                 launches on the fake driver
#   own_kernel.sh ship SOURCE BUILD FAKE_DRIVER   from an empty folder to a kernel in a pack that is found offline: the
#                                                 page's programs, built with the installed package; with the headers of
#                                                 CUTLASS too, where they can be had (scripts/cutlass_headers.sh)
set -euo pipefail
what=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CUBINERY_CACHE_DIR=$work/cache
unset CUBINERY_CACHE_LAYERS CUBINERY_OFFLINE
cuda=$(readlink -f "${CUDA_HOME:-/usr/local/cuda}")
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)

# Runs a program that launches.  The CUDA runtime, which it takes memory from, has no fake: without a GPU its last line
# returns that there is no driver (35) or no device (100), and all in front of it has worked.
launch() {
  local status=0
  "$@" || status=$?
  [[ $status == 0 || -n ${CUBINERY_DRIVER:-} && ($status == 35 || $status == 100) ]]
}
use_fake() { [[ -e /dev/nvidiactl ]] || export CUBINERY_DRIVER=$1; }

if [[ $what == run ]]; then
  program=$2
  use_fake "$3"
  folders=()
  if [[ $program == *cute ]]; then
    cutlass=$("$scripts/cutlass_headers.sh") || { echo "skipped: no headers of CUTLASS" && exit 77; }
    folders=("$cutlass" "$cuda/include" "$cuda/include/cccl")
  fi
  launch "$program" "${folders[@]}"
  exit
fi

source=$2 build=$3 fake_driver=$4
cmake --install "$build" --prefix "$work/prefix" >/dev/null
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig PATH=$work/prefix/bin:$PATH
mkdir "$work/empty"
cd "$work/empty"
cp -r "$source/examples/own_kernel/include" .

# built NAME: the program.
built() {
  # shellcheck disable=SC2046
  c++ -std=c++20 -Wall -Wextra -Werror "$source/examples/own_kernel/$1.cc" -o "$1" -I "$cuda/include" \
    $(pkg-config --cflags --libs cubinery) "$cuda/lib64/libcudart_static.a" -lrt -lpthread -ldl
}

# offline COMMAND...: on a machine that has the pack, and neither a cache nor a compiler.
offline() (
  export CUBINERY_CACHE_DIR=$work/none CUBINERY_CACHE_LAYERS=$work/empty/my.pack CUBINERY_OFFLINE=1
  export CUBINERY_NVRTC=/nowhere
  "$@"
)

# Filled without a GPU and a driver, shipped, found.
built 5_ship
./5_ship sm_90a | tee made.txt
grep -q "^compiled $CUBINERY_CACHE_DIR/entries/activate-" made.txt
cubinery cache export --arch sm_90a -o my.pack
rm -r "$CUBINERY_CACHE_DIR"
offline ./5_ship sm_90a | tee found.txt
grep -q '^disk .*my.pack' found.txt
use_fake "$fake_driver"
offline launch ./5_ship
# An edited header is another kernel, and the old text the old one again.
echo '// edited' >>include/gelu.h
if offline launch ./5_ship 2>refused.txt; then exit 1; fi
grep -q 'not in the cache.*differs in what it includes' refused.txt
cp "$source/examples/own_kernel/include/gelu.h" include
offline launch ./5_ship

built 2_header
CUBINERY_RECORD=own.json launch ./2_header
rm -rf "$CUBINERY_CACHE_DIR"
env -u CUBINERY_DRIVER cubinery prewarm --manifest own.json --arch sm_90a
rm my.pack
cubinery cache export --arch sm_90a -o my.pack
offline launch ./2_header

cutlass=$("$scripts/cutlass_headers.sh") || { echo "without CUTLASS: its headers cannot be had" && exit; }
built 2_cute
folders=("$cutlass" "$cuda/include" "$cuda/include/cccl")
# A program that only launches: what it asked for is recorded, and made without a GPU.
CUBINERY_RECORD=kernels.json launch ./2_cute "${folders[@]}"
rm -rf "$CUBINERY_CACHE_DIR"
env -u CUBINERY_DRIVER cubinery prewarm --manifest kernels.json --arch sm_90a
cubinery cache export --arch sm_90a -o my.pack
offline launch ./2_cute "${folders[@]}"
