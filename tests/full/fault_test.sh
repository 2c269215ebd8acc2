#!/usr/bin/env bash
# Runs a small sweep on a disk that is full (ENOSPC) or fails (EIO) at one call after the other: a write, sync, rename, link or
# close in the sweep's folder, once or from then on. Every run must end by itself: with exit status 0, or with 1 and a message; a run
# without faults in the same folder must then finish every cell with the numbers of an undisturbed run and leave nothing half-written.
# usage: fault_test.sh      FROSTLINE: the program; CALLS: faults per kind of call (default 8); CC; TMPDIR
set -eu
cd "$(dirname "$0")/../.."
frostline=$(realpath "${FROSTLINE:-build/release/frostline}")
calls=${CALLS:-8}
model=$(realpath tests/fixtures/reference/llama_gqa)
work=$(mktemp -d "${TMPDIR:-/tmp}/frostline-fault-XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() { echo "fault test: $*"; ls -la "$work/out"; tail -n 20 "$work/log"; exit 1; }

${CC:-cc} -O1 -shared -fPIC -o "$work/injector.so" tests/full/fault_injector.c -ldl
. tests/support/token_ids.sh
ids 2 48 37 >"$work/text.json"
ids 4 40 53 >"$work/fit.json"
cat >"$work/sweep.yaml" <<YAML
name: faults
model: {path: $model}
text: {ids: $work/text.json}
variant: {window: 8, sinks: 2}
sweep:
  list:
    - {variant.rule: none}
    - {variant.rule: gla}
    - {variant.rule: kda, train.steps: 4, train.checkpoint_every: 2, train.ids: $work/fit.json, train.allow_overlap: true}
YAML
cells=3
run=("$frostline" run "$work/sweep.yaml" --out "$work/out" --threads 1)
# What is measured, without what a machine's clock says.
numbers() { "$frostline" export "$work/out" --format csv 2>>"$work/log" | grep -v seconds | sort; }

"${run[@]}" >"$work/log" 2>&1 || fail "the undisturbed run failed"
numbers >"$work/undisturbed"
[ -s "$work/undisturbed" ] || fail "nothing is exported"

faults=0 stopped=0
try() { # FAULT
  local code=0
  rm -rf "$work/out"
  FAULT=$1 FAULT_FOLDER=$work/out LD_PRELOAD=$work/injector.so timeout 60 "${run[@]}" >"$work/log" 2>&1 || code=$?
  faults=$((faults + 1))
  [ "$code" -le 1 ] || fail "$1: exit status $code"
  if [ "$code" -eq 1 ]; then
    stopped=$((stopped + 1))
    grep -Eq 'No space left|Input/output error' "$work/log" || fail "$1: no message names the disk"
  fi
  "${run[@]}" >"$work/log" 2>&1 || fail "$1: the run without faults failed"
  [ "$(find "$work/out" -name '*.h5' | wc -l)" -eq "$cells" ] || fail "$1: not every cell is there"
  numbers | cmp -s - "$work/undisturbed" || fail "$1: the numbers differ from the undisturbed run's"
  local stray
  stray=$(find "$work/out" -name '*.part*' -o -name '*.partial*' -o -name '*.claim*' -o -name '*.failed.json')
  [ -z "$stray" ] || fail "$1: left behind: $stray"
}

enospc=28 eio=5
for call in write fsync rename link close; do
  for ((n = 1; n <= calls; n++)); do
    for number in $enospc $eio; do
      try "$call:$n:$number:1"
      try "$call:$n:$number:1000000"
    done
  done
done
[ "$stopped" -gt 0 ] || fail "no fault stopped a run"
echo "fault test: $faults injected faults (disk full, disk failing), $stopped stopped the run with a message, 0 crashes," \
  "0 losses: every sweep was finished afterwards with the same numbers"
