#!/usr/bin/env bash
# How fast the device is, with peers in the same run (docs/performance.md): kernels, prefill, variants and training of a model of SmolLM2's
# shape with random weights, then Transformers in float32. After check.sh, which unpacks.
# usage: bench/device/speed.sh [OUT [smollm2|1b]]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${1:-build/device} shape=${2:-smollm2}
mkdir -p "$out" build
portable=build/portable
[ -d "$portable" ] || tar -C build -xf build/portable.tar.xz
export FROSTLINE_CUDA=$PWD/$portable/libfrostline_cuda.so LD_LIBRARY_PATH=$PWD/$portable/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
frostline=$portable/frostline model=build/device_model_$shape
[ -d "$model" ] || LD_LIBRARY_PATH='' python3 bench/device/make_model.py "$model" "$shape" || exit 1
awk 'BEGIN { printf "["; for (s = 0; s < 8; s++) { printf "%s[", s ? "," : ""; for (t = 0; t < 4096; t++) printf "%s%d", t ? "," : "", (t * t % 9973 * 7 + s * 331 + t) % 40000 + 3; printf "]" } print "]" }' >"$out/speed_ids.json"
for rows in kernels forward training variants; do
  echo "== $rows ($SECONDS s)"
  timeout 150 "$frostline" bench "$model" --cuda --threads 16 --repeats 3 --patience 8 --rows $rows --ids "$out/speed_ids.json" \
    --json "$out/speed_$rows.json" 2>&1 | tee "$out/speed_$rows.log" | tail -n 60
done
echo "== peer ($SECONDS s)"
LD_LIBRARY_PATH='' timeout 120 python3 bench/device/peer.py "$model" 16 1024 2>&1 | tail -n 3
echo "== done ($SECONDS s)"
