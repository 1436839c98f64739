#!/usr/bin/env bash
# Large objects, read and written in order: a reader sees each change that it can know of; the bytes are right whoever
# else reads or writes in between.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2
export G
cell 'import numpy as np
x = np.arange(4 << 20, dtype="i8")' || give_up "$(cat "$G/traceback")"

"$TORCH_PYTHON" - <<'END' || bad 'reads in order'
import os, threading
import numpy as np
G, MIB = os.environ["G"], 1 << 20
X = G + "/rank1/vars/x.npy"

def run(source):
    with open(G + "/cell", "w") as f:
        f.write(source)

# a change between two reads of one open file
for step in range(20):
    fd = os.open(X, os.O_RDONLY)
    for i in range(8):
        assert len(os.read(fd, MIB)) == MIB
    run("x += 1")
    seen = np.frombuffer(os.read(fd, MIB), "i8")
    first = (8 * MIB - 128) // 8  # behind the header
    assert (seen == np.arange(first, first + len(seen)) + step + 1).all(), (step, seen[:3])
    os.close(fd)
run("x -= 20")

# many readers at once, in all sizes, of one open file and of several
want = np.load(X).tobytes()
assert want == np.arange(4 * MIB, dtype="i8").tobytes()
failed = []

def read(size, fd=None):
    own = os.open(X, os.O_RDONLY) if fd is None else fd
    at = 128
    while at < 128 + len(want):
        got = os.pread(own, size, at)
        if not got or got != want[at - 128 : at - 128 + len(got)]:
            failed.append((size, at))
            break
        at += len(got)
    if fd is None:
        os.close(own)

shared = os.open(X, os.O_RDONLY)
readers = [threading.Thread(target=read, args=(n,)) for n in (5 * MIB, MIB, 64 << 10, 100_001)]
readers += [threading.Thread(target=read, args=(MIB, shared)) for _ in range(3)]
for t in readers:
    t.start()
for t in readers:
    t.join()
assert not failed, failed
END

"$TORCH_PYTHON" - <<'END' || bad 'writes in order'
import os, io
import numpy as np
G, MIB = os.environ["G"], 1 << 20

def npy(seed):
    f = io.BytesIO()
    np.save(f, np.random.default_rng(seed).integers(0, 1 << 60, 6 * MIB))
    return f.getvalue()

def is_pushed(name, data):
    for rank in 0, 1:
        with open(f"{G}/rank{rank}/vars/{name}.npy", "rb") as f:
            assert f.read() == data, (name, rank)

# each with the other's requests in between, in pieces of several sizes
objects = {name: npy(i) for i, name in enumerate("abc")}
files = {name: open(f"{G}/vars/{name}.npy", "wb", buffering=0) for name in objects}
at = dict.fromkeys(objects, 0)
for turn in range(10_000):
    for i, name in enumerate(objects):
        for _ in range(1 + turn % 3):
            piece = objects[name][at[name] : at[name] + (MIB, 300_001, 64 << 10)[(turn + i) % 3]]
            at[name] += files[name].write(piece) if piece else 0
    os.stat(f"{G}/rank0/vars")
    if all(at[name] == len(objects[name]) for name in objects):
        break
for name, data in objects.items():
    files[name].close()
    is_pushed(name, data)

# begun again, with a hole, from the end, and left
data = npy(7)
with open(f"{G}/vars/d.npy", "wb", buffering=0) as f:
    for offset in range(0, 24 * MIB, MIB):
        f.write(npy(8)[offset : offset + MIB])
    f.truncate(0)
    os.pwrite(f.fileno(), data[40 * MIB :], 40 * MIB)
    for offset in range(0, 40 * MIB, MIB):
        os.pwrite(f.fileno(), data[offset : offset + MIB], offset)
is_pushed("d", data)
fd = os.open(f"{G}/vars/e.npy", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
for offset in range(0, 24 * MIB, MIB):
    os.write(fd, data[offset : offset + MIB])
try:
    os.close(fd)
    raise SystemExit("half an object was pushed")
except OSError:
    pass
assert not os.path.exists(f"{G}/rank0/vars/e")

END

"$TORCH_PYTHON" - <<'END' || bad 'memory that is used again'
import os
import numpy as np
G, MIB = os.environ["G"], 1 << 20

def run(source):
    with open(G + "/cell", "w") as f:
        f.write(source)

# pushed again and again: the memory of the last but one is used again, but not while a worker that a
# rank has forked still has it
run("""import os
def worker(t, done, go):
    if (pid := os.fork()) == 0:
        os.read(go[0], 1)
        os.write(done[1], b"%d" % t.sum())
        os._exit(0)
    return pid
done, go = os.pipe(), os.pipe()""")
for step in range(8):
    with open(f"{G}/vars/f.npy", "wb") as f:
        np.save(f, np.full(2 * MIB + 1000 * step, step))
    if step == 2:
        run("pid = worker(f, done, go)")
    if step == 4:
        run("kept = f; view = f[::2]")
run("""os.write(go[1], b"x")
at_fork = int(os.read(done[0], 99))
os.waitpid(pid, 0)
mine = int(kept.sum()), int(f.sum()), len(f), int(view.sum())""")
for rank in 0, 1:
    with open(f"{G}/rank{rank}/vars/at_fork") as f:
        assert int(f.read()) == 2 * (2 * MIB + 2000)
    with open(f"{G}/rank{rank}/vars/mine") as f:
        kept, last = 2 * MIB + 4000, 2 * MIB + 7000
        assert f.read() == str((4 * kept, 7 * last, last, 2 * kept)) + "\n"
END
