#!/usr/bin/env bash
# Runs a command as on a stranger's machine: in a fresh minimal root of a Debian or Ubuntu release that holds the base
# system, a clean checkout of HEAD, and the CUDA toolkit in /usr/local, of which the loader has not been told.  Needs
# root and debootstrap.  The base system is kept for the next time in $CUBINERY_ROOTS (default /var/cache/cubinery-roots).
#
#   scripts/clean_root.sh bookworm scripts/run.sh
#   scripts/clean_root.sh trixie scripts/test.sh
#   CUBINERY_MIRROR=http://archive.ubuntu.com/ubuntu scripts/clean_root.sh noble scripts/run.sh
set -euo pipefail
suite=$1
shift
source=$(cd "$(dirname "$0")/.." && pwd)
toolkit=$(readlink -f "${CUDA_HOME:-/usr/local/cuda}")
base=${CUBINERY_ROOTS:-/var/cache/cubinery-roots}/$suite

if [[ ! -e $base.complete ]]; then
  rm -rf "$base"
  mkdir -p "$base"
  debootstrap --variant=minbase "$suite" "$base" "${CUBINERY_MIRROR:-http://deb.debian.org/debian}"
  touch "$base.complete"
fi

root=$(mktemp -d /var/tmp/clean-root-XXXXXX)
trap 'rm -rf --one-file-system "$root"' EXIT
cp -a "$base/." "$root"
cp -L /etc/resolv.conf "$root/etc/"
git clone --quiet "file://$source" "$root/root/cubinery"
mkdir -p "$root$toolkit"
ln -sfn "$toolkit" "$root/usr/local/cuda"

# The mounts are this process's own and end with it.
export root toolkit
unshare --mount --pid --fork bash -euo pipefail -c '
  mount --bind "$toolkit" "$root$toolkit"
  mount -o remount,ro,bind "$root$toolkit"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  exec chroot "$root" /usr/bin/env -i HOME=/root TERM="${TERM:-dumb}" LANG=C.UTF-8 CI="${CI:-}" \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    bash -euo pipefail -c "cd /root/cubinery && exec \"\$@\"" clean_root "$@"' clean_root "$@"
