#!/usr/bin/env bash
# The inside of models, optimizers, schedules and data frames is directories, whose files are whole: what find lists, tar
# keeps and diff compares are the tensors themselves.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2
cell 'import torch
torch.manual_seed(7)
parts = [torch.nn.Linear(8, 8) for i in range(149)] + [torch.nn.BatchNorm1d(8)]
model = torch.nn.Sequential(*parts)
small = torch.nn.Linear(3, 1, dtype=torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
held = {"w": torch.full((2000,), float(rank)), "same": torch.arange(2000)}
held["w"][1000] = 5'
find "$G/vars/model.d" -type f -printf '%f\n' | sed 's/\.npy$//' | sort >"$T/found"
cell 'print(*model.state_dict(), sep="\n")' "$G/rank0/cell"
sort "$G/cells/last/rank0/stdout" | cmp - "$T/found" || bad 'the names of the state dict'
L=$G/vars/model.d
is 'a parameter' "$("$TORCH_PYTHON" -c "
import numpy, sys
print(numpy.load(sys.argv[1]).shape, numpy.load(sys.argv[1], mmap_mode='r').dtype)" "$L/3.weight.npy")" '(8, 8) float32'
is 'over the ranks' "$(cat "$L/3.bias.mean.json")" "$(cat "$L/3.bias.json")"
is 'a buffer' "$(cat "$L/149.num_batches_tracked" "$L/149.num_batches_tracked.sum" | xargs)" '1 2'
is 'a module in it' "$(ls "$L/149.d" | wc -l) $(cat "$L/149.training")" '5 True'
is 'its state' "$("$TORCH_PYTHON" -c "
import json, sys
with open(sys.argv[1], 'rb') as f:
    head = json.loads(f.read(int.from_bytes(f.read(8), 'little')))
print(*sorted(head.keys() - {'__metadata__'}))" "$L/3.safetensors")" 'bias weight'
is 'an optimizer' "$(cat "$G/rank1/vars/optimizer.d/param_groups.d/0.d/lr" "$G/vars/optimizer.d/state.d/0.d/step" | xargs)" '0.25 1.0'
is 'its state' "$(ls "$G/vars/optimizer.d/state.d/0.d" | xargs)" 'exp_avg.npy exp_avg_sq.npy step.npy'
is 'a schedule' "$(cat "$G/vars/schedule.d/_last_lr.d/0")" 0.25
is 'a type that NumPy lacks' "$(ls "$G/vars/small.d" | xargs)" 'bias.safetensors weight.safetensors'

tar -cf "$T/tar" -C "$G/vars" model.d || bad tar
tar -xOf "$T/tar" model.d/3.weight.npy | cmp - "$L/3.weight.npy" || bad 'what tar got'
diff -r "$G/rank0/vars/model.d" "$G/rank1/vars/model.d" >"$T/diff" || bad "diff of equal models: $(head -n 2 "$T/diff")"
is 'diff sees each element' "$(diff -rq "$G/rank0/vars/held.d" "$G/rank1/vars/held.d" | wc -l)" 1
like 'which one' "$(diff -rq "$G/rank0/vars/held.d" "$G/rank1/vars/held.d")" 'held.d/w.npy'
guarded du -a "$L" >"$T/du" || bad du
is 'du' "$(wc -l <"$T/du")" 304

# data frames, where there is pandas
if [ "$(value '__import__("importlib.util").util.find_spec("pandas") is not None')" = True ]; then
	cell 'import pandas
frame = pandas.DataFrame({"loss": [0.1 * rank, 2], "a/b": ["x", "y"]})'
	echo '[7, 8]' >"$G/vars/frame.d/new.json"
	echo '[0.5, 2]' >"$G/rank1/vars/frame.d/loss.json"
	is 'columns are set' "$(value 'frame.new.tolist()') $(cat "$G"/rank?/vars/frame.d/loss.json | xargs)" '[7, 8] [0.0, 2.0] [0.5, 2.0]'
	cell 'del frame["new"]
frame["loss"] = [0.1 * rank, 2]'
	is 'columns' "$(ls "$G/vars/frame.d" | xargs) $(cat "$G/rank1/vars/frame.d/loss.csv" | xargs)" 'a%2Fb.csv loss.csv loss 0.1 2.0'
fi

# one layer is loaded in place on all ranks; the optimizer goes on with it
"$TORCH_PYTHON" - "$T" <<'END2'
import sys, numpy, torch
numpy.save(sys.argv[1] + "/layer.npy", numpy.full((8, 8), 0.5))
numpy.save(sys.argv[1] + "/other.npy", numpy.zeros((8, 9)))
torch.save({"weight": torch.full((8, 8), 0.25), "bias": torch.zeros(8)}, sys.argv[1] + "/part.pt")
END2
cell 'weight, average, before = model[3].weight, optimizer.state[model[3].weight]["exp_avg"], model[5].weight.tolist()'
cp "$T/layer.npy" "$L/3.weight.npy" || bad 'a layer'
cp "$T/layer.npy" "$G/vars/optimizer.d/state.d/6.d/exp_avg.npy" || bad 'a state'
cp "$T/part.pt" "$L/4.pt" || bad 'a module in it'
echo 0.125 >"$G/vars/optimizer.d/param_groups.d/0.d/lr"
echo 7 >"$L/149.num_batches_tracked"
echo False >"$G/rank1/vars/model.d/149.training"
is 'in place, on all ranks' "$(cell 'r = [model[3].weight is weight, optimizer.state[weight]["exp_avg"] is average, weight.dtype, weight.requires_grad,
     *(t.mean().item() for t in (weight, average, model[4].weight)), optimizer.param_groups[0]["lr"],
     model[149].num_batches_tracked.item(), model[5].weight.tolist() == before]'
	cat "$G"/rank?/vars/r | sort -u)" '[True, True, torch.float32, True, 0.5, 0.5, 0.25, 0.125, 7, True]'
