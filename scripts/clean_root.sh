#!/usr/bin/env bash
# Runs a command as on a stranger's machine: in a fresh minimal root of a Debian or Ubuntu release that holds the base
# system, a clean checkout of HEAD, and the CUDA toolkit in /usr/local, of which the loader has not been told.  Needs
# root and debootstrap.  The base system is kept for the next time in $CUBINERY_ROOTS (default /var/cache/cubinery-roots).
#
#   scripts/clean_root.sh bookworm scripts/run.sh
#   scripts/clean_root.sh trixie scripts/test.sh
#   CUBINERY_MIRROR=http://archive.ubuntu.com/ubuntu scripts/clean_root.sh noble scripts/run.sh
#
# With BRING the files that it names are in brought/ of the checkout; with TOOLKIT=none there is no toolkit:
#
#   TOOLKIT=none BRING=dist/*.whl scripts/clean_root.sh bookworm tests/package/wheel_alone.sh
#   TOOLKIT=none BRING=build-deb/*.deb scripts/clean_root.sh bookworm tests/package/deb_alone.sh
#
# With TAKE the files of the checkout that it names are copied here in the end, into DIRECTORY (dist):
#
#   TAKE=build-deb/*.deb scripts/clean_root.sh bookworm scripts/build_deb.sh
set -euo pipefail
suite=$1
shift
source=$(cd "$(dirname "$0")/.." && pwd)
toolkit=$(readlink -f "${CUDA_HOME:-/usr/local/cuda}")
if [[ ${TOOLKIT:-} == none ]]; then toolkit=; fi
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
printf '127.0.0.1 localhost\n' >"$root/etc/hosts"  # as installers and containers do
if [[ -n ${PIP_CERT:-} ]]; then  # a network with a certificate authority of its own
  cp -L "$PIP_CERT" "$root/etc/pip-cert.crt"
  printf '[global]\ncert = /etc/pip-cert.crt\n' >"$root/etc/pip.conf"
fi
git clone --quiet "file://$source" "$root/root/cubinery"
# shellcheck disable=SC2086
if [[ -n ${BRING:-} ]]; then mkdir "$root/root/cubinery/brought" && cp $BRING "$root/root/cubinery/brought"; fi
if [[ -n $toolkit ]]; then
  mkdir -p "$root$toolkit"
  ln -sfn "$toolkit" "$root/usr/local/cuda"
fi

# The mounts are this process's own and end with it.
SOURCE_DATE_EPOCH=$("$source/scripts/source_date.sh")
export root toolkit SOURCE_DATE_EPOCH
unshare --mount --pid --fork bash -euo pipefail -c '
  if [[ -n $toolkit ]]; then
    mount --bind "$toolkit" "$root$toolkit"
    mount -o remount,ro,bind "$root$toolkit"
  fi
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  exec chroot "$root" /usr/bin/env -i HOME=/root TERM="${TERM:-dumb}" LANG=C.UTF-8 CI="${CI:-}" \
    SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    bash -euo pipefail -c "cd /root/cubinery && exec \"\$@\"" clean_root "$@"' clean_root "$@"

# shellcheck disable=SC2086
if [[ -n ${TAKE:-} ]]; then
  directory=${DIRECTORY:-$source/dist}
  mkdir -p "$directory"
  (cd "$root/root/cubinery" && cp $TAKE "$directory")
fi
