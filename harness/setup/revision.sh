#!/usr/bin/env bash
# Writes a header with the code's revision, and touches it only when the revision changes.
# usage: revision.sh HEADER
set -euo pipefail
header=$1
revision=$(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
line="#define FL_BUILD_REVISION \"$revision\""
if [ -f "$header" ] && [ "$(cat "$header")" = "$line" ]; then exit 0; fi
mkdir -p "$(dirname "$header")"
echo "$line" >"$header.part.$$"
mv "$header.part.$$" "$header"
