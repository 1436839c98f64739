#!/usr/bin/env bash
# The verdict of `stall` on groups over NCCL, whose operations go on while Python does: by torch's flight recorder.
. "$(dirname "$0")/lib.sh"
HANG_LIMIT_S=60

mount_torch -o backend=nccl,size=2,stall=off,grace=off
cell 'import re, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
def ones(n=4):
    return torch.ones(n, device="cuda")
def spin():
    while True: pass
model = DistributedDataParallel(torch.nn.Linear(4, 4).cuda())
dist.all_reduce(ones())' || give_up 'the first cell'

late='^rank 1 is in no collective \(<cell [0-9]+>:[0-9]+\); '
verdict 'a rank computes' "${late}all_reduce [0-9]+ of rank 0 waits for it \(<cell [0-9]+>:3\)$" 'if rank == 0:
    dist.all_reduce(ones())
    torch.cuda.synchronize()
else:
    spin()'
verdict 'Python waits' "${late}rank 0 waits for it in barrier [0-9]+ " 'if rank == 0:
    dist.barrier()
else:
    spin()'
verdict 'a bucket of backward' "${late}all_reduce [0-9]+ of rank 0 waits for it " 'if rank == 0:
    model(torch.ones(2, 4, device="cuda")).sum().backward()
    torch.cuda.synchronize()
else:
    spin()'
verdict 'C code that holds the GIL' "${late}all_reduce [0-9]+ of rank 0 waits for it " 'if rank == 0:
    dist.all_reduce(ones())
    torch.cuda.synchronize()
else:
    re.match("(a|aa)+$", 100 * "a" + "b")'
silent 'what all have passed' '^0 .* seconds=[2-9].* in=- .*at=<cell [0-9]+>:4' 'dist.broadcast(ones(), 1)
if rank == 1: spin()
torch.cuda.synchronize()
time.sleep(1000)'
