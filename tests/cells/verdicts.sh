#!/usr/bin/env bash
# The verdict of `stall` is true or absent: members only, different operations and sizes, a source that has passed,
# asynchronous operations, uneven loaders, a rank that computes, has ended, or is in C code, send and recv.
. "$(dirname "$0")/../lib.sh"
HANG_LIMIT_S=60

! signals_wait || skip 'ThreadSanitizer delivers no signal to a loop: its stack can not be read'
mount_torch -o size=2 -o stall=off -o grace=off
cell 'import re, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
def ones(n=4):
    return torch.ones(n)
def spin():
    while True: pass
model = DistributedDataParallel(torch.nn.Linear(4, 4))
pair, alone = dist.new_group([0, 1]), dist.new_group([0])' || give_up 'the first cell'
recorder=$(value 'import torch._C._distributed_c10d as c; hasattr(c, "_dump_fr_trace_json")')

verdict 'a rank computes' '^rank 1 is in no collective \(<cell [0-9]+>:[0-9]+\); rank 0 waits for it in all_reduce [0-9]+ \(<cell [0-9]+>:2\)$' \
	'if rank == 0:
    dist.all_reduce(ones())
else:
    spin()'

verdict 'members only' '^rank 1 is in no collective .*; rank 0 waits for it in broadcast [0-9]+ ' 'alone = dist.new_group([0])
if rank == 0:
    dist.all_reduce(ones(), group=alone)
    dist.broadcast(ones(), 1)
else:
    spin()'
cell 'pair = dist.new_group([0, 1])' || bad 'a new group'
verdict 'a group of its own' '^rank 1 is in no collective .*; rank 0 waits for it in all_reduce 1 ' 'if rank == 0:
    dist.all_reduce(ones(), group=pair)
else:
    spin()'
verdict 'different operations' '^(different operations: .*(barrier|all_reduce) [0-9]+.*|rank . is in barrier .*)' 'if rank == 0:
    dist.all_reduce(ones())
else:
    dist.barrier()'
# Who an interrupt has freed from a collective is not in it any more: its next cell says where it is.
for first in 0 1; do
	verdict "a monitored barrier after one that was interrupted, $first" \
		"^rank $((1 - first)) is in no collective .*; rank $first waits for it in monitored_barrier 1 " "if rank == $first:
    dist.monitored_barrier()
else:
    spin()"
done
verdict 'another source on each rank' '^all ranks have entered broadcast [0-9]+ .*: look at the source or destination ' \
	'dist.broadcast(ones(1 << 22), 1 - rank)'
verdict 'groups that cross' '^rank 1 is in all_reduce of another group \(<cell [0-9]+>:6\); rank 0 waits for it in all_reduce 1 ' \
	'a, b = dist.new_group([0, 1]), dist.new_group([0, 1])
if rank == 0:
    dist.all_reduce(ones(), group=a)
    dist.all_reduce(ones(), group=b)
else:
    dist.all_reduce(ones(), group=b)
    dist.all_reduce(ones(), group=a)'
verdict 'sizes that one rank alone refuses' '^rank 0 has failed in its part of the cell; rank 1 is in all_to_all' \
	'dist.all_to_all_single(torch.empty(4), ones(), [1, 3] if rank == 0 else [2, 2], [2, 2])'
verdict 'a thread of its own' '^rank 1 is in no collective .*; rank 0 waits for it in all_reduce [0-9]+$' 'import threading
if rank == 0:
    threading.Thread(target=lambda: dist.all_reduce(ones()), daemon=True).start()
spin()'
verdict 'one backward more, with micro-batches' '^rank 0 is in barrier .*; rank 1 waits for it in (all_reduce [0-9]+ of backward|broadcast [0-9]+ of forward) ' 'for micro in range(2 + rank):
    if micro:
        model(torch.ones(2, 4)).sum().backward()
    else:
        with model.no_sync(): model(torch.ones(2, 4)).sum().backward()
dist.barrier()'
verdict 'objects' '^rank 1 is in no collective .*; rank 0 waits for it in all_gather [0-9]+ of gather_object ' \
	'dist.gather_object(1, [None, None]) if rank == 0 else spin()'
spins=' in=- .* at=<cell 1>:6$'
silent 'a source that has passed' "^1 .*$spins" 'dist.broadcast(ones(), 1)
if rank == 1: spin()
time.sleep(1000)'
silent 'send and recv' '^0 .*in=recv ' 'if rank == 0:
    dist.recv(ones(), 1)
else:
    spin()'
verdict 'no cell, or an ended one' '^rank 1 has ended its part of the cell; rank 0 waits for it in all_reduce [0-9]+ ' 'if rank == 0:
    dist.all_reduce(ones())'
