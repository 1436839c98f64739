#!/usr/bin/env bash
# While gloo connects the ranks, one that fails or is interrupted half way leaves the others waiting for connections
# that nobody will make. They are freed all the same, and keep their variables.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=3 -o grace=0.3
cell 'import time, torch.distributed as dist
class Half(dist.Store):
    """The store of a rank that publishes its address, and then gets no further."""
    def __init__(self, real, how):
        super().__init__()
        self.real, self.how = real, how
    def set(self, key, value):
        self.real.set(key, value)
    def wait(self, *args):
        self.how()
    get = wait
def fail():
    raise ValueError("half way")
def stop():
    print("half way", flush=True)
    time.sleep(1000)
def connect(name, how):
    store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
    dist.destroy_process_group()
    store = Half(store, how) if rank == 0 else store
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
kept = rank' || give_up 'the first cell'

fails cell 'connect("fails", fail)'
like 'the failure' "$(cat "$G/cells/last/error")" 'rank 0: ValueError: half way'
# if the others had connected already, they have failed, too: then nothing is half done, and there is no group, as cells
# have left it
cell 'assert kept == rank
if not dist.is_initialized():
    dist.init_process_group("gloo")
dist.barrier()' || bad "after a failure: $(tail -n 1 "$G/error")"

submit 'connect("stops", stop)'
prints "$G/cells/$n/stream" 'half way'
echo interrupt >"$G/cells/$n/ctl"
like 'the interrupt' "$(wait_cell "$n")" 'state interrupted'
cell 'assert kept == rank
dist.barrier()' || bad "after an interrupt: $(tail -n 1 "$G/error")"
is 'no rank was killed' "$(grep -c 'died\|killafter' "$G/error")" 0

# a network namespace in which nothing is up, not even the loopback interface: nobody waits for half an hour
if unshare -n true 2>/dev/null; then
	mkdir "$T/lo"
	ok unshare -n "$BUILD/ddipfs" -o "size=2,python=$TORCH_PYTHON" "$T/lo"
	fails cell 'x = 1' "$T/lo/group/cell"
	like 'it says what is missing' "$(cat "$T/lo/group/error")" \
		'EHOSTDOWN start: .*nobody can connect to 127.0.0.1: Network is unreachable; is the interface lo up'
	ok umount "$T/lo"
fi
