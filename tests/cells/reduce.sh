#!/usr/bin/env bash
# Every OP over all ranks agrees with a float64 reference, for each type; its views, errors and scatter work.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=3
export V=$G/vars
cell 'import numpy as np, torch
g = torch.Generator().manual_seed(rank)
base = torch.randn(37, 5, generator=g, dtype=torch.float64) * 3
ints = torch.randint(-100, 100, (37, 5), generator=g)
floats = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
          torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
whole = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64]
for t in floats:
    name = str(t).removeprefix("torch.")
    exec(f"t_{name} = base.to(t)\nd_{name} = t_{name}.to(torch.float64)")
    if name in ("float64", "float32", "float16"):
        exec(f"n_{name} = t_{name}.numpy()\ne_{name} = d_{name}.numpy()")
for t in whole:
    name = str(t).removeprefix("torch.")
    exec(f"i_{name} = (ints.abs() if t.is_signed == False else ints).to(t)\nj_{name} = i_{name}.numpy()")
exponents = torch.tensor([1., 2., 4.]).to(torch.float8_e8m0fnu)
flags = base > rank - 1
wave = torch.complex(base, -base).to(torch.complex64)
holes = base.clone(); holes[rank, 0] = float("nan")
zero_d, empty = torch.tensor(1.5 * rank), torch.zeros(0, 4)
fortran, big_endian = np.asfortranarray(base.numpy()), base.numpy().astype(">f8")
strided = base.t()[::2]
param = torch.nn.Parameter(torch.full((4,), float(rank)))
large = torch.arange(1 << 20, dtype=torch.float32) * (rank + 1)
text, number, real, none = f"r{rank}", rank + 1, 0.5 * rank, None
rows = np.arange(2 * (rank + 1)).reshape(rank + 1, 2)
items, names = [rank], np.array(["a", "bc"])
dates = np.array(["2024-01-01"], "M8[D]")
words, bytes = np.array(["a" * (3 * rank + 1), "bc", "é"]), np.array([b"a" * (rank + 1)], "S2" if rank else "U2")
records, long = np.ones(2, [("a", "i4"), ("b", "f8")]), np.ones(2, "longdouble")
boxes = np.array([rank, "x", None], dtype=object)
odd = boxes.reshape(1, 3) if rank else boxes
veiled = np.ma.array([1, 2], mask=[rank == 1, False])
nan = float("nan") if rank == 1 else 1.0
kinds = 1 if rank else torch.ones(2)
ragged = torch.ones(2 + rank)
wide = torch.ones(2, dtype=torch.int32 if rank == 2 else torch.int64)' || give_up 'the cell'

"$TORCH_PYTHON" - <<'END' || bad 'OPs over tensors and arrays'
import errno, json, os, pickle
import numpy as np, torch
V = os.environ["V"]
G = os.path.dirname(V)
OPS = {"mean": lambda x: x.mean(0), "sum": lambda x: x.sum(0), "min": lambda x: x.amin(0), "max": lambda x: x.amax(0)}

def load(path):
    """A tensor of any type, by safetensors."""
    data = open(path, "rb").read()
    n = int.from_bytes(data[:8], "little")
    ((_, about),) = json.loads(data[8:8 + n]).items()
    types = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "BF16": "bfloat16", "F16": "float16",
             "F32": "float32", "F64": "float64", "BOOL": "bool", "C64": "complex64", "F8_E8M0": "float8_e8m0fnu",
             **{f"{c}{b}": f"{w}{b}" for c, w in (("I", "int"), ("U", "uint")) for b in (8, 16, 32, 64)}}
    raw = torch.frombuffer(bytearray(data[8 + n:]), dtype=torch.uint8)
    return raw.view(getattr(torch, types[about["dtype"]])).reshape(about["shape"])

def ranks(name):
    return torch.stack([torch.from_numpy(np.load(f"{G}/rank{k}/vars/{name}.npy")) for k in range(3)])

def pt(path):
    with open(path, "rb") as f:
        return torch.load(f, weights_only=True)

for t in ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]:
    dtype, parts = getattr(torch, t), ranks("d_" + t)
    for op, fn in OPS.items():
        have = pt(f"{V}/t_{t}.{op}.pt")
        assert have.dtype == dtype and have.shape == (37, 5), (t, op, have.dtype)
        want = fn(parts).to(dtype).double()
        assert torch.equal(have.double(), want), (t, op, (have.double() - want).abs().max())
        if "fnuz" not in t:
            assert torch.equal(load(f"{V}/t_{t}.{op}.safetensors").double(), want), (t, op)
        if t in ("float64", "float32", "float16"):
            n = np.load(f"{V}/n_{t}.{op}.npy")
            assert n.dtype == t and np.array_equal(n.astype("f8"), want.numpy()), (t, op)
