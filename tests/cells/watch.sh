#!/usr/bin/env bash
# `watch`: all ranks of the running cell stop at the first step at which an expression is true on any.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/steering.sh"

mount_torch -o size=2

watched() {
	[ "$(head -n 1 "$G/watch" | cut -d ' ' -f 2)" = "state=$1" ]
}
step_is_not() {
	[ "$(key "$G/status" step)" != "$1" ]
}
moves() {
	until_true step_is_not "$(key "$G/status" step)"
}

cell 'import os, time, torch, torch.distributed as dist' || give_up 'a cell'
is 'no cell runs' "$(errno write "$G/watch" 'x > 1')" ESRCH

# a loop of a function, whose loss becomes NaN on rank 1 at step `bad`
submit 'bad = -1
def train(model, opt):
    step = 0
    while go:
        step += 1
        loss = model(torch.ones(1, 2)).sum() * (float("nan") if step == bad and rank else 1)
        loss.backward()
        opt.step()
        time.sleep(0.01)
go = True
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
train(model, torch.optim.SGD(model.parameters(), 0.001))'
until_true steps 3
is 'a syntax error' "$(errno write "$G/watch" 'x = (')" ENOEXEC
is 'no expression' "$(errno write "$G/watch" 'import os')" ENOEXEC
is 'a program' "$(errno write "$G/watch" '# ddip: x.py')" EINVAL

exec 5<>"$G/watch"
echo 'loss != loss' >&5
readable() {
	"$PLAIN_PYTHON" -c 'import select, sys; print(len(select.select([5], [], [], float(sys.argv[1]))[0]))' "$1"
}
is 'it can be read' "$(readable 0)" 1
like 'its number' "$(head -n 1 <&5)" "^[0-9]+ state=armed within=$n$"
is 'there are no news' "$(readable 0)" 0
like 'status' "$(cat "$G/status")" '
watch [0-9]+ armed
'
like 'queue' "$(cat "$G/queue")" 'kind=watch state=queued'
is 'another one' "$(errno write "$G/watch" '1' 5>&-)" EBUSY
moves
is 'a steer while it is armed' "$(steer 'bad = step + 20
bad')" 0
bad=$(cat "$G/result")
is 'there are some' "$(readable "$HANG_LIMIT_S")" 1
is 'where' "$(head -n 1 <&5)" "rank 1 step $bad: loss != loss (<cell $n>:8); all ranks wait"
is 'the end of the news' "$(head -n 1 <&5)" ''
like 'a reader' "$(cat "$G/watch")" "^[0-9]+ state=stopped within=$n step=$bad clock=optimizer
rank 1 step $bad: "
like 'status' "$(cat "$G/status")" "
watch [0-9]+ stopped at step $bad
"
is 'the step of all ranks' "$(cat "$G/rank0/locals/step" "$G/rank1/locals/step" | xargs)" "$bad $bad"
is 'the loss of each' "$(cat "$G/rank0/locals/loss" "$G/rank1/locals/loss" | grep -c nan)" 1
is 'no stall' "$(grep -c verdict "$G/stall")" 0
like 'an event' "$(cat "$G/events.last")" "watch cell=[0-9]+ within=$n ranks=1 step=$bad clock=optimizer at=<cell $n>:8"
is 'a steer of those that stand' "$(steer 'here = step
here, bool(loss != loss)')$(cat "$G"/cells/last/rank?/result | xargs)" "0($bad, False) ($bad, True)"
is 'its step' "$(of step)" "$bad"
is 'an error in one' "$(steer 'loss / None')" EREMOTEIO
is 'they still stand' "$(cat "$G/rank0/locals/step")" "$bad"
exec 5>&-
moves
until_true watched ok

# each of many stops all ranks at one step
seed=${SEED:-$RANDOM}
echo "SEED=$seed"
"$PLAIN_PYTHON" - "$G" "$seed" "${COUNT:-40}" >"$T/many" <<'END'
import os, random, sys
group, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(seed)
for i in range(count):
    watch = os.open(f"{group}/watch", os.O_RDWR)
    rank, later = random.randrange(2), random.randrange(5)
    os.write(watch, f"rank == {rank} and step % 5 == {later}".encode())
    os.read(watch, 100)
    line = os.read(watch, 1000).decode()
    step = int(line.split()[3].rstrip(":"))
    stand = [int(open(f"{group}/rank{k}/locals/step").read()) for k in (0, 1)]
    assert line.startswith(f"rank {rank} step ") and line.endswith("; all ranks wait\n"), line
    assert stand == [step, step] and step % 5 == later, (line, stand)
    os.close(watch)
print("all at one step")
END
is 'many' "$(cat "$T/many")" 'all at one step'

# a rank takes the end of a watch only after the beginning of the next one
is 'ends come late' "$(steer 'import threading
from ddip_engine import service
from ddip_engine.cells import steer as steering
def late(fd, number, clock, step):
    if not step and rank:
        begun.wait(20)
    steering.decide(fd, number, clock, step)
