#!/usr/bin/env bash
# The verb `clone` puts what one rank has on its GPU on the GPU of the other rank.
. "$(dirname "$0")/lib.sh"

mount_torch -o size=2
cell 'import torch
from torch.nn.parallel import DistributedDataParallel as DDP
device = torch.device("cuda", local_rank)
torch.cuda.set_device(device)

def begin():
    global model, ddp, optimizer
    model = torch.nn.Linear(4, 4).to(device)
    ddp = DDP(model, device_ids=[local_rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

def step():
    optimizer.zero_grad()
    ddp(torch.ones(2, 4, device=device) * (rank + 1)).sum().backward()
    optimizer.step()

def facts():
    tensors = [*model.parameters(), *(t for s in optimizer.state.values() for t in s.values())]
    return [t.cpu().tolist() for t in tensors]

def places():
    return {t.device.index for t in model.parameters()} | {s["exp_avg"].device.index for s in optimizer.state.values()}

begin()
step()
x = torch.arange(4, device=device) + rank' || give_up 'the training'
cell 'if rank:
    with torch.no_grad():
        model.weight.fill_(7)
    here = model.weight, ddp'
is 'in place' "$(errno write "$G/ctl" 'clone 0 1')" 0
cell 'r = facts(), x.tolist()
place = places(), x.device.index, device.index' || bad 'after the clone'
is 'the numbers' "$(cat "$G"/rank?/vars/r | sort -u | wc -l)" 1
is 'their places' "$(cat "$G"/rank?/vars/place | xargs)" '({0}, 0, 0) ({1}, 1, 1)'
is 'the same objects' "$(echo 'r = here[0] is model.weight and here[1] is ddp' >"$G/rank1/cell"; cat "$G/rank1/vars/r")" True
cell 'step(); r = facts()' || bad 'the next step'
is 'they agree' "$(cat "$G"/rank?/vars/r | sort -u | wc -l)" 1

echo 'del model, ddp, optimizer, x, here' >"$G/rank1/cell"
is 'to a rank that has none' "$(errno write "$G/ctl" 'clone 0 1')" 0
cell 'place = places(), x.device.index, ddp.device_ids
step(); r = facts()' || bad 'a new wrapper'
is 'they agree again' "$(cat "$G"/rank?/vars/r | sort -u | wc -l)" 1
is 'new places' "$(cat "$G"/rank?/vars/place | xargs)" '({0}, 0, [0]) ({1}, 1, [1])'
