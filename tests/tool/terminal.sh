#!/usr/bin/env bash
# The shell tool works at a real terminal: Ctrl-C in each verb, the prompt with history and completion, attach for
# input() and pdb, colours.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=2
export DDIP_MOUNT=$PLACE PATH=$BUILD:$PATH HOME=$T
ddip start || give_up 'no start'

cat >"$T/terminal.py" <<'END'
"""A program at a terminal of its own: type(), expect(), status()."""

import os
import pty
import re
import select
import signal
import sys
import termios
import time

HANG_LIMIT_S = float(os.environ["HANG_LIMIT_S"])
CTRL_C, CTRL_D, TAB, UP = "\x03", "\x04", "\t", "\x1b[A"


class Terminal:
    def __init__(self, *words):
        # held back until the program can get it: this interpreter would swallow it
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        if self.pid == 0:
            os.environ["TERM"] = "dumb"
            os.execvp(words[0], words)
        self.words, self.seen, self.text = words, "", ""

    def type(self, text):
        os.write(self.fd, text.encode())

    def _more(self, end):
        if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
            raise AssertionError(f"{self.words}: timeout; on the terminal: {self.seen!r}")
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # EIO: the other side is closed
            data = b""
        self.seen += data.decode(errors="replace")
        self.text += data.decode(errors="replace")
        return bool(data)

    def expect(self, pattern, seconds=HANG_LIMIT_S):
        """Waits for it behind what was expected before; the text until its end."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen, re.S)):
            if not self._more(end):
                raise AssertionError(f"{self.words} ended; no {pattern!r} in {self.seen!r}")
        text, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return text

    def _press_until(self, done):
        """Ctrl-C, again where bash did not see it: in a fork, or (once in a hundred) at a prompt."""
        for seconds in (2, 2, 2, HANG_LIMIT_S):
            self.type(CTRL_C)
            try:
                return done(seconds)
            except AssertionError as e:
                error = e
        raise error

    def until_it_reads(self):
        """Waits until it reads the terminal. Ctrl-C before that may hit the start of Python itself."""
        end = time.monotonic() + HANG_LIMIT_S
        call = []
        while call not in (["0", "0x0"], ["63", "0x0"]):  # read(0, ...) on x86-64, on arm64
            assert time.monotonic() < end, f"{self.words}: {call}"
            time.sleep(0.005)
            with open(f"/proc/{self.pid}/syscall") as file:
                call = file.read().split()[:2]

    def drop_line(self):
        return self._press_until(lambda seconds: self.expect("group> ", seconds))

    def break_off(self):
        status = self._press_until(self.status)
        assert status in (130, -2), status

    def until_echo(self, on):
        """Waits until the terminal shows what is typed, or no longer."""
        end = time.monotonic() + HANG_LIMIT_S
        while bool(termios.tcgetattr(self.fd)[3] & termios.ECHO) != on:
            assert time.monotonic() < end, f"{self.words}: echo is {not on}"
            time.sleep(0.005)

    def status(self, seconds=HANG_LIMIT_S):
        """Its exit status, -N for a signal."""
        end = time.monotonic() + seconds
        while self._more(end):
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def is_(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found!r}, not {wanted!r}")
END

# at_terminal WHAT CODE: runs Python code with Terminal imported; its failures are the test's
at_terminal() {
	PYTHONPATH=$T "$PLAIN_PYTHON" -c "from terminal import *
$2" || bad "$1"
}

at_terminal 'exec: Ctrl-C' '
t = Terminal("ddip", "exec", "import time\nprint(\"begun\")\ntime.sleep(100)")
t.expect("begun")
t.type(CTRL_C)
is_("exec", t.status(), 130)
assert "KeyboardInterrupt" in t.text, t.text
'
is 'the cell was interrupted' "$(state)" interrupted

printf 'import time\nprint("begun")\ntime.sleep(100)\n' >"$T/sleeps.py"
at_terminal 'run: Ctrl-C; stderr in red; a message on colour' '
t = Terminal("ddip", "run", "-f", os.environ["HOME"] + "/sleeps.py")
t.expect("begun")
t.type(CTRL_C)
is_("run", t.status(), 130)
t = Terminal("ddip", "exec", "import sys; print(\"dark\", file=sys.stderr)")
t.expect("\x1b.31mdark")
is_("exec", t.status(), 0)
'

cat >"$T/asks.py" <<'END'
import shutil, sys
print(sys.stdout.isatty(), sys.stderr.isatty(), tuple(shutil.get_terminal_size()))
print("err", file=sys.stderr)
print("hello", input("name: "), len(sys.stdin.read()))
END
at_terminal 'run: a terminal is one to the program of the rank that is shown, and its lines are the input' '
t = Terminal("sh", "-c", "stty rows 33 cols 111 && ddip run -f -r 1 $HOME/asks.py")
t.expect(r"True True [(]111, 33[)]\r\nerr\r\nname: ")
t.type("Ada\n")
t.type("a\nbc\n")
t.type(CTRL_D)
t.expect(r"hello Ada 5\r\n")
is_("run", t.status(), 0)
t = Terminal("ddip", "run", "-a", "-r", "1", os.environ["HOME"] + "/asks.py")
t.expect(r"1: False False .*1: name: ")
t.type(CTRL_C)
is_("run", t.status(), 130)
'

at_terminal 'exec in the background: after fg it gets the input' '
t = Terminal("bash", "--norc", "--noprofile", "-i")
t.type("ddip exec -r 0 \"print(1 + int(input()))\" &\n")
t.expect("rank 0 waits for input: fg, or ddip attach 0")
t.type("fg\n")
t.expect("fg\r\n.*ddip exec")
t.type("41\n")
t.expect("42\r\n")
t.type("exit\n")
is_("bash", t.status(), 0)
'

echo 'import getpass; print(len(getpass.getpass("secret: ")), input("name: "))' >"$T/secret.py"
at_terminal 'a password is not shown, and then the echo is as before' '
t = Terminal("sh", "-c", "ddip run -f -r 0 $HOME/secret.py; read line")
t.expect("secret: ")
t.until_echo(False)
t.type("hush\n")
t.expect("name: ")
t.until_echo(True)
t.type("Ada\n")
t.expect("4 Ada\r\n")
assert "hush" not in t.text, t.text
t.type("\n")
is_("sh", t.status(), 0)
t = Terminal("sh", "-c", "ddip exec -r 0 \"import getpass; getpass.getpass()\"; read line")
t.expect("Password: ")
t.until_echo(False)
t.type(CTRL_C)
t.expect("KeyboardInterrupt")
t.until_echo(True)
t.type("\n")
t.status()
t = Terminal("sh", "-m", "-c", "ddip run -f -r 0 $HOME/secret.py; echo stopped; read line; fg; read line")
t.expect("secret: ")
t.until_echo(False)
t.type("\x1a")
t.expect("stopped\r\n")
t.until_echo(True)
t.type("\n")
t.until_echo(False)
t.type("hush\n")
t.expect("name: ")
t.type("Ada\n")
t.expect("4 Ada\r\n")
assert "hush" not in t.text, t.text
t.until_echo(True)
t.type("\n")
is_("sh", t.status(), 0)
'

at_terminal 'run -: Ctrl-C while it is typed' '
t = Terminal("ddip", "run", "-")
t.type("half = 1\n")
t.until_it_reads()
t.break_off()
'
like 'half a program is not run' "$(errno read "$G/vars/half")" ENOENT

# wait, tail -f: they end, and what they watch goes on
n=$(ddip exec -d 'import time; print("line", flush=True); time.sleep(100)')
guarded grep -m1 -q line "$G/cells/$n/stream"
at_terminal 'wait: Ctrl-C' '
t = Terminal("ddip", "-x", "wait")
t.expect("cat .*/wait")
t.break_off()
'
at_terminal 'tail -f: Ctrl-C' '
t = Terminal("ddip", "tail", "-f", "0")
t.expect("line")
t.break_off()
t = Terminal("ddip", "-x", "tail", "-f")
t.expect("cat .*/log")
t.break_off()
'
is 'it still runs' "$(state "$n")" running
ok ddip interrupt "$n"
wait_cell "$n" >/dev/null

# attach
n=$(ddip exec -d 'name = input("your name: ")')
guarded grep -m1 -q input_request "$G/cells/$n/stream"
echo nobody >"$G/rank1/stdin"
at_terminal 'attach: input()' '
t = Terminal("ddip", "attach", "0")
t.expect("your name: ")
t.type("somebody\n")
t.type(CTRL_D)
is_("attach", t.status(), 0)
'
like 'input() ends' "$(wait_cell "$n")" 'state ok'
is 'what it was given' "$(cat "$G"/rank?/vars/name | xargs)" 'somebody nobody'
n=$(ddip exec -d -r 0 'import getpass
secrets = [getpass.getpass("first: "), getpass.getpass("second: "), input("name: ")]')
guarded grep -m1 -q first: "$G/cells/$n/stream"
at_terminal 'attach: a password is not shown' '
t = Terminal("sh", "-c", "ddip attach 0; read line")
for prompt, word in ("first: ", "hush\n"), ("second: ", "quiet\n"):
    t.expect(prompt)
    t.until_echo(False)
    t.type(word)
t.expect("name: ")
t.until_echo(True)
t.type("Ada\n")
t.expect("Ada\r\n")
assert "hush" not in t.text and "quiet" not in t.text, t.text
t.type(CTRL_D)
t.type("\n")
is_("sh", t.status(), 0)
'
like 'getpass() ends' "$(wait_cell "$n")" 'state ok'
is 'what it was given' "$(cat "$G/rank0/vars/secrets")" "['hush', 'quiet', 'Ada']"
n=$(ddip exec -d -r 0 'import getpass; getpass.getpass("asks: ")')
at_terminal 'attach: the echo is on after Ctrl-Z, and after the end' '
t = Terminal("sh", "-m", "-c", "ddip attach 0; echo stopped; read line; fg; read line")
t.expect("asks: ")
t.until_echo(False)
t.type("\x1a")
t.expect("stopped\r\n")
t.until_echo(True)
t.type("\n")
t.until_echo(False)
t.type(CTRL_D)
t.until_echo(True)
t.type("\n")
is_("sh", t.status(), 0)
'
ok ddip interrupt "$n"
n=$(ddip exec -d -r 1 'x = 5
import pdb; pdb.set_trace()
y = 1')
guarded grep -m1 -q input_request "$G/cells/$n/stream"
at_terminal 'attach: pdb' '
t = Terminal("ddip", "attach", "1")
t.expect("[(]Pdb[)] ")
t.type("p x * 2\n")
t.expect("10.*[(]Pdb[)] ")
t.type("c\n")
t.type(CTRL_D)
is_("attach", t.status(), 0)
'
like 'pdb goes on' "$(wait_cell "$n")" 'state ok'
n=$(ddip exec -d -r 1 'import time
print("sleeps", flush=True)
time.sleep(100)')
at_terminal 'attach: Ctrl-C' '
t = Terminal("ddip", "-x", "attach", "1")
t.expect("sleeps")
t.type(CTRL_C)
t.expect("echo interrupt")
t.type(CTRL_D)
is_("attach", t.status(), 0)
'
like 'Ctrl-C in attach interrupts the cell' "$(wait_cell "$n")" 'state interrupted'

# attach waits while the rank's input is full
seq 400000 >"$T/lines"
ddip attach 1 <"$T/lines" >/dev/null 2>"$T/attach.err" &
attached=$!
full() {
	grep -q 'rank 1 has not read' "$G/error"
}
until_true full
n=$(ddip exec -d -r 1 'import sys; total = sum(int(sys.stdin.readline()) for _ in range(400000))')
like 'attach passes on all lines' "$(wait_cell "$n")" 'state ok'
is 'all of them' "$(cat "$G/rank1/vars/total")" 80000200000
ok wait $attached
is 'attach has nothing to say' "$(cat "$T/attach.err")" ''

# shell
at_terminal 'shell' '
t = Terminal("ddip", "shell")
t.expect("group> ")
t.type("6 * 7\n")
t.expect("42\r\n.*group> ")
t.type("for i in range(2):\n")
t.expect("[.][.][.] ")
t.type("    print(\"i =\", i)\n\n")
t.expect("i = 0\r\ni = 1\r\n.*group> ")
t.type("z = [1,\n2]\n")
t.expect("group> ")
t.type("\"\"\"a\nb\"\"\"\n")
t.expect("a.nb.*group> ")
t.type("1 / 0\n")
t.expect("ZeroDivisionError.*group> ")
t.type("import time; print(\"begun\"); time.sleep(100)\n")
t.expect("begun\r\n")
t.type(CTRL_C)
t.expect("KeyboardInterrupt.*group> ")
t.type("this is dropped")
t.expect("dropped")
t.drop_line()
t.type("while True:\n")
t.expect("[.][.][.] ")
t.drop_line()
t.type("remarkable_name = 8\n")
t.expect("group> ")
t.type("remark" + TAB + " + 1\n")
t.expect("9\r\n.*group> ")
t.type("remarkable_name.bit_le" + TAB + "()\n")
t.expect("\r\n4\r\n.*group> ")
t.type("remarkable_name.b" + TAB + TAB)
t.expect("bit_count +bit_length.*group> remarkable_name.bit_$")
t.drop_line()
t.type("print(\"\u00e4\u00f6x\x7fz\")\n")
t.expect("\r\n\u00e4\u00f6z\r\n.*group> ")
t.type(UP + "\n")
t.expect("\r\n\u00e4\u00f6z\r\n.*group> ")
t.type(CTRL_D)
is_("shell", t.status(), 0)
t = Terminal("ddip", "shell", "-a")
t.expect("group> ")
t.type(UP + "\n")
t.expect("[01]: \u00e4\u00f6z\r\n[01]: \u00e4\u00f6z\r\n.*group> ")
t.type("exit\n")
is_("shell", t.status(), 0)
t = Terminal("env", "TERM=xterm", "ddip", "shell")
t.expect("group> ")
t.type("\x1b[200~def pasted(x):\n    y = x\n\n    return y + 1\n\npasted(40)\x1b[201~")
t.type("\n")
t.expect("\r41\r\n.*group> ")
t.type(CTRL_D)
is_("shell", t.status(), 0)
'
# a locale in which Python refuses bytes that are not UTF-8
mkdir "$T/locales"
if localedef -i en_US -f UTF-8 "$T/locales/en_US.UTF-8" 2>/dev/null; then
	printf '# \xe9\n6 * 7\n' >"$T/latin"
	LOCPATH=$T/locales LC_ALL=en_US.UTF-8 ddip shell <"$T/latin" >"$T/said" 2>"$T/stderr"
	is 'shell: the line behind bytes that are not UTF-8' "$? $(sed 's/group> //g' "$T/said")" '0 42'
	like 'shell: tells of them' "$(cat "$T/stderr")" 'the source is not in UTF-8'
fi
ok grep -q '6 \* 7' "$T/.ddip_history"
like 'what was dropped did not run' "$(cat "$G"/cells/*/source | grep -v '^# ddip' | grep -c 'dropped\|while')" '^0$'

# the other verbs return at once, or wait as the mount does
at_terminal 'restart: Ctrl-C leaves a group that works' '
t = Terminal("ddip", "-x", "restart")
t.expect("echo restart")
t.type(CTRL_C)
t.status()
'
ok ddip start
is 'it works' "$(ddip exec 1)" 1
at_terminal 'mount and umount' '
t = Terminal("sh", "-c", "mkdir $HOME/two && ddip mount -o backend=none $HOME/two && ddip umount $HOME/two")
is_("mount and umount", t.status(), 0)
'

# without engines
ok ddip stop
at_terminal 'attach says what is missing' '
t = Terminal("ddip", "attach", "0")
t.type("a line\n")
assert t.status() == 4 and "rank 0 has no engine" in t.text, t.text
'
