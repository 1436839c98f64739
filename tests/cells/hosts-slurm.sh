#!/usr/bin/env bash
# Ranks work in a real Slurm with two nodes (both on this machine). In a batch job they are where the allocation says,
# reached by srun and a direct connection; the signal before a preemption reaches their cells, which write a checkpoint;
# of a job that is cancelled nothing is left, and no dead mount.
# With the daemon outside the allocation, objects go over the direct connection; when the job is cancelled, the daemon
# reports it, and nothing of the ranks is left.
. "$(dirname "$0")/../lib.sh"

. "$(dirname "$0")/../slurm.sh"
has_module torch || skip "no torch in $TORCH_PYTHON"
! "$PLAIN_PYTHON" -c 'import torch' 2>/dev/null || skip "torch is in $PLAIN_PYTHON, too"

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
# submit_job SCRIPT ARG…: what it prints is in $T/said
submit_job() {
	: >"$T/said"
	PATH=$BUILD:$PATH DDIP_MOUNT=$place DDIP_STATE=$T XDG_CACHE_HOME=$T/cache VIRTUAL_ENV=$(dirname "$(dirname "$TORCH_PYTHON")") \
		sbatch -Q --nodes=2 --ntasks-per-node=2 -o "$T/said" "$@" || give_up 'no job can be submitted'
	until_true grep -q '^trains' "$T/said" || give_up "the job said: $(cat "$T/said")"
}
# in_job COMMAND…: a verb of ddip on the job's group, from outside
in_job() {
	"$BUILD/ddip" -m "$place" "$@"
}
# nothing_left WHAT: the job has ended, and nothing of it is left
nothing_left() {
	until_true no_job || give_up "$1: the job said: $(cat "$T/said")"
	until_true both_idle || bad "$1: a node is not idle again: $(sinfo -h -N -o '%N %t' | xargs)"
	is "$1: mounts" "$(grep -c " $T/" /proc/self/mountinfo)" 0
	until_true has_no_others || bad "$1: processes are left: $(others | xargs -r ps -o args= -p)"
}
has_no_others() {
	[ -z "$(others)" ]
}
# the nodes of a real cluster know each other's names
sed 's/--hosts slurm/& -o master_addr=127.0.0.1/' "$ROOT/scripts/examples/slurm.sh" >"$T/job"
place=$T/job.sock
submit_job "$T/job" "$T/train.py"
for k in 0 1 2 3; do
	until_true eval "in_job cat group/rank$k/stdout | grep -q '^trains'"
done
is 'ranks of one node' "$(in_job cat group/rank0/stdout | head -n 1)" 'n1 0 0 6.0'
is 'and of the other' "$(in_job cat group/rank3/stdout | head -n 1)" 'n2 3 1 6.0'
like 'their places' "$(in_job cat group/hosts)" $'n1 state=up .*slots=2 ranks=0-1.*\nn2 state=up .*slots=2 ranks=2-3'
until_true eval '[ "$(in_job cat group/hosts | grep -c " connection=direct ")" = 2 ]' ||
	bad "a node is not reached beside srun: $(in_job cat group/hosts)"
if [ "$cgroups" ]; then
	for pid in $(others); do
		until_true is_in_job "$pid" || bad "process $pid escapes the job: $(cat "/proc/$pid/cgroup" "/proc/$pid/comm")"
	done
fi
# as --signal=USR1@60 does before the end: to all steps, not to the batch script
scancel --signal=USR1 --state=RUNNING --user=root
for k in 0 1 2 3; do
	until_true test -s "$T/checkpoint.$k" || give_up "the job said: $(cat "$T/said")"
done
like 'events tell on which host' "$(cat "$T"/ddipfs-*/*/group.*/events)" 'preempted signal=USR1 host=n[12]'
touch "$T/seen"
nothing_left 'a batch job'
is 'its program ended well' "$(grep -c '^ddip:' "$T/said")" 0

# a job that is cancelled: Slurm signals the first process alone, waits for KillWait, and kills the rest
rm -f "$T/seen" "$T"/checkpoint.*
submit_job "$T/job" "$T/train.py"
scancel --user=root
nothing_left 'a cancelled job'

