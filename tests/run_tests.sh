#!/usr/bin/env bash
# Runs cmocka test binaries one after another, shows what failed or was skipped by name, and closes with one line of counts.
# usage: run_tests.sh BINARY...      TEST_TIMEOUT: seconds each may take (default 600)
set -u
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for binary in "$@"; do
  name=$(basename "$binary")
  start=$(date +%s)
  timeout "${TEST_TIMEOUT:-600}" "$binary" >"$log" 2>&1
  status=$?
  ok=$(grep -ac '^\[       OK \]' "$log")
  ran=$(sed -n 's/^\[==========\] Running \([0-9]*\) test(s).*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
  skip=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test(s).*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
  bad=$(( ran - ok - skip ))
  [ "$bad" -lt 0 ] && bad=0
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
  if [ "$ran" -eq 0 ]; then bad=1; fi
  printf '%-44s %4d passed %3d failed %3d skipped  %4ds\n' "$name" "$ok" "$bad" "$skip" "$(( $(date +%s) - start ))"
  grep -a '^skipped:' "$log" | sort -u | sed 's/^/    /'
  if [ "$bad" -gt 0 ]; then
    [ "$status" -eq 124 ] && echo "    timed out"
    echo "    exit status $status"
    grep -av '^\[ RUN      \]\|^\[       OK \]' "$log" | tail -n 60 | sed 's/^/    | /'
  fi
  passed=$(( passed + ok )) failed=$(( failed + bad )) skipped=$(( skipped + skip ))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
