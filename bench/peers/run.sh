#!/usr/bin/env bash
# frostline beside its peers on one machine, in one run: Hugging Face Transformers and torch, llama.cpp (through
# llama-cpp-python) and, with --mmlu DIR, lm-evaluation-harness. Peers that cannot be installed are reported as absent.
# usage: bench/peers/run.sh [--model FILE.gguf] [--threads N] [--lengths LIST] [--rounds N] [--repeats N] [--mmlu DIR
#        [--subjects LIST] [--questions N]] [--json FILE]
# PEERS_VENV=DIR: take the peers from this virtual environment as they are, installing nothing.
# Without it they go into build/peers/venv, once; delete that folder to have them anew.
set -euo pipefail
[ -z "${PEERS_VENV:-}" ] || PEERS_VENV=$(realpath "$PEERS_VENV")
export PYTHONDONTWRITEBYTECODE=1
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work=build/peers
mkdir -p "$work"

# One package a call, so that one which fails leaves the others alone.
install() {
  local name=$1
  shift
  echo "peers: $name"
  "$venv/bin/pip" install --quiet "$@" >"$work/pip_$name.log" 2>&1 ||
    echo "peers: $name cannot be installed and is left out ($work/pip_$name.log)"
}

if [ -n "${PEERS_VENV:-}" ]; then
  venv=$PEERS_VENV
  [ -x "$venv/bin/python" ] || { echo "run.sh: no bin/python in PEERS_VENV=$venv" >&2; exit 1; }
else
  venv=$work/venv
  if [ ! -e "$work/installed" ]; then
    python3 -m venv "$venv" || { echo "run.sh: python3 cannot make a virtual environment" >&2; exit 1; }
    # The processor-only build where its own index can be reached, else whatever the registry has.
    install torch torch --index-url https://download.pytorch.org/whl/cpu
    "$venv/bin/python" -c 'import torch' 2>/dev/null || install torch torch
    install transformers transformers
    install gguf gguf
    CMAKE_ARGS="-DGGML_NATIVE=ON" install llama-cpp-python llama-cpp-python
    install lm_eval 'lm_eval[hf]'
    touch "$work/installed"
  fi
fi

make -s all
exec "$venv/bin/python" bench/peers/compare.py "$@"
