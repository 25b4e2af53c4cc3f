#!/usr/bin/env bash
# The library exports the functions of the header, all of them and nothing else.
#   exports.sh HEADER LIBRARY
set -euo pipefail
declared=$(tr '\n' ' ' <"$1" | grep -oE 'CUBINERY_C_API [^;(]*\(' | grep -oE 'cubinery_[a-z0-9_]+' | sort)
exported=$(nm -D --defined-only "$2" | awk '{print $3}' | sort)
[[ -n $declared ]] || { echo "no function found in $1"; exit 1; }
diff <(echo "$declared") <(echo "$exported")
