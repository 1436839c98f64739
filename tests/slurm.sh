# A real Slurm with two nodes, n1 and n2, both on this machine, for tests that source this after lib.sh; n2 has mounts
# of its own. Skips where there is none. It ends with the test.
# shellcheck shell=bash disable=SC2154

PATH=$PATH:/usr/sbin
for need in munged slurmctld slurmd srun sbatch scancel; do
	command -v $need >/dev/null || skip "there is no $need (apt-get install slurm-wlm munge)"
done
[ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip 'slurmd, and its mounts, are for root'

export SLURM_CONF=$T/slurm.conf
daemons=()
no_job() {
	[ -z "$(squeue -h)" ]
}
finish() {
	scancel --full --signal=KILL --user=root
	until_true no_job
	# slurmd waits for its steps, which have ended or never will
	kill -KILL "${daemons[@]}"
	wait "${daemons[@]}"
	[ ! "$cgroups" ] || find "$freezer"/slurm_{$one_name,$two_name} -depth -type d -exec rmdir {} +
} 2>/dev/null

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
# what lies in $T/other-image is in $T/image on n2
mkdir "$T/image" "$T/other-image"
slurmd -D -N n1 >"$T/slurmd-n1.log" 2>&1 &
daemons+=($!)
unshare -m sh -c "mount --bind $T/other-image $T/image && exec slurmd -D -N n2" >"$T/slurmd-n2.log" 2>&1 &
daemons+=($!)
both_idle() {
	[ "$(sinfo -h -N -t idle -o %N 2>/dev/null | xargs)" = 'n1 n2' ]
}
until_true both_idle || give_up "no node is idle: $(tail -n 3 "$T"/slurm*.log)"
