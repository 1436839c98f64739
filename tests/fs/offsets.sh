#!/usr/bin/env bash
# Reads and writes at any offset of every file return data, end of file, or an errno; nothing blocks, and the daemon
# lives. The offsets are always the same: SEED=N chooses others.
. "$(dirname "$0")/../lib.sh"

mount_plain
cell 'import sys
x = list(range(1000))
for i in range(30000): print("line", i)
print("to stderr", file=sys.stderr)
6 * 7'
cell '1 / 0' 2>/dev/null
mkfifo "$T/gate"
# a cell that runs meanwhile: its live files have no end yet
errno nonblock "$G/rank1/cell" "for i in range(5000): print('running', i)
sys.stdout.flush(); open('$T/gate').read()" >/dev/null
running=$(readlink "$G/cells/last")
guarded grep -q -m1 'running 4999' "$G/cells/$running/stream" || give_up 'the cell does not run'

SEED=${SEED:-1} "$PLAIN_PYTHON" - "$M" "$running" <<'END' || bad 'reads at odd places'
import errno, os, random, sys

mount, running = sys.argv[1:]
choose = random.Random(int(os.environ["SEED"]))
fine = {errno.EAGAIN, errno.EACCES, errno.ESRCH, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT, errno.EFBIG,
        errno.EBUSY, errno.EBADMSG, errno.ENOSPC}
LIVE = {"trace", "events", "log", "follow", "stream", "wait"}
# what would act on what is written, or binds an object of so many bytes
NOT_WRITTEN = {"ctl", "cell", "cell.0", "stdin", "error"}

paths = []
for top, dirs, files in os.walk(mount):
    paths += [os.path.join(top, name) for name in files if not os.path.islink(os.path.join(top, name))]
group = mount + "/group"
paths += [f"{group}/vars/x.{view}" for view in ("json", "pkl", "p5", "dir", "doc")]
paths += [f"{group}/vars/x.gather.json", f"{group}/cell.0"]
assert {"stream", "events", "log", "trace"} <= {os.path.basename(p) for p in paths}


def place(size):
    edges = [0, 1, 4095, 4096, 32 << 10, 64 << 10, 100_000, size - 1, size, size + 1, 1 << 20, 1 << 31, 1 << 32, 1 << 62,
             (1 << 63) - (2 << 20)]
    return max(0, choose.choice(edges) if choose.random() < 0.7 else choose.randrange(max(size, 1) * 2))


def length():
    return choose.choice([0, 1, 2, 100, 4096, 32 << 10, 64 << 10, 1 << 20, (1 << 20) + 1])


def attempt(what, *args):
    try:
        return what(*args)
    except OSError as e:
        assert e.errno in fine, f"{what.__name__}{args[1:]}: {e}"
        return None


for path in paths:
    name = os.path.basename(path)
    fd = attempt(os.open, path, os.O_RDONLY | os.O_NONBLOCK)
    if fd is None:
        continue
    whole = None
    if name not in LIVE and name not in ("cell", "cell.0"):
        pieces = []
        while piece := os.pread(fd, 1 << 20, sum(map(len, pieces))):
            pieces.append(piece)
        whole = b"".join(pieces)
    for _ in range(25):
        offset, n = place(len(whole or b"") or os.fstat(fd).st_size), length()
        got = attempt(os.pread, fd, n, offset)
        if whole is not None:
            assert got == whole[offset : offset + n], f"{path} at {offset}, {n} bytes"
        elif got is not None:
            assert len(got) <= n
    os.close(fd)

# live files in their order, after they were left somewhere: what is read on is whole lines, or what is missing is told
path = f"{group}/cells/{running}/stream"
fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)


def rest(fd):
    data = b""
    while True:
        piece = attempt(os.read, fd, choose.choice([100, 4096, 1 << 16]))
        if not piece:
            return data
        data += piece


first = rest(fd)
assert first.count(b"running") == 5000, first.count(b"running")
os.lseek(fd, 0, os.SEEK_SET)
assert rest(fd) == first, "from 0 on all is made again"
os.lseek(fd, 1000, os.SEEK_SET)
later = rest(fd)
assert later.startswith(b'{"type":"dropped","bytes":'), later[:100]
assert first.endswith(later.split(b"\n", 1)[1]), "behind it come the lines that are kept"
os.lseek(fd, len(first) + 100_000, os.SEEK_SET)
assert os.read(fd, 100) == b"", "behind the end there is nothing"
os.close(fd)

# writes: refused, or kept where files are kept aside
for path in paths:
    name = os.path.basename(path)
    if name in NOT_WRITTEN or "/vars/" in path:
        continue
    fd = attempt(os.open, path, os.O_RDWR | os.O_NONBLOCK)
    if fd is None:
        continue
    for _ in range(5):
        attempt(os.pwrite, fd, b"x" * choose.choice([1, 100, 5000]), place(1000))
    os.close(fd)
fd = os.open(f"{group}/vars/.aside", os.O_RDWR | os.O_CREAT, 0o600)
mirror = bytearray()
for _ in range(200):
    offset, data = choose.randrange(20_000), bytes(choose.randrange(256) for _ in range(choose.randrange(500)))
    assert os.pwrite(fd, data, offset) == len(data)
    if data:
        mirror.extend(bytes(max(0, offset + len(data) - len(mirror))))
        mirror[offset : offset + len(data)] = data
    offset, n = place(len(mirror)), length()
    assert os.pread(fd, n, offset) == bytes(mirror[offset : offset + n])
for offset in (1 << 47, 1 << 62, (1 << 63) - 4096):
    attempt(os.pwrite, fd, b"far", offset)
os.close(fd)
os.unlink(f"{group}/vars/.aside")
END

is 'the daemon lives' "$(head -c 6 "$M/version")" ddipfs
is 'the cell runs on' "$(state "$running")" running
# a reader that starts far into the existing data gets everything from there on, however much it is
is 'tail -c +N' "$(guarded tail -c +200000 "$G/cells/1/stream" | tail -n 1 | grep -o '"state":"[a-z]*"')" '"state":"ok"'
is 'from there on' "$(guarded tail -c +200001 "$G/cells/1/stream" | md5sum)" "$(tail -c +200001 <(cat "$G/cells/1/stream") | md5sum)"
echo >"$T/gate"
like 'it ends' "$(wait_cell "$running")" 'state ok'
is 'no bug of ours' "$(grep -c " EIO " "$G/error")" 0
