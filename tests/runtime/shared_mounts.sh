#!/usr/bin/env bash
# Runs the tests of machines that share a directory, on clients of one folder that remember names and misses for half a
# minute (bindfs): with locks that all clients see, and with locks of their own, as network file systems have them.
#
#     shared_mounts.sh NVRTC_TESTS
set -euo pipefail
tests=$1
clients=4

command -v bindfs >/dev/null || { echo "skipped: bindfs is missing (package bindfs)"; exit 77; }
folder=$(mktemp -d)
release() {
  for mount in "$folder"/*/client*; do
    if mountpoint -q "$mount"; then fusermount -u "$mount" || umount -l "$mount"; fi
  done
  rm -rf --one-file-system "$folder"
}
trap release EXIT

# run NAME bindfs-option...
run() {
  local name=$1 mounts=()
  shift
  mkdir -p "$folder/$name/shared"
  for ((client = 0; client < clients; ++client)); do
    local mount=$folder/$name/client$client
    mkdir "$mount"
    bindfs "$@" -o entry_timeout=30,attr_timeout=30,negative_timeout=30 "$folder/$name/shared" "$mount" ||
      { echo "skipped: no file system can be mounted here"; exit 77; }
    mounts+=("$mount")
  done
  # They are what they are meant to be: a miss is remembered.
  if [[ -e ${mounts[0]}/probe ]]; then exit 1; fi
  echo >"${mounts[1]}/probe"
  if [[ -e ${mounts[0]}/probe ]]; then echo "the clients remember no misses" >&2; exit 1; fi
  CUBINERY_TEST_MOUNTS=${mounts[*]} "$tests" "[.shared]"
}

run common --multithreaded --enable-lock-forwarding
CUBINERY_TEST_LOCAL_LOCKS=1 run local
