#!/usr/bin/env python3
"""A program ends as a process does, and leaves the rank to later cells as it was."""

import sys

import wire
from wire import Agent, same, until

OK, RAISED, INTERRUPTED, SYNTAX, EXIT = range(5)
PROGRAM = '# ddip run: {"argv": ["-"]}\n'
POOL = """
import concurrent.futures, time
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
        for work in ("", "pool.submit(time.sleep, 1000)\n"):
            before = len(a.spool(0, "stdout"))
            source = f"{PROGRAM}{POOL}{work}while True: time.sleep(60)"
            tag = a.ask("Trun", 0, 7, 1, source, mark=True)
            until(lambda at=before: a.spool(0, "stdout")[at:] == b"3\n", what="the program")
            a.send("Nintr", 0, 7)
            same(a.finish(0, tag)[0].outcome, INTERRUPTED)
        a.run(0, "own.shutdown()")


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
                a.send("Nintr", 0, 5)
            r, out, err = a.finish(0, tag)
            want = (INTERRUPTED, b"waits\nfirst\n") if more else (OK, b"first\n")
            same((r.outcome, out), want)
            for line in ("SystemExit: 3", "function", "weak 0", "weak 1", "multi 0", "multi 1"):
                assert err.decode().count(f"{line}\n") == 1, (line, err.decode())


if __name__ == "__main__":
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
