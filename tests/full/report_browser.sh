#!/usr/bin/env bash
# Reports in a real browser: a sweep of seeds with hostile names, a failed cell and a damaged file. report_browser.py
# has the checks. Skipped without chromium, python3 or gnuplot.
# usage: report_browser.sh      FROSTLINE: the program; TMPDIR
set -eu
cd "$(dirname "$0")/../.."
frostline=$(realpath "${FROSTLINE:-build/release/frostline}")
for program in chromium python3 gnuplot; do
  command -v "$program" >/dev/null || { echo "skipped: report in a browser: $program is not installed"; exit 0; }
done
model=$(realpath tests/fixtures/reference/llama_gqa)
work=$(mktemp -d "${TMPDIR:-/tmp}/frostline-report-XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() { echo "report in a browser: $*"; tail -n 20 "$work/log"; exit 1; }

. tests/support/token_ids.sh
ids 8 96 37 >"$work/text.json"
ids 4 64 53 >"$work/fit.json"

cat >"$work/seeds.yaml" <<YAML
name: "</title><script>window.injected = 1</script><img src=x onerror='window.injected = 1'>"
model: {path: $model}
text: {ids: $work/text.json}
variant: {window: 8, sinks: 2}
train: {objective: layer_mse, steps: 3, warmup_steps: 1, ids: $work/fit.json}
sweep:
  list:
    - {variant.rule: softmax}
    - {variant.rule: none}
    - {variant.rule: gla, variant.seed: 1}
    - {variant.rule: gla, variant.seed: 2}
    - {variant.rule: gla, variant.seed: 3}
    - {variant.rule: kda, variant.window: 24, label: "\"><script>window.injected = 2</script>"}
    - {variant.rule: kda, variant.window: 24, variant.short_conv: {kernel: 4, init: identity}}
YAML
"$frostline" run "$work/seeds.yaml" --out "$work/seeds" --threads 1 >"$work/log" 2>&1 || fail "the sweep failed"
echo '{"status": "memory", "message": "out of <b>memory</b>"}' >"$work/seeds/0123456789ab.failed.json"
echo "no HDF5" >"$work/seeds/ba9876543210.h5"
"$frostline" report "$work/seeds" --out "$work/seeds.html" >"$work/log" 2>&1 || left_out=$?
[ "${left_out:-0}" -eq 3 ] || fail "exit status ${left_out:-0}, not that of a page that leaves a damaged file out"
python3 -B tests/full/report_browser.py "$work/seeds.html" "$work/seeds_figures"
grep -q '0123456789ab' "$work/seeds.html" || fail "the failed cell is not named"
grep -q 'ba9876543210.h5' "$work/seeds.html" || fail "the damaged file is not named"
