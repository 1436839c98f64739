# Shared by the shell tests: a mount per test, waiting without sleeping, comparing. Each test sources it:
# . "$(dirname "$0")/../lib.sh"
# shellcheck shell=bash disable=SC2034,SC2013

set -u -o pipefail
export LC_ALL=C
unset CDPATH # with it, cd prints
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$(cd "$ROOT" && realpath "${BUILD:-build}")
TMPDIR=${TMPDIR:-/tmp}
DDIP_STATE=${DDIP_STATE:-$TMPDIR}
export DDIP_STATE
T=$(mktemp -d "$TMPDIR/t.XXXXXX")
# With DDIP_TEST_MOUNT=PLACE, the mount there, which has two ranks, is another test's
M=${DDIP_TEST_MOUNT:-$T/mnt}
G=$M/group
# Where the tools find the group: the mount, or with DDIP_TEST_SOCKET=1 the socket that the daemon also serves
PLACE=$M
SERVE=()
if [ "${DDIP_TEST_SOCKET:-}" ]; then
	PLACE=$T/socket
	SERVE=(-s "$PLACE")
fi
# With DDIP_TEST_HOSTS=LAUNCHER, two ranks are on two hosts, or all on those of DDIP_TEST_HOST_LIST, which are this machine
HOSTS=()
if [ "${DDIP_TEST_HOSTS:-}" ]; then
	HOSTS=(-o "hosts=${DDIP_TEST_HOST_LIST:-a:1 b:1}" -o "launcher=$DDIP_TEST_HOSTS" -o master_addr=127.0.0.1)
fi
PLAIN_PYTHON=${PLAIN_PYTHON:-/usr/bin/python3}
TORCH_PYTHON=${PYTHON:-$ROOT/.venv/bin/python}
# After this many seconds something hangs. Nothing should come near it, even on a busy machine: it is not a check
# of speed (tests/bench does that). Waits end as soon as their condition is met.
export HANG_LIMIT_S=${HANG_LIMIT_S:-300}
POLL_S=0.01 # between two looks at what no event tells of

skip() {
	echo "$*"
	exit 77
}

[ -x "$BUILD/ddipfs" ] || skip 'ddipfs is not built'
[ -x "$PLAIN_PYTHON" ] || skip "there is no $PLAIN_PYTHON"

# Ends the test at once, when later checks would mean nothing.
give_up() {
	printf 'FAILED: %s\n' "$*"
	exit 1
}

# Reports a failure and goes on (the test fails at its end), also in a subshell. The line is one of the test's top
# level.
bad() {
	printf 'FAILED (line %s): %s\n' "${BASH_LINENO[-2]}" "$*" | tee -a "$T/failures" >&2
}

# is WHAT ACTUAL EXPECTED
is() {
	[ "$2" = "$3" ] || bad "$1: $(printf '%q, not %q' "$2" "$3")"
}

# like WHAT ACTUAL PATTERN: an extended regular expression that must match somewhere in ACTUAL
like() {
	[[ $2 =~ $3 ]] || bad "$1: $(printf '%q' "$2") is not like '$3'"
}

# ok COMMAND…: must exit with status 0
ok() {
	"$@" || bad "$* failed ($?)"
}

# fails COMMAND…: must fail by itself. Hanging (124), not running (126, 127) or dying of a signal does not count.
fails() {
	local status=0
	"$@" 2>"$T/stderr" || status=$?
	if [ $status -eq 0 ]; then
		bad "$* went well"
	elif [ $status -ge 124 ]; then
		bad "$* did not fail by itself: status $status: $(tail -n 1 "$T/stderr")"
	fi
}

# guarded COMMAND…: runs it with a time limit; status 124 if it hangs
guarded() {
	timeout "$HANG_LIMIT_S" "$@"
}

