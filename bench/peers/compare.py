"""frostline and its peers on the same input, taking turns (A B A B), so that whatever else the machine does hits both;
then a table of ratios, and JSON. Run through run.sh, which brings the peers."""

import argparse
import json
import os
import statistics
import subprocess
import sys

PROGRAM = "build/release/frostline"
WORK = "build/peers"
KERNEL_SHAPES = ((9, 64), (32, 128))
KERNEL_TOKENS = 1024
CHUNK_RULES = ("delta", "gated_delta", "kda")


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench/peers/run.sh", description=__doc__)
    parser.add_argument("--model", default="models/smollm2-135m.gguf", help="a .gguf file")
    parser.add_argument("--text", default="datasets/calibration.txt", help="what is read, over and over")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each side")
    parser.add_argument("--lengths", default="128,512,1024,4096", help="tokens of the prompts")
    parser.add_argument("--rounds", type=int, default=3, help="turns each side takes")
    parser.add_argument("--repeats", type=int, default=2, help="in each turn")
    parser.add_argument("--skip", default="", help="peers to leave out, between commas")
    parser.add_argument("--no-kernels", action="store_true", help="prompts only")
    parser.add_argument("--mmlu", help="folder in MMLU's layout: questions as well, with lm_eval")
    parser.add_argument("--subjects", default="", help="of it, between commas (default: all)")
    parser.add_argument("--questions", type=int, default=10, help="of each subject")
    parser.add_argument("--json", default=f"{WORK}/peers.json", help="where everything goes")
    arguments = parser.parse_args()
    try:
        arguments.lengths = [int(part) for part in arguments.lengths.split(",")]
    except ValueError:
        parser.error(f"--lengths: {arguments.lengths} is not a list of numbers")
    if min(arguments.lengths) < 1 or min(arguments.rounds, arguments.repeats, arguments.threads) < 1:
        parser.error("lengths, rounds, repeats and threads are at least 1")
    if not os.path.isfile(arguments.model):
        parser.error(f"{arguments.model}: no such file")
    return arguments


