#!/usr/bin/env bash
# Descriptor 0 of a rank is its standard input: select(2), poll(2), read(2) and children see what was written to
# rankK/stdin, and nothing else; sys.stdin takes no more of it than is asked for.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=2
cell 'import asyncio, fcntl, os, select, selectors, subprocess, sys, threading
def ready():
    by_poll = select.poll()
    by_poll.register(sys.stdin)
    found = bool(select.select([sys.stdin], [], [], 0)[0])
    assert found == bool(by_poll.poll(0)) == bool(select.select([0], [], [], 0)[0])
    return found'
give() { printf '%b' "$1" >"$G/rank0/stdin" || bad "write '$1'"; }
ends() { is 'eof' "$(errno write "$G/rank0/ctl" $'eof\n')" 0; }

# select and poll say what waits, line by line, and the end once
is 'nothing waits' "$(value 'ready()')" False
give 'one\ntwo\nthree\n\xc3\xa4bc'
is 'input waits' "$(value 'ready()')" True
is 'the rest of a line stays' "$(value '[(sys.stdin.readline(), ready()) for _ in range(3)][2]')" "('three\n', True)"
is 'and of a character' "$(value 'sys.stdin.read(1), ready(), sys.stdin.buffer.read1(), ready()')" "('ä', True, b'bc', False)"
ends
is 'the end is readable, once' "$(value 'ready(), os.read(0, 9), sys.stdin.read(), ready()')" "(True, b'', '', False)"
give 'tail'
ends
is 'bytes before the end' "$(value 'ready(), sys.stdin.read(), ready()')" "(True, 'tail', False)"
ends
give 'x'
is 'bytes after an end that nobody saw' "$(value 'sys.stdin.read()')" "'x'"

# what waits for descriptor 0 gets what comes later
exec 5<"$G/events"
submit 'got = select.select([sys.stdin], [], [], 300)[0] == [sys.stdin], os.read(0, 100)' "$G/rank0/cell"
give 'later\n'
like 'select waits' "$(wait_cell "$n")" 'state ok'
is 'what came' "$(value got)" "(True, b'later\n')"
submit 'async def first():
    loop, seen = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, seen.set)
    await asyncio.wait_for(seen.wait(), 300)
    loop.remove_reader(sys.stdin)
    return sys.stdin.readline()
got = asyncio.run(first())' "$G/rank0/cell"
give 'for asyncio\n'
like 'a loop of asyncio' "$(wait_cell "$n")" 'state ok'
is 'what it read' "$(value got)" "'for asyncio\n'"
submit 'os.read(0, 1)' "$G/rank0/cell"
await 5 "cell $n start" >/dev/null
is 'interrupt' "$(errno write "$G/cells/$n/ctl" $'interrupt\n')" 0
like 'a read is interrupted' "$(wait_cell "$n")" 'state interrupted'

# descriptor 0 that user code has made nonblocking, or replaced, is no harm to input()
cell 'os.set_blocking(0, False)' "$G/rank0/cell"
submit 'name = input()' "$G/rank0/cell"
await 5 "cell $n start" >/dev/null
await 5 'waits-for-input' >/dev/null
give 'Ada\n'
like 'input() waits' "$(wait_cell "$n")" 'state ok'
is 'for a line' "$(value name)" "'Ada'"
cell 'os.set_blocking(0, True); kept = os.dup(0); os.dup2(os.open("/dev/null", os.O_RDONLY), 0)' "$G/rank0/cell"
give 'Bob\n'
is 'of its own' "$(value 'input()')" "'Bob'"
cell 'os.dup2(kept, 0); os.close(kept)' "$G/rank0/cell"

# children, forked and executed: what came before them, what comes later, the end; the end does not outlast the cell
give 'one\ntwo\n'
is 'a child takes what waits, and not more' "$(value 'sys.stdin.readline(), subprocess.check_output("read -r x; echo $x", shell=True), ready()')" \
	"('one\n', b'two\n', False)"
