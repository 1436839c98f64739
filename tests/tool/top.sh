#!/usr/bin/env bash
# ddip top works as text, and at a terminal with its keys.
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
	ddip top >"$T/said" && grep -q '^rank 1 is in no collective (.*loop.py:6); rank 0 waits for it in all_reduce 51 ' "$T/said"
}
until_true waits
like 'it tells in what a rank waits' "$(grep '^ *0 busy' "$T/said")" ' all_reduce 51 for .*loop.py:'

cat >"$T/at_terminal.py" <<'END2'
"""A program at a terminal of its own."""

import os, pty, sys


class Terminal:
    def __init__(self, command, **environment):
        """environment: what is other than here; None: what is not there."""
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            for name, value in environment.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})
            os.execvp("sh", ["sh", "-c", command])

    def expect(self, text):
        """Reads up to this text."""
        while text not in self.seen:
            self.seen += os.read(self.fd, 65536)
        self.seen = self.seen.partition(text)[2]

    def write(self, keys):
        os.write(self.fd, keys)

    def end(self):
        """Reads what it still writes until it ends; ends as it does, or returns that text."""
        try:
            while data := os.read(self.fd, 65536):
                self.seen += data
        except OSError:
            pass
        if status := os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]):
            sys.exit(status)
        return self.seen
END2
cat >"$T/keys.py" <<'END2'
from at_terminal import Terminal

top = Terminal("exec ddip top -d 0.1", TERM="xterm", LINES="30", COLUMNS="120")
top.expect(b"rank 1 is in no collective")
top.expect(b"rank 0 prints:")
top.expect(b"step 50")
top.write(b"\x1bOB")
top.expect(b"rank 1 waits")
top.write(b"s")
top.expect(b"loop.py")
top.expect(b"any key goes back")
top.write(b" ")
top.write(b"i")
top.expect(b"interrupt: sent")
top.write(b"q")
top.end()
END2
ok guarded python3 "$T/keys.py" # arrows choose a rank, s shows its stack, i interrupts, q quits
like 'i interrupts the cell' "$(wait_cell "$cell")" 'state interrupted'

# the steps of optimizers in a second
submit 'import time, torch
x = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([x])
while True:
    x.grad = torch.ones(1)
    optimizer.step()
    time.sleep(0.005)'
steps() {
	ddip top -n 3 -d 0.2 | awk -v rank="$1" '$1 == rank && $2 == "busy" && $9 > 0 { found = 1 } END { exit !found }'
}
until_true steps 0
until_true steps 1
ddip interrupt

cat >"$T/sized.py" <<'END2'
"""ddip top at a terminal whose size changes, and at one that cannot do much."""

import fcntl, struct, sys, termios

from at_terminal import Terminal


def at(terminal):
    command = "stty rows 9 cols 30; exec ddip top -d 0.1"
    return Terminal(command, TERM=terminal, LINES=None, COLUMNS=None)


for terminal in "xterm", "vt100":
    top = at(terminal)
    top.expect(b"0 prints:")
    fcntl.ioctl(top.fd, termios.TIOCSWINSZ, struct.pack("4H", 20, 130, 0, 0))
    top.expect(b"WAITS IN")
    top.write(b"q")
    top.end()
for terminal in "dumb", "no-such-terminal", "":
    text = at(terminal).end()
    if b"this is text" not in text or b"WAITS IN" not in text:
        sys.exit(f"{terminal}: {text!r}")
END2
ok guarded python3 "$T/sized.py"

# many ranks at a small terminal: the selected one is visible, with its output
ddip stop
echo 'size 24' >"$G/ctl"
ddip start || bad 'no start of 24 ranks'
ddip exec 'print("".join(chr(97 + (rank * 7 + i * 5) % 26) for i in range(12)))' >/dev/null
cat >"$T/many.py" <<'END2'
from at_terminal import Terminal

top = Terminal("exec ddip top -d 0.1", TERM="xterm", LINES="15", COLUMNS="60")
for rank in range(24):
    # no letter stays where it was, so curses writes all of them
    top.expect(bytes(97 + (rank * 7 + i * 5) % 26 for i in range(12)))
    top.write(b"\x1bOB")
top.write(b"q")
top.end()
END2
ok guarded python3 "$T/many.py"

# what a rank prints may be wider than its characters are many
ddip exec 'print("\t" * 40 + "\n" + "\u6f22" * 100 + "\nend")' >/dev/null
cat >"$T/wide.py" <<'END2'
from at_terminal import Terminal

top = Terminal("exec ddip top -d 0.1", TERM="xterm", LINES="15", COLUMNS="60", LC_ALL="C.UTF-8")
top.expect(b"end")
top.write(b"q")
top.end()
END2
ok guarded python3 "$T/wide.py"

# a reader that leaves is no error
ddip top -n 1000 -d 0.01 2>"$T/err" | head -n 1 >/dev/null
is 'a pipe that is closed early' "$(cat "$T/err")" ''
