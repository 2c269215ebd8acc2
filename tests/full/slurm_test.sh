#!/usr/bin/env bash
# `frostline plan --slurm` under a real Slurm on this machine: munge, one slurmctld, two slurmd with configurations of their own in a
# temporary folder. The job array is submitted, one node is killed with everything on it while its worker computes, and
# in the end every cell must be done. Needs root; installs Debian's slurm-wlm and munge when they are absent.
# usage: slurm_test.sh      FROSTLINE: the program; TMPDIR
set -eu
cd "$(dirname "$0")/../.."
skip() { echo "skipped: slurm test: $*"; exit 0; }
[ "$(id -u)" -eq 0 ] || skip "needs root"
if ! command -v slurmctld >/dev/null || ! command -v slurmd >/dev/null || ! command -v munged >/dev/null; then
  command -v apt-get >/dev/null || skip "slurm-wlm and munge are not installed"
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends slurm-wlm munge >/dev/null 2>&1 ||
    skip "slurm-wlm and munge could not be installed"
fi
frostline=$(realpath "${FROSTLINE:-build/release/frostline}")
model=$(realpath tests/fixtures/reference/llama_gqa)
work=$(mktemp -d "${TMPDIR:-/tmp}/frostline-slurm-XXXXXX")
chmod 755 "$work"
cleanup() {
  local file
  [ -z "${job:-}" ] || scancel "$job" 2>/dev/null || true
  for file in "$work"/run/*.pid; do if [ -e "$file" ]; then kill -KILL "$(cat "$file")" 2>/dev/null || true; fi; done
  for file in $(pids_under "$work"); do kill -KILL "$file" 2>/dev/null || true; done
  rm -rf "$work"
}
# Processes with this folder in their command line: job steps and what they run.
pids_under() {
  local entry
  for entry in /proc/[0-9]*; do
    [ "${entry#/proc/}" = $$ ] && continue
    if { tr '\0' ' ' <"$entry/cmdline"; } 2>/dev/null | grep -q -F -- "$1"; then echo "${entry#/proc/}"; fi
  done
}
trap cleanup EXIT
fail() { echo "slurm test: $*"; tail -n 20 "$work"/log/* "$work"/*.log 2>/dev/null; exit 1; }

mkdir -p "$work"/{run,log,state,spool1,spool2}
host=$(hostname -s)
dd if=/dev/urandom of="$work/munge.key" bs=1024 count=1 2>/dev/null
chmod 400 "$work/munge.key"
munged --force --key-file="$work/munge.key" --socket="$work/run/munge.socket" --pid-file="$work/run/munged.pid" \
  --log-file="$work/log/munged.log" --seed-file="$work/state/munge.seed" || fail "munged does not start"
port=$((20000 + RANDOM % 20000))
cat >"$work/slurm.conf" <<CONF
ClusterName=frostline
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/run/munge.socket
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
SlurmctldPidFile=$work/run/slurmctld.pid
SlurmdPidFile=$work/run/slurmd-%n.pid
SlurmctldLogFile=$work/log/slurmctld.log
SlurmdLogFile=$work/log/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
MessageTimeout=10
BatchStartTimeout=10
KillWait=2
MinJobAge=600
SchedulerParameters=batch_sched_delay=1,sched_interval=2
NodeName=one NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=1 State=UNKNOWN
NodeName=two NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=1 State=UNKNOWN
PartitionName=all Nodes=one,two Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF="$work/slurm.conf"
slurmctld -f "$SLURM_CONF" || fail "slurmctld does not start"
for node in one two; do
  slurmd -N "$node" -f "$SLURM_CONF" || fail "slurmd $node does not start"
done

# Waits up to SECONDS for a condition.
await() {
  local seconds=$1 i
  shift
  for ((i = 0; i < seconds * 5; i++)); do
    if "$@"; then return 0; fi
    sleep 0.2
  done
  return 1
}
nodes_idle() { [ "$(sinfo -h -N -o '%T' 2>/dev/null | grep -c '^idle$')" -eq 2 ]; }
await 60 nodes_idle || fail "the nodes do not come up: $(sinfo 2>&1)"

# Long enough a training in every cell that a node can be lost in the middle of one.
. tests/support/token_ids.sh
ids 2 96 37 >"$work/text.json"
ids 8 64 53 >"$work/fit.json"
cat >"$work/sweep.yaml" <<YAML
name: slurm
model: {path: $model}
text: {ids: $work/text.json}
variant: {window: 8, sinks: 2}
train: {steps: 150, checkpoint_every: 10, ids: $work/fit.json, allow_overlap: true}
sweep:
  grid:
    variant.rule: [gla, kgla, gated_delta, kda]
    train.seed: [1, 2]
YAML
cells=8
(cd "$work" && "$frostline" plan sweep.yaml --out out --slurm --array 2 --threads 1 >job.sh) || fail "no script"
job=$(cd "$work" && sbatch --parsable job.sh) || fail "sbatch refuses the script"

claims() { find "$work/out" -name '*.claim' 2>/dev/null | wc -l; }
finished() { find "$work/out" -name '*.h5' ! -name '.*' 2>/dev/null | wc -l; }
two_work() { [ "$(claims)" -ge 2 ] && [ "$(finished)" -ge 1 ]; }
await 120 two_work || fail "two workers never ran at once: $(squeue 2>&1)"

# The node is gone at once: its daemon, its steps and its worker.
lost=$(squeue -h -t R -j "$job" -o '%N %A' | awk '$1 == "two" { print $2; exit }')
[ -n "$lost" ] || fail "no task runs on node two: $(squeue 2>&1)"
done_before=$(finished)
worker=
for pid in $(pids_under "$frostline"); do
  if { tr '\0' '\n' <"/proc/$pid/environ"; } 2>/dev/null | grep -q '^SLURMD_NODENAME=two$'; then worker="$worker $pid"; fi
done
[ -n "$worker" ] || fail "no worker is found on node two"
kill -KILL "$(cat "$work/run/slurmd-two.pid")" || fail "slurmd two is not running"
for pid in $(pids_under "slurmstepd: [$lost"); do kill -KILL "$pid" 2>/dev/null || true; done
for pid in $worker; do kill -KILL "$pid" 2>/dev/null || true; done

job_over() { [ -z "$(squeue -h -j "$job" 2>/dev/null)" ]; }
await 240 job_over || fail "the job does not end: $(squeue 2>&1)"
[ "$(finished)" -eq $cells ] || fail "$(finished) cells are done, not $cells"
requeued=$(scontrol show job "$job" 2>/dev/null | grep -o 'Restarts=[0-9]*' | sort | tail -n 1)
(cd "$work" && "$frostline" run sweep.yaml --out out --threads 1 >again.log 2>&1) || fail "the folder is not as it should be"
grep -q "0 cells to measure, $cells kept" "$work/again.log" || fail "a finished cell was computed again"
stray=$(find "$work/out" -name '*.part*' -o -name '*.partial*' -o -name '*.claim*' -o -name '*.journal.jsonl' -o -name '*.failed.json')
[ -z "$stray" ] || fail "left behind: $stray"
twice=$(cat "$work"/frostline-slurm-*.log | grep '^done: ' | sort | uniq -d)
[ -z "$twice" ] || fail "computed twice: $twice"
echo "slurm test: $(slurmctld -V), 2 nodes, $cells cells; one node killed with $done_before cells done ($requeued):" \
  "every cell done exactly once, nothing left behind"
