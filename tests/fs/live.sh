#!/usr/bin/env bash
# Files that wait for data work with poll(2), for each opener separately; so do trace, and stdin for input() and pdb.
. "$(dirname "$0")/../lib.sh"

mount_plain
export G M T
cell 'x = 1'

"$PLAIN_PYTHON" - <<'END' || bad 'poll'
import errno, os, select
G, M = os.environ["G"], os.environ["M"]
HANG_LIMIT_MS = int(os.environ["HANG_LIMIT_S"]) * 1000

def submit(text, path=G + "/cell"):
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, text.encode())
    os.close(fd)

def ready(fds, ms):
    poll = select.poll()
    for fd in fds.values():
        poll.register(fd, select.POLLIN)
    have = {fd for fd, _ in poll.poll(ms)}
    return {name for name, fd in fds.items() if fd in have}

gate = os.environ["T"] + "/gate"
for rank in "01":
    os.mkfifo(gate + rank)
submit(f"open({gate!r} + str(rank)).read(); print('said', flush=True); 6 * 7")
number = os.readlink(G + "/cells/last")
names = {"log": "log", "events": "events", "follow": "rank0/follow",
         "stream": f"cells/{number}/stream", "wait": f"cells/{number}/wait"}
fds = {name: os.open(f"{G}/{path}", os.O_RDONLY | os.O_NONBLOCK) for name, path in names.items()}
quiet = fds.keys() - {"events"}  # it may still tell of the cell's start
assert not ready({name: fds[name] for name in quiet}, 0)
for name in quiet:
    try:
        os.read(fds[name], 100)
        raise SystemExit(f"{name} has data")
    except BlockingIOError:
        pass
for rank in "01":
    with open(gate + rank, "w"):
        pass
left = dict(fds)
while left:
    some = ready(left, HANG_LIMIT_MS)
    assert some, f"never ready: {sorted(left)}"
    for name in some:
        assert os.read(left.pop(name), 1 << 16), name
# another reader of the same files gets the same
with open(f"{G}/cells/{number}/stream") as f:
    assert f.read().count("said") == 2
os.lseek(fds["stream"], 0, os.SEEK_SET)
# to its end
data = b""
while piece := os.read(fds["stream"], 1 << 16):
    data += piece
    ready({"stream": fds["stream"]}, HANG_LIMIT_MS)
assert data.count(b"said") == 2 and data.endswith(b"}\n"), data
for fd in fds.values():
    os.close(fd)
# plain files are always ready
with open(G + "/status", "rb") as f:
    assert ready({"status": f.fileno()}, 0)
END

# trace: each request and message except its own and the daemon's
exec 5<"$M/trace"
cat "$G/version" "$M/version" >/dev/null 2>&1
cell 'x = "traced"'
guarded grep -m1 'Rrun' <&5 >"$T/rrun" || bad 'no Rrun in trace'
exec 5<&-
like 'a message' "$(cat "$T/rrun")" '^[0-9]+\.[0-9]{6} wire < Rrun slot='
exec 5<"$M/trace"
cat "$M/version" >/dev/null
ok guarded sed -n '/ fuse open version pid=/q' <&5
exec 5<&-
exec 5<"$M/trace"
cell 'y = 1'
ls "$M" >/dev/null
guarded sed '/ fuse opendir /q' <&5 >"$T/trace"
exec 5<&-
is 'itself' "$(grep 'fuse.* trace' "$T/trace")" ''
is 'the daemon' "$(grep -c "pid=$(daemon_pid)$" "$T/trace")" 0
like 'the source' "$(grep Trun "$T/trace")" "wire > Trun .*source='y = 1"

# stdin: input(), whole lines, early input is kept; end of file; pdb
exec 5<"$G/events"
submit 'name = input("who? "); print("hello", name)' "$G/rank0/cell"
await 5 'input' >/dev/null
like 'ranks names who waits for input' "$(cat "$G/ranks")" 'state=input'
echo Bob >"$G/rank0/stdin" || bad 'stdin'
like 'the cell ends' "$(wait_cell "$n")" 'state ok'
is 'the answer' "$(cat "$G/rank0/vars/name")" Bob
is 'prompt and output' "$(cat "$G/cells/$n/rank0/stdout")" $'who? hello Bob'
submit 'a, b = input(), input()' "$G/rank1/cell"
printf 'one\ntwo\n' >"$G/rank1/stdin"
like 'two lines' "$(wait_cell "$n")" 'state ok'
is 'each' "$(cat "$G/rank1/vars/a" "$G/rank1/vars/b" | xargs)" 'one two'
submit 'import sys; line = sys.stdin.readline()' "$G/rank1/cell"
printf 'in ' >"$G/rank1/stdin" && printf 'pieces\n' >"$G/rank1/stdin"
like 'a line in pieces' "$(wait_cell "$n")" 'state ok'
is 'in pieces' "$(cat "$G/rank1/vars/line.json")" '"in pieces\n"'
submit 'def inner():
    secret = 41
    import pdb; pdb.set_trace()
    return secret
got = inner()' "$G/rank0/cell"
printf 'p secret + 1\nsecret = 5\nc\n' >"$G/rank0/stdin"
like 'pdb' "$(wait_cell "$n")" 'state ok'
like 'what it printed' "$(cat "$G/cells/$n/rank0/stdout")" '\(Pdb\) 42'
submit 'input("never answered")' "$G/rank1/cell"
await 5 "cell $n start" >/dev/null
await 5 'rank 1 waits-for-input' >/dev/null
echo interrupt >"$G/cells/$n/ctl"
like 'interrupted' "$(wait_cell "$n")" 'state interrupted'
exec 5<&-
is 'it works on' "$(value '1 + 1' 1)" 2
echo stop >"$G/ctl"
is 'no engine' "$(errno create "$G/rank0/stdin" x)" ESRCH

# an open log includes the ranks that another size adds, from their first line, and those that come back
printf 'size 1\nstart\n' >"$G/ctl"
exec 5<"$G/log"
for size in 4 1 3; do
	printf 'stop\nsize %d\nstart\n' $size >"$G/ctl"
	cell "print('of', world_size)"
done
guarded sed '/^2: of 3/q' <&5 >"$T/log" || bad 'the log'
for line in '0: of 4' '1: of 4' '2: of 4' '0: of 1' '2: of 3'; do
	is "log has '$line' once" "$(grep -cxF "$line" "$T/log")" 1
done
is 'what was printed before the open is not in it' "$(grep -vc 'of [134]$' "$T/log")" 0
exec 5<&-
