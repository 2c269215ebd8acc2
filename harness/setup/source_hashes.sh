#!/usr/bin/env bash
# Writes a header with the hash of every source that numbers depend on (results/README.md, "Which code made the numbers"), and
# touches it only when one has changed.
# usage: source_hashes.sh HEADER
set -euo pipefail
header=$1

folders="harness/compute attn_variants harness/engine harness/measure harness/eval harness/model"
files="harness/base/memory.c harness/base/memory.h harness/base/random.c harness/base/random.h harness/base/scratch_file.c
harness/base/scratch_file.h harness/base/shapes.h harness/base/threads.c harness/base/threads.h"
# Lists the rules, computes nothing; decides which keys a cell has, as harness/config does; prints; the commands `lab` and
# `data`, whose numbers are in no run file.
without="attn_variants/registry.c attn_variants/unused_keys.c attn_variants/unused_keys.h harness/model/describe.c
harness/model/describe.h harness/measure/memory_lab.c harness/measure/memory_lab.h harness/measure/exact_lab.c
harness/measure/exact_lab.h harness/eval/data_check.c harness/eval/data_check.h"

list() {
  # shellcheck disable=SC2086
  { find $folders \( -name '*.c' -o -name '*.h' -o -name '*.inc' \) -not -path '*/cuda/*' -type f; printf '%s\n' $files; } |
    grep -vxF -f <(printf '%s\n' $without) | LC_ALL=C sort
}
text=$(list | xargs sha256sum | awk '{printf "{\"%s\", \"%s\"},\n", $2, substr($1, 1, 16)}')
if [ -f "$header" ] && [ "$(cat "$header")" = "$text" ]; then exit 0; fi
mkdir -p "$(dirname "$header")"
echo "$text" >"$header.part.$$"
mv "$header.part.$$" "$header"
