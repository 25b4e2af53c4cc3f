#!/usr/bin/env bash
# Everything that a publisher does for a release of the version in CMakeLists.txt, in this order:
#   1. check    the tree is clean and on BRANCH, CHANGELOG.md has the version, dated, and nothing unreleased
#               (scripts/changelog.py date does that, in a commit of its own), no tag has the version
#   2. build    source tarball, sdist, wheels of both machines, Debian packages of both releases; into dist/VERSION
#   3. try      each of them on a machine that has nothing else (scripts/clean_root.sh), and that a second build of what
#               takes minutes is equal, byte for byte (scripts/compare_builds.sh)
#   4. tag      vVERSION, signed where git has a key
#   5. upload   the tag to REMOTE, sdist and wheels to PyPI by twine, everything to the forge's release by gh
#
#   scripts/release.sh --dry-run     1 to 3, and prints the commands of 4 and 5; what 1 finds is said, and does not end it
#   scripts/release.sh
#
# BRANCH (main), REMOTE (origin).  Credentials are the publisher's, as git, twine and gh have them.  Needs root,
# debootstrap, debian-archive-keyring, g++-aarch64-linux-gnu, qemu-user-static, and the CUDA toolkit.
# What is in dist/VERSION of this commit already is not built again.
set -euo pipefail
cd "$(dirname "$0")/.."
dry_run=0
case ${1:-} in
  '') ;;
  --dry-run) dry_run=1 ;;
  *) echo "release.sh: $1; accepted: --dry-run" >&2 && exit 64 ;;
esac
branch=${BRANCH:-main} remote=${REMOTE:-origin}
version=$(scripts/changelog.py version)
commit=$(git rev-parse HEAD)
tag=v$version

say() { printf '\n== %s\n' "$*"; }
stops=()
# wrong TEXT: the end, but for a dry run, which lists it in its own.
wrong() {
  echo "release.sh: $*" >&2
  ((dry_run)) || exit 1
  stops+=("$*")
}
# published COMMAND...: runs what others will see.
published() {
  printf '+'
  printf ' %q' "$@"
  echo
  ((dry_run)) || "$@"
}

say "check $version, $commit"
for tool in debootstrap aarch64-linux-gnu-g++ qemu-aarch64-static git python3; do
  command -v $tool >/dev/null || { echo "release.sh: $tool is missing" >&2; exit 77; }
done
((EUID == 0)) || { echo "release.sh: clean roots need root" >&2; exit 77; }
[[ -z $(git status --porcelain) ]] || wrong "the tree has changes that are not committed, which no artefact has"
[[ $(git branch --show-current) == "$branch" ]] || wrong "on branch $(git branch --show-current); accepted: $branch"
scripts/changelog.py check || wrong "CHANGELOG.md or CITATION.cff does not fit the version"
scripts/changelog.py notes >/dev/null || wrong "CHANGELOG.md has no dated section of $version with nothing unreleased above it"
if git rev-parse --quiet --verify "refs/tags/$tag" >/dev/null; then wrong "there is a tag $tag"; fi
git remote get-url "$remote" >/dev/null 2>&1 || wrong "no remote $remote: set REMOTE"
for tool in twine gh; do
  command -v $tool >/dev/null || wrong "$tool is missing, which uploads"
done

dist=$PWD/dist/$version
if [[ $(cat "$dist/COMMIT" 2>/dev/null) != "$commit" ]]; then rm -rf "$dist"; fi
mkdir -p "$dist"
echo "$commit" >"$dist/COMMIT"
# has PATTERN...: whether each is there.
has() { for pattern in "$@"; do compgen -G "$dist/$pattern" >/dev/null || return 1; done; }

say build
has 'cubinery-*-source.tar.gz' || scripts/build_source.sh "$dist"
for machine in x86_64 aarch64; do
  has "cubinery-*_$machine.whl" || scripts/build_wheel.sh "$dist" $machine
done
for release in bookworm:12 trixie:13; do
  has "cubinery_*+deb${release#*:}_*.deb" ||
    TAKE='build-deb/*.deb' DIRECTORY=$dist scripts/clean_root.sh "${release%:*}" bash -euc '
      scripts/install_dependencies.sh
      apt-get install -y -qq --no-install-recommends dpkg-dev file >/dev/null
      scripts/build_deb.sh'
done

say try
if [[ ! -e $dist/TRIED ]]; then
  TOOLKIT=none BRING="$dist/*_x86_64.whl" scripts/clean_root.sh bullseye tests/package/wheel_command.sh
  for release in bookworm:12 trixie:13; do
    TOOLKIT=none BRING="$dist/*_x86_64.whl" scripts/clean_root.sh "${release%:*}" tests/package/wheel_alone.sh
    TOOLKIT=none BRING="$dist/*+deb${release#*:}_*.deb" scripts/clean_root.sh "${release%:*}" tests/package/deb_alone.sh
  done
  BRING="$dist/*-source.tar.gz" scripts/clean_root.sh bookworm tests/package/source_alone.sh
  BRING="$dist/*.tar.gz" scripts/clean_root.sh trixie tests/package/source_alone.sh
  tests/package/wheel_emulated.sh "$dist"/*_aarch64.whl aarch64
  scripts/compare_builds.sh "$dist"
  touch "$dist/TRIED"
fi
(cd "$dist" && sha256sum -- *.tar.gz *.whl *.deb >SHA256SUMS && ls -l && cat SHA256SUMS)
scripts/changelog.py notes >"$dist/NOTES.md" || true  # a dry run's, said above

say publish
sign=--annotate
if git config user.signingkey >/dev/null; then sign=--sign; fi
published git tag $sign --message "cubinery $version" "$tag" "$commit"
published git push "$remote" "$branch" "$tag"
published twine upload "$dist/cubinery-$version.tar.gz" "$dist"/*.whl
published gh release create "$tag" --verify-tag --title "cubinery $version" --notes-file "$dist/NOTES.md" \
  "$dist"/*.tar.gz "$dist"/*.whl "$dist"/*.deb "$dist/SHA256SUMS"
if ((dry_run)); then
  say "dry run: nothing was tagged or uploaded"
  if ((${#stops[@]} > 0)); then
    echo "What would have ended it:"
    printf '  %s\n' "${stops[@]}"
  fi
else
  say "$version is out"
fi