for t in ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]:
    parts = np.stack([np.load(f"{G}/rank{k}/vars/i_{t}.npy") for k in range(3)])
    for prefix in "ij":
        have = {op: np.load(f"{V}/{prefix}_{t}.{op}.npy") for op in OPS}
        assert have["sum"].dtype == t and np.array_equal(have["sum"], parts.sum(0, dtype=t)), t
        assert have["mean"].dtype == "f8" and np.allclose(have["mean"], parts.astype("f8").mean(0), rtol=1e-15), t
        assert np.array_equal(have["min"], parts.min(0)) and np.array_equal(have["max"], parts.max(0)), t
assert load(f"{V}/exponents.max.safetensors").float().tolist() == [1, 2, 4]
flags = ranks("flags").numpy()
assert np.array_equal(np.load(V + "/flags.sum.npy"), flags.sum(0)) and np.load(V + "/flags.sum.npy").dtype == "i8"
assert np.array_equal(np.load(V + "/flags.min.npy"), flags.all(0)) and np.load(V + "/flags.max.npy").dtype == "?"
assert np.allclose(np.load(V + "/flags.mean.npy"), flags.mean(0))
wave = ranks("wave")
want = wave.to(torch.complex128).mean(0).to(torch.complex64)
assert torch.equal(load(V + "/wave.mean.safetensors"), want), (load(V + "/wave.mean.safetensors") - want).abs().max()
assert np.load(V + "/wave.sum.npy").dtype == "c8"
holes = ranks("holes")
for op, fn in OPS.items():
    have = np.load(f"{V}/holes.{op}.npy")
    assert np.array_equal(have, fn(holes).numpy(), equal_nan=True) and np.isnan(have[:3, 0]).all(), op
assert np.load(V + "/zero_d.mean.npy") == 1.5 and np.load(V + "/zero_d.mean.npy").shape == ()
assert np.load(V + "/zero_d.gather.npy").tolist() == [0, 1.5, 3]
assert np.load(V + "/empty.sum.npy").shape == (0, 4) and np.load(V + "/empty.gather.npy").shape == (3, 0, 4)
for name in "fortran", "big_endian", "strided":
    assert np.array_equal(np.load(f"{V}/{name}.mean.npy"), ranks(name).mean(0)) if name != "big_endian" else True
    assert np.load(f"{V}/{name}.gather.npy").shape[0] == 3
assert np.array_equal(np.load(V + "/big_endian.mean.npy"), np.load(V + "/fortran.mean.npy"))
assert np.load(V + "/param.mean.npy").tolist() == [1] * 4
large = np.load(V + "/large.mean.npy", mmap_mode="r")
assert np.array_equal(large, np.arange(1 << 20, dtype="f4") * 2)
assert np.load(V + "/large.gather.npy", mmap_mode="r").shape == (3, 1 << 20)
assert np.load(V + "/rows.cat.npy").tolist() == sum((np.arange(2 * k).reshape(k, 2).tolist() for k in (1, 2, 3)), [])
assert np.load(V + "/names.gather.npy").tolist() == [["a", "bc"]] * 3
assert np.load(V + "/dates.cat.npy").dtype == "M8[D]"
words = np.load(V + "/words.gather.npy")
assert words.dtype == "U7" and words.tolist() == [[w, "bc", "é"] for w in ("a", "a" * 4, "a" * 7)]
assert np.load(V + "/words.cat.npy").tolist() == words.reshape(-1).tolist()
assert np.load(V + "/records.cat.npy").tolist() == [(1, 1.0)] * 6
assert np.load(V + "/long.gather.npy").dtype == "longdouble"
assert pickle.load(open(V + "/boxes.cat.pkl", "rb")).tolist() == [0, "x", None, 1, "x", None, 2, "x", None]
assert pickle.load(open(V + "/veiled.cat.pkl", "rb")).tolist() == [1, 2, None, 2, 1, 2]
assert pickle.load(open(V + "/param.max.pkl", "rb")).tolist() == [2.0] * 4