def token_ids(model, text, count):
    """The text's tokens as frostline's tokenizer has them, over and over."""
    with open(text, encoding="utf-8") as file:
        line = json.dumps(file.read()) + "\n"
    run = subprocess.run([PROGRAM, "tokenize", model], input=line, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(run.stderr)
    ids = json.loads(run.stdout)
    return (ids * (count // len(ids) + 1))[:count]


class Frostline:
    """`frostline bench`, a process a turn; its own warm-up and machine rows included in none of the figures."""

    name = "frostline"

    def __init__(self, arguments):
        self.arguments = arguments
        self.machine = None

    def run(self, flags, repeats, with_model=True):
        path = f"{WORK}/turn.json"
        command = [PROGRAM, "bench"] + ([self.arguments.model] if with_model else [])
        command += ["--threads", str(self.arguments.threads), "--repeats", str(repeats), "--json", path]
        run = subprocess.run(command + flags, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        if run.returncode != 0:
            sys.exit(run.stderr.decode())
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        self.machine = report["machine"]
        peaks = [row for row in report["rows"] if row["group"] == "machine" and row["name"] == "sgemm"]
        self.machine["sgemm_gflops"] = max(
            [row["value"] for row in peaks] + [self.machine.get("sgemm_gflops", 0)]
        )
        return [row for row in report["rows"] if row["group"] != "machine"]


class Peer:
    """A worker.py process."""

    def __init__(self, name, threads, settings_path):
        environment = dict(os.environ, TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
        for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            environment[variable] = str(threads)
        self.name = name
        self.log_path = f"{WORK}/{name.replace(' ', '_')}.log"
        self.log = open(self.log_path, "w", encoding="utf-8")
        worker = os.path.join(os.path.dirname(__file__), "worker.py")
        command = [sys.executable, worker, name, str(threads), settings_path]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment
        )
        first = self.answer()
        self.version = first.get("ready")
        self.absent = first.get("absent", first.get("failed"))

    def answer(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"failed": f"the process ended ({self.log_path})"}

    def measure(self, case, repeats):
        try:
            self.process.stdin.write(json.dumps(dict(case, repeats=repeats)) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.answer()

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()
        self.log.close()


class Table:
    """Seconds of every case and side, gathered over the turns."""

    def __init__(self):
        self.cases = {}  # case name -> {"work", "unit", "sides": {name: {"seconds", ...}}}

    def add(self, case, work, unit, side, answer):
        entry = self.cases.setdefault(case, {"work": work, "unit": unit, "sides": {}})
        slot = entry["sides"].setdefault(side, {"seconds": [], "note": {}})
        if "failed" in answer:
            slot["failed"] = answer["failed"]
            return
        slot["seconds"] += answer["seconds"]
        slot["note"].update(answer.get("note", {}))
        if "peak_resident_bytes" in answer:
            slot["peak_resident_bytes"] = max(answer["peak_resident_bytes"], slot.get("peak_resident_bytes", 0))

    def finish(self):
        for entry in self.cases.values():
            for slot in entry["sides"].values():
                if slot["seconds"]:
                    slot["minimum_seconds"] = min(slot["seconds"])
                    slot["median_seconds"] = statistics.median(slot["seconds"])
            for side, slot in entry["sides"].items():
                slot["frostline_faster"] = self.ratios(entry, side)

    @staticmethod
    def ratios(entry, side):
        """How many times faster each of frostline's sides of a case is."""
        if side.startswith("frostline") or "minimum_seconds" not in entry["sides"][side]:
            return {}
        theirs = entry["sides"][side]
        return {
            name: {key: theirs[f"{key}_seconds"] / own[f"{key}_seconds"] for key in ("minimum", "median")}
            for name, own in entry["sides"].items()
            if name.startswith("frostline") and "minimum_seconds" in own
        }

    def print(self):
        for case, entry in self.cases.items():
            print(f"\n{case}")
            columns = f"{'min s':>10} {'median s':>10} {entry['unit']:>14}"
            print(f"  {'':32} {columns} frostline is, times as fast (min; median)")
            for side, slot in entry["sides"].items():
                if "minimum_seconds" not in slot:
                    print(f"  {side:32} {slot.get('failed', 'not measured')}")
                    continue
                ratios = slot["frostline_faster"]
                text = ", ".join(
                    (f"{name.removeprefix('frostline ')} " if len(ratios) > 1 else "")
                    + f"{ratio['minimum']:.2f}; {ratio['median']:.2f}"
                    for name, ratio in ratios.items()
                )
                rate = entry["work"] / slot["minimum_seconds"]
                print(
                    f"  {side:32} {slot['minimum_seconds']:10.4f} {slot['median_seconds']:10.4f} {rate:14.4g} {text}"
                )


def measure_prefill(arguments, frostline, peers, table):
    for tokens in arguments.lengths:
        case = f"prompt of {tokens} tokens, logits of the last"
        for turn in range(arguments.rounds):
            print(f"{case}, turn {turn + 1}", file=sys.stderr)
            flags = ["--rows", "forward", "--rules", "softmax", "--lengths", str(tokens), "--ids", f"{WORK}/ids.json"]
            row = frostline.run(flags, arguments.repeats)[0]
            table.add(case, tokens, "tokens/s", "frostline", row)
            for peer in peers:
                request = {"kind": "prefill", "tokens": tokens}
                table.add(case, tokens, "tokens/s", peer.name, peer.measure(request, arguments.repeats))


def kernel_row(rows, name, **parameters):
    for row in rows:
        if row["name"] == name and all(row["parameters"].get(key) == value for key, value in parameters.items()):
            return row
    sys.exit(f"frostline bench has no row {name} {parameters}")


def measure_kernels(arguments, frostline, peer, table):
    for turn in range(arguments.rounds):
        print(f"kernels, turn {turn + 1}", file=sys.stderr)
        rows = frostline.run(["--rows", "kernels"], arguments.repeats, with_model=False)
        for heads, dim in KERNEL_SHAPES:
            shape = {"tokens": KERNEL_TOKENS, "heads": heads, "head_dim": dim}
            text = f"T {KERNEL_TOKENS}, H {heads}, D {dim}"
            chunk, softmax = f"chunked delta rule, {text}", f"exact causal softmax, {text}"
            for rule in CHUNK_RULES:
                row = kernel_row(rows, "chunk", transition=rule, **shape)
                table.add(chunk, KERNEL_TOKENS, "tokens/s", f"frostline {rule}", row)
            row = kernel_row(rows, "softmax", kv_heads=heads, **shape)
            table.add(softmax, KERNEL_TOKENS, "tokens/s", "frostline", row)
            for case, kind in ((chunk, "chunk"), (softmax, "softmax")):
                answer = peer.measure(dict(shape, kind=kind), arguments.repeats)
                name = "transformers gated_delta" if kind == "chunk" else "torch SDPA"
                table.add(case, KERNEL_TOKENS, "tokens/s", name, answer)


def measure_mmlu(arguments, frostline, peer, table):
    """Each side once a turn: a turn of lm_eval alone takes minutes."""
    flags = ["--rows", "tasks", "--rules", "softmax", "--shared-only", "--mmlu", arguments.mmlu, "--questions", str(arguments.questions)]
    flags += ["--subjects", arguments.subjects] if arguments.subjects else []
    case = "MMLU, 5 shots"
    for turn in range(arguments.rounds):
        print(f"{case}, turn {turn + 1}", file=sys.stderr)
        row = kernel_row(frostline.run(flags, 1), "mmlu", rule="softmax", prefixes="shared")
        table.add(case, row["work"], "questions/s", "frostline", row)
        answer = peer.measure({"kind": "mmlu", "questions": arguments.questions, "warm_up": False}, 1)
        table.add(case, row["work"], "questions/s", peer.name, answer)


def next_token_notes(table):
    """Where peers on the same float32 weights do not continue a prompt with the same token. (As stored, llama.cpp
    rounds activations as well, and may.)"""
    notes = []
    for case, entry in table.cases.items():
        found = {
            side: slot["note"]["next_token"]
            for side, slot in entry["sides"].items()
            if "next_token" in slot["note"] and side != "llama.cpp as stored"
        }
        if len(set(found.values())) > 1:
            notes.append(f"{case}: next tokens differ: {found}")
    return notes


def open_peers(arguments, settings_path):
    wanted = ["huggingface", "llama.cpp F32", "llama.cpp as stored"]
    wanted += [] if arguments.no_kernels else ["torch"]
    wanted += ["lm_eval"] if arguments.mmlu else []
    peers = {}
    for name in wanted:
        if name in arguments.skip.split(","):
            continue
        print(f"opening {name}", file=sys.stderr)
        peers[name] = Peer(name, arguments.threads, settings_path)
    return peers


def main():
    arguments = parse_arguments()
    os.makedirs(WORK, exist_ok=True)
    ids = token_ids(arguments.model, arguments.text, max(arguments.lengths))
    with open(f"{WORK}/ids.json", "w", encoding="utf-8") as file:
        json.dump([ids], file)
    settings = {
        "model": os.path.abspath(arguments.model),
        "widened": os.path.abspath(f"{WORK}/{os.path.basename(arguments.model).removesuffix('.gguf')}-f32.gguf"),
        "ids": ids,
        "mmlu": arguments.mmlu,
        "subjects": [part for part in arguments.subjects.split(",") if part],
        "work": WORK,
    }
    with open(f"{WORK}/settings.json", "w", encoding="utf-8") as file:
        json.dump(settings, file)
    frostline, table = Frostline(arguments), Table()
    peers = open_peers(arguments, f"{WORK}/settings.json")
    here = {name: peer for name, peer in peers.items() if peer.absent is None}
    measure_prefill(arguments, frostline, [p for n, p in here.items() if n not in ("torch", "lm_eval")], table)
    if "torch" in here:
        measure_kernels(arguments, frostline, here["torch"], table)
    if "lm_eval" in here:
        measure_mmlu(arguments, frostline, here["lm_eval"], table)
    for peer in peers.values():
        peer.close()
    table.finish()
    report(arguments, frostline, peers, table)


def report(arguments, frostline, peers, table):
    machine = frostline.machine
    print(
        f"\n{machine.get('processor', 'unknown processor')}, {arguments.threads} threads, frostline "
        f"{machine['revision']}, sgemm peak {machine['sgemm_gflops']:.0f} GFLOP/s"
    )
    for name, peer in peers.items():
        print(f"  {name}: {peer.version if peer.absent is None else 'absent: ' + peer.absent}")
    table.print()
    notes = next_token_notes(table)
    print("".join(f"\n{note}" for note in notes), end="\n" if notes else "")
    document = {
        "machine": machine,
        "settings": vars(arguments),
        "peers": {name: {"version": peer.version, "absent": peer.absent} for name, peer in peers.items()},
        "cases": table.cases,
        "notes": notes,
    }
    with open(arguments.json, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
    print(f"\n{arguments.json}")


if __name__ == "__main__":
    main()
