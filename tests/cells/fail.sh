#!/usr/bin/env bash
# One rank fails while others wait for it, in each way and each kind of wait: the others are freed, what
# they hold is kept, the cause is named, and the next all_reduce is right. Times are checked.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2 -o grace=0.3
exec 4<"$G/events"
names='import os, signal, subprocess, sys, threading, time, torch, torch.distributed as dist
def ones():
    return torch.ones(4)
kept = 100 + rank'
cell "$names"'
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
torch.manual_seed(1)
model = DDP(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    model(torch.full((2, 4), rank + 1.0)).sum().backward()
    optimizer.step()
step()' || give_up 'the first cell'

now_ms() {
	echo $(($(date +%s%N) / 1000000))
}

# run CODE: a cell; sets n, took (ms)
run() {
	local begin
	begin=$(now_ms)
	cell "$1" 2>/dev/null
	took=$(($(now_ms) - begin))
	n=$(readlink "$G/cells/last")
}

# next WHAT: the group works, at once, and the model trains on, equal on both ranks
next() {
	local begin after
	begin=$(now_ms)
	cell 't = torch.full((1,), 100.0 + rank); dist.all_reduce(t); t = t.item()' ||
		bad "$1: the next cell: $(tail -n 1 "$G/error")"
	after=$(($(now_ms) - begin))
	is "$1: next all_reduce" "$(cat "$G"/rank?/vars/t | xargs)" '201.0 201.0'
	[ $after -lt 1500 ] || bad "$1: $after ms to the next all_reduce"
	times="$times $1:$took+$after"
}

healthy() {
	next "$1"
	is "$1: what was kept" "$(cat "$G"/rank?/vars/kept | xargs)" '100 101'
	cell 'step(); w = model.module.weight.detach().clone()' || bad "$1: a step: $(tail -n 1 "$G/error")"
	is "$1: the weights" "$(errno read "$G/vars/w.same")" 0
}

times=
# the others wait in
while IFS='|' read -r what code; do
	run "if rank == 1: raise ValueError('the cause')
$code"
	like "$what: state" "$(state "$n")" error
	[ $took -ge 300 ] || bad "$what: freed after $took ms, before grace"
	[ $took -lt 1300 ] || bad "$what: $took ms"
	like "$what: the cause is last" "$(tail -n 1 "$G/cells/$n/traceback")" 'ValueError: the cause'
	like "$what: who" "$(key "$G/cells/$n/status" errno) $(tail -n 1 "$G/error")" 'EREMOTEIO .*rank 1: ValueError'
	like "$what: the other one's traceback" "$(cat "$G/cells/$n/rank0/traceback")" 'Error|KeyboardInterrupt'
	healthy "$what"
done <<'EOF'
all_reduce|dist.all_reduce(ones())
broadcast|dist.broadcast(ones(), 1)
barrier|dist.barrier()
all_gather|dist.all_gather([ones(), ones()], ones())
all_gather_object|dist.all_gather_object([None, None], rank)
recv|dist.recv(ones(), 1)
backward|step()
asynchronous|dist.all_reduce(ones(), async_op=True).wait()
sleep|time.sleep(100)
lock|(lambda l: (l.acquire(), l.acquire()))(threading.Lock())
child|subprocess.run(['sleep', '100'])
thread|t = threading.Thread(target=lambda: dist.all_reduce(ones())); t.start(); t.join()
EOF

# what ends a rank's part, or the rank
while IFS='|' read -r what outcome code; do
	run "if rank == 1: $code
dist.all_reduce(ones())"
	is "$what: state" "$(state "$n")" "$outcome"
	[ $took -lt 1800 ] || bad "$what: $took ms"
	is "$what: rank 0 lives on" "$(cat "$G/rank0/vars/kept")" 100
	if [ "$outcome" = lost ]; then
		is "$what: the new rank is empty" "$(errno read "$G/rank1/vars/kept")" ENOENT
		await 4 "rank 1 exit" >/dev/null
		like "$what: it says so" "$(cat "$G/error")" 'rank 1 died'
		# a whole group again
		cell "$names" "$G/rank1/cell" || bad "$what: the names again"
	fi
	next "$what"
done <<'EOF'
SystemExit|error|sys.exit(3)
MemoryError|error|bytearray(1 << 60)
exit|lost|os._exit(3)
segfault|lost|import ctypes; ctypes.string_at(0)
SIGKILL|lost|os.kill(os.getpid(), signal.SIGKILL)
abort|lost|os.abort()
EOF
like 'how it ended' "$(cat "$G/error")" 'rank 1 died: signal 6 \(Aborted\)'

# it dies while much is on its way to it: gloo forgets such a send
run "pids = [None, None]
dist.all_gather_object(pids, os.getpid())
big = torch.ones(1 << 24)
if rank == 1:
    dist.irecv(big, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
while open(f'/proc/{pids[1]}/stat').read().split()[2] != 'T': pass
threading.Timer(0.3, os.kill, (pids[1], signal.SIGKILL)).start()
dist.send(big, 1)"
is 'a send to who dies: state' "$(state "$n")" lost
[ $took -lt 2000 ] || bad "a send to who dies: $took ms"
is 'a send to who dies: rank 0 lives on' "$(cat "$G/rank0/vars/kept")" 100
cell "$names" "$G/rank1/cell" || bad 'a send to who dies: the names again'
next 'a send to who dies'

# even ranks raise, odd ranks sleep: as published for notebook launchers, which wait for all of it
run 'if rank % 2 == 0: raise RuntimeError("an even rank fails")
time.sleep(100)'
[ $took -lt 1000 ] || bad "even ranks raise: $took ms"
next 'even ranks raise'

# all alike: no grace
echo 'grace 30' >"$G/ctl"
run 'raise ValueError("all alike")'
[ $took -lt 1000 ] || bad "all alike: $took ms"
is 'one traceback for all' "$(grep -c 'all alike' "$G/cells/$n/traceback")" 2
# grace 0: at once
echo 'grace 0' >"$G/ctl"
run 'if rank == 1: raise ValueError("now")
dist.all_reduce(ones())'
[ $took -lt 600 ] || bad "grace 0: $took ms"
next 'grace 0'
# off: until somebody interrupts
echo 'grace off' >"$G/ctl"
errno nonblock "$G/cell" 'if rank == 1: raise ValueError("left alone")
dist.all_reduce(ones())' >/dev/null
n=$(readlink "$G/cells/last")
await 4 "cell $n failed rank=1" >/dev/null
is 'grace off' "$(state "$n")" running
echo interrupt >"$G/cells/$n/ctl"
wait_cell "$n" >/dev/null
took=0
next 'grace off'

# a rank waits for what another is to do, and that one's cells wait for the group to be made anew
echo 'grace 0.3' >"$G/ctl"
errno nonblock "$G/rank1/cell" 'dist.recv(ones(), 0)' >/dev/null
waiting=$(readlink "$G/cells/last")
errno nonblock "$G/rank0/cell" 'print("here", flush=True); time.sleep(100)' >/dev/null
n=$(readlink "$G/cells/last")
until grep -q here "$G/cells/$n/rank0/stdout"; do sleep 0.01; done
echo interrupt >"$G/cells/$n/ctl"
is 'the next cell of the rank that was interrupted' "$(errno write "$G/rank0/cell" 'x = 1')" 0
wait_cell "$waiting" >/dev/null
is 'the one that waited' "$(state "$waiting")" error
took=0
next 'one waits for the other'

# what can't be made whole is named
echo 'grace 0' >"$G/ctl"
cell 'pair = dist.new_group([0, 1])'
run 'if rank == 1: raise ValueError("x")
dist.barrier()'
next 'new_group'
like 'what to write' "$(cat "$G/error")" 'pair: ProcessGroup .*new_group\(\.\.\.\)'
cell 'del pair
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2,))
sharded = nn.Linear(8, 8)
fully_shard(sharded, mesh=mesh)
sharded(torch.ones(2, 8)).sum().backward()' || bad 'FSDP2'
run 'if rank == 1: raise ValueError("x")
sharded(torch.ones(2, 8))'
is 'FSDP2: state' "$(state "$n")" error
next 'FSDP2'
like 'FSDP2: what to write' "$(cat "$G/error")" 'sharded: .*fully_shard\(\)'

