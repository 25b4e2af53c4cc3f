#!/usr/bin/env bash
# The library exports the functions of the header, all of them and nothing else; each is in the list that says since
# which version it is there, and none of that list is gone.
#   exports.sh HEADER LIBRARY SYMBOLS
set -euo pipefail
declared=$(tr '\n' ' ' <"$1" | grep -oE 'CUBINERY_C_API [^;(]*\(' | grep -oE 'cubinery_[a-z0-9_]+' | sort)
exported=$(nm -D --defined-only "$2" | awk '{print $3}' | sort)
[[ -n $declared ]] || { echo "no function found in $1"; exit 1; }
diff <(echo "$declared") <(echo "$exported")
diff <(sed -nE 's/^ (cubinery_[a-z0-9_]+)@Base [0-9.]+$/\1/p' "$3" | sort) <(echo "$exported")
