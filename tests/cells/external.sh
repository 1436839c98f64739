#!/usr/bin/env bash
# A plain program can join the process group by rankK/env as an external rank; what needs an engine is refused.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=3,gpus=none

cat >"$T/join.py" <<-'END'
	import os, sys
	import torch, torch.distributed as dist
	dist.init_process_group("gloo")
	for _ in range(int(sys.argv[1])):
	    t = torch.ones(4) * (dist.get_rank() + 1)
	    dist.all_reduce(t)
	    print(dist.get_rank(), dist.get_world_size(), os.environ["LOCAL_RANK"], t.tolist(), flush=True)
	dist.barrier()
	dist.destroy_process_group()
END

# joins as rank $1, in the background; its output goes to $T/out
join() {
	# shellcheck disable=SC2046 # one word a line
	env $(cat "$G/rank$1/env") timeout "$HANG_LIMIT_S" "$TORCH_PYTHON" "$T/join.py" "${2:-1}" >"$T/out" 2>&1 &
	joined=$!
}
# joins as rank $1, too, by a child of one that has imported torch
mkfifo "$T/asked" "$T/ended"
join_again() {
	(xargs echo "$T/out" <"$G/rank$1/env" | guarded tee "$T/asked" >/dev/null
		status=$(guarded head -n 1 "$T/ended") || bad "no program was forked: $(cat "$T/forked")"
		exit "$status") &
	joined=$!
}
cat >"$T/forks.py" <<-'END'
	import os, runpy, signal, sys
	import torch, torch.distributed
	asked, ended, program = sys.argv[1:]
	while True:
	    with open(asked) as file:
	        out, *env = file.read().split()
	    if child := os.fork():
	        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
	        with open(ended, "w") as file:
	            print(status & 0xff, file=file)
	        continue
	    signal.alarm(int(os.environ["HANG_LIMIT_S"]))
	    os.environ.update(each.split("=", 1) for each in env)
	    sys.argv = [program, "1"]
	    output = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
	    os.dup2(output, 1)
	    os.dup2(output, 2)
	    runpy.run_path(program, run_name="__main__")
	    sys.exit()
END
finish() {
	[ ! "${forks:-}" ] || kill -- "-$forks"
}

# the setting
is 'what is no rank' "$(errno write "$G/ctl" 'external 3')" EINVAL
is 'what is no number' "$(errno write "$G/ctl" 'external x')" EINVAL
is 'nothing to join yet' "$(errno open "$G/rank1/env")" ESRCH
echo 'external 0-2' >"$G/ctl"
is 'all of them' "$(errno fsync "$G/ctl" 'start')" EINVAL
like 'says so' "$(cat "$G/error")" 'none is left'
printf 'external 1 2\nexternal none\nexternal 1\n' >"$G/ctl"
is 'printed' "$(grep external "$G/ctl")" 'external 1'
mkdir "$M/clone"
cat "$G/ctl" >"$M/clone/ctl"
is 'cloned' "$(cat "$M/clone/ctl")" "$(cat "$G/ctl")"
printf 'size 2\nexternal 1\nsize 1\n' >"$M/clone/ctl"
is 'too few ranks' "$(errno fsync "$M/clone/ctl" 'start')" EINVAL
rmdir "$M/clone"

# the others start without it, and the daemon does not run it
is 'started' "$(errno fsync "$G/ctl" 'start')" 0
is 'set too late' "$(errno write "$G/ctl" 'external none')" EBUSY
like 'its line' "$(cat "$G/ranks")" '1 state=external pid=- '
is 'two processes' "$(rank_pids | wc -l)" 2
for file in cell ctl stdin; do
	is "$file" "$(errno write "$G/rank1/$file" interrupt)" EOPNOTSUPP
