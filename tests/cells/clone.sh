#!/usr/bin/env bash
# The verb `clone`: a rank's variables come to others, shared objects stay shared, and models and optimizers stay the
# same objects where the other rank has them.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/classes.sh"

export XDG_CACHE_HOME=$T/cache
mount_torch -o "size=3,grace=0.5,gpus=none"

clone() {
	errno write "$G/ctl" "clone $*"
}

cell "$classes"'

def step():
    optimizer.zero_grad()
    loss = ddp(torch.arange(4.0) + rank).square().sum()
    loss.backward()
    optimizer.step()
    return loss.item()

def flat():
    return torch.cat([p.detach().flatten() for p in model.parameters()])

def digest():
    state = [v for each in optimizer.state.values() for v in each.values()]
    return [t.double().sum().item() for t in (*model.state_dict().values(), *state)]' || give_up 'the definitions'

before=$(rank_pids | xargs)

# rank 0 has it all; rank 1 has the same model and optimizer with other numbers; rank 2 has nothing
cell 'scale = 2.0
torch.manual_seed(rank)
model = Net()
ddp = DDP(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
losses = [step() for _ in range(3)]' || give_up 'the training'
cell 'if rank == 0:
    torch.manual_seed(5); random.seed(6); np.random.seed(7)
    config = Config(0.5, ["a"]); same = config; mode = Mode.B; half = lambda x: x * scale
    def outer():
        count = 0
        def inner():
            nonlocal count
            count += 1
            return inner, count
        return inner
    counter = outer()
    _hidden = 3; array = np.arange(5); whole = torch.arange(6); part = whole[2:4]; scale = 3.0
    cycle = []; cycle.append(cycle); device = torch.device("cpu"); pg = torch.distributed.group.WORLD
    log = open("/dev/null", "w"); gen = (i for i in range(3)); lock = {"inner": threading.Lock()}
    class Locked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.lock = torch.nn.Parameter(torch.ones(2)), threading.Lock()
    locked = Locked()
    optimizer.param_groups[0]["lr"] = 0.25
    with torch.no_grad():
        model.lin.weight.fill_(1.5)
    model.lin.bias.grad = torch.full((3,), 9.0)
elif rank == 1:
    ids = [id(model), id(ddp), id(optimizer), id(Net), *map(id, model.parameters()), *map(id, model.buffers())]
    kept = model.lin.weight, model
else:
    del model, ddp, optimizer, Net, np' || give_up 'the differences'

: >"$G/error"
is 'clone' "$(clone 0 1)" 0
is 'what could not be copied' "$(grep -c 'rank 1 has not: .*log: an open file.*gen: cannot pickle .*generator.*lock\[.inner.\]: cannot pickle' "$G/error")" 1
is 'and of a module' "$(grep -c 'locked: locked.lock: cannot pickle' "$G/error")" 1
on1() {
	errno write "$G/rank1/cell" "$1" >"$T/errno"
	[ "$(cat "$T/errno")" = 0 ] || tail -n 3 "$G/rank1/stderr" >&2
	cat "$G/rank1/vars/r"
}
is 'they are the same objects' "$(on1 'r = ids == [id(model), id(ddp), id(optimizer), id(Net), *map(id, model.parameters()), *map(id, model.buffers())]')" True
is 'also elsewhere' "$(on1 'r = kept[0] is model.lin.weight and kept[1] is model and ddp.module is model and kept[0].min().item()')" 1.5
is 'the optimizer has them' "$(on1 'r = [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in model.parameters()] and all(p in optimizer.state for p in model.parameters())')" True
is 'its settings' "$(on1 'r = optimizer.param_groups[0]["lr"]')" 0.25
is 'a gradient' "$(on1 'r = model.lin.bias.grad.tolist()')" '[9.0, 9.0, 9.0]'
is 'variables' "$(on1 'r = (config.lr, same is config, mode is Mode.B, half(2), _hidden, int(array.sum()), scale, type(config) is Config)')" "(0.5, True, True, 6.0, 3, 10, 3.0, True)"
is 'globals are those of the rank' "$(on1 'scale = 7; r = half(2)')" 14
is 'a closure' "$(on1 'r = counter()[0] is counter and counter()[1]')" 2
is 'views share memory' "$(on1 'whole[2] = 50; r = part.tolist()')" '[50, 3]'
is 'a circle' "$(on1 'r = cycle[0] is cycle and pg is torch.distributed.group.WORLD')" True
is 'numbers of the rank' "$(on1 'r = rank, local_rank, world_size')" '(1, 1, 3)'
is 'a traceback has lines' "$(errno write "$G/rank1/cell" 'half(None)'; grep -c 'half = lambda x' "$G/traceback")" "EREMOTEIO
1"
cell 'r = digest()' 2>/dev/null
is 'the numbers' "$(cat "$G/rank1/vars/r.json")" "$(cat "$G/rank0/vars/r.json")"
is 'random numbers' "$(errno write "$G/ctl" 'clone 0 1'; echo 'r = random.random(), float(np.random.rand()), torch.rand(1).item()' >"$G/cell.0-1"; cmp "$G/rank0/vars/r" "$G/rank1/vars/r" && echo same)" "0
same"

# a new wrapper: all ranks get new reducers, and the training goes on
is 'to all' "$(clone 0 all)" 0
is 'what a rank lacked' "$(errno write "$G/rank2/cell" 'r = ddp.module is model and optimizer.param_groups[0]["params"][0] is model.lin.weight and np is sys.modules["numpy"]'; cat "$G/rank2/vars/r")" "0
True"
cell 'losses = [step() for _ in range(3)]; r = digest()' || bad "the training does not go on: $(tail -n 2 "$G/error")"
is 'ranks agree' "$(cat "$G"/rank?/vars/r.json | sort -u | wc -l)" 1
is 'nobody was replaced' "$(rank_pids | xargs)" "$before"

# what cannot be made on the other rank takes with it only what shares it
cell 'import os, time
class Picky:
    def __setstate__(self, fields):
        act(self, fields)
def act(self, fields):
    if rank == 1: raise ValueError("not here")
picky = Picky(); picky.array = np.arange(3); shares = [picky]; fine = np.arange(4)' || give_up 'objects that refuse'
cell 'if rank: del picky, shares, fine, config'
: >"$G/error"
is 'what refuses' "$(clone 0 1)" 0
is 'and what shares it' "$(grep -c 'picky: ValueError: not here; shares: it shares an object with picky' "$G/error")" 1
is 'all else is there' "$(on1 'r = fine.tolist(), config.lr, "picky" in globals()')" '([0, 1, 2, 3], 0.5, False)'
is 'the other rank has it' "$(clone 0 2; errno write "$G/rank2/cell" 'r = shares[0] is picky'; cat "$G/rank2/vars/r")" "0
0
True"

# an interrupt, before anything has changed; then deaths
cell 'picky = shares = None
class Slow:
    def __reduce__(self):
        time.sleep(1000)
slow = Slow() if rank == 0 else 1' || give_up 'an object that takes long'
clone 0 1 >"$T/outcome" &
writer=$!
until_true grep -q '^clone.* state=running' "$G/queue"
is 'it waits' "$(grep -c . "$G/queue")" 1
echo interrupt >"$G/ctl"
wait "$writer"
is 'an interrupt' "$(cat "$T/outcome")" EINTR
is 'nothing has changed' "$(on1 'r = slow')" 1
cell 'del slow
class Deadly:
    def __setstate__(self, fields):
        if rank == 2: os._exit(3)
deadly, late = Deadly(), rank
deadly.x = 1' || give_up 'an object that kills'
is 'a rank that dies' "$(clone 0 all)" EHOSTDOWN
is 'the other has got it' "$(on1 'r = late')" 0
cell 'pass'
cell 'class Deadly:
    def __reduce__(self): os._exit(4)
deadly, late = Deadly(), rank' || give_up 'an object that kills the first rank'
is 'the first rank dies' "$(clone 0 1)" EHOSTDOWN
is 'nothing has changed then' "$(on1 'r = late')" 1

# without a process group
cell pass
echo stop >"$G/ctl"
printf "backend none\nstart\n" >"$G/ctl"
cell 'x = [rank]' || give_up 'without a process group'
is 'backend none' "$(clone 2 0 1; cat "$G"/rank?/vars/x | xargs)" '0
[2] [2] [2]'

# over hosts: the bytes come from a relay, and go to one
printf '%s\n' stop 'hosts a:2 b:1' "launcher sh -c" 'master_addr 127.0.0.1' 'backend auto' start >"$G/ctl"
cell 'import torch
torch.manual_seed(rank)
big, net = torch.rand(3000000), torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))' || give_up 'several hosts'
sum='r = float(big.double().sum()), big is here, net.module.weight.tolist()'
cell "here = big; $sum"
from=$(cat "$G/rank2/vars/r")
is 'from another host' "$(clone 2 0 1; cell "$sum"; cat "$G"/rank?/vars/r | sort -u)" "0
$from"
cell 'here = big = torch.rand(3000000) + rank'
cell "$sum"
is 'to another host' "$(clone 1 2; cell "$sum"; cmp "$G/rank1/vars/r" "$G/rank2/vars/r" && echo same)" '0
same'
is 'is told' "$(cat "$G/error" | grep -c 'rank . has not: here')" 0
