#!/usr/bin/env bash
# Holds sources to .clang-format, and those that changed to .clang-tidy.
#   scripts/check_style.sh [--all | --since COMMIT | FILE...]
# clang-tidy reads the files given; those that differ from COMMIT; all; or, by default, those that differ from
# origin/main, where HEAD is that, from the commit before.  It takes seconds a file: after $TIDY_SECONDS (default 60; 0:
# no limit) the rest is named and passed over.  BUILD (default build) is a configured build, for generated headers.
# Exits 77 where a tool of version 14 is missing: others format differently.
set -euo pipefail
cd "$(dirname "$0")/.."
limit=${TIDY_SECONDS:-60} build=${BUILD:-build}

for tool in clang-format clang-tidy; do
  if ! "$tool" --version 2>/dev/null | grep -q 'version 14\.'; then
    echo "skipped: no $tool 14 (package $tool)"
    exit 77
  fi
done

git ls-files -z '*.cc' '*.h' '*.hpp' '*.c' '*.cu' '*.cuh' | xargs -0 -P "$(nproc)" -n 50 clang-format --dry-run -Werror

# Where the changes begin that nobody has looked at.
base_commit() {
  local main
  main=$(git rev-parse -q --verify origin/main) || main=
  if [[ -n $main && $main != $(git rev-parse HEAD) ]] && git merge-base HEAD "$main"; then return; fi
  git rev-parse -q --verify HEAD^ || git rev-parse HEAD
}
case ${1:-} in
  --all) mapfile -t files < <(git ls-files) ;;
  --since) mapfile -t files < <(git diff --name-only --diff-filter=d "$2") ;;
  "") mapfile -t files < <(git diff --name-only --diff-filter=d "$(base_commit)") ;;
  *) files=("$@") ;;
esac
# Headers are read with what includes them; fake libraries have the names of the real ones, what is in tests/errors must
# not compile, and tests/package/offline.cc includes what a test makes.
mapfile -t files < <(printf '%s\n' "${files[@]}" | grep '\.cc$' | grep -vP '^tests/((data|errors)/(?!.*_test\.cc)|package/offline\.cc)')
if ((${#files[@]} == 0)); then exit 0; fi

cuda=$(readlink -f "${CUDA_HOME:-/usr/local/cuda}")
export flags="-std=c++20 -DFMT_HEADER_ONLY -I. -Iinclude -Itemplates -I$build/include -isystem $cuda/include \
-Iexamples/02_own_kernel/templates -Iinclude/cubinery/compat -DCUBINERY_TEST_DIR=\"\" -DCUBINERY_FAKE_DRIVER=\"\" \
-DCUBINERY_FAKE_TORCH=\"\" -DCUBINERY_FAKE_NCCL=\"\" -DCUBINERY_FAKE_NVRTC=\"\" \
-DCUBINERY_FAKE_NVRTC_99=\"\" -DCUBINERY_FAKE_BUILTINS=\"\" -DCUBINERY_CLI_PATH=\"\" -DCUBINERY_COMPILED_DIR=\"\" \
-DRMS_NORM_TEMPLATE_DIR=\"\" $(python3-config --includes 2>/dev/null || true)"
export until=$((limit > 0 ? $(date +%s) + limit : 0))
tidy() {
  if ((until > 0 && $(date +%s) >= until)); then
    echo "passed over: $1"
    return
  fi
  # shellcheck disable=SC2086
  clang-tidy --quiet "$1" -- $flags 2>/dev/null
}
export -f tidy
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -I{} bash -c 'tidy "$1"' tidy {}
