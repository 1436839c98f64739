#!/usr/bin/env bash
# Directories and descriptors older than the group's size: every operation on a removed rank fails with ENODEV.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=3
cell 'x = rank; words = "some text"'
"$PLAIN_PYTHON" - "$G" <<'END' || bad 'each operation at rank 2, which is no more, is ENODEV'
import errno, os, subprocess, sys

G = sys.argv[1]
gone = os.open(G + "/rank2", os.O_RDONLY)
names = os.open(G + "/rank2/vars", os.O_RDONLY)
files = {path: os.open(path, flags, dir_fd=gone) for path, flags in {
    "vars/x": os.O_RDONLY, "vars/new": os.O_WRONLY | os.O_CREAT, "vars/words": os.O_WRONLY,
    "vars/.aside": os.O_RDWR | os.O_CREAT, "cell": os.O_RDWR, "ctl": os.O_WRONLY, "stdin": os.O_WRONLY,
    "stack": os.O_RDONLY, "status": os.O_RDONLY, "stdout": os.O_RDWR, "env": os.O_WRONLY,
}.items() if path != "env"}
assert os.write(files["vars/words"], b"written before the resize") == 25

# readers that wait: cat in a read(2), another process in a poll(2)
POLL = "import select; p = select.poll(); p.register(0, select.POLLIN); p.poll()"
HANG_LIMIT_S = int(os.environ["HANG_LIMIT_S"])

def waiters(path):
    with open(f"{G}/../trace") as trace, open(f"{G}/../{path}") as live:
        cat = subprocess.Popen(["cat", live.name], stderr=subprocess.PIPE, text=True)
        polls = subprocess.Popen([sys.executable, "-c", POLL], stdin=live)
        waiting = set()
        while len(waiting) < 2:
            line = trace.readline()
            waiting |= {what for what in ("read", "poll") if f" fuse {what} {path}" in line}
        return cat, polls

def ended(cat, polls):
    assert "No such device" in cat.communicate(timeout=HANG_LIMIT_S)[1]
    polls.wait(HANG_LIMIT_S)

of_rank = waiters("group/rank2/follow")

ctl = os.open(G + "/ctl", os.O_WRONLY)
os.write(ctl, b"stop\nsize 2\nstart\n")
os.close(ctl)

ended(*of_rank)
os.mkdir(G + "/../other")
of_group = waiters("other/rank0/follow")
os.rmdir(G + "/../other")
ended(*of_group)

def want(what, function, *args, **kw):
    try:
        function(*args, **kw)
    except OSError as e:
        assert e.errno == errno.ENODEV, (what, e)
    else:
        raise AssertionError(what + " went well")

def write(path, data, flags=0, dir_fd=names):
    fd = os.open(path, os.O_WRONLY | flags, dir_fd=dir_fd)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)

for name in "x", "new", "x.json", "x.nothing", ".aside", "_private":
    want("lookup of " + name, os.stat, name, dir_fd=names)
    want("reading " + name, os.open, name, os.O_RDONLY, dir_fd=names)
    want("writing " + name, write, name, b"1")
    want("removing " + name, os.unlink, name, dir_fd=names)
for name in "y", "y.json", ".new", "4913":
    want("creating " + name, write, name, b"1", os.O_CREAT | os.O_TRUNC)
want("renaming", os.rename, "x", "z", src_dir_fd=names, dst_dir_fd=names)
want("renaming to a staging name", os.rename, "x", "x~", src_dir_fd=names, dst_dir_fd=names)
want("renaming a staged file", os.rename, ".aside", "x", src_dir_fd=names, dst_dir_fd=names)
want("truncating", os.truncate, f"/proc/self/fd/{names}/x", 0)
want("listing", os.listdir, f"/proc/self/fd/{names}")
for path in "stack", "cell", "env", "stdout", "status":
    want("opening " + path, os.open, path, os.O_RDONLY, dir_fd=gone)
for path in "ctl", "stdin", "cell":
    want("writing " + path, write, path, b"interrupt\n", 0, gone)
for path, fd in files.items():
    if path not in ("vars/new", "vars/words", "ctl", "stdin"):
        want("a read of the open " + path, os.read, fd, 10)
    if path in ("vars/new", "vars/words", "vars/.aside", "cell", "ctl", "stdin"):
        want("a write to the open " + path, os.write, fd, b"interrupt\n")
for path in "vars/words", "vars/new", "cell":
    want("fsync of the open " + path, os.fsync, files[path])
want("ftruncate of an open variable", os.ftruncate, files["vars/words"], 0)
for fd in files.values():
    try:
        os.close(fd)
    except OSError as e:
        assert e.errno == errno.ENODEV, e
END
is 'the ranks that are left work on' "$(echo 5 >"$G/vars/y"; cat "$G"/rank?/vars/y | xargs)" '5 5'
like 'error says which rank no longer exists, and which there are' "$(cat "$G/error")" \
	'ENODEV .*rank 2 no longer exists: the group group has ranks 0..1'

# a rank that comes back with this number is a new one: the old directory works again
cd "$G/rank1/vars" || give_up 'rank1/vars'
printf 'stop\nsize 1\nstart\n' >"$G/ctl"
is 'gone' "$(errno create y 1)" ENODEV
printf 'stop\nsize 2\nstart\n' >"$G/ctl"
is 'and there again' "$(errno create y 1)$(cat y)" 01
cd / || exit

# a removed group, through a directory that is still open
mkdir "$M/other" && cd "$M/other/vars" && ok rmdir "$M/other"
for what in open create unlink; do is "$what in a group that is gone" "$(errno $what x 1)" ENODEV; done
is 'renaming there' "$(errno rename x y)" ENODEV
# The kernel forgets what it has looked up there, so the daemon need not remember it either.
forgotten() { [[ $(readlink /proc/self/cwd) == *' (deleted)' ]]; }
until_true forgotten
cd / || exit
