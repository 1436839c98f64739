#!/usr/bin/env bash
# Each way of writing a cell submits exactly the cells that it should.
. "$(dirname "$0")/../lib.sh"

mount_plain

# one WHAT SOURCE: since the last call exactly one cell was submitted, with this source
number=0
one() {
	number=$((number + 1))
	is "$1: number" "$(readlink "$G/cells/last")" "$number"
	is "$1: source" "$(cat "$G/cells/last/source"; echo .)" "$2."
	is "$1: state" "$(state)" ok
}

echo 'a = 1' >"$G/cell"
one 'echo' $'a = 1\n'
is 'it ran, on all ranks' "$(cat "$G/rank1/vars/a")" 1
printf 'a = 2\nb = 3\n' >"$G/cell"
one 'printf' $'a = 2\nb = 3\n'
printf 'a = 2' >"$G/cell"
one 'no newline at the end' 'a = 2'
cat >"$G/cell" <<'END'
def f(x):
    return x + 1

f(1)
END
one 'heredoc' $'def f(x):\n    return x + 1\n\nf(1)\n'
is 'its result' "$(cat "$G/result")" 2
printf 'c = 1\n' >"$T/a.py"
printf 'd = 2\n' >"$T/b.py"
cat "$T/a.py" >"$G/cell"
one 'cat' $'c = 1\n'
cat "$T/a.py" "$T/b.py" >"$G/cell"
one 'cat of two' $'c = 1\nd = 2\n'
cp "$T/a.py" "$G/cell" || bad cp
one 'cp' $'c = 1\n'
tee "$G/cell" <"$T/a.py" >/dev/null || bad tee
one 'tee' $'c = 1\n'
dd if="$T/a.py" of="$G/cell" status=none || bad dd
one 'dd' $'c = 1\n'
dd if="$T/a.py" of="$G/cell" conv=fsync status=none || bad 'dd fsync'
one 'dd conv=fsync' $'c = 1\n'
dd if="$T/a.py" of="$G/cell" conv=fsync,notrunc bs=1 status=none || bad 'dd bs=1'
one 'dd byte by byte' $'c = 1\n'
echo 'a = 3' >>"$G/cell"
one 'append' $'a = 3\n'
{ cat "$T/a.py"; true; cat "$T/b.py"; } >"$G/cell"
one 'a brace group' $'c = 1\nd = 2\n'
(cat "$T/a.py"; cat "$T/b.py") >"$G/cell"
one 'a subshell' $'c = 1\nd = 2\n'
sh -c "echo 'a = 4' > '$G/cell'"
one 'sh -c' $'a = 4\n'
"$PLAIN_PYTHON" -c "
with open('$G/cell', 'w') as f:
    f.write('e = 5\n')
    f.write('e += 1\n')"
one 'Python' $'e = 5\ne += 1\n'
"$PLAIN_PYTHON" -c "
import subprocess
with open('$G/cell', 'w') as f:
    f.write('g = 5\n')
    f.flush()
    subprocess.run(['true'], close_fds=False)
    f.write('g += 1\n')"
one 'Python with a child in between' $'g = 5\ng += 1\n'
is 'g' "$(cat "$G/vars/g")" 6
"$PLAIN_PYTHON" -c "
from pathlib import Path
Path('$G/cell').write_text('h = 1\n')"
one 'write_text' $'h = 1\n'
: >"$G/cell"
true >"$G/cell"
exec 3>"$G/cell"
exec 3>&-
is 'nothing written is no cell' "$(readlink "$G/cells/last")" "$number"

# one descriptor, many cells: fsync submits, a read returns the number, and then end of file
"$PLAIN_PYTHON" - "$G/cell" <<'END' || bad 'O_RDWR descriptor'
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
numbers = []
for i in range(3):
    os.write(fd, b"i = %d\n" % i)
    os.fsync(fd)
    numbers.append(int(os.read(fd, 100)))
    assert os.read(fd, 100) == b""
