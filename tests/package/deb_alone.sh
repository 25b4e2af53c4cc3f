#!/usr/bin/env bash
# On a machine with nothing but the Debian packages in brought/: they install, programs in C++ and C are built with them,
# and a package that has such a program would depend on the C library's.
set -euo pipefail
cd "$(dirname "$0")/../.."
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ./brought/*.deb g++ pkg-config \
  dpkg-dev libdlpack-dev >/dev/null
blocks() { awk -v fence="\`\`\`$1" '$0 == fence {on = 1; next} /^```/ {on = 0} on' README.md; }
cubinery --version
cubinery operators >/dev/null
blocks cpp >/tmp/engine.cc
blocks c >/tmp/engine.c
# shellcheck disable=SC2046
c++ -std=c++20 /tmp/engine.cc -o /tmp/engine $(pkg-config --cflags --libs cubinery)
# shellcheck disable=SC2046
cc -std=c11 -shared -fPIC /tmp/engine.c -o /tmp/engine.so -Wl,--no-undefined $(pkg-config --cflags --libs cubinery_c)
# 2: there is no driver.
status=0
/tmp/engine tests/data/models/Qwen3.5-27B/config.json || status=$?
[[ $status == 2 ]]
mkdir /tmp/debian && touch /tmp/debian/control
(cd /tmp && dpkg-shlibdeps -O engine.so) | tee /tmp/depends
grep -qE 'libcubinery-c[0-9.]+ \(>= [0-9.]+\)' /tmp/depends
for package in cubinery libcubinery-dev; do test -s /usr/share/doc/$package/copyright; done
test -s /usr/share/bash-completion/completions/cubinery
test -s /usr/share/doc/cubinery/THIRD_PARTY_NOTICES
