#!/usr/bin/env bash
# `steer`: a source that runs at one step on all ranks of the running cell, or nowhere.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/steering.sh"
export PATH=$BUILD:$PATH DDIP_MOUNT=$PLACE

mount_torch -o size=2
mkdir "$T/work"
cd "$T/work" || give_up 'a directory'

# counts CLOCK: has rank 0 made steps of the running cell by it?
counts() {
	steps 3 && [ "$(key "$G/status" step | sed 's/.*clock=//')" = "$1" ]
}

# the last one ran at one step: all ranks show the same value of this expression
same() {
	is "$1" "$(cat "$G"/cells/last/rank?/result | sort -u | wc -l)" 1
}

not_queued() {
	! grep -q kind=steer "$G/queue"
}

# ---- a program with DDP, whose variables are those of functions

"$BUILD/ddip" run -f "$ROOT/tests/cells/steer.py" >"$T/program" 2>&1 &
program=$!
until_true counts optimizer
n=$(key "$G/status" cell)
is 'it runs' "$(steer 'lr = 0.5; pause += 0.001; print("in", step)
[step for p in model.parameters() if p is not None and step >= 0], (lambda: lr)(), rank * 0')" 0
same 'at one step'
like 'where' "$(cat "$G/steer")" "^[0-9]+ state=ok within=$n step=[0-9]+ clock=optimizer$"
is 'within' "$(of within) $(of clock)" "$n optimizer"
is 'its step is that of the program' "$(sed 's/.*\[\([0-9]*\),.*/\1/' "$G/result")" "$(($(of step) - 1))"
like 'names of its functions see the locals' "$(cat "$G/result")" ', 0\.5, 0\)$'
like 'output' "$(cat "$G"/cells/last/rank1/stdout)" '^in [0-9]+$'
like 'also the program'"'"'s' "$(cat "$G/cells/$n/rank1/stdout")" '^in [0-9]+$'
is 'what the function does not have is global' "$(steer 'norms = [float(p.norm()) for p in model.parameters()]
import math as m')$(key "$G/vars/norms.json" x)" 0
like 'so it can be read' "$(cat "$G/vars/norms.json")" '^\[[0-9.]+, [0-9.]+\]'
is 'a global of the program' "$(steer 'global PAUSE; PAUSE = 7')$(steer 'PAUSE')$(cat "$G/result")" 007
is 'a local is set' "$(steer 'lr')$(cat "$G/result")" 00.5
is 'a collective in it' "$(steer 't = torch.ones(2); dist.all_reduce(t); t.sum().item()')$(cat "$G/result")" 04.0

is 'an error is the writer'"'"'s' "$(steer 'if dist.get_rank(): raise ValueError("mine")')" EREMOTEIO
like 'with its rank' "$(cat "$G/traceback")" 'rank 1:
Traceback \(most recent call last\):
  File "<cell [0-9]+>", line 1, in <module>
.*ValueError: mine$'
like 'and a report' "$(cat "$G/cells/last/report")" 'ValueError: mine'
is 'sys.last_value is untouched' "$(steer 'import sys; hasattr(sys, "last_value"), torch.is_grad_enabled()')$(cat "$G/result")" '0(False, True)'
is 'a syntax error' "$(steer 'x = (')" ENOEXEC
like 'its text' "$(cat "$G/traceback")" 'SyntaxError: .* was never closed'
is 'return' "$(steer 'return 1')" ENOEXEC
is 'a program' "$(steer '# ddip: prog.py
1')" EINVAL
is 'a failed line is told' "$(echo '1 / 0' 2>"$T/told" >"$G/steer"; sed 's/on rank ./on rank N/; s/[0-9][0-9]*/C/g' "$T/told")" \
	'ddipfs: cell C failed on rank N: ZeroDivisionError: division by zero (cells/C/traceback)'
ok [ "$(ls "$G/rank0/locals" | grep -cx 'opt\|model\|step')" -eq 3 ]