# Skips the test where nothing can be mounted, as tests/run has found. For tests that mount by themselves: what
# mounts here does it, too.
needs_mount() {
	[ -z "${DDIP_TEST_NO_MOUNT:-}" ] || skip "it needs a mount"
}

# Mounts with a Python without torch: ranks start in a fraction of a second.
mount_plain() {
	mount_with "$PLAIN_PYTHON" -o backend=none "$@"
}

# has_module NAME…: has the ranks' Python these? To import torch takes two seconds.
has_module() {
	"$TORCH_PYTHON" -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))' "$@"
}

# make_venv FOLDER: a virtual environment with the pip of the Python here: to install one takes four seconds
make_venv() {
	local python pip=
	for python in "$PLAIN_PYTHON" "$TORCH_PYTHON"; do
		pip=$("$python" -c 'import pip; print(*pip.__path__)') && "$python" -m venv --without-pip "$1" && break
	done 2>/dev/null
	[ "$pip" ] || {
		"$PLAIN_PYTHON" -m venv "$1"
		return
	}
	mkdir "$1/pip" && ln -s "$pip" "$1/pip"
	echo "$1/pip" >"$(echo "$1"/lib/python3*/site-packages)/pip.pth"
	printf '#!/bin/sh\nexec "%s" -m pip "$@"\n' "$1/bin/python" >"$1/bin/pip"
	chmod +x "$1/bin/pip"
}

mount_torch() {
	has_module torch || skip "no torch in $TORCH_PYTHON"
	mount_with "$TORCH_PYTHON" "$@"
}

mount_with() {
	local python=$1
	shift
	needs_mount
	if [ "${DDIP_TEST_MOUNT:-}" ]; then
		local option
		for option; do
			[ "$option" = -o ] || [[ ,$DDIP_TEST_OPTIONS, == *",$option,"* ]] || give_up "the mount was made without $option"
		done
		printf '%s\n' stop 'grace 5' 'timeout off' start >"$G/ctl" || give_up 'no new ranks'
		return
	fi
	mkdir -p "$M"
	"$BUILD/ddipfs" -o "python=$python" "${SERVE[@]}" "${HOSTS[@]}" "$@" "$M" || give_up "ddipfs $* $M: status $?"
	mountpoint -q "$M" || give_up "$M is not a mount point after ddipfs returned"
	ENGINES=
}

# alone COMMAND…: runs it where other tests' mounts, which come and go at any moment, are not visible. Needs root.
alone() {
	# shellcheck disable=SC2016 # its own words
	unshare -m "$BASH" -c '
		while read -r _ _ _ _ place _; do
			printf -v place %b "${place//\\/\\0}"
			[ "$place" = "$0" ] || umount -l "$place"
		done < <(grep " fuse.ddipfs " /proc/self/mountinfo)
		exec "$@"' "$M" "$@"
}

# Prints the pids of all current ranks.
rank_pids() {
	sed -n 's/.* pid=\([1-9][0-9]*\).*/\1/p' "$M"/*/ranks
}

# Prints the pid of this mount's daemon: the one that has /dev/fuse open and this path as an argument.
daemon_pid() {
	local pid
	for pid in $(grep -lsz "^DDIP_TEST=${DDIP_TEST:-}\$" /proc/[0-9]*/environ | cut -d / -f 3); do
		if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = ddipfs ] && tr '\0' '\n' <"/proc/$pid/cmdline" |
			grep -qxF "$M" && [ "$(find "/proc/$pid/fd" -lname /dev/fuse 2>/dev/null)" ]; then # others come and go
			echo "$pid"
			return
		fi
	done
	return 1
}

