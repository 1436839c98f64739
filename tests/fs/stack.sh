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
prints "$G/cells/$n/stream" 'on'
until_true grep -q 'in take' "$G/rank1/stack"
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
