#!/usr/bin/env bash
# A batch job of a real Slurm with two nodes (both on this machine): its ranks are where the allocation says, reached by
# srun; when the job is cancelled, nothing of them stays.
. "$(dirname "$0")/../lib.sh"

PATH=$PATH:/usr/sbin
for need in munged slurmctld slurmd srun sbatch scancel; do
	command -v $need >/dev/null || skip "there is no $need (apt-get install slurm-wlm munge)"
done
[ "$(id -u)" = 0 ] || skip 'slurmd is for root'
"$TORCH_PYTHON" -c 'import torch' 2>/dev/null || skip "no torch in $TORCH_PYTHON"

export SLURM_CONF=$T/slurm.conf
daemons=()
finish() {
	local ended=$?
	# slurmd waits for its steps, which have ended or never will
	kill -KILL "${daemons[@]}"
	wait "${daemons[@]}"
	(exit "$ended")
	at_exit
}
trap 'finish 2>/dev/null' EXIT

# ---- two nodes

read -r ctl one two < <("$PLAIN_PYTHON" -c 'import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*[s.getsockname()[1] for s in held])')
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
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
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

# ---- a job

cat >"$T/job" <<END
#!/bin/sh
ddip() { "$BUILD/ddip" -m "$M" "\$@"; }
mkdir -p "$M"
ddip mount -o hosts=slurm -o launcher=srun -o master_addr=127.0.0.1 -o linger=2 -o python="$TORCH_PYTHON" "$M" || exit
ddip exec 'import os, torch, torch.distributed as dist
t = torch.ones(1) * rank
dist.all_reduce(t)
print(os.environ["SLURMD_NODENAME"], rank, os.environ["LOCAL_RANK"], t.item())'
cat "$G/rank3/stdout"
ddip exec 'import time
print("ready", flush=True)
time.sleep(10_000)'
END
DDIP_STATE=$T XDG_CACHE_HOME=$T/cache sbatch -Q --nodes=2 --ntasks-per-node=2 -o "$T/said" "$T/job" ||
	give_up 'no job can be submitted'
until_true grep -q '^ready' "$T/said" || give_up "the job said: $(cat "$T/said")"
is 'the ranks of both nodes' "$(sed -n 1,2p "$T/said")" $'n1 0 0 6.0\nn2 3 1 6.0'
like 'their places' "$(cat "$G/hosts")" $'n1 state=up .*slots=2 ranks=0-1.*\nn2 state=up .*slots=2 ranks=2-3'
scancel --state=RUNNING --user=root
until_true grep -q '^state stopped' "$G/status"
like 'the hosts are named' "$(cat "$G/error")" 'EHOSTDOWN .*host n[12]'
no_job() {
	[ -z "$(squeue -h)" ]
}
until_true no_job || bad "the job is still there: $(squeue -h)"
