#!/usr/bin/env bash
# The setting `clock`: what counts the steps of a cell, for `steer`, `watch` and `status`.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/steering.sh"

mount_torch -o size=2

clock() {
	key "$G/status" step | sed 's/.*clock=//'
}
# the step of a steer, and what the program counts itself, on both ranks
agrees() {
	is "$1: a steer" "$(steer 'i')" 0
	is "$1: its step" "$(of clock) $(cat "$G"/cells/last/rank?/result | xargs)" "$2 $(of step) $(of step)"
}

is 'by default' "$(key "$G/ctl" clock)" auto
cell 'import time, torch, torch.distributed as dist
from torch.utils.checkpoint import checkpoint
def train(model, opt=None):
    global i
    i, loss, x = 0, torch.nn.MSELoss(), torch.ones(3, 2)
    while go:
        time.sleep(0.01); i += 1
        out = model(x) if opt else checkpoint(model, x, use_reentrant=False)
        loss(out, x).backward()
        with torch.no_grad(): model(x)
        model.eval(); model(x); model.train()
        if opt: opt.step()
def net(): return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
def ddp(): return torch.nn.parallel.DistributedDataParallel(net())
go = True' || give_up 'a cell'

# a plain model without an optimizer
echo 'clock forward' >"$G/ctl"
is 'it shows' "$(key "$G/ctl" clock)" forward
submit 'train(net())'
until_true steps 3
is 'status' "$(clock)" forward
agrees 'a plain model' forward
is 'a watch' "$(errno write "$G/watch" 'i % 10 == 0')" 0
like 'where' "$(cat "$G/watch")" "step=[0-9]*0 clock=forward
ranks 0,1 step [0-9]*0: i % 10 == 0 "
echo "cancel $(head -n 1 "$G/watch" | cut -d ' ' -f 1)" >"$G/ctl"
# of the cells that begin after it
echo 'clock collective' >"$G/ctl"
agrees 'the running cell' forward
over

# DDP is counted once, and an optimizer is not
echo 'clock forward' >"$G/ctl"
submit 'm = ddp(); train(m, torch.optim.SGD(m.parameters(), 0.1))'
until_true steps 3
agrees DDP forward
over
echo 'clock optimizer' >"$G/ctl"
submit 'm = ddp(); train(m, torch.optim.SGD(m.parameters(), 0.1))'
until_true steps 3
agrees 'an optimizer' optimizer
over
echo 'clock collective' >"$G/ctl"
submit 'i = 0; opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
while go: time.sleep(0.01); i += 1; dist.barrier(); opt.step()'
until_true steps 3
agrees 'collectives' collective
over

# a program that goes on after an interrupt, which comes in a forward
echo 'clock forward' >"$G/ctl"
submit 'm, caught = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)), 0
class Slow(torch.nn.Module):
    def forward(self, x):
        if not caught: time.sleep(1000)
        return m(x)
slow, i = torch.nn.Sequential(Slow(), m), 0
while True:
    try: i += 1; time.sleep(0.01); slow(torch.ones(1, 1))
    except KeyboardInterrupt:
        if caught: raise
        caught = 1'
for rank in 0 1; do until_true grep -q ' in forward$' "$G/rank$rank/stack"; done
echo interrupt >"$G/ctl"
until_true steps 3
agrees 'after an interrupt' forward
over

# a model that calls itself, with others before and after that, is counted once
cell 'class Again(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    def forward(self, x, times=3):
        x = self.first(x)
        return self.last(self(x, times - 1) if times else x)
again = Again()' || bad 'a cell'
submit 'i = 0
while True: time.sleep(0.01); i += 1; again(torch.ones(1))'
until_true steps 3
agrees 'a model that calls itself' forward
over

# another model is counted after an interrupt
submit 'class Stuck(torch.nn.Module):
    def forward(self, x):
        print("stuck", flush=True)
        time.sleep(1000)
try: torch.nn.Sequential(torch.nn.Linear(1, 1), Stuck())(torch.ones(1))
except KeyboardInterrupt: i = 1
while True: time.sleep(0.01); i += 1; again(torch.ones(1))'
for rank in 0 1; do until_true grep -q stuck "$G/cells/$n/rank$rank/stdout"; done
echo interrupt >"$G/ctl"
until_true steps 3
agrees 'after an interrupt of another model' forward
over

# nothing is left of it
echo 'clock auto' >"$G/ctl"
cell 'hooks = len(torch.nn.modules.module._global_forward_pre_hooks)' || bad 'a cell'
is "no hooks" "$(cat "$G/vars/hooks.json")" 0

# a new process has it, too
echo 'clock forward' >"$G/ctl"
echo restart >"$G/ctl"
submit 'import time, torch
model, i = torch.nn.Linear(1, 1), 0
while True: time.sleep(0.01); i += 1; model(torch.ones(1))'
until_true steps 3
agrees 'after a restart' forward
over
