#!/usr/bin/env bash
# Reading changes nothing: a training of which everything is read all the time ends with the numbers of one that nobody
# looks at. Its code calls Python from C, where the interpreter's frames are hardest to walk.
. "$(dirname "$0")/../lib.sh"

mount_torch -o "size=2,cwd=$T"
cat >"$T/train.py" <<'END'
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def pairs(batch):
    """A batch, by way of callbacks."""
    inputs = list(map(lambda each: each[0], sorted(batch, key=lambda each: float(each[0][0]))))
    return torch.stack(inputs), torch.stack([each.sum(0, True) for each in inputs])


def train(epochs):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(256, 16))
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sampler = DistributedSampler(data, seed=3)
    losses = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=16, sampler=sampler, collate_fn=pairs):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            seen = sum(each * 0.5 for each in map(abs, losses[-50:]))
            dist.all_reduce(torch.tensor(seen))
    return losses, model


dist.init_process_group()
losses, model = train(int(sys.argv[1]))
with open(f"{sys.argv[2]}.{dist.get_rank()}", "w") as out:
    print([float(p.double().sum()) for p in model.parameters()], losses[-3:], file=out)
END

# train NAME: begins to train, and sets $run
train() {
	DDIP_MOUNT=$M "$BUILD/ddip" run -f "$T/train.py" "${COUNT:-120}" "$T/$1" >"$T/$1.out" 2>&1 &
	run=$!
}

# observe N: reads all that there is to read, until the training has ended
observe() {
	local -i rounds=0
	while kill -0 "$run"; do
		cat "$G/report" "$G/stall" "$G/stall.json" "$G/cells/last/report.json" "$G"/rank*/stack.all
		cat "$G"/locals/{loss.gather,losses.gather,x.npy} "$G/locals/model.d/module.d/weight.mean.npy"
		ls -lR "$G/locals" "$G/rank1/locals"
		((++rounds))
	done >"$T/read.$1" 2>&1
	echo "$rounds" >"$T/rounds.$1"
}

train alone
wait "$run" || give_up "nobody looks: $(cat "$T/alone.out")"
train seen
until_true grep -qs 'train.py' "$G/rank0/stack"
observe 1 &
observe 2 &
wait "$run" || bad "everybody looks: $(cat "$T/seen.out" "$G/error")"
wait
[ -s "$T/alone.0" ] || bad 'nothing to compare'
for rank in 0 1; do is "rank $rank" "$(cat "$T/seen.$rank")" "$(cat "$T/alone.$rank")"; done
[ "$(cat "$T"/rounds.* | sort -n | head -n 1)" -ge 1 ] || bad "hardly anything was read: $(cat "$T"/rounds.*)"
for what in 'in train' 'tensor(' losses; do
	grep -aqF "$what" "$T/read.1" || bad "nothing that was read has '$what': $(head -c 2000 "$T/read.1")"
done
