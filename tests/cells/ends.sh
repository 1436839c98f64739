#!/usr/bin/env bash
# Whatever a cell waits in ends by an interrupt, whoever sends it: the table of ddipfs(4). Variables stay, and the next
# cell works; only C code that runs no Python costs the rank.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2
cat >"$T/endless.py" <<'END'
import time
while True:
    time.sleep(0.01)
END
cell "import sys; sys.path.insert(0, '$T'); kept = 7" || bad 'the first cell'
fails cell '1 / 0' # which imports what shows a traceback: the times are of what is loaded
export T G
"$PLAIN_PYTHON" "${0%.sh}.py" || bad 'some do not end as they should'
# what it ends may ignore the signal, and be the last thing that the cell does
echo 'timeout 0.5' >"$G/ctl"
submit 'import os; os.system("sleep 1000")'
like 'a timeout is told all the same' "$(wait_cell "$n")" 'state timeout'
like 'with its cause' "$(cat "$G/cells/$n/traceback")" 'ddip.Timeout'
ok fusermount3 -u "$M"

# without IPython
mount_plain -o size=1
# at_prompt WORD: waits until the cell $n has written it
at_prompt() {
	prints "$G/cells/$n/stream" "$1"
}
# system(3) leaves SIGINT to its child, which it may start after the signal
cell pass
rank=$(sed -n 's/^pid //p' "$G/rank0/status")
strace -f -qq -o /dev/null -e trace=clone,clone3,vfork -e inject=clone,clone3,vfork:delay_enter=400000 -p "$rank" &
tracer=$!
until_true grep -qs "^TracerPid:[[:space:]]*$tracer\$" "/proc/$rank/status"
ignores_sigint() {
	(($(sed -n 's/^SigIgn:[[:space:]]*/0x/p' "/proc/$rank/status") & 2))
}
for call in 'os.system("sleep 1000")' 't = threading.Thread(target=os.system, args=("sleep 1000",)); t.start(); t.join()'; do
	submit "import os, threading, time; $call; time.sleep(1000)"
	until_true ignores_sigint
	echo interrupt >"$G/cells/$n/ctl"
	like "a child that is not started yet: $call" "$(wait_cell "$n")" 'state interrupted'
done
is 'the rank stays' "$(sed -n 's/^pid //p' "$G/rank0/status")" "$rank"
kill $tracer
wait $tracer 2>/dev/null
# a shell that has just been started may drop it
cat >"$T/drops" <<END
trap 'trap - INT' INT; sleep 0.03
: >$T/began
while :; do sleep 0.01; done
END
for try in {1..20}; do # on a busy machine it may be too old
	submit "import os, threading, time
t = threading.Thread(target=os.system, args=('exec sh $T/drops',)); t.start(); t.join(); time.sleep(1000)"
	until_true test -e "$T/began"
	echo interrupt >"$G/cells/$n/ctl"
	! timeout 3 cat "$G/cells/$n/wait" >"$T/outcome" || break
	echo interrupt >"$G/cells/$n/ctl"
	wait_cell "$n" >"$T/outcome"
	rm "$T/began"
done
like "a shell that drops it, try $try" "$([ "$try" = 20 ] || cat "$T/outcome")" 'state interrupted'
submit 'try:
    breakpoint()
    x = 1
except KeyboardInterrupt as e:
    caught = type(e).__name__'
at_prompt Pdb
echo interrupt >"$G/cells/$n/ctl"
like "the cell's handler sees it" "$(wait_cell "$n")" 'state ok'
is 'as what it is' "$(value caught)" "'KeyboardInterrupt'"
submit 'import pdb, time
pdb.set_trace()
x = 1'
at_prompt Pdb
echo '!print("ru" + "ns", flush=True); time.sleep(1000)' >"$G/rank0/stdin"
at_prompt runs
echo interrupt >"$G/cells/$n/ctl"
at_prompt KeyboardInterrupt
is 'Ctrl-C ends the command at the prompt' "$(state "$n")" running
echo interrupt >"$G/cells/$n/ctl"
like 'and at the prompt the cell' "$(wait_cell "$n")" 'state interrupted'
is 'the traceback shows the cell alone' "$(grep '  File' "$G/cells/$n/traceback" | grep -vc '<cell')" 0
echo 'timeout 3' >"$G/ctl"
submit 'import pdb, time
pdb.set_trace()
x = 1'
at_prompt Pdb
echo 'time.sleep(1000)' >"$G/rank0/stdin"
like 'a timeout ends the prompt with its command' "$(wait_cell "$n")" 'state timeout'
echo 'timeout off' >"$G/ctl"
# a writer that catches the signal waits on; its death is another one
env --default-signal=INT "$PLAIN_PYTHON" -c "open('$G/cell', 'w').write('''import time
try:
    print('begins', flush=True)
    time.sleep(1000)
finally:
    input()''')" 2>"$T/writer" &
until_true grep -q '^state busy' "$G/status"
n=$(readlink "$G/cells/last")
at_prompt begins
kill -INT $!
until_true grep -q state=input "$G/ranks"
kill -KILL $!
wait $!
like 'a writer that is killed after it' "$(wait_cell "$n")" 'state interrupted'
