# What the shell tests share: a mount of one's own, waiting without sleeping, comparing. Sourced by each
# test: . "$(dirname "$0")/../lib.sh"
# shellcheck shell=bash disable=SC2034,SC2013

set -u -o pipefail
export LC_ALL=C
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$(cd "$ROOT" && realpath "${BUILD:-build}")
TMPDIR=${TMPDIR:-/tmp}
DDIP_STATE=${DDIP_STATE:-$TMPDIR}
export DDIP_STATE
T=$(mktemp -d "$TMPDIR/t.XXXXXX")
M=$T/mnt
G=$M/group
# Where the tools find the group: the mount, or with DDIP_TEST_SOCKET=1 the socket that is served beside it
PLACE=$M
SERVE=()
if [ "${DDIP_TEST_SOCKET:-}" ]; then
	PLACE=$T/socket
	SERVE=(-s "$PLACE")
fi
PLAIN_PYTHON=${PLAIN_PYTHON:-/usr/bin/python3}
TORCH_PYTHON=${PYTHON:-$ROOT/.venv/bin/python}
# Seconds after which something hangs. Nothing is expected to come near it, on a busy machine neither:
# it asserts no speed (tests/bench does). Waits end when what they wait for happens.
export HANG_LIMIT_S=${HANG_LIMIT_S:-300}
POLL_S=0.01 # between two looks at what no event tells of

skip() {
	echo "$*"
	exit 77
}

[ -x "$BUILD/ddipfs" ] || skip 'ddipfs is not built'
[ -e /dev/fuse ] || skip 'there is no /dev/fuse'
[ -x "$PLAIN_PYTHON" ] || skip "there is no $PLAIN_PYTHON"

# Ends the test at once: nothing after this would tell anything.
give_up() {
	printf 'FAILED: %s\n' "$*"
	exit 1
}

# Goes on, and fails at the end, also where a subshell says so. The line is that of the test's top level.
bad() {
	printf 'FAILED (line %s): %s\n' "${BASH_LINENO[-2]}" "$*" | tee -a "$T/failures" >&2
}

# is WHAT ACTUAL EXPECTED
is() {
	[ "$2" = "$3" ] || bad "$1: $(printf '%q, not %q' "$2" "$3")"
}

# like WHAT ACTUAL PATTERN: an extended regular expression, somewhere in it
like() {
	[[ $2 =~ $3 ]] || bad "$1: $(printf '%q' "$2") is not like '$3'"
}

# ok COMMAND…: its status is 0
ok() {
	"$@" || bad "$* failed ($?)"
}

# fails COMMAND…: it refuses. One that hangs (124), cannot be run (126, 127) or dies of a signal does not.
fails() {
	local status=0
	"$@" 2>"$T/stderr" || status=$?
	if [ $status -eq 0 ]; then
		bad "$* went well"
	elif [ $status -ge 124 ]; then
		bad "$* did not fail by itself: status $status: $(tail -n 1 "$T/stderr")"
	fi
}

# guarded COMMAND…: runs it, but not for ever; 124 if it hangs
guarded() {
	timeout "$HANG_LIMIT_S" "$@"
}

# Mounts with a Python that has no torch: ranks start in a fraction of a second.
mount_plain() {
	mount_with "$PLAIN_PYTHON" -o backend=none "$@"
}

mount_torch() {
	"$TORCH_PYTHON" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' ||
		skip "no torch in $TORCH_PYTHON"
	mount_with "$TORCH_PYTHON" "$@"
}

mount_with() {
	local python=$1
	shift
	mkdir -p "$M"
	"$BUILD/ddipfs" -o "python=$python" "${SERVE[@]}" "$@" "$M" || give_up "ddipfs $* $M: status $?"
	mountpoint -q "$M" || give_up "$M is not a mount point after ddipfs returned"
	ENGINES=
}

# alone COMMAND…: where the mounts of other tests, which come at any moment, are not seen. For root.
alone() {
	# shellcheck disable=SC2016 # its own words
	unshare -m "$BASH" -c '
		while read -r _ _ _ _ place _; do
			printf -v place %b "${place//\\/\\0}"
			[ "$place" = "$0" ] || umount -l "$place"
		done < <(grep " fuse.ddipfs " /proc/self/mountinfo)
		exec "$@"' "$M" "$@"
}

