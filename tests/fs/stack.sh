#!/usr/bin/env bash
# rankK/stack shows the frames of user code in the main thread, innermost first; stack.all those of every thread.
. "$(dirname "$0")/../lib.sh"

! signals_wait || skip 'ThreadSanitizer delivers no signal to a loop: its stack can not be read'
mount_plain

cell 'pass' || give_up 'the first cell'
nothing="(no code of the user's runs in the main thread; stack.all has all)"
is 'a rank that runs nothing' "$(cat "$G/rank0/stack")" "$nothing"
like 'all threads of it' "$(cat "$G/rank0/stack.all")" 'first\):.*ddip_engine'

# user code calls the standard library, which calls user code, which waits in the standard library
mkdir "$T/my lib"
cat >"$T/my lib/helper.py" <<'END'
import queue

def take(_):
    return queue.Queue().get(timeout=100)
END
exec 5<"$G/events"
submit "import functools, sys, threading
sys.path.insert(0, '$T/my lib')
from helper import take
other = threading.Event()
threading.Thread(target=other.wait, name='other').start()
def outer():
    return functools.reduce(lambda a, b: take(a), [1, 2])
print('on')
outer()"
for rank in 0 1; do until_true grep -q 'queue.py.* in get' "$G/rank$rank/stack.all"; done
is 'frames of the user, in their order' "$(cat "$G/rank1/stack")" "  File \"$T/my lib/helper.py\", line 4 in take
  File \"<cell $n>\", line 7 in <lambda>
  File \"<cell $n>\", line 7 in outer
  File \"<cell $n>\", line 9 in <module>"
all=$(cat "$G/rank1/stack.all")
like 'all frames of all threads' "$all" 'queue.py'
[ "$(grep -c 'most recent call first' <<<"$all")" -ge 2 ] || bad "other threads: $all"
is 'ddip stack' "$(DDIP_MOUNT=$M "$BUILD/ddip" stack | head -n 2 | xargs -0)" "ranks 0,1:
  File \"$T/my lib/helper.py\", line 4 in take"
like 'ddip stack --all' "$(DDIP_MOUNT=$M "$BUILD/ddip" stack --all)" 'queue.py'
echo interrupt >"$G/cells/$n/ctl"
wait_cell "$n" >/dev/null
cell 'other.set()' || bad 'the cell after it'

# Other threads may change their stacks, so none is shown while one of them keeps the lock; not even if the machine stands
# still for so long that the lock cannot be had in time. The rank would crash.
cell 'import re, threading, time
def match():
    re.match("(a|aa)+$", 100 * "a" + "b")' || bad 'a cell'
submit 'thread = threading.Thread(target=match, daemon=True)
print("on", flush=True)
thread.start()
time.sleep(1000)' "$G/rank1/cell"
until_true grep -q on "$G/cells/$n/rank1/stdout"
locked() {
	[ "$(cat "$G/rank1/$1")" = "(no stack: another thread keeps the interpreter's lock)" ]
}
until_true locked stack.all
until_true locked stack # the frames of the user neither
echo kill >"$G/rank1/ctl"
wait_cell "$n" >/dev/null

cell 'import threading
def deep(n):
    return deep(n - 1) + 1 if n else 0
def busy():
    while True:
        sum(deep(i % 20) for i in range(100))
for i in range(6): threading.Thread(target=busy, daemon=True).start()' "$G/rank0/cell" || bad 'a cell'
pid=$(rank_pids | head -n 1)
submit 'busy()' "$G/rank0/cell"
for name in stack stack.all; do
	while [ ! -e "$T/enough" ]; do cat "$G/rank0/$name" >>"$T/$name"; done 2>/dev/null &
done
for ((i = 0; i < ${COUNT:-25}; i++)); do
	sleep "0.0$((i % 9 + 1))"
	kill -STOP "$pid"
	sleep 0.33
	kill -CONT "$pid" || break
done
touch "$T/enough"
wait
is 'the rank lives' "$(rank_pids | head -n 1)" "$pid"
like 'stacks were shown' "$(cat "$T/stack.all")" 'in busy'
echo kill >"$G/rank0/ctl"
wait_cell "$n" >/dev/null
