#!/usr/bin/env python3
"""A program ends as a process does, and leaves the rank to later cells as it was."""

import sys

import wire
from wire import Agent, same, until

OK, RAISED, INTERRUPTED, SYNTAX, EXIT = range(5)
PROGRAM = '# ddip run: {"argv": ["-"]}\n'
POOL = """
import concurrent.futures, time
def work():
    print("on", flush=True)
    time.sleep(1000)
pool = concurrent.futures.ProcessPoolExecutor(2)
print(pool.submit(int, "3").result(), flush=True)
"""


def test_pools_of_processes():
    """One in a global ends with its program; one of an earlier cell stays."""
    with Agent() as a:
        a.spawn(0)
        r, out, _ = a.run(0, POOL.replace("pool", "own"))
        same((r.outcome, out), (OK, b"3\n"))
        for worker in ("pool.submit(print, 'last')", "del pool"):
            r, out, err = a.run(0, f"{PROGRAM}{POOL}{worker}")
            same((r.outcome, out[:2], err), (OK, b"3\n", b""))
            same(b"last" in out, "last" in worker)
        same(a.run(0, "own.submit(int, '4').result()")[0].value, b"4")
        for work in ("print('on', flush=True)", "pool.submit(work)"):
            before = len(a.spool(0, "stdout"))
            source = f"{PROGRAM}{POOL}{work}\nwhile True: time.sleep(60)"
            tag = a.ask("Trun", 0, 7, 1, source, mark=True)
            until(lambda at=before: a.spool(0, "stdout")[at:] == b"3\non\n", what="the program")
            a.send("Nintr", 0, 7, 0)
            same(a.finish(0, tag)[0].outcome, INTERRUPTED)
        a.run(0, "own.shutdown()")


BROKEN = """
import concurrent.futures, os, signal, sys, threading
def kills(pids):
    queue = sys._getframe(1).f_locals["call_queue"]
    other, = set(pids) - {os.getpid()}
    while queue._rlock.acquire(block=False):  # until the other has it, and waits for work
        queue._rlock.release()
    os.kill(other, signal.SIGSTOP)
    def kill():
        queue._reader.poll(None)  # until the pool shuts down
        os.kill(other, signal.SIGKILL)
    threading.Thread(target=kill).start()
pool = concurrent.futures.ProcessPoolExecutor(2)
pool.submit(int, "3").result()
pool.submit(kills, list(pool._processes)).result()
print("ends", flush=True)
"""


def test_a_pool_whose_lock_is_lost():
    """A process has died with the lock of the pool's queue while the others wait for it, as an
    interrupt may leave it: it is ended."""
    with Agent() as a:
        a.spawn(0)
        same(a.run(0, f"{PROGRAM}{BROKEN}")[:2][1], b"ends\n")


AT_EXIT = """
import atexit, multiprocessing.util, sys, weakref
class Thing: pass
def fails(what): raise ValueError(what)
things = Thing(), Thing()
for number, thing in enumerate(things):
    weakref.finalize(thing, fails, f"weak {number}")
    multiprocessing.util.Finalize(thing, fails, (f"multi {number}",), exitpriority=1)
atexit.register(print, "first")
atexit.register(sys.exit, 3)
atexit.register(fails, "function")
"""
WAITS = "atexit.register(lambda: (print('waits', flush=True), input()))"


def test_what_runs_at_exit_fails():
    """As in Python, all of it runs, and the status is the program's own."""
    with Agent() as a:
        a.spawn(0)
        for more in ("", WAITS):
            tag = a.ask("Trun", 0, 5, 1, f"{PROGRAM}{AT_EXIT}{more}", mark=True)
            if more:
                a.wait(lambda m: m.name == "Ninput" and m.waits == 1, what="input")
                a.send("Nintr", 0, 5, 0)
            r, out, err = a.finish(0, tag)
            want = (INTERRUPTED, b"waits\nfirst\n") if more else (OK, b"first\n")
            same((r.outcome, out), want)
            for line in ("SystemExit: 3", "function", "weak 0", "weak 1", "multi 0", "multi 1"):
                assert err.decode().count(f"{line}\n") == 1, (line, err.decode())


REDIRECTS = """
import os, sys, tempfile
file = tempfile.TemporaryFile()
os.dup2(file.fileno(), 1)
{}
os.close(2)
os.dup2(file.fileno(), 0)
print("into the file")
"""
OWN = "sys.stdout = open(1, 'w', closefd=False)"
SHOWN = """
import subprocess
print('shown'); os.write(2, b'error'); subprocess.run(["echo", "child"])
print(os.fstat(0) == before); file.seek(0); file.read()"""


HELD = """
import io, sys, threading
from ddip_engine.cells import program_end
held, counts, ended = [], set(), []
def look():
    while not ended:
        counts.add(sys.getrefcount(held))
interval = sys.getswitchinterval()
sys.setswitchinterval(1e-6)
looks = threading.Thread(target=look)
looks.start()
with open("/dev/null", "w") as file:
    for _ in range(20):
        program_end._end_files(None)
        file.write("text")
    found = file in __import__("_ddip").instances(io.IOBase.__base__)
ended.append(1)
looks.join()
sys.setswitchinterval(interval)
found, len(counts)
"""


def test_what_looks_for_files_holds_nothing():
    """The look for open files holds no object while another thread runs: with torch 2.7 a tensor
    that C++ owns would be broken by that, and a warning printed."""
    with Agent() as a:
        a.spawn(0)
        same(a.run(0, HELD)[0].value, b"(True, 1)")


def test_descriptors_are_restored():
    """Those of input and output, whatever the program does to them."""
    with Agent() as a:
        a.spawn(0)
        a.run(0, "import os; before = os.fstat(0); count = len(os.listdir('/proc/self/fd'))")
        for keep in ("false", "true"):
            for stream in ("", OWN):
                first = f'# ddip run: {{"argv": ["-"], "keep": {keep}}}\n'
                r, out, err = a.run(0, first + REDIRECTS.format(stream))
                same((r.outcome, out, err), (OK, b"", b""))
                r, out, err = a.run(0, SHOWN)
                same((out, err), (b"shown\nchild\nTrue\n", b"error"))
                same(r.value, b"b'into the file\\n'")
        same(a.run(0, "file.close(); len(os.listdir('/proc/self/fd')) - count")[0].value, b"0")


if __name__ == "__main__":
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
