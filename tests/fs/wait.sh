#!/usr/bin/env bash
# One wait for anything: a line for each reason, for a cell, a group or all groups; what holds already comes at once;
# it can be polled and interrupted, and leaves nothing behind.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=2
export DDIP_MOUNT=$PLACE PATH=$BUILD:$PATH G T
mkfifo "$T/gate" "$T/gate0" "$T/gate1"
mkdir "$M/other"
cell 'import time, os'

# hold: runs a cell on both ranks until unblock
hold() {
	submit "open(f'$T/gate{rank}').read()${1:+; $1}"
}
unblock() {
	echo >"$T/gate0"
	echo >"$T/gate1"
}

# ---- each reason, and who else hears of it

exec 3<"$G/wait" 4<"$M/wait.ended,failed,input" 5<"$M/other/wait"
hold
exec 6<"$G/cells/$n/wait.failed"
unblock
like 'a cell that ends' "$(await 3 .)" "^ended group=group cell=$n state=ok seconds=[0-9.]+ look=group/cells/$n/report$"
like 'of all groups' "$(await 4 .)" "^ended group=group cell=$n state=ok"
like 'of that cell: its end is always a reason' "$(await 6 .)" "^ended group=group cell=$n state=ok"
is 'and the last one' "$(guarded cat <&6)" ''
exec 6<&-

submit "if rank == 1: 1 / 0
open('$T/gate').read()"
like 'a rank that fails while the other runs' "$(await 3 .)" \
	"^failed group=group cell=$n rank=1 errno=EREMOTEIO seconds=[0-9.]+ look=group/cells/$n/report error=rank 1: ZeroDivisionError"
is 'the cell runs on' "$(state "$n")" running
is 'a reader that comes later hears of it' "$(head -n 1 "$G/cells/$n/wait.failed" | cut -d ' ' -f 1-4)" \
	"failed group=group cell=$n rank=1"
echo >"$T/gate"
like 'it ends' "$(await 3 .)" "^ended group=group cell=$n state=error seconds=[0-9.]+ look=group/cells/$n/report$"
is 'a cell that has ended: both lines, and the end' "$(guarded cut -d ' ' -f 1,3,4 "$G/cells/$n/wait.failed,quiet=9")" \
	"failed cell=$n rank=1
ended cell=$n state=error"

submit 'input("name? ")' "$G/rank1/cell"
like 'a rank that waits for input' "$(await 3 .)" \
	"^input group=group cell=$n rank=1 seconds=[0-9.]+ look=group/cells/$n/rank1/stdout$"
is 'the prompt is there' "$(cat "$G/cells/$n/rank1/stdout")" 'name? '
like 'a reader that comes later' "$(guarded head -n 1 "$G/wait.input")" "^input group=group cell=$n rank=1"
like 'of all groups' "$(guarded head -n 1 "$M/wait.input")" "^input group=group cell=$n rank=1"
echo Bob >"$G/rank1/stdin"
like 'it goes on' "$(await 3 .)" "^ended .*cell=$n state=ok"

hold
interrupted=$n
echo preempt >"$G/ctl"
like 'a preemption' "$(await 3 .)" "^preempt group=group cell=$n seconds=[0-9.]+ look=group/events$"
like 'ends it' "$(await 3 'ended')" "cell=$interrupted state=interrupted"
echo preempt >"$G/ctl"
is 'also with nothing to do' "$(await 3 .)" 'preempt group=group look=group/events'
is 'the other group heard nothing' "$(timeout 0.1 head -n 1 <&5)" ''

hold 'print("said")'
exec 6<"$G/cells/$n/wait.quiet=0.3"
like 'silence' "$(await 6 .)" "^quiet group=group cell=$n seconds=(0\.[3-9]|[1-9])[0-9.]* look=group/stall$"
like 'that goes on is another reason' "$(await 6 .)" "^quiet group=group cell=$n seconds=(0\.[6-9]|[1-9])"
unblock
like 'and its end' "$(await 6 '^ended')" "cell=$n state=ok"
exec 6<"$G/wait.quiet=1"
submit "for i in range(15): print(i, flush=True); time.sleep(0.1)
open('$T/gate').read()" "$G/cell.0"
like 'a cell that begins later, and prints first' "$(await 6 .)" "^quiet group=group cell=$n seconds=[1-9]"
is 'it has printed all' "$(wc -l <"$G/cells/$n/rank0/stdout")" 15
echo >"$T/gate"
wait_cell "$n" >/dev/null
exec 6<&-

# ---- what never begins, and what is no reason

hold
running=$n
submit 'never = 1'
exec 6<"$G/cells/$n/wait.ended,failed"
echo cancel >"$G/ctl"
like 'a cell dropped from the queue' "$(await 6 .)" "^failed group=group cell=$n errno=ECANCELED .*error=dropped"
like 'has ended' "$(await 6 .)" "^ended group=group cell=$n state=cancelled"
exec 6<&-
unblock
wait_cell "$running" >/dev/null
for bad in '' nonsense quiet quiet= quiet=x quiet=0 quiet=-1 quiet=nan quiet=1e99 ended= 'ended,' ',ended' ended=1 'ended failed'; do
	is "no reasons: '$bad'" "$(errno read "$G/wait.$bad") $(errno read "$M/wait.$bad")" 'EINVAL EINVAL'
