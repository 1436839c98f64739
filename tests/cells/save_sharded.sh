#!/usr/bin/env bash
# `save DIR` and `load DIR` of what is sharded over the ranks: each rank keeps its shards, and loads them into the sharded
# module that is there; what does not fit is named, with what would do.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/steering.sh"
ddip=$BUILD/ddip
export DDIP_MOUNT=$PLACE

mkdir "$T/work"
cd "$T/work" || give_up 'a directory'
mount_torch -o "size=2,gpus=none,cwd=$T/work"

ctl() {
	errno write "$G/ctl" "$*"
}

restart() {
	echo "restart" >"$G/ctl"
	: >"$G/error"
}

made='import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width)
        self.last, self.calls = torch.nn.Linear(width, 3), 0
    def forward(self, x):
        self.calls += 1
        return self.last(self.norm(self.first(x)).relu())
def build(width=7):
    mesh, net = init_device_mesh("cpu", (2,)), Net(width)
    fully_shard(net.first, mesh=mesh)
    return mesh, fully_shard(net, mesh=mesh)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(5, 4)).square().mean().backward()
        optimizer.step()
def numbers():
    shards = [p.to_local().tolist() for p in net.parameters()]
    states = [[v.to_local().tolist() if hasattr(v, "to_local") else v.item() for v in optimizer.state[p].values()]
              for p in net.parameters()]
    return shards, states, net.norm.running_mean.tolist(), net.calls'
built='mesh, net = build()
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)'
now() {
	cell 'r = numbers()' || bad "the numbers: $(cat "$G/traceback")"
	cat "$G/rank0/vars/r.json" "$G/rank1/vars/r.json" >"$1"
}

cell "$made" || give_up "what trains: $(cat "$G/traceback")"
cell "torch.manual_seed(5)
$built
torch.manual_seed(9 + rank)
train(3)
split = distribute_tensor(torch.arange(5.0), mesh, [Shard(0)])
whole = distribute_tensor(torch.arange(3), mesh, [Replicate()])" || give_up "the training: $(cat "$G/traceback")"
now "$T/saved"
is 'save' "$(ctl save ck)" 0
is 'all of it' "$(cat "$G/error" "$T/work/ck/lost" 2>/dev/null)" ''
cell 'train(3)'
now "$T/later"
fails cmp -s "$T/saved" "$T/later"

# in place, and in a module that has been made again in new processes
cell 'ids = [id(p) for p in net.parameters()], id(net), id(optimizer); held = split
with torch.no_grad(): split.to_local().zero_()'
is 'load' "$(ctl load ck)" 0
is 'all of it' "$(cat "$G/error")" ''
now "$T/now"
ok cmp "$T/saved" "$T/now"
is 'the same objects' "$(cell 'r = ids == ([id(p) for p in net.parameters()], id(net), id(optimizer)), held is split, split.to_local().tolist()'; cat "$G"/rank?/vars/r | xargs)" \
	'(True, True, [0.0, 1.0, 2.0]) (True, True, [3.0, 4.0])'
cell 'train(3)'
now "$T/now"
ok cmp "$T/later" "$T/now"
restart
cell "$made
$built" || give_up "made again: $(cat "$G/traceback")"
is 'after a restart' "$(ctl load ck)" 0
is 'all of it' "$(cat "$G/error")" ''
now "$T/now"
ok cmp "$T/saved" "$T/now"
is 'tensors of no module' "$(cell 'r = split.full_tensor().tolist(), whole.to_local().tolist(), split.device_mesh is mesh'; cat "$G"/rank?/vars/r | sort -u)" \
	'([0.0, 1.0, 2.0, 3.0, 4.0], [0, 1, 2], True)'
cell 'train(3)'
now "$T/now"
ok cmp "$T/later" "$T/now"

# what does not fit is named, and left alone
restart
is 'nothing is there' "$(ctl load ck)" 0
like 'is told' "$(cat "$G/error")" 'net: net is not here: make the sharded module first, and load then'
like 'of a mesh' "$(cat "$G/error")" 'mesh: no mesh over ranks \[0, 1\] \(cpu\) is here'
is 'all else has come' "$(value 'Net.__name__, "net" in globals(), "optimizer" in globals()')" "('Net', False, False)"
cell "$made
net = Net(7)" || bad 'a module that is not sharded'
: >"$G/error"
is 'it is not sharded' "$(ctl load ck)" 0
like 'is told' "$(cat "$G/error")" 'net: net was a FSDPNet, and is a Net here: make the module as it was when it was saved'
cell "${built/build()/build(8)}
train(1)" || bad 'another width'
now "$T/wide"
: >"$G/error"
is 'it has another width' "$(ctl load ck)" 0
like 'is told' "$(cat "$G/error")" 'net: .*its shape was \(7, 4\), and is \(8, 4\) here: make the module as it was'
like 'and its optimizer' "$(cat "$G/error")" 'optimizer: it shares an object with net$'
now "$T/now"
ok cmp "$T/wide" "$T/now"
cell "$built
net.more = torch.nn.ReLU()"
: >"$G/error"
is 'it has more in it' "$(ctl load ck)" 0
like 'is told' "$(cat "$G/error")" 'net: what it has was first,norm,last, and is first,norm,last,more here: make .*optimizer: it shares an object with net$'
printf '%s\n' stop 'size 1' start >"$G/ctl"
: >"$G/error"
is 'one rank' "$(ctl load ck)" 0
like 'is told' "$(cat "$G/error")" 'net: it is sharded over the ranks: load it in a group of 2 ranks'
printf '%s\n' stop 'size 2' start >"$G/ctl"

