#!/usr/bin/env bash
# What clients and ranks leave with the daemon has limits: names that are written, ranks that are gone.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=12
daemon=$(daemon_pid) || give_up 'no daemon'

# space that is asked for and does not exist is refused, and not a byte is written for it
for name in vars/.staged vars/big.npy rank1/vars/big.json; do
	is "1 TiB of $name" "$(guarded "$PLAIN_PYTHON" - "$G/$name" "/proc/$daemon/fd" <<-'END'
		import errno
		import os
		import sys

		fd = os.open(sys.argv[1], os.O_CREAT | os.O_TRUNC | os.O_RDWR)
		for what in (
		    lambda: os.posix_fallocate(fd, 0, 1 << 40),
		    lambda: os.ftruncate(fd, 1 << 40),
		    lambda: os.pwrite(fd, b"x", 1 << 40),
		):
		    try:
		        what()
		        print("it is there")
		    except OSError as e:
		        print(errno.errorcode[e.errno])
		files = sys.argv[2]
		print(sum(os.stat(f"{files}/{each}").st_blocks for each in os.listdir(files)) < 200_000)
		os.ftruncate(fd, 0)
		os.posix_fallocate(fd, 0, 1 << 20)
		print(os.fstat(fd).st_size)
		os.ftruncate(fd, 0)
		os.write(fd, b"5")
		os.posix_fallocate(fd, 0, 1)
		print(os.fstat(fd).st_size)
		sys.stdout.flush()
		os.kill(os.getpid(), 9)
	END
	)" $'ENOSPC\nENOSPC\nENOSPC\nTrue\n1048576\n1'
done
rm -f "$G/vars/.staged"

# the output of ranks that are gone is there, their descriptors are not
cell 'print("from", rank)'
n=$(readlink "$G/cells/last")
before=$(ls "/proc/$daemon/fd" | wc -l)
printf 'stop\nsize 2\nstart\n' | cat >"$G/ctl"
is 'size' "$(key "$G/status" size)" 2
after=$(ls "/proc/$daemon/fd" | wc -l)
[ "$after" -le $((before - 30)) ] || bad "$after descriptors after $before with 10 ranks more"
for rank in 11 5 0; do
	is "what rank $rank printed" "$(cat "$G/cells/$n/rank$rank/stdout")" "from $rank"
done
[ "$(ls "/proc/$daemon/fd" | wc -l)" -le $((after + 4)) ] || bad 'reading the output of former ranks leaves descriptors'
printf 'stop\nsize 12\nstart\n' | cat >"$G/ctl"
cell 'print("again", rank)'
is 'a rank that returns' "$(cat "$G/rank11/stdout")" $'from 11\nagain 11'

# a cgroup that allows few processes: what cannot start says what to look at, whatever it is
few() { # few MAX: mounts with that many at most, then runs a cell with as many as there are
	local now
	exec 2>&1
	echo "$BASHPID" >"$pids/cgroup.procs"
	echo "$1" >"$pids/pids.max"
	"$BUILD/ddipfs" -o "size=2,backend=none,python=$PLAIN_PYTHON" "$T/few" || return
	read -r now <"$pids/pids.current"
	echo "$now" >"$pids/pids.max"
	echo 'x = 1' >"$T/few/group/cell" # no process of this shell's own
	echo max >"$pids/pids.max"
	cat "$T/few/group/error"
	umount "$T/few"
}
for dir in /sys/fs/cgroup/pids /sys/fs/cgroup; do
	pids=$dir/ddip-test-$$
	mkdir "$pids" 2>/dev/null || continue
	if [ -e "$pids/pids.max" ]; then
		mkdir "$T/few"
		for most in 4 10 max; do
			like "$most processes" "$(few $most)" 'Resource temporarily unavailable: see ulimit -u, pids.max|start new thread'
		done
	fi
	until_true rmdir "$pids" 2>/dev/null
done

# a file that is larger than ulimit -f allows ends nobody
mkdir "$T/small"
like 'ulimit -f' "$(
	ulimit -f 1000
	"$BUILD/ddipfs" -o "size=1,backend=none,python=$PLAIN_PYTHON" "$T/small" 2>&1
	echo 'x = 7; print("a" * 3_000_000)' >"$T/small/group/cell"
	cat "$T/small/group/error" "$T/small/group/vars/x"
	until_true umount "$T/small" 2>/dev/null
)" $'output of rank 0 is lost: no room in .*, or a file is larger than ulimit -f allows.*\n7$'

# where a user has no inotify instance or watch left, what ranks print is seen all the same while the cell runs
cat >"$T/unwatched" <<'END'
mkdir "$DDIP_STATE"
echo 0 >"/proc/sys/user/max_inotify_$1" || exit 1
mkdir "$T/$1"
"$BUILD/ddipfs" -o "size=1,backend=none,python=$PLAIN_PYTHON" "$T/$1" || exit 1
cd "$T/$1/group" || exit 1
exec 5<rank0/follow
echo 'print("one"); input(); print("two"); input()' >cell &
read -r line <&5
echo "$line"
(read -r line <&5 && echo "$line") &
reader=$!
echo >rank0/stdin
until grep -q two rank0/stdout; do timeout 0.05 cat rank0/follow >"$T/$1.other"; done # others look, too
wait "$reader"
echo >rank0/stdin
wait
exec 5<&-
cd /
until umount "$T/$1" 2>/dev/null; do sleep 0.1; done
END
export T BUILD PLAIN_PYTHON
if unshare -Urm sh -c 'echo 0 >/proc/sys/user/max_inotify_watches' 2>/dev/null; then
	for what in instances watches; do
		like "no inotify $what" "$(DDIP_STATE=$T/$what.state guarded unshare -Urm bash "$T/unwatched" $what 2>&1)" $'what group prints is looked for .*fs.inotify.max_user_instances.*\none\ntwo$'
	done
fi
