#!/usr/bin/env bash
# When a signal ends a writer, whichever it is, half a cell does not run and half an object is not bound. A writer
# that is killed while it waits is released, whatever the ranks do.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=1
cell 'x = "whole"'
exec 4<"$G/events"

# writes TEXT to FILE and dies of SIGNAL before it closes the file
cat >"$T/writer.py" <<'END'
import os, resource, signal, sys
path, text, name = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
if name.endswith("+core"):
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.RLIM_INFINITY))
number = getattr(signal, "SIG" + name.removesuffix("+core"))
if number not in (signal.SIGKILL,):
    signal.signal(number, signal.SIG_DFL)
fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
os.write(fd, text.encode())
os.kill(os.getpid(), number)
signal.pause()
END

last=$(readlink "$G/cells/last")
for name in HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT XCPU XFSZ VTALRM PROF IO PWR SYS; do
	"$PLAIN_PYTHON" "$T/writer.py" "$G/cell" $'half = 1\n' $name 2>/dev/null
	[ $? -gt 128 ] || bad "SIG$name did not end the writer"
	is "SIG$name: half a cell is not run" "$(readlink "$G/cells/last")" "$last"
	"$PLAIN_PYTHON" "$T/writer.py" "$G/vars/x" '"half"' $name 2>/dev/null
	is "SIG$name: half an object binds nothing" "$(cat "$G/vars/x")" whole
done
is 'each is told in events' "$(await 4 'discarded' | cut -d ' ' -f 3-)" 'discarded bytes=9: a signal ended the writer of a cell'
is 'nothing of them ran' "$(value "'half' in globals()")" False
last=$(readlink "$G/cells/last")

# a shell that holds the file open for a command that is killed submits nothing either
for shell in bash dash; do
	command -v $shell >/dev/null || continue
	$shell -c "{ '$PLAIN_PYTHON' -c 'import os, signal
os.write(1, b\"half = 2\\n\")
os.kill(os.getpid(), signal.SIGTERM)'; echo 'half = 3'; } >'$G/cell'" 2>/dev/null
	is "$shell: what others write behind half a cell is not run" "$(readlink "$G/cells/last")" "$last"
done
# a killed child that has the descriptor but wrote nothing makes no difference
"$PLAIN_PYTHON" -c "
import subprocess
with open('$G/cell', 'w') as f:
    f.write('y = 1\n')
    f.flush()
    subprocess.run(['sh', '-c', 'kill -TERM \$\$'], close_fds=False)
    f.write('y += 1\n')"
is 'a killed child that wrote nothing changes nothing' "$(cat "$G/vars/y")" 2
# a normal exit is no signal, whatever the status
"$PLAIN_PYTHON" -c "
import os
fd = os.open('$G/cell', os.O_WRONLY)
os.write(fd, b'z = 5\n')
os._exit(9)"
wait_cell last >/dev/null
is 'a writer that exits without closing submits' "$(cat "$G/vars/z")" 5

# released, whatever the rank does: its process is stopped, then its agent, too
pid=$(rank_pids)
agent=$(others | while read -r p; do [ "$(cat "/proc/$p/comm")" != ddip-agent ] || echo "$p"; done)
[ -n "$agent" ] || give_up 'no agent'
for stopped in "$pid" "$pid $agent"; do
	for signal in KILL TERM; do
		# shellcheck disable=SC2086 # a list
		kill -STOP $stopped
		n=$(readlink "$G/cells/last")
		# shellcheck disable=SC2217 # it reads /dev/stdin
		cp /dev/stdin "$G/cell" <<<'import time; time.sleep(1000)' &
		writer=$!
		while now=$(readlink "$G/cells/last") && [ "$now" -le "$n" ]; do :; done
		kill -$signal $writer
		gone $writer
		# shellcheck disable=SC2086
		kill -CONT $stopped
		like "SIG$signal to the writer: its cell stops when the rank goes on" \
			"$(wait_cell $((n + 1)))" 'state (interrupted|lost|cancelled)'
	done
done
# all other ways to wait for ranks: a push, a pull, a rank's current state, a verb
exec 5<"$M/trace"
echo 3 >"$T/value"
echo restart >"$T/verb"
cat >"$T/fsync.py" <<'END'
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
os.write(fd, b"3")
os.fsync(fd)
END
while read -r request path command; do
	for signal in KILL TERM; do
		cell pass # all ranks are there
		stopped="$(rank_pids) $agent"
		# shellcheck disable=SC2086 # a list
		kill -STOP $stopped
		(cd "$G" && exec bash -c "exec $command" >"$T/out") &
		waiter=$!
		await 5 " fuse $request group/$path pid=$waiter\$" >/dev/null
		kill -$signal $waiter
		gone $waiter
		# shellcheck disable=SC2086 # the last verb may have ended the rank
		kill -CONT $stopped 2>/dev/null
	done
done <<END
flush vars/x cp $T/value vars/x
fsync rank0/vars/x $PLAIN_PYTHON $T/fsync.py rank0/vars/x
open vars/x cat vars/x
open vars/x.pkl cat vars/x.pkl
open vars/x.same cat vars/x.same
open rank0/stack cat rank0/stack
flush ctl cp $T/verb ctl
END
exec 5<&-
is 'the group works' "$(value '1 + 1')" 2
exec 4<&-
