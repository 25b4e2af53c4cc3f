#!/usr/bin/env bash
# Builds and runs README's blocks the way a user would: C++ and C in a project that finds the installed package with the
# CMake lines, or by pkg-config, or that takes the source tree in; the shell lines in the source tree.
#   check.sh install SOURCE BUILD     the installed package and the C++, C and CMake blocks
#   check.sh fetch SOURCE BUILD       the C block in a project of C alone that has the source tree inside
#   check.sh shell SOURCE BUILD       the shell blocks (README's commands use SOURCE/build)
set -euo pipefail
what=$1 source=$2 build=$3

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
if [[ $what == fetch ]]; then
  { blocks c; echo 'int main(void) { return cubinery_version()[0] == 0; }'; } >"$work/engine.c"
  cat >"$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.24)
project(engine LANGUAGES C)
include(FetchContent)
set(CUBINERY_C ON)
FetchContent_Declare(cubinery SOURCE_DIR $source)
FetchContent_MakeAvailable(cubinery)
add_executable(engine engine.c)
target_link_libraries(engine PRIVATE cubinery::cubinery_c)
END
  # Unoptimised, which is quicker.
  cmake -G Ninja -S "$work" -B "$work/build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_UNITY_BUILD=ON -DCMAKE_CXX_FLAGS_DEBUG=-O0
  cmake --build "$work/build"
  "$work/build/engine"
  exit 0
fi

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
  echo 'endif()'
} >"$work/engine/CMakeLists.txt"
cmake -G Ninja -S "$work/engine" -B "$work/engine/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_FLAGS="-Wall -Wextra" \
      -DCMAKE_C_FLAGS="-std=c11 -Wall -Wextra -Werror"
cmake --build "$work/engine/build"

# 0: prepared on a GPU.  2: no context, because there is no driver; anything else is a failure.
status=0
CUBINERY_CACHE_DIR="$work/cache" "$work/engine/build/engine" || status=$?
if [[ -x $work/prefix/bin/cubinery ]]; then "$work/prefix/bin/cubinery" --version; fi
[[ $status == 0 || $status == 2 ]]

# Without CMake.
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
# shellcheck disable=SC2046
c++ -std=c++20 "$work/engine/engine.cc" -o "$work/by_pkg_config" $(pkg-config --cflags --libs cubinery)
status=0
CUBINERY_CACHE_DIR="$work/cache" "$work/by_pkg_config" || status=$?
[[ $status == 0 || $status == 2 ]]
if [[ -e $work/prefix/lib/pkgconfig/cubinery_c.pc ]]; then
  # shellcheck disable=SC2046
  cc -std=c11 -shared -fPIC "$work/engine/engine.c" -o "$work/by_pkg_config.so" -Wl,--no-undefined \
    $(pkg-config --cflags --libs cubinery_c)
fi
for file in LICENSE THIRD_PARTY_LICENSES README.md docs/design.md examples/01_decode.cc; do
  test -s "$work/prefix/share/doc/cubinery/$file"
done