def arm(*asked):
    try:
        return steering.arm(*asked)
    finally:
        begun.set()
begun = threading.Event()
service._ROWS.update(Nsteer=(late, None), Tsteer=(arm, "Rsteer"))')" 0
is 'one watch' "$(errno write "$G/watch" 'step > 0') $(steer 'begun.clear()')" '0 0'
echo "cancel $(head -n 1 "$G/watch" | cut -d ' ' -f 1)" >"$G/ctl"
is 'the next one' "$(errno write "$G/watch" 'rank == 1')" 0
echo "cancel $(head -n 1 "$G/watch" | cut -d ' ' -f 1)" >"$G/ctl"
moves
is 'as before' "$(steer 'service._ROWS.update(Nsteer=(steering.decide, None), Tsteer=(steering.arm, "Rsteer"))')" 0

# what is not there; the cell ends first
is_told() {
	timeout 1 cat "$G/watch" >"$T/told"
	[ "$(grep -c "not true: NameError: name 'los' is not defined" "$T/told")" = 1 ]
}
errno write "$G/watch" 'los > 1' >"$T/outcome" &
waiter=$!
until_true is_told
moves
until_true is_told
is 'the loop ends' "$(steer 'go = False')$(key <(wait_cell "$n") state)" 0ok
wait $waiter
is 'never true' "$(cat "$T/outcome")" ENODATA
like 'the text' "$(cat "$G/error")" "cell $n has ended: the expression was true at none of its steps"

# what ends the stop; a watch from before the first step
loop='i = 0; go = True
while go:
    time.sleep(0.001); i += 1
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1).step()'
runs() {
	grep -q "^$n kind=.* state=running" "$G/queue"
}
# stand: stopped, by a writer that closes and leaves them there
stand() {
	rm -f "$T/begin"
	submit "while not os.path.exists('$T/begin'): time.sleep(0.01)
$loop"
	until_true runs
	errno write "$G/watch" 'i == 400' >"$T/outcome" &
	waiter=$!
	until_true watched armed
	: >"$T/begin"
	wait $waiter
	is 'a writer that closes' "$(cat "$T/outcome")" 0
	is 'it leaves them there' "$(cat "$G/vars/i" "$G/rank1/vars/i" | xargs)" '400 400'
	watcher=$(head -n 1 "$G/watch" | cut -d ' ' -f 1)
}
stand
echo "cancel $watcher" >"$G/ctl"
until_true steps 410
is 'cancelled' "$(key "$G/cells/$watcher/status" state)" ok
over
stand
echo interrupt >"$G/cells/$n/ctl"
is 'interrupted' "$(key <(wait_cell "$n") state)" interrupted
until_true watched ok
echo 'timeout 10' >"$G/ctl" # it stands before
stand
is 'a time limit' "$(key <(wait_cell "$n") state)" timeout
echo 'timeout off' >"$G/ctl"
stand
kill -9 "$(key "$G/rank1/status" pid)"
is 'a rank dies' "$(key <(wait_cell "$n") state)" lost
is 'the ranks are whole' "$(errno write "$G/cell" 'import os, time, torch, torch.distributed as dist; dist.barrier()')" 0
stand
echo restart >"$G/ctl"
is 'restart' "$(errno write "$G/cell" 'import os, time, torch, torch.distributed as dist; dist.barrier()')" 0

# its writer is killed: while it is armed, and stopped
writer() {
	"$PLAIN_PYTHON" -c 'import os, sys, time
watch = os.open(sys.argv[1], os.O_RDWR)
os.write(watch, sys.argv[2].encode())
os.read(watch, 100)
time.sleep(1000)' "$G/watch" "$1" &
	waiter=$!
}
submit "$loop"
until_true steps 3
writer False
until_true watched armed
kill -9 $waiter
until_true watched cancelled
moves
writer True
until_true watched stopped
kill -9 $waiter
until_true watched ok
moves
over

# a rank that runs no Python cannot be asked
echo 'grace 0.3' >"$G/ctl"
submit "import ctypes
if rank: ctypes.PyDLL(None).system(b': >$T/deaf; until test -e $T/heard; do sleep 0.01; done')
$loop"
until_true steps 3
until_true test -e "$T/deaf"
is 'deaf' "$(errno write "$G/watch" 'False')" ETIMEDOUT
: >"$T/heard"
moves
over

# a rank that makes no steps is not waited for longer than `grace`
echo 'grace 0.3' >"$G/ctl"
submit "if rank: time.sleep(1000)
$loop"
until_true steps 3
is 'uneven' "$(errno write "$G/watch" 'i > 10')" 0
like 'who is where' "$(sed -n 2p "$G/watch")" "^rank 0 step [0-9]+: i > 10 \(<cell $n>:5\); rank 1 stands at step 0, at <cell $n>:1$"
over
is 'the ranks work' "$(errno write "$G/cell" 'dist.barrier()')" 0
