#!/usr/bin/env bash
# selftest measures the process group's collectives, finds wrong results, and ends on an interrupt.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=3 -o backend=gloo

# selftest [SIZES]: prints the errno of the writer that waits for it
selftest() {
	errno fsync "$G/ctl" "selftest $*"$'\n'
}

row() { # COLLECTIVE SIZE
	awk -v c="$1" -v s="$2" '$1 == c && $2 == s' "$G/selftest"
}

is 'none runs in a group without engines' "$(selftest)" ESRCH
like 'before the first one the file says what to write' "$(cat "$G/selftest")" 'echo selftest > ctl'
ok cell 'x = 5'
is 'it goes well' "$(selftest 4K 96K)" 0
text=$(cat "$G/selftest")
like 'the first line has the ranks, the backend and the device' "$text" '^# selftest [-0-9: ]+: 3 ranks, gloo, torch [^,]+, float32 on cpu'
for name in all_reduce all_gather broadcast sendrecv; do
	for size in 4096 98304; do
		count=$((size / 4))
		if [ $name = all_gather ]; then
			count=$((size / 4 / 3)) size=$((count * 12))
		fi
		like "$name of $size bytes" "$(row $name $size)" "^$name +$size +$count +float32 +[0-9.]+ +[0-9.]+ +[0-9.]+ +0\$"
	done
done
awk '$1 in f { algbw = $2 / $5 / 1000; e1 = algbw - $6; e2 = algbw * f[$1] - $7; n++
		if (e1 > .01 || e1 < -.01 || e2 > .02 || e2 < -.02) print $0 }
	BEGIN { f["all_reduce"] = 4 / 3; f["all_gather"] = 2 / 3; f["broadcast"] = f["sendrecv"] = 1 }
	END { if (n != 8) print n " rows" }' "$G/selftest" >"$T/wrong"
is 'the bandwidths are those of nccl-tests' "$(cat "$T/wrong")" ''
like 'no errors' "$text" $'\nerrors 0\n'
like 'the slowest pair is named' "$text" $'\nslowest_pair ranks=[01]-[12] size=98304 time_us=[0-9.]+ algbw=[0-9.]+ median_algbw=[0-9.]+$'
is 'variables stay' "$(cat "$G/vars/x")" 5
is 'the sizes of one that names none are the usual ones' "$(selftest; awk '$1 == "all_reduce" { print $2 }' "$G/selftest" | xargs)" \
	$'0\n1024 32768 1048576 16777216'
for bad in x 3 2G 4k 1M1 '' -5; do
	[ -z "$bad" ] || is "size $bad is refused" "$(selftest 4096 "$bad")" EINVAL
done
like 'error says what a size is' "$(tail -n 1 "$G/error")" "no size '-5' \(want bytes, 4..1G, e.g. 4096 64K 16M\)"

# it is queued like a cell
submit "import os, time
while not os.path.exists('$T/go'): time.sleep(0.01)
y = 1"
echo 'selftest 4096' >"$T/line"
cat "$T/line" >"$G/ctl" &
writer=$!
until_true grep -qx 'queued 1' "$G/status"
submit 'z = 1'
is 'it waits for the cell before it, and the one behind for it' "$(key "$G/status" queued)" 2
: >"$T/go"
ok wait $writer
is 'all have run' "$(wait_cell "$n" | key /dev/stdin state)" ok

# a rank that receives wrong data: reported by rank, collective and size, and by the link
cell 'import torch.distributed as dist
real = dist.all_reduce
def all_reduce(tensor, *args, **kwargs):
    real(tensor, *args, **kwargs)
    tensor[3] += 1
dist.all_reduce = all_reduce' "$G/rank1/cell"
is 'a wrong sum is a failure' "$(selftest 4096)" EREMOTEIO
like 'error says which rank got it' "$(tail -n 1 "$G/error")" 'rank 1 received 2 wrong elements: cat group/selftest'
like 'the table counts it' "$(row all_reduce 4096)" ' 2$'
like 'and names rank and size' "$(cat "$G/selftest")" $'\nerrors 2\nwrong rank=1 all_reduce size=4096 elements=2\n'
cell 'dist.all_reduce = real
class Link(dist.P2POp):
    def __init__(self, op, tensor, peer):
        if op is dist.isend and peer == 0:
            tensor = tensor.clone()
            tensor[-1] = -7
        super().__init__(op, tensor, peer)
dist.P2POp, P2POp = Link, dist.P2POp' "$G/rank1/cell"
is 'so is a link that brings something else' "$(selftest 4096)" EREMOTEIO
like 'it is named' "$(cat "$G/selftest")" $'\nwrong rank=0 from=1 size=4096 elements=2\n'
DDIP_MOUNT=$PLACE "$BUILD/ddip" selftest 4096 >"$T/out" 2>"$T/err"
is 'ddip selftest fails, too' $? 1
like 'it prints the table' "$(cat "$T/out")" $'\nwrong rank=0 from=1 size=4096 elements=2\n'
like 'and what is wrong' "$(cat "$T/err")" 'rank 0 received 2 wrong elements'
cell 'dist.P2POp = P2POp' "$G/rank1/cell"
is 'without that all is right again' "$(selftest 4096)" 0

# a rank that fails leaves no other waiting
cell 'def all_reduce(tensor, *args, **kwargs):
    raise RuntimeError("no such link")
dist.all_reduce = all_reduce' "$G/rank1/cell"
echo 'grace 0.1' >"$G/ctl"
is 'one rank fails' "$(selftest 4096)" EREMOTEIO
like 'error says what it said' "$(cat "$G/selftest")" 'EREMOTEIO: rank 1: RuntimeError: no such link'
cell 'dist.all_reduce = real' "$G/rank1/cell"
is 'the process group is rebuilt' "$(selftest 4096)" 0

# an interrupt ends it
cell 'import time
def all_reduce(tensor, *args, **kwargs):
    print("here", flush=True)
    if rank == 1:
        time.sleep(1000)
    real(tensor, *args, **kwargs)
import torch.distributed as dist
real, dist.all_reduce = dist.all_reduce, all_reduce'
cat "$T/line" >"$G/ctl" &
writer=$!
until_true grep -q here "$G/rank0/stdout"
until_true grep -q here "$G/rank1/stdout"
echo interrupt >"$G/ctl"
fails wait $writer
like 'it says so' "$(cat "$G/selftest")" '^# selftest [-0-9: ]+: EINTR: rank [012]: interrupted$'
cell 'dist.all_reduce = real'
is 'the next one is right' "$(selftest 4096)" 0
cell 'import torch; t = torch.ones(1); dist.all_reduce(t); t = t.item()' || bad "after it: $(tail -n 1 "$G/error")"
is 'the sum of the next cell is right' "$(cat "$G/vars/t")" 3.0

# a single rank; no process group at all, and a group that the ranks do not share
again() { # SETTING: a start with it
	is "$1" "$(errno fsync "$G/ctl" $'stop\n'"$1"$'\nstart\n')" 0
}
again 'size 1'
is 'a group of one rank' "$(selftest 4096)" 0
is 'has three collectives' "$(awk '!/^#/ { print $1 }' "$G/selftest" | xargs)" 'all_reduce all_gather broadcast errors slowest_pair'
again 'backend none'
is 'without a process group' "$(selftest)" EOPNOTSUPP
like 'error says how to get one' "$(tail -n 1 "$G/error")" 'rank 0: there is no process group to test: set backend gloo or nccl'
again $'backend gloo\nsize 2\nexternal 1'
is 'with ranks of other programs there is none' "$(selftest)" EOPNOTSUPP