# writing: one part for each rank
a = np.arange(20.).reshape(10, 2)
for view, save in ("npy", np.save), ("pt", lambda p, x: torch.save(torch.from_numpy(x), p)):
    with open(f"{V}/split_{view}.cat.{view}", "wb") as f:
        save(f, a)
    for k, want in enumerate(np.array_split(a, 3)):
        assert np.array_equal(np.load(f"{G}/rank{k}/vars/split_{view}.npy"), want), (view, k)
    assert np.array_equal(np.load(f"{V}/split_{view}.cat.npy"), a)
    with open(f"{V}/each.gather.{view}", "wb") as f:
        save(f, a[:3])
    assert [np.load(f"{G}/rank{k}/vars/each.npy").tolist() for k in range(3)] == a[:3].tolist()
def refused(path, data):
    try:
        with open(path, "wb") as f:
            f.write(data)
    except OSError as e:
        return errno.errorcode[e.errno]
assert refused(V + "/each.gather.json", b"[1, 2]") == "EINVAL"
assert refused(V + "/each.cat.json", b'{"a": 1}') == "EBADMSG"
assert refused(V + "/each.cat.json", b"7") == "EBADMSG"
assert [np.load(f"{G}/rank{k}/vars/each.npy").tolist() for k in range(3)] == a[:3].tolist()
END

# views
is 'text' "$(cat "$V/zero_d.max")" 3.0
is 'a tensor as text' "$(cat "$V/param.mean")" 'tensor([1., 1., 1., 1.])'
is 'json' "$(cat "$V/param.sum.json")" '[3.0, 3.0, 3.0, 3.0]'
is 'csv' "$(head -n 1 "$V/rows.cat.csv")" 0,1

# Python's own numbers, lists, strings
is 'mean of ints' "$(cat "$V/number.mean")" 2.0
is 'sum of ints' "$(cat "$V/number.sum.json")" 6
is 'sum of floats' "$(cat "$V/real.sum")" 1.5
is 'min' "$(cat "$V/real.min")" 0.0
is 'NaN' "$(cat "$V/nan.min" "$V/nan.max" "$V/nan.mean" | xargs)" 'nan nan nan'
is 'gather of texts' "$(cat "$V/text.gather.json")" '["r0", "r1", "r2"]'
is 'gather of lists' "$(cat "$V/items.gather")" '[[0], [1], [2]]'
is 'gather of None' "$(cat "$V/none.gather")" '[None, None, None]'
is 'cat of lists' "$(cat "$V/items.cat.json")" '[0, 1, 2]'
is 'same' "$(errno read "$V/number.same")" ENOTUNIQ
is 'same of large' "$(errno read "$V/large.same.npy")" ENOTUNIQ
is 'same, the same' "$(cat "$V/none.same")" None
cell 'middle = np.arange(10000); middle[5000] += rank
digits = torch.tensor([1 + 1e-6 * rank])
inside = {"a": [np.array([1 + 1e-12 * rank])]}
net = torch.nn.Linear(2, 2)
with torch.no_grad():
    net.weight.fill_(rank); net.bias.zero_()
masked = np.ma.array([1, 2], mask=[False, rank == 1])
equal_array = np.arange(10000)
equal_net = torch.nn.Linear(2, 2)
for p in equal_net.parameters():
    p.data.zero_()
equal_inside = {"a": [torch.ones(2), {1: None}], "b": equal_net}
equal_loop = [1]; equal_loop.append(equal_loop)
class Point:
    def __init__(self, x):
        self.x = x
point, equal_point = Point(np.array([1 + 1e-12 * rank])), Point([torch.ones(2)])
equal_sparse = torch.eye(2).to_sparse()'
frame='' equal_frame=''
if has_module pandas; then
	frame=frame equal_frame=equal_frame
	cell 'import pandas as pd
frame = pd.DataFrame({"a": np.arange(1000) + (np.arange(1000) == 500) * rank})
equal_frame = pd.DataFrame({"a": np.arange(1000)})
table = pd.DataFrame({"a": [rank, 7]}, index=[rank, rank + 10])
column = table["a"]'
	is 'frames are joined' "$(xargs <"$V/table.cat.csv")" ',a 0,0 10,7 1,1 11,7 2,2 12,7'
	is 'columns are joined' "$(xargs <"$V/column.cat.csv")" ',a 0,0 10,7 1,1 11,7 2,2 12,7'
fi
for name in middle digits inside $frame net masked point; do
	is "$name: what the text leaves out is compared" "$(errno read "$V/$name.same")" ENOTUNIQ
	like "$name: which rank" "$(tail -n 1 "$G/error")" "$name: rank 1 has another value than rank 0"
done
for name in equal_array equal_net equal_inside $equal_frame equal_loop equal_sparse equal_point; do
	is "$name: the text of one" "$(cat "$V/$name.same")" "$(cat "$V/$name")"