is 'on one rank' "$(cat "$L/149.training.gather")" '[True, False]'
fails cp "$T/other.npy" "$L/3.weight.npy"
like 'another shape' "$(tail -n 1 "$G/error")" 'EINVAL model.d/3.weight: model.d/3.weight is a tensor of shape \(8, 8\), not \(8, 9\)$'
is 'an optimizer numbers its states' "$(errno write "$G/vars/optimizer.d/state.d/0" 1)" EOPNOTSUPP
like 'what to write' "$(tail -n 1 "$G/error")" "state.d/0 can't be set: write the optimizer's state, optimizer.pt$"
mkdir "$T/layers"
cp "$L/7.weight.npy" "$L/7.bias.npy" "$T/layers"
cell 'model[7].weight.data.zero_()'
ok cp -r "$T/layers/." "$L"
is 'some of a directory' "$(value 'model[7].weight.abs().sum().item() > 0') $(cmp "$T/layers/7.weight.npy" "$L/7.weight.npy")" 'True '
ok cell 'optimizer.zero_grad(); model(torch.ones(2, 8)).sum().backward(); optimizer.step()'

# what a program holds in main(), as the other rank waits for it in a collective
cat >"$T/train.py" <<'END2'
import torch
import torch.distributed as dist

def main():
    rank = dist.get_rank()
    model = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(model.weight, rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    if rank == 1:
        input()
    dist.barrier()

dist.init_process_group()
main()
END2
DDIP_MOUNT=$M "$BUILD/ddip" run -f -d "$T/train.py" >/dev/null || give_up 'ddip run'
n=$(readlink "$G/cells/last")
both_wait() {
	[ "$(cat "$G"/rank?/locals/optimizer.d/state.d/0.d/momentum_buffer 2>/dev/null | wc -l)" = 2 ]
}
until_true both_wait
is 'its model' "$(cat "$G/locals/model.d/weight.mean.json" "$G/rank1/locals/model.d/weight.json" | xargs)" '[[0.0, 0.0]] [[0.5, 0.5]]'
is 'its optimizer' "$(cat "$G/rank1/locals/optimizer.d/param_groups.d/0.d/lr" "$G/rank0/locals.0/optimizer.d/defaults.d/momentum" | xargs)" '0.5 0.9'
is 'ddip pull' "$(DDIP_MOUNT=$M "$BUILD/ddip" pull -r 1 locals/model.d/bias.json)" "$(cat "$G/rank1/locals/model.d/bias.json")"
echo interrupt >"$G/cells/$n/ctl"
wait_cell "$n" >/dev/null
is 'it has gone' "$(errno read "$G/locals/model.d/weight")" ENOENT
