#!/usr/bin/env bash
# When one rank fails while others wait for it, in each way and each kind of wait, the others are released, their
# objects are kept, the cause is named, and the next all_reduce is right. Events are checked in their order.
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

# run CODE: runs a cell that fails; sets n, and story to the events until its end
run() {
	fails cell "$1"
	n=$(readlink "$G/cells/last")
	story=$(upto 4 " cell $n .*seconds=" | sed -n "/ cell $n start/,\$p")
}

# ms FROM TO: prints the ms from the story's first event that matches FROM to the first that matches TO (rounded)
ms() {
	awk -v from="$1" -v to="$2" '!a && $0 ~ from { a = $2 } !b && $0 ~ to { b = $2 }
		END { if (!a || !b) exit 1; printf "%.0f", (b - a) * 1000 }' <<<"$story" ||
		bad "no '$1' and '$2' in: $story"
}

# next WHAT: checks that the group works
next() {
	cell 't = torch.full((1,), 100.0 + rank); dist.all_reduce(t); t = t.item()' ||
		bad "$1: the next cell: $(tail -n 1 "$G/error")"
	is "$1: the next all_reduce is right" "$(cat "$G"/rank?/vars/t | xargs)" '201.0 201.0'
}

# healthy WHAT: the same, and that the model trains on, equal on both ranks
healthy() {
	next "$1"
	is "$1: what was kept" "$(cat "$G"/rank?/vars/kept | xargs)" '100 101'
	cell 'step(); w = model.module.weight.detach().clone()' || bad "$1: a step: $(tail -n 1 "$G/error")"
	is "$1: the weights" "$(errno read "$G/vars/w.same")" 0
}

# what the others wait in
while IFS='|' read -r what code; do
	run "if rank == 1: raise ValueError('the cause')
$code"
	like "$what: state" "$(state "$n")" error
	[[ $code == *dist.* || $code == step* ]] && [ "$what" != thread ] || [ "$(ms "cell $n failed rank=1" "cell $n .*step=1")" -ge 299 ] ||
		bad "$what: freed before grace: $story"
	[[ ! $story =~ "rank 0 exit" ]] || bad "$what: rank 0 had to be killed: $story"
	like "$what: the cause is last" "$(tail -n 1 "$G/cells/$n/traceback")" 'ValueError: the cause'
	like "$what: who" "$(key "$G/cells/$n/status" errno) $(tail -n 1 "$G/error")" 'EREMOTEIO .*rank 1: ValueError'
	like "$what: the other one's traceback" "$(cat "$G/cells/$n/rank0/traceback")" 'Error|ddip.PeerFailed'
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

# what ends a rank's work, or the rank itself
while IFS='|' read -r what outcome code; do
	run "if rank == 1: $code
dist.all_reduce(ones())"
	is "$what: state" "$(state "$n")" "$outcome"
	is "$what: rank 0 keeps its variables" "$(cat "$G/rank0/vars/kept")" 100
	if [ "$outcome" = lost ]; then
		is "$what: the new rank is empty" "$(errno read "$G/rank1/vars/kept")" ENOENT
		[[ $story =~ "rank 1 exit" ]] || await 4 'rank 1 exit' >/dev/null
		like "$what: the death is in error" "$(cat "$G/error")" 'rank 1 died'
		# a complete group again
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

# it dies while much data is in flight to it: gloo forgets such a send
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
is 'a send to who dies: rank 0 keeps its variables' "$(cat "$G/rank0/vars/kept")" 100
cell "$names" "$G/rank1/cell" || bad 'a send to who dies: the names again'
next 'a send to who dies'

# even ranks raise, odd ranks sleep: a case published for notebook launchers, which wait for all ranks
run 'if rank % 2 == 0: raise RuntimeError("an even rank fails")
threading.Event().wait()'
next 'even ranks raise'

# who waits in a collective for the rank that has failed is given no time: it cannot end
echo 'grace 1000' >"$G/ctl"
while IFS='|' read -r what code; do
	run "if rank == 1: raise ValueError('the cause')
$code"
	like "$what without grace: state" "$(state "$n")" error
	next "$what without grace"
done <<'EOF'
all_reduce|time.sleep(0.5); dist.all_reduce(ones())
barrier|dist.barrier()
asynchronous|dist.all_reduce(ones(), async_op=True).wait()
EOF
# one that computes is given its time, and one that has entered it before the failure gets its result
run 'if rank == 1: raise ValueError("the cause")
time.sleep(1); ended = True'
is 'grace: it goes on' "$(cat "$G/rank0/vars/ended")" True
run 'work = dist.all_reduce(ones(), async_op=True)
if rank == 1: raise ValueError("the cause")
time.sleep(1); work.wait(); ended = 2'
is 'grace: it has its result' "$(cat "$G/rank0/vars/ended")" 2
next 'with grace'

