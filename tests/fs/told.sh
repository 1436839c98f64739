#!/usr/bin/env bash
# Who writes what fails, and would not see the errno, is told in one line on its own standard error, whatever that is.
# Nobody else is told anything, and neither a writer nor the daemon waits for who reads that.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=2
printf '1 / 0\n' >"$T/fails.py"
cell 'import time'

failed='ddipfs: cell [0-9]+ failed on rank [01]: ZeroDivisionError: division by zero \(cells/[0-9]+/traceback\)'
not_npy='ddipfs: w\.npy: npy needs NumPy'
not_json='ddipfs: w\.json: not JSON: JSONDecodeError: '

# once WHAT TEXT PATTERN: the text is one line like that
once() {
	is "$1: lines" "$(grep -c '' <<<"$2")" 1
	like "$1" "$2" "^$3"
}

# told PATTERN SHELL CODE: with its standard error a file, and a pipe, that says one line; the exit status is 0
told() {
	local status
	"$2" -c "$3" 2>"$T/file"
	is "status of $2: $3" $? 0
	once "$2 into a file: $3" "$(cat "$T/file")" "$1"
	status=$("$2" -c "$3" 2>&1 >/dev/null | cat; exit "${PIPESTATUS[0]}")
	is "status of $2 at a pipe: $3" $? 0
	once "$2 into a pipe: $3" "$status" "$1"
}

# silent COMMAND…: says nothing of ours; its exit status is in $status
silent() {
	"$@" 2>"$T/file"
	status=$?
	is "said by $*" "$(grep ddipfs: "$T/file")" ''
}

python() {
	"$PLAIN_PYTHON" -c "$@"
}

# ---- seven writers, each with a file and with a pipe

write="open('$G/cell', 'w').write('1 / 0')"
told "$failed" bash "echo '1 / 0' >'$G/cell'"
told "$failed" bash "printf '1 / 0' >'$G/cell'"
if command -v dash >/dev/null; then
	told "$failed" dash "echo '1 / 0' >'$G/cell'"
	told "$failed" dash "cat '$T/fails.py' >'$G/cell'"
fi
[ "$(python 'import sys; print(sys.version_info >= (3, 13))')" = True ] || # which prints the error of close, too
	told "$failed" "$PLAIN_PYTHON" "$write"
told "$not_json" bash "echo '{' >'$G/vars/w.json'"
told "$not_npy" bash "echo nonsense >'$G/vars/w.npy'"
told "$not_npy" bash ": >'$G/vars/w.npy'"
told "$failed" bash "echo '1 / 0' >'$G/rank1/cell'"
# what has been a file becomes one of the mount, whose close would wait for the daemon
is 'standard error on the mount' "$(guarded bash -c "for i in 1 2 3; do echo 'x = 1' >'$G/cell'; done
	echo 'x = 2' >'$G/cell' 2>&1; cat '$G/vars/x'" 2>"$T/file")" 2
is 'the line names the cell' "$(bash -c "echo '1 / 0' >'$G/cell'" 2>&1 | grep -o 'cell [0-9]*')" \
	"cell $(readlink "$G/cells/last")"
once 'a long message' "$(bash -c "echo 'raise ValueError(\"é\" * 1000)' >'$G/cell'" 2>&1)" \
	'ddipfs: cell [0-9]* failed on rank [01]: ValueError: (é)* … \(cells/[0-9]*/traceback\)$'
once 'a syntax error' "$(bash -c "echo 'def' >'$G/cell'" 2>&1)" 'ddipfs: cell [0-9]* failed on rank [01]: SyntaxError'
once 'a rank that dies' "$(bash -c "echo 'import os; os._exit(3)' >'$G/rank0/cell'" 2>&1)" \
	'ddipfs: cell [0-9]* failed: rank 0 died: exit status 3 \(cells/'
for good in "echo '1 + 1' >'$G/cell'" "echo 5 >'$G/vars/good'" "echo 5 >'$G/vars/good.json'" "echo grace 5 >'$G/ctl'" \
	"python3 -c 'open(\"$G/cell\", \"w\").write(\"1\")'"; do
	silent bash -c "$good"
	is "a success says nothing: $good" "$status $(cat "$T/file")" '0 '
