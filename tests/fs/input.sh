#!/usr/bin/env bash
# A rank's standard input is bounded: unread input cannot grow without limit, and nothing that was accepted is lost.
# Rich output obeys `spool` as printed text does.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=2
cell 'import sys, hashlib'
"$PLAIN_PYTHON" - "$G" <<'END_OF_PROGRAM' || bad 'a rank takes a bounded standard input, all of it'
import errno, hashlib, os, sys
group = sys.argv[1]
path = group + "/rank0/stdin"
data = bytes(range(65, 91)) * 200_000 + b"\n"  # more than five times the bound


def cell(source, name="cell", flags=0):
    fd = os.open(f"{group}/rank0/{name}", os.O_WRONLY | flags)
    os.write(fd, source.encode())
    os.fsync(fd) if not flags else None
    os.close(fd)


# nobody reads: some is taken, then no more, and `error` says why
fd = os.open(path, os.O_WRONLY)
sent = 0
try:
    while sent < len(data):
        sent += os.write(fd, data[sent:])
    sys.exit("all of it was taken though nobody reads")
except OSError as e:
    assert e.errno == errno.EAGAIN, e
assert sent == 1 << 20, sent
with open(group + "/error") as f:
    assert "has not read the 1048576 bytes" in f.read()
# somebody reads: the rest goes as it is read
cell("line = sys.stdin.readline(); got = hashlib.sha256(line.encode()).hexdigest()", flags=os.O_NONBLOCK)
while sent < len(data):
    try:
        sent += os.write(fd, data[sent:])
    except BlockingIOError:
        pass
os.close(fd)
number = os.readlink(group + "/cells/last")
with open(f"{group}/cells/{number}/wait") as f:
    assert "state ok" in f.read()
with open(group + "/rank0/vars/got") as f:
    assert f.read().strip() == hashlib.sha256(data).hexdigest()
# a rank in the place of one that is gone begins with nothing
fd = os.open(group + "/rank1/stdin", os.O_WRONLY)
assert os.write(fd, data) == 1 << 20
with open(group + "/ctl", "w") as f:
    f.write("restart\n")
assert os.write(fd, data) == 1 << 20
os.close(fd)
END_OF_PROGRAM

# rich output: whole messages are kept, from the last bytes that fit
errno write "$G/ctl" $'spool 65536\n' >/dev/null
for i in {1..20}; do
	cell "'$i ' * 6000" "$G/rank0/cell"
done
display=$(key "$G/status" spool)/rank0.display
[ "$(stat -c %s "$display")" -gt 300000 ] || bad "the test makes too little rich output: $(stat -c %s "$display")"
[ "$(($(stat -c '%b * %B' "$display")))" -le 200000 ] || bad "on disk: $(stat -c '%b * %B' "$display") of $(stat -c %s "$display")"
like 'the last cell has its result' "$(cat "$G/cells/last/stream")" 'text/plain.*20 20 20'
first=$(find "$G/cells" -maxdepth 1 -name '[0-9]*' -printf '%f\n' | sort -n | sed -n 8p)
"$PLAIN_PYTHON" -c 'import json, sys; print(*[json.loads(line)["type"] for line in open(sys.argv[1])])' \
	"$G/cells/$first/stream" >"$T/types" || bad 'what is left of an old cell is no JSON lines'
like 'an old cell has its status' "$(cat "$T/types")" 'status$'
