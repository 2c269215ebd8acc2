#!/usr/bin/env bash
# Edits a rule in a copy of the tree, builds it and runs a sweep that was measured before: the cells of that rule alone are
# measured anew, with other numbers, and equal those of a fresh folder. Then a header below all rules, then the documentation
# and the command line.
# usage: fingerprint_test.sh      FROSTLINE: the program, whose build folder is copied; KILLS, KILL_SEED; TMPDIR
set -eu
cd "$(dirname "$0")/../.."
program=$(realpath --relative-to=. "${FROSTLINE:-build/release/frostline}")
build=$(dirname "$program") config=$(basename "$(dirname "$program")")
work=$(mktemp -d "${TMPDIR:-/tmp}/frostline-fingerprint-XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() { echo "fingerprint test: $*"; tail -n 20 "$work/log"; exit 1; }

. tests/support/token_ids.sh
ids 2 96 37 >"$work/text.json"
mkdir "$work/tree"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp -a --parents -t "$work/tree"
cp -a --parents "$build" "$work/tree"
cd "$work/tree"
cat >"$work/sweep.yaml" <<YAML
name: edited
model: {path: $PWD/tests/fixtures/reference/llama_gqa}
text: {ids: $work/text.json}
variant: {window: 8, sinks: 2}
sweep: {grid: {variant.rule: [none, gla, kda]}}
YAML

build() { make CONFIG="$config" all >"$work/log" 2>&1 || fail "the copy does not build"; }
run() { "$program" "$@" >"$work/log" 2>&1 || fail "$* failed"; }
says() { grep -q -- "$1" "$work/log" || fail "no '$1'"; }
# The labels here hold no comma.
nmse_of() {
  "$program" export "$1" --summary | awk -F, -v rule="$2" '
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
    $at["rule"] == rule { print $at["nmse"] }' | grep . || fail "no nMSE of $2"
}

build
run run "$work/sweep.yaml" --out "$work/out"
says "3 cells to measure"
old_kda=$(nmse_of "$work/out" kda) old_gla=$(nmse_of "$work/out" gla)

# The rule: its writes are halved.
grep -q 'output->write\[0\] = input->beta;' attn_variants/kda.c || fail "kda.c does not hold the line that is edited here"
sed -i 's/output->write\[0\] = input->beta;/output->write[0] = 0.5f * input->beta;/' attn_variants/kda.c
build
run plan "$work/sweep.yaml" --out "$work/out"
says "(changed: kda.c)"
says "3 cells: 1 to do, 2 done"
run run "$work/sweep.yaml" --out "$work/out"
says "1 cells to measure, 2 kept"
new_kda=$(nmse_of "$work/out" kda)
[ "$new_kda" != "$old_kda" ] || fail "kda's numbers are the old ones: $old_kda"
run run "$work/sweep.yaml" --out "$work/fresh"
[ "$new_kda" = "$(nmse_of "$work/fresh" kda)" ] || fail "kda's numbers are not those of a fresh folder"
[ "$old_gla" = "$(nmse_of "$work/out" gla)" ] || fail "gla's numbers are others"

# Below all rules.
echo '/* edited */' >>attn_variants/attn_variant.h
build
run plan "$work/sweep.yaml" --out "$work/out"
says "3 cells: 3 to do, 0 done"
says "(changed: attn_variant.h)"
run run "$work/sweep.yaml" --out "$work/out" --keep-older
says "0 cells to measure, 3 kept"
says "kept, older"

# Killed at random moments, the folder holds the old file of a cell or its new one, whole.
mkdir "$work/old"
cp "$work"/out/*.h5 "$work/old"
RANDOM=${KILL_SEED:-1}
killed=0 aside=0 round=0
start=$(date +%s%N)
run run "$work/sweep.yaml" --out "$work/timed" --threads 1 --batch 1
whole=$((($(date +%s%N) - start) / 1000000))
check_whole() {
  local old id file
  for old in "$work"/old/*.h5; do
    id=$(basename "$old" .h5)
    file="$work/out/$id.h5"
    [ -e "$file" ] || file="$work/out/$id.h5.older"
    [ -e "$file" ] || fail "kill $killed: $id is gone"
    "$program" inspect "$file" >"$work/log" 2>&1 || fail "kill $killed: $file does not open"
    grep -q '^status *complete' "$work/log" || fail "kill $killed: $file is not complete"
    case $file in *.older) cmp -s "$file" "$old" || fail "kill $killed: $file is not the old one" ;; esac
  done
}
while [ "$killed" -lt "${KILLS:-30}" ] && [ "$round" -lt 300 ]; do
  round=$((round + 1))
  "$program" run "$work/sweep.yaml" --out "$work/out" --threads 1 --batch 1 >"$work/log" 2>&1 &
  child=$!
  moment=$((RANDOM % (whole + 50)))
  sleep "$(printf '%d.%03d' $((moment / 1000)) $((moment % 1000)))"
  exec 3>&2 2>/dev/null
  kill -KILL "$child" || true
  code=0
  wait "$child" || code=$?
  exec 2>&3 3>&-
  if [ "$code" -eq 137 ]; then killed=$((killed + 1)); fi
  if ls "$work"/out/*.older >/dev/null 2>&1; then aside=$((aside + 1)); fi
  check_whole
  if ! ls "$work"/out/*.older >/dev/null 2>&1 && [ "$code" -eq 0 ]; then
    # All are new: the old ones again, as if they had never been replaced.
    rm -rf "$work/out" && mkdir "$work/out" && cp "$work"/old/*.h5 "$work/out"
  fi
done
[ "$killed" -gt 0 ] || fail "no run was killed"
run run "$work/sweep.yaml" --out "$work/out"
run plan "$work/sweep.yaml" --out "$work/out"
says "3 cells: 0 to do, 3 done"
! ls "$work"/out/*.older >/dev/null 2>&1 || fail "an old run file is left"
rm -rf "$work/out" && mkdir "$work/out" && cp "$work"/old/*.h5 "$work/out"
run run "$work/sweep.yaml" --out "$work/out"
says "3 cells to measure, 0 kept"

# What computes nothing.
echo 'edited' >>docs/architecture.md
echo '/* edited */' >>harness/cli/command_plan.c
echo '/* edited */' >>analysis/report.c
build
run plan "$work/sweep.yaml" --out "$work/out"
says "3 cells: 0 to do, 3 done"
! ls "$work"/out/*.older >/dev/null 2>&1 || fail "an old run file is left"
echo "fingerprint test: a rule edited and built again: its cells alone measured anew, as in a fresh folder; a header below all" \
  "rules: all; documentation, command line, analysis: none; $killed kills -9 while measuring anew ($aside with an old file set aside): no result lost"