done

# ---- where the line goes

bash -c "echo '1 / 0' >'$G/cell' 2>'$T/own'" 2>"$T/file"
once 'a redirection of that command' "$(cat "$T/own")" "$failed"
is 'gets it alone' "$(cat "$T/file")" ''
bash -c "echo before >&2; echo '1 / 0' >'$G/cell'; echo behind >&2" 2>"$T/file"
like 'a file is written in order' "$(tr '\n' ' ' <"$T/file")" "^before $failed behind $"
python "import os; os.write(os.open('$G/cell', os.O_WRONLY), b'1 / 0'); os._exit(0)" 2>"$T/file"
until_true grep -Eqx "$failed" "$T/file"
is 'who exits without closing is told afterwards, once' "$(grep -c '' "$T/file")" 1
bash -c "'$PLAIN_PYTHON' -c \"import os; os.write(os.open('$G/cell', os.O_WRONLY), b'1 / 0'); os._exit(0)\"
until grep -q failed '$T/file'; do :; done
echo behind >&2" 2>"$T/file"
like 'also in order' "$(tr '\n' ' ' <"$T/file")" "^$failed behind $"
python "import os; os.write(os.open('$G/vars/w.json', os.O_WRONLY | os.O_CREAT), b'{'); os._exit(0)" 2>"$T/file"
until_true grep -Eq "$not_json" "$T/file"
bash -c "echo '{' >'$G/vars/.staged'; mv '$G/vars/.staged' '$G/vars/w.json'" 2>"$T/file"
until_true grep -Eq "$not_json" "$T/file"
echo data >"$T/file"
bash -c "echo '1 / 0' >'$G/cell'" 2<"$T/file"
is 'what is open for reading is left alone' "$(cat "$T/file")" data
once 'a program run by a rank' "$(cell "import subprocess
subprocess.run(['bash', '-c', 'echo 1/0 >$G/rank1/cell'])" "$G/rank0/cell"; cat "$G/rank0/stderr")" "$failed"
: >"$G/rank0/stderr"

# ---- who sees the errno, or says that it looks, is told nothing

silent cp "$T/fails.py" "$G/cell"; is 'cp' "$status" 1
silent cat "$T/fails.py" >"$G/cell"
silent bash -c "cat '$T/fails.py' >'$G/cell'"; is 'cat' "$status" 1
silent dd if="$T/fails.py" of="$G/cell" status=none; is 'dd' "$status" 1
silent tee "$G/cell" <"$T/fails.py" >"$T/out"; is 'tee' "$status" 1
silent cp "$T/fails.py" "$G/vars/w.npy"; is 'cp of an object' "$status" 1
is 'fsync' "$(errno fsync "$G/cell" '1 / 0' 2>"$T/file")" EREMOTEIO
is 'says nothing' "$(cat "$T/file")" ''
is 'what is only queued' "$(errno nonblock "$G/cell" '1 / 0' 2>"$T/file")" 0
wait_cell "$(readlink "$G/cells/last")" >/dev/null
is 'says nothing of its outcome' "$(cat "$T/file")" ''
silent python "import os
fd = os.open('$G/cell', os.O_WRONLY | os.O_NOFOLLOW)
os.write(fd, b'1 / 0')
try: os.close(fd)
except OSError: print('seen')" >"$T/out"
is 'O_NOFOLLOW' "$(cat "$T/out")" seen
export DDIP_MOUNT=$M PYTHONPATH=$ROOT/magics
silent "$BUILD/ddip" exec '1 / 0'; is 'ddip exec' "$status" 1
silent "$BUILD/ddip" push w.json "$T/fails.py"; is 'ddip push' "$status" 4
"$PLAIN_PYTHON" - "$G" 2>"$T/file" <<'END'
import sys
from ddip import errors, groups
try:
    groups.Group(sys.argv[1]).ctl("size 4")
except errors.DipError:
    sys.exit()
