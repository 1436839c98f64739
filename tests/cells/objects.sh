#!/usr/bin/env bash
# Each view serves its purpose: states into modules and optimizers, dicts of tensors, frames, figures, dir, doc.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2
export V=$G/vars R=$G
cell 'import numpy as np, torch
torch.manual_seed(rank)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
opt = torch.optim.AdamW(net.parameters(), lr=0.01 * (rank + 1), betas=(0.8, 0.9))
for _ in range(2):
    opt.zero_grad()
    net(torch.randn(5, 3)).sum().backward()
    opt.step()
held, tensors = id(net), dict(b=torch.ones(2, dtype=torch.bfloat16), a=torch.arange(3), c=torch.tensor(2.5))
mixed = {"t": torch.eye(2), "n": [1, "two", None], "x": (torch.zeros(0, 3), 0.5)}
class Extra(torch.nn.Module):
    def get_extra_state(self): return {"seen": 7}
    def set_extra_state(self, state): self.seen = state["seen"]
extra = Extra()
class Picky(torch.nn.Linear):
    def _load_from_state_dict(self, *args):
        raise RuntimeError("not today")
picky = Picky(1, 1)' || give_up "$(cat "$G/traceback")"

"$TORCH_PYTHON" - <<'END' || bad 'states of modules and optimizers'
import errno, io, os
import torch
from safetensors import safe_open
from safetensors.torch import load, save_file
V, R = os.environ["V"], os.environ["R"]

def read(path):
    with open(path, "rb") as f:
        return f.read()

def write(path, data):
    """The errno of writing it, None if it went well."""
    try:
        with open(path, "wb") as f:
            f.write(data)
    except OSError as e:
        return errno.errorcode[e.errno]

def pt(path):
    return torch.load(io.BytesIO(read(path)), weights_only=True)

def why():
    return read(R + "/error").decode().splitlines()[-1]

def refusal(path):
    """The text of `error` when it is read."""
    try:
        read(path)
    except OSError as e:
        assert e.errno == errno.EOPNOTSUPP, e
        return why()

# a module is no array: what it is read as
assert refusal(V + "/net.npy").endswith("; read net.safetensors or net.pt"), why()
assert refusal(V + "/net.csv").endswith("; read net.pt"), why()

# a module: rank 0's state, onto all ranks, into the module that is there
state = load(read(V + "/net.safetensors"))
assert state.keys() == pt(V + "/net.pt").keys() and state["1.num_batches_tracked"].shape == ()
assert not torch.equal(state["0.weight"], load(read(R + "/rank1/vars/net.safetensors"))["0.weight"])
assert write(V + "/net.safetensors", read(V + "/net.safetensors")) is None
assert read(V + "/net.same.safetensors") == read(R + "/rank1/vars/net.safetensors")
state["0.weight"] += 1
with open(V + "/net.pt", "wb") as f:
    torch.save(state, f)
for k in 0, 1:
    assert torch.equal(pt(f"{R}/rank{k}/vars/net.pt")["0.weight"], state["0.weight"])
save_file(state | {"0.weight": state["0.weight"] * 2}, V + "/net.safetensors")
assert torch.equal(load(read(R + "/rank1/vars/net.safetensors"))["0.weight"], state["0.weight"] * 2)

# what does not fit changes nothing anywhere
before = read(V + "/net.same.safetensors")
for wrong, text in (
    ({k: v for k, v in state.items() if k != "0.bias"}, "0.bias is missing"),
    (state | {"more": torch.ones(1)}, "more is unexpected"),
    (state | {"0.bias": torch.ones(5)}, "0.bias is (5,), want (4,)"),
):
    with io.BytesIO() as out:
        torch.save(wrong, out)
        assert write(V + "/net.pt", out.getvalue()) == "EBADMSG" and text in why(), why()
with io.BytesIO() as out:
    torch.save([1, 2], out)
    assert write(V + "/net.pt", out.getvalue()) == "EBADMSG" and "state dict" in why(), why()
