#!/usr/bin/env bash
# When a part fails (agent, zygote, watchdog or a rank killed, the directory removed, the disk full, a
# Python or an engine that cannot work), an error says what is wrong, and nothing hangs.
. "$(dirname "$0")/../lib.sh"

# children PID NAME: its children of this name
children() {
	local pid
	for pid in $(cat "/proc/$1/task/"*/children); do
		[ "$(cat "/proc/$pid/comm")" != "$2" ] || echo "$pid"
	done
}

# try CODE: runs a cell, prints the name of its errno
try() {
	errno write "$G/cell" "$1"
}

site=
# refuses WHAT ERRNO PATTERN OPTION…: a mount whose first cell fails like this
refuses() {
	local what=$1 no=$2 pattern=$3
	shift 3
	mkdir -p "$M"
	PYTHONPATH=$site "$BUILD/ddipfs" "$@" "$M" || give_up "$what: ddipfs: $?"
	is "$what" "$(try 'x = 1')" "$no"
	like "$what: it says so" "$(cat "$G/error")" "$pattern"
	is "$what: and no cell is lost" "$(key "$G/cells/1/wait" errno)" "$no"
	unmount
}

mount_plain
cell 'x = 1'
daemon=$(daemon_pid) || give_up 'no daemon'
ranks=$(rank_pids)
exec 4<"$G/events"

# the agent: all that it ran dies with it, a start creates another one
agent=$(children "$daemon" ddip-agent)
submit 'import time; print("its own"); time.sleep(100)'
lost=$n
for k in 0 1; do until_true grep -q own "$G/cells/$n/rank$k/stdout"; done
kill -KILL "$agent"
like 'the agent is killed' "$(wait_cell "$n")" 'errno EHOSTDOWN'
like 'it says so' "$(cat "$G/error")" 'agent .*(ended|gone)'
# shellcheck disable=SC2086
gone $ranks
is 'no engine' "$(try 'x = 1')" ESRCH
is 'start' "$(errno write "$G/ctl" $'start\n')" 0
is 'a new one works' "$(try 'x = 2; print("of a later cell")')" 0
is 'what a later cell prints is not in the one that was lost' "$(cat "$G/cells/$lost/rank0/stdout")" 'its own'
is 'nor in its stream' "$(grep -c later "$G/cells/$lost/stream")" 0
is 'whose output is there' "$(grep -c 'its own' "$G/cells/$lost/stream")" 2

# the zygote: ranks live on, and new ones come from another zygote
zygotes=$(children "$(children "$daemon" ddip-agent)" ddip-zygote)
# shellcheck disable=SC2086
kill -KILL $zygotes
# shellcheck disable=SC2086
gone $zygotes
is 'ranks outlive the zygote' "$(try 'y = x')" 0
is 'kill in rank1/ctl' "$(errno write "$G/rank1/ctl" $'kill\n')" 0
await 4 'recovered' >/dev/null
is 'a new rank' "$(try 'z = 1')" 0
like 'it tells how the one before ended' "$(key "$G/rank1/status" exit)" 'signal 9 '

# a rank that sends what its program never sends: seen by its agent, or by the daemon
is 'a wrong message' "$(try 'import _ddip, time
_ddip.notify("Nclock", 1)
time.sleep(100)')" EHOSTDOWN
like 'it is killed for that' "$(key "$G/rank1/status" exit)" \
	'^killed, as it sent a wrong message: wire: Nclock is not for an engine to send'
is 'the cell names it once' "$(grep -c '^rank 1 died: killed, as it' "$G/cells/last/error")" 1
is 'closed descriptors' "$(try 'import os; os.closerange(3, 1000)
import time; time.sleep(100)')" EHOSTDOWN
is 'it is killed for that, too' "$(key "$G/rank1/status" exit)" \
	"killed, as it closed the engine's descriptors, or became another program"
is 'restart' "$(errno write "$G/ctl" $'restart\n')" 0
is 'another program' "$(try 'import os; rank and os.execv("/bin/sleep", ["sleep", "1000"])')" EHOSTDOWN
is 'it is killed for that' "$(key "$G/rank1/status" exit)" \
	"killed, as it closed the engine's descriptors, or became another program"
