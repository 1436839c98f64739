#!/usr/bin/env bash
# Objects over all ranks are made when they are read: any range has the right bytes, by read and by mmap, and the daemon
# keeps none of them; an open file keeps what it was opened on; a rank that dies fails the reads, nothing else.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=3,backend=none -s "$T/socket"
export V=$G/vars SOCKET=$T/socket DDIP=$BUILD/ddip
cell 'import numpy as np, torch, weakref
N = 700001
x = ((np.arange(N) * (rank + 3)) % 1009).astype("f4")
half = torch.from_numpy(x).to(torch.bfloat16)
flags = x > 500
wave = torch.complex(torch.from_numpy(x), 1 - torch.from_numpy(x))
pairs = np.zeros(50001, dtype=[("a", "<i4"), ("b", "S3")])
pairs["a"], pairs["b"] = np.arange(50001) + rank, b"abc"
names, words = np.full(60001, f"r{rank}"), np.array(["w" * (i % (3 + 40 * rank)) for i in range(5001)])
rows = x[: 7 * (20000 + rank)].reshape(-1, 7)
kept = x.copy()
seen = weakref.ref(kept)
edge, over = x[:5461].copy(), x[:5462].copy() # 64 KiB of all three ranks, and a number more' || give_up 'the cell'
DAEMON=$(daemon_pid) || give_up 'no daemon'
export DAEMON

"$TORCH_PYTHON" - <<'END' || bad 'ranges'
import io, json, mmap, os, random, struct, subprocess
import numpy as np, torch
V, DAEMON = os.environ["V"], os.environ["DAEMON"]
G = os.path.dirname(V)
rng = random.Random(1)

def all_of(path):
    with open(path, "rb") as f:
        return f.read()

def memfds():
    """Bytes in the daemon's memfds."""
    sizes = 0
    for fd in os.listdir(f"/proc/{DAEMON}/fd"):
        try:
            if os.readlink(f"/proc/{DAEMON}/fd/{fd}").startswith("/memfd:"):
                sizes += os.stat(f"/proc/{DAEMON}/fd/{fd}").st_blocks * 512
        except FileNotFoundError:
            pass
    return sizes

def memory():
    with open(f"/proc/{DAEMON}/status") as f:
        return int(next(line for line in f if line.startswith("VmHWM")).split()[1]) << 10

def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()

def safetensors(name, kind, tensor):
    raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
    entry = {name: {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [0, len(raw)]}}
    text = json.dumps(entry, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + raw

def check(path, want):
    """Reads at odd offsets, over the end, in order and through mappings."""
    before = memfds()
    fd = os.open(path, os.O_RDONLY)
    size = len(want)
    assert os.fstat(fd).st_size == size, (path, os.fstat(fd).st_size, size)
    for offset in [0, 1, 127, 128, 129, 65535, 131073, size - 5, size, size + 3]:
        for n in [1, 3, 4096, 65537, 1 << 20]:
            assert os.pread(fd, n, offset) == want[offset:offset + n], (path, offset, n)
    for _ in range(30):
        offset, n = rng.randrange(size), rng.randrange(1, 1 << 18)
        assert os.pread(fd, n, offset) == want[offset:offset + n], (path, offset, n)
    for n in (1 << 20, 100001):
        os.lseek(fd, 0, os.SEEK_SET)
        assert b"".join(iter(lambda: os.read(fd, n), b"")) == want, (path, n)
    for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
        with mmap.mmap(fd, 0, flags=flags, prot=mmap.PROT_READ) as m:
            for _ in range(30):
                offset, n = rng.randrange(size), rng.randrange(1, 1 << 14)
                assert m[offset:offset + n] == want[offset:offset + n], (path, offset, n, flags)
            assert m[:] == want, path
    assert memfds() == before, (path, before, memfds())
    os.close(fd)

def parts(name):
    return [np.load(f"{G}/rank{k}/vars/{name}.npy") for k in range(3)]

xs = np.stack(parts("x"))
wide = xs.astype("f8")
results = {"mean": wide.mean(0).astype("f4"), "sum": wide.sum(0).astype("f4"), "min": xs.min(0), "max": xs.max(0),
           "gather": xs, "cat": xs.reshape(-1)}
hwm = memory()
for op, result in results.items():
    check(f"{V}/x.{op}.npy", npy(result))
halves = torch.from_numpy(xs).to(torch.bfloat16)
check(f"{V}/half.mean.safetensors", safetensors("half", "BF16", halves.double().mean(0).to(torch.bfloat16)))
check(f"{V}/half.gather.safetensors", safetensors("half", "BF16", halves))
check(f"{V}/flags.sum.npy", npy(np.stack(parts("flags")).sum(0)))
check(f"{V}/wave.sum.npy", npy(np.stack(parts("wave")).astype("c16").sum(0).astype("c8")))
check(f"{V}/wave.cat.safetensors", safetensors("wave", "C64", torch.from_numpy(np.concatenate(parts("wave")))))
check(f"{V}/pairs.gather.npy", npy(np.stack(parts("pairs"))))
check(f"{V}/names.cat.npy", npy(np.concatenate(parts("names"))))
check(f"{V}/words.gather.npy", npy(np.stack(parts("words"))))
check(f"{V}/rows.cat.npy", npy(np.concatenate(parts("rows"))))
check(f"{V}/over.gather.npy", npy(np.stack(parts("over"))))
assert all_of(f"{V}/edge.gather.npy") == npy(np.stack(parts("edge")))
assert memory() - hwm < 24 << 20, (hwm, memory())

# what needs all the numbers has them
edges = np.stack(parts("edge")).mean(0, dtype="f8").astype("f4")
assert json.loads(all_of(f"{V}/edge.mean.json")) == edges.tolist()
with open(f"{V}/half.max.pt", "rb") as f:
    assert torch.equal(torch.load(f, weights_only=True), halves.amax(0))

# over 9P
for op in ("mean", "gather"):
    command = [os.environ["DDIP"], "cat", f"group/vars/x.{op}.npy"]
    place = dict(os.environ, DDIP_MOUNT=os.environ["SOCKET"])
    got = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=place).stdout
    assert got == npy(results[op]), op