assert write(V + "/net.safetensors", b"nonsense") == "EBADMSG"
assert read(V + "/net.same.safetensors") == before

# an optimizer
for view in "safetensors", "pt":
    assert pt(R + "/rank1/vars/opt.pt")["param_groups"][0]["lr"] == (0.02 if view == "safetensors" else 0.01)
    one = read(f"{V}/opt.{view}")
    assert write(f"{V}/opt.{view}", one) is None, why()
    a, b = pt(V + "/opt.pt"), pt(R + "/rank1/vars/opt.pt")
    assert a["param_groups"] == b["param_groups"] and a["param_groups"][0]["betas"] == (0.8, 0.9), b["param_groups"]
    for p in a["state"]:
        assert all(torch.equal(a["state"][p][key], b["state"][p][key]) for key in ("step", "exp_avg", "exp_avg_sq"))
bad = pt(V + "/opt.pt")
bad["state"][0]["exp_avg"] = torch.ones(7)
with io.BytesIO() as out:
    torch.save(bad, out)
    assert write(V + "/opt.pt", out.getvalue()) == "EBADMSG" and "exp_avg" in why(), why()
assert write(V + "/opt.safetensors", before) == "EBADMSG" and "param_groups" in why(), why()

# modules that hold more than tensors, and such that refuse
try:
    read(V + "/extra.safetensors")
    raise SystemExit("half a state")
except OSError as e:
    assert e.errno == errno.EOPNOTSUPP and "extra.pt" in why(), why()
assert write(V + "/extra.pt", read(V + "/extra.pt")) is None, why()
assert write(V + "/picky.pt", read(V + "/picky.pt")) == "EBADMSG" and "not today" in why(), why()

# dicts of tensors, and what holds tensors deeper
copy = load(read(V + "/tensors.safetensors"))
assert copy["b"].dtype == torch.bfloat16 and copy["a"].tolist() == [0, 1, 2] and copy["c"].item() == 2.5
save_file(copy, V + "/again.safetensors")
assert {k: v.tolist() for k, v in pt(R + "/rank1/vars/again.pt").items()} == {k: v.tolist() for k, v in copy.items()}
for view in "pt", "pkl", "p5":
    assert write(f"{V}/back.{view}", read(f"{V}/mixed.{view}")) is None, why()
    back = pt(R + "/rank1/vars/back.pt")
    assert torch.equal(back["t"], torch.eye(2)) and back["n"] == [1, "two", None] and back["x"][0].shape == (0, 3), back
with safe_open(V + "/tensors.safetensors", "pt") as f:  # it maps the file
    assert torch.equal(f.get_tensor("a"), torch.arange(3))
assert write(V + "/mixed.safetensors", read(V + "/tensors.safetensors")) is None
END
is 'the module stayed' "$(value 'id(net) == held' 1)" True
is 'its set_extra_state' "$(value 'extra.seen' 1)" 7

# frames
"$TORCH_PYTHON" -c 'import pandas' 2>/dev/null && {
	cell 'import pandas as pd
frame = pd.DataFrame({"epoch": [1, 2], "loss": [0.5, 0.25 + rank]})
named = pd.DataFrame({"n": [1]}, index=pd.Index(["a"], name="key"))
series = pd.Series([1, 2], name="s")' || bad 'frames'
	is 'csv' "$(cat "$V/frame.csv")" $'epoch,loss\n1,0.5\n2,0.25'
	is 'csv of a rank' "$(tail -n 1 "$G/rank1/vars/frame.csv")" 2,1.25
	is 'csv with an index' "$(cat "$V/named.csv")" $'key,n\na,1'
	is 'not written' "$(errno create "$V/frame.csv" 'a,b')" EOPNOTSUPP
	for view in pkl p5; do
		cat "$V/frame.$view" >"$V/copy.$view" || bad "frame by $view"
		is "frame by $view" "$(value 'list(copy.columns), copy.loss.tolist()' 1)" "(['epoch', 'loss'], [0.5, 0.25])"
	done
	like 'as text' "$(cat "$V/frame")" 'epoch +loss'
	like 'in names' "$(grep '^frame' "$G/names")" 'DataFrame.*2,2'
	is 'gathered' "$("$TORCH_PYTHON" -c "
import pickle
print([f.loss.tolist()[1] for f in pickle.load(open('$V/frame.gather.pkl', 'rb'))])")" '[0.25, 1.25]'
}
cell 'table = np.arange(6).reshape(2, 3); grid = torch.eye(2)'
is 'csv of an array' "$(cat "$V/table.csv")" $'0,1,2\n3,4,5'
is 'csv of a tensor' "$(cat "$V/grid.csv")" $'1.0,0.0\n0.0,1.0'
is 'no csv' "$(errno read "$V/held.csv")" EOPNOTSUPP

