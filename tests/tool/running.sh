#!/usr/bin/env bash
# On a terminal, below a cell without output: how long it runs, and which rank waits for which. It is gone before the
# next output, and is not shown where it would be in the way.
. "$(dirname "$0")/../lib.sh"

! signals_wait || skip 'ThreadSanitizer delivers no signal to a loop: its stack can not be read'
mount_torch -o size=2 -o stall=off -o grace=off
export DDIP_MOUNT=$M PATH=$BUILD:$PATH HOME=$T HANG_LIMIT_S
cell 'import time, torch, torch.distributed as dist' || give_up 'the first cell'
cat >"$T/running.py" <<'END2'
import os, pty, re, select, sys, time


def run(code, end, term="xterm", then=b""):
    """All that `ddip exec` writes to a terminal until the pattern `end`, and after `then` is typed."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = term
        os.execvp("ddip", ["ddip", "exec", code])
    seen, limit = b"", time.monotonic() + float(os.environ["HANG_LIMIT_S"])
    while True:
        if end and re.search(end, seen):
            end = None
            os.write(fd, then)
        if not select.select([fd], [], [], max(0, limit - time.monotonic()))[0]:
            sys.exit(f"{code!r}: hangs, with {seen!r}")
        try:
            data = os.read(fd, 65536)
        except OSError:  # EIO: it has ended
            data = b""
        if not data:
            break
        seen += data
    os.waitpid(pid, 0)
    assert end is None, (code, end, seen)
    return seen


erase = rb"\r\x1b\[K"
wait = "import time; print('a', end={0!r}, flush=True); time.sleep(3.6); print('b')"
seen = run(wait.format("\n"), rb"b\r\n")
assert re.fullmatch(rb"a\r\n(" + erase + rb"running for \d s)+" + erase + rb"b\r\n", seen), seen
# not behind the beginning of a line, nor where the terminal cannot erase it
assert run(wait.format(""), rb"b\r\n") == b"ab\r\n"
assert run(wait.format("\n"), rb"b\r\n", term="dumb") == b"a\r\nb\r\n"
stuck = "if rank == 0: dist.all_reduce(torch.ones(4))\nelse:\n    while True: pass"
seen = run(stuck, rb"rank 1 is in no collective \(<cell \d+>:3\); rank 0 wait", then=b"\x03")
assert b"KeyboardInterrupt" in seen, seen
END2
"$TORCH_PYTHON" "$T/running.py" || bad 'the running line'