give 'early '
submit 'got = subprocess.check_output(["cat"])' "$G/rank0/cell"
await 5 "cell $n start" >/dev/null
give 'late'
ends
like 'a child reads to the end' "$(wait_cell "$n")" 'state ok'
is 'all of it' "$(value got)" "b'early late'"
is 'another end is to come' "$(value 'ready()')" False
give 'by a path'
ends
is '/dev/stdin' "$(value 'open("/dev/stdin").read(), ready(), sys.stdin.read(), ready()')" "('by a path', True, '', False)"
submit 'pid = os.fork()
if not pid:
    sys.stdin.readline()
    os._exit(len(sys.stdin.readline()))
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])' "$G/rank0/cell"
give '\nabc\n'
like 'a forked child' "$(wait_cell "$n")" 'state ok'
is 'reads on' "$(value status)" 4
submit 'pid = os.fork()
if not pid:
    os._exit(len(sys.stdin.read()))
os.waitpid(pid, 0)' "$G/rank0/cell"
ends
like 'and sees the end' "$(wait_cell "$n")" 'state ok'

# more than may wait, taken by a child: the writer goes on as room comes
submit 'import hashlib
got = subprocess.check_output(["sha256sum"]).split()[0].decode()' "$G/rank0/cell"
"$PLAIN_PYTHON" - "$G/rank0" <<'END_OF_PROGRAM' >"$T/sum" || bad 'a child takes much'
import hashlib, os, sys
data = os.urandom(5 << 20)
fd, sent = os.open(sys.argv[1] + "/stdin", os.O_WRONLY), 0
while sent < len(data):
    try:
        sent += os.write(fd, data[sent:])
    except BlockingIOError:
        pass
with open(sys.argv[1] + "/ctl", "w") as ctl:
    ctl.write("eof\n")
print(hashlib.sha256(data).hexdigest())
END_OF_PROGRAM
like 'all of much' "$(wait_cell "$n")" 'state ok'
is 'the same' "$(value got)" "'$(cat "$T/sum")'"

# many threads that read lines lose none
submit 'lines = []
def take():
    while (line := sys.stdin.readline()):
        lines.append(line)
readers = [threading.Thread(target=take) for _ in range(4)]
[r.start() for r in readers]
[r.join() for r in readers]' "$G/rank0/cell"
seq 1 2000 >"$G/rank0/stdin"
for _ in 1 2 3 4; do ends; done
like 'threads' "$(wait_cell "$n")" 'state ok'
is 'each line once' "$(value 'len(lines), sum(map(int, lines))')" '(2000, 2001000)'

# who waits outside sys.stdin is seen, too, and served by `ddip exec`
export DDIP_MOUNT=$PLACE
PATH=$BUILD:$PATH
exec 5<&- 5<"$G/events"
submit 'got = os.read(0, 100)' "$G/rank0/cell"
await 5 'rank 0 waits-for-input' >/dev/null
like 'a read of descriptor 0 is input' "$(cat "$G/ranks")" 'state=input'
give 'seen\n'
like 'it goes on' "$(wait_cell "$n")" 'state ok'
submit 'got = subprocess.check_output(["cat"])' "$G/rank0/cell"
await 5 'rank 0 waits-for-input' >/dev/null
give 'one\n'
await 5 'rank 0 got-input' >/dev/null
await 5 'rank 0 waits-for-input' >/dev/null
ends
like 'so is that of a child' "$(wait_cell "$n")" 'state ok'
is 'which gets all' "$(value got)" "b'one\n'"
exec 5<&-
is 'a child gets what ddip exec reads' "$(printf 'a\nb\n' | guarded ddip exec -r 0 'subprocess.call("cat")')" $'a\nb\n0'
is 'or its end' "$(guarded ddip exec -r 0 'subprocess.call("cat")' </dev/null)" 0
is 'select of a program that asks for nothing' "$(echo ready | guarded ddip exec -r 0 \
	'select.select([sys.stdin], [], [], 300)[0] and sys.stdin.readline()')" "'ready\\n'"
is 'what is not asked for stays' "$(printf 'a\nb\n' | { guarded ddip exec -r 0 '1'; cat; })" $'1\na\nb'
