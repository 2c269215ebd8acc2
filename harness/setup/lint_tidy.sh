#!/usr/bin/env bash
# Runs clang-tidy on every file, as many at a time as there are processors.
# usage: lint_tidy.sh FILE... -- FLAG...
set -uo pipefail
files=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do files+=("$1"); shift; done
shift
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -I FILE clang-tidy --quiet FILE -- "$@" 2>/dev/null
