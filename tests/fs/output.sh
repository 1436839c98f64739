#!/usr/bin/env bash
# What ranks print is kept completely, byte for byte, in the right cell, and is readable live.
. "$(dirname "$0")/../lib.sh"

mount_plain
cell 'import os, subprocess, sys, threading, ctypes'

cell 'print("hello from", rank)'
is 'print' "$(cat "$G/cells/last/rank1/stdout")" 'hello from 1'
is 'the size' "$(stat -c %s "$G/cells/last/rank1/stdout")" 13
cell 'print("err", file=sys.stderr); sys.stdout.write("no newline")'
is 'stderr' "$(cat "$G/cells/last/rank0/stderr")" err
is 'no newline' "$(cat "$G/cells/last/rank0/stdout")" 'no newline'
cell 'os.write(1, b"\x00\xff raw\n"); sys.stdout.buffer.write(b"\x80 buffer\n")'
is 'raw bytes' "$(od -An -c "$G/cells/last/rank0/stdout" | xargs)" \
	"$(printf '\0\377 raw\n\200 buffer\n' | od -An -c | xargs)"
cell 'libc = ctypes.CDLL(None); libc.printf(b"from C %d\n", 42); print("after C")'
is 'C printf' "$(cat "$G/cells/last/rank0/stdout")" $'from C 42\nafter C'
cell 'subprocess.run("echo out; echo err >/dev/stderr; echo more > /dev/stdout; echo x | tee /dev/stderr", shell=True)'
is 'a child' "$(cat "$G/cells/last/rank0/stdout")" $'out\nmore\nx'
is 'its stderr' "$(cat "$G/cells/last/rank0/stderr")" $'err\nx'
cell 'pid = os.fork()
if pid == 0:
    print("in the child")
    os._exit(0)
os.waitpid(pid, 0)
print("in the parent")'
is 'os.fork' "$(sort "$G/cells/last/rank0/stdout")" $'in the child\nin the parent'

# the two streams in their order
cell 'for i in range(50):
    print("out", i)
    print("err", i, file=sys.stderr)'
n=$(readlink "$G/cells/last")
is 'order of the streams' "$(guarded cat "$G/cells/$n/stream" | grep '"rank":0' | grep '"stream"' |
	grep -o '"text":"[a-z]* [0-9]*' | cut -d '"' -f 4 | tr '\n' ' ')" \
	"$(for i in $(seq 0 49); do printf 'out %d err %d ' "$i" "$i"; done)"
like 'its end' "$(guarded cat "$G/cells/$n/stream" | tail -n 1)" '"type":"status".*"state":"ok"'

# output between cells belongs to the rank, not to a cell
mkfifo "$T/gate"
cell "def later():
    open('$T/gate').read()
    print('between cells')
if rank == 0:
    t = threading.Thread(target=later)
    t.start()"
exec 5<"$G/rank0/follow"
echo >"$T/gate"
like 'follow' "$(guarded grep -m1 between <&5)" 'between cells'
exec 5<&-
cell 't.join() if rank == 0 else None; print("next")'
is 'not in the next cell' "$(cat "$G/cells/last/rank0/stdout")" next
grep -q 'between cells' "$G/rank0/stdout" || bad 'it is not in the log'

# live: every reader gets every line, in log with the rank
exec 5<"$G/log" 6<"$G/log"
cell 'print("to the log")'
for fd in 5 6; do
	is "log $fd" "$(guarded head -n 2 <&$fd | sort)" $'0: to the log\n1: to the log'
done
exec 5<&- 6<&-

# 10^5 lines: no byte is lost, with and without flush; the whole stream has them, too
cell 'for i in range(100000): print("line", i)'
is '10^5 lines' "$(md5sum <"$G/cells/last/rank1/stdout")" "$(seq -f 'line %.0f' 0 99999 | md5sum)"
is 'lines in the stream' "$(cat "$G/cells/last/stream" | grep '"rank":1' | grep -o '\\n' | wc -l)" 100000
cell 'threads = [threading.Thread(target=lambda k=k: [print(f"{k} {i}\n", end="") for i in range(2000)])
           for k in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]; None'
is 'four threads' "$(sort "$G/cells/last/rank0/stdout" | md5sum)" \
	"$(for k in 0 1 2 3; do for i in $(seq 0 1999); do echo "$k $i"; done; done | sort | md5sum)"

