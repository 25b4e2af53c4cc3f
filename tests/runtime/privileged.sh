#!/usr/bin/env bash
# A setuid program, and one with file capabilities, take nothing from the environment of whoever starts them.
#   privileged.sh PRINT_OPTIONS
# Skipped (77) for anyone but root, and where such programs get no privileges.
set -euo pipefail
program=$1
[[ $(id -u) == 0 ]] || { echo "needs root"; exit 77; }
command -v setpriv >/dev/null || { echo "needs setpriv"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work/toolkit/lib64" "$work/toolkit/bin"
touch "$work/toolkit/lib64/libnvrtc.so" "$work/toolkit/bin/nvcc"
nobody=65534

# Of a copy of the program with this owner and mode, started by nobody.
run() {
  env -i CUBINERY_CACHE_DIR=/evil CUBINERY_CACHE_LAYERS=/evil CUBINERY_TEMPLATE_DIR=/evil CUBINERY_PATHS=op=evil \
    CUBINERY_DRIVER=/evil CUBINERY_RECORD=/evil CUBINERY_CACHE_LIMIT=evil CUBINERY_OFFLINE=1 CUBINERY_TRUST=all CUDA_HOME="$work/toolkit" HOME=/evil \
    XDG_CACHE_HOME=/evil "$@" setpriv --reuid=$nobody --regid=$nobody --clear-groups "$work/program"
}
install -o root -m 755 "$program" "$work/program"
plain=$(run CUBINERY_CACHE_LIMIT=7)
grep -q "^nvrtc_path=$work/toolkit" <<<"$plain" && grep -q "^nvcc_path=$work/toolkit" <<<"$plain" &&
  grep -q "^trust=all" <<<"$plain" && [[ $(grep -c evil <<<"$plain") == 6 ]] ||
  { echo "an ordinary process should have read the environment: $plain"; exit 1; }

expected=$'cache_dir=\nnvrtc_path=\nnvcc_path=\nrecord=\ndriver_path=\ncache_limit_bytes=1073741824\noffline=0'
foreign_home=$'\nlog=cache: the home directory is that of the user who started this privileged process; set Options::cache_dir'
# check WHAT OUTPUT EXPECTED
check() {
  [[ $2 == "$3" ]] || { printf '%s:\n%s\nexpected:\n%s\n' "$1" "$2" "$3"; exit 1; }
}
chmod 4755 "$work/program"
if [[ $(findmnt -nT "$work" -o OPTIONS) == *nosuid* ]]; then echo "$work is mounted nosuid"; exit 77; fi
check setuid "$(run)" "$expected"
check "setuid, CUBINERY_NVRTC" "$(run CUBINERY_NVRTC=/evil CUBINERY_NVCC=/evil)" "$expected"
chmod 755 "$work/program"
if command -v setcap >/dev/null && setcap cap_net_raw+ep "$work/program" 2>/dev/null; then
  check "file capabilities" "$(run)" "$expected$foreign_home"
fi
