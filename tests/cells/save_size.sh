#!/usr/bin/env bash
# `load` by another number of ranks than had saved: what was the same on all ranks comes, the rest is named.
. "$(dirname "$0")/../lib.sh"

mkdir "$T/work"
mount_torch -o "size=2,gpus=none,cwd=$T/work"

ctl() {
	errno write "$G/ctl" "$*"
}

# resize N [BACKEND]
resize() {
	printf '%s\n' stop "size $1" "backend ${2:-auto}" start >"$G/ctl"
	: >"$G/error"
}

cell 'import random, torch
from torch.nn.parallel import DistributedDataParallel as DDP
if rank == 0:
    best = [1.5, "of rank 0 alone"]
    board = {"best": best}
if rank == 1:
    extra = 7
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 3)
    def forward(self, x):
        return self.lin(x)
batch = torch.arange(3.0) + rank
torch.manual_seed(5)
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad(); model(torch.ones(4)).sum().backward(); optimizer.step()
mine, history = f"rank {rank}", [1, 2.5, "three"]
near = {"same": history, "other": batch}
random.seed(rank)
def double(x):
    return 2 * x' || give_up 'the objects'
weights='r = model.module.lin.weight.tolist(), repr(optimizer.state_dict()), history, double(4)'
cell "$weights"
before=$(cat "$G/rank0/vars/r")
cell 'del r'
is 'save' "$(ctl save ck)" 0

for size in 3 1; do
	resize $size
	is "load by $size" "$(ctl load ck)" 0
	like 'what did not come' "$(cat "$G/error")" "ha(s|ve) not: best: rank 1 lacks it; board: rank 1 lacks it; batch: it \
differs on ranks 0 and 1; mine: it differs on ranks 0 and 1; extra: rank 0 lacks it; near: it shares an object with \
batch; the random state of random: it differs on ranks 0 and 1; the random state of numpy: it differs on ranks 0 and 1\$"
	is 'and is not there' "$(cell 'r = [n for n in ("best", "board", "batch", "mine", "near", "extra") if n in globals()]'; cat "$G/vars/r")" '[]'
	cell "$weights" || bad "what came: $(tail -n 1 "$G/error")"
	is 'what came' "$(cat "$G"/rank?/vars/r | sort -u)" "$before"
	is 'each rank has its own numbers' "$(cell 'r = rank, world_size'; cat "$G/rank0/vars/r")" "(0, $size)"
	cell 'for _ in range(2):
    optimizer.zero_grad(); model(torch.ones(4) * rank).sum().backward(); optimizer.step()
r = model.module.lin.weight.tolist()' || bad "it does not train: $(tail -n 2 "$G/error")"
	is 'ranks agree' "$(cat "$G"/rank?/vars/r | sort -u | wc -l)" 1
done

# without torch's process group, and by the size that saved
resize 2 none
is 'without a process group' "$(ctl load ck)" 0
like 'the wrapper can not be made' "$(cat "$G/error")" 'have not: model: .*process group'
is 'all else has come' "$(cell 'r = history[0], batch.tolist(), double(2), extra if rank else best[0]'; cat "$G"/rank?/vars/r | xargs)" \
	'(1, [0.0, 1.0, 2.0], 4, 1.5) (1, [1.0, 2.0, 3.0], 4, 7)'
is 'and is saved' "$(ctl save other)" 0
is 'in a directory with blanks' "$(ctl "save 'it''s one'")" 0
ok test -e "$T/work/it's one/manifest.json"
cell 'import os; os.chdir("/"); del history'
is 'also after chdir' "$(ctl load other)" 0
is 'it has come' "$(cell 'r = history, os.getcwd()'; cat "$G/vars/r")" "([1, 2.5, 'three'], '/')"

# over hosts
printf '%s\n' stop 'env DDIP_EAGER=0' 'hosts a:1 b:1' "launcher sh -c" 'master_addr 127.0.0.1' 'backend auto' start >"$G/ctl"
is 'over hosts' "$(ctl load "$T/work/ck")" 0
is 'save there' "$(ctl save "$T/work/ck")" 0
is 'a directory that is not there' "$(ctl load "$T/work/none")" ENOENT
like 'names its host' "$(tail -n 1 "$G/error")" 'work/none on [ab]: No such file'
