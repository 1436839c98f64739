#!/usr/bin/env bash
# The verdict of `stall` among three ranks: sizes, types and operations that differ while another rank is late, several
# late ranks, several that wait, a group of two of them, and a network that loses everything.
. "$(dirname "$0")/../lib.sh"
HANG_LIMIT_S=60

! signals_wait || skip 'ThreadSanitizer delivers no signal to a loop: its stack can not be read'
mount_torch -o size=3 -o stall=off -o grace=off
cell 'import os, socket, time, torch, torch.distributed as dist
def ones(n=4, dtype=torch.float32):
    return torch.ones(n, dtype=dtype)
def spin():
    while True: pass
kept = []
def lose():
    "All that gloo sends or receives from now on is lost, while its connections stay open."
    near, far = socket.socketpair()
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            copy = socket.socket(fileno=os.dup(fd))
            port = str(copy.getpeername()[1])
        except (OSError, IndexError):
            continue
        kept.append(copy)
        if copy.family in (socket.AF_INET, socket.AF_INET6) and port != os.environ["MASTER_PORT"]:
            os.dup2(near.fileno(), fd)
    kept.append((near, far))' || give_up 'the first cell'
recorder=$(value 'import torch._C._distributed_c10d as c; hasattr(c, "_dump_fr_trace_json")')
at='\(<cell [0-9]+>:[0-9]+\)'

# of two cells on different ranks, the report of each and its running line have its own
running_line() {
	PYTHONPATH=$ROOT/magics "$PLAIN_PYTHON" -c 'import sys
from ddip.cells.cell import Cell
from ddip.groups import Group
print(Cell(Group(sys.argv[1]), int(sys.argv[2])).verdict())' "$G" "$1"
}
cell 'near, far = dist.new_group([0, 1]), dist.new_group([1, 2])' || bad 'new groups'
submit 'if rank == 0: dist.all_reduce(ones(), group=near)
spin()' "$G/cell.0-1"
first=$n
submit 'dist.broadcast(ones(), 1, group=far)' "$G/rank2/cell"
until_true grep -q 'rank 0 waits for it' "$G/stall"
until_true grep -q 'rank 2 waits for it' "$G/stall"
like 'the first' "$(grep ^waits "$G/cells/$first/report")" '; rank 0 waits for it in all_reduce 1'
like 'its running line' "$(running_line "$first")" '; rank 0 waits for it in all_reduce 1'
like 'the second' "$(grep ^waits "$G/cells/$n/report")" '; rank 2 waits for it in broadcast 1'
like 'its running line' "$(running_line "$n")" '; rank 2 waits for it in broadcast 1'
is 'a cell that has ended' "$(running_line 1)" ''
over
n=$first over

verdict 'two ranks are late' \
	"^rank 1 is in no collective $at, rank 2 is in no collective $at; rank 0 waits for them in all_reduce 1 $at$" \
	'if rank == 0: dist.all_reduce(ones())
elif rank == 1: spin()
else: time.sleep(1000)'
verdict 'two ranks wait' '^rank 1 is in no collective .*; ranks 0,2 wait for it in all_reduce 1 \(<cell [0-9]+>:2\)$' \
	'if rank != 1:
    dist.all_reduce(ones())
spin()'
verdict 'two ranks wait, at two lines' '^rank 1 is in no collective .*; ranks 0,2 wait for it in all_reduce 1$' \
	'if rank == 2:
    dist.all_reduce(ones())
elif rank == 0:
    dist.all_reduce(ones())
spin()'
verdict 'different operations, and a late rank' \
	"^different operations: rank 2 has entered barrier 1 $at, rank 0 all_reduce 1 $at$" \
	'if rank == 0: dist.all_reduce(ones())
elif rank == 2: dist.barrier()
spin()'
verdict 'different sizes, and a late rank' \
	"^different sizes: rank 1 has entered all_reduce 1 of 8 float32 $at, rank 0 all_reduce 1 of 4 float32 $at$" \
	'if rank != 2: dist.all_reduce(ones(4 + 4 * rank))
spin()'
verdict 'different types, and a late rank' \
	"^different types: rank 1 has entered all_reduce 1 of 4 float64 $at, rank 0 all_reduce 1 of 4 float32 $at$" \
	'if rank < 2: dist.all_reduce(ones(dtype=torch.float64 if rank else torch.float32))
spin()'
verdict 'a group of two' "^rank 2 is in no collective $at; rank 0 waits for it in all_reduce 1 $at$" \
	'some = dist.new_group([0, 2])