verdict 'C code that holds the GIL' '^rank 1 is in no collective .*; rank 0 waits for it in all_reduce [0-9]+ ' 'if rank == 0:
    dist.all_reduce(ones())
else:
    re.match("(a|aa)+$", 100 * "a" + "b")'
HOLD='re.match("(a|aa)+$", 100 * "a" + "b")'
if [ "$recorder" = True ]; then
	cell 'pair = dist.new_group([0, 1])' || bad 'a new group'
	verdict 'C code that holds the GIL, and a group of its own' \
		'^rank 1 is in no collective .*; rank 0 waits for it in all_reduce [0-9]+ ' "if rank == 0:
    dist.all_reduce(ones(), group=pair)
else:
    $HOLD"
	verdict 'C code that holds the GIL beside a backward' \
		'^rank 1 is in no collective .*; rank 0 waits for it in all_reduce [0-9]+ of backward ' "if rank == 0:
    model(torch.ones(2, 4)).sum().backward()
else:
    $HOLD"
	silent 'C code that holds the GIL, in a source that has passed' '^1 .*in=- .* at=<cell [0-9]+>:6$' "work = dist.all_reduce(ones(), async_op=True)
if rank == 0:
    work.wait()
    spin()
else:
    $HOLD"
fi
silent 'a wait for a receive beside a collective' '^0 .*in=recv ' 'if rank == 0:
    work = dist.all_reduce(ones(), async_op=True)
    dist.irecv(ones(), 1).wait()
else:
    spin()'
silent 'a backward that computes' '^0 .*in=backward .*at=<cell ' 'class Slow(torch.autograd.Function):
    forward = staticmethod(lambda context, x: x.clone())
    @staticmethod
    def backward(context, grad): spin()
if rank == 0:
    work = dist.all_reduce(ones(), async_op=True)
    Slow.apply(ones().requires_grad_()).sum().backward()
else:
    spin()'
verdict 'no cell' '^rank 1 runs no cell; rank 0 (is|waits for it) in all_reduce [0-9]+ \(<cell [0-9]+>:1\)$' 'dist.all_reduce(ones())' "$G/cell.0"
submit 'dist.all_reduce(ones())' "$G/cell.0"
until_true grep -qE '^0 .*in=all_reduce ' "$G/stall"
like 'an idle rank is at no line' "$(cat "$G/stall")" '1 state=idle cell=0 in=- number=[0-9]+ at=-'
over
submit 'optimizer = torch.optim.SGD(model.parameters(), 0.1)
for i in range(3): optimizer.step()
spin()'
until_true grep -qE '^1 .* steps=3( |$)' "$G/stall" || bad "steps: $(cat "$G/stall")"
over
if [ "$recorder" = True ]; then
	verdict 'asynchronous' '^rank 1 is in no collective .*; rank 0 waits for it in all_reduce [0-9]+ \(' 'if rank == 0:
    dist.all_reduce(ones(), async_op=True).wait()
else:
    spin()'
	verdict 'uneven loaders' '^rank 1 is in barrier \(<cell [0-9]+>:3\); rank 0 waits for it in all_reduce [0-9]+ of backward \(<cell [0-9]+>:2\)$' 'for i in range(5 - 2 * rank):
    model(torch.ones(2, 4)).sum().backward()
dist.barrier()'
	cat >"$T/uneven.py" <<-'END'
		import torch, torch.distributed as dist
		dist.init_process_group()
		model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
		for i in range(5 - 2 * dist.get_rank()):
		    model(torch.ones(2, 4)).sum().backward()
		dist.barrier()
	END
	n=$(env -i "PATH=$PATH" "DDIP_MOUNT=$M" "$BUILD/ddip" run -k -d "$T/uneven.py")
	uneven="^(rank 1 is in barrier .*; rank 0 waits for it in all_reduce [0-9]+ of backward|different operations: rank 0 has entered all_reduce) "
	until_true grep -qE "$uneven" "$G/stall" || bad "uneven loaders of a program: $(cat "$G/stall")"
	over
fi
cat >"$T/train.py" <<'END'
import torch, torch.distributed as dist
dist.init_process_group()
if dist.get_rank() == 0:
    dist.all_reduce(torch.ones(4))
END
number=$(DDIP_MOUNT=$M "$BUILD/ddip" run -f -d "$T/train.py") || bad 'ddip run'
until_true grep -qE "^rank 1 has ended its program; rank 0 waits for it in all_reduce [0-9]+ \\($T/train.py:4\\)$" "$G/stall"
echo interrupt >"$G/cells/$number/ctl"
wait_cell "$number" >/dev/null
