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


if __name__ == "__main__":
    sys.exit(wire.run_tests(globals(), sys.argv[1:]))