GRACE_DEFAULT_MS=5000
# all ranks fail alike: no grace
echo 'grace 1000' >"$G/ctl"
run 'raise ValueError("all alike")'
[[ ! $story =~ step= ]] || bad "ranks that fail alike need not be unblocked: $story"
is 'one traceback for all' "$(grep -c 'all alike' "$G/cells/$n/traceback")" 2
# grace 0: at once
echo 'grace 0' >"$G/ctl"
run 'if rank == 1: raise ValueError("now")
dist.all_reduce(ones())'
[ "$(ms "cell $n failed rank=1" "cell $n .*step=1")" -lt "$GRACE_DEFAULT_MS" ] || bad "grace 0 waits: $story"
next 'grace 0'
# off: until a user interrupts
echo 'grace off' >"$G/ctl"
submit 'if rank == 1: raise ValueError("left alone")
dist.all_reduce(ones())'
await 4 "cell $n failed rank=1" >/dev/null
is 'grace off' "$(state "$n")" running
echo interrupt >"$G/cells/$n/ctl"
like 'grace off: an interrupt ends it' "$(wait_cell "$n")" 'state (error|interrupted)'
next 'grace off'

# a rank waits for what another is to do, while that one's cells wait for the group to be rebuilt
echo 'grace 0.3' >"$G/ctl"
submit 'dist.recv(ones(), 0)' "$G/rank1/cell"
waiting=$n
submit 'print("here", flush=True); time.sleep(100)' "$G/rank0/cell"
prints "$G/cells/$n/stream" here
echo interrupt >"$G/cells/$n/ctl"
is 'the next cell of the rank that was interrupted' "$(errno write "$G/rank0/cell" 'x = 1')" 0
wait_cell "$waiting" >/dev/null
is 'the one that waited' "$(state "$waiting")" error
next 'one waits for the other'

# what cannot be repaired is named
echo 'grace 0' >"$G/ctl"
cell 'pair = dist.new_group([0, 1])'
run 'if rank == 1: raise ValueError("x")
dist.barrier()'
next 'new_group'
if grep -qx 'way_rebuild ProcessGroup.reconfigure' "$G/status"; then # from torch 2.14 on
	cell 'dist.all_reduce(ones(), group=pair)' || bad "a group of its own: $(cat "$G/traceback")"
else
	like 'what to write' "$(cat "$G/error")" 'pair: ProcessGroup .*new_group\(\.\.\.\)'
	for what in 'dist.all_reduce(ones(), group=pair)' 'dist.barrier(pair)' 'pair.allreduce(ones()).wait()' \
		'dist.all_gather_object([None, None], 1, pair)' 'dist.broadcast(ones(), 0, pair)'; do
		is "it fails, and nobody waits: $what" "$(errno write "$G/cell" "$what")" EREMOTEIO
	done
	next 'a group that is gone'
	cell 'pair = dist.new_group([0, 1]); dist.all_reduce(ones(), group=pair)' || bad 'it is made again'
	# nobody was in a collective, and all its ranks live: it could still work
	echo recover >"$G/ctl"
	next 'recover'
	is 'a group that could still work' "$(errno write "$G/cell" 'dist.all_reduce(ones(), group=pair)')" EREMOTEIO
	cell 'pair = dist.new_group([0, 1])' || bad 'it is made again'
fi
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

# interrupts: both ranks survive, whatever they wait in; a rank that had to be killed would hang the test
cell 'del sharded, mesh' || bad 'FSDP2: its names'
echo 'killafter 1000' >"$G/ctl"
ranks=$(rank_pids | xargs)
while IFS='|' read -r what code; do
	# an interrupt ends the workers of every loader, whatever the cell waits in
	[ "$what" != loader ] || cell 'loader = iter(torch.utils.data.DataLoader(range(10**6), num_workers=2))
first = next(loader), next(loader) # of both workers' || bad 'a loader'
	submit "print('$what begins', flush=True)
$code"
	prints "$G/cells/$n/stream" "$what begins.*\"rank\":0"
	echo interrupt >"$G/cells/$n/ctl"
	like "an interrupt ends $what" "$(wait_cell "$n")" 'state (error|interrupted)'
	is "$what: the ranks are the same" "$(rank_pids | xargs)" "$ranks"
	next "an interrupt in $what"
