#!/usr/bin/env bash
# What ends the wait of a rank for the step of a steer; steers that come to no common step.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/steering.sh"

mount_torch -o size=2

cell 'import time, torch, torch.distributed as dist' || give_up 'a cell'

# a cell without steps; and one whose ranks come to no common one
echo 'grace 0.4' >"$G/ctl"
submit 'go = True
while go: time.sleep(0.001)'
is 'no step' "$(steer 'go = False')" ETIMEDOUT
like 'who is where' "$(tail -n 1 "$G/error")" "cell $n came to no common step within grace 0.4: rank 0 has made no step, at <cell $n>:2; rank 1 has made no step, at <cell $n>:2; nothing was run"
over
submit 'for i in range(50 - 10 * (rank == 0)): time.sleep(0.001); dist.all_reduce(torch.ones(1), async_op=True)
while go: time.sleep(0.001)'
for rank in 0 1; do until_true grep -q "^$rank .* at=<cell $n>:2$" "$G/stall"; done
is 'uneven' "$(steer 'go = False')" ETIMEDOUT
like 'both are told' "$(tail -n 1 "$G/error")" 'rank 0 stands at step 40, at <cell [0-9]+>:2; rank 1 stands at step 50, at'
over

# rank 0 waits at a step for rank 1, which never comes; what ends that
stand() {
	submit 'for i in range(1000000):
    time.sleep(0.001)
    if rank == 1 and i == 20: time.sleep(1000)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1).step()
    if i == 200000: break'
	until_true steps 30
	until_true grep -q "^1 .* at=<cell $n>:3 steps=20 " "$G/stall"
	"$PLAIN_PYTHON" -c 'import errno, os, sys
steer = os.open(sys.argv[1], os.O_WRONLY)
os.write(steer, b"never = 1")
try: os.close(steer)
except OSError as e: print(errno.errorcode[e.errno])' "$G/steer" >"$T/outcome" &
	waiter=$!
	until_true grep -q ' in wait$' "$G/rank0/stack.all"
}
# ends WHAT ERRNO: how the steer ended
ends() {
	wait "$waiter"
	like "$1" "$(cat "$T/outcome")" "^($2)\$"
}
moves() {
	[ "$(key "$G/status" step)" != "$before" ]
}
not_queued() {
	! grep -q kind=steer "$G/queue"
}
echo 'grace 4' >"$G/ctl" # it is seen to wait before its time is up
stand
ends 'the time is up' ETIMEDOUT
like 'one waited' "$(tail -n 1 "$G/error")" 'rank 1 stands at step [0-9]+, at <cell [0-9]+>:[34]; rank 0 waits at step [0-9]+; nothing was run'
before=$(key "$G/status" step)
until_true moves
over
echo 'grace 1000' >"$G/ctl"
stand
is 'it is no stall' "$(head -n 1 "$G/stall" | grep -c verdict)" 0
over
ends 'the cell is interrupted' EINTR
stand
echo 'signal SIGINT' >"$G/rank1/ctl"
ends 'the one that is waited for is interrupted' EINTR
over
stand
kill $waiter
until_true not_queued
is 'its writer has ended' "$(of state)" cancelled
until_true steps 100
over
stand
echo 'signal SIGINT' >"$G/rank0/ctl"
ends 'a signal to the one that waits' EINTR
until_true grep -q ' in sleep$\|at=-\|state=idle' "$G/stall"
over
stand
kill -9 "$(key "$G/rank1/status" pid)"
ends 'the other one dies' EHOSTDOWN
over
is 'none ran' "$(errno read "$G/rank0/vars/never")" ENOENT
is 'the ranks are whole' "$(errno write "$G/cell" 'import time, torch, torch.distributed as dist; dist.barrier()')" 0
stand
kill -9 "$(key "$G/rank0/status" pid)"
ends 'the one that waits dies' EHOSTDOWN
over
is 'the ranks are whole again' "$(errno write "$G/cell" 'import time, torch, torch.distributed as dist; dist.barrier()')" 0
stand
echo restart >"$G/ctl"
ends 'restart' 'ECANCELED|EHOSTDOWN|EINTR'
is 'the ranks work' "$(errno write "$G/cell" 'import time, torch, torch.distributed as dist; dist.barrier()')" 0

# a handler of the program's own, which raises; two at a time
submit 'import signal
def handler(*_): raise OSError("mine")
signal.signal(signal.SIGUSR1, handler)
for i in range(1000000):
    time.sleep(0.001)
    if rank == 1 and i == 20: time.sleep(1000)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1).step()'
until_true steps 30
steer 'never = 1' >"$T/outcome" &
waiter=$!
until_true grep -q ' in wait$' "$G/rank0/stack.all"
echo 'signal SIGUSR1' >"$G/rank0/ctl"
ends 'its handler raises' EINTR
until_true grep -q "cell $n failed rank=0" "$G/events.last"
over
like 'in the program' "$(cat "$G/cells/$n/rank0/traceback")" 'OSError: mine$'
echo 'grace 5' >"$G/ctl"
submit 'go = True; order = []
while go: time.sleep(0.001); torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1).step()'
until_true steps 3
errno nonblock "$G/steer" 'time.sleep(0.2); order.append(1)' >/dev/null
errno nonblock "$G/steer" 'order.append(2)' >/dev/null
is 'behind each other' "$(steer 'order.append(3); order')$(cat "$G/result")" '0[1, 2, 3]'
is 'the loop ends' "$(steer 'go = False')$(key <(wait_cell "$n") state)" 0ok