sys.exit("it went well")
END
is 'magics' "$? $(cat "$T/file")" '0 '

# ---- lines of ctl: the errno does not say what was wrong

busy='ddipfs: size can be set while the group is new, stopping, restarting or stopped \(echo stop > group/ctl\)'
for how in "echo size 4 >'$G/ctl'" "echo size 4 | tee '$G/ctl'"; do
	like "told: $how" "$(bash -c "$how" 2>&1 >/dev/null | grep ddipfs:)" "^$busy$"
done
once 'Python is told of a verb' "$(python "
with open('$G/ctl', 'wb', 0) as f:
    try: f.write(b'nonsense')
    except OSError: pass" 2>&1)" "ddipfs: no verb 'nonsense'; want one of"
once 'a verb of a rank' "$(bash -c "echo nonsense >'$G/rank0/ctl'" 2>&1 | grep ddipfs:)" "ddipfs: no verb 'nonsense'"
once 'a verb of a cell' "$(bash -c "echo nonsense >'$G/cells/last/ctl'" 2>&1 | grep ddipfs:)" "ddipfs: no verb 'nonsense'"
mkdir "$M/bad"
# shellcheck disable=SC2016 # its own words
printf '#!/bin/sh\nexit 7\n' >"$T/python"
chmod +x "$T/python"
echo "python $T/python" >"$M/bad/ctl"
once 'an action that fails afterwards' "$(bash -c "echo start >'$M/bad/ctl'" 2>&1)" 'ddipfs: bad: Python .*/python ended before'
silent bash -c "echo size 5 >'$M/bad/ctl'"

# ---- which of several groups

for line in "cell:1 / 0:cell [0-9]+ failed on rank [01]: ZeroDivisionError" 'vars/w.json:{:w\.json: not JSON' \
	"ctl:nonsense:no verb 'nonsense'"; do
	IFS=: read -r file text want <<<"$line"
	once "$file of one of two groups" "$(bash -c "echo '$text' >'$G/$file'" 2>&1 | grep ddipfs:)" "ddipfs: group: $want"
done
rmdir "$M/bad"
once 'of the only one' "$(bash -c "echo '1 / 0' >'$G/cell'" 2>&1)" "$failed"

# ---- waiting behind another

# hold FILE: a cell that runs until something is told there
hold() {
	: >"$1"
	submit "while not os.path.getsize('$1'): time.sleep(0.01)"
}
cell 'import os, time'
hold "$T/waits"
bash -c "echo 'time.sleep(0.1)' >'$G/cell'" 2>"$T/waits"
hold "$T/file"
running=$n
bash -c "echo 1 >'$G/vars/late.json'" 2>"$T/file"
like 'a cell says what it waits for' "$(cat "$T/waits")" '^ddipfs: cell [0-9]+ waits for cell [0-9]+ of python3[^ ]* \(pid [0-9]+\)$'
is 'a push as well' "$(sed 's/ of .*//' "$T/file")" "ddipfs: late.json waits for cell $running"
: >"$T/waits"
bash -c "echo 'while not os.path.getsize(\"$T/waits\"): time.sleep(0.01)' >'$G/cell'" &
until_true grep -q '^state busy' "$G/status"
echo 1 >"$T/one"
cp "$T/one" "$G/vars/late.json" 2>"$T/waits"
is 'and who looks at the errno; the owner is named' "$(cat "$T/waits")" \
	"ddipfs: late.json waits for cell $(readlink "$G/cells/last") of bash (pid $!)"
wait

# ---- quiet

echo quiet on >"$G/ctl"
silent bash -c "echo '1 / 0' >'$G/cell'; echo '{' >'$G/vars/w.json'; echo nonsense >'$G/ctl'"
is 'it shows' "$(grep ^quiet "$G/ctl")" 'quiet on'
echo quiet off >"$G/ctl"

# ---- nobody waits, whatever it is

"$PLAIN_PYTHON" - "$G/cell" <<'END' || bad 'see above'
import fcntl, os, pty, socket, subprocess, sys, termios
code = ["bash", "-c", "echo 1/0 > " + sys.argv[1]]

