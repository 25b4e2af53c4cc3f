#!/usr/bin/env bash
# Installs a build, and builds and runs README's blocks against it, the way a user would: C++ and C in a project that
# finds the package with the CMake lines, the shell lines in the source tree.
#   check.sh install SOURCE BUILD FAKE_DRIVER   the package and the C++, C and CMake blocks; the programs find what
#                                               README's prewarm compiles
#   check.sh shell SOURCE BUILD                 the shell blocks (README's commands use SOURCE/build)
set -euo pipefail
what=$1 source=$2 build=$3 fake_driver=${4:-}

# The lines of README's blocks in a language.
blocks() { awk -v fence="\`\`\`$1" '$0 == fence {on = 1; next} /^```/ {on = 0} on' "$source/README.md"; }

if [[ $what == shell ]]; then
  if [[ ! $source/build -ef $build ]]; then
    echo "README's commands use $source/build, this build is $build"
    exit 77
  fi
  cd "$source"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  while read -r line; do
    case $line in
      scripts/test.sh) continue ;;  # what runs this
      "pip install .") continue ;;  # the test `python`: scripts/test_python.sh
    esac
    echo "+ $line"
    DESTDIR=$work bash -euo pipefail -c "$line"  # an installation goes there
  done < <(blocks sh)
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
mkdir "$work/engine"
blocks cpp >"$work/engine/engine.cc"
blocks c >"$work/engine/engine.c"
{
  echo 'cmake_minimum_required(VERSION 3.24)'
  echo 'project(engine LANGUAGES C CXX)'
  echo 'add_executable(engine engine.cc)'
  blocks cmake
  echo 'if(TARGET cubinery::cubinery_c)'
  echo '  add_library(engine_c SHARED engine.c)'
  echo '  target_link_libraries(engine_c PRIVATE cubinery::cubinery_c)'
  echo '  target_link_options(engine_c PRIVATE -Wl,--no-undefined)'
  echo "  add_executable(offline $source/tests/package/offline.cc)"
  echo '  find_package(CUDAToolkit REQUIRED)'
  echo "  target_include_directories(offline PRIVATE $work/engine $source \${CUDAToolkit_INCLUDE_DIRS})"
  echo '  target_link_libraries(offline PRIVATE cubinery::cubinery engine_c cubinery::cubinery_c)'
  echo 'endif()'
} >"$work/engine/CMakeLists.txt"
cmake -S "$work/engine" -B "$work/engine/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_FLAGS="-Wall -Wextra" \
      -DCMAKE_C_FLAGS="-std=c11 -Wall -Wextra -Werror"
cmake --build "$work/engine/build"

# 0: prepared on a GPU.  2: no context, because there is no driver; anything else is a failure.
status=0
config=$source/tests/data/models/Qwen3.5-27B/config.json
CUBINERY_CACHE_DIR="$work/cache" "$work/engine/build/engine" "$config" || status=$?
[[ $status == 0 || $status == 2 ]]
if [[ ! -x $work/prefix/bin/cubinery ]]; then exit 0; fi
"$work/prefix/bin/cubinery" --version
if [[ ! -x $work/engine/build/offline ]]; then exit 0; fi

# README's own command fills the cache that its programs use.
prewarm=$(blocks sh | grep 'cubinery prewarm' | sed "s|build/cli/cubinery|$work/prefix/bin/cubinery|; s| --dry-run||")
echo "+ $prewarm"
export CUBINERY_CACHE_DIR=$work/offline
(cd "$source" && bash -euo pipefail -c "$prewarm")
CUBINERY_OFFLINE=1 CUBINERY_DRIVER=$fake_driver "$work/engine/build/offline" "$fake_driver" "$config"
