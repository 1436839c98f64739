#!/usr/bin/env bash
# A steer or a watch that is asked for while another steer runs, before the cell has begun on a rank, and as it ends.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/steering.sh"

mount_torch -o size=2
cell 'import os, time, torch, torch.distributed as dist' || give_up 'a cell'

# while one runs, the next one waits, however long; what it does makes no steps
echo 'grace 1' >"$G/ctl"
submit 'go, inside, seen = True, 0, []
while go:
    time.sleep(0.002); dist.all_reduce(torch.ones(1))'
until_true steps 3
inside() {
	[ "$(cat "$G/rank0/vars/inside" "$G/rank1/vars/inside" | xargs)" = '1 1' ]
}
steer 'inside = 1
time.sleep(2)
for _ in range(3): dist.all_reduce(torch.ones(1))
inside = 0' >"$T/first" &
first=$!
until_true inside
exec 5<>"$G/watch"
echo 'inside and seen.append(rank)' >&5
head -n 1 <&5 >/dev/null
is 'a steer behind a steer' "$(steer 'within = inside' 5>&-)" 0
is 'it runs behind it' "$(cat "$G"/rank?/vars/within | xargs)" '0 0'
guarded tail --pid=$first -f /dev/null || give_up 'the first one hangs'
wait $first
is 'the first' "$(cat "$T/first")" 0
is 'what is watched' "$(cat "$G"/rank?/vars/seen | xargs)" '[] []'
exec 5>&-
is 'the loop' "$(steer 'go = False')$(key <(wait_cell "$n") state)" 0ok

# the daemon has sent the cell, but it has not begun; the counts of steps are those of the cell before it
echo 'grace 5' >"$G/ctl"
cell 'for _ in range(50): dist.all_reduce(torch.ones(1))
import ddip_engine.cells.run as engine
def slow(cell):
    engine._run = real
    while not os.path.exists("'"$T/go"'"): time.sleep(0.01)
    return real(cell)
real, engine._run = engine._run, slow'
submit 'i = 0
while i < 100000: i += 1; time.sleep(0.002); dist.all_reduce(torch.ones(1))'
errno write "$G/watch" 'i == 5' >"$T/outcome" &
watch=$!
steer 'early = i' >"$T/early" &
early=$!
until_true grep -qx 'queued 2' "$G/status"
touch "$T/go"
wait $early
is 'a steer at once' "$(cat "$T/early")" 0
is 'at the first step' "$(of step)" 1
until_true grep -q '^watch [0-9]* stopped at step 5$' "$G/status"
over
wait $watch
is 'a watch at once' "$(cat "$T/outcome")" 0

# interrupted while a steer runs in it: it has taken the signal, and is given the time that it takes
echo 'killafter 0' >"$G/ctl"
# (no rank is in a collective, whose C code an interrupt does not reach)
submit 'inside, saved, opt = 0, 0, torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
try:
    while True: time.sleep(0.002); opt.step()
except KeyboardInterrupt:
    for i in range(25): time.sleep(0.1)
    saved = 1
    raise'
until_true steps 3
steer 'inside = 1
time.sleep(1000)' >"$T/first" &
until_true inside
echo interrupt >"$G/ctl"
wait_cell "$n" >/dev/null
is 'it was not killed' "$(cat "$G"/rank?/vars/saved | xargs)" '1 1'
wait

# rank 0 has ended the cell before the watch, rank 1 before it answers that
cell 'from ddip_engine import service
from ddip_engine.cells import steer as steering
def late(*asked):
    while not os.path.exists(answer): time.sleep(0.01)
    return steering.arm(*asked)
if rank: service._ROWS.update(Tsteer=(late, "Rsteer"))'
cell "end, answer = '$T/end', '$T/answer'"
submit 'while rank and not os.path.exists(end): time.sleep(0.01)'
until_true grep -q '^state idle' "$G/rank0/status"
errno write "$G/watch" 'False' >"$T/outcome" &
watch=$!
until_true grep -q kind=watch "$G/queue"
touch "$T/end"
is 'the cell' "$(key <(wait_cell "$n") state)" ok
touch "$T/answer"
guarded tail --pid=$watch -f /dev/null || give_up 'the watch hangs'
is 'it was true nowhere' "$(cat "$T/outcome")" ENODATA
ok cell 'service._ROWS.update(Tsteer=(steering.arm, "Rsteer"))'
