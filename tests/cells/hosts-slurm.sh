#!/usr/bin/env bash
# Ranks work in a real Slurm with two nodes (both on this machine). In a batch job they are where the allocation says,
# reached by srun and a direct connection; the signal before a preemption reaches their cells, which write a checkpoint.
# With the daemon outside the allocation, objects go over the direct connection; when the job is cancelled, the daemon
# reports it, and nothing of the ranks is left.
. "$(dirname "$0")/../lib.sh"

PATH=$PATH:/usr/sbin
for need in munged slurmctld slurmd srun sbatch scancel; do
	command -v $need >/dev/null || skip "there is no $need (apt-get install slurm-wlm munge)"
done
[ "$(id -u)" = 0 ] || skip 'slurmd is for root'
"$TORCH_PYTHON" -c 'import torch' 2>/dev/null || skip "no torch in $TORCH_PYTHON"

export SLURM_CONF=$T/slurm.conf
daemons=()
no_job() {
	[ -z "$(squeue -h)" ]
}
finish() {
	local ended=$?
	scancel --full --signal=KILL --user=root
	until_true no_job
	# slurmd waits for its steps, which have ended or never will
	kill -KILL "${daemons[@]}"
	wait "${daemons[@]}"
	[ ! "$cgroups" ] || find "$freezer"/slurm_{$one_name,$two_name} -depth -type d -exec rmdir {} +
	(exit "$ended")
	at_exit
}
trap 'finish 2>/dev/null' EXIT

# ---- two nodes

# if possible, processes are tracked as on real clusters; otherwise orphans escape Slurm
one_name=n1 two_name=n2 freezer=/sys/fs/cgroup/freezer cgroups='' tracking=linuxproc
if [ -w $freezer/tasks ] && [ ! -e $freezer/slurm_$one_name ] && [ ! -e $freezer/slurm_$two_name ]; then
	cgroups=1 tracking=cgroup
	printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' >"$T/cgroup.conf"
fi

read -r ctl one two < <(free_ports 3)
mkdir -m 700 "$T/munge"
head -c 1024 /dev/urandom >"$T/munge.key"
chmod 600 "$T/munge.key"
host=$(hostname -s)
cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$ctl
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$T/munge/socket
StateSaveLocation=$T/state
SlurmdSpoolDir=$T/spool-%n
SlurmctldPidFile=$T/slurmctld.pid
SlurmdPidFile=$T/slurmd-%n.pid
ProctrackType=proctrack/$tracking
TaskPlugin=task/none
MpiDefault=none
KillWait=1
ReturnToService=2
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$one CPUs=2
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$two CPUs=2
PartitionName=all Nodes=n1,n2 Default=YES State=UP
END
mkdir "$T/state"
munged -F --force --key-file="$T/munge.key" --socket="$T/munge/socket" --log-file="$T/munge/log" \
	--pid-file="$T/munge/pid" --seed-file="$T/munge/seed" 2>/dev/null &
daemons+=($!)
until_true test -S "$T/munge/socket"
slurmctld -D >"$T/slurmctld.log" 2>&1 &
daemons+=($!)
for node in n1 n2; do
	slurmd -D -N $node >"$T/slurmd-$node.log" 2>&1 &
	daemons+=($!)
done
both_idle() {
	[ "$(sinfo -h -N -t idle -o %N 2>/dev/null | xargs)" = 'n1 n2' ]
}
until_true both_idle || give_up "no node is idle: $(tail -n 3 "$T"/slurm*.log)"

# ---- a batch job

# is_in_job PID: true also if it exits, since its cgroup is the first thing that it leaves
is_in_job() {
	grep -qs '/slurm_n[12]/uid_0/job_1/' "/proc/$1/cgroup" || has_ended "$1"
}

# all_reached HOW: are all nodes reached this way (launcher or direct)?
all_reached() {
	[ "$(grep -c " connection=$1 " "$G/hosts")" = 2 ]
}
cat >"$T/train.py" <<END
import os, time
import ddip
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
t = torch.ones(1) * rank
dist.all_reduce(t)
print(os.environ["SLURMD_NODENAME"], rank, os.environ["LOCAL_RANK"], t.item())
step = 0
try:
    print("trains", flush=True)
    while True:
        step += 1
        time.sleep(0.01)
