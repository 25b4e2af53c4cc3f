#!/usr/bin/env bash
# On a machine with the oldest C library that the wheel in brought/ is for: the command, which needs no Python, and that the
# module needs no newer one.
set -euo pipefail
cd "$(dirname "$0")/../.."
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 libgcc-s1 >/dev/null
python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall("/tmp/wheel")' brought/*.whl
command=$(echo /tmp/wheel/cubinery-*.data/scripts/cubinery)
chmod +x "$command"
ldd --version | sed -n 1p
"$command" --version
"$command" problems --hf-config tests/data/models/Qwen3.5-27B/config.json --tp 2 >/dev/null
"$command" prewarm --hf-config tests/data/models/Qwen3.5-27B/config.json --tp 2 --arch sm_90a --dry-run | tail -n 3
# What the module needs and is not there is Python's.
ldd -r /tmp/wheel/cubinery/_core.abi3.so >/tmp/said 2>&1
if grep -Ev 'undefined symbol: _?Py' /tmp/said | grep -E 'undefined|not found'; then exit 1; fi