done
like 'error says so' "$(cat "$G/error")" "'nonsense' is no reason; want some of ended,failed,stalled,quiet=SECONDS,input,preempt"
is 'no such cell' "$(errno read "$G/cells/999/wait.ended")" ENOENT

# ---- poll, O_NONBLOCK, and processes that go

"$PLAIN_PYTHON" - "$M" <<'END' || bad 'poll'
import os, select, sys, time
M = sys.argv[1]
G = M + "/group"
paths = [M + "/wait", G + "/wait", G + "/wait.ended,quiet=1000"]
fds = [os.open(path, os.O_RDONLY | os.O_NONBLOCK) for path in paths]
poll = select.poll()
for fd in fds:
    poll.register(fd, select.POLLIN)
assert not poll.poll(0)
for fd in fds:
    try:
        os.read(fd, 100)
        raise SystemExit("there was data")
    except BlockingIOError:
        pass
with open(G + "/cell", "w") as f:
    f.write("1")
left = set(fds)
while left:
    ready = poll.poll(int(os.environ["HANG_LIMIT_S"]) * 1000)
    assert ready
    for fd, _ in ready:
        assert os.read(fd, 1 << 16).startswith(b"ended group=group cell=")
        left.discard(fd)
assert not poll.poll(0)
for fd in fds:
    os.lseek(fd, 0, os.SEEK_SET)
    assert os.read(fd, 1 << 16).startswith(b"ended group=group cell="), "a shell that seeks back"
copied = os.open(G + "/wait", os.O_RDONLY | os.O_NOFOLLOW)
assert os.read(copied, 100) == b"", "who copies a tree does not wait"
END
for signal in TERM KILL INT; do
	for file in "$M/wait" "$G/wait" "$G/wait.ended,quiet=1000"; do
		env --default-signal=INT cat "$file" >"$T/out" &
		pid=$!
		until_true grep -q '^State:	S' "/proc/$pid/status"
		kill -$signal $pid
		wait $pid
		is "SIG$signal ends a reader of $file" "$? $(cat "$T/out")" "$((128 + $(kill -l $signal))) "
	done
done
mkdir "$M/third"
cat "$M/third/wait" >"$T/out" 2>&1 &
pid=$!
exec 6<"$M/third/wait"
rmdir "$M/third"
wait $pid
is 'a group that goes ends its readers' "$(guarded cat <&6 2>&1 | grep -c 'No such device')" 1
exec 6<&-

# ---- a rank does not wait for itself

submit "import os
me = os.readlink('$G/cells/last')
try: open(f'$G/cells/{me}/wait.failed').read()
except OSError as e: print(e.errno)" "$G/rank0/cell"
wait_cell "$n" >/dev/null
is 'EDEADLK' "$(cat "$G/cells/$n/rank0/stdout")" 35

# ---- ddip wait

status_of() {
	"$@" >"$T/out" 2>"$T/err"
	echo $?
}
cell '1' && is 'the last cell' "$(status_of ddip wait -u failed,stalled)" 0
like 'one line' "$(cat "$T/out")" '^ended group=group cell=[0-9]+ state=ok seconds=[0-9.]+ look='
cell '1 / 0' 2>/dev/null
is 'a failure' "$(status_of ddip wait --until=ended,failed) $(status_of ddip wait -u ended)" '1 1'
submit 'os._exit(3)' "$G/rank1/cell"
is 'a rank that dies' "$(status_of ddip wait -u failed "$n")" 6
like 'says how' "$(cat "$T/out")" 'errno=EHOSTDOWN .*exit status 3'
cell 'import os, time'
hold
is 'silence' "$(status_of ddip wait -u quiet=0.05,ended "$n") $(cut -d ' ' -f 1 "$T/out")" '8 quiet'
echo interrupt >"$G/cells/$n/ctl"
is 'interrupted' "$(status_of ddip wait -u ended "$n")" 130
submit 'input()' "$G/rank0/cell"
is 'input, of any cell' "$(status_of ddip wait -a -u input) $(cut -d ' ' -f 1 "$T/out")" '9 input'
is 'of all groups, with the reasons that there are' "$(status_of ddip wait --all) $(cut -d ' ' -f 1 "$T/out")" '9 input'
echo preempt >"$G/ctl"
is 'preemption' "$(status_of ddip wait -u preempt "$n") $(cut -d ' ' -f 1 "$T/out")" '130 ended'
submit 'import ddip
while True:
    try: open("'"$T"'/gate").read(); break
    except ddip.Preempted: pass' "$G/rank0/cell"
until_true grep -q 'line 3 in' "$G/rank0/stack" # it may catch what comes
echo preempt >"$G/ctl"
is 'one that is survived' "$(status_of ddip wait -u preempt "$n") $(cut -d ' ' -f 1 "$T/out")" '10 preempt'
echo >"$T/gate"
is 'bad words' "$(status_of ddip wait -u nonsense) $(status_of ddip wait -u a/b) $(status_of ddip wait -u '')" '2 2 2'
like 'what there is' "$(cat "$T/err")" 'want some of ended,failed,stalled,quiet=SECONDS,input,preempt'
is 'wrong use' "$(status_of ddip wait -a 1) $(status_of ddip wait -a -A) $(status_of ddip wait -u ended 999)" '2 2 3'