def cell(text):
    fd = os.open(f"{G}/cell", os.O_WRONLY)
    os.write(fd, text.encode())
    os.fsync(fd)
    os.close(fd)

def alive():
    cell("import gc; gc.collect(); there = int(seen() is not None)")
    return json.loads(all_of(f"{V}/there.gather.json"))

# an open file is of the objects that the names had at the open, with their numbers as they are when it is read; only
# an open file keeps them
fd = os.open(f"{V}/kept.mean.npy", os.O_RDONLY)
first = os.pread(fd, 1 << 20, 0)
cell("kept = None")
assert alive() == [1, 1, 1]
assert os.pread(fd, 1 << 20, 0) == first == npy(results["mean"])[:1 << 20]
cell("_ = seen().__iadd__(1)")
assert os.pread(fd, 1 << 20, 0) == npy((wide + 1).mean(0).astype("f4"))[:1 << 20]
os.close(fd)
cell("_ = None")
while alive() != [0, 0, 0]:
    pass

# readers that go away
for _ in range(100):
    fd = os.open(f"{V}/x.{rng.choice(list(results))}.npy", os.O_RDONLY)
    for _ in range(rng.randrange(4)):
        os.read(fd, 1 << 20)
    os.close(fd)
readers = [subprocess.Popen(["cat", *[f"{V}/x.mean.npy"] * 50], stdout=subprocess.DEVNULL) for _ in range(8)]
assert all_of(f"{V}/x.mean.npy") == npy(results["mean"])
for p in readers:
    p.kill()
    p.wait()
assert all_of(f"{V}/x.mean.npy") == npy(results["mean"])
END

# a result that no memory holds: nothing but what is read exists
cell 'import os
each = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 6 // 10 // 4
try:
    vast = np.zeros(each, dtype="f4")
    vast[5] = vast[-1] = rank + 1
    there = True
except MemoryError: # the system promises only what it has
    there = False' || bad 'the cell with much memory'
if [ "$(cat "$V/there.min")" = True ]; then
	"$TORCH_PYTHON" - "$(cat "$V/each")" <<'END' || bad 'a vast result'
