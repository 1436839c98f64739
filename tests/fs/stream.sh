#!/usr/bin/env bash
# G/stream: a client that writes a cell there reads its number and then all its output, on one descriptor.
. "$(dirname "$0")/../lib.sh"

mount_plain
export G T
numbered() { # numbered NUMBER: the first line of a stream
	printf '{"type":"execute_input","cell":%d}' "$1"
}

is 'before any cell it is empty' "$(cat "$G/stream")" ''
exec 3<>"$G/stream"
echo 'print("from", rank)' >&3
cat <&3 >"$T/read"
n=$(readlink "$G/cells/last")
is 'the number comes first' "$(head -n 1 "$T/read")" "$(numbered "$n")"
is 'then what the ranks print' "$(grep -o 'from [01]' "$T/read" | sort | xargs)" 'from 0 from 1'
like 'the outcome is the end' "$(tail -n 1 "$T/read")" '"status","cell":'"$n"',"state":"ok"'
is 'all else is as in the history' "$(tail -n +2 "$T/read" | sort)" "$(sort "$G/cells/$n/stream")"
is 'there is nothing behind the end' "$(cat <&3)" ''
echo '1 / 0' >&3
cat <&3 >"$T/read"
is 'the descriptor takes the next cell' "$(head -n 1 "$T/read")" "$(numbered $((n + 1)))"
like 'which fails' "$(tail -n 1 "$T/read")" '"state":"error","errno":"EREMOTEIO"'
exec 3>&-

is 'who only reads gets the last' "$(head -n 1 "$G/stream")" "$(numbered $((n + 1)))"
is 'written as a cell is' "$(errno write "$G/stream" 'x = rank')" 0
is 'with its errno' "$(errno write "$G/stream" '1 / 0')" EREMOTEIO
is 'also by fsync' "$(errno fsync "$G/stream" '1 / 0')" EREMOTEIO
exec 3<>"$G/stream.1"
echo 'print("one", rank)' >&3
is 'on some ranks' "$(grep -o 'one [01]' <&3)" 'one 1'
exec 3>&-
is 'a rank that is none' "$(errno write "$G/stream.7" 'x = 1')" EINVAL

"$PLAIN_PYTHON" - <<'END' || bad 'one descriptor'
import errno, json, os, select, signal
G, T = os.environ["G"], os.environ["T"]
HANG_LIMIT_MS = int(os.environ["HANG_LIMIT_S"]) * 1000

def begin(source):
    fd = os.open(G + "/stream", os.O_RDWR)
    os.write(fd, source)
    return fd, json.loads(os.read(fd, 1 << 16))["cell"]

def ready(fd, ms):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(ms))

def end(data):
    return json.loads(data.splitlines()[-1])

gate = T + "/gate"
for rank in "01":
    os.mkfifo(gate + rank)

# the number is there while the cell runs, poll(2) tells of what it prints
fd, number = begin(f"open({gate!r} + str(rank)).read(); print('x' * 100_000)".encode())
assert not ready(fd, 0)
os.set_blocking(fd, False)
try:
    os.read(fd, 100)
    raise SystemExit("there is something")
except BlockingIOError:
    os.set_blocking(fd, True)
for rank in "01":
    with open(gate + rank, "w"):
        pass
assert ready(fd, HANG_LIMIT_MS)
data = b""
while piece := os.read(fd, 1000):
    data += piece
texts = [json.loads(line) for line in data.splitlines()]
assert sum(len(m["text"]) for m in texts[:-1]) == 2 * 100_001, "all of it, in small pieces"
assert end(data)["cell"] == number
os.close(fd)

# who is interrupted in a read can go on, and a small buffer gets the number in pieces
fd = os.open(G + "/stream", os.O_RDWR)
os.write(fd, b"import time; time.sleep(1000)")
number = json.loads(os.read(fd, 8) + os.read(fd, 8) + os.read(fd, 100))["cell"]

class Stop(Exception):
    pass

stopped = False

def stop(*_):
    global stopped
    if not stopped:
        stopped = True
        raise Stop

signal.signal(signal.SIGALRM, stop)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)  # again: one may come just ahead of the call
    os.read(fd, 100)
    raise SystemExit("there is something")
except Stop:
    signal.setitimer(signal.ITIMER_REAL, 0)
with open(f"{G}/cells/{number}/ctl", "w") as ctl:
    ctl.write("interrupt\n")
data = b""
while piece := os.read(fd, 1 << 16):
    data += piece
assert end(data)["state"] == "interrupted", data
os.close(fd)

# a cell that is not submitted by a read is so by close, and its stream is kept whatever the history does
with open(G + "/ctl", "w") as ctl:
    ctl.write("history 1\n")
fd, number = begin(b"print('kept')")
for _ in range(3):
    with open(G + "/cell", "w") as cell:
        cell.write("pass")
assert not os.path.exists(f"{G}/cells/{number}")
data = os.read(fd, 1 << 16)
while piece := os.read(fd, 1 << 16):
    data += piece
assert data.count(b"kept") == 2 and end(data)["cell"] == number, data
os.close(fd)

# its group is removed
os.mkdir(G + "/../other")
G = G + "/../other"
fd, number = begin(b"import time; time.sleep(1000)")
with open(G + "/ctl", "w") as ctl:
    ctl.write("stop\n")
data = b""
while piece := os.read(fd, 1 << 16):
    data += piece
assert end(data)["state"] != "ok", data
os.rmdir(G)
for gone in (lambda: os.read(fd, 100), lambda: os.close(fd)):
    try:
        gone()
        raise SystemExit("a group that is gone")
    except OSError as e:
        assert e.errno == errno.ENODEV, e
END

# bytes that are not UTF-8, each as one character; also an incomplete sequence at the end
cell 'import os; os.write(1, b"a\xff\xe6\xbcb\xe6\xbc"); os.write(2, b"\xc3")'
is 'no UTF-8' "$(grep '"rank":0' "$G/cells/last/stream" | grep -o '"text":.*,' | LC_ALL=C sort | xargs)" \
	'text:\ufffd, text:\ufffd\ufffd, text:a\ufffd\ufffd\ufffdb,'