def run(stderr, **more):
    subprocess.run(code, stderr=stderr, check=True, timeout=300, **more)

r, w = os.pipe()
os.set_blocking(w, False)
room = 0
try:
    while True:
        room += os.write(w, bytes(1 << 12))
except BlockingIOError:
    os.set_blocking(w, True)
run(w)  # a full pipe
assert not fcntl.fcntl(w, fcntl.F_GETFL) & os.O_NONBLOCK, "the writer's own flags have changed"
assert os.read(r, 2 * room) == bytes(room), "something was written to a full pipe"
run(w)
assert os.read(r, 1 << 16).startswith(b"ddipfs: cell "), "nothing was written to a pipe with room"
os.close(r)
run(w)  # nobody reads it
near, far = socket.socketpair()
run(far)  # as node gives its children
far.close()
with near.makefile() as lines:
    assert [line[:13] for line in lines] == ["ddipfs: cell "], "not one line on a socket, and its end"
main, terminal = pty.openpty()
run(terminal)
assert os.read(main, 1 << 16).startswith(b"ddipfs: cell "), "nothing on a terminal"
termios.tcflow(terminal, termios.TCOOFF)
run(terminal)  # it is stopped, as by Ctrl-S
termios.tcflow(terminal, termios.TCOON)
END
bash -c "echo '1 / 0' >'$G/cell'" 2>"$G/rank0/stdin"
bash -c "echo '1 / 0' >'$G/cell'" 2>"$G/cell"
bash -c "exec 2>'$G/cell'; echo '1 / 0' >'$G/vars/w.json'; echo 'y = 2' >&2"
is 'a standard error on the mount gets nothing' "$(cat "$G/cells/last/source")" 'y = 2'
bash -c "echo '1 / 0' >'$G/cell'" 2>&-
bash -c "echo '1 / 0' >'$G/cell'" 2>/dev/full
is 'the daemon answers' "$(value '6 * 7')" 42
if unshare -f -p true 2>/dev/null; then
	once 'in a PID namespace below' "$(unshare -f -p bash -c "echo '1 / 0' >'$G/cell'" 2>&1)" "$failed"
fi
unmount

# ---- where no descriptor may be duplicated, as in many containers

mount_plain -o size=1,quiet
silent bash -c "echo '1 / 0' >'$G/cell'"
unmount
cat >"$T/without" <<'END'
import ctypes, os, platform, struct, sys
# a filter of system calls: pidfd_getfd (438 on all machines) fails with EPERM
LOAD, EQUAL, RETURN, ALLOW, ERRNO = 0x20, 0x15, 0x06, 0x7FFF0000, 0x50000
program = b"".join(struct.pack("HBBI", *row) for row in [
    (LOAD, 0, 0, 0), (EQUAL, 0, 1, 438), (RETURN, 0, 0, ERRNO | 1), (RETURN, 0, 0, ALLOW)])
buffer = ctypes.create_string_buffer(program)
class Filter(ctypes.Structure):
    _fields_ = [("n", ctypes.c_ushort), ("program", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(Filter(4, ctypes.addressof(buffer)))):
    sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
END
mkdir -p "$M"
if "$PLAIN_PYTHON" "$T/without" "$BUILD/ddipfs" -o "python=$PLAIN_PYTHON,backend=none,size=1" "$M"; then
	told "$failed" bash "echo '1 / 0' >'$G/cell'"
	told "$not_json" bash "echo '{' >'$G/vars/w.json'"
	bash -c "echo before >&2; echo '1 / 0' >'$G/cell'; echo behind >&2" 2>>"$T/appended"
	like 'in order' "$(tr '\n' ' ' <"$T/appended")" "^before $failed behind $"
	is 'a socket cannot be opened: nothing is lost but the line' "$("$PLAIN_PYTHON" -c "
import socket, subprocess
near, far = socket.socketpair()
print(subprocess.run(['bash', '-c', 'echo 1/0 >$G/cell'], stderr=far).returncode)")" 0
fi