# interrupts are for its source alone
steer 'import time; time.sleep(1000)' >"$T/outcome" &
until_true grep -q 'kind=steer state=running' "$G/queue"
echo interrupt >"$G/cells/$(awk '/kind=steer/ { sub("id=", "", $1); print $1 }' "$G/queue")/ctl"
wait $!
is 'interrupted' "$(cat "$T/outcome")" EINTR
"$PLAIN_PYTHON" -c 'import os, sys, time
fd = os.open(sys.argv[1], os.O_WRONLY)
os.write(fd, b"import time\ntime.sleep(1000)")
os.close(fd)' "$G/steer" &
until_true grep -q 'kind=steer state=running' "$G/queue"
kill $!
until_true not_queued
is 'its writer was killed' "$(of state)" interrupted
echo 'timeout 0.5' >"$G/ctl"
is 'a time limit' "$(steer 'import time; time.sleep(1000)')" ETIMEDOUT
echo 'timeout off' >"$G/ctl"
echo 'grace 1' >"$G/ctl"
is 'one rank raises, the other hangs' "$(steer 'import time
if rank: raise ValueError("first")
time.sleep(1000)')" EREMOTEIO
echo 'grace 5' >"$G/ctl"
is 'the program goes on' "$(of state "$n")" running

# each of many at one step on all ranks
seed=${SEED:-$RANDOM}
echo "SEED=$seed"
RANDOM=$seed
is 'none yet' "$(steer 'log.clear(); last = -1')" 0
"$PLAIN_PYTHON" - "$G" "$seed" >"$T/many" <<'END'
import os, random, sys, time
group, seed = sys.argv[1:]
random.seed(int(seed))
for i in range(200):
    code = f"""log.append((step, {i} / 1000))
with torch.no_grad(): model.module.weight.add_({i} / 1000)
step"""
    steer = os.open(f"{group}/steer", os.O_RDWR)
    os.write(steer, code.encode())
    os.fsync(steer)
    number = os.read(steer, 100).decode().split()[0]
    os.close(steer)
    results = {open(f"{group}/cells/{number}/rank{rank}/result").read() for rank in (0, 1)}
    assert len(results) == 1, (i, results)
    time.sleep(random.choice((0, 0, 0, random.random() / 100)))
print("all at one step")
END
is 'many' "$(cat "$T/many")" 'all at one step'
is 'it is stopped' "$(steer 'last = step + 1')" 0
wait $program || bad "the program: $(tail "$T/program")"
is 'the same as in its own source' "$(tail -n 1 "$T/program")" 'steered 200 lr 0.5 equal True True'

# ---- cells

echo 'import time, torch, torch.distributed as dist; go = True' >"$G/cell"
is 'no cell runs' "$(steer 'early = rank; early')$(cat "$G/cells/last/rank1/result")" 01
like 'it was a cell' "$(cat "$G/steer")" '^[0-9]+ state=ok$'

# a clock of collectives, at the top level
submit 'i = 0; flag = torch.ones(1)
while flag.item():
    i += 1; time.sleep(0.01); dist.all_reduce(flag, dist.ReduceOp.MIN)'
until_true counts collective
is 'collectives' "$(steer 'seen = i
i')" 0
same 'one number'
is 'its step' "$(of step) $(of clock)" "$(cat "$G/result") collective"
is 'it ends' "$(steer 'flag = torch.zeros(1)')" 0
is 'with the cell' "$(key <(wait_cell "$n") state)" ok

# a forward is the clock where no optimizer is
submit 'model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1)); go = True
while go: model(torch.ones(1, 2)).sum().backward(); time.sleep(0.01)'
until_true counts forward
is 'it is steered' "$(steer 'go = False')" 0
is 'and ends' "$(key <(wait_cell "$n") state)" ok

# the cell ends first
submit "import os
while not os.path.exists('$T/end'): time.sleep(0.01)
done = 1"
steer 'done + 1' >"$T/outcome" &
until_true grep -q 'kind=steer state=queued' "$G/queue"
: >"$T/end"
wait $!
is 'behind its end' "$(cat "$T/outcome" "$G/result" | xargs)" '0 2'
like 'as events say' "$(tail -n 20 "$G/events.last")" "steer cell=[0-9]+ after=$n: it ended before a common step"
