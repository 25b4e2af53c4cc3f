#!/usr/bin/env bash
# Installs a build, and builds the C example against it in a project of C alone, the way a user would.
#   package.sh SOURCE BUILD
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
mkdir "$work/engine"
cat >"$work/engine/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.24)
project(engine LANGUAGES C)
find_package(CUDAToolkit REQUIRED)
find_package(cubinery REQUIRED)
add_executable(engine $source/examples/04_c_decode.c)
target_link_libraries(engine PRIVATE cubinery::cubinery_c CUDA::cudart_static m)
EOF
cmake -G Ninja -S "$work/engine" -B "$work/engine/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
      -DCMAKE_C_FLAGS="-std=c11 -Wall -Wextra"
cmake --build "$work/engine/build"

# 77: no GPU.
status=0
CUBINERY_CACHE_DIR="$work/cache" "$work/engine/build/engine" || status=$?
[[ $status == 0 || $status == 77 ]]
