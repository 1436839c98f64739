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
	is 'columns' "$(ls "$G/vars/frame.d" | xargs) $(cat "$G/rank1/vars/frame.d/loss.csv" | xargs)" 'a%2Fb.csv loss.csv loss 0.1 2.0'
fi

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