# figures and images
"$TORCH_PYTHON" -c 'import matplotlib, PIL' 2>/dev/null && {
	cell 'import matplotlib.pyplot as plt
from PIL import Image
figure, axes = plt.subplots(figsize=(2, 1), dpi=50)
axes.plot([1, 2]); plt.close(figure)
picture = Image.new("RGB", (3, 2), (255, 0, 0))
chw = torch.zeros(3, 4, 5); chw[1] = 1
grey = np.linspace(0, 1, 12).reshape(3, 4)
flags = torch.eye(4) > 0
rgba = np.full((2, 2, 4), 128, "u1")
deep = np.zeros((2, 2, 7))' || bad 'figures'
	"$TORCH_PYTHON" - <<'END' || bad 'images'
import os
from PIL import Image
V = os.environ["V"]
def image(name):
    with Image.open(f"{V}/{name}.png") as im:
        im.load()
        return im
assert image("figure").size == (100, 50) and image("axes").size == (100, 50)
assert image("picture").getpixel((2, 1)) == (255, 0, 0)
assert image("chw").size == (5, 4) and image("chw").getpixel((4, 3)) == (0, 255, 0)
assert image("grey").mode == "L" and [image("grey").getpixel((x, 0)) for x in (0, 3)] == [0, 70]
assert image("flags").getpixel((1, 1)) == 255 and image("flags").getpixel((1, 0)) == 0
assert image("rgba").mode == "RGBA" and image("rgba").getpixel((0, 0)) == (128,) * 4
END
	is 'no image' "$(errno read "$V/deep.png")" EOPNOTSUPP
	cell 'phase = torch.zeros(3, 3, dtype=torch.complex64); hole = np.full((2, 2), np.nan)'
	is 'complex numbers are none' "$(errno read "$V/phase.png")" EOPNOTSUPP
	is 'what is no number is black' "$(errno read "$V/hole.png")" 0
	is 'the rank says nothing of its views' "$(cat "$G/rank0/stderr")" ''
	is 'nor written' "$(errno create "$V/grey.png" x)" EOPNOTSUPP
}

# for people
like 'dir' "$(cat "$V/net.dir")" $'\nstate_dict\n'
is 'dir as dir()' "$(md5sum <"$V/tensors.dir")" "$("$PLAIN_PYTHON" -c 'print(*dir({}), sep="\n")' | md5sum)"
cell 'def documented(a, b=2):
    """What it is for."""
    return a'
like 'doc' "$(cat "$V/documented.doc")" 'documented\(a, b=2\).*What it is for'
is 'not written' "$(errno create "$V/documented.doc" x)" EOPNOTSUPP
for view in doc dir; do
	submit "while not __import__('os').path.exists('$T/$view'): pass"
	is "$view can be read while a cell runs" "$(wc -c <"$V/documented.$view" | grep -cv '^0')" 1
	touch "$T/$view"
	like "$view: the cell" "$(wait_cell "$n")" 'state ok'
done