assert numbers == list(range(numbers[0], numbers[0] + 3)), numbers
os.fsync(fd)
os.close(fd)
END
number=$((number + 2))
one 'O_RDWR descriptor' $'i = 2\n'
exec 3<>"$G/cell"
echo 'j = 1' >&3
dd conv=fsync status=none of=/dev/null </dev/null
sync "$G/status" 2>/dev/null
dd status=none conv=fsync,notrunc if=/dev/null >&3
read -r n <&3
exec 3>&-
one 'fsync by another process' $'j = 1\n'
is 'its number' "$n" "$number"
is 'cell without a cell of its own' "$(cat "$G/cell")" "$number"

# an editor that writes in place
printf 'k = 1\nk += 1\n' | "$PLAIN_PYTHON" -c "
import os, sys
fd = os.open('$G/cell', os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
data = sys.stdin.buffer.read()
os.write(fd, data)
os.fsync(fd)
os.close(fd)"
one 'an editor' $'k = 1\nk += 1\n'

# 3 MiB arrive in several requests
"$PLAIN_PYTHON" -c "print('big = \"' + 'x' * (3 << 20) + '\"\nlen(big)')" >"$T/big.py"
cat "$T/big.py" >"$G/cell" || bad '3 MiB'
number=$((number + 1))
is '3 MiB: one cell' "$(readlink "$G/cells/last")" "$number"
cmp "$T/big.py" "$G/cells/last/source" || bad '3 MiB: source'
is '3 MiB: result' "$(cat "$G/result")" $((3 << 20))
head -c 17825792 /dev/zero | tr '\0' '#' >"$T/huge.py"
is 'over the limit' "$(errno write "$G/cell" "$(head -c 17 /dev/zero)"; "$PLAIN_PYTHON" -c "
import errno, os
fd = os.open('$G/cell', os.O_WRONLY)
try:
    for i in range(17):
        os.write(fd, b'#' * (1 << 20))
    os.close(fd)
    print('taken')
except OSError as e:
    print(errno.errorcode[e.errno])")" $'0\nEFBIG'
is 'the exit of a program that wrote too much runs nothing' "$(readlink "$G/cells/last")" "$number"

# the kernel caches the lookup of cell; each opener has an inode of its own, so that a writer that waits in fsync does
# not keep others from writing
T=$T guarded "$PLAIN_PYTHON" - "$M" <<'END' || bad 'cell, opened again and at once'
import multiprocessing, os, sys, time
M = sys.argv[1]
CELL, GATE = M + "/group/cell", os.environ["T"] + "/gate"
TIMES, WRITERS = 40, 6

def write(flags=0):
    fd = os.open(CELL, os.O_WRONLY | flags)
    os.write(fd, b"pass")
    os.close(fd)

def writer(number):
    for _ in range(TIMES):
        write(os.O_NONBLOCK if number % 2 else 0)

write()
trace = os.open(M + "/trace", os.O_RDONLY)
write()
os.stat(M + "/version")
seen = ""
while " lookup / version" not in seen:
    seen += os.read(trace, 1 << 16).decode()
os.close(trace)
assert " open group/cell" in seen and " lookup group cell" not in seen, seen
before = int(os.readlink(M + "/group/cells/last"))
fd = os.open(CELL, os.O_RDWR)
os.write(fd, f"import os, time\nwhile not os.path.exists({GATE!r}): time.sleep(0.005)".encode())
holder = multiprocessing.Process(target=os.fsync, args=(fd,))
holder.start()
while int(os.readlink(M + "/group/cells/last")) == before:
    time.sleep(0.001)
write(os.O_NONBLOCK)
assert int(os.readlink(M + "/group/cells/last")) == before + 2
open(GATE, "w").close()
holder.join()
os.close(fd)
writers = [multiprocessing.Process(target=writer, args=(k,)) for k in range(WRITERS)]
for process in writers:
    process.start()
for process in writers:
    process.join()
assert [process.exitcode for process in writers] == [0] * WRITERS
write()
assert int(os.readlink(M + "/group/cells/last")) == before + 3 + TIMES * WRITERS
END