# The pids of all ranks now.
rank_pids() {
	sed -n 's/.* pid=\([1-9][0-9]*\).*/\1/p' "$M"/*/ranks
}

# The pid of the daemon of this mount: the one that has /dev/fuse open and this path as argument.
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

# Has it ended? One that nobody reaped yet has: who that is, and when it looks, is not ours.
has_ended() {
	local stat
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
	[[ ${stat##*) } == [ZX]* ]] && [ "$(find "/proc/$1/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)" -le 1 ]
}

# gone PID… : all of them end
gone() {
	local pid
	for pid; do
		until_true has_ended "$pid" || bad "process $pid is still there: $(ps -o stat,args -p "$pid")"
	done
}

# All processes of this test but the test itself, its parents and what it runs now.
others() {
	local pid
	for pid in $(grep -lsz "^DDIP_TEST=${DDIP_TEST:-none}\$" /proc/[0-9]*/environ | cut -d / -f 3); do
		case $(cat "/proc/$pid/comm" 2>/dev/null) in
		ddip*) echo "$pid" ;;
		esac
	done
}

# Also where the daemon, told to end, has done it meanwhile.
is_unmounted() {
	fusermount3 -q -u "$M" || ! grep -qF " $M " /proc/self/mountinfo
}

unmount() {
	local pids
	pids=$(others)
	# the watchdog is inside for a moment when there is news
	until_true is_unmounted || return
	# shellcheck disable=SC2086 # a list
	gone $pids
}

at_exit() {
	local status=$?
	trap - EXIT
	# what the test has open keeps the mount busy
	exec 3<&- 4<&- 5<&- 6<&-
	if mountpoint -q "$M" 2>/dev/null || grep -qF " $M " /proc/self/mountinfo; then
		if [ "$status" -ne 0 ] || [ -s "$T/failures" ]; then
			printf '%s\n' '--- status' "$(guarded cat "$G/status" "$G/ranks" 2>&1)" \
				'--- error' "$(guarded cat "$G/error" 2>&1)"
		fi
		jobs -p | xargs -r kill 2>/dev/null
		unmount
		! grep -qF " $M " /proc/self/mountinfo || fusermount3 -u -z "$M"
	fi
	[ "$status" -ne 0 ] || [ ! -s "$T/failures" ] || status=1
	rm -rf --one-file-system "$T"
	exit "$status"
}
trap at_exit EXIT

# cell 'CODE' [FILE]: submits it, waits; the status is cat's, the errno in its message
cell() {
	printf '%s\n' "$1" | cat >"${2:-$G/cell}"
}

# value EXPRESSION [RANK]: what it is on a rank, as a cell's result
value() {
	cell "$1" "$G/rank${2:-0}/cell" && cat "$G/cells/last/rank${2:-0}/result"
}

# key FILE KEY: of `key value` lines
key() {
	awk -v k="$2" '$1 == k { $1 = ""; print substr($0, 2) }' "$1"
}

state() {
	key "$G/cells/${1:-last}/status" state
}

# Is this a build whose memory says nothing?
sanitized() {
	[[ $BUILD == */?san ]] || [[ $BUILD == */?san/* ]]
}

# Is this a build with ThreadSanitizer? There a signal waits until the thread calls libc, which a loop never does.
signals_wait() {
	[[ $BUILD == */tsan ]] || [[ $BUILD == */tsan/* ]]
}

# errno COMMAND…: the symbol of the errno that a Python function meets, "0" if none. Code for python -c.
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

# free_ports N: TCP ports that nobody has, other ones for each test, below those that the kernel gives
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

# await FD PATTERN: the first such line of a live file that is open there
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

# upto FD PATTERN: all lines of a live file that is open there, to the first one like this
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

# prints FILE PATTERN: waits until a live file has such a line
prints() {
	guarded grep -m1 -q "$2" "$1" || bad "no '$2' in $1"
}

# until_true COMMAND…: again and again, until it succeeds. For what no event tells of.
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

# submit CODE [FILE]: a cell that is not waited for; sets n, its number
submit() {
	is "a cell is queued in ${2:-cell}" "$(errno nonblock "${2:-$G/cell}" "$1")" 0
	n=$(readlink "$G/cells/last")
}

# wait_cell N: its final status
wait_cell() {
	guarded cat "$G/cells/$1/wait" || bad "cell $1 does not end"
}
