#!/usr/bin/env bash
# Runs cmocka test binaries one after another, shows what failed or was skipped by name, and closes with one line of counts.
# usage: run_tests.sh BINARY...      TEST_TIMEOUT: seconds each may take (default 900)
set -u
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# "ran passed failed skipped" from cmocka's lines. A test that started and never ended (a crash, a time-out) has failed, and
# so have those that were announced and never started.
count() {
  awk '
    /^\[==========\] Running [0-9]+ test/ { announced += $3 }
    /^\[ RUN      \] /  { if (open) bad++; open = 1; started++ }
    /^\[       OK \] /  { if (open) good++; open = 0 }
    /^\[  SKIPPED \] /  { if (open) skip++; open = 0 }
    /^\[  FAILED  \] /  { if (open) bad++; open = 0 }
    END {
      if (open) bad++
      if (announced > started) bad += announced - started
      printf "%d %d %d %d\n", announced, good, bad, skip
    }' "$1"
}

for binary in "$@"; do
  name=$(basename "$binary")
  start=$(date +%s)
  timeout -k 10 "${TEST_TIMEOUT:-900}" "$binary" >"$log" 2>&1 </dev/null
  status=$?
  read -r ran ok bad skip < <(count "$log")
  if [ "$bad" -eq 0 ] && { [ "$status" -ne 0 ] || [ "$ran" -eq 0 ]; }; then bad=1; fi
  printf '%-44s %4d passed %3d failed %3d skipped  %4ds\n' "$name" "$ok" "$bad" "$skip" "$(( $(date +%s) - start ))"
  grep -a '^skipped:' "$log" | sort -u | sed 's/^/    /'
  if [ "$bad" -gt 0 ]; then
    if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then echo "    timed out"; fi
    echo "    exit status $status"
    grep -av '^\[ RUN      \]\|^\[       OK \]' "$log" | tail -n 60 | sed 's/^/    | /'
  fi
  passed=$(( passed + ok )) failed=$(( failed + bad )) skipped=$(( skipped + skip ))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
