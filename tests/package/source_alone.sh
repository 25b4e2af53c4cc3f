#!/usr/bin/env bash
# On a machine without git, from the tarballs in brought/: README's first command in the source tarball, for the
# architecture with the fewest kernels; and pip's build of the sdist, if it was brought.
set -euo pipefail
cd "$(dirname "$0")/../.."
brought=$PWD/brought
if command -v git; then echo "there is a git"; exit 1; fi
mkdir /tmp/source
tar -xf "$brought"/cubinery-*-source.tar.gz -C /tmp/source --strip-components=1
cd /tmp/source
scripts/run.sh sm_80
build/cli/cubinery --version
CUBINERY_CACHE_DIR=build/kernel-cache build/cli/cubinery cache verify

rm "$brought"/cubinery-*-source.tar.gz
if ! compgen -G "$brought/cubinery-*.tar.gz" >/dev/null; then exit; fi
python3 -m venv /tmp/venv
export PIP_CONSTRAINT=$PWD/scripts/python_tools.txt
/tmp/venv/bin/pip install --quiet "$brought"/cubinery-*.tar.gz nvidia-cuda-nvrtc
cd /
/tmp/venv/bin/cubinery doctor
/tmp/venv/bin/python -c 'import cubinery; cubinery.DecodeProblem().check(); print(cubinery.__version__, cubinery.__file__)'
