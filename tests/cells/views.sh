#!/usr/bin/env bash
# Arrays and tensors are files: npy as ranges of live bytes, mmap, all dtypes and memory orders, pushes, png.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2
cell 'import numpy as np, torch'
export V=$G/vars R=$G

"$TORCH_PYTHON" - <<'END' || bad 'npy round trips'
import os, sys
import numpy as np
V, R = os.environ["V"], os.environ["R"]
rng = np.random.default_rng(0)
arrays = {
    "zero_d": np.array(3.5), "empty": np.zeros((0, 3)), "fortran": np.asfortranarray(rng.random((5, 7))),
    "bools": rng.random(9) > 0.5, "strided": rng.random((10, 10))[::2, ::3], "big_endian": np.arange(5, dtype=">i4"),
    "texts": np.array(["a", "bcd"]), "bytes_": np.array([b"a", b"bc"]), "dates": np.array(["2024-01-01"], "M8[D]"),
    "record": np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]), "large": rng.random((512, 1024)),
}
for code in "bBhHiIlLefdFDg":
    arrays["dtype_" + code] = (rng.random(33) * 100).astype(code)
for name, a in arrays.items():
    np.save(f"{V}/{name}.npy", a)
    for rank in 0, 1:
        b = np.load(f"{R}/rank{rank}/vars/{name}.npy")
        assert b.dtype == a.dtype and b.shape == a.shape and (a == b).all(), (name, rank)
m = np.load(f"{V}/large.npy", mmap_mode="r")
assert (m[300] == arrays["large"][300]).all()
with open(f"{V}/large.npy", "rb") as f:
    f.seek(-8, os.SEEK_END)
    assert np.frombuffer(f.read(), "f8")[0] == arrays["large"][-1, -1]
END
is 'writable on the rank' "$(value 'large[0, 0] = 7; float(large[0, 0])' 1)" 7.0
is 'its own copy' "$(value 'bool(large[0, 0] == 7)' 0)" False

cell 'x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
param = torch.nn.Parameter(torch.ones(3))
grad = (param * 2)
half, brain = x.half(), x.bfloat16()
view = x[:, ::2]
objects = np.array([{}, None])
big = torch.zeros(64, 1 << 20, dtype=torch.uint8)
big[5, 7] = 9
loss = 0.25
scalar = torch.tensor(3)'
is 'tensor as text' "$(head -n 1 "$V/x")" 'tensor([[ 0.,  1.,  2.,  3.],'
is 'json' "$(cat "$V/view.json")" '[[0.0, 2.0], [4.0, 6.0], [8.0, 10.0]]'
"$TORCH_PYTHON" - <<'END' || bad 'tensors as npy'
import os, resource
import numpy as np
V = os.environ["V"]
assert (np.load(V + "/x.npy") == np.arange(12).reshape(3, 4)).all()
assert (np.load(V + "/param.npy") == 1).all() and (np.load(V + "/grad.npy") == 2).all()
assert np.load(V + "/half.npy").dtype == np.float16
assert np.load(V + "/view.npy").tolist() == [[0, 2], [4, 6], [8, 10]]
assert np.load(V + "/loss.npy") == 0.25 and np.load(V + "/scalar.npy") == 3
big = np.load(V + "/big.npy", mmap_mode="r")
assert big[5, 7] == 9 and big.shape == (64, 1 << 20)
assert os.stat(V + "/x.npy").st_size in (0, 128 + 48)
END
is 'bfloat16' "$(errno read "$V/brain.npy")" EOPNOTSUPP
like 'names the view to use' "$(tail -n 1 "$G/error")" 'safetensors|pt|pkl'
is 'objects' "$(errno read "$V/objects.npy")" EOPNOTSUPP
cell 'masked = np.ma.array([1, 2], mask=[False, True])'
is 'a mask has no place there' "$(errno read "$V/masked.npy")" EOPNOTSUPP

# pushing: an array stays an array, a tensor a tensor, a parameter a parameter
"$TORCH_PYTHON" -c "import numpy as np; np.save('$T/five.npy', np.full(3, 5, 'f4'))"
cp "$T/five.npy" "$V/param.npy" || bad 'push into a parameter'
is 'parameter' "$(value 'type(param).__name__, param.requires_grad, param.tolist()' 1)" \
	"('Parameter', True, [5.0, 5.0, 5.0])"
cp "$T/five.npy" "$V/fresh.npy" || bad 'push of a new one'
is 'array' "$(value 'type(fresh).__name__')" "'ndarray'"
cp "$T/five.npy" "$G/rank1/vars/x.npy" || bad 'push to one'
is 'only there' "$(value 'x.shape, type(x).__name__' 0)" "(torch.Size([3, 4]), 'Tensor')"
is 'a tensor there' "$(value 'x.shape, type(x).__name__' 1)" "(torch.Size([3]), 'Tensor')"
is 'damaged' "$(errno create "$V/fresh.npy" 'nonsense')" EBADMSG
is 'cut off' "$(head -c 100 "$T/five.npy" | cat >"$V/fresh.npy" 2>/dev/null; value 'fresh.tolist()')" '[5.0, 5.0, 5.0]'
is 'same' "$(errno read "$V/x.same.npy")" ENOTUNIQ

# a live read while a cell changes the object
submit 'import os
live = torch.zeros(4)
while not os.path.exists("'"$T"'/end"):
    live += 1'
there() {
	first=$(cat "$V/live.json" 2>/dev/null) && [ -n "$first" ]
}
moves() {
	[ "$(cat "$V/live.json")" != "$first" ]
}
until_true there
until_true moves
touch "$T/end"
wait_cell "$n" >/dev/null

# attributes, by the views that show them
cell 'class Holder:
    "holds a list"
    inner = [1]
    @property
    def costly(self): raise SystemExit
holder = Holder()
import json as js' || bad attributes
like 'the names of an attribute' "$(cat "$V/holder.inner.dir")" 'append'
is 'on one rank' "$(grep -c '^append$' "$G/rank1/vars/holder.inner.dir")" 1
like 'its help' "$(cat "$V/holder.inner.append.doc")" 'Append object'
like 'all names, modules as well' "$(cat "$V/__main__.dir")" 'holder.*js'
like 'the names of a module' "$(cat "$V/__main__.js.decoder.dir")" 'JSONDecoder'
is 'a property is not computed' "$(errno read "$V/holder.costly.dir")" EOPNOTSUPP
is 'an attribute that is not there' "$(errno read "$V/holder.nothing.dir")" ENOENT
is 'the value of an attribute' "$(errno read "$V/holder.inner.json")" EINVAL

cell 'from matplotlib.figure import Figure
fig = Figure(); fig.subplots().plot([1, 2])
image = np.zeros((8, 8, 3), "u1")' || bad figure
is 'a figure' "$(head -c 8 "$V/fig.png" | od -An -tx1 | xargs)" '89 50 4e 47 0d 0a 1a 0a'
is 'an image' "$(head -c 4 "$V/image.png" | od -An -tx1 | xargs)" '89 50 4e 47'
is 'no image' "$(errno read "$V/loss.png")" EOPNOTSUPP
