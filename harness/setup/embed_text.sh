#!/usr/bin/env bash
# Writes a header with text files as arrays of bytes that end with a zero: what a program carries with it.
# usage: embed_text.sh HEADER NAME=FILE...
set -euo pipefail
header=$1
shift
mkdir -p "$(dirname "$header")"
for part in "$@"; do
  echo "static const unsigned char ${part%%=*}[] = {"
  od -An -v -tx1 "${part#*=}" | sed 's/ \(..\)/0x\1,/g'
  echo "0};"
done >"$header.part.$$"
mv "$header.part.$$" "$header"