except ddip.Preempted:
    torch.save(step, f"$T/checkpoint.{rank}")
while not os.path.exists("$T/seen"):
    time.sleep(0.1)
END
mkdir "$M"
# the nodes of a real cluster know each other's names
sed 's/^options=(/&-o master_addr=127.0.0.1 /' "$ROOT/scripts/examples/slurm.sh" >"$T/job"
PATH=$BUILD:$PATH DDIP_MOUNT=$M DDIP_STATE=$T XDG_CACHE_HOME=$T/cache VIRTUAL_ENV=$(dirname "$(dirname "$TORCH_PYTHON")") \
	sbatch -Q --nodes=2 --ntasks-per-node=2 -o "$T/said" "$T/job" "$T/train.py" || give_up 'no job can be submitted'
: >>"$T/said"
until_true grep -q '^trains' "$T/said" || give_up "the job said: $(cat "$T/said")"
for k in 0 1 2 3; do
	until_true grep -q '^trains' "$G/rank$k/stdout"
done
is 'ranks of one node' "$(head -n 1 "$G/rank0/stdout")" 'n1 0 0 6.0'
is 'and of the other' "$(head -n 1 "$G/rank3/stdout")" 'n2 3 1 6.0'
like 'their places' "$(cat "$G/hosts")" $'n1 state=up .*slots=2 ranks=0-1.*\nn2 state=up .*slots=2 ranks=2-3'
until_true all_reached direct || bad "a node is not reached beside srun: $(cat "$G/hosts")"
if [ "$cgroups" ]; then
	for pid in $(others); do
		until_true is_in_job "$pid" || bad "process $pid escapes the job: $(cat "/proc/$pid/cgroup" "/proc/$pid/comm")"
	done
fi
exec 5<"$G/events"
# as --signal=USR1@60 does before the end: to all steps, not to the batch script
scancel --signal=USR1 --state=RUNNING --user=root
for k in 0 1 2 3; do
	until_true test -s "$T/checkpoint.$k" || give_up "the job said: $(cat "$T/said")"
done
like 'events tell on which host' "$(await 5 ' preempted ')" 'preempted signal=USR1 host=n[12]$'
exec 5<&-
touch "$T/seen"
until_true no_job || give_up "the job said: $(cat "$T/said")"
until_true both_idle || bad "a node is not idle again: $(sinfo -h -N -o '%N %t' | xargs)"

# ---- an allocation

salloc -Q --nodes=2 --ntasks-per-node=2 --no-shell || give_up 'there is no allocation'
SLURM_JOB_ID=$(squeue -h -o %A)
export SLURM_JOB_ID
export SLURM_JOB_NODELIST='n[1-2]' SLURM_TASKS_PER_NODE='2(x2)' XDG_CACHE_HOME=$T/cache
mount_plain -o hosts=slurm -o launcher=srun-only
ok cell pass
ok all_reached launcher
unmount
mount_plain -o hosts=slurm -o launcher=srun -o linger=2
cell 'import os; os.environ["SLURMD_NODENAME"]'
is 'the daemon need not be in the job' "$(cat "$G"/cells/last/rank*/result | xargs)" 'n1 n1 n2 n2'
until_true all_reached direct || bad "a node is not reached beside srun: $(cat "$G/hosts")"
ok cell 'x = os.urandom(16 << 20)'
ok cp "$G/rank3/vars/x.pkl" "$G/rank0/vars/y.pkl"
ok cp "$G/rank0/vars/y.pkl" "$G/rank3/vars/y.pkl"
ok cell 'assert rank != 3 or x == y'
ranks=$(rank_pids)
exec 5<"$G/events"
scancel "$SLURM_JOB_ID"
like 'events tell what was lost' "$(await 5 ' lost')" 'host n[12] lost'
exec 5<&-
until_true grep -q '^state stopped' "$G/status"
like 'the hosts are named' "$(cat "$G/error")" 'EHOSTDOWN .*host n[12]'
until_true no_job || bad "the job is still there: $(squeue -h)"
# shellcheck disable=SC2086 # a list
gone $ranks
unmount
