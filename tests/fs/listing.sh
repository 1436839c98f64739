#!/usr/bin/env bash
# While entries come and go a listing has each one that stays once, and offsets stay valid; also with thousands.
. "$(dirname "$0")/../lib.sh"

mount_plain
cell 'globals().update({f"v{i:05}": i for i in range(20000)}); only_here = 1 if rank else None
if not rank: del only_here'
is 'ls of 20000 variables' "$(ls "$G/vars" | wc -l) $(ls "$G/rank1/vars" | wc -l)" '20000 20001'
is 'they are sorted' "$(ls -U "$G/vars" | md5sum)" "$(ls "$G/vars" | md5sum)"
is 'names has a line for each' "$(wc -l <"$G/names")" 20001
is 'names tells which ranks have it, unless all do' "$(grep -v '^v[0-9]* type=int dtype=- shape=- bytes=- device=-$' "$G/names")" \
	'only_here type=int dtype=- shape=- bytes=- device=- ranks=1'
is 'stat and readdir agree about the inode' \
	"$("$PLAIN_PYTHON" -c "
import os, sys
for path in 'vars', 'cells', '', 'rank0', 'cells/1', 'cells/1/rank0', '..':
    for e in os.scandir(sys.argv[1] + '/' + path):
        assert e.inode() == e.stat(follow_symlinks=False).st_ino, e.path
        if e.name == 'v00099': break
" "$G" 2>&1)" ''

"$PLAIN_PYTHON" - "$G" <<'END' || bad 'a directory that changes while it is read'
import ctypes, os, sys

G = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)

class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("reclen", ctypes.c_uint16),
                ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]

libc.opendir.restype = libc.fdopendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.POINTER(Dirent)
libc.readdir.argtypes = libc.rewinddir.argtypes = libc.closedir.argtypes = libc.telldir.argtypes = [ctypes.c_void_p]
libc.telldir.restype = ctypes.c_long
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]

def cell(source):
    with open(G + "/cell", "w") as f:
        f.write(source)

def read(d, n=1 << 30):
    names = []
    while len(names) < n and (e := libc.readdir(d)):
        names.append(e.contents.name.decode())
    return names

# half of the names go, others come, in the middle of a listing
d = libc.opendir((G + "/vars").encode())
begin = read(d, 100)
place = libc.telldir(d)
ahead = read(d, 50)
cell("""for i in range(0, 20000, 2): del globals()[f"v{i:05}"]
globals().update({f"w{i:05}": i for i in range(1000)})""")
rest = read(d)
names = begin + ahead + rest
assert len(names) == len(set(names)), "a name comes twice"
missing = {f"v{i:05}" for i in range(1, 20000, 2)} - set(names)
assert not missing, f"{len(missing)} names that stayed were not listed"
libc.seekdir(d, place)
assert read(d, 50) == ahead, "an offset is another place than it was"
libc.rewinddir(d)
again = [name for name in read(d) if not name.startswith(".")]
assert again == sorted(os.listdir(G + "/vars")) and len(again) == 11001, len(again)
libc.closedir(d)

# groups that come and go in the middle
mount = os.path.dirname(G)
for i in range(300):
    os.mkdir(f"{mount}/g{i}")
d = libc.opendir(mount.encode())
begin = read(d, 20)
for i in range(0, 300, 3):
    os.rmdir(f"{mount}/g{i}")
names = begin + read(d)
libc.closedir(d)
assert len(names) == len(set(names)) and {f"g{i}" for i in range(300) if i % 3} <= set(names)
for i in range(300):
    if i % 3:
        os.rmdir(f"{mount}/g{i}")

# cells that leave the history in the middle; one that still runs stays, whatever its number
with open(G + "/ctl", "w") as f:
    f.write("reset\nhistory 200\n")
fd = os.open(G + "/rank1/cell", os.O_WRONLY | os.O_NONBLOCK)
os.write(fd, f"import os, time\nwhile not os.path.exists({G + '/../../end'!r}): time.sleep(0.01)".encode())
os.close(fd)
old = int(os.readlink(G + "/cells/last"))
def cells(n):
    for _ in range(n):
        fd = os.open(G + "/rank0/cell", os.O_WRONLY)
        os.write(fd, b"pass")
        os.close(fd)
cells(300)
last = int(os.readlink(G + "/cells/last"))
def check(names):
    want = {str(old), "last", *(str(i) for i in range(last - 199, last + 1))}
    assert set(names) - {".", ".."} == want, (sorted(set(names) ^ want))
check(os.listdir(G + "/cells"))
assert os.path.isdir(f"{G}/cells/{old}") and os.path.isdir(f"{G}/cells/{last - 199}")
assert not os.path.exists(f"{G}/cells/{last - 200}") and not os.path.exists(f"{G}/cells/{last + 1}")
d = libc.opendir((G + "/cells").encode())
begin = read(d, 150)
cells(100)
names = begin + read(d)
libc.closedir(d)
last += 100
assert len(names) == len(set(names)) and {str(i) for i in range(last - 199, last - 99)} <= set(names), names
check(os.listdir(G + "/cells"))
os.close(os.open(G + "/../../end", os.O_CREAT | os.O_WRONLY))
assert "state ok" in open(f"{G}/cells/{old}/wait").read()
cells(1)
last += 1
want = {"last", str(old), *(str(i) for i in range(last - 198, last + 1))}  # it ended late
assert set(os.listdir(G + "/cells")) == want
END
