#!/usr/bin/env bash
# Kills `frostline run` with kill -9 at random moments, KILLS times (default 200), and resumes it each time. After every kill no
# finished run file may be gone or changed, and whatever has a run file's name must open as a finished one. At the end every cell
# is done and nothing half-written is left.
# usage: kill_test.sh      FROSTLINE: the program; KILLS; KILL_SEED; TMPDIR
set -eu
cd "$(dirname "$0")/../.."
frostline=$(realpath "${FROSTLINE:-build/release/frostline}")
kills=${KILLS:-200}
RANDOM=${KILL_SEED:-1}
model=$(realpath tests/fixtures/reference/llama_gqa)
work=$(mktemp -d "${TMPDIR:-/tmp}/frostline-kill-XXXXXX")
children=()
cleanup() {
  local child
  for child in "${children[@]}"; do kill -KILL "$child" 2>/dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT
fail() { echo "kill test: $*"; ls -la "$work/out"; tail -n 20 "$work/log"; exit 1; }

. tests/support/token_ids.sh
ids 2 96 37 >"$work/text.json"
ids 8 64 53 >"$work/fit.json"
cat >"$work/sweep.yaml" <<YAML
name: killed
model: {path: $model}
text: {ids: $work/text.json}
variant: {window: 8, sinks: 2}
sweep:
  list:
    - {variant.rule: none}
    - {variant.rule: gla}
    - {variant.rule: kgla}
    - {variant.rule: delta}
    - {variant.rule: gated_delta}
    - {variant.rule: kda}
    - {variant.rule: gla, train.steps: 40, train.checkpoint_every: 4, train.ids: $work/fit.json, train.allow_overlap: true}
    - {variant.rule: kda, train.steps: 40, train.checkpoint_every: 4, train.ids: $work/fit.json, train.allow_overlap: true}
YAML
cells=8
run=("$frostline" run "$work/sweep.yaml" --out "$work/out" --threads 1)

now() { date +%s%N; }
start=$(now)
"${run[@]}" --batch 3 >"$work/log" 2>&1 || fail "the undisturbed run failed"
whole=$((($(now) - start) / 1000000))
rm -rf "$work/out"

killed=0 sweeps=0
declare -A hashes=()
check_finished() {
  local file
  for file in "${!hashes[@]}"; do
    [ -f "$file" ] || fail "kill $killed: $file is gone"
  done
  for file in "$work"/out/*.h5; do
    [ -e "$file" ] || continue
    local hash
    hash=$(sha256sum <"$file")
    if [ -n "${hashes[$file]:-}" ]; then
      [ "${hashes[$file]}" = "$hash" ] || fail "kill $killed: $file has changed"
    else
      "$frostline" inspect "$file" >"$work/inspected" 2>&1 || fail "kill $killed: $file does not open"
      grep -q '^status *complete' "$work/inspected" || fail "kill $killed: $file is not complete"
      hashes[$file]=$hash
    fi
  done
}
check_end() {
  "${run[@]}" >"$work/log" 2>&1 || fail "the last run of sweep $sweeps failed"
  check_finished
  [ "${#hashes[@]}" -eq $cells ] || fail "${#hashes[@]} cells are done, not $cells"
  "${run[@]}" >"$work/log" 2>&1 || fail "the run over a finished sweep failed"
  grep -q "0 cells to measure, $cells kept" "$work/log" || fail "a finished cell was computed again"
  check_finished
  local stray
  stray=$(find "$work/out" -name '*.part*' -o -name '*.partial*' -o -name '*.claim*' -o -name '*.journal.jsonl' \
          -o -name '*.failed.json' -o -name '*.training.safetensors')
  [ -z "$stray" ] || fail "left behind: $stray"
}

# A moment anywhere between the start and a little after the end of what is left; in a third of the rounds two workers are
# killed, one after the other. Sweeps follow one another until there have been enough kills.
while [ "$killed" -lt "$kills" ]; do
  left=$((whole * (cells - ${#hashes[@]}) / cells + 60))
  workers=$((RANDOM % 3 == 0 ? 2 : 1))
  children=()
  for ((w = 0; w < workers; w++)); do
    "${run[@]}" --batch $((1 + RANDOM % 3)) >"$work/log" 2>&1 &
    children+=($!)
  done
  # The shell tells of every job that was killed: not worth reading.
  exec 3>&2 2>/dev/null
  for child in "${children[@]}"; do
    moment=$(((RANDOM * 32768 + RANDOM) % left / workers))
    sleep "$(printf '%d.%03d' $((moment / 1000)) $((moment % 1000)))"
    kill -KILL "$child" 2>/dev/null || true
  done
  for child in "${children[@]}"; do
    code=0
    wait "$child" 2>/dev/null || code=$?
    if [ "$code" -eq 137 ]; then killed=$((killed + 1)); elif [ "$code" -ne 0 ]; then fail "exit $code without a kill"; fi
  done
  exec 2>&3 3>&-
  children=()
  check_finished
  if [ "${#hashes[@]}" -eq $cells ]; then
    check_end
    sweeps=$((sweeps + 1))
    rm -rf "$work/out"
    hashes=()
  fi
done
check_end
sweeps=$((sweeps + 1))
echo "kill test: $killed kills -9 at random moments over $sweeps sweeps of $cells cells (an undisturbed one takes $whole ms):" \
  "every cell done, no finished file lost or changed, nothing half-written left"
