#!/usr/bin/env bash
# Builds the site and checks its links.
#   check.sh SOURCE CUBINERY SITE
set -euo pipefail
source=$1 command=$2 site=$3
rm -rf "$site"
"$source/scripts/build_site.sh" --command "$command" "$site"
python3 "$source/tests/site/check_links.py" "$site" "$source"