done
is 'cell.LIST' "$(errno write "$G/cell.0-1" pass)" EOPNOTSUPP
is 'stack' "$(errno open "$G/rank1/stack")" EOPNOTSUPP
is 'vars' "$(errno create "$G/rank1/vars/x" 1)" EOPNOTSUPP
is 'kill' "$(errno write "$G/ctl" 'kill 1')" EOPNOTSUPP
like 'says what it is' "$(cat "$G/error")" 'rank 1 is external'
is 'numbers' "$(value '(rank, world_size)' 2)" '(2, 3)'
is 'no group yet' "$(value 'import torch.distributed as dist; dist.is_initialized()' 2)" False
is 'its environment' "$(grep -cE '^(RANK=1|LOCAL_RANK=1|WORLD_SIZE=3|LOCAL_WORLD_SIZE=3)$' "$G/rank1/env")" 4
like 'where they meet' "$(cat "$G/rank1/env")" 'MASTER_ADDR=127.0.0.1.*MASTER_PORT=[1-9]'
cell 'x = rank + 1'
is 'over the others' "$(cat "$G/vars/x.gather.json")" '[1, 3]'
is 'push' "$(errno create "$G/vars/y" 5)" 0
is 'pushed' "$(cat "$G"/rank[02]/vars/y | xargs)" '5 5'
is 'split' "$(errno create "$G/vars/y.cat.json" '[1, 2, 3]')" EOPNOTSUPP

# it joins
join 1 2
cell "import torch, torch.distributed as dist
dist.init_process_group('gloo')
t = torch.ones(4) * (rank + 1)
dist.all_reduce(t)" || bad 'the meeting'
cell 'dist.init_process_group("gloo")
u = torch.ones(4) * (rank + 1); dist.all_reduce(u); dist.barrier()' || bad 'the same group in another cell'
wait "$joined" || bad "the program: $(cat "$T/out")"
is 'its sums' "$(cat "$T/out")" '1 3 1 [6.0, 6.0, 6.0, 6.0]
1 3 1 [6.0, 6.0, 6.0, 6.0]'
is 'theirs' "$(cat "$G"/rank[02]/vars/t.json | xargs)" '[6.0, 6.0, 6.0, 6.0] [6.0, 6.0, 6.0, 6.0]'

# once per generation; after recover another program can join
cell 'dist.destroy_process_group()'
is 'twice' "$(errno write "$G/cell" 'dist.init_process_group("gloo")')" EREMOTEIO
like 'says how' "$(cat "$G/traceback")" 'recover'
setsid "$TORCH_PYTHON" "$T/forks.py" "$T/asked" "$T/ended" "$T/join.py" 2>"$T/forked" &
forks=$!
meet='dist.init_process_group("gloo"); t = torch.ones(4) * (rank + 1); dist.all_reduce(t); dist.barrier()'
for _ in 1 2 3; do
	is 'recovered' "$(errno fsync "$G/ctl" recover)" 0
	join_again 1
	cell "$meet" || bad 'after recover'
	wait "$joined" || bad "the program, after recover: $(cat "$T/out")"
	is 'its sum' "$(cat "$T/out")" '1 3 1 [6.0, 6.0, 6.0, 6.0]'
done

# the program exits in the middle: the cell fails, the prompt returns
echo 'grace 0.5' >"$G/ctl"
is 'recovered' "$(errno fsync "$G/ctl" recover)" 0
join_again 1
is 'it left' "$(errno write "$G/cell" "$meet
for _ in range(2): dist.all_reduce(t)")" EREMOTEIO
wait "$joined" || bad "the program that left: $(cat "$T/out")"

# no program joins: an interrupt ends the wait
is 'recovered' "$(errno fsync "$G/ctl" recover)" 0
exec 4<"$G/events"
submit "$meet"
await 4 "cell $n start" >/dev/null
echo interrupt >"$G/cells/$n/ctl"
like 'interrupted' "$(wait_cell "$n")" 'state interrupted'

# a rank of the daemon's dies: its successor and the external one meet
echo 'kill 2' >"$G/ctl"
await 4 'rank 2 exit' >/dev/null # the interrupt has rebuilt the group, too
await 4 'recovered generation' >/dev/null
cell 'import torch, torch.distributed as dist' || bad 'after the death'
join_again 1
cell "$meet" || bad 'with the successor'
wait "$joined" || bad "the program, with the successor: $(cat "$T/out")"

# the first rank is external: G/vars shows the variables of the next one
is 'stopped' "$(errno fsync "$G/ctl" stop)" 0
printf 'size 2\nexternal 0\nstart\n' | cat >"$G/ctl"
cell 'import torch, torch.distributed as dist; x = rank'
is 'the first that there is' "$(cat "$G/vars/x")" 1
like 'listed' "$(ls "$G/vars")" x
join_again 0
cell "$meet" || bad 'rank 0 is external'
wait "$joined" || bad "the program as rank 0: $(cat "$T/out")"
is 'as rank 0' "$(cat "$T/out")" '0 2 0 [3.0, 3.0, 3.0, 3.0]'

