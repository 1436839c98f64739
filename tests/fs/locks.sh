#!/usr/bin/env bash
# flock(2) and fcntl(2) locks exclude other processes, on every file of the mount, however it was opened.
. "$(dirname "$0")/../lib.sh"

mount_plain
cell 'x = 1'
for file in cell ctl status vars/x rank0/stdout; do
	guarded "$PLAIN_PYTHON" - "$G/$file" <<'END' || bad "locks of $file"
import errno, fcntl, os, signal, sys

path = sys.argv[1]
only_read = path.endswith(("status", "vars/x"))


def opened():
    return os.open(path, os.O_RDONLY if only_read else os.O_RDWR)


def refused(lock, *args):
    try:
        lock(*args)
    except OSError as e:
        assert e.errno in (errno.EAGAIN, errno.EACCES), e
        return True
    return False


def in_child(what):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if what() else 1)
    return os.waitpid(pid, 0)[1] == 0


a, b = opened(), opened()
fcntl.flock(a, fcntl.LOCK_EX)
assert refused(fcntl.flock, b, fcntl.LOCK_EX | fcntl.LOCK_NB), "two exclusive locks"
assert refused(fcntl.flock, b, fcntl.LOCK_SH | fcntl.LOCK_NB), "a shared one beside an exclusive one"
fcntl.flock(a, fcntl.LOCK_SH)
fcntl.flock(b, fcntl.LOCK_SH | fcntl.LOCK_NB)
fcntl.flock(a, fcntl.LOCK_UN)
fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
# who waits gets it when the other one closes
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(b)
    c = opened()
    os.write(w, b"x")
    fcntl.flock(c, fcntl.LOCK_EX)
    os._exit(0)
os.read(r, 1)
os.close(b)
assert os.waitpid(pid, 0)[1] == 0, "the waiter"
# a waiter can be interrupted
b = opened()
fcntl.flock(b, fcntl.LOCK_EX)
pid = os.fork()
if pid == 0:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    fcntl.flock(opened(), fcntl.LOCK_EX)
    os._exit(0)
assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGALRM, "a waiter that a signal ends"
# also by one that it catches: a program's own time limit
class Late(Exception):
    pass
def late(number, frame):
    raise Late
signal.signal(signal.SIGALRM, late)
for wait in [fcntl.flock] + [fcntl.lockf] * (not only_read):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        wait(b, fcntl.LOCK_EX)
        os.write(w, b".")
        signal.pause()
    os.read(r, 1)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        wait(opened(), fcntl.LOCK_EX)
        raise SystemExit("two have one lock")
    except Late:
        pass
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
os.close(b)

if not only_read:
    # ranges, between processes
    fcntl.lockf(a, fcntl.LOCK_EX, 100, 100)
    assert in_child(lambda: refused(fcntl.lockf, opened(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 150)), "inside"
    assert in_child(lambda: refused(fcntl.lockf, opened(), fcntl.LOCK_EX | fcntl.LOCK_NB)), "all of it"
    assert in_child(lambda: not refused(fcntl.lockf, opened(), fcntl.LOCK_EX | fcntl.LOCK_NB, 100, 0)), "before"
    fcntl.lockf(a, fcntl.LOCK_UN, 10, 150)
    assert in_child(lambda: not refused(fcntl.lockf, opened(), fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 150)), "a hole"
    assert in_child(lambda: refused(fcntl.lockf, opened(), fcntl.LOCK_EX | fcntl.LOCK_NB, 11, 150)), "its right side"
    assert in_child(lambda: refused(fcntl.lockf, opened(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 149)), "its left side"
    os.close(opened())  # as POSIX has it: any close ends the locks of the process
    assert in_child(lambda: not refused(fcntl.lockf, opened(), fcntl.LOCK_EX | fcntl.LOCK_NB)), "after a close"
END
done
# the way shells use them
for _ in 1 2 3 4; do
	flock "$G/ctl" sh -c "read n <'$T/n' || n=0; echo \$((n + 1)) >'$T/n'" 2>/dev/null &
done
wait
is 'flock(1) serialises' "$(cat "$T/n")" 4
is 'x is what it was' "$(cat "$G/vars/x")" 1
