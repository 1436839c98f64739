#!/usr/bin/env bash
# torch's process group over NCCL when a rank raises, hangs or dies, or a call of NCCL fails, while others are in a collective.
. "$(dirname "$0")/lib.sh"

again() {
	! mountpoint -q "$M" || unmount
	export FAKE_NCCL=$*
	mount_torch -o backend=nccl,size=2,grace=0.3
	cell 'import ctypes, os, time, torch, torch.distributed as dist, fake_cuda
kept, t = torch.full((3,), rank + 1.0, device="cuda"), torch.ones(1 << 16, device="cuda")
def enter():
    print("in", flush=True)
    dist.all_reduce(t)
    torch.cuda.synchronize()'
}

pids() {
	echo "$(key "$G/rank0/status" pid) $(key "$G/rank1/status" pid)"
}

# all_is_well WHAT: the process group works, in the same processes, with all variables
all_is_well() {
	cell 's = torch.full((1,), rank + 1.0, device="cuda"); dist.all_reduce(s)' || bad "$1: an all_reduce"
	is "$1: the sum" "$(value 's.item()' 0) $(value 's.item()' 1)" '3.0 3.0'
	is "$1: the variables" "$(value 'kept.tolist()' 1)" '[2.0, 2.0, 2.0]'
	is "$1: the processes" "$(pids)" "$before"
}

# waits_in CELL RANK…: until these ranks are about to enter the collective
waits_in() {
	local k
	for k in "${@:2}"; do
		until_true grep -q in "$G/cells/$1/rank$k/stdout"
	done
}

again
before=$(pids)
is 'NCCL is that of torch' "$(value 'dist.get_backend(), torch.cuda.nccl.version() > (2, 20)')" "('nccl', True)"
all_is_well 'at first'

fails cell 'if rank == 1: raise ValueError("the cause")
enter()'
like 'the cause is shown' "$(cat "$G/traceback")" 'ValueError: the cause'
all_is_well 'after a rank raised'

submit 'if rank == 1: print("in", flush=True); time.sleep(1000)
enter()'
waits_in "$n" 0 1
echo interrupt >"$G/ctl"
is 'an interrupt' "$(wait_cell "$n" | key /dev/stdin state)" interrupted
all_is_well 'after an interrupt'

# a rank waits for its stream with the interpreter's lock held: only C can end the collective
submit 'if rank == 1: print("in", flush=True); time.sleep(1000)
print("in", flush=True)
dist.all_reduce(t)
ctypes.PyDLL("libcudart.so.13").cudaDeviceSynchronize()'
waits_in "$n" 0 1
waits_with_the_lock() {
	guarded grep -q "^0 .* at=<cell $n>:4" "$G/stall"
}
until_true waits_with_the_lock
echo interrupt >"$G/ctl"
is 'an interrupt of a rank that holds the lock' "$(wait_cell "$n" | key /dev/stdin state)" interrupted
like 'its communicator was revoked' "$(value 'fake_cuda.nccl().fake_nccl_revoked()')" '^[1-9]'
all_is_well 'after that'

# on one rank, the collective is behind a kernel that ends after the interrupt
mkfifo "$T/release"
cell "import threading
def hold():
    fake_cuda.runtime().fake_cuda_hold(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    threading.Thread(target=lambda: (open('$T/release').close(), fake_cuda.runtime().fake_cuda_release())).start()"
submit 'if rank == 0: hold()
enter()'
waits_in "$n" 0 1
echo interrupt >"$G/ctl"
: >"$T/release"
is 'an interrupt behind a kernel' "$(wait_cell "$n" | key /dev/stdin state)" interrupted
all_is_well 'after the kernel'

# a call of NCCL that fails on one rank
cell 'fake_cuda.nccl().fake_nccl_fail(b"ncclAllReduce", 3, 0, 1)' "$G/rank1/cell"
fails cell 'enter()'
like 'error has the text of NCCL' "$(cat "$G/error")" 'rank 1: .*(NCCL|internal error)'
all_is_well 'after a call that failed'

# DDP: a rank dies in the middle of a step
cell 'from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(4, 2).cuda())
def step():
    model.zero_grad()
    model(torch.full((3, 4), rank + 1.0, device="cuda")).sum().backward()
    return model.module.weight.grad.sum().item()
first = step()'
is 'gradients are averaged' "$(value 'first' 0) $(value 'first' 1)" '36.0 36.0'
pid=$(key "$G/rank1/status" pid)
submit 'if rank == 1: print("in", flush=True); time.sleep(1000)
print("in", flush=True)
step()'
waits_in "$n" 0 1
kill -9 "$pid"
is 'a rank dies' "$(wait_cell "$n" | key /dev/stdin state)" lost
is 'the other one keeps its variables' "$(value 'first')" 36.0
ok cell 'import torch, torch.distributed as dist
s = torch.ones(1, device="cuda"); dist.all_reduce(s)'
is 'and they meet again' "$(value 's.item()' 1)" 2.0

# a link on which nothing arrives
again
before=$(pids)
cell 'fake_cuda.nccl().fake_nccl_word(b"hang=1-0")'
submit 'enter()'
waits_in "$n" 0 1
echo interrupt >"$G/ctl"
is 'an interrupt where nothing arrives' "$(wait_cell "$n" | key /dev/stdin state)" interrupted
is 'in the same processes' "$(pids)" "$before"

# the self-test, which has a communicator of its own; a link that corrupts
again
is 'the self-test' "$(errno fsync "$G/ctl" $'selftest 4K\n')" 0
again 'wrong=1-0'
is 'a link that brings something else' "$(errno fsync "$G/ctl" $'selftest 4K\n')" EREMOTEIO
like 'is named' "$(cat "$G/selftest")" $'\nwrong rank=0 from=1 size=4096 elements='
