#!/usr/bin/env bash
# Unpacks Debian packages of a release and an architecture into a folder, which need not be this machine's: for a
# compiler to look for headers and libraries in (CMAKE_SYSROOT), or qemu-user for a loader (-L).  Nothing is installed,
# no script of a package is run.  apt checks what it downloads with Debian's keys.
#
#   scripts/fetch_root.sh FOLDER ARCHITECTURE RELEASE PACKAGE...
#   scripts/fetch_root.sh /tmp/root arm64 bullseye libc6 libc6-dev
set -euo pipefail
folder=$(realpath -m "$1") architecture=$2 release=$3
shift 3
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [[ ! -e $keyring ]]; then
  echo "fetch_root.sh: $keyring is missing: apt-get install debian-archive-keyring" >&2
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/packages" "$folder"
: >"$work/status"
echo "deb [signed-by=$keyring] ${CUBINERY_MIRROR:-http://deb.debian.org/debian} $release main" >"$work/sources.list"
options=(-qq -o "Dir::State::status=$work/status" -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work"
         -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null
         -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" -o APT::Sandbox::User=root)
apt-get "${options[@]}" update >&2
(cd "$work/packages" && apt-get "${options[@]}" download "$@" >&2)
for package in "$work"/packages/*.deb; do dpkg-deb --extract "$package" "$folder"; done
# Links from the root are links from this one.
find "$folder" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
  target=$(readlink "$link")
  if [[ $target != "$folder"/* ]]; then ln -sfnr "$folder$target" "$link"; fi
done
