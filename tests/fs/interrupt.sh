#!/usr/bin/env bash
# Interrupts end a cell: by the writer's Ctrl-C, by ctl, by the cell's ctl; in loops, sleep, children; Ctrl-Z does not.
. "$(dirname "$0")/../lib.sh"

mount_plain
cell 'import time, subprocess, threading, sys'
exec 4<"$G/events"
# longer than the test takes: a rank that would have to be killed hangs it
echo 'killafter 1000' >"$G/ctl"
ranks=$(rank_pids | xargs)

# in_background COMMAND…: runs it like a shell's foreground job: SIGINT is not ignored
in_background() {
	"$PLAIN_PYTHON" -c '
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGTSTP, signal.SIG_DFL)
os.setpgid(0, 0)
os.execvp(sys.argv[1], sys.argv[1:])' "$@" &
	pid=$!
}

while IFS='|' read -r what code; do
	n=$(($(cat "$G/cell") + 1))
	in_background sh -c "cat <<'END' >'$G/cell'
print('$what begins', flush=True)
$code
END"
	await 4 "cell $n start" >/dev/null
	for k in 0 1; do until_true grep -q "$what begins" "$G/cells/$n/rank$k/stdout"; done
	kill -INT "-$pid"
	wait "$pid"
	status=$?
	[ $status -ne 0 ] || bad "$what: the writer's status is 0"
	like "$what: state" "$(wait_cell "$n")" 'state interrupted'
	is "$what: the ranks are the same" "$(rank_pids | xargs)" "$ranks"
	is "$what: the group works" "$(errno write "$G/cell" 'x = 1')" 0
done <<'END'
a loop|while True: pass
a sleep|time.sleep(100)
a child|subprocess.run(["sleep", "100"])
a lock|threading.Lock().acquire() and (lambda l: (l.acquire(), l.acquire()))(threading.Lock())
END

# only the intended cell
submit 'time.sleep(100)' "$G/rank0/cell"
zero=$n
submit 'time.sleep(100)' "$G/rank1/cell"
one=$n
is 'cells/N/ctl' "$(errno write "$G/cells/$one/ctl" $'interrupt\n')" 0
like 'cells/N/ctl: that cell ends' "$(wait_cell "$one")" 'state interrupted'
is 'cells/N/ctl: the cell of the other rank runs on' "$(state "$zero")" running
is 'rankK/ctl' "$(errno write "$G/rank0/ctl" $'interrupt\n')" 0
like 'rankK/ctl: that cell ends' "$(wait_cell "$zero")" 'state interrupted'
submit 'time.sleep(100)'
is 'interrupt in ctl' "$(errno write "$G/ctl" $'interrupt\n')" 0
like 'interrupt in ctl: the cell ends on all ranks' "$(wait_cell "$n")" 'state interrupted'
like 'the traceback' "$(cat "$G/cells/$n/traceback")" KeyboardInterrupt
is 'nothing runs: a success' "$(errno write "$G/ctl" $'interrupt\n')" 0
is 'an unknown verb' "$(errno write "$G/cells/$n/ctl" $'stop\n')" EINVAL

# a rank that executes no Python code is killed after killafter, and error reports what is lost
echo 'killafter 1' >"$G/ctl"
# C code prints this: from then on the rank executes no Python code
submit $'import itertools, os\nsum(itertools.chain(map(os.write, [1], [b"in C\\n"]), range(10**15)))' "$G/rank0/cell"
prints "$G/cells/$n/stream" 'in C'
echo interrupt >"$G/cells/$n/ctl"
like 'a rank in C code is killed' "$(wait_cell "$n")" 'errno EHOSTDOWN'
like 'error tells that the variables are lost' "$(grep killafter "$G/error")" 'rank 0 ran no Python.*its variables are lost'
is 'a new rank is there' "$(errno write "$G/cell" 'y = rank')" 0
is 'the other one kept its names' "$(cat "$G/rank1/vars/x")" 1

# a signalled writer whose reply triggers others: its queued cell is dropped, and readers of the cell are answered
errno nonblock "$G/cell" 'import time; time.sleep(100)' >/dev/null
running=$(readlink "$G/cells/last")
echo 'x = 2' >"$T/x.py"
for _ in 1 2 3; do
	in_background cp "$T/x.py" "$G/cell"
	# the daemon has made a cell of the write, or no longer exists
	while n=$(readlink "$G/cells/last") && [ "$n" -le "$running" ]; do :; done
	writer=$pid readers=
	exec 5<"$M/trace"
	for _ in 1 2 3 4; do
		cat "$G/cells/$n/wait" "$G/cells/$n/stream" >/dev/null &
		readers="$readers $!"
	done
	# the reads have reached the daemon
	guarded grep -m4 " fuse read group/cells/$n/wait " <&5 >/dev/null || bad 'the readers do not come'
	exec 5<&-
	kill -INT "$writer"
	wait "$writer"
	like 'a queued cell is dropped with its writer' "$(wait_cell "$n")" 'state cancelled|state interrupted'
	# shellcheck disable=SC2086 # a list
	gone $readers
	running=$n
done
echo interrupt >"$G/ctl"
is 'and all goes on' "$(errno write "$G/cell" 'x = 3')" 0

# Ctrl-Z releases the writer, and the cell goes on
mkfifo "$T/gate"
printf '%s\n' "z = open('$T/gate').read()" >"$T/z.py"
"$PLAIN_PYTHON" - "$T/z.py" "$G" "$T/gate" <<'END' || bad 'Ctrl-Z'
import os, signal, subprocess, sys
source, group, gate = sys.argv[1:]
events = open(group + "/events")
writer = subprocess.Popen(["cp", source, group + "/cell.0"], process_group=0) if sys.version_info >= (3, 11) \
    else subprocess.Popen(["cp", source, group + "/cell.0"], preexec_fn=os.setpgrp)
number = next(line.split()[3] for line in events if line.split()[-1] == "start")
os.killpg(writer.pid, signal.SIGTSTP)
_, status = os.waitpid(writer.pid, os.WUNTRACED)
assert os.WIFSTOPPED(status), status
state = open(f"{group}/cells/{number}/status").read()
assert "state running" in state, state
with open(gate, "w") as f:
    f.write("through")
assert "state ok" in open(f"{group}/cells/{number}/wait").read()
os.killpg(writer.pid, signal.SIGCONT)
writer.wait()
END
is 'what it did' "$(cat "$G/rank0/vars/z")" through
