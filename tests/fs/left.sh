#!/usr/bin/env bash
# What a rank has started ends with it, also a daemon in a session of its own: with stop, restart, a rank's death, the
# agent's, and the daemon's. What somebody else has started does not, and what cannot be ended is named.
. "$(dirname "$0")/../lib.sh"

# daemonize(SECONDS, …): what daemon(3) does, and no more; the process sheds all that could tell whose it is
cat >"$T/daemons.py" <<-'END'
	import os, sys
	def daemonize(*argv, clear=True):
	    r, w = os.pipe()
	    if os.fork() == 0:
	        os.setsid()
	        if os.fork() != 0:
	            os._exit(0)
	        os.write(w, b"%d\n" % os.getpid())
	        os.chdir("/")
	        os.closerange(0, 1000)
	        for _ in range(3):
	            os.open("/dev/null", os.O_RDWR)
	        if argv:
	            os.execve(argv[0], argv, {})
	        while True:
	            os.read(os.pipe()[0], 1)
	    os.wait()
	    return int(os.read(r, 20))
END
daemons="import sys; sys.path.insert(0, '$T'); from daemons import *
sleeps = '$(command -v sleep)'
mine = [daemonize(), daemonize(sleeps, '1000')]"

# begin: both ranks have daemons; $all are their pids, $first those of rank 0
begin() {
	ok cell "$daemons"
	first=$(tr -d '[],' <"$G/rank0/vars/mine.json")
	all="$first $(tr -d '[],' <"$G/rank1/vars/mine.json")"
	is 'daemons' "$(wc -w <<<"$all")" 4
	# shellcheck disable=SC2086 # a list
	kill -0 $all || bad "they do not run: $all"
}
# ended WHAT PID…: they end now, and nothing else has to happen
ended() {
	local pid
	for pid in "${@:2}"; do
		until_true has_ended "$pid" || bad "$1: left: $pid"
	done
}
# runs SECONDS: is there a process `sleep SECONDS`?
runs() {
	grep -qsxz "$1" /proc/[0-9]*/cmdline
}
runs_not() {
	! runs "$1"
}

if [ "${1:-}" = sudo ]; then
	mount_plain -o size=1
	exec 4<"$G/events"
	ok cell "$daemons; pid = daemonize('$TMPDIR/sudo', '--reuid', '0', '$(command -v sleep)', '1000')"
	pid=$(cat "$G/vars/pid")
	until_true grep -qsx sleep "/proc/$pid/comm" # it belongs to root now
	is 'stop' "$(errno fsync "$G/ctl" $'stop\n')" 0
	like 'its name' "$(await 4 ' left ')" "left rank0 pid=$pid sleep: Operation not permitted"
	exec 4<&-
	unmount
	"$TMPDIR/sudo" --reuid 0 kill -KILL "$pid" || bad 'it does not run'
	exit
fi

mount_plain
setsid sleep 1000 & # somebody else's
other=$!
# shellcheck disable=SC2086 # lists
{
	begin
	is stop "$(errno fsync "$G/ctl" $'stop\n')" 0
	ended stop $all
	is start "$(errno fsync "$G/ctl" $'start\n')" 0
	begin
	is restart "$(errno fsync "$G/ctl" $'restart\n')" 0
	ended restart $all

	begin
	kill -KILL "$(key "$G/rank0/status" pid)"
	ended 'the death of a rank' $first
	kill -0 ${all#"$first"} || bad "the other rank's have ended with it"
	is 'restart, again' "$(errno fsync "$G/ctl" $'restart\n')" 0
	ended 'restart, again' $all

	# one that goes on forking while it is being killed
	mark=1000.$$
	ok cell "$daemons
daemonize('/bin/sh', '-c', 'PATH=/bin:/usr/bin; while :; do setsid sh -c \"sleep 0.02; sleep $mark\" & sleep 0.01; done')"
	until_true runs "$mark"
	is 'while it forks: stop' "$(errno fsync "$G/ctl" $'stop\n')" 0
	until_true runs_not "$mark"

	is 'start, again' "$(errno fsync "$G/ctl" $'start\n')" 0
	begin
	agent=$(awk '/^PPid:/ { print $2 }' "/proc/$(key "$G/rank0/status" pid)/status")
	is 'the agent' "$(cat "/proc/$agent/comm")" ddip-agent
	kill -KILL "$agent"
	ended 'the death of the agent' $all
	is 'and then' "$(errno fsync "$G/ctl" $'start\n')" 0

	begin
	kill -KILL "$(daemon_pid)"
	ended 'the death of the daemon' $all
	until_true is_unmounted

	mount_plain
	begin
	agent=$(awk '/^PPid:/ { print $2 }' "/proc/$(key "$G/rank0/status" pid)/status")
	kill -KILL "$(daemon_pid)" "$agent"
	ended 'the death of both' $all
	until_true is_unmounted

	# behind a relay, whose far end is the agent's parent
	export XDG_CACHE_HOME=$T/cache
	mount_plain -o size=2 -o hosts=a:2 -o 'launcher=sh -c'
	begin
	agent=$(awk '/^PPid:/ { print $2 }' "/proc/$(key "$G/rank0/status" pid)/status")
	is 'the agent there' "$(cat "/proc/$agent/comm")" ddip-agent
	kill -KILL "$agent"
	ended 'the death of an agent elsewhere' $all
	unmount
}
kill -0 "$other" || bad "somebody else's process has ended"
kill "$other"

# what another user owns by now, as sudo(8) makes it, is named; this test runs itself again as a second user
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null && mknod -m 666 "$T/fuse" c 10 229; then
	chmod 755 "$TMPDIR" "$T"
	mkdir -m 777 "$T/theirs"
	install -m 4755 "$(command -v setpriv)" "$T/theirs/sudo"
	# shellcheck disable=SC2016 # its own words; here everybody may mount
	TMPDIR=$T/theirs DDIP_STATE=$T/theirs unshare -m sh -c 'mount --bind "$1" /dev/fuse && exec setpriv --reuid 65534 \
		--regid 65534 --clear-groups "$0" sudo' "$0" "$T/fuse" || bad "as a second user: $?"
else
	echo 'no second user: only root can act as one'
fi