is 'restart' "$(errno write "$G/ctl" $'restart\n')" 0
cell 'from ddip_engine import service
if rank: service._ROWS["Tgc"] = lambda fd: (1, ""), "Rhas"'
is 'a wrong answer' "$(errno write "$G/ctl" $'free\n')" EBADMSG
until_true grep -q 'rank 1 died: killed, as it sent a wrong message: wire: Rhas in reply to Tgc' "$G/error"
is 'restart' "$(errno write "$G/ctl" $'restart\n')" 0
is 'all new' "$(try 'z = 1')" 0

# the watchdog: the daemon goes on (fs/watchdog tests what follows)
watchdog=$(children "$daemon" ddipfs-watchdog)
kill -KILL "$watchdog"
gone "$watchdog"
is 'cells run without the watchdog' "$(try 'w = 1')" 0

# the directory of the spools
spool=$(key "$G/status" spool)
rm -rf "$spool"
is 'cells run on without the directory' "$(try 'print(5)')" 0
is 'a start without the directory of the spools fails' "$(errno write "$G/ctl" $'restart\n')" ENOENT
like 'a start needs it' "$(tail -n 1 "$G/error")" "$spool was deleted.*rmdir"
exec 4<&-
unmount

# Pythons
printf '#!/bin/sh\necho this is no Python >&2\nexit 1\n' >"$T/python"
chmod +x "$T/python"
refuses 'no Python' EHOSTDOWN 'ended before it was ready.*this is no Python' -o "python=$T/python"
like 'a path of nothing' "$("$BUILD/ddipfs" -o "python=$T/nothing" "$M" 2>&1)" "$T/nothing: No such file"
refuses 'no torch' EOPNOTSUPP 'install torch there, or say backend none' -o "python=$PLAIN_PYTHON,backend=gloo"
mkdir "$T/site"
site=$T/site
echo 'import os; os._exit(4)' >"$site/sitecustomize.py"
refuses 'a sitecustomize that ends' EHOSTDOWN 'ended before it was ready' -o "python=$PLAIN_PYTHON"
# a sitecustomize that raises is reported by Python, and does no harm
echo 'raise RuntimeError("of the site")' >"$site/sitecustomize.py"
PYTHONPATH=$site mount_plain
is 'a sitecustomize that raises' "$(try 'x = 1')" 0
unmount
site=

# engines: each reply that can go wrong (the fake engine)
if [ -x "$BUILD/fake/engine" ]; then
	export DDIP_ENGINE=$BUILD/fake/engine
	DDIP_FAKE=version refuses 'another version' EPROTO 'protocol mismatch \(99, expected [1-9][0-9]*\)' -o size=2
	DDIP_FAKE=hello refuses 'another build' EPROTO 'install both' -o size=2
	DDIP_FAKE=spawn refuses 'no processes' EAGAIN 'no more processes' -o size=2
	DDIP_FAKE=spawn_failed refuses 'dead at birth' EHOSTDOWN 'exit status 3' -o size=2
	DDIP_FAKE=init refuses 'no torch' ENOENT "No module named 'torch'" -o size=2
	# a process group that cannot be rebuilt is not said to have recovered; restart makes another one
	touch "$T/fails"
	DDIP_FAKE=rebuild DDIP_FAKE_ONCE=$T/fails mount_plain -o size=2
	echo start >"$G/ctl"
	exec 6<"$G/events"
	echo recover >"$G/ctl"
	like 'it gives up' "$(await 6 ' recover(ed|-failed) ')" 'recover-failed generation=5$'
	like 'says so' "$(tail -n 1 "$G/error")" 'could not be rebuilt, 4 times in a row.*until restart'
	is 'and stays' "$(key "$G/status" state)" idle
	rm "$T/fails"
	echo recover >"$G/ctl"
	like 'it can be tried again' "$(await 6 ' recover(ed|-failed) ')" 'recovered generation=6$'
	exec 6<&-
	unmount
	unset DDIP_ENGINE