if rank == 0: dist.all_reduce(ones(), group=some)
spin()'
submit 'some = dist.new_group([0, 2])
if rank == 0: dist.all_reduce(ones(), group=some)
elif rank == 1: dist.barrier()
else: spin()'
until_true grep -qE '^rank 2 is in no .*; rank 0 waits for it in all_reduce 1 ' "$G/stall"
until_true grep -q '; rank 1 waits for them in barrier 1 ' "$G/stall"
like 'a rank that waits for others is not named first' "$(cat "$G/stall")" \
	"^rank 2 is in no collective $at; rank 0 waits for it in all_reduce 1 $at"$'\n'".*; rank 1 waits for them in barrier 1 "
over
verdict 'three groups that cross' \
	"^rank 1 is in all_reduce of another group $at; rank 0 waits for it in all_reduce 1 $at$" \
	'a, b, c = dist.new_group([0, 1]), dist.new_group([1, 2]), dist.new_group([0, 2])
first, second = [(a, c), (b, a), (c, b)][rank]
dist.all_reduce(ones(), group=first)
dist.all_reduce(ones(), group=second)'
verdict 'a ring of sends that is broken' \
	"^rank 0 is in (send|recv) $at, rank 1 is in no collective $at; rank 2 waits for them in barrier [0-9]+ $at$" \
	'ops = [dist.P2POp(dist.isend, ones(), (rank + 1) % 3)]
if rank != 1: ops.append(dist.P2POp(dist.irecv, ones(), (rank - 1) % 3))
for work in dist.batch_isend_irecv(ops): work.wait()
spin() if rank == 1 else dist.barrier()'
verdict 'a rank that has failed' "^rank 1 has failed in its part of the cell; ranks 0,2 wait for it in all_reduce [0-9]+ $at$" \
	'if rank == 1: raise ValueError("the cause")
dist.all_reduce(ones())'
silent 'a group of which this rank is no member' ' in=- .* at=<cell 1>:5$' 'some = dist.new_group([0, 2])
if rank != 1: dist.all_reduce(ones(), group=some)
spin()' 3
if [ "$recorder" = True ]; then
	verdict 'asynchronous, and one that goes on' \
		"^rank 2 is in no collective $at; rank 0 waits for it in all_reduce 1 $at$" \
		'if rank < 2: work = dist.all_reduce(ones(), async_op=True)
if rank == 0: work.wait()
spin()'
	verdict 'asynchronous, several' '^rank 2 is in no collective .*; ranks 0,1 wait for it in all_reduce 2 ' \
		'works = [dist.all_reduce(ones(), async_op=True) for i in range(3 - rank)]
if rank < 2: works[-1].wait()
spin()'
fi
# what ends this is killafter: nothing that gloo is told arrives
echo killafter 1 >"$G/ctl"
lost='some = dist.new_group([0, 2])
lose() if rank == 2 else None
if rank != 1: dist.all_reduce(ones(), group=some)
dist.all_reduce(ones())'
verdict 'all of two have entered' '^ranks 0,2 have all entered all_reduce 1 \(<cell [0-9]+>:3\): look at ' "$lost"

# Of three ranks with different sizes gloo aborts the one that receives too much, as under torchrun. What it wrote is the
# cause that is named first; the others only lose their connections.
aborts() {
	submit "import torch, torch.distributed as dist
$1"
	wait_cell "$n" >/dev/null
	like "aborted: $1" "$(grep ' died: ' "$G/cells/$n/error")" \
		'^rank [0-2] died: signal 6 \(Aborted\); its last words: .*op\.preamble\.length'
	like "the report: $1" "$(cat "$G/cells/$n/report")" $'\nerror died: signal 6 .*op\\.preamble\\.length'
	like "the verdict: $1" "$(grep '^stall ' "$G/cells/$n/report" || echo none)" \
		'^none$|^stall (different (sizes|types): |rank [0-2] was lost; )'
}
printf '%s\n' 'grace 1' 'killafter 30' >"$G/ctl"
aborts 'dist.all_reduce(torch.ones(4 + 4 * rank))'
aborts 'dist.all_reduce(torch.ones(8 if rank == 1 else 4))'
aborts 'dist.all_reduce(torch.ones(4 if rank == 2 else 1000000))'
aborts 'dist.all_reduce(torch.ones(4, dtype=[torch.float32, torch.float64, torch.int64][rank]))'
aborts 'dist.all_reduce(torch.ones(4, dtype=torch.float64 if rank == 1 else torch.float32))'
