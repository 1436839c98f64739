#!/usr/bin/env bash
# Whichever rank is killed at whichever moment of a cell: the cell ends, no line of output is lost, the next collective
# is right. COUNT=N is the number of kills, SEED=N repeats a run.
. "$(dirname "$0")/../lib.sh"

RANDOM=${SEED:-20240229}
echo "seed ${SEED:-20240229}"
# A gloo collective that begins while its connection breaks may never notice, and has no socket left that could
# free it: then the survivor is killed, too, after killafter. The test prints how often.
mount_torch -o size=2 -o grace=0 -o killafter=3
killed=0
for i in $(seq "${COUNT:-20}"); do
	cell 'import torch, torch.distributed as dist' || give_up "kill $i: the imports: $(tail -n 1 "$G/error")"
	victim=$((RANDOM % 2)) lines=$((RANDOM % 400 + 1))
	pid=$(sed -n "s/^$victim .* pid=\([0-9]*\).*/\1/p" "$G/ranks")
	survivor=$(sed -n "s/^$((1 - victim)) .* pid=\([0-9]*\).*/\1/p" "$G/ranks")
	exec 4<"$G/rank$((RANDOM % 2))/follow"
	submit 'for i in range(10**12):
    print(i)
    if i % 10 == 0: dist.all_reduce(torch.ones(64))'
	guarded head -n "$lines" <&4 >/dev/null || bad "kill $i: no output"
	kill -KILL "$pid"
	exec 4<&-
	if ! ended=$(guarded cat "$G/cells/$n/wait"); then
		bad "kill $i: cell $n does not end: $(cat "$G/cells/$n/status" "$G/ranks" "$G/stall")"
		cat "$G/rank$((1 - victim))/stack"
		tail -n 20 "$G/error"
	fi
	like "kill $i: how it ended" "$ended" 'errno (EHOSTDOWN|EREMOTEIO|EINTR)'
	grep -q "^$((1 - victim)) .* pid=$survivor " "$G/ranks" || killed=$((killed + 1))
	for k in 0 1; do
		out=$G/cells/$n/rank$k/stdout
		# the output has no gap: the numbers are consecutive
		awk 'NR > 1 && $1 != last + 1 && length($1) > 0 { exit 1 } { last = $1 }' "$out" ||
			bad "kill $i: rank $k: a gap in the output"
	done
	cell 'import torch, torch.distributed as dist
t = torch.full((1,), 10.0 + rank); dist.all_reduce(t); t = t.item()' || bad "kill $i: $(tail -n 1 "$G/error")"
	is "kill $i: the next sum" "$(cat "$G"/rank?/vars/t | xargs)" '21.0 21.0'
done
echo "the survivor had to be killed in $killed of ${COUNT:-20}"