# interrupts: how long from ctl to the end of the cell
cell 'del sharded, mesh
loader = iter(torch.utils.data.DataLoader(range(10**6), num_workers=2))
first = next(loader)' || bad 'a loader'
echo 'killafter 1' >"$G/ctl"
while IFS='|' read -r limit what code; do
	errno nonblock "$G/cell" "print('$what begins', flush=True)
$code" >/dev/null
	n=$(readlink "$G/cells/last")
	timeout 20 grep -m1 -q "$what begins.*\"rank\":0" "$G/cells/$n/stream" || bad "$what: does not begin"
	begin=$(now_ms)
	echo interrupt >"$G/cells/$n/ctl"
	wait_cell "$n" >/dev/null
	took=$(($(now_ms) - begin))
	[ $took -lt "$limit" ] || bad "interrupt in $what: $took ms"
	next "interrupt:$what"
done <<'EOF'
900|loop|while True: pass
900|sleep|time.sleep(100)
900|lock|(lambda l: (l.acquire(), l.acquire()))(threading.Lock())
900|child|subprocess.run(['sleep', '100'])
900|input|input()
900|all_reduce|dist.all_reduce(ones()) if rank == 0 else time.sleep(100)
900|new_group|dist.new_group([0, 1]) if rank == 0 else time.sleep(100)
900|store|dist.distributed_c10d._get_default_store().get('nobody sets this')
900|loader|[time.sleep(0.1) for _ in loader]
EOF
# C code that takes no signal: killed after killafter
errno nonblock "$G/rank1/cell" "print('c begins', flush=True)
sum(range(10**13))" >/dev/null
n=$(readlink "$G/cells/last")
timeout 20 grep -m1 -q "c begins" "$G/cells/$n/stream" || bad 'C code does not begin'
begin=$(now_ms)
ok timeout 1 cat "$G/rank1/stack" >"$T/stack"
took=$(($(now_ms) - begin))
like 'the stack of C code that holds the GIL' "$(cat "$T/stack")" 'line 2 in <module>'
[ $took -lt 200 ] || bad "its stack took $took ms"
begin=$(now_ms)
echo interrupt >"$G/cells/$n/ctl"
wait_cell "$n" >/dev/null
took=$(($(now_ms) - begin))
[ $took -gt 1900 ] && [ $took -lt 4000 ] || bad "C code: $took ms"
cell 'import torch, torch.distributed as dist' || bad 'after C code'
next 'C code'
# The store of the rendezvous is killed: another one takes its place, nothing else changes.
# store: the pid of the process that holds it, a sibling of the ranks
store() {
	local rank parent pid
	rank=$(rank_pids | head -n 1)
	parent=$(awk '$1 == "PPid:" { print $2 }' "/proc/$rank/status")
	for pid in $(cat "/proc/$parent/task/"*/children); do
		[ "$(cat "/proc/$pid/comm")" != ddip-store ] || echo "$pid"
	done
}

cell 'stays = rank'
generation=$(key "$G/status" generation)
kill -KILL "$(store)"
await 4 " recovered generation=$((generation + 1))\$" >/dev/null
next 'the store'
is 'the names stay' "$(cat "$G/rank1/vars/stays")" 1
kill -KILL "$(store)"
echo 'kill 0' >"$G/ctl"
cell 'import torch, torch.distributed as dist' || bad 'after the store and a rank'
next 'the store and a rank'
echo "ms to the prompt + to the next all_reduce:$times"
