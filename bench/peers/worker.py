"""One peer in a process of its own: told over standard input what to measure, answers on standard output, a line of
JSON each way. A case is warmed up once, the first time it is asked for, unless "warm_up" is false. Waiting costs no
processor time, so that peers can take turns.

    -> {"kind": "prefill", "tokens": 512, "repeats": 2}
    <- {"seconds": [...], "note": {...}}

The first line out is {"ready": "name and version"} or {"absent": "why"}.

usage: worker.py PEER THREADS SETTINGS.json
"""

import importlib
import json
import os
import resource
import sys
import time

PEERS = {
    "huggingface": ("peer_huggingface", "HuggingFace"),
    "llama.cpp F32": ("peer_llama_cpp", "LlamaF32"),
    "llama.cpp as stored": ("peer_llama_cpp", "LlamaStored"),
    "torch": ("peer_torch", "Torch"),
    "lm_eval": ("peer_lm_eval", "LmEval"),
}


def open_peer(name, threads, settings):
    module, kind = PEERS[name]
    return getattr(importlib.import_module(module), kind)(threads, settings)


def measure(peer, request, warmed):
    case = {key: value for key, value in request.items() if key not in ("repeats", "warm_up")}
    body = peer.prepare(case)
    key = json.dumps(case, sort_keys=True)
    if request.get("warm_up", True) and key not in warmed:
        body()
        warmed.add(key)
    seconds = []
    for _ in range(request["repeats"]):
        start = time.perf_counter()
        note = body()
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "note": note or {}, "peak_resident_bytes": peak}


def main():
    name, threads, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with open(path, encoding="utf-8") as file:
        settings = json.load(file)
    try:
        peer = open_peer(name, threads, settings)
    except Exception as error:  # whatever a peer raises means that it cannot be measured here
        print(json.dumps({"absent": f"{type(error).__name__}: {error}"}), file=answers)
        return
    print(json.dumps({"ready": peer.version}), file=answers)
    warmed = set()
    for line in sys.stdin:
        try:
            answer = measure(peer, json.loads(line), warmed)
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)


main()