fi
like 'no engine' "$(DDIP_ENGINE=$T/nothing "$BUILD/ddipfs" "$M" 2>&1; cat "$G/error" 2>&1)" "$T/nothing"
! mountpoint -q "$M" || unmount

# mount points
mkdir "$T/full"
touch "$T/full/file"
like 'not empty' "$("$BUILD/ddipfs" "$T/full" 2>&1)" 'is not empty.*use an empty directory'
like 'no directory' "$("$BUILD/ddipfs" "$T/full/file" 2>&1)" 'file is not a directory'
like 'missing' "$("$BUILD/ddipfs" "$T/missing" 2>&1)" 'missing: No such file or directory \(mkdir it first\)'
like 'below a file' "$("$BUILD/ddipfs" "$T/full/file/below" 2>&1)" 'Not a directory'

# root without its privileges is treated like any user, except the owner of /dev/fuse
plain_user() {
	setpriv --bounding-set -all --inh-caps -all --no-new-privs "$@" 2>&1
}

if [ "$(id -u)" = 0 ] && plain_user true; then
	mkdir "$T/mine"
	mkdir -m 700 "$T/theirs"
	mkdir -m 755 "$T/readable"
	chown 65534 "$T/theirs" "$T/readable"
	for dir in theirs readable; do
		like "no permission: $dir" "$(plain_user "$BUILD/ddipfs" "$T/$dir")" \
			"$dir: Permission denied \(mount on a directory of your own\)"
	done
	like 'below it' "$(plain_user "$BUILD/ddipfs" "$T/theirs/below")" 'below: Permission denied'
	like 'may not mount at all' "$(plain_user "$BUILD/ddipfs" "$T/mine")" "cannot mount at $T/mine"
	is 'nothing is mounted' "$(grep -F "$T/" /proc/self/mountinfo)" ''
fi

# many more ranks than cores
mount_plain -o size=100
is 'a hundred ranks' "$(try 'x = rank')" 0
is 'all of them' "$(grep -c ' state=idle ' "$G/ranks")" 100
is 'each its own' "$(tr -d '\n ' <"$G/vars/x.gather.json")" "[$(seq -s , 0 99)]"
is 'one raises' "$(try 'assert rank != 57')" EREMOTEIO
like 'which one' "$(cat "$G/cells/last/error")" '^rank 57: AssertionError'
is 'all go on' "$(try 'y = x')" 0
unmount

# a full disk loses output, not the cell
if [ "$(id -u)" = 0 ] && mkdir "$T/small" && mount -t tmpfs -o size=1m tmpfs "$T/small" 2>/dev/null; then
	DDIP_STATE=$T/small mount_plain
	is 'much output' "$(try "for _ in range(3000): print('x' * 1000)
y = 5")" 0
	like 'it says so' "$(cat "$G/error")" 'ENOSPC .*output of rank [01] (is|are) lost'
	is 'the cell is whole' "$(cat "$G/rank1/vars/y")" 5
	is 'its status' "$(state)" ok
	is 'it is counted, other failures stay' "$(grep -c 'ENOSPC .*lost: no room in ' "$G/error")" 2
	unmount

	# so does a full disk on another host, which the message names
	mount_plain -o hosts=far:1 -o "launcher=env DDIP_STATE=$T/small XDG_CACHE_HOME=$T/cache sh -c"
	is 'a rank there' "$(try 'y = 4')" 0
	cat /dev/zero >"$T/small/rest" 2>/dev/null
	is 'much output there' "$(try "for _ in range(3000): print('x' * 1000)
y = 5")" 0
	like 'it says where' "$(cat "$G/error")" 'ENOSPC .*output of rank 0 is lost: host far has no room for it'
	is 'once' "$(grep -c ENOSPC "$G/error")" 1
	is 'that cell is whole' "$(cat "$G/rank0/vars/y") $(state)" '5 ok'
	unmount
	umount "$T/small"
fi
