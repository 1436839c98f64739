#!/usr/bin/env bash
# After an interrupt, imports can be repeated, programs have stopped in their own way, and the outcome shows that it was
# an interrupt.
. "$(dirname "$0")/../lib.sh"

mkdir -p "$T/src/slow" "$T/src/endless"
echo 'X = 1' | tee "$T/src/slow/part.py" >"$T/src/endless/part.py"
cat >"$T/src/slow/__init__.py" <<'END'
import os, signal
from . import part
os.kill(os.getpid(), signal.SIGINT)
for i in range(1000):
    pass
done = part.X
END
cat >"$T/src/endless/__init__.py" <<'END'
import os, signal, time
from . import part
if not os.path.exists(__file__ + ".go"):
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        time.sleep(0.01)
END
# an engine that searches the current directory for modules before a cell runs would find these
mkdir "$T/here"
for name in numpy torch IPython json socket site; do
	echo "open('$T/imported', 'a').write('$name by ' + open('/proc/self/comm').read())" >"$T/here/$name.py"
done
echo 'X = 1' >"$T/here/mine.py"
cd "$T/here" || exit
mount_torch -o size=2
echo start >"$G/ctl" || bad start
is 'nothing is imported from where the mount was made' "$(cat "$T/imported" 2>/dev/null)" ''
echo restart >"$G/ctl" || bad restart
is 'nor by the next ranks' "$(cat "$T/imported" 2>/dev/null)" ''
cell 'import mine' || bad 'a cell does not import from the current directory'
rm -r "$T/here"/*.py
cell "import sys; sys.path.insert(0, '$T/src')"

# runs CODE FILE: submits it and waits until it calls begins() on all ranks; sets n to its number
runs() {
	errno nonblock "${2:-$G/cell}" "import time
def begins(): print('begins', flush=True)
$1" >/dev/null
	n=$(readlink "$G/cells/last")
	for part in "$G/cells/$n"/rank?; do
		until grep -q begins "$part/stdout"; do sleep 0.01; done
	done
}

# the interrupt is delivered when the import is done
is 'an import that is interrupted' "$(errno write "$G/cell" 'import slow
import time
time.sleep(100)')" EINTR
is 'was done first' "$(value 'slow.done' 0) $(value 'import slow; slow.part.X' 1)" '1 1'
# an import that does not end: the modules that it had begun to import are removed
is 'an import that does not end' "$(errno write "$G/cell" 'import endless')" EINTR
is 'leaves nothing' "$(value '[name for name in sys.modules if "endless" in name]')" '[]'
: >"$T/src/endless/__init__.py.go"
is 'and can be done again' "$(value 'import endless; endless.part.X')" 1

# a restart names itself
runs 'begins()
time.sleep(100)'
echo restart >"$G/ctl" || bad restart
is 'a restart is named' "$(sort -u "$G/cells/$n/error" | xargs -d '\n')" \
	'rank 0: ddip.Restarted: the group was restarted rank 1: ddip.Restarted: the group was restarted'
like 'it is a KeyboardInterrupt' "$(wait_cell "$n")" 'errno EINTR'
cell "import sys; sys.path.insert(0, '$T/src')"

# the outcome of a cell that was interrupted
while IFS='|' read -r what state code; do
	runs "try:
    begins()
    time.sleep(100)
except KeyboardInterrupt:
    $code"
	echo interrupt >"$G/cells/$n/ctl"
	like "$what" "$(wait_cell "$n")" "state $state"
done <<'END'
an exit with a status|interrupted|sys.exit(1)
another exception|interrupted|raise ValueError('after it')
success|ok|pass
an exit with success|ok|sys.exit(0)
END
# the cell's code has ended, but a callback of the user's has not
runs "def late():
    get_ipython().events.unregister('post_execute', late)
    begins()
    time.sleep(100)
get_ipython().events.register('post_execute', late)"
echo interrupt >"$G/cells/$n/ctl"
like 'a callback that is interrupted' "$(wait_cell "$n")" 'state interrupted'
is 'is no error of IPython' "$(cat "$G/cells/$n"/rank?/stdout | xargs)" 'begins begins'
# one KeyboardInterrupt per interrupt, whatever the handler does and however long it takes
exec 4<"$G/events"
runs "import os
caught = []
try:
    begins()
    time.sleep(100)
except KeyboardInterrupt:
    try:
        while not os.path.exists('$T/go'):
            time.sleep(0.01)
    except KeyboardInterrupt:
        caught.append('again')
    caught.append('saved')"
echo interrupt >"$G/cells/$n/ctl"
await 4 "cell $n escalation step=2" >/dev/null
exec 4<&-
: >"$T/go"
like 'who handles it' "$(wait_cell "$n")" 'state ok'
is 'is not interrupted again' "$(cat "$G"/rank?/vars/caught.json | xargs)" '[saved] [saved]'

is 'an exit without an interrupt' "$(errno write "$G/cell" 'sys.exit(1)')" EREMOTEIO

# a program with its own handler: the collective that it is in goes on
echo 'grace 60' >"$G/ctl"
runs "import signal, torch, torch.distributed as dist
stopped = []
signal.signal(signal.SIGINT, lambda *args: stopped.append(1))
begins()
while rank == 1 and not stopped:
    time.sleep(0.01)
t = torch.ones(1)
dist.all_reduce(t)
saved = t.item()"
until grep -q '^0 .*all_reduce' "$G/stall"; do sleep 0.01; done
echo interrupt >"$G/cells/$n/ctl"
like 'a handler of its own' "$(wait_cell "$n")" 'state ok'
is 'the collective was not ended' "$(cat "$G"/rank?/vars/saved | xargs)" '2.0 2.0'
# the same for `stop`; a second interrupt releases the rank
code="import signal, torch, torch.distributed as dist
stopped = []
signal.signal(signal.SIGINT, lambda *args: stopped.append(1))
begins()"
runs "$code
while rank == 1 and not stopped:
    time.sleep(0.01)
dist.all_reduce(torch.ones(1))
open('$T/saved' + str(rank), 'w').close()"
until grep -q '^0 .*all_reduce' "$G/stall"; do sleep 0.01; done
ok test "$(errno write "$G/ctl" $'restart\n')" = 0
is 'a program saves when the group is stopped' "$(find "$T" -maxdepth 1 -name 'saved*' | wc -l)" 2
runs "$code
if rank == 0:
    dist.all_reduce(torch.ones(1))
while not stopped:
    time.sleep(0.01)
print('once', flush=True)
while len(stopped) < 2:
    time.sleep(0.01)"
until grep -q '^0 .*all_reduce' "$G/stall"; do sleep 0.01; done
echo interrupt >"$G/cells/$n/ctl"
until_true grep -q once "$G/cells/$n/rank1/stdout" # two signals that wait are one
is 'it is spared once' "$(timeout 0.3 cat "$G/cells/$n/wait")" ''
echo interrupt >"$G/cells/$n/ctl"
like 'and freed when it is interrupted again' "$(wait_cell "$n")" 'state'
is 'the handler is not the next cell'"'"'s' "$(errno write "$G/cell" 'import os; os.kill(os.getpid(), signal.SIGINT)
time.sleep(100)')" EINTR

# an interrupted push that does not end at once leaves the process group intact; one into a module is undone
cell "import ctypes, pickle, time, torch, torch.distributed as dist
class Slow:
    def __reduce__(self):
        return slow, ()
def slow():
    open('$T/decodes' + str(rank), 'w').close()
    ctypes.CDLL(None).system(b'until test -e $T/interrupted; do sleep 0.01; done; sleep 2')
class Net(torch.nn.Linear):
    def load_state_dict(self, state):
        super().load_state_dict(state)
        open('$T/loads' + str(rank), 'w').close()
        while rank == 1:
            time.sleep(0.01)
net = Net(2, 2)
before = net.weight.clone()
if rank == 0:
    with open('$T/slow.pkl', 'wb') as f:
        pickle.dump(Slow(), f)
    torch.save({name: value + 1 for name, value in net.state_dict().items()}, '$T/net.pt')"

# interrupted FILE NAME MARK: pushes it and interrupts when the marks of both ranks exist
interrupted() {
	cp "$T/$1" "$G/vars/$2" 2>"$T/cp" &
	until_true test -e "$T/${3}0"
	until_true test -e "$T/${3}1"
	echo interrupt >"$G/ctl"
	: >"$T/interrupted"
	wait $!
	like "$2: interrupted" "$(cat "$T/cp")" 'Interrupted system call'
}

generation=$(key "$G/status" generation)
interrupted slow.pkl slow.pkl decodes
is 'collectives work' "$(errno write "$G/cell" 'dist.all_reduce(torch.ones(1))')" 0
is 'without a new process group' "$(key "$G/status" generation)" "$generation"
interrupted net.pt net.pt loads
is 'the module is as it was on all ranks' "$(value 'torch.equal(net.weight, before)' 0) $(value 'torch.equal(net.weight, before)' 1)" 'True True'
