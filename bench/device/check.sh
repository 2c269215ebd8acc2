#!/usr/bin/env bash
# What to run first on a machine with a GPU, at most eight minutes: driver and card, every operation against float64 and beside the cpu, a
# sweep and trainings beside the cpu's, small shapes under the sanitizers, and equal bytes when repeated. Everything is built before
# (make portable), and build/portable.tar.xz carried there.
# usage: bench/device/check.sh [OUT]      from the root of the tree; logs go to OUT (default build/device)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${1:-build/device}
mkdir -p "$out" build
portable=build/portable
[ -d "$portable" ] || tar -C build -xf build/portable.tar.xz
[ -e build/packs ] || ln -s portable/packs build/packs
run=$portable/run.sh
object=${OBJECT:-$PWD/$portable/libfrostline_cuda.so} # the emulation, to try the script without a GPU
export FROSTLINE=$PWD/$portable/frostline FROSTLINE_CUDA=$object LD_LIBRARY_PATH=$PWD/$portable/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export FROSTLINE_TEST_CUDA=$object
failed=0
step() { echo "== $1 ($SECONDS s)"; }
report() { # name, status
  if [ "$2" -eq 0 ]; then echo "ok      $1"; else echo "FAILED  $1 (status $2), $out/$1.log:"; tail -n 25 "$out/$1.log"; failed=$((failed + 1)); fi
}

step "machine"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || echo "no nvidia-smi"
ldd "$portable/frostline" "$object" | grep "not found" && failed=$((failed + 1))

step "tests"
for test in test_cuda_operations test_cuda_attention test_cuda_recurrence test_backends test_cuda_run; do
  timeout 150 "$portable/tests/$test" >"$out/$test.log" 2>&1
  report "$test" $?
  grep -h "^worst: cuda\|^worst:.*device\|^skipped" "$out/$test.log" | sort -u
done

step "equal bytes when repeated"
cat >"$out/repeat.yaml" <<YAML
model: {path: build/packs/reference/llama_gqa}
text: {ids: $out/ids.json}
variant: {rule: kda, window: 8, sinks: 2}
train: {ids: $out/train.json, objective: next_token, steps: 5}
YAML
awk 'BEGIN { printf "["; for (s = 0; s < 2; s++) { printf "%s[", s ? "," : ""; for (t = 0; t < 64; t++) printf "%s%d", t ? "," : "", (t * 73 + s * 31 + 11) % 300 + 3; printf "]" } print "]" }' >"$out/ids.json"
awk 'BEGIN { printf "["; for (s = 0; s < 2; s++) { printf "%s[", s ? "," : ""; for (t = 0; t < 64; t++) printf "%s%d", t ? "," : "", (t * 37 + s * 17 + 5) % 300 + 3; printf "]" } print "]" }' >"$out/train.json"
for turn in 1 2; do
  timeout 100 "$FROSTLINE" run "$out/repeat.yaml" --device cuda --out "$out/repeat$turn" >"$out/repeat$turn.log" 2>&1 || report "repeat$turn" 1
done
numbers() { cut -d, -f1-26 "$out/repeat$1/table.csv"; }
cmp <(numbers 1) <(numbers 2) >"$out/repeat.log" 2>&1
report repeat $?

if [ -z "${SKIP_SANITIZERS:-}" ] && command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck synccheck; do
    step "$tool"
    for test in test_cuda_operations test_cuda_attention; do
      timeout 100 compute-sanitizer --tool $tool --error-exitcode 9 "$portable/tests/$test" >"$out/$tool.$test.log" 2>&1
      report "$tool.$test" $?
      grep -h "ERROR SUMMARY\|RACECHECK SUMMARY" "$out/$tool.$test.log"
    done
  done
fi
step "done"
echo "$failed failed"
[ "$failed" -eq 0 ]
