#!/usr/bin/env bash
# ddip top: as text, and at a terminal with its keys.
. "$(dirname "$0")/../lib.sh"

mount_torch -o size=2 -o gpus=none
export DDIP_MOUNT=$M PATH=$BUILD:$PATH HOME=$T

ddip start || give_up 'no start'
is 'it tells of an idle rank' "$(ddip top | awk '$1 == 1 { print $2 }')" idle
for words in '-n 0' '-d x' '-d -1' 'more' '--no'; do
	# shellcheck disable=SC2086 # words
	ddip top $words >/dev/null 2>&1
	is "wrong usage: top $words" $? 2
done

cat >"$T/loop.py" <<'END2'
import time, torch, torch.distributed as dist
step = torch.zeros(1)
while True:
    if rank == 1 and step == 50:
        print("rank 1 waits")
        time.sleep(1000)
    dist.all_reduce(torch.ones(1))
    step += 1
    print("step", int(step))
END2
cell=$(ddip run -k -d "$T/loop.py")
waits() {
	ddip top >"$T/said" && grep -q '^rank 1 has not entered all_reduce 51' "$T/said"
}
until_true waits
like 'it tells in what a rank waits' "$(grep '^ *0 busy' "$T/said")" ' all_reduce 51 for .*loop.py:'

cat >"$T/terminal.py" <<'END2'
"""ddip top at a terminal: what it shows, and its keys."""

import os, pty, sys

pid, fd = pty.fork()
if pid == 0:
    os.environ.update(TERM="xterm", LINES="30", COLUMNS="120")
    os.execvp("ddip", ["ddip", "top", "-d", "0.1"])
seen = b""


def expect(text):
    global seen
    while text not in seen:
        seen += os.read(fd, 65536)
    seen = seen.partition(text)[2]


expect(b"rank 1 has not entered all_reduce 51")
expect(b"rank 0 prints:")
expect(b"step 50")
os.write(fd, b"\x1bOB")
expect(b"rank 1 waits")
os.write(fd, b"s")
expect(b"loop.py")
expect(b"any key goes back")
os.write(fd, b" ")
os.write(fd, b"i")
expect(b"interrupt: sent")
os.write(fd, b"q")
while True:  # what it still writes
    try:
        if not os.read(fd, 65536):
            break
    except OSError:
        break
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END2
ok guarded python3 "$T/terminal.py" # arrows choose a rank, s shows its stack, i interrupts, q quits
like 'i interrupts the cell' "$(wait_cell "$cell")" 'state interrupted'

cat >"$T/sized.py" <<'END2'
"""ddip top at a terminal whose size changes, and at one that cannot do much."""

import fcntl, os, pty, struct, sys, termios


def at(terminal):
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.pop("LINES", None)
        os.environ.pop("COLUMNS", None)
        os.environ.update(TERM=terminal)
        os.execvp("sh", ["sh", "-c", "stty rows 9 cols 30; exec ddip top -d 0.1"])
    return pid, fd


def expect(fd, text):
    seen = b""
    while text not in seen:
        seen += os.read(fd, 65536)


def rest(fd):
    text = b""
    try:
        while data := os.read(fd, 65536):
            text += data
    except OSError:
        pass
    return text


def end(pid, terminal):
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        sys.exit(terminal)


for terminal in "xterm", "vt100":
    pid, fd = at(terminal)
    expect(fd, b"0 prints:")
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", 20, 130, 0, 0))
    expect(fd, b"WAITS IN")
    os.write(fd, b"q")
    rest(fd)
    end(pid, terminal)
for terminal in "dumb", "no-such-terminal", "":
    pid, fd = at(terminal)
    text = rest(fd)
    if b"this is text" not in text or b"WAITS IN" not in text:
        sys.exit(f"{terminal}: {text!r}")
    end(pid, terminal)
END2
ok guarded python3 "$T/sized.py"

# many ranks at a small terminal: the chosen one is there, and what it prints
ddip stop
echo 'size 24' >"$G/ctl"
ddip start || bad 'no start of 24 ranks'
ddip exec 'print("".join(chr(97 + (rank * 7 + i * 5) % 26) for i in range(12)))' >/dev/null
cat >"$T/many.py" <<'END2'
import os, pty

pid, fd = pty.fork()
if pid == 0:
    os.environ.update(TERM="xterm", LINES="15", COLUMNS="60")
    os.execvp("ddip", ["ddip", "top", "-d", "0.1"])
seen = b""
for rank in range(24):
    # no letter stays where it was, so curses writes all of them
    said = bytes(97 + (rank * 7 + i * 5) % 26 for i in range(12))
    while said not in seen:
        seen += os.read(fd, 65536)
    seen = b""
    os.write(fd, b"\x1bOB")
os.write(fd, b"q")
try:
    while os.read(fd, 65536):
        pass
except OSError:
    pass
END2
ok guarded python3 "$T/many.py"

# a reader that leaves is no error
ddip top -n 1000 -d 0.01 2>"$T/err" | head -n 1 >/dev/null
is 'a pipe that is closed early' "$(cat "$T/err")" ''
