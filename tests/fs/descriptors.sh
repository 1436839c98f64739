#!/usr/bin/env bash
# When the daemon, the agent or a rank is out of descriptors, requests that need one fail with EMFILE and a text that
# says where, and nothing else happens; no rank and no agent is lost.
. "$(dirname "$0")/../lib.sh"

mount_plain
cell 'big = list(range(400000))'
pids=$(rank_pids)
daemon=$(daemon_pid) || give_up 'no daemon'
agent=$(pgrep -P "$daemon" -x ddip-agent)
# shellcheck disable=SC2034 # by name, below
engine=$(rank_pids | tail -n 1)

# limited PID: from now on it gets no more descriptors, whichever it closes meanwhile, because only 0 to 2 are below the
# limit; those that it has stay open. unlimited PID: restores its limit
declare -A before
limited() {
	before[$1]=$(prlimit --pid "$1" --nofile --output SOFT --noheadings | xargs)
	prlimit --pid "$1" --nofile=3:
}

unlimited() {
	prlimit --pid "$1" "--nofile=${before[$1]}:"
}

# open_all N: prints the errnos of N opens of a 1 MB value (which is passed as a descriptor), all held open meanwhile
open_all() {
	"$PLAIN_PYTHON" - "$G" "$1" <<-'EOF'
		import errno, os, sys
		met = set()
		for i in range(int(sys.argv[2])):
		    try:
		        os.open(f"{sys.argv[1]}/rank{i % 2}/vars/big.pkl", os.O_RDONLY)
		    except OSError as e:
		        met.add(errno.errorcode[e.errno])
		print(*sorted(met))
	EOF
}

for who in daemon agent engine; do
	: >"$G/error"
	limited "${!who}"
	is "a push is refused when the $who has no descriptor left" "$(errno create "$G/vars/z" '5')" EMFILE
	like "error says that it was for want of descriptors ($who)" "$(cat "$G/error")" 'EMFILE .*(descriptor|open files)'
	is "pulls are refused when the $who has none left" "$(open_all 8)" EMFILE
	is "a cell runs, though the $who has none left" "$(errno write "$G/cell" 'x = 1')" 0
	unlimited "${!who}"
	is "no rank was lost when the $who had none left" "$(rank_pids)" "$pids"
	is "a push works when the $who has descriptors again" "$(errno create "$G/vars/z" '6')" 0
	is "so does a pull ($who)" "$(open_all 8)" ''
	is "all ranks have what was pushed ($who)" "$(cat "$G/rank0/vars/z" "$G/rank1/vars/z" | xargs)" '6 6'
done

# a signal to a writer that waits interrupts its cell, and the close says so
cat >"$T/writer.py" <<'END'
import errno, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: None)
fd = os.open(sys.argv[1], os.O_WRONLY)
os.write(fd, sys.argv[2].encode())
try:
    os.close(fd)
    print(0)
except OSError as e:
    print(errno.errorcode[e.errno])
END
"$PLAIN_PYTHON" "$T/writer.py" "$G/cell.0" "import time
try:
    open('$T/begun', 'w').close()
    time.sleep(1000)
finally:
    time.sleep(0.3) # as what saves its work; the daemon looks at the writer meanwhile" >"$T/close" &
writer=$!
until_true test -e "$T/begun"
limited "$daemon"
kill -TERM "$writer"
wait "$writer"
unlimited "$daemon"
is 'the close of a writer that got a signal' "$(cat "$T/close")" EINTR

is 'the agent is the same' "$(pgrep -P "$daemon" -x ddip-agent)" "$agent"