done

# incompatible objects are refused, with the ranks named
while read -r path error like; do
	is "$path" "$(errno read "$V/$path")" "$error"
	like "$path" "$(tail -n 1 "$G/error")" "$like"
done <<'END'
kinds.mean EOPNOTSUPP rank.0.has.tensor.*rank.1.has.object
ragged.sum EOPNOTSUPP rank.1.has.tensor.float32.of.shape.3
wide.max EOPNOTSUPP rank.2.has.tensor.int32
text.mean EOPNOTSUPP text.is.a.str
names.sum EOPNOTSUPP names.is.'<U2':.there.is.no.sum.of.that.type;.read.names.gather$
dates.max EOPNOTSUPP no.max.of.that.type
records.mean EOPNOTSUPP no.mean.of.that.type
long.sum EOPNOTSUPP long.is.float128:.there.is.no.sum.of.that.type
bytes.gather EOPNOTSUPP rank.1.has.array.'.S2'
t_bfloat16.mean.npy EOPNOTSUPP read.t_bfloat16.mean.safetensors,.t_bfloat16.mean.pt.or
flags.gather.csv EOPNOTSUPP read.flags.gather.json
boxes.mean EOPNOTSUPP boxes.is.a.ndarray.of.object.on.rank.0:.mean.is.for.numbers,.and.plain
text.cat.npy EOPNOTSUPP text.is.str:.cat.joins.arrays,.*;.read.text.gather$
odd.cat EOPNOTSUPP odd.cat:.ValueError
wave.max EOPNOTSUPP no.order
zero_d.cat EOPNOTSUPP gather
text.cat EOPNOTSUPP gather
nothing.mean ENOENT .
number.mean.nothing EINVAL .
END
is 'a shorter one can be joined' "$(cat "$V/ragged.cat.json")" "[$(printf '1.0, %.0s' 1 2 3 4 5 6 7 8)1.0]"
cell 'del real' "$G/rank2/cell"
is 'one has none' "$(errno read "$V/real.mean")" ENOENT
is 'not for one rank' "$(errno read "$G/rank0/vars/number.mean")" EINVAL
is 'not written' "$(errno create "$V/number.mean" 1)" EOPNOTSUPP

# while a cell runs
submit "import os
while not os.path.exists('$T/end'):
    number += 1"
a=$(cat "$V/number.mean")
moves() {
	[ "$(cat "$V/number.mean")" != "$a" ]
}
until_true moves
touch "$T/end"
wait_cell "$n" >/dev/null

# writing
echo '[1, "two", {"three": 3}, 4]' >"$V/mixed.cat.json" || bad 'json'
is 'as array_split' "$(cat "$G"/rank?/vars/mixed.json | xargs -d '\n')" '[1, "two"] [{"three": 3}] [4]'
echo '["a", "b", "c"]' >"$V/letter.gather" || bad 'text'
is 'an item each' "$(cat "$G"/rank?/vars/letter | xargs)" 'a b c'
"$TORCH_PYTHON" -c "import numpy as np; np.save('$T/p.npy', np.arange(6, dtype='f4'))"
cp "$T/p.npy" "$V/param.cat.npy" || bad 'into a parameter'
is 'still a parameter' "$(value 'type(param).__name__, param.is_leaf, param.tolist()' 2)" "('Parameter', True, [4.0, 5.0])"

# any writable view can be split
cell 'whole = torch.arange(7).to(torch.bfloat16); eight = torch.arange(6.).to(torch.float8_e5m2); many = [1, 2, 3, 4]'
for view in pt pkl p5 safetensors; do
	for name in whole eight; do
		cat "$G/rank0/vars/$name.$view" >"$V/$name.cat.$view" || bad "$name.cat.$view"
		is "$name.cat.$view" "$(value "$name.float().tolist(), str($name.dtype)[6:]" 1)" \
			"$([ $name = whole ] && echo "([3.0, 4.0], 'bfloat16')" || echo "([2.0, 3.0], 'float8_e5m2')")"
		cell 'whole = torch.arange(7).to(torch.bfloat16); eight = torch.arange(6.).to(torch.float8_e5m2)'
	done
	[ $view = pt ] || [ $view = safetensors ] || cat "$G/rank0/vars/many.$view" >"$V/few.cat.$view" || bad "few.cat.$view"
done
is 'a list' "$(cat "$G"/rank?/vars/few.json | xargs -d '\n')" '[1, 2] [3] [4]'
is 'joined again' "$(cat "$V/few.cat.json")" '[1, 2, 3, 4]'
