#!/usr/bin/env bash
# Builds and runs README's blocks the way a user would: C++ and C in a project that finds the installed package with the
# CMake lines, or by pkg-config; the shell lines in the source tree.  A project that takes the source tree in is
# fetch_project.sh's.
#   check.sh install SOURCE BUILD FAKE_DRIVER EMPTY_NVRTC
#                                 the package and the C++, C and CMake blocks; the programs, and one with a kernel of
#                                 its own, run offline from a pack of what prewarm compiles: empty kernels, but for its
#                                 own, as no GPU runs them; the device headers compile with nvcc
#   check.sh shell SOURCE BUILD   the shell blocks (README's commands use SOURCE/build)
set -euo pipefail
what=$1 source=$2 build=$3 fake_driver=${4:-} empty_nvrtc=${5:-}

# The lines of README's blocks in a language, or of another page's.
blocks() { awk -v fence="\`\`\`$1" '$0 == fence {on = 1; next} /^```/ {on = 0} on' "$source/${2:-README.md}"; }

if [[ $what == shell ]]; then
  if [[ ! $source/build -ef $build ]]; then
    echo "README's commands use $source/build, this build is $build"
    exit 77
  fi
  cd "$source"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  export CUBINERY_CACHE_DIR=$build/tests/compiled
  while read -r line; do
    case $line in
      scripts/run.sh) line+=" sm_80" ;;  # that with the fewest kernels; compile_tests has those of all four
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
cmake -G Ninja -S "$work/engine" -B "$work/engine/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_FLAGS="-Wall -Wextra" \
      -DCMAKE_C_FLAGS="-std=c11 -Wall -Wextra -Werror"
cmake --build "$work/engine/build"

# The tutorial's C++.
blocks cpp docs/serving_loop.md >"$work/serving_loop.cc"
c++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I "$work/prefix/include" "$work/serving_loop.cc"

# Where a library that is written for another one finds its headers.
cuda=${CUDA_HOME:-/usr/local/cuda}
if [[ -f $cuda/include/cuda.h ]]; then
  for header in cubinery/compat/deep_jit.hpp deep_jit/backend/cuda/backend.hpp; do
    echo "#include <$header>" | ${CXX:-c++} -std=c++20 -fsyntax-only -I "$work/prefix/include" \
        -I "$work/prefix/include/cubinery/compat" -isystem "$cuda/include" -x c++ -
  done
fi

# The documented nvcc line, and every device header, against the installed files.
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
if [[ -x $nvcc ]]; then
  mkdir "$work/nvcc"
  ln -s "$work/prefix" "$work/.local"
  ln -s "$source/examples" "$work/nvcc/examples"
  line=$(awk '/^    nvcc/ {on = 1} /^$/ {on = 0} on' "$source/docs/adding_a_kernel.md")
  (cd "$work/nvcc" && HOME=$work PATH=$(dirname "$nvcc"):$PATH bash -euo pipefail -c "$line")
  [[ -s $work/nvcc/rms_norm.cubin ]]
  headers=$work/prefix/include/cubinery/templates
  (cd "$headers" && printf '#include "%s"\n' common/*.* common/*/*) >"$work/nvcc/all.cu"
  (cd "$work/nvcc" && "$nvcc" -std=c++20 -I "$work/prefix/include" -I "$headers" -arch=sm_90a -cubin all.cu)
fi

# 0: prepared on a GPU.  2: no context, because there is no driver; anything else is a failure.
status=0
config=$source/tests/data/models/Qwen3.5-27B/config.json
CUBINERY_CACHE_DIR="$work/cache" "$work/engine/build/engine" "$config" || status=$?
[[ $status == 0 || $status == 2 ]]

# Without CMake.
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
# shellcheck disable=SC2046
c++ -std=c++20 "$work/engine/engine.cc" -o "$work/by_pkg_config" $(pkg-config --cflags --libs cubinery)
status=0
CUBINERY_CACHE_DIR="$work/cache" "$work/by_pkg_config" "$config" || status=$?
[[ $status == 0 || $status == 2 ]]
if [[ -e $work/prefix/lib/pkgconfig/cubinery_c.pc ]]; then
  # shellcheck disable=SC2046
  cc -std=c11 -shared -fPIC "$work/engine/engine.c" -o "$work/by_pkg_config.so" -Wl,--no-undefined \
    $(pkg-config --cflags --libs cubinery_c)
fi
for file in LICENSE THIRD_PARTY_NOTICES README.md docs/design.md examples/01_decode.cc; do
  test -s "$work/prefix/share/doc/cubinery/$file"
done
if [[ ! -x $work/prefix/bin/cubinery ]]; then exit 0; fi
"$work/prefix/bin/cubinery" --version
if [[ ! -x $work/engine/build/offline ]]; then exit 0; fi

# README's own command fills the cache that its programs use.
prewarm=$(blocks sh | grep 'cubinery prewarm' | sed "s|build/cli/cubinery|$work/prefix/bin/cubinery|; s| --dry-run||")
echo "+ $prewarm"
export CUBINERY_CACHE_DIR=$work/offline
CUBINERY_REAL_NVRTC=$("$work/prefix/bin/cubinery" doctor | sed -n 's/^OK  *nvrtc  *[0-9.]*, //p')
export CUBINERY_REAL_NVRTC
(cd "$source" && CUBINERY_NVRTC=$empty_nvrtc bash -euo pipefail -c "$prewarm")
# What new-kernel writes builds, and says what it needs.
"$work/prefix/bin/cubinery" new-kernel my_norm --directory "$work/own"
cmake -G Ninja -S "$work/own" -B "$work/own/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror"
cmake --build "$work/own/build"
"$work/own/build/my_norm" --manifest >"$work/own.json"
"$work/prefix/bin/cubinery" prewarm --manifest "$work/own.json" --template-dir "$work/own/templates" --arch sm_90a

# What is shipped is one file, and all that the programs have.
"$work/prefix/bin/cubinery" cache export --arch sm_90a -o "$work/my.pack"
rm -r "$CUBINERY_CACHE_DIR"
export CUBINERY_CACHE_LAYERS=$work/my.pack CUBINERY_OFFLINE=1
CUBINERY_DRIVER=$fake_driver "$work/engine/build/offline" "$fake_driver" "$config"
"$work/own/build/my_norm" | tee "$work/own.txt"
grep -q ' for sm_90a: disk,' "$work/own.txt"
