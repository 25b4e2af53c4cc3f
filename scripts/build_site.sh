#!/usr/bin/env bash
# Builds the documentation's site, which needs no server and asks no other host for anything:
#   build_site.sh [--command CUBINERY] [OUT]     OUT: build/site;  CUBINERY: build/cli/cubinery, whose help is printed
# Takes doxygen and Chart.js from Debian and the rest, at the versions in site_tools.txt, from PyPI: once, into
# $CUBINERY_SITE_TOOLS (build/site_tools), after which it works offline.  Exits 77 where these cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

command=build/cli/cubinery
if [[ ${1:-} == --command ]]; then command=$2; shift 2; fi
out=$(realpath -m "${1:-build/site}")
tools=$(realpath -m "${CUBINERY_SITE_TOOLS:-build/site_tools}")
chart_js=${CUBINERY_CHART_JS:-/usr/share/javascript/chart.js/chart.min.js}

missing() {
  echo "build_site.sh: $1" >&2
  exit 77
}
[[ -x $command ]] || { echo "build_site.sh: no $command; build the target cubinery_cli, or name it by --command" >&2; exit 1; }
command -v doxygen >/dev/null || missing "no doxygen; install Debian's package, or run scripts/install_dependencies.sh"
[[ -f $chart_js ]] || missing "no $chart_js; install Debian's package libjs-chart.js, or set CUBINERY_CHART_JS"
if ! cmp -s scripts/site_tools.txt "$tools/site_tools.txt"; then
  rm -rf "$tools"
  python3 -m venv "$tools"
  PIP_CONSTRAINT=$PWD/scripts/site_tools.txt "$tools/bin/pip" install --quiet --disable-pip-version-check \
    -r scripts/site_tools.txt || missing "what scripts/site_tools.txt names cannot be installed"
  cp scripts/site_tools.txt "$tools"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The headers, as XML.
{ cat docs/site/Doxyfile; echo "OUTPUT_DIRECTORY = $work"; } >"$work/Doxyfile"
doxygen "$work/Doxyfile" 2>"$work/doxygen.txt"
if [[ -s $work/doxygen.txt ]]; then cat "$work/doxygen.txt" >&2; exit 1; fi

# The pages lie as the tree does, so that their links to files hold; beside them is what is made for the site alone.
pages=$work/pages
mkdir "$pages"
cp -r docs examples templates ./*.md docs/site/index.md docs/site/measured.md \
  docs/site/reference "$pages"
python3 docs/site/write_pages.py "$command" "$pages/reference"
mkdir "$work/static"
cp "$chart_js" "$work/static/chart.min.js"
python3 docs/site/write_records.py "$work/static/records.js"

CUBINERY_SITE_XML=$work/xml CUBINERY_SITE_STATIC=$work/static PYTHONDONTWRITEBYTECODE=1 "$tools/bin/python" -m sphinx -q -W --keep-going -j auto \
  -d "$work/doctrees" -c docs/site "$pages" "$work/html"
rm -rf "$out"
mkdir -p "$(dirname "$out")"
mv "$work/html" "$out"
echo "$out/index.html: open it in a browser"
