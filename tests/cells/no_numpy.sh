#!/usr/bin/env bash
# A torch without NumPy: every view of a tensor but npy, which says so; torch itself has no object collectives then.
. "$(dirname "$0")/../lib.sh"

mkdir "$T/site"
cat >"$T/site/sitecustomize.py" <<-'END'
	import sys
	class Without:
	    def find_spec(self, name, path=None, target=None):
	        if name.partition(".")[0] == "numpy":
	            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
	sys.meta_path.insert(0, Without())
END
mount_torch -o "size=2,gpus=none,env=PYTHONPATH=$T/site"
V=$G/rank1/vars
cell 'import torch, torch.distributed as dist
try:
    torch.ones(1).numpy()
except RuntimeError as e:
    without = str(e)
a = torch.arange(6.0).reshape(2, 3)
half = a.T.to(torch.bfloat16)
empty = torch.ones(0, 3)
mine = a + rank
model = torch.nn.Linear(3, 2)
dist.all_reduce(a)' || bad "$(cat "$G/traceback")"
is 'there is no NumPy' "$(cat "$V/without")" 'Numpy is not available'
is 'json' "$(cat "$V/a.json")" '[[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]'
for view in pt safetensors pkl p5; do
	for name in a half empty; do
		cp "$V/$name.$view" "$T/$name.$view" || bad "read $name.$view"
		cp "$T/$name.$view" "$V/new_$name.$view" || bad "write $name.$view: $(cat "$G/error")"
	done
	cell 'for name in ["a", "half", "empty"]:
    if isinstance(globals()["new_" + name], dict):  # of tensors by their names
        globals()["new_" + name] = globals()["new_" + name][name]
same = [torch.equal(a, new_a), torch.equal(half, new_half), torch.equal(empty, new_empty)]
del new_a, new_half, new_empty' "$G/rank1/cell" || bad "$view: $(cat "$G/traceback")"
	is "$view: there and back" "$(cat "$V/same.json")" '[true, true, true]'
done
"$TORCH_PYTHON" - "$T" <<-'END' || bad 'what was read'
	import sys, torch
	from safetensors.torch import load_file
	a = torch.arange(6.0).reshape(2, 3)
	for place in (sys.argv[1] + "/half.safetensors", sys.argv[1] + "/empty.safetensors"):
	    print(load_file(place))
	assert torch.equal(load_file(sys.argv[1] + "/half.safetensors")["half"], a.T.to(torch.bfloat16))
END
cp "$G/vars/model.safetensors" "$T/m.safetensors" || bad 'the parameters of a module'
is 'same' "$(cat "$G/vars/a.same")" "$(cat "$G/rank0/vars/a")"
is 'cat' "$(cat "$G/vars/mine.cat.json")" '[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]'
is 'mean' "$(cat "$G/vars/mine.mean.json")" '[[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]]'
cp "$T/a.safetensors" "$T/out" && cp "$T/out" "$G/vars/pushed.safetensors" || bad 'push'
fails cat "$V/a.npy"
like 'npy' "$(cat "$G/error")" 'npy needs NumPy, which this environment does not have: use a.json'
is 'standard error' "$(cat "$G"/rank?/stderr)" ''
