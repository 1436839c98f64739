#!/usr/bin/env bash
# However the daemon ends, idle or while a cell runs, no engine, no child of one and no mount is left, and mounting
# again works.
. "$(dirname "$0")/../lib.sh"

# a cell with children that ignore polite signals; it prints when they are up
BUSY="import subprocess, time
children = [subprocess.Popen(['sh', '-c', 'trap \"\" TERM INT HUP; sleep 1000 & wait']) for _ in range(2)]
other = subprocess.Popen(['setsid', 'sleep', '1000'])
print('busy', flush=True)
time.sleep(1000)"

unmounted() {
	! grep -qF " $M " /proc/self/mountinfo
}

nothing_left() {
	[ -z "$(others)" ]
}

end_by() {
	case $1 in
	TERM | KILL) kill -"$1" "$daemon" ;;
	# the watchdog may be inside the mount for a moment
	fusermount) until_true fusermount3 -q -u "$M" ;;
	umount) until_true umount -q "$M" ;;
	lazy) umount -l "$M" || bad "umount -l: $?" ;;
	esac
}

for how in TERM fusermount umount lazy KILL; do
	if [ "$(id -u)" != 0 ] && [[ $how == umount || $how == lazy ]]; then
		continue
	fi
	for load in idle busy reading; do
		mount_plain
		cell 'x = 1'
		reader=
		case $load in
		busy | reading)
			submit "$BUSY"
			for k in 0 1; do until_true grep -q busy "$G/cells/$n/rank$k/stdout"; done
			;;
		esac
		if [ "$load" = reading ] && [[ $how == TERM || $how == KILL || $how == lazy ]]; then
			cat "$G/events" >"$T/events" 2>/dev/null &
			reader=$!
			cat "$G/cells/last/wait" >"$T/wait" 2>/dev/null &
			reader="$reader $!"
		fi
		daemon=$(daemon_pid) || give_up 'no daemon'
		ranks=$(rank_pids | xargs)
		all=$(grep -lsz "^DDIP_TEST=${DDIP_TEST:-none}\$" /proc/[0-9]*/environ | cut -d / -f 3)
		children=
		for pid in $all; do
			case $(cat "/proc/$pid/comm" 2>/dev/null) in
			ddip* | sleep) children="$children $pid" ;;
			esac
		done
		[ "$(wc -w <<<"$children")" -gt 3 ] || bad "$how $load: processes: $children"
		end_by "$how"
		# shellcheck disable=SC2086 # lists
		gone $children $ranks
		if [ -n "$reader" ]; then
			# shellcheck disable=SC2086
			gone $reader
		fi
		until_true unmounted || bad "$how $load: the mount is still there"
		wait
	done
done

# a dead mount is no obstacle: kill the daemon and its watchdog together, before that can begin to unmount
mount_plain
cell 'x = 1'
children=$(others)
daemon=$(daemon_pid)
# shellcheck disable=SC2086
kill -STOP $children
# shellcheck disable=SC2086
kill -KILL $children
# shellcheck disable=SC2086
gone $children
mount_plain
is 'mounted over the dead one' "$(value '1 + 1')" 2
unmount

# in the foreground: Ctrl-C ends it
"$PLAIN_PYTHON" - "$BUILD/ddipfs" "$M" "$PLAIN_PYTHON" <<'END' || bad 'Ctrl-C with -f'
import os, signal, subprocess, sys
program, mount, python = sys.argv[1:]
daemon = subprocess.Popen([program, "-f", "-o", "backend=none,python=" + python, mount],
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
while not os.path.exists(mount + "/version"):
    assert daemon.poll() is None
with open(mount + "/group/cell", "w") as f:
    f.write("x = 1")
daemon.send_signal(signal.SIGINT)
status = daemon.wait(timeout=float(os.environ["HANG_LIMIT_S"]))
assert status == 0, status
assert not os.path.ismount(mount)
END
until_true nothing_left || bad "left: $(others | xargs)"

# nothing keeps the caller's output open
out=$(guarded "$BUILD/ddipfs" -o "python=$PLAIN_PYTHON" "$M" 2>&1) || bad "in a command substitution: $? $out"
unmount

# a path that mountinfo has to escape; the watchdog finds it, too
plain=$M
M=$T/$'a b\\ \tü\r\u00a0#' G=$M/group
mount_plain
is 'at an odd path' "$(value '6 * 7')" 42
is 'the magics find it' "$(PYTHONPATH=$ROOT/magics "$PLAIN_PYTHON" -c '
import sys
from ddip.mounts import where
print(sys.argv[1] in where.mounts())' "$M" 2>&1)" True
kill -KILL "$(daemon_pid)"
# shellcheck disable=SC2046 # a list
gone $(others)
fails mountpoint -q "$M"
M=$plain G=$plain/group

# a failed mount says why
like 'no such folder' "$("$BUILD/ddipfs" "$T/nothing" 2>&1)" "$T/nothing"
touch "$T/file"
like 'not a folder' "$("$BUILD/ddipfs" "$T/file" 2>&1)" "$T/file"
like 'an unknown option' "$("$BUILD/ddipfs" -o sise=2 "$M" 2>&1)" 'sise'
like 'a bad value' "$("$BUILD/ddipfs" -o size=x "$M" 2>&1)" 'size'
fails "$BUILD/ddipfs"
like version "$("$BUILD/ddipfs" --version)" '^ddipfs [0-9.]+'
until_true nothing_left || bad "left: $(others | xargs)"
