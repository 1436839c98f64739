#!/usr/bin/env bash
# A failed step leaves DistributedDataParallel in another state on each rank. After the rebuild, the next steps compute
# what those of a new wrapper compute, on all ranks.
. "$(dirname "$0")/../lib.sh"

mount_torch -o "size=4,grace=0.2$([ "${FAKE_CUDA:-}" ] || echo ,gpus=none)"
cell 'import torch, torch.distributed as dist, time
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel as DDP

class Crossed(torch.nn.Module):
    """Gradients come in another order than that of the parameters."""
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.ones(4)), torch.nn.Parameter(torch.ones(4))
    def forward(self, x):
        return ((x * self.a).cumsum(0) * self.b).sum()

def step(model=None):
    model = model or globals()["model"]
    model.zero_grad()
    model(torch.full((4,), rank + 1.0)).backward()
    return [p.grad.tolist() for p in model.module.parameters()]' || give_up 'the definitions'
right='[[10.0, 7.5, 5.0, 2.5], [2.5, 5.0, 7.5, 10.0]]'

# all_right WHAT: two steps of the model, and of a new one
all_right() {
	cell 'one, two, new = step(), step(), step(DDP(Crossed()))' || bad "$1: $(tail -n 1 "$G/error")"
	is "$1" "$(cat "$G"/rank?/vars/{one,two,new} | sort | uniq -c | xargs)" "12 $right"
	is "$1: the processes" "$(rank_pids | xargs)" "$before"
}
before=$(rank_pids | xargs)

# a broadcast of the new buckets, which some ranks get and some do not
cell 'model = DDP(Crossed()); step()'
is 'a failure where buckets are rebuilt' "$(errno write "$G/cell" 'if rank == 3: raise ValueError("on purpose")
step()')" EREMOTEIO
all_right 'buckets that some ranks have rebuilt'

# the first step of a static graph: one rank has not begun it
for times in 0 1 2; do
	cell "model = DDP(Crossed(), static_graph=True)
for _ in range($times): step()"
	is 'a failure in a static graph' "$(errno write "$G/cell" 'if rank == 1: raise ValueError("on purpose")
step()')" EREMOTEIO
	all_right "a static graph after $times steps"
done

# buffers are broadcast before a step, unless no_sync() was in use at the one before
cell 'model = DDP(torch.nn.Sequential(Crossed(), torch.nn.Identity()))
model.module.register_buffer("seen", torch.tensor(float(rank)))
with model.no_sync(): step()'
is 'a failure after no_sync()' "$(errno write "$G/cell" 'if rank == 1: raise ValueError("on purpose")
step()')" EREMOTEIO
all_right 'the step after no_sync()'
is 'buffers are broadcast' "$(value 'model.module.seen.item()' 3)" 0.0

# what was set on the reducer is set on the new one
cell 'hooked = 0
def hook(state, bucket):
    global hooked
    hooked += 1
    return allreduce_hook(state, bucket)
model = DDP(Crossed(), gradient_as_bucket_view=True)
model.register_comm_hook(None, hook)
step()'
is 'a failure with a hook' "$(errno write "$G/cell" 'hooked = 0
if rank == 0: raise ValueError("on purpose")
step()')" EREMOTEIO
all_right 'a communication hook'
like 'the hook is called' "$(value 'hooked' 2)" '^[2-9]'

# a thread of the user's that is in the backward
cell 'import threading
model = DDP(Crossed()); step()
def run():
    try:
        step()
    except RuntimeError:
        pass
thread = threading.Thread(target=run)'
is 'a failure beside a thread in a step' "$(errno write "$G/cell" 'if rank == 3: raise ValueError("on purpose")
thread.start(); thread.join()')" EREMOTEIO
cell 'if thread.is_alive(): thread.join()'
all_right 'a thread that was in a step'

[ "${FAKE_CUDA:-}" ] || exit 0 # the rest needs an accelerator
cell 'from torch.distributed.optim import _apply_optimizer_in_backward
from torch.nn.parallel.distributed import _MixedPrecision
module = Crossed()
_apply_optimizer_in_backward(torch.optim.SGD, module.parameters(), {"lr": 1.0})
model = DDP(module)
def weights():
    with torch.no_grad():
        for p in module.parameters(): p.fill_(1.0)
    model(torch.full((4,), rank + 1.0)).backward()
    return [p.tolist() for p in module.parameters()], [p.grad for p in module.parameters()]
weights()' || bad "optimizers in the backward: $(tail -n 1 "$G/error")"
is 'a failure with optimizers in the backward' "$(errno write "$G/cell" 'if rank == 2: raise ValueError("on purpose")
weights()')" EREMOTEIO
cell 'one, two = weights(), weights()' || bad "optimizers in the backward: $(tail -n 1 "$G/error")"
is 'their weights, and no gradients' "$(cat "$G"/rank?/vars/{one,two} | sort | uniq -c | xargs)" \
	'8 ([[-9.0, -6.5, -4.0, -1.5], [-1.5, -4.0, -6.5, -9.0]], [None, None])'
cell 'model = DDP(Crossed(), mixed_precision=_MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16))
step()' || bad "mixed precision: $(tail -n 1 "$G/error")"
is 'a failure in mixed precision' "$(errno write "$G/cell" 'if rank == 2: raise ValueError("on purpose")
step()')" EREMOTEIO
cell 'step()' # on the fake, the first step of a new wrapper is not right either
all_right 'mixed precision'