import os, struct, sys
V, n = os.environ["V"], int(sys.argv[1])
for op, numbers, places in (
    ("gather", 3 * n, {5: 1, n - 1: 1, n: 0, n + 5: 2, 3 * n - 1: 3}),
    ("sum", n, {0: 0, 5: 6, n // 2: 0, n - 1: 6}),
):
    fd = os.open(f"{V}/vast.{op}.npy", os.O_RDONLY)
    head = os.fstat(fd).st_size - 4 * numbers
    assert 0 < head <= 256, head
    for k, want in places.items():
        assert struct.unpack("<f", os.pread(fd, 4, head + 4 * k)) == (want,), (op, k)
    os.close(fd)
END
fi
cell 'vast = None'

# strings that would be much longer padded: in ranges they cost nothing
cell 'texts = np.array(["a" * (80000 if rank == 1 else 1)] + [""] * (1000 if rank == 2 else 0))'
is 'strings as one text' "$(errno read "$V/texts.cat.json")" EFBIG
like 'what to read' "$(tail -n 1 "$G/error")" 'texts.cat: .*: read texts.cat.npy'
is 'strings in ranges' "$(tail -c 4 "$V/texts.cat.npy" | od -An -tu1 | xargs)" '0 0 0 0'

# arrays that map files of the mount itself: their readers wait for reads that are answered meanwhile
cell 'mapped = np.load(f"'"$G"'/rank{rank}/vars/x.npy", mmap_mode="r")' || bad 'the cell that maps'
cell 'next_rank = (rank + 1) % world_size
again = np.load(f"'"$G"'/rank{next_rank}/vars/mapped.npy", mmap_mode="r")' || bad 'the cell that maps what maps'
for k in 0 1 2; do
	for name in x mapped; do
		guarded "$TORCH_PYTHON" -c "import os
for k in range(20):
    f = os.open('$G/rank$k/vars/$name.npy', os.O_RDONLY)
    os.pread(f, 1000, 700000 * 4 - 1000 * k)
    os.close(f)" &
	done
done
wait
for name in mapped again; do
	for op in mean gather; do
		guarded cat "$V/$name.$op.npy" >"$T/$name.$op" &
	done
	for k in 0 1 2; do
		guarded cat "$G/rank$k/vars/$name.npy" >"$T/$name.$k" &
	done
done
wait
for name in mapped again; do
	cmp "$T/$name.mean" "$V/x.mean.npy" || bad "$name.mean"
done
cmp "$T/mapped.gather" "$V/x.gather.npy" || bad 'mapped.gather'
for k in 0 1 2; do
	cmp "$T/mapped.$k" "$G/rank$k/vars/x.npy" || bad "mapped on rank $k"
	cmp "$T/again.$k" "$G/rank$(((k + 1) % 3))/vars/x.npy" || bad "again on rank $k"
done
cell 'mapped = again = None'

# a view that the rank makes otherwise than as the numbers lie is made of all of them
cell 'import sys
across = sys.modules["ddip_engine.data.across_ranks"]
ends_with, across.ends_with = across.ends_with, lambda exported, value, size: False' "$G/rank0/cell"
"$TORCH_PYTHON" - <<'END' || bad 'another view'
import os
import numpy as np
V = os.environ["V"]
want = sum(np.load(f"{os.path.dirname(V)}/rank{k}/vars/x.npy").astype("f8") for k in range(3))
assert np.array_equal(np.load(f"{V}/x.sum.npy"), want.astype("f4"))
END
cell 'across.ends_with = ends_with' "$G/rank0/cell"

# a rank that dies
"$TORCH_PYTHON" - <<'END' || bad 'a rank that dies'
import errno, os
V = os.environ["V"]
G = os.path.dirname(V)
files = {op: os.open(f"{V}/x.{op}.npy", os.O_RDONLY) for op in ("mean", "gather", "max")}
single = os.open(f"{G}/rank1/vars/x.npy", os.O_RDONLY)
for op in ("mean", "gather"):
    assert len(os.read(files[op], 1 << 20)) == 1 << 20

def failure(fd, offset=0):
    try:
        os.pread(fd, 1 << 16, offset)
        return 0
    except OSError as e:
        return e.errno

with open(f"{G}/rank1/ctl", "w") as f:
    f.write("kill\n")
while not failure(single):
    pass
assert failure(single) == errno.EHOSTDOWN
assert failure(files["mean"]) == failure(files["mean"], 1 << 21) == failure(files["max"]) == errno.EHOSTDOWN
size = os.fstat(files["gather"]).st_size
assert failure(files["gather"]) == 0 and failure(files["gather"], size - 1000) == 0  # of the others
assert failure(files["gather"], size // 2) == errno.EHOSTDOWN
for fd in [single, *files.values()]:
    os.close(fd)
END
cell 'import numpy as np
x = np.full(100000, 7.0)' || bad 'the cell after it'
is 'a new rank' "$("$TORCH_PYTHON" -c "import numpy as np; print(np.load('$V/x.mean.npy')[-1])")" 7.0