# on meshes of two dimensions, and of tensor parallelism
parallel='from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, 6), torch.nn.Linear(6, 3)
    def forward(self, x):
        return self.down(self.up(x).relu())
def pair(dims, names, sharded):
    mesh, net = init_device_mesh("cpu", dims, mesh_dim_names=names), Pair()
    if "tp" in names:
        parallelize_module(net, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return mesh, fully_shard(net, mesh=mesh[sharded]) if sharded else net
def train_pair(steps):
    for step in range(steps):
        torch.manual_seed(step)
        optimizer.zero_grad()
        net(torch.randn(5, 4)).square().mean().backward()
        optimizer.step()
    local = [each for p in net.parameters() for each in (p, *optimizer.state[p].values())]
    return [each.to_local().tolist() if hasattr(each, "to_local") else each.tolist() for each in local]'
for kind in '(2, 1), ("r", "s"), ("r", "s")' '(1, 2), ("r", "s"), ("r", "s")' '(2,), ("tp",), None' '(2, 1), ("dp", "tp"), "dp"'; do
	restart
	made_again="$made
$parallel
mesh, net = pair($kind)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, foreach=False)"
	cell "$made_again
saved = train_pair(2)" || bad "$kind: $(cat "$G/traceback")"
	is "$kind: save" "$(ctl save "mesh")" 0
	cell 'later = train_pair(2)'
	is "$kind: load" "$(ctl load mesh) $(value 'saved != later, train_pair(0) == saved')" '0 (True, True)'
	cat "$G"/rank?/vars/later.json >"$T/later"
	restart
	cell "$made_again" || bad "$kind: $(cat "$G/traceback")"
	is "$kind: load in new processes" "$(ctl load mesh) $(value 'train_pair(0) == saved')" '0 True'
	cell 'later = train_pair(2)'
	ok cmp "$T/later" <(cat "$G"/rank?/vars/later.json)
	is "$kind: all of it" "$(cat "$G/error")" ''
done

# parameters that are gathered, and FSDP1
cell "$made
$built
train(2)
with torch.no_grad(): net(torch.ones(2, 4))"
: >"$G/error"
is 'gathered' "$(ctl save other)" 0
like 'is told' "$(cat "$G/error")" 'net: .*its parameters are gathered since a forward pass: save at a step of the optimizer, or after reshard\(\)'
is 'nor loaded' "$(ctl load ck)" 0
like 'is told' "$(tail -n 1 "$G/error")" 'net: its parameters are gathered since a forward pass: load at a step of the optimizer'
cell 'net.reshard()'
is 'load' "$(ctl load ck)" 0
now "$T/now"
ok cmp "$T/saved" "$T/now"
cell 'from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
flat = FSDP(torch.nn.Linear(2, 2), device_id=torch.device("cpu"))'
: >"$G/error"
is 'FSDP1' "$(ctl save other)" 0
like 'is told' "$(cat "$G/error")" "flat: .*flat parameters can't be saved: use fully_shard\(\)"
cell 'del flat'

# what has sharded parts, and others that cannot be kept
cell 'class Trainer:
    def __init__(self):
        self.net, self.optimizer, self.lines = net, optimizer, (line for line in "ab")
trainer = Trainer()
kept = numbers()
del net, optimizer, mesh'
is 'save' "$(ctl save trained)" 0
cell 'net, optimizer = trainer.net, trainer.optimizer
train(1)
changed = numbers() != kept
del net, optimizer'
is 'load' "$(ctl load trained)" 0
like 'is told' "$(tail -n 1 "$G/error")" 'trainer: only its tensors were copied, not trainer.lines: cannot pickle'
cell 'net, optimizer = trainer.net, trainer.optimizer'
is 'its shards' "$(value 'changed, [one == other for one, other in zip(numbers(), kept)]' 1)" '(True, [True, True, True, False])'
cell 'mesh = init_device_mesh("cpu", (2,))'

# to other ranks nothing sharded is copied
is 'clone' "$(ctl clone 0 1)" 0
like 'is told' "$(tail -n 1 "$G/error")" 'net: .*sharded over the ranks: each rank has a part of its own'

# while a program runs
program() {
	guarded "$ddip" run -f "$ROOT/tests/cells/save_sharded.py" "$@"
}
optimizer_steps() {
	[[ "$(key "$G/status" step)" =~ ^([0-9]+)" clock=optimizer" ]] && ((BASH_REMATCH[1] >= $1))
}
program 100 0 | sort >"$T/undisturbed" || give_up "the program: $(tail "$T/undisturbed")"
like 'it trains' "$(cat "$T/undisturbed")" '^0 100 '
program 100 0.3 >"$T/killed" 2>&1 &
running=$!
until_true optimizer_steps 3
is 'save at a step' "$(guarded "$ddip" save at 2>&1)" ''
kill -9 "$(rank_pids | tail -n 1)"
fails wait $running
program 100 0.3 >"$T/again" 2>&1 &
running=$!
until_true optimizer_steps 2
is 'load at a step' "$(guarded "$ddip" load at 2>&1)" ''
is 'on' "$(steer 'pause = 0')" 0
wait $running || bad "the program: $(tail "$T/again")"
is 'the numbers of an undisturbed run' "$(sort "$T/again")" "$(cat "$T/undisturbed")"

# within a pass, the shards are not what a step goes on with
echo 'clock collective' >"$G/ctl"
program 10000 0.1 >"$T/passes" 2>&1 &
running=$!
until_true steps 8
like 'within a pass' "$(guarded "$ddip" save pass 2>&1)" 'model: it is within a forward or backward pass: save at a step of the optimizer'
echo interrupt >"$G/ctl"
wait $running
is 'it is interrupted' $? 130