done <<'EOF'
loop|while True: pass
sleep|time.sleep(100)
lock|(lambda l: (l.acquire(), l.acquire()))(threading.Lock())
child|subprocess.run(['sleep', '100'])
input|input()
all_reduce|dist.all_reduce(ones()) if rank == 0 else time.sleep(100)
new_group|dist.new_group([0, 1]) if rank == 0 else time.sleep(100)
store|dist.distributed_c10d._get_default_store().get('nobody sets this')
loader|[time.sleep(0.1) for _ in loader]
EOF
# C code that ignores signals: killed after killafter, and not before
echo 'killafter 1' >"$G/ctl"
# C code prints this: from then on the rank executes no Python code
submit 'import itertools
sum(itertools.chain(map(os.write, [1], [b"in C\n"]), range(10**15)))' "$G/rank1/cell"
prints "$G/cells/$n/stream" 'in C'
ok guarded cat "$G/rank1/stack" >"$T/stack"
signals_wait || like 'the stack of C code that holds the GIL' "$(cat "$T/stack")" 'line 2 in <module>'
is 'C code runs while its stack is read' "$(state "$n")" running
echo interrupt >"$G/cells/$n/ctl"
story=$(upto 4 " cell $n .*seconds=")
[ "$(ms "cell $n .*step=2" "cell $n .*step=3")" -ge 999 ] || bad "killed before killafter: $story"
cell 'import torch, torch.distributed as dist' || bad 'after C code'
next 'C code'
# The rendezvous store is killed: another one replaces it, nothing else changes.
# store: prints the pid of the process that holds it, a sibling of the ranks
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

# a signal handler of the program's can raise in the middle of a rebuild (torch's for workers of a DataLoader does): it is
# made again
cell 'import torch.distributed.distributed_c10d as c10d
real = c10d._update_default_pg
def fails_once(group):
    if group is not None:
        c10d._update_default_pg = real
        raise RuntimeError("half way")
    real(group)
if rank == 1:
    c10d._update_default_pg = fails_once'
before=$(cut -d ' ' -f 3 "$G/ranks")
echo recover >"$G/ctl"
cell 'import torch.distributed as dist
dist.barrier()' || bad "after a rebuild that failed half way: $(tail -n 1 "$G/error")"
is 'the ranks are the same' "$(cut -d ' ' -f 3 "$G/ranks")" "$before"

# also at its beginning, while the others wait for it; what the handler of a signal raises that comes within is shown later
before=$(cut -d ' ' -f 3 "$G/ranks")
for then in 'raise RuntimeError("at once")' 'os.kill(os.getpid(), signal.SIGUSR1); return real(whole)'; do
	cell "
import os, signal
from ddip_engine.groups import dist as own
real = own.renew_or_make
def handler(*_): raise RuntimeError('handled')
def once(whole):
    own.renew_or_make = real
    $then
if rank == 1:
    own.renew_or_make = once
    signal.signal(signal.SIGUSR1, handler)" || bad 'a cell that hooks the rebuild'
	echo recover >"$G/ctl"
	cell 'import torch.distributed as dist
dist.barrier()' || bad "$then in a rebuild: $(tail -n 1 "$G/error")"
	is "the ranks are the same: $then" "$(cut -d ' ' -f 3 "$G/ranks")" "$before"
done
like 'it is shown' "$(cat "$G/rank1/stderr")" 'between cells on rank 1: .*RuntimeError: handled'
cell 'signal.signal(signal.SIGUSR1, signal.SIG_DFL)'

# A collective that raises by itself may have begun: unless all ranks fail in it alike, and with all connections, the
# group is rebuilt, though no rank had to be freed.
echo 'grace 30' >"$G/ctl"
cell "$names"'
import datetime
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
def bad():
    dist.all_reduce("no tensor")
def short():
    dist.barrier() # the ranks are to meet within that time, too
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=2))
def late(work):
    short()
    work()
def caught(work):
    try:
        work()
    except (RuntimeError, TypeError):
        pass'
while IFS='|' read -r what more code; do
	generation=$(key "$G/status" generation)
	cell "$code" 2>/dev/null
	next "$what"
	is "$what: how many rebuilds" $(($(key "$G/status" generation) - generation)) "$more"
done <<'EOF'
it times out beside a rank that has failed|1|late(lambda: dist.all_reduce(ones()) if rank == 0 else 1 / 0)
it times out, which is caught|1|late(lambda: caught(lambda: dist.all_reduce(ones())) if rank == 0 else None)
all time out|1|late(lambda: dist.all_reduce(ones()) if rank == 0 else dist.broadcast(ones(), 0))
a backward times out|1|late(lambda: model(torch.ones(2, 4)).sum().backward() if rank == 0 else 1 / 0)
one raises, another is through|1|caught(bad) if rank else dist.all_reduce(ones(), async_op=True)
all refuse it alike|0|bad()
one does, and the others have none|1|caught(bad) if rank else None
EOF

# gloo keeps the timeout that a group was made with for recv: a call that asks for another gets a group of its own
cell 'short()
said = None
if rank == 0:
    try:
        dist.recv(ones(), 1)
    except RuntimeError as e:
        said = str(e)' || bad "a recv that times out: $(tail -n 1 "$G/error")"
like 'a recv times out' "$(cat "$G/rank0/vars/said")" '[Tt]imed out'
next 'a recv that times out'
