#!/usr/bin/env bash
# When nothing fails but nothing moves, it is reported who is where, since when, the odd one out first, and which
# numbers of collectives are uneven; a debugger on one rank is no stall.
. "$(dirname "$0")/../lib.sh"

! signals_wait || skip 'ThreadSanitizer delivers no signal to a loop: its stack can not be read'
mount_torch -o size=3 -o stall=0.5 -o grace=0.3
exec 4<"$G/events"
cell 'import time, torch, torch.distributed as dist
def ones():
    return torch.ones(2)' || give_up 'the first cell'

interrupt() {
	echo interrupt >"$G/cells/$n/ctl"
	wait_cell "$n" >/dev/null
}

echo 'stall 6' >"$G/ctl"
submit 'dist.barrier() if rank == 0 else time.sleep(1000)'
seconds=$(await 4 "stall cell=$n seconds=" | sed "s/.*stall cell=$n seconds=//; s/ .*//")
[ "$seconds" -le 10 ] || bad "a stall of 6 s was reported after $seconds s"
interrupt
echo 'stall 0.5' >"$G/ctl"

exec 5<"$G/wait.stalled"
submit 'dist.barrier()
if rank == 1:
    while True: pass
dist.all_reduce(ones())'
# The event names the rank that is behind first. A slow machine may have reported the barrier, or rank 2, before.
await 4 "stall cell=$n seconds=[0-9]+ rank 1 is in no collective \\(<cell $n>:3\\); ranks 0,2 wait for it in all_reduce 2 \\(<cell $n>:4\\) 1 state=busy " >/dev/null
like 'who waits for it hears of it' "$(guarded head -n 1 <&5)" "^stalled group=group cell=$n seconds=[0-9.]+ look=group/stall$"
exec 5<&-
is 'also later: ddip wait' "$(DDIP_MOUNT=$M guarded "$BUILD/ddip" wait -u stalled >/dev/null; echo $?)" 7
stall=$(cat "$G/stall")
is 'the verdict names who is behind' "$(head -n 1 <<<"$stall")" \
	"rank 1 is in no collective (<cell $n>:3); ranks 0,2 wait for it in all_reduce 2 (<cell $n>:4)"
like 'the rank that is behind comes first' "$(sed -n 2p <<<"$stall")" "^1 state=busy cell=$n seconds=[0-9.]+ in=- number=1 at=<cell $n>:3$"
like 'who waits' "$(tail -n 1 <<<"$stall")" \
	"^2 state=busy cell=$n seconds=[0-9.]+ in=all_reduce number=2 at=<cell $n>:4 group=0-2 numel=2 dtype=float32 for=[0-9.]+$"
like 'stacks, equal ones once' "$(DDIP_MOUNT=$M "$BUILD/ddip" stack 2>&1)" 'ranks? 0,2'
interrupt
# of two ranks neither is the odd one out: the one that is behind still comes first
submit 'if rank == 1:
    while True: pass
dist.all_reduce(ones(), group=dist.group.WORLD) if rank != 2 else None'
await 4 "stall cell=$n .*all_reduce" >/dev/null
is 'ranks that have not come are both named' "$(grep -c '^rank 1 is in no collective .*, rank 2 .*; rank 0 waits for them in all_reduce [0-9]* ' "$G/stall")" 1
is 'and stand above who waits' "$(grep -v '^rank' "$G/stall" | cut -d ' ' -f 1 | tail -n 1)" 0
interrupt
cell 't = ones(); dist.all_reduce(t); t = t.sum().item()' || bad "after it: $(tail -n 1 "$G/error")"
is 'the next sum' "$(cat "$G/rank2/vars/t")" 6.0

# where C does not find torch's recorder, Python asks it
like 'by Python' "$(value 'import sys
flight = sys.modules["ddip_engine.groups.flight"]
found, flight._found = flight._found, 0
said, flight._found = flight.describe(), found
said.decode()')" 'group .* own '

# one collective more on one rank: it is reported, and does not pair with a later one
cell 'w = dist.all_reduce(ones(), async_op=True) if rank == 0 else None' || bad 'an unpaired collective'
like 'uneven numbers' "$(await 4 uneven)" "rank0=1 rank1=0 rank2=0"
cell 't = torch.full((1,), 10.0 + rank); dist.all_reduce(t); t = t.item()' || bad "after it: $(tail -n 1 "$G/error")"
is 'the next sum is right' "$(cat "$G"/rank?/vars/t | xargs)" '33.0 33.0 33.0'

# a debugger: the others wait for it
submit 'if rank == 1: breakpoint()
dist.barrier()'
await 4 'rank 1 waits-for-input' >/dev/null
exec 5<"$G/events"
like 'who asks' "$(grep '^1 ' "$G/ranks")" 'state=input'
exec 6<"$G/rank1/follow"
echo 'p 40 + 2' >"$G/rank1/stdin"
guarded grep -m1 -q '42' <&6 || bad 'pdb does not answer'
exec 6<&-
# three ranks are sampled four times; a second sample like the first would be a stall
is 'all ranks are looked at' "$(guarded grep -m12 -c 'wire < Rstack' <"$M/trace")" 12
echo 'stall off' >"$G/ctl" # how long rank 1 takes to the barrier says nothing
echo 'continue' >"$G/rank1/stdin"
story=$(upto 5 "cell $n .*seconds=")
like 'leaving the debugger ends the cell' "$story" "cell $n ok"
[[ ! $story =~ stall ]] || bad "a stall is told while somebody debugs: $story"

# %debug after an error
cell 'if rank == 2: broken = {}["missing"]' 2>/dev/null
submit 'if rank == 2:
    import pdb
    pdb.pm()
dist.barrier()'
await 4 'rank 2 waits-for-input' >/dev/null
echo 'q' >"$G/rank2/stdin"
like 'leaving pdb.pm ends the cell' "$(wait_cell "$n")" 'state ok'
exec 5<&-
