#!/usr/bin/env bash
# Writes a header with the hash of the headers through which the program and a backend's object see each other
# (harness/compute/backend.h), and touches it only when one has changed.
# usage: backend_hash.sh HEADER
set -euo pipefail
header=$1
hash=$(LC_ALL=C; cat harness/compute/[!c]*.h harness/compute/compute.h harness/base/shapes.h harness/base/status.h \
    harness/model/tensor.h harness/model/model_config.h | sha256sum | cut -c1-16)
line="#define FL_BACKEND_HASH \"$hash\""
if [ -f "$header" ] && [ "$(cat "$header")" = "$line" ]; then exit 0; fi
mkdir -p "$(dirname "$header")"
echo "$line" >"$header.part.$$"
mv "$header.part.$$" "$header"
