#!/usr/bin/env bash
# Process groups: the environment of torchrun, the engine's own group, the user's init and destroy, and DDP all work.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2
cell 'import os, torch, torch.distributed as dist'

is 'environment of rank 1' "$(value '[os.environ[k] for k in ("RANK", "LOCAL_RANK", "WORLD_SIZE",
    "LOCAL_WORLD_SIZE", "MASTER_ADDR")] + [os.environ["MASTER_PORT"].isdigit()]' 1)" \
	"['1', '1', '2', '2', '127.0.0.1', True]"
is 'names' "$(value '(rank, local_rank, world_size)' 1)" '(1, 1, 2)'
is 'one thread, as torchrun' "$(value 'torch.get_num_threads()')" 1
is 'seeds differ from a fixed one' "$(errno write "$G/cell" 'seed = torch.initial_seed()')" 0

# the existing group
is 'initialised' "$(value 'dist.is_initialized()' 0)" True
cell 't = torch.ones(1) * (rank + 1); dist.all_reduce(t)'
is 'all_reduce' "$(cat "$G"/rank?/vars/t.json | xargs)" '[3.0] [3.0]'

# a program that creates and destroys its own group, many times
for i in $(seq 20); do
	cell "dist.init_process_group('gloo')
t = torch.ones(1) * $i; dist.all_reduce(t)
dist.destroy_process_group()" || bad "round $i"
done
is 'the last sum' "$(cat "$G"/rank?/vars/t.json | xargs)" '[40.0] [40.0]'
cell "dist.init_process_group()
dist.barrier()" || bad 'without a backend'
cell "dist.destroy_process_group()
dist.init_process_group('gloo', init_method='env://', rank=rank, world_size=world_size)
dist.barrier()" || bad 'env://'
cell "dist.destroy_process_group()
dist.init_process_group('gloo', init_method='tcp://127.0.0.1:$(free_ports 1)', rank=rank, world_size=2)
t = torch.ones(1); dist.all_reduce(t); dist.destroy_process_group()" || bad 'tcp://'
cell "dist.init_process_group('gloo')
sub = dist.new_group([0, 1]); t = torch.ones(1); dist.all_reduce(t, group=sub)
assert dist.get_backend() == 'gloo', dist.get_backend()" || bad 'new_group'

# DDP: equal weights everywhere, averaged gradients, across cells
cell 'from torch.nn.parallel import DistributedDataParallel as DDP
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 2))
opt = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    opt.step()
weight = model.module.weight.detach()' || bad 'a DDP step'
cmp "$G/rank0/vars/weight.npy" "$G/rank1/vars/weight.npy" || bad 'weights differ'
is 'same' "$(errno read "$G/vars/weight.same.npy")" 0

# one rank raises while the other waits in a collective: the prompt returns, and the next cell is right
echo 'grace 0.5' >"$G/ctl"
is 'one raises' "$(errno write "$G/cell" 'if rank == 0: raise ValueError("the cause")
dist.all_reduce(torch.ones(1))')" EREMOTEIO
like 'the cause is last' "$(tail -n 1 "$G/traceback")" 'ValueError: the cause'
cell 't = torch.ones(1) * 100; dist.all_reduce(t)' || bad 'the next cell'
is 'its sum' "$(cat "$G"/rank?/vars/t.json | xargs)" '[200.0] [200.0]'
cell 'for _ in range(2):
    opt.zero_grad(); model(torch.randn(8, 4)).sum().backward(); opt.step()
weight = model.module.weight.detach()' || bad 'the old model goes on'
cmp "$G/rank0/vars/weight.npy" "$G/rank1/vars/weight.npy" || bad 'weights differ after the failure'

# an interrupt releases a rank that waits alone in a collective
exec 4<"$G/events"
submit 'dist.all_reduce(torch.ones(1))' "$G/rank0/cell"
await 4 "cell $n start" >/dev/null
exec 4<&-
echo interrupt >"$G/cells/$n/ctl"
like 'freed' "$(wait_cell "$n")" 'state interrupted'
cell 't = torch.ones(1); dist.all_reduce(t)' || bad 'the cell behind it'
is 'its sum, too' "$(cat "$G"/rank?/vars/t.json | xargs)" '[2.0] [2.0]'

# the ranks meet where only this user can: the data in torch's own store on loopback leads to no rank
is 'nothing of the group in the TCPStore' "$(value '[key for key in dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False).list_keys() if b"127.0.0.1" in key.encode() or "/" in key]')" '[]'
folder=$(key "$G/status" spool)
is 'who may enter' "$(stat -c %a "$folder" "$folder/store" | xargs)" '700 600'
mkdir "$M/other" && cat "$G/ctl" >"$M/other/ctl" || bad "another group"
folder=$(key "$M/other/status" spool)
is 'another group' "$(errno fsync "$M/other/ctl" start) $(stat -c %F "$folder/store") $(errno fsync "$M/other/ctl" stop)" '0 socket 0'
ok rmdir "$M/other"
[ ! -e "$folder" ] || bad "a group that was removed leaves $(ls "$folder")"
is 'torch'"'"'s store serves who connects to it' "$(value 'tcp = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False)
tcp.set("mine", "1"); tcp.get("mine")' 1)" "b'1'"
is 'the store of the group' "$(value 'dist.distributed_c10d._get_default_store().set("k", "v"); dist.distributed_c10d._get_default_store().get("k")')" "b'v'"

# send on one rank and receive on the other, in separate cells
cell 'dist.send(torch.arange(3, device="cpu"), 1)' "$G/rank0/cell" &
cell 'got = torch.zeros(3, dtype=torch.int64, device="cpu"); dist.recv(got, 0)' "$G/rank1/cell" &
wait
is 'received' "$(cat "$G/rank1/vars/got.json")" '[0, 1, 2]'

# start-up: phases are reported, a restart uses the warm zygote
grep -q torch "$G/status" || bad "no phases: $(cat "$G/status")"
before=$(rank_pids | xargs)
exec 4<"$G/events"
echo restart >"$G/ctl"
cell 'import torch.distributed as dist, torch; t = torch.ones(1); dist.all_reduce(t)' || bad 'after restart'
forked='how=(zygote|successor)'
[[ $BUILD != */tsan* ]] || forked='how=cold' # a thread of the sanitizer's own
like 'forked' "$(await 4 'how=')" "$forked"
[ "$(rank_pids | xargs)" != "$before" ] || bad 'the processes are the same after restart'