# What follows, but for the job over two images, needs no torch.
no_torch="-o backend=none -o env=PYTHONPATH=$ROOT/tests/fake/no_torch"
sed -i "s|--hosts slurm|& $no_torch|" "$T/job"
printf '%s\n' 'import time' 'print("trains", flush=True)' 'time.sleep(1000)' >"$T/train.py"

# the manual's script that mounts, cancelled as well
man_script() {
	awk '/^\.Bd/ { text = ""; next } /^\.Ed/ { if (text ~ word) printf "%s", text; next } { text = text $0 "\n" }' \
		word="$1" "$ROOT/fs/ddip-hosts.7"
}
man_script 'ddip umount -l' | sed "s|ddip mount|& $no_torch|; /mktemp/d" >"$T/job"
grep -q '^ddip run train.py' "$T/job" || bad "the manual's script: $(cat "$T/job")"
sed -i "s|train.py|$T/&|" "$T/job"
place=$M
mkdir "$M"
submit_job "$T/job"
ok test -e "$G/rank3/status"
scancel --user=root
nothing_left 'a cancelled job with a mount'

# one line from the login node; by srun, each task would do the same
echo 'import helper, os; print("ran", os.environ["RANK"], os.environ["WORLD_SIZE"], helper.x)' >"$T/prog.py"
echo 'x = 5' >"$T/helper.py"
run_here=("$BUILD/ddip" run --hosts slurm -o master_addr=127.0.0.1 -a)
unset DDIP_MOUNT
# shellcheck disable=SC2086 # words
is 'one line by salloc' "$(salloc -Q --nodes=2 --ntasks-per-node=2 "${run_here[@]}" $no_torch -o "python=$TORCH_PYTHON" "$T/prog.py" | sort | xargs)" \
	'0: ran 0 4 5 1: ran 1 4 5 2: ran 2 4 5 3: ran 3 4 5'
nothing_left 'salloc'
# one job over two images, each with a Python of its own; what is beside the program is in the first one only
for image in image other-image; do
	printf '#!/bin/sh\nexec %s "$@"\n' "$TORCH_PYTHON" >"$T/$image/python"
	chmod +x "$T/$image/python"
	echo "$image" >"$T/$image/name"
done
echo 'ONE = 1.5' >"$T/image/model.py"
cat >"$T/image/train.py" <<END
import model
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
t = torch.full((1,), model.ONE)
dist.all_reduce(t)
print(t.item(), open("$T/image/name").read().strip())
END
cd "$T/image" || exit
is 'a job over two images' "$(salloc -Q --nodes=2 --ntasks-per-node=1 "${run_here[@]}" -o "python=$T/image/python" train.py | sort | xargs)" \
	'0: 3.0 image 1: 3.0 other-image'
nothing_left 'a job over two images'
echo 'import importlib; importlib.import_module("model")' >"$T/image/dynamic.py"
# shellcheck disable=SC2086
said=$(salloc -Q --nodes=2 --ntasks-per-node=1 "${run_here[@]}" $no_torch -o "python=$T/image/python" dynamic.py 2>&1)
like 'a module that is in one image only' "$said" "No module named 'model'"
! "$TORCH_PYTHON" -c 'BaseException.add_note' 2>/dev/null || like 'the image that lacks it' "$said" 'It is not on host n2'
nothing_left 'a module that is missing'
cd "$ROOT" || exit
# a node that is no copy of the other, and from whose environment nothing can be written to DDIP_STATE
printf '#!/bin/sh\nexec %s "$@"\n' "$TORCH_PYTHON" >"$T/image/python"
printf '#!/bin/sh\nexec %s "$@"\n' "$PLAIN_PYTHON" >"$T/other-image/python"
chmod +x "$T/image/python" "$T/other-image/python"
said=$(DDIP_STATE=/proc/none salloc -Q --nodes=2 --ntasks-per-node=1 "${run_here[@]}" -o "python=$T/image/python" "$T/prog.py" 2>&1)
like 'no torch on one node' "$said" 'torch is not everywhere.*  n1: .* torch=[0-9].*  n2: .* torch=- '
nothing_left 'a start that is refused'
like 'not by srun' "$(srun -N2 -n2 "${run_here[@]}" "$T/prog.py" 2>&1)" 'run it once, by salloc or sbatch'
like 'not without an allocation' "$("${run_here[@]}" "$T/prog.py" 2>&1)" 'this is no Slurm allocation'

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
