#!/usr/bin/env bash
# In a memory cgroup, as of a container or a job of Slurm, with less than the machine has: a push that does not fit is
# refused and ends nobody, and of a rank that the kernel kills it is said what the kernel did.
. "$(dirname "$0")/../lib.sh"

limit=$((300 << 20))
cgroup='' # that this test runs in
for top in /sys/fs/cgroup/memory:memory.limit_in_bytes:memory.memsw.limit_in_bytes /sys/fs/cgroup:memory.max:memory.swap.max; do
	IFS=: read -r dir max swap <<<"$top"
	mkdir "$dir/ddip-test-$$" 2>/dev/null || continue
	if [ -e "$dir/ddip-test-$$/$max" ] && echo "$limit" >"$dir/ddip-test-$$/$max"; then
		cgroup=$dir/ddip-test-$$
		[ "$max" = memory.max ] && no_swap=0 || no_swap=$limit
		[ ! -e "$cgroup/$swap" ] || echo "$no_swap" >"$cgroup/$swap"
		break
	fi
	rmdir "$dir/ddip-test-$$"
done
[ "$cgroup" ] || skip 'no memory cgroup can be made here'

is_empty() {
	[ ! -s "$cgroup/cgroup.procs" ]
}

finish() {
	echo $$ >"${cgroup%/*}/cgroup.procs"
	unmount
	until_true is_empty
	rmdir "$cgroup"
}
echo $$ >"$cgroup/cgroup.procs"

mount_plain -o size=2
ok cell 'x = 1'
daemon=$(daemon_pid)
for name in vars/b.pkl rank1/vars/b.pkl vars/.staged; do
	like "$name: what does not fit" "$(dd if=/dev/zero of="$G/$name" bs=1M count=600 2>&1)" 'No space left on device'
	like 'it says what is there' "$(cat "$G/error")" "ENOSPC .*no room for ${name##*/}: it needs [0-9]* bytes more, and [0-9]* are available"
	rm -f "$G/vars/.staged"
	: >"$G/error"
done
is 'the daemon lives on' "$(daemon_pid)" "$daemon"
is 'and the ranks' "$(value x 0)$(value x 1)" 11
ok eval "echo 2 >'$G/vars/y'"
is 'what fits is pushed' "$(value y 0)$(value y 1)" 22

# a rank that takes too much
fails cell 'if rank == 1:
    taken = []
    while True: taken.append(b"x" * (8 << 20))'
killed='signal 9 \(Killed\): since it began, the out-of-memory killer has killed 1 process of its memory cgroup \(limit 300 MiB\)'
like 'the cell says how it died' "$(cat "$G/cells/last/error")" "^rank 1 died: $killed"
like 'and the rank' "$(cat "$G/events.last")" "rank 1 exit $killed"
is 'the other rank has lost nothing' "$(value x 0)" 1

# a copy that a rank would make of an object
has_module numpy || exit 0
unmount
mount_with "$TORCH_PYTHON" -o size=1,backend=none
ok cell 'import numpy; x = numpy.ones(9 << 20)'
is 'a copy for which there is no memory' "$(errno read "$G/rank0/vars/x.pkl")" EFBIG
ok cmp -n 1000 "$G/rank0/vars/x.npy" "$G/rank0/vars/x.npy"