# a rank that is killed: its earlier output is there
cell 'print("last words"); os.kill(os.getpid(), 9)' "$G/rank1/cell" 2>/dev/null
is 'last words' "$(cat "$G/cells/last/rank1/stdout")" 'last words'
cell 'import os; os._exit(5)' "$G/rank1/cell" 2>/dev/null
like 'a cell that writes nothing has no last words' "$(cat "$G/cells/last/error")" 'rank 1 died: exit status 5$'
cell 'import sys; print("earlier", file=sys.stderr)' "$G/rank1/cell"
cell 'import os, sys; print("later", file=sys.stderr); os._exit(6)' "$G/rank1/cell" 2>/dev/null
like 'those of an earlier cell are not its own' "$(cat "$G/cells/last/error")" 'exit status 6; its last words: later$'
cell 'import sys; print("earlier", file=sys.stderr)' "$G/rank1/cell"
: >"$G/error"
kill -KILL "$(sed -n 's/^1 .*pid=\([0-9]*\).*/\1/p' "$G/ranks")"
until_true grep -q 'rank 1 died' "$G/error"
is 'nor are they those of a rank that dies between cells' "$(grep -c earlier "$G/error")" 0
cell 'import os, sys
for i in range(60): print("line", i, "-" * 30, file=sys.stderr)
print("frame #0: somewhere\nthe very last\nframe #1: elsewhere", file=sys.stderr)
os._exit(4)' "$G/rank1/cell" 2>/dev/null
like 'its last words' "$(cat "$G/cells/last/error")" 'exit status 4; its last words: line [0-9]'
like 'to the end' "$(cat "$G/cells/last/error")" 'the very last'
is 'without a C++ stack' "$(grep -c 'frame #' "$G/error")" 0
# of a crash the location, without Python's details: its list of C modules may be long
cell 'import ctypes, sys, threading
def crash(): ctypes.string_at(0)
threading.Thread(target=lambda: threading.Event().wait(), daemon=True).start()
for i in range(300): sys.modules[f"in_c_{i}"] = type(sys)(f"in_c_{i}"); sys.modules[f"in_c_{i}"].__file__ = "x.so"
sys.stderr.write("\0Fatal Python error: of a child\n")
crash()' "$G/rank1/cell" 2>/dev/null
like 'where it crashed' "$(cat "$G/cells/last/error")" 'signal 11 .*Fatal Python error: Seg.*in crash'
is 'and no more' "$(grep -cE 'Extension modules|ddip_engine|^Thread' "$G/cells/last/error")" 0
cell 'import os, sys; sys.stdout.write("no newline"); sys.stderr.write("either"); os._exit(1)' "$G/rank1/cell" 2>/dev/null
is 'even unflushed' "$(cat "$G/cells/last/rank1/stdout" "$G/cells/last/rank1/stderr")" 'no newlineeither'

# the log: a regular file that grows; dropping its contents
size=$(stat -c %s "$G/rank0/stdout")
is 'wc agrees with stat' "$(wc -c <"$G/rank0/stdout")" "$size"
is 'cat agrees' "$(cat "$G/rank0/stdout" | wc -c)" "$size"
cp "$G/rank0/stdout" "$T/copy" && is 'cp agrees' "$(stat -c %s "$T/copy")" "$size"
tail -c 100 "$T/copy" | cmp - <(tail -c 100 "$G/rank0/stdout") || bad 'tail -c'
: >"$G/rank0/stdout"
is 'dropped' "$(stat -c %s "$G/rank0/stdout")" 0
cell 'print("new")'
is 'goes on at 0' "$(cat "$G/rank0/stdout")" new
like 'writing into it' "$(errno write "$G/rank0/stdout" x)" 'EACCES|EINVAL'

# each stream is dropped separately, through an open file and by name
cell 'import sys; print("out"); print("err", file=sys.stderr)'
"$PLAIN_PYTHON" -c "import os; os.truncate('$G/rank0/stderr', 0)" || bad 'truncate(2) of stderr'
is 'truncate of stderr empties stderr' "$(stat -c %s "$G/rank0/stderr")" 0
is 'and nothing else' "$(tail -n 1 "$G/rank0/stdout")" out
cell 'print("err again", file=sys.stderr)'
"$PLAIN_PYTHON" -c "import os; os.truncate('$G/rank0/stdout', 0)" || bad 'truncate(2) of stdout'
is 'truncate of stdout empties stdout' "$(stat -c %s "$G/rank0/stdout")" 0
is 'and not stderr' "$(cat "$G/rank0/stderr")" 'err again'

# a cell's stream reports dropped output, also if nothing follows
cell 'print("0123456789")' "$G/rank0/cell"
: >"$G/rank0/stdout"
is 'dropped to the end' "$(head -n 1 "$G/cells/last/stream")" '{"type":"dropped","bytes":11,"rank":0}'

# a reader is told what `spool` dropped before it got there
exec 5<"$G/rank0/follow"
echo 'spool 65536' >"$G/ctl"
cell 'for i in range(40000): print("number", i)'
: >"$G/rank0/stdout"
cell 'print("the last")'
like 'a reader of follow is told what it missed' "$(guarded grep -a -m1 'dropped' <&5)" '[0-9]+ bytes were dropped'
like 'and reads on' "$(guarded grep -a -m1 'the last' <&5)" 'the last'
exec 5<&-

# free space: that of the file system where output is kept
is 'df' "$(stat -f -c '%b' "$M")" "$(stat -f -c '%b' "$(key "$G/status" spool)")"

# a rank's output survives a change of the group's size, and dropped output stays dropped
resize() {
	is "size $1" "$(errno fsync "$G/ctl" "stop"$'\n'"size $1"$'\n')" 0
}
cell 'print("x" * 10000)'
before=$(readlink "$G/cells/last")
: >"$G/rank1/stdout"
cell 'print("kept")'
resize 1
is 'of a rank that stays, at once' "$(tail -n 1 "$G/rank0/stdout")" kept
is 'of one that has gone, in its cells' "$(cat "$G/cells/last/rank1/stdout")" kept
is 'and in their streams' "$(grep -c '"kept' "$G/cells/last/stream")" 2
is 'what was dropped is told of' "$(grep -c '"dropped".*"rank":1' "$G/cells/$before/stream")" 1
is 'each of its files can be copied' "$(cp -r "$G/cells/last"/rank* "$T" && ls "$T/rank1" | xargs)" \
	'locals result status stderr stdout traceback'
resize 2
is 'of one that was away' "$(cat "$G/rank1/stdout" "$G/cells/last/rank1/stdout" | xargs)" 'kept kept'
is 'start' "$(errno fsync "$G/ctl" $'start\n')" 0
cell pass
is 'when it runs again' "$(cat "$G/rank1/stdout")" kept
# ranks that never started use no descriptors
descriptors() {
	find "/proc/$(daemon_pid)/fd" | wc -l
}
resize 2
before=$(descriptors)
resize 1000
ok [ "$(descriptors)" -lt $((before + 100)) ] # for a thousand ranks
