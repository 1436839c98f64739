#!/usr/bin/env bash
# Interrupts: by the writer's Ctrl-C, by ctl, by the cell's ctl; from loops, sleep, children; Ctrl-Z.
. "$(dirname "$0")/../lib.sh"

mount_plain
cell 'import time, subprocess, threading, sys'
exec 4<"$G/events"

# in_background COMMAND…: as a shell's foreground job would run: SIGINT is not ignored
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
	timeout 20 grep -m1 -q "$what begins.*\"rank\":1" "$G/cells/$n/stream" || bad "$what: does not begin"
	begin=$(date +%s%N)
	kill -INT "-$pid"
	wait "$pid"
	status=$?
	took=$((($(date +%s%N) - begin) / 1000000))
	[ $status -ne 0 ] || bad "$what: the writer's status is 0"
	like "$what: state" "$(wait_cell "$n")" 'state interrupted'
	[ $took -lt 2000 ] || bad "$what: took $took ms"
	is "$what: the group works" "$(errno write "$G/cell" 'x = 1')" 0
done <<'END'
a loop|while True: pass
a sleep|time.sleep(100)
a child|subprocess.run(["sleep", "100"])
a lock|threading.Lock().acquire() and (lambda l: (l.acquire(), l.acquire()))(threading.Lock())
END

# only the cell that is meant
submit 'time.sleep(100)' "$G/rank0/cell"
zero=$n
submit 'time.sleep(100)' "$G/rank1/cell"
one=$n
is 'cells/N/ctl' "$(errno write "$G/cells/$one/ctl" $'interrupt\n')" 0
like 'it stops' "$(wait_cell "$one")" 'state interrupted'
is 'the other runs' "$(state "$zero")" running
is 'rankK/ctl' "$(errno write "$G/rank0/ctl" $'interrupt\n')" 0
like 'it stops too' "$(wait_cell "$zero")" 'state interrupted'
submit 'time.sleep(100)'
is 'ctl' "$(errno write "$G/ctl" $'interrupt\n')" 0
like 'all stop' "$(wait_cell "$n")" 'state interrupted'
like 'the traceback' "$(cat "$G/cells/$n/traceback")" KeyboardInterrupt
is 'nothing runs: a success' "$(errno write "$G/ctl" $'interrupt\n')" 0
is 'an unknown verb' "$(errno write "$G/cells/$n/ctl" $'stop\n')" EINVAL

# a program that takes no interrupt is killed after killafter
echo 'killafter 1' >"$G/ctl"
submit "import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
while True: pass" "$G/rank0/cell"
await 4 "cell $n start" >/dev/null
echo interrupt >"$G/cells/$n/ctl"
wait_cell "$n" >/dev/null
is 'a new rank is there' "$(errno write "$G/cell" 'y = rank')" 0
is 'the other one kept its names' "$(cat "$G/rank1/vars/x")" 1

# Ctrl-Z lets go of the writer, the cell goes on
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