# Has the process exited? A zombie counts: its parent, and when that reaps it, are not under test.
has_ended() {
	local stat
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
	[[ ${stat##*) } == [ZX]* ]] && [ "$(find "/proc/$1/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)" -le 1 ]
}

# gone PID…: waits until all of them have exited
gone() {
	local pid
	for pid; do
		until_true has_ended "$pid" || bad "process $pid is still there: $(ps -o stat,args -p "$pid")"
	done
}

# Prints the pids of all processes of this test except the test itself, its parents and its current command.
others() {
	local pid
	for pid in $(grep -lsz "^DDIP_TEST=${DDIP_TEST:-none}\$" /proc/[0-9]*/environ | cut -d / -f 3); do
		case $(cat "/proc/$pid/comm" 2>/dev/null) in
		ddip*) echo "$pid" ;;
		esac
	done
}

# True also if the daemon, on its way out, has unmounted in the meantime.
is_unmounted() {
	fusermount3 -q -u "$M" || ! grep -qF " $M " /proc/self/mountinfo
}

unmount() {
	local pids
	pids=$(others)
	# where it may not clone the mount, the watchdog briefly uses it when there is news
	until_true is_unmounted || return
	# shellcheck disable=SC2086 # a list
	gone $pids
}

# A test that has more to put away than its mount and directory defines finish(), which comes first.
at_exit() {
	local status=$?
	# a signal can hit a child of this shell before it has dropped the trap
	[ "$BASHPID" -eq $$ ] || exit "$status"
	trap - EXIT
	! declare -F finish >/dev/null || finish
	# descriptors that the test still has open keep the mount busy
	exec 3<&- 4<&- 5<&- 6<&-
	if mountpoint -q "$M" 2>/dev/null || grep -qF " $M " /proc/self/mountinfo; then
		if [ "$status" -ne 0 ] || [ -s "$T/failures" ]; then
			printf '%s\n' '--- status' "$(guarded cat "$G/status" "$G/ranks" 2>&1)" \
				'--- error' "$(guarded cat "$G/error" 2>&1)"
		fi
		jobs -p | xargs -r kill 2>/dev/null
		if [ ! "${DDIP_TEST_MOUNT:-}" ]; then
			unmount
			! grep -qF " $M " /proc/self/mountinfo || fusermount3 -u -z "$M"
		fi
	fi
	case $status in 0 | 77) [ ! -s "$T/failures" ] || status=1 ;; esac
	rm -rf --one-file-system "$T"
	exit "$status"
}
trap at_exit EXIT

# cell 'CODE' [FILE]: submits a cell and waits; the status is that of cat, whose message names the errno
cell() {
	printf '%s\n' "$1" | cat >"${2:-$G/cell}"
}

# value EXPRESSION [RANK]: prints its value on a rank, as the result of a cell
value() {
	cell "$1" "$G/rank${2:-0}/cell" && cat "$G/cells/last/rank${2:-0}/result"
}

# key FILE KEY: prints the value from a file of `key value` lines
key() {
	awk -v k="$2" '$1 == k { $1 = ""; print substr($0, 2) }' "$1"
}

state() {
	key "$G/cells/${1:-last}/status" state
}

# Is this a sanitizer build, whose memory use means nothing?
sanitized() {
	[[ $BUILD == */?san ]] || [[ $BUILD == */?san/* ]]
}

# Is this a ThreadSanitizer build? It delays a signal until the thread calls libc, which a busy loop never does.
signals_wait() {
	[[ $BUILD == */tsan ]] || [[ $BUILD == */tsan/* ]]
}

# errno COMMAND…: prints the symbol of the errno that a Python function fails with, "0" if none. Code for python -c.
errno() {
	"$PLAIN_PYTHON" - "$@" <<-'END'
		import errno, os, shutil, sys
		what, path, data = sys.argv[1], sys.argv[2], (sys.argv[3:] + [""])[0].encode()
		flags = {"write": os.O_WRONLY, "create": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
		         "fsync": os.O_RDWR, "nonblock": os.O_WRONLY | os.O_NONBLOCK,
		         "read": os.O_RDONLY, "open": os.O_RDONLY, "truncate": os.O_WRONLY | os.O_TRUNC,
		         "push": os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, "append": os.O_WRONLY | os.O_APPEND}
		try:
		    if what in ("mkdir", "rmdir", "unlink"):
		        getattr(os, what)(path)
		    elif what == "rename":
		        os.rename(path, data)
		    elif what == "copy":
		        shutil.copyfile(data, path)
		    else:
		        fd = os.open(path, flags[what], 0o600)
		        if what == "read":
		            os.read(fd, 1 << 20)
		        while data:
		            data = data[os.write(fd, data):]
		        if what == "fsync":
		            os.fsync(fd)
		        os.close(fd)
		    print(0)
		except OSError as e:
		    # one number, two names
		    print(errno.errorcode.get(e.errno, e.errno).replace("ENOTSUP", "EOPNOTSUPP"))
	END
}

# free_ports N: prints unused TCP ports, different ones for each test, below the kernel's ephemeral ports
free_ports() {
	"$PLAIN_PYTHON" - "$1" $$ <<-'END'
		import socket, sys
		count, test = map(int, sys.argv[1:])
		port, found = 10000 + test * 8 % 20000, []
		while len(found) < count:
		    with socket.socket() as s:
		        try:
		            s.bind(("", port))
		            found.append(port)
		        except OSError:
		            pass  # somebody has it
		    port += 1
		print(*found)
	END
}

# await FD PATTERN: prints the next matching line of a live file that is open as FD
await() {
	local line
	while IFS= read -r -t "$HANG_LIMIT_S" line <&"$1"; do
		if [[ $line =~ $2 ]]; then
			echo "$line"
			return
		fi
	done
	bad "no event like '$2'"
}

# upto FD PATTERN: prints all lines of a live file that is open as FD, up to the first that matches
upto() {
	local line
	while IFS= read -r -t "$HANG_LIMIT_S" line <&"$1"; do
		echo "$line"
		if [[ $line =~ $2 ]]; then
			return
		fi
	done
	bad "no line like '$2'"
}

# prints FILE PATTERN: waits until a live file has a matching line
prints() {
	guarded grep -m1 -q "$2" "$1" || bad "no '$2' in $1"
}

# until_true COMMAND…: repeats it until it succeeds. For conditions that no event reports.
until_true() {
	local end=$((SECONDS + HANG_LIMIT_S))
	until "$@"; do
		[ $SECONDS -lt $end ] || {
			bad "it never comes true: $*"
			return 1
		}
		sleep "$POLL_S"
	done
}

# submit CODE [FILE]: submits a cell without waiting for it; sets n to its number
submit() {
	is "a cell is queued in ${2:-cell}" "$(errno nonblock "${2:-$G/cell}" "$1")" 0
	n=$(readlink "$G/cells/last")
}

# wait_cell N: waits and prints its final status
wait_cell() {
	guarded cat "$G/cells/$1/wait" || bad "cell $1 does not end"
}

# ---- cells that hang, and what `stall` says of them

# verdict WHAT PATTERN CODE [FILE]: while the code is stuck, the first line of `stall`
verdict() {
	local what=$1 pattern=$2
	submit "$3" "${4:-$G/cell}"
	until_true grep -qE "$pattern" "$G/stall" || bad "$what: $(cat "$G/stall")"
	over
}

# silent WHAT READY CODE [RANKS]: when READY is true of so many ranks in `stall` (1), no rank is accused. READY does not
# match what is before the collective: that rank may be waited for.
silent() {
	local what=$1 text
	submit "$3"
	until_true is_ready "$2" "${4:-1}"
	text=$(cat "$G/stall")
	[[ ! $text =~ (waits?\ for|different|have\ entered) ]] || bad "$what: $text"
	over
}

# is_ready PATTERN COUNT
is_ready() {
	[ "$(grep -cE "$1" "$G/stall")" = "$2" ]
}

# over: ends the last cell that was submitted
over() {
	echo interrupt >"$G/cells/$n/ctl"
	wait_cell "$n" >/dev/null
}
